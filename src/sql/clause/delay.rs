//! The delay of a WATERMARK clause: the INTERVAL literal as one text, and the span it spells.

use sqlparser::tokenizer::Token;

use super::lowering::Lowering;
use super::syntax;
use crate::error::Refusal;
use crate::sql::interval::{SpanError, between_units, is_unit, parse_span};
use crate::sql::tokens::{as_word, is, place};
use crate::time::Span;

impl Lowering {
    /// `INTERVAL` and its literal.
    pub(super) fn delay_span(&mut self) -> Result<Span, Refusal> {
        const HINT: &str = "write DELAY OF INTERVAL 10 MINUTES, or INTERVAL '1 hour 30 minutes'";
        let start = self.at;
        if !is(self.input.get(start), "INTERVAL") {
            return Err(syntax(
                self.input.get(start).or(self.input.last()),
                "DELAY OF takes an INTERVAL literal.",
                HINT,
            ));
        }
        self.at += 1;
        let text = self.interval_text();
        let here = self
            .input
            .get(start)
            .and_then(|token| place(token.span.start));
        let span = match parse_span(&text) {
            Ok(span) => span,
            Err(SpanError::Months) => {
                return Err(Refusal::new(
                    "UNSUPPORTED_WATERMARK_DELAY",
                    "42K09",
                    format!("The delay '{text}' has months or years, which have no fixed length."),
                )
                .at(here)
                .hint("write it in days: INTERVAL 31 DAYS"));
            }
            Err(SpanError::Unreadable(reason)) => {
                return Err(Refusal::new(
                    "CANNOT_PARSE_INTERVAL",
                    "22006",
                    format!("The delay cannot be read: {reason}."),
                )
                .at(here)
                .hint(HINT));
            }
        };
        if span < Span::ZERO {
            return Err(Refusal::new(
                "INVALID_WATERMARK_DELAY",
                "42K09",
                format!("The delay is negative: {span}."),
            )
            .at(here)
            .hint("a delay is how long to wait for late rows: zero or more"));
        }
        Ok(span)
    }

    /// The literal behind `INTERVAL`, as one text: `'10 minutes'`, `10 MINUTES 30 SECONDS`.
    fn interval_text(&mut self) -> String {
        let mut parts: Vec<String> = Vec::new();
        loop {
            let signed = matches!(
                self.input.get(self.at).map(|t| &t.token),
                Some(Token::Minus)
            );
            let value = self
                .input
                .get(self.at + usize::from(signed))
                .map(|token| &token.token);
            let (text, quoted) = match value {
                Some(Token::Number(text, _)) => (text.clone(), false),
                Some(Token::SingleQuotedString(text)) => (text.clone(), true),
                _ => break,
            };
            let after = self.at + usize::from(signed) + 1;
            let unit = self
                .input
                .get(after)
                .and_then(|token| as_word(&token.token))
                .filter(|word| word.quote_style.is_none() && is_unit(&word.value));
            let sign = if signed { "-" } else { "" };
            if let Some((from, to)) = unit.zip(self.second_unit(after))
                && quoted
                && parts.is_empty()
            {
                self.at = after + 3;
                let spelled = between_units(&text, &from.value, &to);
                return spelled.unwrap_or_else(|| format!("{text} {} TO {to}", from.value));
            }
            match unit {
                Some(unit) => parts.push(format!("{sign}{text} {}", unit.value)),
                None if parts.is_empty() => parts.push(format!("{sign}{text}")),
                None => break,
            }
            let ends = quoted && unit.is_none();
            self.at = after + usize::from(unit.is_some());
            if ends || unit.is_none() {
                break;
            }
        }
        parts.join(" ")
    }

    /// The unit behind `unit TO`.
    fn second_unit(&self, unit: usize) -> Option<String> {
        if !is(self.input.get(unit + 1), "TO") {
            return None;
        }
        let word = self
            .input
            .get(unit + 2)
            .and_then(|token| as_word(&token.token))?;
        is_unit(&word.value).then(|| word.value.clone())
    }
}
