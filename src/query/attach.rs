//! What a query keeps between runs, and where its rows go.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use tokio::sync::Mutex;

use super::progress::EpochProgress;
use crate::source::Cursor;
use crate::state::{Observed, QueryState};
use crate::time::Instant;

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
}

impl RunState {
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

/// Takes the rows of finished epochs.
#[async_trait]
pub trait EpochSink: fmt::Debug + Send + Sync {
    /// Looks at the rows that an epoch emitted, before it commits: an error undoes the epoch.
    ///
    /// # Errors
    /// - the rows cannot be kept
    fn prepare(&self, _rows: &[RecordBatch]) -> Result<()> {
        Ok(())
    }

    /// Takes the rows of an epoch that has committed, all of them, and its record. Rows that
    /// [`prepare`](Self::prepare) let pass must not fail here.
    ///
    /// # Errors
    /// - the rows cannot be kept
    async fn commit(&self, rows: Vec<RecordBatch>, progress: EpochProgress) -> Result<()>;
}

/// State and result of a streaming table, for the run of its query that an extension of the session
/// configuration carries it to.
#[derive(Debug)]
pub struct Attached {
    /// What it keeps; locked while it runs.
    pub run: Arc<Mutex<RunState>>,
    /// Where its rows go.
    pub sink: Arc<dyn EpochSink>,
}
