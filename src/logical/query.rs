//! The root of the streaming part of a plan.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result, internal_datafusion_err};
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};

use crate::config::{OutputMode, WatermarkPolicy};

/// Everything below runs in epochs; everything above sees one stream of emitted rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamQuery {
    /// The streaming part.
    pub input: LogicalPlan,
    /// What it emits.
    pub mode: OutputMode,
    /// Which watermark it has.
    pub policy: WatermarkPolicy,
}

impl Hash for StreamQuery {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.mode.hash(state);
    }
}

impl PartialOrd for StreamQuery {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for StreamQuery {
    fn name(&self) -> &str {
        "StreamQuery"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "StreamQuery: mode {}", self.mode)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self {
            input: one_input(inputs)?,
            ..self.clone()
        })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}

/// A node of ours as a plan.
pub(super) fn extension(node: impl UserDefinedLogicalNode + 'static) -> LogicalPlan {
    LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    })
}

/// The only input of a node that has one.
pub(super) fn one_input(inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
    inputs
        .into_iter()
        .next()
        .ok_or_else(|| internal_datafusion_err!("a node with one input was given none"))
}

/// The next expression of a node.
pub(super) fn one_expr(expr: Option<Expr>) -> Result<Expr> {
    expr.ok_or_else(|| internal_datafusion_err!("an expression of a node is missing"))
}
