//! Lengths of time as text, `10 minutes`, `1 hour 30 minutes`, `1 day -10 seconds`; and settings that are one.
//!
//! The grammar is Arrow's interval grammar, read by Arrow; what is added here is what a length may not be: without a
//! unit, or in months and years, which have no fixed length.

use std::fmt;
use std::str::FromStr;

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
    if let Some(unit) = fraction_of(body) {
        let reason = format!("'{text}' has a fraction of {unit}: only seconds have fractions");
        return Err(SpanError::Unreadable(reason));
    }
    let parsed = parse_interval_month_day_nano(body)
        .map_err(|_| SpanError::Unreadable(format!("'{text}' is not a length of time")))?;
    if parsed.months != 0 {
        return Err(SpanError::Months);
    }
    Ok(Span::from_days_and_nanos(parsed.days, parsed.nanoseconds))
}

/// The unit other than seconds that a text gives a fraction of.
fn fraction_of(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let fraction = word.contains('.')
            && word.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
        if fraction {
            let unit = words.next()?;
            if !unit.to_ascii_lowercase().starts_with("sec") && unit != "s" {
                return Some(unit);
            }
        }
    }
    None
}

/// A length of time that a setting gives, zero or longer; none where the setting is off: `none`, or an empty text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OptionalSpan(pub Option<Span>);

impl OptionalSpan {
    /// The greatest of several; none if one of them is.
    pub fn longest(all: impl IntoIterator<Item = Self>) -> Self {
        let all: Option<Vec<Span>> = all.into_iter().map(|one| one.0).collect();
        Self(all.and_then(|all| all.into_iter().max()))
    }
}

impl FromStr for OptionalSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.eq_ignore_ascii_case("none") {
            return Ok(Self(None));
        }
        match parse_span(text) {
            Ok(span) if span < Span::ZERO => {
                Err("it is negative; write INTERVAL '1' HOUR or '1 hour'".to_owned())
            }
            Ok(span) => Ok(Self(Some(span))),
            Err(SpanError::Months) => Err(
                "months and years have no fixed length; write it in days, INTERVAL '31' DAY or '31 days'"
                    .to_owned(),
            ),
            Err(SpanError::Unreadable(reason)) => Err(format!(
                "{reason}; write INTERVAL '1' HOUR or '1 hour', or 'none' to set it off"
            )),
        }
    }
}

impl fmt::Display for OptionalSpan {
    /// Writes `1 hour`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => span.fmt(f),
            None => f.write_str("none"),
        }
    }
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
        assert!(matches!(
            parse_span("1.5 minutes"),
            Err(SpanError::Unreadable(_))
        ));
        assert_eq!(seconds("1.5 seconds"), Some(1));
        assert_eq!(parse_span("1 month"), Err(SpanError::Months));
        assert_eq!(parse_span("1 year 1 day"), Err(SpanError::Months));
        assert!(matches!(parse_span("5"), Err(SpanError::Unreadable(_))));
        assert!(matches!(
            parse_span("five minutes"),
            Err(SpanError::Unreadable(_))
        ));
        assert!(matches!(parse_span(""), Err(SpanError::Unreadable(_))));
    }

    #[test]
    fn a_setting_is_a_length_of_zero_or_more_or_none() {
        let read = |text: &str| text.parse::<OptionalSpan>().map(|read| read.to_string());
        assert_eq!(read("1 hour").as_deref(), Ok("1 hour"));
        assert_eq!(read("0 seconds").as_deref(), Ok("0 seconds"));
        assert_eq!(read("").as_deref(), Ok("none"));
        assert_eq!(read("NONE").as_deref(), Ok("none"));
        for wrong in ["-1 hour", "1 month", "5", "soon"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_most_patient_of_several_holds() {
        let span = |text: &str| text.parse::<OptionalSpan>().unwrap();
        let longest =
            |all: &[&str]| OptionalSpan::longest(all.iter().map(|one| span(one))).to_string();
        assert_eq!(longest(&["1 hour", "2 hours", "1 minute"]), "2 hours");
        assert_eq!(longest(&["1 hour", "none"]), "none");
        assert_eq!(longest(&[]), "none");
    }
}
