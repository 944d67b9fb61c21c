//! Cuts a source's rows into epochs.
//!
//! An epoch takes what is there up to the first of: so many rows (cuts fall inside files, in row
//! order), so many files, or a change of value in the column `epoch_by`. Rows behind the cut wait for
//! the next epoch. What is read in the order of event time comes in stretches, each an epoch; the limits of files and
//! of `epoch_by` begin behind them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::partition;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err, internal_err};
use datafusion::datasource::listing::ListingTable;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::initial::Phase;
use super::{
    AppendTable, Arrival, Awaited, EventTime, Passed, Position, ReadEnv, Reader, identity, open,
};
use crate::config::{InitialOrder, OnBadRecord, TidegateOptions};
use crate::error::Refusal;
use crate::state::{FEW_ROWS, RowFeed};

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
    /// In which order the rows are read that are there first.
    pub initial_order: InitialOrder,
}

impl Limits {
    /// What the settings say.
    pub fn of(settings: &TidegateOptions, epoch_by: Option<String>) -> Self {
        let files = settings.max_files_per_epoch as u64;
        Self {
            rows: settings.max_rows_per_epoch.get() as u64,
            files: (files > 0).then_some(files),
            epoch_by,
            on_bad_record: settings.on_bad_record,
            initial_order: settings.initial_order,
        }
    }
}

/// What an epoch takes of a source.
#[derive(Debug, Default)]
pub struct Taken {
    /// The rows, in order of arrival, unless they are still to be read.
    pub batches: Vec<RecordBatch>,
    /// Gives the rows as they are asked for, where that is of use. Until [`Cursor::finish`] the figures here
    /// say that there are rows and no more.
    pub feed: Option<Arc<Feed>>,
    /// Their number.
    pub rows: u64,
    /// Records left out because they could not be read.
    pub skipped: u64,
    /// Files found since the epoch before that changed after they were read. They are not read again.
    pub changed: Vec<String>,
    /// Whether more rows are at hand.
    pub more: bool,
    /// Whether nothing more will ever arrive.
    pub ended: bool,
    /// Whether the source is one that gives rows as long as it is read.
    pub endless: bool,
    /// What was said of the event time, without a row, up to the epoch's end.
    pub passed: Passed,
    /// Whether a part of that is new.
    pub is_told: bool,
    end: Option<(u64, Position)>,
}

impl Taken {
    /// Where the source has been read to once the epoch commits; none before [`Cursor::finish`] where
    /// there is a feed.
    pub fn position(&self) -> Option<&Position> {
        self.end.as_ref().map(|(_, position)| position)
    }

    /// Whether there is anything for an epoch to do.
    pub fn is_something(&self) -> bool {
        self.rows > 0 || self.skipped > 0 || !self.changed.is_empty() || self.is_told
    }
}

/// Rows of an epoch, read while they are asked for: a file's rows are aggregated before the next ones are
/// decoded, and an epoch is never held whole.
#[derive(Debug)]
pub struct Feed {
    inner: tokio::sync::Mutex<Option<(Reading, Cut)>>,
}

impl RowFeed for Feed {
    fn next(&self) -> BoxFuture<'_, Result<Option<RecordBatch>>> {
        async move {
            match &mut *self.inner.lock().await {
                Some((reading, cut)) => reading.next_of(cut).await,
                None => Ok(None),
            }
        }
        .boxed()
    }
}

/// The place in a source that a query has read to.
pub struct Cursor {
    name: String,
    provider: Arc<dyn TableProvider>,
    limits: Limits,
    /// The event time that rows can be ordered by.
    event_time: Option<EventTime>,
    position: Option<Position>,
    reading: Option<Reading>,
    /// How many marks of the source committed epochs have seen.
    marks: u64,
}

