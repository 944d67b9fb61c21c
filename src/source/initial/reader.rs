//! Reads a snapshot stretch by stretch, then what comes behind it.
//!
//! ```text
//! bins.next()   Count(bin): read the event times of its parts, put finer bins in its place
//!               Read(stretch): begin each part that meets it, give the rows that are in it; StretchEnd
//!               nothing: the snapshot is over, the reader behind it goes on
//! position      after so many rows: where the stretch behind the last one that ended by then begins
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;

use super::stretches::{Bin, Bins, Next};
use super::{EventTime, Extent, Histogram, Phase, Place, Snapshot, Stretch, Taken, Ticks};
use crate::source::{Arrival, Passed, Position, Reader};

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
    pub(super) async fn open(
        taken: Taken,
        phase: &Phase<'_>,
        columns: &[usize],
        rows: u64,
        table: &Arc<dyn TableProvider>,
        then: Box<dyn Reader>,
    ) -> Result<Self> {
        let extents = taken.snapshot.extents();
        let untimed = extents.iter().map(|extent| extent.untimed);
        let untimed = untimed.fold(0, u64::saturating_add);
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

    /// Notes where the next stretch begins, behind one that has ended.
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

    fn passed(&self, rows: u64) -> Passed {
        match self.over && rows >= self.given {
            true => self.then.passed(rows - self.given),
            false => Passed::default(),
        }
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
