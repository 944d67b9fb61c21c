//! The unit of a timestamp column.

use super::{Instant, Span};

/// The unit in which a column counts time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Unit {
    /// Seconds: the coarsest.
    Second,
    /// Milliseconds.
    Millisecond,
    /// Microseconds.
    Microsecond,
    /// Nanoseconds: the finest.
    Nanosecond,
}

impl Unit {
    /// All units, coarsest first.
    pub const ALL: [Unit; 4] = [
        Unit::Second,
        Unit::Millisecond,
        Unit::Microsecond,
        Unit::Nanosecond,
    ];

    /// Nanoseconds in one tick of this unit.
    pub const fn nanos(self) -> i64 {
        match self {
            Unit::Second => 1_000_000_000,
            Unit::Millisecond => 1_000_000,
            Unit::Microsecond => 1_000,
            Unit::Nanosecond => 1,
        }
    }

    /// The instant of a tick.
    pub fn instant(self, ticks: i64) -> Instant {
        Instant::from_nanos(i128::from(ticks).saturating_mul(i128::from(self.nanos())))
    }

    /// The last tick at or before an instant, or the nearest tick the type has.
    pub fn floor(self, instant: Instant) -> i64 {
        clamp(instant.nanos().div_euclid(i128::from(self.nanos())))
    }

    /// The last tick at or before an instant, if the type has one.
    pub fn last_tick(self, instant: Instant) -> Option<i64> {
        (instant >= self.instant(i64::MIN)).then(|| self.floor(instant))
    }

    /// The first tick at or after an instant, or the nearest tick the type has.
    pub fn ceil(self, instant: Instant) -> i64 {
        let below = Instant::from_nanos(instant.nanos().saturating_neg());
        self.floor(below).saturating_neg()
    }

    /// A span in ticks, if it is a whole number of them that fits.
    pub fn ticks(self, span: Span) -> Option<i64> {
        let nanos = i128::from(self.nanos());
        (span.nanos().checked_rem(nanos) == Some(0))
            .then(|| span.nanos().checked_div(nanos))
            .flatten()
            .and_then(|ticks| i64::try_from(ticks).ok())
    }

    /// The coarsest unit, not coarser than `self`, in which every span is a whole number of ticks.
    pub fn fitting(self, spans: &[Span]) -> Option<Unit> {
        Unit::ALL
            .into_iter()
            .filter(|unit| *unit >= self)
            .find(|unit| spans.iter().all(|span| unit.ticks(*span).is_some()))
    }
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unit::Second => "second",
            Unit::Millisecond => "millisecond",
            Unit::Microsecond => "microsecond",
            Unit::Nanosecond => "nanosecond",
        })
    }
}

/// The nearest `i64`.
pub(super) fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_goes_towards_the_past_on_both_sides_of_1970() {
        assert_eq!(Unit::Second.floor(Instant::from_nanos(1_500_000_000)), 1);
        assert_eq!(Unit::Second.floor(Instant::from_nanos(-1)), -1);
    }

    #[test]
    fn ceil_goes_towards_the_future_on_both_sides_of_1970() {
        assert_eq!(Unit::Second.ceil(Instant::from_nanos(1_500_000_000)), 2);
        assert_eq!(Unit::Second.ceil(Instant::from_nanos(2_000_000_000)), 2);
        assert_eq!(Unit::Second.ceil(Instant::from_nanos(-1)), 0);
    }

    #[test]
    fn a_span_finer_than_the_column_takes_the_coarsest_unit_that_holds_it() {
        let half_second = Span::from_nanos(500_000_000);
        assert_eq!(
            Unit::Second.fitting(&[half_second]),
            Some(Unit::Millisecond)
        );
        assert_eq!(
            Unit::Microsecond.fitting(&[half_second]),
            Some(Unit::Microsecond)
        );
    }
}
