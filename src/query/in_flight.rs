//! An epoch that has committed in memory and is on its way to the disk, and then to the result, while the next
//! one reads.
//!
//! ```text
//! loop      read, absorb, emit 0 | commit 0 | read, absorb, emit 1 | commit 1 | read, absorb …
//! disk                                      | write 0 → hand on 0  |          | write 1 → hand on 1
//! ```
//!
//! * One epoch at a time is on its way: the next commits when the rows of this one have been handed on, for what it
//!   writes depends on them (`RunState::settle`).
//! * Rows are handed on when the epoch is on disk, not before.
//! * A run does not return before its last epoch has arrived. One that was dropped leaves it on its way in the
//!   [`RunState`], and whoever uses that next waits for it.
//! * Until it has arrived, memory is ahead of the checkpoint: after a failure the state is read from there again, and
//!   the epoch that was read meanwhile is undone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant as Clock;

use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};

use super::attach::{Attached, EpochRows, EpochSink, RunState};
use super::progress::EpochProgress;
use super::record::Stopwatch;
use super::saved::SourceAt;
use crate::checkpoint::{Checkpoint, Draft, Piece};

/// An epoch on its way.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Ends when the rows have been handed on.
    task: SpawnedTask<Result<()>>,
    /// Where each source stands with it.
    standing: HashMap<String, SourceAt>,
}

/// What is handed on when an epoch is on disk.
struct HandOver {
    sink: Arc<dyn EpochSink>,
    rows: EpochRows,
    /// Its record, without the time that it takes to write.
    progress: EpochProgress,
    /// How many rows of each source have been read with it, where they are numbered.
    read: Vec<(String, u64)>,
}

impl HandOver {
    async fn run(self) -> Result<()> {
        self.sink.commit(self.rows, self.progress).await?;
        self.sink.reached(self.read);
        Ok(())
    }

    /// Writes an epoch, and hands it on when it is on disk.
    fn behind(
        mut self,
        checkpoint: Arc<Checkpoint>,
        draft: Draft,
        watch: Stopwatch,
    ) -> SpawnedTask<Result<()>> {
        let began = Clock::now();
        let writing = SpawnedTask::spawn_blocking(move || {
            checkpoint.publish(draft)?;
            Ok(Clock::now())
        });
        SpawnedTask::spawn(async move {
            let ended: Clock = joined(writing.await)?;
            self.progress.phases.commit += ended.duration_since(began);
            self.progress.duration = ended.duration_since(watch.began());
            self.run().await
        })
    }
}

impl Attached {
    /// Takes an epoch that has committed in memory. Without a checkpoint its rows are handed on at once; with one
    /// it is on its way when this returns.
    ///
    /// # Errors
    /// - a part of its state cannot be had; without a checkpoint those of the sink
    pub(super) async fn take(
        &self,
        state: &mut RunState,
        mut pieces: Vec<Piece>,
        rows: EpochRows,
        progress: EpochProgress,
        mut watch: Stopwatch,
    ) -> Result<()> {
        let mut hand_over = HandOver {
            sink: Arc::clone(&self.sink),
            rows,
            progress,
            read: state.rows_read(),
        };
        let Some(checkpoint) = &self.checkpoint else {
            return hand_over.run().await;
        };
        pieces.extend(state.file_pieces()?);
        pieces.extend(self.sink.pieces(&hand_over.rows, &hand_over.progress)?);
        let standing = state.standing();
        let draft = checkpoint.draft(state.content(&standing)?, pieces)?;
        hand_over.progress.phases.commit += watch.lap();
        let task = hand_over.behind(Arc::clone(checkpoint), draft, watch);
        state.in_flight = Some(InFlight { task, standing });
        Ok(())
    }
}

impl RunState {
    /// Waits until the epoch that is on its way has arrived, if there is one. May be dropped and called again.
    ///
    /// # Errors
    /// - it could not be written, or its rows could not be handed on; memory stays ahead of the checkpoint
    pub async fn settle(&mut self) -> Result<()> {
        let Some(in_flight) = &mut self.in_flight else {
            return Ok(());
        };
        let done = (&mut in_flight.task).await;
        let standing = std::mem::take(&mut in_flight.standing);
        self.in_flight = None;
        joined(done)?;
        self.saved = standing;
        self.is_ahead = false;
        Ok(())
    }
}

/// What a task came to.
fn joined<T>(done: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    done.unwrap_or_else(|error| Err(DataFusionError::External(Box::new(error))))
}
