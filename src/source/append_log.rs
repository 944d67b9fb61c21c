//! Rows in order of arrival, and a reader of them.
//!
//! Rows are numbered from 0 as they arrive. Rows at the front may be removed; the others keep their
//! numbers:
//!
//! ```text
//!              0        base                rows
//! arrived      |--------|-------------------|
//! kept                  |----- len ---------|
//! ```
//!
//! - `base <= rows`, and `rows` never falls: both change under the lock of the rows.
//! - Rows of one append become visible together, after [`Keep`] has made them durable.
//! - Marks ([`advance`](AppendLog::advance)) stand between rows, and are kept in memory only.
//! - Rows that were written over are hidden: who looks at the log does not see them, who reads it as a stream does, and
//!   then those in their place.
//! - Writers wait for each other; readers wait for no writer that is making rows durable.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use tokio::sync::watch;

use super::marks::{Marks, Passed};
use super::retention::{Arrivals, Retention};
use super::{Arrival, Position, Reader, conform};
use crate::error::Refusal;
use crate::time::Instant;

/// Rows of a batch that is kept: large ones are cut so that partitions share them evenly.
pub(super) const BATCH_ROWS: usize = 8_192;

/// Makes the rows of a log durable.
pub trait Keep: Debug + Send + Sync {
    /// Makes rows durable that will have numbers from `start` on, and the time at which they arrived, in milliseconds
    /// since 1970, if the log is one whose rows go by it. Calls for one log come one after the other; after a call
    /// that failed the next one has the same `start`.
    ///
    /// # Errors
    /// - the rows are not durable; the log does not take them
    fn keep(&self, start: u64, batches: &[RecordBatch], arrived: Option<i64>) -> Result<()>;

    /// Removes rows before the one of this number, as far as they can be removed by themselves; returns the number of
    /// the first row that is kept, which stays so.
    ///
    /// # Errors
    /// - nothing is removed
    fn let_go(&self, row: u64) -> Result<u64>;
}

/// Rows in order of arrival. Appending is atomic: readers see all rows of one append or none.
#[derive(Debug)]
pub struct AppendLog {
    schema: SchemaRef,
    inner: RwLock<Inner>,
    /// Makes rows durable before they are visible.
    keep: Option<Arc<dyn Keep>>,
    /// When rows are removed, if they are.
    retention: Option<Retention>,
    /// What tells it from another log of its name, over restarts; empty if nothing does.
    id: String,
    /// Held by who appends, from the number of the first new row until the rows are visible.
    writing: Mutex<()>,
    /// What has come, for readers that wait.
    arrived: watch::Sender<Come>,
}

/// How far a log is.
#[derive(Debug, Clone, Copy, Default)]
struct Come {
    /// Number of the next row.
    rows: u64,
    /// How many marks have been set.
    marks: u64,
}

#[derive(Debug, Default)]
struct Inner {
    batches: Vec<RecordBatch>,
    /// Number of the first row of each batch.
    starts: Vec<u64>,
    /// Number of the first row that is kept, or of the next if none is.
    base: u64,
    /// Number of the next row.
    rows: u64,
    /// When the rows that are kept arrived, if they go by it.
    arrivals: Arrivals,
    /// What was said of the event time without a row.
    marks: Marks,
    /// Numbers of rows that others have been written over.
    hidden: BTreeSet<u64>,
}

/// Rows that were asked for and have been removed.
#[derive(Debug, PartialEq, Eq)]
struct Removed {
    /// Number of the first row that is kept.
    base: u64,
}

impl AppendLog {
    /// An empty log of rows of this schema.
    pub fn new(schema: SchemaRef) -> Self {
        Self::with_base(schema, 0)
    }

    /// An empty log whose first row will have this number: those before it were removed.
    pub fn with_base(schema: SchemaRef, base: u64) -> Self {
        let inner = Inner {
            base,
            rows: base,
            ..Inner::default()
        };
        Self {
            schema,
            inner: RwLock::new(inner),
            keep: None,
            retention: None,
            id: String::new(),
            writing: Mutex::default(),
            arrived: watch::Sender::new(Come {
                rows: base,
                marks: 0,
            }),
        }
    }

    /// The log with rows made durable before they are visible, from now on.
    #[must_use]
    pub fn kept_by(mut self, keep: Arc<dyn Keep>) -> Self {
        self.keep = Some(keep);
        self
    }

    /// The log with old rows removed, from now on ([`let_go`](Self::let_go)); those that it has arrived at these times.
    #[must_use]
    pub fn retained(mut self, retention: Option<Retention>, arrivals: Arrivals) -> Self {
        if retention.is_some() {
            self.inner_mut().arrivals = arrivals;
        }
        self.retention = retention;
        self
    }

