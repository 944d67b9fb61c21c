//! INTERVAL literals: [`interval_text`] makes of their tokens a text that [`parse_span`] reads.

use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

pub(crate) use crate::config::{SpanError, parse_span};
use crate::sql::tokens::{as_word, is};

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
}
