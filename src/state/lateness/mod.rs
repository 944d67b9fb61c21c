//! How many rows each of some delays would find late, in one pass over rows in order of arrival.
//!
//! The watermark moves only at the end of an epoch. With `M`, the greatest event time of the epochs before,
//! a row whose window ends at `E` is late for the delay `D` when `E <= M - D`, so when `D <= M - E`: one number a
//! row, looked up among the delays, judges all of them.
//!
//! ```text
//! windows of 1 hour, M = 11:30
//! row at 09:50, E = 10:00, M - E = 1 h 30 min     late for delays up to 1 h 30 min
//! row at 10:15, E = 11:00, M - E = 30 min         late for delays up to 30 min
//! row at 11:05, E = 12:00, M - E below 0          late for none
//! ```
//!
//! The ends of the windows that have rows are kept too, in order: at the end of an epoch those after `M - D` are
//! the windows that `D` holds open, and those that `M - D` has passed since the epoch before have become final.
//!
//! - Late rows are exact for every delay, whatever its unit: nothing is rounded.
//! - Memory is bounded: [`WINDOWS`] ends are kept, the newest. A delay that needs one that was let go has no figures
//!   of windows; its late rows are still exact.
//! - Ends are counted in ticks of the column, rounded up: a watermark has the column's unit, so it reaches what lies
//!   between two ticks at the second of them.

mod delays;
mod disorder;

pub use delays::usual_delays;
pub use disorder::{BUCKETS, Disorder};

use std::collections::VecDeque;

use crate::time::{Span, Unit, WindowShape};

/// Ends of windows that are kept at most: half a megabyte.
pub const WINDOWS: usize = 65_536;

/// Shares of late rows of which the least delay that stays within them is worth showing: one row in so many.
const ONE_IN: [u64; 4] = [10, 100, 1_000, 10_000];

/// Counts what each of some delays leads to.
#[derive(Debug)]
pub struct Lateness {
    shape: WindowShape,
    unit: Unit,
    /// Ticks of the shape in one of the column.
    finer: i64,
    /// In order of their delays.
    candidates: Vec<Candidate>,
    /// Greatest event time of the epochs before.
    before: Option<i64>,
    /// Greatest event time.
    greatest: Option<i64>,
    timed: u64,
    epochs: u64,
    /// Ends of windows that have rows, in order.
    ends: VecDeque<i64>,
    /// The greatest end that was let go.
    forgotten: Option<i64>,
    /// End of the last row's window.
    last: Option<i64>,
    most: usize,
}

/// What is counted of one delay.
#[derive(Debug)]
struct Candidate {
    delay: Span,
    /// The delay in ticks, rounded up as the watermark is rounded down.
    ticks: i128,
    /// Rows that are late for this delay and not for the next longer one.
    last_late: u64,
    open: u64,
    closed: u64,
    waited: i128,
    /// Whether windows were let go that it needed.
    incomplete: bool,
}

/// What one delay would lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The delay.
    pub delay: Span,
    /// Rows that would be late.
    pub late_rows: u64,
    /// Greatest number of windows that have rows and are open at the end of an epoch; none if there were more than
    /// are kept.
    pub open_windows: Option<u64>,
    /// Mean of the event time that passes from the end of a window to the greatest event time of the epoch that makes
    /// it final, rounded up to a tick; none if no window becomes final, or more were open than are kept.
    pub wait: Option<Span>,
}

impl Lateness {
    /// Counts for tumbling windows of this shape over a column of this unit, the shape's or a coarser one. Delays
    /// below zero are passed over.
    pub fn new(shape: WindowShape, unit: Unit, delays: &[Span]) -> Self {
        Self::keeping(shape, unit, delays, WINDOWS)
    }

    fn keeping(shape: WindowShape, unit: Unit, delays: &[Span], most: usize) -> Self {
        let mut delays: Vec<Span> = delays.to_vec();
        delays.retain(|delay| *delay >= Span::ZERO);
        delays.sort_unstable();
        delays.dedup();
        let candidates = delays.into_iter().map(|delay| Candidate {
            delay,
            ticks: ticks_up(delay, unit),
            last_late: 0,
            open: 0,
            closed: 0,
            waited: 0,
            incomplete: false,
        });
        Self {
            shape,
            unit,
            finer: unit.nanos() / shape.unit().nanos().min(unit.nanos()),
            candidates: candidates.collect(),
            before: None,
            greatest: None,
            timed: 0,
            epochs: 0,
            ends: VecDeque::new(),
            forgotten: None,
            last: None,
            most,
        }
    }

