//! `window(ts, …)` in a FROM clause: a column that holds the window of each row.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use super::query::{one_expr, one_input};
use crate::config::arrow_unit;
use crate::error::Place;
use crate::time::{Unit, WindowShape};

/// Fields of a window: `start` inclusive, `end` exclusive.
fn window_fields(bound: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("start", bound.clone(), true),
        Field::new("end", bound.clone(), true),
    ])
}

/// A family of windows of one size, and the zone in which their bounds are shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowSpec {
    /// Size, slide and start, in ticks of the bounds' unit.
    pub shape: WindowShape,
    /// Zone of the event time's type. Windows are aligned in UTC whatever it is.
    pub zone: Option<Arc<str>>,
}

impl WindowSpec {
    /// Type of a bound.
    pub fn bound_type(&self) -> DataType {
        DataType::Timestamp(arrow_unit(self.shape.unit()), self.zone.clone())
    }

    /// Fields of a window: `start` inclusive, `end` exclusive.
    pub fn fields(&self) -> Fields {
        window_fields(&self.bound_type())
    }
}

/// Windows that last as long as events follow each other within a gap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionSpec {
    /// Unit of the bounds.
    pub unit: Unit,
    /// Zone of the event time's type.
    pub zone: Option<Arc<str>>,
    /// The gap as a person reads it.
    pub label: String,
}

impl SessionSpec {
    /// Type of a bound.
    pub fn bound_type(&self) -> DataType {
        DataType::Timestamp(arrow_unit(self.unit), self.zone.clone())
    }

    /// Fields of a session: `start` inclusive, `end` exclusive, the last event plus its gap.
    pub fn fields(&self) -> Fields {
        window_fields(&self.bound_type())
    }
}

/// The windows that a call names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Windows {
    /// `window()`.
    Fixed(WindowSpec),
    /// `session_window()`, with the gap of each row: an interval over the input's columns.
    Session(SessionSpec, Expr),
}

impl Windows {
    /// Type of a bound.
    pub fn bound_type(&self) -> DataType {
        match self {
            Windows::Fixed(spec) => spec.bound_type(),
            Windows::Session(spec, _) => spec.bound_type(),
        }
    }
}

/// Adds one column of type `Struct(start, end)`: the window of each row. A row in
/// several hopping windows comes out once for each; a row without a time comes out not at all.
///
/// The analyzer folds the node into the aggregate that groups by the column, or expands it.
#[derive(Debug, Clone)]
pub struct TimeWindow {
    /// Where the rows come from.
    pub input: LogicalPlan,
    /// Event time, of the bounds' type, over the input's columns.
    pub time: Expr,
    /// The windows.
    pub windows: Windows,
    /// Where the call stands in the text.
    pub place: Option<Place>,
    pub(super) schema: DFSchemaRef,
}

impl TimeWindow {
    /// Adds a column of this name to `input`.
    ///
    /// # Errors
    /// - the input has a column of that name already
    pub fn try_new(
        input: LogicalPlan,
        time: Expr,
        windows: Windows,
        column: &str,
        place: Option<Place>,
    ) -> Result<Self> {
        let field = Field::new_struct(column, window_fields(&windows.bound_type()), true);
        let added = DFSchema::try_from(Schema::new(vec![field]))?;
        let schema = Arc::new(input.schema().join(&added)?);
        Ok(Self {
            input,
            time,
            windows,
            place,
            schema,
        })
    }

    /// Index of the added column: the last.
    pub fn window_index(&self) -> usize {
        self.schema.fields().len().saturating_sub(1)
    }
}

impl PartialEq for TimeWindow {
    fn eq(&self, other: &Self) -> bool {
        self.input == other.input && self.time == other.time && self.windows == other.windows
    }
}

impl Eq for TimeWindow {}

impl Hash for TimeWindow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.time.hash(state);
        self.windows.hash(state);
    }
}

impl PartialOrd for TimeWindow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for TimeWindow {
    fn name(&self) -> &str {
        "TimeWindow"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let gap = match &self.windows {
            Windows::Fixed(_) => None,
            Windows::Session(_, gap) => Some(gap.clone()),
        };
        std::iter::once(self.time.clone()).chain(gap).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.windows {
            Windows::Fixed(spec) => write!(f, "TimeWindow: {} {}", self.time, spec.shape),
            Windows::Session(spec, _) => {
                write!(f, "TimeWindow: {} session {}", self.time, spec.label)
            }
        }
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let input = one_input(inputs)?;
        let name = self.schema.field(self.window_index()).name().clone();
        let mut exprs = exprs.into_iter();
        let time = one_expr(exprs.next())?;
        let windows = match &self.windows {
            Windows::Fixed(spec) => Windows::Fixed(spec.clone()),
            Windows::Session(spec, _) => Windows::Session(spec.clone(), one_expr(exprs.next())?),
        };
        Self::try_new(input, time, windows, &name, self.place)
    }
}
