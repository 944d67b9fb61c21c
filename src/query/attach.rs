//! What a query keeps between runs, and where its rows go.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use tokio::sync::{Mutex, MutexGuard};

use super::in_flight::InFlight;
use super::progress::EpochProgress;
use super::saved::{MadeOf, SourceAt};
use super::trigger::Orders;
use crate::checkpoint::{Checkpoint, Piece, Restored};
use crate::error::{Refusal, refusal};
use crate::source::Cursor;
use crate::state::{Idleness, Observed, QueryState};
use crate::time::Instant;

/// The condition of what was planned by a definition that its table does not have any more.
const REDEFINED: &str = "STREAMING_TABLE_REDEFINED";

/// Whether a run was refused because its table has another definition than when it was planned.
pub fn is_redefined(error: &DataFusionError) -> bool {
    refusal(error).is_some_and(|refusal| refusal.condition == REDEFINED)
}

/// What a query keeps between its epochs.
#[derive(Debug, Default)]
pub struct RunState {
    /// State of its operators and clauses.
    pub state: Arc<QueryState>,
    /// How far each source has been read, by its name.
    pub cursors: HashMap<String, Cursor>,
    /// Number of the next epoch.
    pub next_epoch: u64,
    /// Watermark at the end of the last epoch.
    pub watermark: Option<Instant>,
    /// When the last epoch began.
    pub began: Option<std::time::Instant>,
    /// What the clauses had observed when the last epoch committed.
    pub observed: Vec<Option<Observed>>,
    /// Which inputs have given nothing for long, since the query first ran in this process.
    pub idleness: Idleness,
    /// Where each source stood in the last checkpoint.
    pub(super) saved: HashMap<String, SourceAt>,
    /// What the operators' state is made of; none before there was a plan.
    pub(super) operators: Option<Vec<(String, MadeOf)>>,
    /// Whether memory is ahead of the checkpoint, because it could not be written: the state must be read
    /// again before it is used.
    pub is_ahead: bool,
    /// The last epoch, as long as it is on its way to the disk and to the result.
    pub(super) in_flight: Option<InFlight>,
    /// Whether another query has taken its place: it never runs again.
    pub is_ended: bool,
    /// How many definitions of its table have gone before the one that it runs by.
    pub generation: u64,
}

impl RunState {
    /// Refuses to go on by a definition of the table that another one has taken the place of.
    ///
    /// # Errors
    /// - it is another one: [`is_redefined`] knows the error
    pub fn check_generation(&self, generation: u64) -> Result<()> {
        if self.generation == generation {
            return Ok(());
        }
        Err(Refusal::new(
            REDEFINED,
            "55000",
            "The table was given another query meanwhile.",
        )
        .hint("run it again")
        .into())
    }

    /// Undoes an epoch that did not commit, because it failed or its run was dropped.
    pub(super) fn undo(&mut self) {
        self.state.abort();
        self.state.watermarks.restore(self.observed.clone());
        self.close_readers();
    }

    /// Lets go of the readers: the next run finds what has come since.
    pub(super) fn close_readers(&mut self) {
        for cursor in self.cursors.values_mut() {
            cursor.close();
        }
    }
}

/// The rows of an epoch.
#[derive(Debug, Clone, Default)]
pub struct EpochRows {
    /// Those that it emitted.
    pub emitted: Vec<RecordBatch>,
    /// Those that it did not count, where they are kept.
    pub late: Vec<RecordBatch>,
}

/// Takes the rows of finished epochs.
#[async_trait]
pub trait EpochSink: fmt::Debug + Send + Sync {
    /// Looks at the rows of an epoch, before it commits, and gives those that will be taken: an
    /// error undoes the epoch.
    ///
    /// # Errors
    /// - the rows cannot be kept
    fn prepare(&self, rows: EpochRows) -> Result<EpochRows> {
        Ok(rows)
    }

