//! Which groups a watermark has closed, as expressions.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, cast, lit, when};

use super::plans::{WATERMARK, column};
use super::shape::{Closing, Shape};
use crate::config::unit_of;
use crate::logical::Bin;
use crate::physical::planner::safe;
use crate::time::Instant;

/// Whether a group is closed by a watermark.
pub(super) fn is_closed(closing: &Closing, group: Expr, watermark: Expr) -> Result<Expr> {
    Ok(match closing {
        Closing::Window(bound) | Closing::Session(bound) => {
            get_field(group, "end").lt_eq(cast(watermark, bound.clone()))
        }
        Closing::Bin(bin) => {
            let watermark = cast(watermark, bin.event_type.clone());
            // Behind the last event time that has a value all groups are closed.
            let behind_all = watermark.clone().gt(bound(bin, safe(bin)?.1));
            let watermark = computable(watermark, bin)?;
            let value = bin.function.clone().transform_up(|part| match &part {
                Expr::Column(column) if column.name == Bin::EVENT_TIME => {
                    Ok(Transformed::yes(watermark.clone()))
                }
                _ => Ok(Transformed::no(part)),
            })?;
            group.lt(value.data).or(behind_all)
        }
        Closing::Instant(event_type) => group.lt_eq(cast(watermark, event_type.clone())),
        Closing::Never => lit(false),
    })
}

/// An event time of a bin.
fn bound(bin: &Bin, tick: i64) -> Expr {
    cast(lit(tick), bin.event_type.clone())
}

/// Whether a bin has a value for a time.
fn has_value(time: Expr, bin: &Bin) -> Result<Expr> {
    let (least, greatest) = safe(bin)?;
    Ok(time.between(bound(bin, least), bound(bin, greatest)))
}

/// A time, or the first one that the bin has a value for where it has none: the function could overflow there, also on
/// what lies under a null.
fn computable(time: Expr, bin: &Bin) -> Result<Expr> {
    let first = bound(bin, safe(bin)?.0);
    when(has_value(time.clone(), bin)?, time).otherwise(first)
}

/// The rows that a stream has a group for: without an event time, or with one that a bin has no value for, a row is in
/// none. Windows see to that themselves.
///
/// # Errors
/// - none of its own
pub(super) fn timed(
    input: LogicalPlan,
    aggregate: &Aggregate,
    shape: &Shape,
) -> Result<LogicalPlan> {
    let group = shape.time.and_then(|at| aggregate.group_expr.get(at));
    let (input, group) = match (&shape.closing, group) {
        (Closing::Instant(_), Some(group)) => (input, group),
        (Closing::Bin(bin), Some(group)) => (with_computable(input, group, bin)?, group),
        _ => return Ok(input),
    };
    LogicalPlanBuilder::from(input)
        .filter(group.clone().is_not_null())?
        .build()
}

/// The rows that the bin they are grouped by has a value for. Filters run together: each must be computable by itself.
fn with_computable(input: LogicalPlan, group: &Expr, bin: &Bin) -> Result<LogicalPlan> {
    let schema = input.schema();
    let time = match group {
        // The value was computed below: its event time is not here.
        Expr::Column(_) => None,
        computed => computed.column_refs().into_iter().next(),
    };
    let Some(time) = time else {
        return Ok(input);
    };
    let time = schema.index_of_column(time)?;
    let event = Expr::Column(Column::from(schema.qualified_field(time)));
    let columns = schema.iter().enumerate().map(|(at, (qualifier, field))| {
        let column = Expr::Column(Column::from((qualifier, field)));
        if at != time {
            return Ok(column);
        }
        Ok(computable(column, bin)?.alias_qualified(qualifier.cloned(), field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    LogicalPlanBuilder::from(input)
        .filter(has_value(event, bin)?)?
        .project(columns)?
        .build()
}

/// A watermark as an expression of the type that groups close by.
pub(super) fn literal(closing: &Closing, watermark: Instant) -> Expr {
    let of = match closing {
        Closing::Window(bound) | Closing::Session(bound) | Closing::Instant(bound) => bound,
        Closing::Bin(bin) => &bin.event_type,
        Closing::Never => return lit(false),
    };
    match of {
        DataType::Timestamp(unit, _) => cast(lit(unit_of(unit).floor(watermark)), of.clone()),
        _ => lit(false),
    }
}

/// Which of some rows in their windows are meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Windows {
    /// Those whose window had closed when the row was judged: a row of hopping windows counted in the newer ones.
    Missed,
    /// Those whose window this watermark has closed.
    ClosedBy(Option<Instant>),
    /// Those whose window it has not.
    OpenBy(Option<Instant>),
}

/// Of rows in their windows those that are meant; of sessions all, for a row is not in a session by itself.
///
/// # Errors
/// - none of its own
pub(super) fn in_windows(
    input: LogicalPlan,
    aggregate: &Aggregate,
    shape: &Shape,
    windows: Windows,
) -> Result<LogicalPlan> {
    let group = shape.time.and_then(|at| aggregate.group_expr.get(at));
    let (Some(group), false) = (group, shape.is_session()) else {
        return Ok(input);
    };
    let input = timed(input, aggregate, shape)?;
    let by = |watermark: Option<Instant>| match watermark {
        Some(watermark) => is_closed(
            &shape.closing,
            group.clone(),
            literal(&shape.closing, watermark),
        ),
        None => Ok(lit(false)),
    };
    let meant = match (windows, column(input.schema(), WATERMARK)) {
        (Windows::Missed, Some(watermark)) => is_closed(&shape.closing, group.clone(), watermark)?,
        (Windows::Missed, None) => return Ok(input),
        (Windows::ClosedBy(watermark), _) => by(watermark)?,
        (Windows::OpenBy(watermark), _) => by(watermark)?.is_not_true(),
    };
    LogicalPlanBuilder::from(input).filter(meant)?.build()
}
