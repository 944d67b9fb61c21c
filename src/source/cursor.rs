//! Cuts a source's rows into epochs.
//!
//! An epoch takes what is there up to the first of: so many rows (cuts fall inside files, in row
//! order), so many files, or a change of value in the column `epoch_by`. Rows behind the cut wait for
//! the next epoch.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::partition;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};

use super::{Arrival, Position, ReadEnv, Reader, Unread, open, unread};
use crate::config::OnBadRecord;
use crate::error::Refusal;

/// Where an epoch ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Greatest number of rows.
    pub rows: u64,
    /// Greatest number of files; none means no limit.
    pub files: Option<u64>,
    /// Column at whose change of value an epoch ends.
    pub epoch_by: Option<String>,
    /// What a record that cannot be read does.
    pub on_bad_record: OnBadRecord,
}

/// What an epoch takes of a source.
#[derive(Debug)]
pub struct Taken {
    /// The rows, in order of arrival.
    pub batches: Vec<RecordBatch>,
    /// Their number.
    pub rows: u64,
    /// Records left out because they could not be read.
    pub skipped: u64,
    /// Whether more rows are at hand.
    pub more: bool,
    /// Whether nothing more will ever arrive.
    pub ended: bool,
    /// Whether the source is one that gives rows as long as it is read.
    pub endless: bool,
    end: Option<(u64, Position)>,
}

/// The place in a source that a query has read to.
pub struct Cursor {
    name: String,
    provider: Arc<dyn TableProvider>,
    limits: Limits,
    position: Option<Position>,
    reading: Option<Reading>,
}

/// A reader that is open, and what it gave that no epoch has taken.
struct Reading {
    reader: Box<dyn Reader>,
    columns: Vec<usize>,
    ahead: VecDeque<Arrival>,
    /// Rows of the running epoch, to be given again if it fails.
    running: Vec<RecordBatch>,
    /// Rows that committed epochs have taken since the reader was opened.
    taken: u64,
    skipped: u64,
    /// Value of `epoch_by` in the epoch that is being cut.
    value: Option<ScalarValue>,
}

