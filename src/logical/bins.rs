//! Bins: monotone functions of the event time, `date_bin` and `date_trunc`, and how near to the limits of
//! the type they can be computed.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use super::group_time::Bin;
use super::marks::{Mark, Marks, expr_mark};
use crate::time::Span;

const DAY: i128 = 86_400_000_000_000;

/// The longest bin of each unit of `date_trunc`; what is not here is no longer than an hour.
const LONGEST: [(&str, i128); 5] = [
    ("day", DAY),
    ("week", 7 * DAY),
    ("month", 31 * DAY),
    ("quarter", 92 * DAY),
    ("year", 366 * DAY),
];

/// `date_bin(constant, ts[, constant])` and `date_trunc(constant, ts)` of a marked `ts`.
pub(super) fn bin(
    expr: &Expr,
    function: &ScalarFunction,
    schema: &DFSchema,
    input: &Marks,
) -> Option<Mark> {
    let (times, constants): (Vec<&Expr>, Vec<&Expr>) =
        function.args.iter().partition(|arg| arg.any_column_refs());
    let [time] = times.as_slice() else {
        return None;
    };
    let literals = constants.into_iter().map(literal);
    let literals: Vec<&ScalarValue> = literals.collect::<Option<_>>()?;
    let column = uncast(time);
    let Mark::EventTime(behind) = expr_mark(column, schema, input)? else {
        return None;
    };
    let Expr::Column(column) = column else {
        return None;
    };
    let index = schema.index_of_column(column).ok()?;
    let event_type = schema.field(index).data_type().clone();
    let (below, above) = margins(function.name(), &literals, &event_type)?;
    let function = expr
        .clone()
        .transform(|inner| {
            Ok(match &inner {
                Expr::Column(_) => {
                    Transformed::yes(Expr::Column(Column::from_name(Bin::EVENT_TIME)))
                }
                _ => Transformed::no(inner),
            })
        })
        .ok()?
        .data;
    let bin = Bin {
        function,
        event_type,
        below,
        above,
    };
    Some(Mark::Bin(bin, behind))
}

/// What stands under casts from one timestamp type to another: those keep the order.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast)
            if matches!(
                cast.field.data_type(),
                DataType::Timestamp(..)
                    | DataType::Interval(_)
                    | DataType::Utf8
                    | DataType::Utf8View
            ) =>
        {
            uncast(&cast.expr)
        }
        _ => expr,
    }
}

/// The value of a constant.
fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match uncast(expr) {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// How far event times must stay from the first and from the last tick of their type: by the length of a
/// bin, which begins so much earlier; by the distance of an origin, from which bins are counted; by
/// what zones add and take.
fn margins(
    function: &str,
    constants: &[&ScalarValue],
    event_type: &DataType,
) -> Option<(Span, Span)> {
    let (length, origin) = match (function, constants) {
        ("date_trunc", [unit]) => (longest(unit.try_as_str()??), 0),
        ("date_bin", [stride]) => (interval(stride)?, 0),
        ("date_bin", [stride, origin]) => (interval(stride)?, nanos(origin)?),
        _ => return None,
    };
    let zones = match event_type {
        DataType::Timestamp(_, Some(zone)) if zone.as_ref() != "UTC" => 2 * DAY,
        _ => 0,
    };
    let far = origin.saturating_abs().saturating_add(zones);
    Some((
        Span::from_nanos(length.saturating_add(far)),
        Span::from_nanos(far),
    ))
}

fn longest(unit: &str) -> i128 {
    let known = LONGEST
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    known.map_or(DAY / 24, |(_, nanos)| *nanos)
}

/// The greatest length of an interval.
fn interval(value: &ScalarValue) -> Option<i128> {
    let kind = DataType::Interval(datafusion::arrow::datatypes::IntervalUnit::MonthDayNano);
    match value.cast_to(&kind).ok()? {
        ScalarValue::IntervalMonthDayNano(Some(length)) => {
            let days = 31 * i128::from(length.months) + i128::from(length.days);
            Some(days * DAY + i128::from(length.nanoseconds))
        }
        _ => None,
    }
}

/// Nanoseconds from 1970 to a moment.
fn nanos(value: &ScalarValue) -> Option<i128> {
    let unit = datafusion::arrow::datatypes::TimeUnit::Nanosecond;
    match value.cast_to(&DataType::Timestamp(unit, None)).ok()? {
        ScalarValue::TimestampNanosecond(Some(nanos), _) => Some(i128::from(nanos)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn margins_are_the_length_of_a_bin_and_the_distance_of_its_origin() {
        use datafusion::arrow::datatypes::TimeUnit::Nanosecond;
        let plain = DataType::Timestamp(Nanosecond, None);
        let day = Span::from_nanos(DAY);
        let unit = ScalarValue::from("DAY");
        assert_eq!(
            margins("date_trunc", &[&unit], &plain),
            Some((day, Span::ZERO))
        );
        let stride = ScalarValue::new_interval_mdn(0, 1, 0);
        let origin = ScalarValue::TimestampSecond(Some(-10), None);
        let far = Span::from_nanos(10_000_000_000);
        assert_eq!(
            margins("date_bin", &[&stride, &origin], &plain),
            Some((Span::from_nanos(DAY + 10_000_000_000), far))
        );
        let zoned = DataType::Timestamp(Nanosecond, Some(Arc::from("Europe/Paris")));
        assert_eq!(
            margins("date_bin", &[&stride], &zoned),
            Some((Span::from_nanos(3 * DAY), Span::from_nanos(2 * DAY)))
        );
    }
}