    /// The log with an id, by which it is known again after a restart.
    #[must_use]
    pub fn identified(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// What tells it from another log of its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether appending makes rows durable.
    pub(super) fn is_kept(&self) -> bool {
        self.keep.is_some()
    }

    /// Schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of rows that have ever arrived: the number of the next one, counted from 0.
    pub fn rows(&self) -> u64 {
        self.inner().rows
    }

    /// The rows behind a position, without one those behind what is removed; and the marks behind so many.
    pub(super) fn awaited(&self, position: Option<&Position>, marks: u64) -> Awaited {
        Awaited {
            marks,
            row: match position {
                Some(Position::Rows(rows)) => *rows,
                // Those that are read in the order of event time are at hand.
                Some(Position::Ordered(rows)) => rows.first,
                _ => self.base(),
            },
            arrived: self.arrived.subscribe(),
        }
    }

    /// Number of the first row that is kept, or of the next row if none is; 0 unless rows were removed.
    pub fn base(&self) -> u64 {
        self.inner().base
    }

    /// Number of rows that are kept.
    pub fn len(&self) -> u64 {
        let inner = self.inner();
        inner.rows - inner.base
    }

    /// Whether no rows are kept.
    pub fn is_empty(&self) -> bool {
        let inner = self.inner();
        inner.rows == inner.base
    }

    /// Adds rows at the end.
    ///
    /// # Errors
    /// - a batch has another schema, or a null where the schema has none
    /// - those of [`Keep`]; then no row was added
    pub fn append(&self, batches: &[RecordBatch]) -> Result<()> {
        self.append_over(batches, &[])
    }

    /// Adds rows at the end, in the place of rows of these numbers: they are hidden at the same moment. What is hidden
    /// is not made durable here ([`hide`](Self::hide)).
    ///
    /// # Errors
    /// - those of [`append`](Self::append); then nothing is hidden
    pub fn append_over(&self, batches: &[RecordBatch], hidden: &[u64]) -> Result<()> {
        let mut cut = Vec::new();
        for batch in batches {
            let batch = conform(batch, &self.schema)?;
            let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
            cut.extend(starts.map(|at| batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at))));
        }
        if cut.is_empty() {
            self.hide(hidden);
            return Ok(());
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let arrived = self.arriving();
        if let Some(keep) = &self.keep {
            keep.keep(self.rows(), &cut, arrived)?;
        }
        let mut inner = self.inner_mut();
        inner.hidden.extend(hidden);
        for batch in cut {
            let start = inner.rows;
            inner.rows += batch.num_rows() as u64;
            inner.starts.push(start);
            inner.batches.push(batch);
        }
        let rows = inner.rows;
        if arrived.is_some() {
            inner.arrivals.push(rows, arrived);
        }
        drop(inner);
        self.arrived.send_modify(|come| come.rows = rows);
        Ok(())
    }

    /// Says without a row that its readers are to take the event time for as far as that: those who have passed the
    /// rows that are there now, in the epoch that finds it. It is not kept on disk.
    pub fn advance(&self, to: Instant) {
        let mut inner = self.inner_mut();
        let row = inner.rows;
        let marks = inner.marks.set(row, to);
        drop(inner);
        self.arrived
            .send_modify(|come| come.marks = come.marks.max(marks));
    }

    /// What was said of the event time before the row of this number.
    fn passed(&self, row: u64) -> Passed {
        self.inner().marks.passed(row)
    }

    /// When rows that are appended now arrive, in milliseconds since 1970; none where rows do not go by it.
    pub fn arriving(&self) -> Option<i64> {
        let retention = self.retention.as_ref()?;
        let now = retention.clock.now_ms();
        Some(self.inner().arrivals.next(now))
    }

    /// Removes what arrived too long ago and what all readers have passed, in whole pieces. What is not removed, for
    /// whatever reason, is by a later call. A log that keeps its rows on disk waits for the disk.
    ///
    /// # Errors
    /// - those of [`Keep`]; then nothing was removed
    pub fn let_go(&self) -> Result<()> {
        let Some(retention) = &self.retention else {
            return Ok(());
        };
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = retention.clock.now_ms();
        let old = self.inner_mut().arrivals.old(now, retention.retain);
        if old <= self.base() {
            return Ok(());
        }
        let passed = retention.readers.passed(&retention.table);
        let gone = self.inner().arrivals.whole(old.min(passed));
        if gone <= self.base() {
            return Ok(());
        }
        let first = match &self.keep {
            Some(keep) => keep.let_go(gone)?,
            None => gone,
        };
        self.drop_before(first);
        Ok(())
    }