/// The refusal of an `epoch_by` that is no column of its table.
pub(crate) fn no_epoch_column(table: &str, column: &str) -> Refusal {
    Refusal::new(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "42703",
        format!("{table} has no column '{column}' to end epochs by (epoch_by)."),
    )
    .hint("name a column of the source")
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("name", &self.name)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Cursor {
    /// A cursor at the begin of a source.
    ///
    /// # Errors
    /// - the source has no column `epoch_by`
    pub fn try_new(name: String, provider: Arc<dyn TableProvider>, limits: Limits) -> Result<Self> {
        if let Some(column) = &limits.epoch_by
            && provider.schema().index_of(column).is_err()
        {
            return Err(no_epoch_column(&name, column).into());
        }
        Ok(Self {
            name,
            provider,
            limits,
            position: None,
            reading: None,
        })
    }

    /// Name of the source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the cursor the source's table as it is now, and other limits for the epochs to come.
    ///
    /// # Errors
    /// - the table is another one: what was read of it says nothing about it
    pub fn set_source(&mut self, provider: Arc<dyn TableProvider>, limits: Limits) -> Result<()> {
        if !Arc::ptr_eq(&self.provider, &provider) {
            return Err(Refusal::new(
                "STREAMING_QUERY_CHANGED",
                "42K0E",
                format!(
                    "{} is another table than the one that was read before.",
                    self.name
                ),
            )
            .hint("write CREATE OR REPLACE STREAMING TABLE to begin anew")
            .into());
        }
        self.limits = limits;
        Ok(())
    }

    /// Columns that must be read: those that are needed, and `epoch_by`.
    pub fn columns(&self, needed: &[usize]) -> Vec<usize> {
        let mut columns = needed.to_vec();
        if let Some(by) = &self.limits.epoch_by {
            columns.extend(self.provider.schema().index_of(by));
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    async fn reading(&mut self, columns: &[usize], env: &ReadEnv) -> Result<&mut Reading> {
        if self
            .reading
            .as_ref()
            .is_none_or(|reading| reading.columns != columns)
        {
            let from = self.position.clone();
            let reader = open(
                &self.provider,
                columns,
                from,
                self.limits.on_bad_record,
                env,
            )
            .await?;
            self.reading = Some(Reading {
                reader,
                columns: columns.to_vec(),
                ahead: VecDeque::new(),
                running: Vec::new(),
                taken: 0,
                skipped: 0,
                value: None,
            });
        }
        self.reading
            .as_mut()
            .ok_or_else(|| internal_datafusion_err!("a reader was opened"))
    }

    /// Takes an epoch's rows, with these columns (from [`columns`](Self::columns)). The cursor moves
    /// when the epoch commits.
    ///
    /// # Errors
    /// - those of the reader; the cursor then stays where it was
    pub async fn take(&mut self, columns: &[usize], env: &ReadEnv) -> Result<Taken> {
        let limits = self.limits.clone();
        let by = match &limits.epoch_by {
            Some(name) => {
                let index = self.provider.schema().index_of(name)?;
                columns.iter().position(|column| *column == index)
            }
            None => None,
        };
        let reading = self.reading(columns, env).await?;
        match reading.cut(&limits, by).await {
            Ok(taken) => Ok(taken),
            Err(error) => {
                self.close();
                Err(error)
            }
        }
    }

    /// What has arrived and no committed epoch has taken.
    ///
    /// # Errors
    /// - the source cannot be listed
    pub fn unread(&self, env: ReadEnv) -> impl Future<Output = Result<Unread>> + Send + use<> {
        let (provider, position) = (Arc::clone(&self.provider), self.position.clone());
        async move { unread(&provider, position, &env).await }
    }

    /// Waits until more may have arrived.
    pub async fn arrived(&mut self) {
        if let Some(reading) = &mut self.reading
            && reading.ahead.is_empty()
        {
            reading.reader.arrived().await;
        }
    }

    /// Moves behind what a committed epoch took.
    pub fn commit(&mut self, taken: &Taken) {
        if let (Some((rows, position)), Some(reading)) = (&taken.end, &mut self.reading) {
            reading.taken = *rows;
            reading.running.clear();
            self.position = Some(position.clone());
        }
    }

    /// Lets go of the reader, and of rows that no committed epoch has taken: they are read again. A
    /// reader that is endless stays, for its rows come only once.
    pub fn close(&mut self) {
        if !self.is_endless() {
            self.reading = None;
        } else if let Some(reading) = &mut self.reading {
            for batch in std::mem::take(&mut reading.running).into_iter().rev() {
                reading.ahead.push_front(Arrival::Rows(batch));
            }
        }
    }

    /// Whether the source gives rows as long as it is read.
    pub fn is_endless(&self) -> bool {
        self.reading
            .as_ref()
            .is_some_and(|reading| reading.reader.endless())
    }
}

impl Reading {
    /// Reads up to the epoch's end.
    async fn cut(&mut self, limits: &Limits, by: Option<usize>) -> Result<Taken> {
        let mut batches = Vec::new();
        let (mut rows, mut files) = (0, 0);
        self.value = None;
        let (more, ended) = loop {
            if rows >= limits.rows || limits.files.is_some_and(|most| files >= most) {
                break (true, false);
            }
            match self.next().await? {
                Arrival::Waiting => break (false, false),
                Arrival::Ended => break (false, true),
                Arrival::FileEnd => files += 1,
                Arrival::Rows(batch) => {
                    let room = usize::try_from(limits.rows - rows).unwrap_or(usize::MAX);
                    let length = self.until_change(&batch, by)?.min(room);
                    if length < batch.num_rows() {
                        let rest = batch.slice(length, batch.num_rows() - length);
                        self.ahead.push_front(Arrival::Rows(rest));
                    }
                    if length > 0 {
                        rows += length as u64;
                        batches.push(batch.slice(0, length));
                        self.running.push(batch.slice(0, length));
                    }
                    if length < batch.num_rows() {
                        break (true, false);
                    }
                }
            }
        };
        let more = more && !self.at_end().await?;
        let total = self.taken + rows;
        let skipped = self.reader.skipped() - self.skipped;
        self.skipped += skipped;
        let end = Some((total, self.reader.position(total)));
        let endless = self.reader.endless();
        Ok(Taken {
            batches,
            rows,
            skipped,
            more,
            ended,
            endless,
            end,
        })
    }

    async fn next(&mut self) -> Result<Arrival> {
        match self.ahead.pop_front() {
            Some(arrival) => Ok(arrival),
            None => self.reader.next().await,
        }
    }

    /// Whether nothing is at hand behind a cut. Looks one arrival ahead.
    async fn at_end(&mut self) -> Result<bool> {
        loop {
            match self.ahead.front() {
                Some(Arrival::Rows(_)) => return Ok(false),
                Some(Arrival::Ended) => return Ok(true),
                Some(Arrival::FileEnd | Arrival::Waiting) => {
                    self.ahead.pop_front();
                }
                None => match self.reader.next().await? {
                    Arrival::Waiting => return Ok(true),
                    arrival => self.ahead.push_back(arrival),
                },
            }
        }
    }

    /// How many rows of a batch have the epoch's value of the column `by`.
    fn until_change(&mut self, batch: &RecordBatch, by: Option<usize>) -> Result<usize> {
        let Some(by) = by else {
            return Ok(batch.num_rows());
        };
        let column = batch.column(by);
        if column.is_empty() {
            return Ok(0);
        }
        let first = ScalarValue::try_from_array(column, 0)?;
        let value = self.value.get_or_insert_with(|| first.clone());
        if *value != first {
            return Ok(0);
        }
        let ranges = partition(&[Arc::clone(column)])?.ranges();
        Ok(ranges.first().map_or(0, std::ops::Range::len))
    }
}
