//! Event times that passed a WATERMARK clause in one epoch: how many, from when to when, and their mean.

use datafusion::arrow::array::{Array, PrimitiveArray};
use datafusion::arrow::compute::{max, min};
use datafusion::arrow::datatypes::ArrowTimestampType;

use super::dense::extent;
use crate::time::{Instant, Unit};

/// Event times in ticks of one unit. Nulls are no event times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventTimes {
    /// Rows that passed, those without an event time included.
    pub rows: u64,
    /// Rows with an event time.
    pub timed: u64,
    /// Least event time.
    pub least: Option<i64>,
    /// Greatest event time.
    pub greatest: Option<i64>,
    /// Rows that did not pass, for their event time was beyond the clause's guard; not in the figures above.
    pub guarded: u64,
    /// Greatest event time of those.
    pub greatest_guarded: Option<i64>,
    /// Whether more was said of the event time without a row than had been seen.
    pub advanced: bool,
    sum: i128,
}

impl EventTimes {
    /// The event times of a column.
    pub fn of<T: ArrowTimestampType>(times: &PrimitiveArray<T>) -> Self {
        let rows = times.len() as u64;
        if let (0, Some((least, greatest))) = (times.null_count(), extent(times.values())) {
            return Self {
                rows,
                timed: rows,
                least: Some(least),
                greatest: Some(greatest),
                sum: sum(times.values(), least, greatest),
                ..Self::default()
            };
        }
        Self {
            rows,
            timed: rows.saturating_sub(times.null_count() as u64),
            least: min(times),
            greatest: max(times),
            sum: times.iter().flatten().map(i128::from).sum(),
            ..Self::default()
        }
    }

    /// Whether the clause's input gave a sign of life.
    pub fn are_alive(&self) -> bool {
        self.rows > 0 || self.advanced
    }

    /// Adds other event times.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.timed += other.timed;
        self.least = self.least.into_iter().chain(other.least).min();
        self.greatest = self.greatest.max(other.greatest);
        self.guarded += other.guarded;
        self.greatest_guarded = self.greatest_guarded.max(other.greatest_guarded);
        self.advanced |= other.advanced;
        self.sum += other.sum;
    }

    /// Mean event time, rounded down to a tick.
    pub fn mean(&self) -> Option<i64> {
        let mean = self.sum.checked_div_euclid(i128::from(self.timed))?;
        i64::try_from(mean).ok()
    }

    /// Least, greatest and mean as instants.
    pub fn instants(&self, unit: Unit) -> [Option<Instant>; 3] {
        [self.least, self.greatest, self.mean()].map(|tick| Some(unit.instant(tick?)))
    }
}

/// A sum that does not overflow: of the distances to the least, where so many of them fit.
fn sum(ticks: &[i64], least: i64, greatest: i64) -> i128 {
    let rows = ticks.len() as i128;
    let most = (i128::from(greatest) - i128::from(least)) * rows;
    if most > i128::from(i64::MAX) {
        return ticks.iter().copied().map(i128::from).sum();
    }
    let distances = ticks.iter().fold(0_i64, |sum, tick| {
        sum.wrapping_add(tick.wrapping_sub(least))
    });
    i128::from(least) * rows + i128::from(distances)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::TimestampMicrosecondArray;

    use super::*;

    #[test]
    fn the_mean_of_the_greatest_times_does_not_overflow() {
        let times = TimestampMicrosecondArray::from(vec![i64::MAX, i64::MAX - 2]);
        assert_eq!(EventTimes::of(&times).mean(), Some(i64::MAX - 1));
        let times = TimestampMicrosecondArray::from(vec![i64::MIN, i64::MAX]);
        assert_eq!(EventTimes::of(&times).mean(), Some(-1));
    }

    #[test]
    fn nulls_are_rows_without_a_time() {
        let mut all = EventTimes::of(&TimestampMicrosecondArray::from(vec![Some(-3), None]));
        all.add(&EventTimes::of(&TimestampMicrosecondArray::from(vec![
            None, None,
        ])));
        all.add(&EventTimes::of(&TimestampMicrosecondArray::from(vec![8])));
        assert_eq!((all.rows, all.timed), (5, 2));
        assert_eq!(
            (all.least, all.greatest, all.mean()),
            (Some(-3), Some(8), Some(2))
        );
    }

    #[test]
    fn of_no_times_there_is_no_mean() {
        assert_eq!(EventTimes::default().mean(), None);
    }
}
