//! Which groups a watermark has closed, as expressions.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};

use super::plans::{WATERMARK, column};
use super::shape::{Closing, Shape};
use crate::config::unit_of;
use crate::logical::Bin;
use crate::time::Instant;

/// Whether a group is closed by a watermark.
pub(super) fn is_closed(closing: &Closing, group: Expr, watermark: Expr) -> Result<Expr> {
    Ok(match closing {
        Closing::Window(bound) | Closing::Session(bound) => {
            get_field(group, "end").lt_eq(cast(watermark, bound.clone()))
        }
        Closing::Bin(bin) => {
            let watermark = cast(watermark, bin.event_type.clone());
            let value = bin.function.clone().transform_up(|part| match &part {
                Expr::Column(column) if column.name == Bin::EVENT_TIME => {
                    Ok(Transformed::yes(watermark.clone()))
                }
                _ => Ok(Transformed::no(part)),
            })?;
            group.lt(value.data)
        }
        Closing::Instant(event_type) => group.lt_eq(cast(watermark, event_type.clone())),
        Closing::Never => lit(false),
    })
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