    /// The pieces of a checkpoint with an epoch's rows and its record.
    ///
    /// # Errors
    /// - none of its own
    fn pieces(&self, _rows: &EpochRows, _progress: &EpochProgress) -> Result<Vec<Piece>> {
        Ok(Vec::new())
    }

    /// Goes back to what a checkpoint holds.
    ///
    /// # Errors
    /// - the checkpoint holds something else
    fn restore(&self, _restored: &Restored) -> Result<()> {
        Ok(())
    }

    /// Called before the first epoch of a run: rows of earlier epochs that have not arrived where they go are
    /// handed on. `next` epochs have committed.
    ///
    /// # Errors
    /// - they still cannot be handed on; nothing is lost
    async fn ready(&self, _next: u64) -> Result<()> {
        Ok(())
    }

    /// Called when an epoch has committed, with how many rows of each source have been read then, where a source's
    /// rows are numbered: none of them is read again.
    fn reached(&self, _rows: Vec<(String, u64)>) {}

    /// Takes the rows of an epoch that has committed, all of them, and its record. Rows that
    /// [`prepare`](Self::prepare) let pass must not fail here.
    ///
    /// # Errors
    /// - the rows cannot be kept
    async fn commit(&self, rows: EpochRows, progress: EpochProgress) -> Result<()>;
}

/// State and result of a streaming table, for the run of its query that an extension of the session
/// configuration carries it to.
#[derive(Debug)]
pub struct Attached {
    /// What it keeps; locked while it runs.
    pub run: Arc<Mutex<RunState>>,
    /// Where its rows go.
    pub sink: Arc<dyn EpochSink>,
    /// Columns of the rows that an epoch does not count, if they are kept.
    pub late: Option<SchemaRef>,
    /// Where its epochs are written, if they are.
    pub checkpoint: Option<Arc<Checkpoint>>,
    /// Whether rows of a source that cannot give them again may be lost with a failure.
    pub may_lose: bool,
    /// What the query was told that the run is one of; none for a run that was asked for by itself. With
    /// them an epoch runs only where something has arrived, and none begins when the query is to stop.
    pub orders: Option<Orders>,
    /// Whether the run reads its sources; else it is one epoch without input.
    pub reads: bool,
    /// How many definitions of the table have gone before the one that the run was planned by.
    pub generation: u64,
}

impl Attached {
    /// Waits until no other run of the query is under way; none if the query is to stop meanwhile.
    pub(super) async fn turn(&self) -> Option<MutexGuard<'_, RunState>> {
        match &self.orders {
            None => Some(self.run.lock().await),
            Some(orders) => tokio::select! {
                biased;
                () = orders.stopped() => None,
                state = self.run.lock() => Some(state),
            },
        }
    }

    /// Reads the state again if memory is ahead of the checkpoint, and hands on what has not arrived.
    ///
    /// # Errors
    /// - the table has gone, or has another query since the run was planned
    /// - the checkpoint cannot be read, or the rows cannot be handed on
    pub(super) async fn make_ready(&self, state: &mut RunState) -> Result<()> {
        if state.is_ended {
            return Err(Refusal::new(
                "STREAMING_TABLE_REPLACED",
                "55000",
                "The table was dropped or begun anew meanwhile.",
            )
            .into());
        }
        state.check_generation(self.generation)?;
        // Of a run that was dropped. If it failed memory is ahead, and the checkpoint tells what became of it.
        state.settle().await.ok();
        if let Some(checkpoint) = &self.checkpoint
            && state.is_ahead
        {
            let restored = checkpoint.reload()?;
            self.sink.restore(&restored)?;
            *state = RunState {
                generation: state.generation,
                ..RunState::restored(&restored)?
            };
        }
        if let Some(checkpoint) = &self.checkpoint {
            // What is handed on is not taken back.
            checkpoint.settle()?;
        }
        self.sink.ready(state.next_epoch).await
    }
}
