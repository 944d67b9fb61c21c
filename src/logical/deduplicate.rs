//! `DISTINCT ON` over a stream, as a plan node.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use datafusion::common::{DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use super::query::one_input;
use crate::time::Span;

/// Lets the first row of each key through, and forgets the key when the watermark has passed.
///
/// Its input has the columns `outputs …, keys …, event time`, and behind them the row as it reached its clause
/// if rows that are not counted are kept; its schema is the outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamDeduplicate {
    /// Where the rows come from.
    pub input: LogicalPlan,
    /// Number of output columns.
    pub outputs: usize,
    /// Number of key columns.
    pub keys: usize,
    /// How long after its row's event time a key is held.
    pub hold: Span,
    /// Whether rows are judged late here: not when an operator with state emitted them.
    pub judges: bool,
    /// Number of this operator in its query; given by the analyzer.
    pub id: Option<usize>,
    /// Whether the input's last column is the row as it reached its clause.
    pub keeps_rows: bool,
    /// The outputs.
    pub schema: DFSchemaRef,
}

impl Hash for StreamDeduplicate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.outputs.hash(state);
        self.keys.hash(state);
        self.hold.hash(state);
    }
}

impl PartialOrd for StreamDeduplicate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for StreamDeduplicate {
    fn name(&self) -> &str {
        "StreamDeduplicate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let columns = self.input.schema().columns();
        let keys = columns
            .iter()
            .skip(self.outputs)
            .take(self.keys)
            .map(|column| column.name.clone());
        write!(
            f,
            "StreamDeduplicate: keys [{}], each held {}",
            keys.collect::<Vec<_>>().join(", "),
            self.hold
        )
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self {
            input: one_input(inputs)?,
            ..self.clone()
        })
    }

    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        // Which row is first depends on all of its columns.
        Some(vec![(0..self.input.schema().fields().len()).collect()])
    }
}
