//! Where rows come from: tables and files as streams, in order of arrival.
//!
//! 1. A [`Reader`] gives the rows of one source from a [`Position`] on, and can name the position
//!    after any number of them.
//! 2. A [`Cursor`] cuts a reader's rows into epochs, and moves its position only when an epoch has
//!    committed: a failed epoch is read again.
//!
//! What is there when a query first starts may be read in the order of event time (`initial`): an epoch is then a
//! stretch of event time.
//!
//! A position outlives the process: it is serialized, and [`Cursor::at`] goes on from it.
//!
//! Which reader a table has depends on its provider ([`open`]): an [`AppendTable`] keeps its order of
//! arrival, a directory of files is read file by file, any other provider is read once, whole.

mod append_log;
mod append_table;
mod conform;
mod cursor;
mod done;
mod files;
mod initial;
mod marks;
mod position;
mod provider;
mod retention;

pub(crate) use append_log::behind;
pub use append_log::{AppendLog, Awaited, Keep};
pub use append_table::AppendTable;
pub(crate) use conform::conform;
pub(crate) use cursor::no_epoch_column;
pub use cursor::{Cursor, Feed, Limits, Taken};
pub use done::DoneFiles;
pub(crate) use files::{HeldFiles, has_lines};
pub use initial::{EventTime, Extent, Place, Stretch, can_be_ordered, cannot_be_ordered};
pub use marks::Passed;
pub use position::{
    Begun, FileIdentity, FilePosition, FilesInOrder, Position, ReadUntil, RowsInOrder,
};
pub use retention::{Arrivals, Clock, Readers, Retention, SystemClock};

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::datasource::listing::ListingTable;
use datafusion::execution::{SessionState, TaskContext};

use self::position::rows_before;
use crate::config::OnBadRecord;

/// What a reader gives next.
#[derive(Debug)]
pub enum Arrival {
    /// Rows, in order of arrival.
    Rows(RecordBatch),
    /// The end of one file.
    FileEnd,
    /// Rows of a stretch of event time, which is one epoch, whatever its limits.
    Stretch(RecordBatch),
    /// The end of a stretch.
    StretchEnd,
    /// Nothing more has arrived yet.
    Waiting,
    /// Nothing more will ever arrive.
    Ended,
}

/// Gives the rows of one source in order of arrival.
#[async_trait]
pub trait Reader: Send {
    /// What comes next. After `Waiting` it may be asked again.
    ///
    /// # Errors
    /// - rows that cannot be read; the error names the file and the line
    /// - `SOURCE_FILE_CHANGED`, `SOURCE_FILE_GONE`: a file of which some rows were taken is not what it was
    /// - `SOURCE_ROWS_GONE`: rows behind the position were removed from a log
    async fn next(&mut self) -> Result<Arrival>;

    /// Waits until there may be more than `Waiting`; returns at once where that cannot be known.
    async fn arrived(&mut self) {}

    /// Whether more may come as long as the reader lives: a query without an end of its own waits.
    fn endless(&self) -> bool {
        false
    }

    /// Whether reading is work that is better done while rows are asked for than before.
    fn decodes(&self) -> bool {
        false
    }

    /// Position after so many of the rows given since the reader was opened: at least as many as when it
    /// was asked for last.
    fn position(&mut self, rows: u64) -> Position;

    /// What was said of the event time, without a row, before so many of the rows given since the reader was opened.
    fn passed(&self, _rows: u64) -> Passed {
        Passed::default()
    }

    /// Records left out so far because they could not be read.
    fn skipped(&self) -> u64 {
        0
    }