    /// Whether rows are removed by their age.
    pub fn is_retained(&self) -> bool {
        self.retention.is_some()
    }

    /// Goes back to what was written down of the log: the rows behind `first` that follow those it has, and when all
    /// arrived. `rows` begin with the row of the number `start`, which is not greater than `first`.
    ///
    /// # Errors
    /// - those of [`append`](Self::append)
    pub fn restore(
        &self,
        start: u64,
        first: u64,
        rows: &[RecordBatch],
        arrivals: Arrivals,
    ) -> Result<()> {
        let mut inner = self.inner_mut();
        if inner.rows < first {
            *inner = Inner {
                base: first,
                rows: first,
                marks: std::mem::take(&mut inner.marks),
                hidden: std::mem::take(&mut inner.hidden).split_off(&first),
                ..Inner::default()
            };
        }
        let known = inner.rows;
        drop(inner);
        self.append(&behind(rows, known.saturating_sub(start)))?;
        if self.is_retained() {
            let mut inner = self.inner_mut();
            inner.arrivals = arrivals;
            let base = inner.base;
            inner.arrivals.forget(base);
        }
        Ok(())
    }

    /// Removes the batches whose every row has a number less than this. The others keep their numbers.
    pub fn drop_before(&self, row: u64) {
        let mut inner = self.inner_mut();
        let ends = inner.starts.iter().skip(1).chain([&inner.rows]);
        let removed = ends.take_while(|end| **end <= row).count();
        let removed = removed.min(inner.batches.len());
        inner.batches.drain(..removed);
        inner.starts.drain(..removed);
        inner.base = inner.starts.first().copied().unwrap_or(inner.rows);
        let base = inner.base;
        inner.arrivals.forget(base);
        inner.hidden = inner.hidden.split_off(&base);
    }

    /// All rows that are kept and not hidden.
    pub fn snapshot(&self) -> Vec<RecordBatch> {
        let inner = self.inner();
        if inner.hidden.is_empty() {
            return inner.batches.clone();
        }
        let numbered = inner.batches.iter().zip(&inner.starts);
        numbered
            .map(|(batch, start)| without(batch, *start, &inner.hidden))
            .collect()
    }

    /// The rows that are kept and not hidden, before the one of this number and from it on.
    pub fn split_at(&self, row: u64) -> [Vec<RecordBatch>; 2] {
        let inner = self.inner();
        let [mut before, mut behind] = [Vec::new(), Vec::new()];
        for (batch, start) in inner.batches.iter().zip(&inner.starts) {
            let cut = usize::try_from(row.saturating_sub(*start)).unwrap_or(usize::MAX);
            let cut = cut.min(batch.num_rows());
            let rest = batch.slice(cut, batch.num_rows() - cut);
            before.push(without(&batch.slice(0, cut), *start, &inner.hidden));
            behind.push(without(&rest, start + cut as u64, &inner.hidden));
        }
        for rows in [&mut before, &mut behind] {
            rows.retain(|batch| batch.num_rows() > 0);
        }
        [before, behind]
    }

    /// All rows that are kept, in batches with the number of the first row of each; the hidden ones too.
    pub fn numbered(&self) -> Vec<(u64, RecordBatch)> {
        let inner = self.inner();
        let numbered = inner
            .starts
            .iter()
            .copied()
            .zip(inner.batches.iter().cloned());
        numbered.collect()
    }

    /// Hides rows of these numbers: others have been written over them.
    pub fn hide(&self, rows: &[u64]) {
        self.inner_mut().hidden.extend(rows);
    }

    /// Whether a row before the one of this number is hidden.
    pub fn hides_before(&self, row: u64) -> bool {
        self.inner().hidden.range(..row).next().is_some()
    }

    /// Whether a row is hidden.
    pub fn is_hidden(&self, row: u64) -> bool {
        self.inner().hidden.contains(&row)
    }

    /// The rows from one number to another, as far as they are kept.
    pub(super) fn between(&self, first: u64, end: u64) -> Vec<RecordBatch> {
        let inner = self.inner();
        let mut rows = behind(&inner.batches, first.saturating_sub(inner.base));
        let mut left = end.saturating_sub(first.max(inner.base));
        drop(inner);
        rows.retain_mut(|batch| {
            let taken = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(batch.num_rows());
            left -= taken as u64;
            *batch = batch.slice(0, taken);
            taken > 0
        });
        rows
    }

