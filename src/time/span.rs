//! A length of time.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time in nanoseconds, of either sign. A day is 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(i128);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of so many nanoseconds.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    /// A span of days (of 24 hours) and nanoseconds.
    pub fn from_days_and_nanos(days: i32, nanos: i64) -> Self {
        const DAY: i128 = 86_400_000_000_000;
        Self(
            i128::from(days)
                .saturating_mul(DAY)
                .saturating_add(i128::from(nanos)),
        )
    }

    /// The days (of 24 hours) and nanoseconds of which it is the sum, if they fit.
    pub fn days_and_nanos(self) -> Option<(i32, i64)> {
        const DAY: i128 = 86_400_000_000_000;
        let days = i32::try_from(self.0.checked_div(DAY)?).ok()?;
        let nanos = i64::try_from(self.0.checked_rem(DAY)?).ok()?;
        Some((days, nanos))
    }

    /// The span as a duration, if it is longer than zero.
    pub fn positive(self) -> Option<std::time::Duration> {
        let nanos = u128::try_from(self.0).ok().filter(|nanos| *nanos > 0)?;
        (nanos <= std::time::Duration::MAX.as_nanos())
            .then(|| std::time::Duration::from_nanos_u128(nanos))
    }

    /// Its nanoseconds.
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// The sum of two spans.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Its length without sign.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }
}

/// Units in which a span is written, longest first.
const NAMES: [(i128, &str); 7] = [
    (86_400_000_000_000, "day"),
    (3_600_000_000_000, "hour"),
    (60_000_000_000, "minute"),
    (1_000_000_000, "second"),
    (1_000_000, "millisecond"),
    (1_000, "microsecond"),
    (1, "nanosecond"),
];

impl fmt::Display for Span {
    /// Writes `1 hour 30 minutes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0 seconds");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let mut rest = self.0.saturating_abs();
        let mut gap = "";
        for (nanos, name) in NAMES {
            let count = rest.div_euclid(nanos);
            if count > 0 {
                rest = rest.rem_euclid(nanos);
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "{gap}{count} {name}{plural}")?;
                gap = " ";
            }
        }
        Ok(())
    }
}

/// Written as text: JSON has no numbers of this size.
impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        nanos(from).map(Self)
    }
}

/// Nanoseconds that were written as text.
pub(super) fn nanos<'de, D: Deserializer<'de>>(from: D) -> Result<i128, D::Error> {
    String::deserialize(from)?
        .parse()
        .map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_as_one_would_say_it() {
        assert_eq!(
            Span::from_nanos(5_400_000_000_000).to_string(),
            "1 hour 30 minutes"
        );
        assert_eq!(
            Span::from_days_and_nanos(1, -10_000_000_000).to_string(),
            "23 hours 59 minutes 50 seconds"
        );
        assert_eq!(Span::from_nanos(-60_000_000_000).to_string(), "-1 minute");
        assert_eq!(Span::ZERO.to_string(), "0 seconds");
    }
}