    /// Files found since this was asked last that changed after they were read, as errors name them.
    fn changed(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// What a reader needs of the session.
#[derive(Debug, Clone)]
pub struct ReadEnv {
    /// Planning of file scans, settings.
    pub session: Arc<SessionState>,
    /// Running of scans.
    pub task: Arc<TaskContext>,
}

impl ReadEnv {
    /// Of a session that no query runs in.
    pub fn of(session: &SessionState) -> Self {
        Self {
            session: Arc::new(session.clone()),
            task: Arc::new(TaskContext::from(session)),
        }
    }
}

/// What of a source has arrived and was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// So many rows.
    Rows(u64),
    /// So many files, one that was begun included.
    Files(u64),
    /// It cannot be known without reading.
    Unknown,
}

/// What has arrived behind a position.
///
/// # Errors
/// - the directory cannot be listed
pub async fn unread(
    provider: &Arc<dyn TableProvider>,
    from: Option<Position>,
    env: &ReadEnv,
) -> Result<Unread> {
    if let Some(table) = provider.downcast_ref::<AppendTable>() {
        let log = table.log();
        let read = rows_before(from).max(log.base());
        return Ok(Unread::Rows(log.rows().saturating_sub(read)));
    }
    if let Some(table) = provider.downcast_ref::<ListingTable>() {
        return files::FilesReader::unread(table, from, env).await;
    }
    Ok(Unread::Unknown)
}

/// What a query reads of a source: by that a record is good or bad.
#[derive(Debug, Clone)]
pub(crate) struct Reads {
    /// Resolved name of the source.
    pub source: String,
    /// Columns that are decoded, as indices into the source's schema.
    pub columns: Vec<usize>,
    /// What a record that cannot be read does.
    pub on_bad_record: OnBadRecord,
}

/// What a table over files holds now, cut at a position, as a query reads it.
///
/// # Errors
/// - the directory cannot be listed
/// - `SOURCE_FILE_CHANGED`, `SOURCE_FILE_GONE`: a file of which some rows were taken is not what it was
pub(crate) async fn held(
    table: &ListingTable,
    reads: &Reads,
    from: Option<Position>,
    env: &ReadEnv,
) -> Result<HeldFiles> {
    let (columns, on_bad_record) = (&reads.columns, reads.on_bad_record);
    let reader = files::FilesReader::open(table, columns, from, on_bad_record, env.clone());
    reader.await?.held().await
}

/// What tells a source from another one of its name: the table's id, the directory's place.
fn identity(provider: &Arc<dyn TableProvider>) -> String {
    if let Some(table) = provider.downcast_ref::<AppendTable>() {
        return format!("table {}", table.log().id());
    }
    if let Some(table) = provider.downcast_ref::<ListingTable>() {
        let paths: Vec<String> = table
            .table_paths()
            .iter()
            .map(ToString::to_string)
            .collect();
        return format!("files {}", paths.join(", "));
    }
    "a table of the application".to_owned()
}

/// Opens a table as a stream, reading these columns (indices into its schema) from a position on: the first rows in
/// the order of the event time, if the limits say so.
///
/// # Errors
/// - the rows cannot be read in the order of event time, or were ordered by another one before the position
/// - the table cannot be listed or scanned
pub async fn open(
    provider: &Arc<dyn TableProvider>,
    columns: &[usize],
    from: Option<Position>,
    limits: &Limits,
    time: Option<&EventTime>,
    env: &ReadEnv,
) -> Result<Box<dyn Reader>> {
    if let Some(phase) = initial::Phase::of(from.as_ref(), limits, time)? {
        return initial::open(provider, columns, from, &phase, limits, env).await;
    }
    let on_bad_record = limits.on_bad_record;
    if let Some(table) = provider.downcast_ref::<AppendTable>() {
        return Ok(Box::new(table.read(columns, from)));
    }
    if let Some(table) = provider.downcast_ref::<ListingTable>() {
        let reader =
            files::FilesReader::open(table, columns, from, on_bad_record, env.clone()).await?;
        return Ok(Box::new(reader));
    }
    Ok(Box::new(
        provider::ProviderReader::open(provider, columns, from, env).await?,
    ))
}
