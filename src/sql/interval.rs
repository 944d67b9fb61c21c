//! Lengths of time as text: `10 minutes`, `1 hour 30 minutes`, `1 day -10 seconds`.
//!
//! The grammar is Arrow's interval grammar, read by Arrow; what is added here is what a delay or a
//! window size may not be: without a unit, or in months and years, which have no fixed length.
//! [`interval_text`] makes that text of the tokens of an INTERVAL literal.

use datafusion::arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::sql::tokens::{as_word, is};
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

/// The literal that begins at `start`, behind the word `INTERVAL`, as one text, and the index behind
/// it: `'10 minutes'`, `10 MINUTES 30 SECONDS`. The text is empty if there is no literal.
pub(crate) fn interval_text(tokens: &[TokenWithSpan], start: usize) -> (String, usize) {
    let mut parts: Vec<String> = Vec::new();
    let mut at = start;
    while let Some((sign, text, quoted)) = signed_value(tokens, at) {
        let after = at + sign.len() + 1;
        let unit = unit_at(tokens, after);
        if let Some((from, to)) = unit.zip(second_unit(tokens, after))
            && quoted
            && parts.is_empty()
        {
            let (from, to) = (&from.value, &to.value);
            let spelled = between_units(text, from, to);
            let spelled = spelled.unwrap_or_else(|| format!("{text} {from} TO {to}"));
            return (spelled, after + 3);
        }
        match unit {
            Some(unit) => {
                parts.push(format!("{sign}{text} {}", unit.value));
                at = after + 1;
            }
            None if parts.is_empty() => return (format!("{sign}{text}"), after),
            None => break,
        }
    }
    (parts.join(" "), at)
}

/// The number or text at an index, with the minus before it (`"-"` or nothing, a token each), and
/// whether it is quoted.
fn signed_value(tokens: &[TokenWithSpan], at: usize) -> Option<(&'static str, &str, bool)> {
    let sign = match tokens.get(at)?.token {
        Token::Minus => "-",
        _ => "",
    };
    match &tokens.get(at + sign.len())?.token {
        Token::Number(text, _) => Some((sign, text.as_str(), false)),
        Token::SingleQuotedString(text) => Some((sign, text.as_str(), true)),
        _ => None,
    }
}

/// The unit of time at an index.
fn unit_at(tokens: &[TokenWithSpan], at: usize) -> Option<&Word> {
    as_word(&tokens.get(at)?.token)
        .filter(|word| word.quote_style.is_none() && is_unit(&word.value))
}

/// The unit behind `unit TO`.
fn second_unit(tokens: &[TokenWithSpan], unit: usize) -> Option<&Word> {
    is(tokens.get(unit + 1), "TO").then_some(())?;
    as_word(&tokens.get(unit + 2)?.token).filter(|word| is_unit(&word.value))
}

/// A text in one of SQL's two-unit forms, such as `'1 02:03' DAY TO MINUTE`, with each unit named.
/// `None` if the text does not have the form.
fn between_units(text: &str, from: &str, to: &str) -> Option<String> {
    const NAMES: [&str; 4] = ["day", "hour", "minute", "second"];
    let position = |unit: &str| {
        NAMES
            .iter()
            .position(|name| unit.trim_end_matches(['s', 'S']).eq_ignore_ascii_case(name))
    };
    let (first, last) = (position(from)?, position(to)?);
    let (sign, body) = match text.trim().strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.trim()),
    };
    // Days stand before a space, the other units between colons.
    let (days, rest) = match (first, body.split_once(char::is_whitespace)) {
        (0, Some((days, rest))) => (Some(days), rest),
        (0, None) => return None,
        _ => (None, body),
    };
    let numbers: Vec<&str> = days.into_iter().chain(rest.trim().split(':')).collect();
    let units = NAMES.get(first..=last)?;
    if numbers.len() != units.len() {
        return None;
    }
    let parts: Vec<String> = numbers
        .iter()
        .zip(units)
        .map(|(number, unit)| {
            format!(
                "{sign}{} {unit}",
                number.trim_start_matches('0').to_owned()
                    + if number.trim_start_matches('0').is_empty() {
                        "0"
                    } else {
                        ""
                    }
            )
        })
        .collect();
    Some(parts.join(" "))
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
    fn two_unit_forms_are_spelled_out() {
        assert_eq!(
            between_units("1 02:03", "DAY", "MINUTE").as_deref(),
            Some("1 day 2 hour 3 minute")
        );
        assert_eq!(
            between_units("0 00:10", "DAY", "MINUTE").as_deref(),
            Some("0 day 0 hour 10 minute")
        );
        assert_eq!(
            between_units("-1:30.5", "MINUTE", "SECOND").as_deref(),
            Some("-1 minute -30.5 second")
        );
        assert_eq!(between_units("1:2:3", "HOUR", "MINUTE"), None);
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
}
