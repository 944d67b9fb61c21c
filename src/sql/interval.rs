//! Lengths of time as text: `10 minutes`, `1 hour 30 minutes`, `1 day -10 seconds`.
//!
//! The grammar is Arrow's interval grammar, read by Arrow; what is added here is what a delay or a
//! window size may not be: without a unit, or in months and years, which have no fixed length.

use datafusion::arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;

use crate::time::Span;

/// Why a text is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SpanError {
    /// It has months or years.
    Months,
    /// It cannot be read; the reason as a sentence without its full stop.
    Unreadable(String),
}

/// Reads a length of time. A leading word `interval` is allowed, as Spark allows it.
pub(crate) fn parse_span(text: &str) -> Result<Span, SpanError> {
    let body = text.trim();
    let body = match body.get(..9) {
        Some(word) if word.eq_ignore_ascii_case("interval ") => body[9..].trim_start(),
        _ => body,
    };
    if !body.chars().any(|c| c.is_ascii_alphabetic()) {
        return Err(SpanError::Unreadable(format!("'{text}' has no unit")));
    }
    let parsed = parse_interval_month_day_nano(body)
        .map_err(|_| SpanError::Unreadable(format!("'{text}' is not a length of time")))?;
    if parsed.months != 0 {
        return Err(SpanError::Months);
    }
    Ok(Span::from_days_and_nanos(parsed.days, parsed.nanoseconds))
}

/// The words that name a unit after a number.
const UNITS: [&str; 22] = [
    "nanosecond",
    "nanoseconds",
    "microsecond",
    "microseconds",
    "millisecond",
    "milliseconds",
    "second",
    "seconds",
    "minute",
    "minutes",
    "hour",
    "hours",
    "day",
    "days",
    "week",
    "weeks",
    "month",
    "months",
    "quarter",
    "quarters",
    "year",
    "years",
];

/// Whether a word names a unit of time.
pub(crate) fn is_unit(word: &str) -> bool {
    UNITS.iter().any(|unit| word.eq_ignore_ascii_case(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<i128> {
        parse_span(text)
            .ok()
            .map(|span| span.nanos() / 1_000_000_000)
    }

    #[test]
    fn units_add_up_each_with_its_own_sign() {
        assert_eq!(seconds("10 minutes"), Some(600));
        assert_eq!(seconds("1 hour 30 minutes"), Some(5_400));
        assert_eq!(seconds("1 day -10 seconds"), Some(86_390));
        assert_eq!(seconds("interval 1 week"), Some(604_800));
        assert_eq!(seconds("-5 minutes"), Some(-300));
    }

    #[test]
    fn what_has_no_fixed_length_or_no_unit_is_refused() {
        assert_eq!(parse_span("1 month"), Err(SpanError::Months));
        assert_eq!(parse_span("1 year 1 day"), Err(SpanError::Months));
        assert!(matches!(parse_span("5"), Err(SpanError::Unreadable(_))));
        assert!(matches!(
            parse_span("five minutes"),
            Err(SpanError::Unreadable(_))
        ));
        assert!(matches!(parse_span(""), Err(SpanError::Unreadable(_))));
    }
}