    /// Takes the next row of the epoch, by its event time in ticks of the column.
    pub fn add(&mut self, tick: i64) {
        self.timed += 1;
        self.greatest = self.greatest.max(Some(tick));
        // A row without a window moves the watermark; it is rejected, not late.
        let Some(end) = self.window_end(tick) else {
            return;
        };
        if self.last != Some(end) {
            self.last = Some(end);
            self.see(end);
        }
        if let Some(before) = self.before
            && end <= before
        {
            let behind = i128::from(before) - i128::from(end);
            let late = self
                .candidates
                .partition_point(|candidate| candidate.ticks <= behind);
            let longest = late
                .checked_sub(1)
                .and_then(|at| self.candidates.get_mut(at));
            if let Some(candidate) = longest {
                candidate.last_late += 1;
            }
        }
    }

    /// End of the window of a tick, in ticks of the column, rounded up.
    fn window_end(&self, tick: i64) -> Option<i64> {
        let begin = self.shape.slice(tick.checked_mul(self.finer)?)?;
        let end = begin.checked_add(self.shape.size())?;
        let rounded = i64::from(end.rem_euclid(self.finer) > 0);
        end.div_euclid(self.finer).checked_add(rounded)
    }

    /// Takes note that a window has rows.
    fn see(&mut self, end: i64) {
        let Err(at) = self.ends.binary_search(&end) else {
            return;
        };
        if at == 0 && self.ends.len() >= self.most {
            self.forgotten = self.forgotten.max(Some(end));
            return;
        }
        self.ends.insert(at, end);
        if self.ends.len() > self.most {
            self.forgotten = self.forgotten.max(self.ends.pop_front());
        }
    }

    /// Ends the epoch: the watermark moves.
    pub fn end_epoch(&mut self) {
        self.epochs += 1;
        let Some(now) = self.greatest else {
            return;
        };
        for candidate in &mut self.candidates {
            let mark = i128::from(now) - candidate.ticks;
            let before = self
                .before
                .map(|before| i128::from(before) - candidate.ticks);
            // Windows that were open when the epoch began, and those that began in it, count.
            candidate.incomplete |= self
                .forgotten
                .is_some_and(|end| before.is_none_or(|before| i128::from(end) > before));
            let passed = |mark: i128| self.ends.partition_point(|end| i128::from(*end) <= mark);
            let closed = passed(mark);
            candidate.open = candidate.open.max((self.ends.len() - closed) as u64);
            let closing = before.map_or(0, passed)..closed;
            candidate.closed += closing.len() as u64;
            let waits = self.ends.range(closing);
            candidate.waited += waits
                .map(|end| i128::from(now) - i128::from(*end))
                .sum::<i128>();
        }
        self.before = self.greatest;
    }

    /// Rows with an event time.
    pub fn timed(&self) -> u64 {
        self.timed
    }

    /// Epochs that have ended.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// What each delay leads to, the shortest first.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let nanos = i128::from(self.unit.nanos());
        let mut late_rows = 0;
        let outcomes = self.candidates.iter().rev().map(|candidate| {
            late_rows += candidate.last_late;
            let closed = i128::from(candidate.closed);
            let mean = (closed > 0 && !candidate.incomplete)
                .then(|| (candidate.waited + closed - 1).div_euclid(closed));
            Outcome {
                delay: candidate.delay,
                late_rows,
                open_windows: (!candidate.incomplete).then_some(candidate.open),
                wait: mean.map(|ticks| Span::from_nanos(ticks * nanos)),
            }
        });
        let mut outcomes: Vec<Outcome> = outcomes.collect();
        outcomes.reverse();
        outcomes
    }

    /// The outcomes among which one chooses: of no delay, or the shortest that there is, and of the shortest delay that
    /// keeps late rows to one in 10, 100, 1,000 and 10,000 timed rows, and to none.
    pub fn choice(&self) -> Vec<Outcome> {
        let mut outcomes = self.outcomes();
        let limits = ONE_IN.map(|one_in| self.timed / one_in);
        let wanted = std::iter::once(u64::MAX).chain(limits).chain([0]);
        let mut chosen: Vec<usize> = wanted
            .filter_map(|most| outcomes.iter().position(|one| one.late_rows <= most))
            .collect();
        chosen.dedup();
        let mut at = 0;
        outcomes.retain(|_| {
            at += 1;
            chosen.contains(&(at - 1))
        });
        outcomes
    }
}

/// A delay in ticks of a unit, rounded up.
fn ticks_up(delay: Span, unit: Unit) -> i128 {
    let nanos = i128::from(unit.nanos());
    delay.nanos().div_euclid(nanos) + i128::from(delay.nanos().rem_euclid(nanos) > 0)
}

#[cfg(test)]
mod tests;
