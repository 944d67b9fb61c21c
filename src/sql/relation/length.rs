//! The lengths given to `window()` and `session_window()`, and the shape that size, slide and start make together.

use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::Expr;
use sqlparser::ast::Expr as SqlExpr;

use crate::error::{Place, Refusal};
use crate::sql::interval::{SpanError, parse_span};
use crate::time::{Span, Unit, WindowShape};

/// The error of a length that names columns.
pub(super) fn not_constant(length: &SqlExpr, place: Option<Place>) -> DataFusionError {
    Refusal::new(
        "DATATYPE_MISMATCH.NON_FOLDABLE_INPUT",
        "42K09",
        format!("window(): the length {length} is not a constant."),
    )
    .at(place)
    .hint("write it as text, '10 minutes', or as INTERVAL '10 minutes'")
    .into()
}

/// A length given to a function, such as `window`: a text or an INTERVAL literal.
pub(crate) fn length(expr: Result<Expr>, function: &str, place: Option<Place>) -> Result<Span> {
    const HINT: &str = "write it as text, '10 minutes', or as INTERVAL '10 minutes'";
    let unreadable = |reason: String| {
        Refusal::new(
            "CANNOT_PARSE_INTERVAL",
            "22006",
            format!("{function}(): {reason}."),
        )
        .at(place)
        .hint(HINT)
    };
    let (expr, sign) = match expr? {
        Expr::Negative(inner) => (*inner, -1),
        other => (other, 1),
    };
    let Expr::Literal(value, _) = &expr else {
        return Err(unreadable(format!("the length {expr} is not a constant")).into());
    };
    let span = match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::Utf8View(Some(text))
        | ScalarValue::LargeUtf8(Some(text)) => parse_span(text),
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => Ok(
            Span::from_days_and_nanos(interval.days, interval.nanoseconds),
        ),
        ScalarValue::IntervalDayTime(Some(interval)) => Ok(Span::from_days_and_nanos(
            interval.days,
            i64::from(interval.milliseconds).saturating_mul(1_000_000),
        )),
        ScalarValue::IntervalMonthDayNano(Some(_)) | ScalarValue::IntervalYearMonth(_) => {
            Err(SpanError::Months)
        }
        other => return Err(unreadable(format!("{other} is not a length of time")).into()),
    };
    match span {
        Ok(span) => Ok(Span::from_nanos(span.nanos().saturating_mul(sign))),
        Err(SpanError::Unreadable(reason)) => Err(unreadable(reason).into()),
        Err(SpanError::Months) => Err(Refusal::new(
            "UNSUPPORTED_WINDOW_LENGTH",
            "42K09",
            format!("{function}(): months and years have no fixed length."),
        )
        .at(place)
        .hint(match function {
            "window" => "write it in days, or group by date_trunc('month', ts)",
            _ => "write it in days: '31 days'",
        })
        .into()),
    }
}

/// Windows that a row may be in: a day every second, with room. Each of them emits a row of its own.
const WINDOWS_OF_A_ROW: i128 = 100_000;

/// Size, slide and start as a shape, in the coarsest unit that holds them.
pub(crate) fn shape(unit: Unit, sizes: &[Span]) -> Result<WindowShape, Refusal> {
    let size = sizes.first().copied().unwrap_or_default();
    let slide = sizes.get(1).copied().unwrap_or(size);
    let start = sizes.get(2).copied().unwrap_or_default();
    let range = |message: String, hint: &str| {
        Refusal::new("DATATYPE_MISMATCH.VALUE_OUT_OF_RANGE", "42K09", message).hint(hint)
    };
    let violation = |message: String, hint: &str| {
        Refusal::new(
            "DATATYPE_MISMATCH.PARAMETER_CONSTRAINT_VIOLATION",
            "42K09",
            message,
        )
        .hint(hint)
    };
    if size <= Span::ZERO {
        return Err(range(
            format!("window(): the size {size} must be greater than zero."),
            "write a length such as '10 minutes'",
        ));
    }
    if slide <= Span::ZERO {
        return Err(range(
            format!("window(): the slide {slide} must be greater than zero."),
            "leave it out for tumbling windows",
        ));
    }
    if slide > size {
        return Err(violation(
            format!(
                "window(): the slide {slide} is above the size {size}: rows between windows would be lost."
            ),
            "the size comes first: window(ts, '1 hour', '10 minutes')",
        ));
    }
    let windows = size.nanos().checked_div(slide.nanos()).unwrap_or(i128::MAX);
    if windows > WINDOWS_OF_A_ROW {
        return Err(range(
            format!(
                "window(): a row would be in {windows} windows; the limit is {WINDOWS_OF_A_ROW}."
            ),
            "take a longer slide",
        ));
    }
    if start.abs() >= slide {
        return Err(violation(
            format!("window(): the start {start} is not within one slide of {slide}."),
            "give the start modulo the slide",
        ));
    }
    let all = [size, slide, start];
    unit.fitting(&all)
        .and_then(|unit| {
            WindowShape::new(
                unit,
                unit.ticks(size)?,
                unit.ticks(slide)?,
                unit.ticks(start)?,
            )
        })
        .ok_or_else(|| {
            range(
                format!("window(): {size} is longer than timestamps reach."),
                "write a shorter length",
            )
        })
}
