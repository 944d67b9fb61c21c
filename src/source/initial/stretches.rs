//! Where the rows of a snapshot are in event time, and the stretches in which they are read.
//!
//! ```text
//! event time   |-- a --|        |-- b --|
//!                  |-- c --|        |------- d -------|      rows without one
//! bins         |--- 900 ---|    |------- 5,000 -------|          | 10 |
//! limit 1,000  |  stretch 0 |   |  too many: looked at again, finer
//! ```
//!
//! - A [`Bin`] is a range of places and how many rows are in it. Ranges of parts (files) that overlap are one bin,
//!   and places between bins have no rows.
//! - The bins in front that together have no more rows than the limit are the next stretch.
//! - A bin with more rows than the limit is counted again by [`Histogram`], in up to [`MOST_BINS`] bins of equal
//!   width. Only the rows of one event time, and those without one, are never divided.
//! - The state is that of the bins: it does not grow with the rows.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Where a row is in the order: at its event time, or behind all that have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// At this event time, in ticks of its column.
    At(i64),
    /// Behind all event times: the row has none.
    Untimed,
}

/// Where the rows of one part of a snapshot are.
///
/// The rows of a part are taken to be inside, whatever they are: one that is not, because a file's statistics are
/// wrong, is taken for the nearest that is. So each row is in one stretch and no other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Least and greatest event time, in ticks; none if no row has one.
    pub times: Option<(i64, i64)>,
    /// Rows.
    pub rows: u64,
    /// How many of them have no event time.
    pub untimed: u64,
}

impl Extent {
    /// Where a row is.
    pub fn place(&self, ticks: Option<i64>) -> Place {
        match (ticks, self.times) {
            (Some(ticks), Some((least, greatest))) => Place::At(ticks.max(least).min(greatest)),
            (None, Some((_, greatest))) if self.untimed == 0 => Place::At(greatest),
            _ => Place::Untimed,
        }
    }

    /// Takes note of rows.
    pub fn add(&mut self, ticks: impl Iterator<Item = Option<i64>>) {
        for ticks in ticks {
            self.rows += 1;
            match ticks {
                None => self.untimed += 1,
                Some(at) => {
                    let (least, greatest) = self.times.unwrap_or((at, at));
                    self.times = Some((least.min(at), greatest.max(at)));
                }
            }
        }
    }

    /// The last place of its rows; none if there are none.
    pub fn last(&self) -> Option<Place> {
        match (self.untimed, self.times) {
            (0, None) => None,
            (0, Some((_, greatest))) => Some(Place::At(greatest)),
            _ => Some(Place::Untimed),
        }
    }

    /// Whether rows of it may be in a stretch.
    pub fn meets(&self, stretch: &Stretch) -> bool {
        let timed = self.times.is_some_and(|(least, greatest)| {
            stretch.start <= Place::At(greatest)
                && stretch.until.is_none_or(|until| Place::At(least) < until)
        });
        timed || self.untimed > 0 && stretch.holds(Place::Untimed)
    }
}

/// A stretch of places that is read in one epoch: `[start, until)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Its first place.
    pub start: Place,
    /// The place at which the next one begins; none if it is the last.
    pub until: Option<Place>,
}

impl Bin {
    /// The places of the bin.
    pub(super) fn stretch(&self) -> Stretch {
        let until = match self.last {
            Place::At(last) => Some(last.checked_add(1).map_or(Place::Untimed, Place::At)),
            Place::Untimed => None,
        };
        Stretch {
            start: self.start,
            until,
        }
    }
}

impl Stretch {
    /// The event times between which all its rows of a part are, `[from, to)`, as far as they are not all of the part's;
    /// none if rows without an event time are among them.
    pub fn bounds(&self, extent: &Extent) -> Option<(Option<i64>, Option<i64>)> {
        let (least, greatest) = extent.times?;
        if extent.untimed > 0 && self.holds(Place::Untimed) {
            return None;
        }
        let from = match self.start {
            Place::At(start) => (start > least).then_some(start),
            Place::Untimed => return None,
        };
        let to = match self.until {
            Some(Place::At(until)) => (until <= greatest).then_some(until),
            Some(Place::Untimed) | None => None,
        };
        Some((from, to))
    }

    /// Whether a place is in it.
    pub fn holds(&self, place: Place) -> bool {
        self.start <= place && self.until.is_none_or(|until| place < until)
    }
}

/// Places from one to another, both included, and how many rows are there, or more than are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bin {
    pub start: Place,
    pub last: Place,
    pub rows: u64,
}

/// What is next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A stretch to read.
    Read(Stretch),
    /// A bin to count again.
    Count(Bin),
}

