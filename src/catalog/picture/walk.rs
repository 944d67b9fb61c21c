//! Goes over the rows of a source, epoch by epoch, and keeps those that are drawn.

use std::collections::BTreeMap;

use datafusion::common::Result;

use super::judge::{Bounds, Group, Judge};
use super::replay::Seen;
use super::rows::Rows;
use super::sessions::Sessions;
use crate::picture::{EpochMark, LateMark, LateRows, Point};
use crate::time::{Closed, Span, Unit};

/// Late rows that are drawn, at most twice so many while they are found.
const LATE: usize = 1_000;

/// Windows that are counted at a time: the oldest leave.
const MOST_WINDOWS: usize = 4_096;

/// Goes over rows in order of arrival.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    shown: &'a [EpochMark],
    every: u64,
    /// Whether rows are drawn, not only late ones.
    draws: bool,
    pub points: Vec<Point>,
    pub late: LateFound,
    pub windows: BTreeMap<i64, Seen>,
    pub sessions: Sessions,
    /// Unit of their begins.
    pub unit: Unit,
    /// Rows of the source in each epoch.
    counts: Vec<u64>,
    /// Place of the epoch, and of the next row in it.
    epoch: usize,
    within: u64,
    /// Rows so far.
    rows: u64,
    /// Windows closed when the epoch began.
    closed: Closed,
}

/// Late rows, thinned where they are very many.
#[derive(Debug)]
pub(super) struct LateFound {
    marks: Vec<LateMark>,
    every: u64,
    found: u64,
    by: Option<Span>,
}

impl LateFound {
    fn add(&mut self, mark: LateMark) {
        self.by = self.by.max(Some(mark.by));
        if self.found.is_multiple_of(self.every) {
            self.marks.push(mark);
        }
        self.found += 1;
        if self.marks.len() >= 2 * LATE {
            let mut place = 0_u64;
            self.marks.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// Adds them to those of other tracks.
    pub(super) fn finish(self, all: &mut LateRows) {
        all.marks.extend(self.marks);
        all.marks.sort_by(|a, b| a.point.at.total_cmp(&b.point.at));
        all.found += self.found;
        all.by = all.by.max(self.by);
    }
}

impl<'a> Walk<'a> {
    /// Over the rows of these epochs.
    pub(super) fn new(shown: &'a [EpochMark], every: u64, draws: bool) -> Self {
        Self {
            shown,
            every,
            draws,
            points: Vec::new(),
            late: LateFound {
                marks: Vec::new(),
                every: 1,
                found: 0,
                by: None,
            },
            windows: BTreeMap::new(),
            sessions: Sessions::default(),
            unit: Unit::Nanosecond,
            counts: Vec::new(),
            epoch: 0,
            within: 0,
            rows: 0,
            closed: Closed::None,
        }
    }

    /// Begins with the first row; so many are in each epoch.
    pub(super) fn begin(&mut self, counts: &[u64], judge: Option<&Judge>) {
        self.counts = counts.to_vec();
        self.enter(judge);
    }

    /// Goes to the next epoch that has rows, where the one at hand has no more.
    fn enter(&mut self, judge: Option<&Judge>) {
        while self
            .counts
            .get(self.epoch)
            .is_some_and(|count| self.within >= *count)
        {
            self.epoch += 1;
            self.within = 0;
        }
        let mark = self.shown.get(self.epoch);
        self.closed = match (judge, mark) {
            (Some(judge), Some(mark)) => judge.closed(mark.before),
            _ => Closed::None,
        };
    }

    /// Takes rows. Judged times are in this unit.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(super) fn take(&mut self, rows: &Rows, judge: Option<&Judge>, unit: Unit) -> Result<()> {
        self.sessions.enter(&rows.keys, rows.count)?;
        let judge = judge.map(|judge| judge.clone().in_unit(unit));
        self.unit = unit;
        let mut bounds = judge.as_ref().map(|judge| Bounds::new(judge, unit));
        if self.within == 0 {
            self.enter(judge.as_ref());
        }
        for row in 0..rows.count {
            let Some((mark, count)) = self
                .shown
                .get(self.epoch)
                .zip(self.counts.get(self.epoch).copied())
            else {
                return Ok(());
            };
            let at = place(mark.number, self.within, count);
            let event = rows.event(row);
            if let Some(time) = event.filter(|_| self.draws && self.rows.is_multiple_of(self.every))
            {
                self.points.push(Point { at, time });
            }
            if let (Some(judge), Some(bounds)) = (&judge, &mut bounds) {
                self.judge(rows, row, at, mark, judge, bounds);
            }
            self.rows += 1;
            self.within += 1;
            if self.within >= count {
                self.enter(judge.as_ref());
            }
        }
        Ok(())
    }

    /// Whether a row is late, and which windows count it.
    fn judge(
        &mut self,
        rows: &Rows,
        row: usize,
        at: f64,
        mark: &EpochMark,
        judge: &Judge,
        bounds: &mut Bounds<'_>,
    ) {
        let Some((tick, group)) = rows.group(row, judge, self.unit) else {
            return;
        };
        if let Some(watermark) = mark.before.filter(|_| group.is_in(self.closed)) {
            let Some((window, due)) = bounds.window(group) else {
                return;
            };
            let time = rows.event(row).unwrap_or_else(|| self.unit.instant(tick));
            self.late.add(LateMark {
                point: Point { at, time },
                epoch: mark.number,
                watermark,
                window,
                by: Span::from_nanos(watermark.nanos().saturating_sub(due.nanos())),
            });
            if let Group::Begin(begin) = group
                && judge.lasts
            {
                self.window(begin, at).late += 1;
            }
            return;
        }
        if let Group::Session(begin, end) = group {
            if judge.id.is_some() {
                self.sessions.take(row, (begin, end), at, self.closed);
            }
            return;
        }
        for begin in judge.windows(tick) {
            if !self.closed.contains(begin) {
                self.window(begin, at).rows += 1;
            }
        }
    }

    /// A window, with this arrival as its first if it has none.
    fn window(&mut self, begin: i64, at: f64) -> &mut Seen {
        if self.windows.len() >= MOST_WINDOWS && !self.windows.contains_key(&begin) {
            self.windows.pop_first();
        }
        self.windows.entry(begin).or_insert(Seen {
            from: at,
            rows: 0,
            late: 0,
        })
    }
}

/// Where a row is in its epoch.
#[expect(
    clippy::cast_precision_loss,
    reason = "a place in a picture is not exact to the row"
)]
fn place(epoch: u64, within: u64, count: u64) -> f64 {
    epoch as f64 + (within as f64 + 0.5) / (count as f64).max(1.0)
}
