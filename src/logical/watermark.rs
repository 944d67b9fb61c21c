//! `WATERMARK column DELAY OF …` as a plan node.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use datafusion::common::{Column, DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use super::query::one_input;
use crate::time::Span;

/// Observes the greatest event time of the rows that pass, and passes them on unchanged.
///
/// Its schema is its input's. The event time is a column: an expression in the clause has become a
/// projection below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    /// Where the rows come from.
    pub input: LogicalPlan,
    /// The event time: a TIMESTAMP column of the input.
    pub event_time: Column,
    /// How far the watermark stays behind the greatest event time.
    pub delay: Span,
    /// Number of this clause in its query, in the order of the plan; given by the analyzer.
    pub id: Option<usize>,
    /// Whether rows that are not counted are kept: all columns are read then.
    pub keeps_rows: bool,
}

impl Watermark {
    /// Index of the event time in the schema.
    ///
    /// # Errors
    /// - the column has left the input's schema
    pub fn event_time_index(&self) -> Result<usize> {
        self.input.schema().index_of_column(&self.event_time)
    }
}

impl Hash for Watermark {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.event_time.hash(state);
        self.delay.hash(state);
    }
}

impl PartialOrd for Watermark {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for Watermark {
    fn name(&self) -> &str {
        "Watermark"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![Expr::Column(self.event_time.clone())]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "Watermark: {} delay {}",
            self.event_time.name, self.delay
        )
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let event_time = match exprs.into_iter().next() {
            Some(Expr::Column(column)) => column,
            _ => self.event_time.clone(),
        };
        Ok(Self {
            input: one_input(inputs)?,
            event_time,
            delay: self.delay,
            id: self.id,
            keeps_rows: self.keeps_rows,
        })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        if self.keeps_rows {
            return Some(vec![(0..self.input.schema().fields().len()).collect()]);
        }
        let mut columns = output_columns.to_vec();
        columns.push(self.event_time_index().ok()?);
        columns.sort_unstable();
        columns.dedup();
        Some(vec![columns])
    }
}
