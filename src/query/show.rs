//! Watermarks as a person reads them.

use chrono::{DateTime, NaiveDateTime};

use crate::time::{Instant, Unit};

/// `2026-10-01T09:20:00`, with the fraction that the unit needs, and `Z` if the event time has a zone.
pub fn show_instant(instant: Instant, unit: Unit, zoned: bool) -> String {
    let nanos = instant.nanos();
    let seconds = nanos.div_euclid(1_000_000_000);
    let fraction = u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or_default();
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| DateTime::from_timestamp(seconds, fraction));
    let Some(time) = time else {
        // Outside the calendar: the plain number says at least how far.
        return format!("{} {unit:?}s since 1970", unit.floor(instant));
    };
    let zone = if zoned { "Z" } else { "" };
    format!("{}{zone}", time.naive_utc().format("%Y-%m-%dT%H:%M:%S%.f"))
}

/// The instant that [`show_instant`] has written so.
pub fn read_instant(text: &str) -> Option<Instant> {
    if let Some((number, rest)) = text.split_once(' ') {
        let name = rest.strip_suffix("s since 1970")?;
        let unit = Unit::ALL
            .into_iter()
            .find(|unit| format!("{unit:?}") == name)?;
        return Some(unit.instant(number.parse().ok()?));
    }
    let text = text.strip_suffix('Z').unwrap_or(text);
    let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f").ok()?;
    let seconds = i128::from(time.and_utc().timestamp());
    let fraction = i128::from(time.and_utc().timestamp_subsec_nanos());
    Some(Instant::from_nanos(
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(fraction),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_shown_where_there_are_any() {
        assert_eq!(
            show_instant(Instant::from_nanos(0), Unit::Nanosecond, false),
            "1970-01-01T00:00:00"
        );
        assert_eq!(
            show_instant(Instant::from_nanos(-1_500_000), Unit::Microsecond, true),
            "1969-12-31T23:59:59.998500Z"
        );
    }

    #[test]
    fn what_no_calendar_holds_is_a_number() {
        let far = Unit::Second.instant(i64::MAX);
        assert_eq!(
            show_instant(far, Unit::Second, false),
            format!("{} Seconds since 1970", i64::MAX)
        );
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for (nanos, unit) in [
            (0, Unit::Second),
            (-1_500_000, Unit::Microsecond),
            (9_223_372_036_854_775_807, Unit::Nanosecond),
            (-2_208_988_800_000_000_000, Unit::Second),
            (9_223_372_036_854_775_807_000_000_000, Unit::Second),
        ] {
            let instant = Instant::from_nanos(nanos);
            for zoned in [false, true] {
                assert_eq!(
                    read_instant(&show_instant(instant, unit, zoned)),
                    Some(instant)
                );
            }
        }
        assert_eq!(read_instant("yesterday"), None);
    }
}
