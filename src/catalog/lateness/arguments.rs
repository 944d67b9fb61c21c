//! What the functions are given.

use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::Expr;

use crate::error::Refusal;
use crate::sql::{SpanError, parse_span};
use crate::time::Span;

/// The delays of a list, `2 hours, 4 hours`.
pub(super) fn given_delays(list: &str) -> Result<Vec<Span>> {
    let refused = |message: String| {
        Refusal::new("CANNOT_PARSE_INTERVAL", "22006", message)
            .hint("write delays with commas between them: '30 minutes, 2 hours'")
    };
    let delays = list.split(',').map(|delay| {
        let delay = delay.trim();
        match parse_span(delay) {
            Ok(span) if span < Span::ZERO => {
                Err(refused(format!("The delay '{delay}' is negative.")))
            }
            Ok(span) => Ok(span),
            Err(SpanError::Months) => Err(refused(format!(
                "The delay '{delay}' has months or years, which have no fixed length."
            ))),
            Err(SpanError::Unreadable(reason)) => {
                Err(refused(format!("A delay cannot be read: {reason}.")))
            }
        }
    });
    Ok(delays.collect::<Result<Vec<Span>, Refusal>>()?)
}

/// A text that must be there.
pub(super) fn text(expr: &Expr, what: &str) -> Result<String> {
    optional_text(expr, what)?.ok_or_else(|| not_text(expr, what))
}

/// A text; none for NULL and the empty text.
pub(super) fn optional_text(expr: &Expr, what: &str) -> Result<Option<String>> {
    match expr {
        Expr::Literal(ScalarValue::Null, _) => Ok(None),
        Expr::Literal(value, _) => match value.try_as_str() {
            Some(text) => Ok(text.filter(|text| !text.is_empty()).map(str::to_owned)),
            None => Err(not_text(expr, what)),
        },
        _ => Err(not_text(expr, what)),
    }
}

/// How the functions are called.
const USAGE: &str = "write lateness('orders', 'event_time', '1 hour') or out_of_order('orders', 'event_time'); lateness() takes a column that ends epochs as its fourth argument, NULL for none, and delays, '30 minutes, 2 hours', as its fifth";

fn not_text(expr: &Expr, what: &str) -> DataFusionError {
    Refusal::new(
        "DATATYPE_MISMATCH.NON_FOLDABLE_INPUT",
        "42K09",
        format!("{expr} does not name {what}: it is given as constant text."),
    )
    .hint(USAGE)
    .into()
}

pub(super) fn wrong_count(message: &str) -> DataFusionError {
    Refusal::new("WRONG_NUM_ARGS.WITHOUT_SUGGESTION", "42605", message)
        .hint(USAGE)
        .into()
}
