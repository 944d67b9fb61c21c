//! `window()` and `session_window()`: a node that puts each row into its windows.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{
    Expr, ExprSchemable, Extension, LogicalPlan, ScalarUDF, cast, try_cast,
};
use sqlparser::ast::TableAlias;

use super::LoweredCall;
use super::length::{length, not_constant, shape};
use super::names::{known_columns, placed};
use crate::config::unit_of;
use crate::error::{Place, Refusal};
use crate::logical::{SessionSpec, TimeWindow, WindowSpec, WindowTime, Windows};
use crate::time::{Span, Unit};

/// `window(ts, size [, slide [, start]])`.
pub(super) fn plan_window(
    call: &LoweredCall<'_>,
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let place = call.place(0);
    let function = call.text(2).unwrap_or("window").to_owned();
    let column = call.text(3).unwrap_or_default().to_owned();
    let input = call.plan(alias, context)?;
    let [time, sizes @ ..] = call.arguments.get(4..).unwrap_or_default() else {
        return Err(wrong_count(place));
    };
    let time = context
        .sql_to_expr((*time).clone(), input.schema())
        .map_err(|error| placed(error, input.schema(), place))?;
    known_columns(&time, input.schema(), place)?;
    let (time, unit, zone) = event_time(time, &function, &input, place)?;
    let windows = if function == "session_window" {
        let [gap] = sizes else {
            return Err(wrong_count(place));
        };
        let gap = context
            .sql_to_expr((*gap).clone(), input.schema())
            .map_err(|error| placed(error, input.schema(), place))?;
        known_columns(&gap, input.schema(), place)?;
        session(gap, unit, zone, &input, place)?
    } else {
        if sizes.is_empty() || sizes.len() > 3 {
            return Err(wrong_count(place));
        }
        let empty = DFSchema::empty();
        let sizes = sizes
            .iter()
            .map(|size| {
                let constant = context.sql_to_expr((*size).clone(), &empty);
                length(
                    constant.map_err(|_| not_constant(size, place)),
                    &function,
                    place,
                )
            })
            .collect::<Result<Vec<Span>>>()?;
        let shape = shape(unit, &sizes).map_err(|refusal| refusal.at(place))?;
        Windows::Fixed(WindowSpec { shape, zone })
    };
    let bound = windows.bound_type();
    let time = if time.get_type(input.schema().as_ref())? == bound {
        time
    } else {
        // A time that the finer unit cannot hold has no window: it does not fail the query.
        try_cast(time, bound)
    };
    let node = TimeWindow::try_new(input, time, windows, &column, place)?;
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    }))
}

/// The sessions of a gap: a constant, or an expression over each row.
fn session(
    gap: Expr,
    unit: Unit,
    zone: Option<Arc<str>>,
    input: &LogicalPlan,
    place: Option<Place>,
) -> Result<Windows> {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    if !gap.any_column_refs() && !gap.is_volatile() {
        let constant = match &gap {
            Expr::Literal(..) | Expr::Negative(_) => {
                length(Ok(gap.clone()), "session_window", place)?
            }
            _ => return Err(session_gap(&gap, place)),
        };
        let unit = unit.fitting(&[constant]).unwrap_or(Unit::Nanosecond);
        let label = constant.to_string();
        let Some((days, nanos)) = constant.days_and_nanos() else {
            return Err(session_gap(&gap, place));
        };
        let literal = ScalarValue::new_interval_mdn(0, days, nanos);
        return Ok(Windows::Session(
            SessionSpec { unit, zone, label },
            Expr::Literal(literal, None),
        ));
    }
    let label = format!("gap {gap}");
    let gap = match gap.get_type(input.schema().as_ref())? {
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => try_cast(gap, interval),
        DataType::Interval(_) => cast(gap, interval),
        _ => return Err(session_gap(&gap, place)),
    };
    let unit = unit.max(Unit::Microsecond);
    Ok(Windows::Session(SessionSpec { unit, zone, label }, gap))
}

fn session_gap(gap: &Expr, place: Option<Place>) -> DataFusionError {
    Refusal::new(
        "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
        "42K09",
        format!("session_window(): the gap {gap} is not a length of time."),
    )
    .at(place)
    .hint("write it as text, '5 minutes', as INTERVAL '5 minutes', or as an expression of either type")
    .into()
}

fn wrong_count(place: Option<Place>) -> DataFusionError {
    Refusal::new("WRONG_NUM_ARGS.WITHOUT_SUGGESTION", "42605", "window() takes a time and one to three lengths: size, slide, start; session_window() a time and a gap.")
        .at(place)
        .hint("write window(ts, '1 hour'), window(ts, '1 hour', '10 minutes') or window(ts, '1 day', '1 day', '8 hours')")
        .into()
}

/// The event time of a window's argument: a timestamp, a text that is cast to one, or a window's
/// last moment.
fn event_time(
    time: Expr,
    function: &str,
    input: &LogicalPlan,
    place: Option<Place>,
) -> Result<(Expr, Unit, Option<Arc<str>>)> {
    let data_type = time.get_type(input.schema().as_ref())?;
    match &data_type {
        DataType::Timestamp(unit, zone) => Ok((time, unit_of(unit), zone.clone())),
        DataType::Utf8
        | DataType::Utf8View
        | DataType::LargeUtf8
        | DataType::Date32
        | DataType::Date64 => Ok((
            cast(
                time,
                DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Microsecond, None),
            ),
            Unit::Microsecond,
            None,
        )),
        DataType::Struct(_)
            if let Some(DataType::Timestamp(unit, zone)) = WindowTime::result_type(&data_type) =>
        {
            let call = ScalarUDF::from(WindowTime::default()).call(vec![time]);
            Ok((call, unit_of(&unit), zone))
        }
        other => Err(Refusal::new(
            "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            "42K09",
            format!("{function}() takes a TIMESTAMP or a window; this is {other}."),
        )
        .at(place)
        .hint(format!(
            "cast it: {function}(CAST(x AS TIMESTAMP), '1 hour')"
        ))
        .into()),
    }
}
