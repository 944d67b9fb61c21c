//! A moment, precise to the nanosecond and wider than any timestamp type.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Span, Unit};

/// Nanoseconds since 1970-01-01T00:00:00Z, in an `i128`: every timestamp of every unit, minus any
/// delay, is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(i128);

impl Instant {
    /// The instant so many nanoseconds after 1970-01-01T00:00:00Z.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since 1970-01-01T00:00:00Z.
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// The instant so much before this one.
    #[must_use]
    pub fn earlier(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.nanos()))
    }

    /// The instant so much after this one.
    #[must_use]
    pub fn later(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.nanos()))
    }

    /// The watermark that this greatest event time makes: `delay` earlier, rounded down to the unit of
    /// the column, but not below what its type can hold.
    #[must_use]
    pub fn behind(self, delay: Span, unit: Unit) -> Self {
        unit.instant(unit.floor(self.earlier(delay)))
    }
}

/// Written as text: JSON has no numbers of this size.
impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        super::span::nanos(from).map(Self)
    }
}