/// The bins that are still to be read, the first in front.
#[derive(Debug)]
pub(super) struct Bins {
    bins: VecDeque<Bin>,
    /// Rows that a stretch may have.
    limit: u64,
}

impl Bins {
    /// Bins of parts, from a place on.
    pub(super) fn of<'a>(
        extents: impl Iterator<Item = &'a Extent>,
        from: Place,
        limit: u64,
    ) -> Self {
        let mut untimed = 0_u64;
        let mut timed = Vec::new();
        for extent in extents {
            untimed = untimed.saturating_add(extent.untimed);
            if let Some((least, greatest)) = extent.times
                && Place::At(greatest) >= from
            {
                let least = Place::At(least).max(from);
                let rows = extent.rows.saturating_sub(extent.untimed).max(1);
                timed.push((least, Place::At(greatest), rows));
            }
        }
        timed.sort_unstable();
        let mut bins: VecDeque<Bin> = VecDeque::new();
        for (start, last, rows) in timed {
            match bins.back_mut() {
                Some(bin) if start <= bin.last => {
                    bin.last = bin.last.max(last);
                    bin.rows = bin.rows.saturating_add(rows);
                }
                _ => bins.push_back(Bin { start, last, rows }),
            }
        }
        bins.extend(untimed_bin(untimed));
        Self { bins, limit }
    }

    /// What is to be done next; none if nothing is left. What it says has left the bins.
    pub(super) fn next(&mut self) -> Option<Next> {
        let first = self.bins.pop_front()?;
        if first.rows > self.limit && first.start < first.last {
            return Some(Next::Count(first));
        }
        let mut rows = first.rows;
        while let Some(bin) = self.bins.front() {
            rows = rows.saturating_add(bin.rows);
            if rows > self.limit {
                break;
            }
            self.bins.pop_front();
        }
        Some(Next::Read(Stretch {
            start: first.start,
            until: self.bins.front().map(|bin| bin.start),
        }))
    }

    /// Bins of a whole snapshot whose rows have been counted.
    pub(super) fn counted(counts: Histogram, untimed: u64, limit: u64) -> Self {
        let mut bins: VecDeque<Bin> = counts.bins().into();
        bins.extend(untimed_bin(untimed));
        Self { bins, limit }
    }

    /// Puts bins in front in the place of one that was counted again.
    pub(super) fn divided(&mut self, whole: Bin, counts: Histogram) {
        for bin in counts.bins().into_iter().rev() {
            self.bins.push_front(Bin {
                start: bin.start.max(whole.start),
                last: bin.last.min(whole.last),
                rows: bin.rows,
            });
        }
    }
}

/// The bin of rows without an event time, if there are some.
fn untimed_bin(rows: u64) -> Option<Bin> {
    let place = Place::Untimed;
    (rows > 0).then_some(Bin {
        start: place,
        last: place,
        rows,
    })
}

/// So many bins a histogram has at most: some megabytes, and a bin of a year is eight minutes.
const MOST_BINS: usize = 65_536;

/// Counts rows in bins of equal width, a power of two of ticks: the least with which the bins are few.
#[derive(Debug, Default)]
pub(in crate::source) struct Histogram {
    /// A bin is `2^shift` ticks wide.
    shift: u32,
    counts: BTreeMap<i64, u64>,
}

impl Histogram {
    /// Counts rows at event times. Equal ones that come one after the other cost less.
    pub(in crate::source) fn add(&mut self, ticks: impl Iterator<Item = i64>) {
        let mut run: Option<(i64, u64)> = None;
        for ticks in ticks {
            run = match run {
                Some((at, rows)) if at == ticks => Some((at, rows + 1)),
                Some((at, rows)) => {
                    self.put(at, rows);
                    Some((ticks, 1))
                }
                None => Some((ticks, 1)),
            };
        }
        if let Some((at, rows)) = run {
            self.put(at, rows);
        }
    }

    fn put(&mut self, ticks: i64, rows: u64) {
        *self.counts.entry(ticks >> self.shift).or_default() += rows;
        while self.counts.len() > MOST_BINS && self.shift < i64::BITS - 1 {
            self.shift += 1;
            let mut wider = BTreeMap::new();
            for (bin, rows) in std::mem::take(&mut self.counts) {
                *wider.entry(bin >> 1).or_default() += rows;
            }
            self.counts = wider;
        }
    }

    /// The bins with rows, in order.
    fn bins(self) -> Vec<Bin> {
        let width_less_one = (1_i64 << self.shift).wrapping_sub(1);
        let bins = self.counts.into_iter().map(|(bin, rows)| {
            let start = bin << self.shift;
            Bin {
                start: Place::At(start),
                last: Place::At(start | width_less_one),
                rows,
            }
        });
        bins.collect()
    }
}

#[cfg(test)]
mod tests;