    fn inner(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn inner_mut(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The batch that holds this row, from it on; none if the row has not arrived.
    fn rest_from(&self, row: u64) -> Result<Option<RecordBatch>, Removed> {
        let inner = self.inner();
        if row < inner.base {
            return Err(Removed { base: inner.base });
        }
        if row >= inner.rows {
            return Ok(None);
        }
        let after = inner.starts.partition_point(|start| *start <= row);
        let Some(at) = after.checked_sub(1) else {
            return Ok(None);
        };
        let found = inner.batches.get(at).zip(inner.starts.get(at));
        Ok(found.map(|(batch, start)| {
            // The row is in this batch: its place is less than the batch's length.
            let offset = usize::try_from(row - start).unwrap_or(batch.num_rows());
            batch.slice(offset, batch.num_rows() - offset)
        }))
    }
}

/// A batch without its hidden rows; `start` is the number of its first row.
fn without(batch: &RecordBatch, start: u64, hidden: &BTreeSet<u64>) -> RecordBatch {
    let numbers = start..start.saturating_add(batch.num_rows() as u64);
    if hidden.range(numbers.clone()).next().is_none() {
        return batch.clone();
    }
    let shown: BooleanArray = numbers.map(|row| Some(!hidden.contains(&row))).collect();
    // The mask is as long as the batch: filtering cannot fail.
    filter_record_batch(batch, &shown).unwrap_or_else(|_| batch.clone())
}

/// The rows behind the first `skip`.
pub(crate) fn behind(rows: &[RecordBatch], mut skip: u64) -> Vec<RecordBatch> {
    let mut rest = Vec::new();
    for batch in rows {
        let length = batch.num_rows();
        let passed = usize::try_from(skip).unwrap_or(usize::MAX).min(length);
        skip -= passed as u64;
        if passed < length {
            rest.push(batch.slice(passed, length - passed));
        }
    }
    rest
}

/// Rows of a log that have not arrived. It does not keep the log.
#[derive(Debug)]
pub struct Awaited {
    /// Number of the first of them.
    row: u64,
    /// How many marks have been seen.
    marks: u64,
    arrived: watch::Receiver<Come>,
}

impl Awaited {
    /// Waits until there is one, or a mark that has not been seen.
    pub async fn arrived(&mut self) {
        let (row, marks) = (self.row, self.marks);
        let more = |come: &Come| come.rows > row || come.marks > marks;
        if self.arrived.wait_for(more).await.is_err() {
            // The log is gone: nothing arrives any more.
            futures::future::pending::<()>().await;
        }
    }
}

/// Reads a log.
pub(super) struct LogReader {
    /// Name of the table, for errors.
    table: String,
    log: Arc<AppendLog>,
    columns: Vec<usize>,
    from: u64,
    at: u64,
    arrived: watch::Receiver<Come>,
}

impl LogReader {
    /// Reads columns from a position on; without one from the first row that is kept.
    pub(super) fn new(
        table: String,
        log: Arc<AppendLog>,
        columns: &[usize],
        from: Option<Position>,
    ) -> Self {
        let from = match from {
            Some(Position::Rows(rows)) => rows,
            _ => log.base(),
        };
        let arrived = log.arrived.subscribe();
        Self {
            table,
            log,
            columns: columns.to_vec(),
            from,
            at: from,
            arrived,
        }
    }

    /// The refusal to go on behind rows that were removed before they were read.
    fn removed(&self, base: u64) -> DataFusionError {
        Refusal::new(
            "SOURCE_ROWS_GONE",
            "KD000",
            format!(
                "{} was read up to row {}, and its rows before row {base} have been removed (rows are counted from 0).",
                self.table, self.at
            ),
        )
        .hint("begin anew with the rows that are kept: REFRESH STREAMING TABLE … FULL")
        .into()
    }
}

#[async_trait]
impl Reader for LogReader {
    async fn next(&mut self) -> Result<Arrival> {
        match self.log.rest_from(self.at) {
            Ok(Some(batch)) => {
                self.at += batch.num_rows() as u64;
                Ok(Arrival::Rows(batch.project(&self.columns)?))
            }
            Ok(None) => Ok(Arrival::Waiting),
            Err(Removed { base }) => Err(self.removed(base)),
        }
    }

    async fn arrived(&mut self) {
        let at = self.at;
        if self.arrived.wait_for(|come| come.rows > at).await.is_err() {
            // The log holds its own sender: it cannot be gone while we read it.
            futures::future::pending::<()>().await;
        }
    }

    fn position(&mut self, rows: u64) -> Position {
        Position::Rows(self.from + rows)
    }

    fn passed(&self, rows: u64) -> Passed {
        self.log.passed(self.from + rows)
    }
}

#[cfg(test)]
mod tests;