/// A reader that is open, and what it gave that no epoch has taken.
pub(super) struct Reading {
    reader: Box<dyn Reader>,
    columns: Vec<usize>,
    ahead: VecDeque<Arrival>,
    /// Rows of the running epoch, to be given again if it fails.
    running: Vec<RecordBatch>,
    /// Rows that committed epochs have taken since the reader was opened.
    taken: u64,
    skipped: u64,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

/// How far an epoch has been cut.
#[derive(Debug)]
pub(super) struct Cut {
    limits: Limits,
    /// Place of the column `epoch_by` among those that are read.
    by: Option<usize>,
    /// Its value in this epoch.
    value: Option<ScalarValue>,
    rows: u64,
    files: u64,
    /// Whether it is a stretch of event time: nothing but its end ends it.
    stretch: bool,
    /// At its end: whether rows may be at hand behind it, and whether nothing more will ever arrive.
    end: Option<(bool, bool)>,
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
            event_time: None,
            position: None,
            reading: None,
            marks: 0,
        })
    }

    /// The cursor at a position that committed epochs have reached before.
    #[must_use]
    pub fn at(mut self, position: Option<Position>) -> Self {
        self.position = position;
        self.reading = None;
        self
    }

    /// Gives the cursor the event time by which the first rows may be ordered.
    pub fn set_event_time(&mut self, event_time: Option<EventTime>) {
        self.event_time = event_time;
    }

    /// What committed epochs have reached; none before the first.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Name of the source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What tells the source from another one of its name.
    pub fn identity(&self) -> String {
        identity(&self.provider)
    }

    /// Whether the source gives its rows again when it is read again from an earlier position. Of a provider
    /// that is not one of DataFusion's or ours it is not known.
    pub fn replays(&self) -> bool {
        let provider = &self.provider;
        // Several partitions of a table in memory come in no order that can be kept.
        let memory = provider.downcast_ref::<MemTable>();
        provider.is::<AppendTable>()
            || provider.is::<ListingTable>()
            || memory.is_some_and(|table| table.batches.len() == 1)
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

    /// Columns that must be read: those that are needed, `epoch_by`, and those of the event time that rows are
    /// ordered by.
    pub fn columns(&self, needed: &[usize]) -> Vec<usize> {
        let mut columns = needed.to_vec();
        if let Some(by) = &self.limits.epoch_by {
            columns.extend(self.provider.schema().index_of(by));
        }
        let time = self.event_time.as_ref();
        if let Ok(Some(phase)) = Phase::of(self.position.as_ref(), &self.limits, time) {
            columns.extend(phase.time.columns());
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
                &self.limits,
                self.event_time.as_ref(),
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
            });
        }
        self.reading
            .as_mut()
            .ok_or_else(|| internal_datafusion_err!("a reader was opened"))
    }

    /// Takes an epoch's rows, with these columns (from [`columns`](Self::columns)). The cursor moves
    /// when the epoch commits. Where `once` says that they are read once, they may be left in a feed, unless the
    /// limits let through few rows at a time: an epoch of few rows is run by one task once it has them.
    ///
    /// # Errors
    /// - those of the reader; the cursor then stays where it was
    pub async fn take(&mut self, columns: &[usize], once: bool, env: &ReadEnv) -> Result<Taken> {
        let limits = self.limits.clone();
        let by = match &limits.epoch_by {
            Some(name) => {
                let index = self.provider.schema().index_of(name)?;
                columns.iter().position(|column| *column == index)
            }
            None => None,
        };
        let mut cut = Cut {
            limits,
            by,
            value: None,
            rows: 0,
            files: 0,
            stretch: false,
            end: None,
        };
        let reading = self.reading(columns, env).await?;
        if once && reading.reader.decodes() {
            return match reading.is_much_at_hand(&cut.limits).await {
                Ok(true) => Ok(self.feed(cut)),
                Ok(false) => self.taken(&mut cut).await,
                Err(error) => {
                    self.close();
                    Err(error)
                }
            };
        }
        self.taken(&mut cut).await
    }

    /// All rows of an epoch.
    async fn taken(&mut self, cut: &mut Cut) -> Result<Taken> {
        let Some(reading) = &mut self.reading else {
            return internal_err!("a reader was opened");
        };
        match reading.all(cut).await {
            Ok(taken) => {
                let is_told = taken.passed.number > self.marks;
                Ok(Taken { is_told, ..taken })
            }
            Err(error) => {
                self.close();
                Err(error)
            }
        }
    }

    /// Leaves the reader to whoever asks for the epoch's rows.
    fn feed(&mut self, cut: Cut) -> Taken {
        let reading = self.reading.take();
        let feed = Feed {
            inner: tokio::sync::Mutex::new(reading.map(|reading| (reading, cut))),
        };
        Taken {
            feed: Some(Arc::new(feed)),
            rows: 1,
            ..Taken::default()
        }
    }

    /// Reads what nobody has asked for of an epoch's feed, and completes the figures.
    ///
    /// # Errors
    /// - those of the reader
    pub async fn finish(&mut self, taken: &mut Taken) -> Result<()> {
        let Some(feed) = taken.feed.take() else {
            return Ok(());
        };
        let inner = feed.inner.lock().await.take();
        if let Some((mut reading, mut cut)) = inner {
            while reading.next_of(&mut cut).await?.is_some() {}
            *taken = reading.taken(Vec::new(), &cut).await?;
            self.reading = Some(reading);
        }
        Ok(())
    }

    /// The table that is read.
    pub fn provider(&self) -> &Arc<dyn TableProvider> {
        &self.provider
    }

    /// Waits until more may have arrived.
    pub async fn arrived(&mut self) {
        if let Some(reading) = &mut self.reading
            && reading.ahead.is_empty()
        {
            reading.reader.arrived().await;
        }
    }

    /// The rows that no committed epoch has taken, to wait for one; none for a source that does not tell when
    /// something arrives.
    pub fn awaited(&self) -> Option<Awaited> {
        let table = self.provider.downcast_ref::<AppendTable>()?;
        Some(table.log().awaited(self.position.as_ref(), self.marks))
    }

    /// Moves behind what a committed epoch took.
    pub fn commit(&mut self, taken: &Taken) {
        if let (Some((rows, position)), Some(reading)) = (&taken.end, &mut self.reading) {
            reading.taken = *rows;
            reading.running.clear();
            self.position = Some(position.clone());
            self.marks = taken.passed.number;
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
    /// The next rows of the epoch; none at its end.
    async fn next_of(&mut self, cut: &mut Cut) -> Result<Option<RecordBatch>> {
        while cut.end.is_none() {
            if !cut.stretch && cut.is_full() {
                cut.end = Some((true, false));
                break;
            }
            match self.next().await? {
                Arrival::Waiting => cut.end = Some((false, false)),
                Arrival::Ended => cut.end = Some((false, true)),
                Arrival::FileEnd => cut.files += 1,
                Arrival::Stretch(batch) => {
                    cut.stretch = true;
                    cut.rows += batch.num_rows() as u64;
                    return Ok(Some(batch));
                }
                // One whose rows could not be read is no epoch of its own.
                Arrival::StretchEnd if cut.rows == 0 => {}
                Arrival::StretchEnd => cut.end = Some((true, false)),
                Arrival::Rows(batch) => {
                    let room = usize::try_from(cut.limits.rows - cut.rows).unwrap_or(usize::MAX);
                    let length = cut.until_change(&batch)?.min(room);
                    if length < batch.num_rows() {
                        let rest = batch.slice(length, batch.num_rows() - length);
                        self.ahead.push_front(Arrival::Rows(rest));
                        cut.end = Some((true, false));
                    }
                    if length > 0 {
                        cut.rows += length as u64;
                        return Ok(Some(batch.slice(0, length)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads up to the epoch's end.
    async fn all(&mut self, cut: &mut Cut) -> Result<Taken> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_of(cut).await? {
            self.running.push(batch.clone());
            batches.push(batch);
        }
        self.taken(batches, cut).await
    }

    /// What an epoch took, at its end.
    async fn taken(&mut self, batches: Vec<RecordBatch>, cut: &Cut) -> Result<Taken> {
        let (more, ended) = cut.end.unwrap_or_default();
        let more = more && !self.at_end().await?;
        let total = self.taken + cut.rows;
        let skipped = self.reader.skipped() - self.skipped;
        self.skipped += skipped;
        Ok(Taken {
            batches,
            feed: None,
            rows: cut.rows,
            skipped,
            changed: self.reader.changed(),
            more,
            ended,
            endless: self.reader.endless(),
            passed: self.reader.passed(total),
            is_told: false,
            end: Some((total, self.reader.position(total))),
        })
    }

    /// Whether there are rows for an epoch with these limits, which may be more than a few: a stretch has as many as
    /// are at one event time. What is looked at is given again.
    async fn is_much_at_hand(&mut self, limits: &Limits) -> Result<bool> {
        let mut passed = VecDeque::new();
        let much = loop {
            if limits.files.is_some_and(|most| passed.len() as u64 >= most) {
                break false;
            }
            let found = self.next().await?;
            let much = match &found {
                Arrival::Rows(_) => limits.rows > FEW_ROWS as u64,
                arrival => matches!(arrival, Arrival::Stretch(_)),
            };
            let end = matches!(&found, Arrival::FileEnd | Arrival::StretchEnd);
            passed.push_back(found);
            if !end {
                break much;
            }
        };
        passed.append(&mut self.ahead);
        self.ahead = passed;
        Ok(much)
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
                Some(Arrival::Rows(_) | Arrival::Stretch(_)) => return Ok(false),
                Some(Arrival::Ended) => return Ok(true),
                Some(Arrival::FileEnd | Arrival::StretchEnd | Arrival::Waiting) => {
                    self.ahead.pop_front();
                }
                None => match self.reader.next().await? {
                    Arrival::Waiting => return Ok(true),
                    arrival => self.ahead.push_back(arrival),
                },
            }
        }
    }
}

impl Cut {
    /// Whether the epoch has all that its limits allow.
    fn is_full(&self) -> bool {
        let files = self.limits.files;
        self.rows >= self.limits.rows || files.is_some_and(|most| self.files >= most)
    }

    /// How many rows of a batch have the epoch's value of the column `by`.
    fn until_change(&mut self, batch: &RecordBatch) -> Result<usize> {
        let Some(by) = self.by else {
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
