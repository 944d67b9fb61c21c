//! The part of a GROUP BY that is a time, and by which groups close.

use std::fmt;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::Expr;

use super::time_window::{SessionSpec, WindowSpec};
use crate::time::{Span, Unit};

/// The grouping expression that orders groups in time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupTime {
    /// Position among the grouping expressions.
    pub position: usize,
    /// What is evaluated for each row: the event time of a window, else the grouping value itself.
    pub expr: Expr,
    /// How a value becomes a group, and when the group closes.
    pub value: TimeValue,
    /// How far a value may be before the moment that the watermark speaks of.
    pub behind: Span,
    /// Whether a watermark closes these groups: the expression carries the mark of a clause.
    pub closes: bool,
}

/// How a row's time value becomes a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TimeValue {
    /// `window(ts, …)`: the value is an event time, assigned to the slices of these windows.
    Windows(WindowSpec),
    /// `session_window(ts, gap)`: the value is an event time, and this the gap behind it.
    Session(SessionSpec, Expr),
    /// A column that holds a window already: `Struct(start, end)`.
    WindowColumn(WindowSpec),
    /// A monotone function of the event time, such as `date_trunc('day', ts)`.
    Bin(Bin),
    /// The event time itself: a group closes when the watermark reaches its value.
    Instant(Unit),
}

/// A monotone function of an event time.
///
/// A group with value `v` is closed when `v < f(W)`: no row at or after W can have a value as small,
/// and before that one could.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bin {
    /// The function, over a column named [`Bin::EVENT_TIME`].
    pub function: Expr,
    /// Type of the event time.
    pub event_type: DataType,
    /// How far from the first tick of its type the function can be computed.
    pub below: Span,
    /// How far from the last one.
    pub above: Span,
}

impl Bin {
    /// Name of the column that stands for the event time in [`Bin::function`].
    pub const EVENT_TIME: &'static str = "event_time";
}

impl GroupTime {
    /// Its expressions: the time, and the gap of a session.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let gap = match &self.value {
            TimeValue::Session(_, gap) => Some(gap),
            _ => None,
        };
        std::iter::once(&self.expr).chain(gap)
    }

    /// The same with other expressions, in the order of [`exprs`](Self::exprs).
    pub(super) fn with_exprs(&self, mut next: impl FnMut() -> Result<Expr>) -> Result<Self> {
        let expr = next()?;
        let value = match &self.value {
            TimeValue::Session(spec, _) => TimeValue::Session(spec.clone(), next()?),
            other => other.clone(),
        };
        Ok(Self {
            expr,
            value,
            ..self.clone()
        })
    }
}

impl fmt::Display for GroupTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            TimeValue::Windows(spec) => write!(f, "window({}, {})", self.expr, spec.shape)?,
            TimeValue::Session(spec, _) => {
                write!(f, "session_window({}, {})", self.expr, spec.label)?
            }
            TimeValue::WindowColumn(spec) => write!(f, "{} of {}", self.expr, spec.shape)?,
            TimeValue::Bin(_) | TimeValue::Instant(_) => write!(f, "{}", self.expr)?,
        }
        if !self.closes {
            f.write_str(" (never closes)")?;
        }
        Ok(())
    }
}
