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
mod rows;
mod stretches;

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTable;

pub use event_time::EventTime;
pub(super) use event_time::Ticks;
pub(super) use stretches::Histogram;
pub use stretches::{Extent, Place, Stretch};

use self::rows::RowsSnapshot;
use self::stretches::{Bin, Bins, Next};
use super::position::ReadUntil;
use super::{AppendTable, Arrival, FilesInOrder, Limits, Position, ReadEnv, Reader, files};
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

/// Reads a snapshot stretch by stretch, then what comes behind it.
pub(super) struct InitialReader {
    snapshot: Box<dyn Snapshot>,
    extents: Vec<Extent>,
    /// The table's columns that are read.
    columns: Vec<usize>,
    /// Event times of rows with these columns.
    ticks: Ticks,
    time: EventTime,
    table: Arc<dyn TableProvider>,
    bins: Bins,
    reading: Option<Reading>,
    /// Rows given of the snapshot since the reader was opened.
    given: u64,
    /// Positions after so many rows, for those that have not been asked for.
    marks: VecDeque<(u64, Position)>,
    reached: Position,
    /// Whether all of the snapshot has been given.
    over: bool,
    /// Reads what comes behind the snapshot.
    then: Box<dyn Reader>,
}

/// The stretch that is being read.
struct Reading {
    stretch: Stretch,
    /// Parts that may have rows in it and were not begun.
    parts: VecDeque<usize>,
    current: Option<Extent>,
}

impl InitialReader {
    async fn open(
        taken: Taken,
        phase: &Phase<'_>,
        columns: &[usize],
        rows: u64,
        table: &Arc<dyn TableProvider>,
        then: Box<dyn Reader>,
    ) -> Result<Self> {
        let extents = taken.snapshot.extents();
        let untimed = extents.iter().map(|extent| extent.untimed).sum();
        let from = phase.from.unwrap_or(Place::At(i64::MIN));
        let bins = match taken.counts {
            Some(counts) => Bins::counted(counts, untimed, rows),
            None => Bins::of(extents.iter(), from, rows),
        };
        Ok(Self {
            reached: taken.snapshot.position(0, Some(from)),
            ticks: phase.time.of(&table.schema(), columns)?,
            time: phase.time.clone(),
            snapshot: taken.snapshot,
            extents,
            columns: columns.to_vec(),
            table: Arc::clone(table),
            bins,
            reading: None,
            given: 0,
            marks: VecDeque::new(),
            over: false,
            then,
        })
    }

    /// Parts that may have rows in a stretch.
    fn parts(&self, stretch: &Stretch) -> VecDeque<usize> {
        let parts = self.extents.iter().enumerate();
        parts
            .filter(|(_, extent)| extent.meets(stretch))
            .map(|(part, _)| part)
            .collect()
    }

    /// The next rows of the stretch; none at its end.
    async fn of_stretch(&mut self, reading: &mut Reading) -> Result<Option<RecordBatch>> {
        loop {
            let Some(extent) = reading.current else {
                let Some(part) = reading.parts.pop_front() else {
                    return Ok(None);
                };
                let extent = self.extents.get(part).copied().unwrap_or_default();
                // A part is read for the last time with the last of its rows.
                let last = extent
                    .last()
                    .is_some_and(|last| reading.stretch.holds(last));
                let begun = self
                    .snapshot
                    .begin(part, &self.columns, &reading.stretch, last);
                begun.await?;
                reading.current = Some(extent);
                continue;
            };
            let Some(batch) = self.snapshot.next().await? else {
                reading.current = None;
                continue;
            };
            let rows = within(&batch, &self.ticks.of(&batch)?, &extent, &reading.stretch)?;
            if rows.num_rows() > 0 {
                self.given += rows.num_rows() as u64;
                return Ok(Some(rows));
            }
        }
    }

    /// Counts the rows of a bin again, reading their event times.
    async fn count(&mut self, bin: Bin) -> Result<()> {
        let stretch = bin.stretch();
        let columns = self.time.columns().to_vec();
        let ticks = self.time.of(&self.table.schema(), &columns)?;
        let mut counts = Histogram::default();
        for part in self.parts(&stretch) {
            let extent = self.extents.get(part).copied().unwrap_or_default();
            let begun = self.snapshot.begin(part, &columns, &stretch, false);
            begun.await?;
            while let Some(batch) = self.snapshot.next().await? {
                let places = ticks.of(&batch)?;
                let places = places.iter().map(|ticks| extent.place(ticks));
                counts.add(places.filter_map(|place| match place {
                    Place::At(at) if stretch.holds(place) => Some(at),
                    _ => None,
                }));
            }
        }
        self.bins.divided(bin, counts);
        Ok(())
    }

    /// Whether a stretch has ended.
    fn ended(&mut self, reading: &Reading) {
        let position = self.snapshot.position(self.given, reading.stretch.until);
        self.marks.push_back((self.given, position));
    }
}

/// The rows of a batch that are in a stretch.
fn within(
    batch: &RecordBatch,
    ticks: &Int64Array,
    extent: &Extent,
    stretch: &Stretch,
) -> Result<RecordBatch> {
    let inside: BooleanArray = ticks
        .iter()
        .map(|ticks| Some(stretch.holds(extent.place(ticks))))
        .collect();
    if inside.true_count() == batch.num_rows() {
        return Ok(batch.clone());
    }
    Ok(filter_record_batch(batch, &inside)?)
}

#[async_trait]
impl Reader for InitialReader {
    async fn next(&mut self) -> Result<Arrival> {
        while !self.over {
            if let Some(mut reading) = self.reading.take() {
                if let Some(batch) = self.of_stretch(&mut reading).await? {
                    self.reading = Some(reading);
                    return Ok(Arrival::Stretch(batch));
                }
                self.ended(&reading);
                return Ok(Arrival::StretchEnd);
            }
            match self.bins.next() {
                None => self.over = true,
                Some(Next::Count(bin)) => self.count(bin).await?,
                Some(Next::Read(stretch)) => {
                    self.reading = Some(Reading {
                        stretch,
                        parts: self.parts(&stretch),
                        current: None,
                    });
                }
            }
        }
        self.then.next().await
    }

    async fn arrived(&mut self) {
        if self.over {
            self.then.arrived().await;
        }
    }

    fn endless(&self) -> bool {
        self.then.endless()
    }

    fn decodes(&self) -> bool {
        !self.over || self.then.decodes()
    }

    fn position(&mut self, rows: u64) -> Position {
        if self.over && rows >= self.given {
            return self.then.position(rows - self.given);
        }
        while self.marks.front().is_some_and(|(given, _)| *given <= rows) {
            if let Some((_, position)) = self.marks.pop_front() {
                self.reached = position;
            }
        }
        self.reached.clone()
    }

    fn skipped(&self) -> u64 {
        self.snapshot.skipped() + self.then.skipped()
    }

    fn changed(&mut self) -> Vec<String> {
        self.then.changed()
    }
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
