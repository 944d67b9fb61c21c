//! The delay of a WATERMARK clause: the span that its INTERVAL literal spells.

use super::lowering::Lowering;
use super::syntax;
use crate::error::Refusal;
use crate::sql::interval::{SpanError, interval_text, parse_span};
use crate::sql::tokens::{is, place};
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
        let (text, end) = interval_text(&self.input, start + 1);
        self.at = end;
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
}
