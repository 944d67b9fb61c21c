//! What a source holds when a query first starts, read in the order of event time.
//!
//! History that is read in order of arrival may come in any order of event time: one new file in front moves the
//! watermark past all older ones, whose rows are late then. With `initial_order = 'event_time'`:
//!
//! 1. When the first epoch begins, a [`Snapshot`] of the source is taken: the files or rows that are there, and where
//!    they are in event time ([`Extent`]): of Parquet files by their statistics, else by reading the event time alone.
//! 2. Each epoch takes a [`Stretch`] of event time: all rows of the snapshot in it, from the parts that may have some,
//!    in any order. A stretch has no more rows than `max_rows_per_epoch`, unless they all have the same event time, or
//!    none.
//! 3. Rows without an event time come last. Behind them the source is read by arrival, from what came behind the
//!    snapshot on.
//!
//! ```text
//! files     a: 7 9 1    b: 2 4    c: 8 3 5            limit 3
//! epochs    1 2 3       4 5 7     8 9                 W = 3 - delay, 7 - delay, 9 - delay
//! by arrival, 3 an epoch: 7 9 1   2 4 8   3 5: W = 9 - delay, and with a delay of 1 all of 2 4 3 5 are late
//! ```
//!
//! - The watermark of an epoch is made of rows before its stretch: no row of the snapshot is late, whatever the delay.
//! - A row is in one stretch ([`Extent::place`]), and a stretch is in one epoch: each row is read once. The position
//!   between two epochs is the place at which the next stretch begins.
//! - Memory is that of the bins and of what one file's reader holds, not that of the snapshot.

mod event_time;
mod reader;
mod rows;
mod stretches;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTable;

pub use event_time::EventTime;
pub(super) use event_time::Ticks;
pub(super) use stretches::Histogram;
pub use stretches::{Extent, Place, Stretch};

use self::reader::InitialReader;
use self::rows::RowsSnapshot;
use super::position::ReadUntil;
use super::{AppendTable, FilesInOrder, Limits, Position, ReadEnv, Reader, files};
use crate::config::InitialOrder;
use crate::error::Refusal;

/// What a source held when a query first started.
#[async_trait]
pub(super) trait Snapshot: Send {
    /// Where the rows of each part are.
    fn extents(&self) -> Vec<Extent>;

    /// Begins to read these columns of a part, of which only rows of a stretch are wanted: others may come too. With
    /// `counted` its bad records are counted: a part is read several times.
    async fn begin(
        &mut self,
        part: usize,
        columns: &[usize],
        stretch: &Stretch,
        counted: bool,
    ) -> Result<()>;

    /// The next rows of the part; none at its end.
    async fn next(&mut self) -> Result<Option<RecordBatch>>;

    /// The position once so many rows are read, up to a place; at its end without one.
    fn position(&self, read: u64, from: Option<Place>) -> Position;

    /// Records left out so far because they could not be read.
    fn skipped(&self) -> u64 {
        0
    }
}

/// A snapshot, and the rows in it as far as they were counted when it was taken.
pub(super) struct Taken {
    pub snapshot: Box<dyn Snapshot>,
    pub counts: Option<Histogram>,
}

/// Whether a table can be read in the order of event time.
pub fn can_be_ordered(provider: &Arc<dyn TableProvider>) -> bool {
    provider.is::<AppendTable>() || provider.is::<ListingTable>()
}

/// The refusal of a table that cannot.
pub fn cannot_be_ordered(table: &str) -> Refusal {
    Refusal::new(
        "UNSUPPORTED_INITIAL_ORDER",
        "42KDE",
        format!(
            "{table} cannot be read in the order of event time: it is a table of the application, which gives its rows once, in its own order."
        ),
    )
    .hint("leave initial_order out, or keep the rows first: INSERT INTO a table, or files")
}

/// How a snapshot is read that a position is in, or with which one begins; none where rows are read by arrival.
pub(super) struct Phase<'a> {
    pub time: &'a EventTime,
    /// The first place to read.
    pub from: Option<Place>,
}

impl<'a> Phase<'a> {
    /// The phase of a position.
    ///
    /// # Errors
    /// - the rows up to the position were ordered by another event time
    /// - there is no event time to order by
    pub(super) fn of(
        position: Option<&Position>,
        limits: &Limits,
        time: Option<&'a EventTime>,
    ) -> Result<Option<Self>> {
        let until = match position {
            None if limits.initial_order == InitialOrder::Arrival => return Ok(None),
            None => None,
            Some(Position::Files(files)) => match &files.in_order {
                Some(FilesInOrder { until, .. }) => Some(until),
                None => return Ok(None),
            },
            Some(Position::Ordered(rows)) => Some(&rows.until),
            Some(Position::Rows(_)) => return Ok(None),
        };
        match (time, until) {
            (Some(time), None) => Ok(Some(Self { time, from: None })),
            (Some(time), Some(until)) if until.by == time.by() => Ok(Some(Self {
                time,
                from: Some(until.from),
            })),
            (time, until) => Err(other_order(until, time)),
        }
    }
}

/// The refusal to go on by another event time than the rows before were ordered by.
fn other_order(until: Option<&ReadUntil>, time: Option<&EventTime>) -> DataFusionError {
    let was = until.map_or("none", |until| until.by.as_str());
    let is = time.map_or("none", EventTime::by);
    Refusal::new(
        "STREAMING_QUERY_CHANGED",
        "42K0E",
        format!(
            "The first rows are being read in the order of event time, which was {was} and is {is}."
        ),
    )
    .hint("write the query as it was, or begin anew: REFRESH STREAMING TABLE … FULL")
    .into()
}

/// Opens a table in the order of event time.
///
/// # Errors
/// - the table is one that cannot be read so, or cannot be read at all
pub(super) async fn open(
    provider: &Arc<dyn TableProvider>,
    columns: &[usize],
    from: Option<Position>,
    phase: &Phase<'_>,
    limits: &Limits,
    env: &ReadEnv,
) -> Result<Box<dyn Reader>> {
    let (taken, then): (Taken, Box<dyn Reader>) =
        if let Some(table) = provider.downcast_ref::<AppendTable>() {
            let snapshot = RowsSnapshot::take(provider, table, from, phase.time)?;
            let then = table.read(columns, Some(snapshot.snapshot.position(0, None)));
            (snapshot, Box::new(then))
        } else if let Some(table) = provider.downcast_ref::<ListingTable>() {
            let bad = limits.on_bad_record;
            let taken = files::snapshot(table, from, phase.time, bad, env).await?;
            let behind = Some(taken.snapshot.position(0, None));
            let then = files::FilesReader::open(table, columns, behind, bad, env.clone()).await?;
            (taken, Box::new(then))
        } else {
            return Err(cannot_be_ordered("the source").into());
        };
    let reader = InitialReader::open(taken, phase, columns, limits.rows, provider, then).await?;
    Ok(Box::new(reader))
}
