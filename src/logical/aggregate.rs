//! An aggregate over a stream, as a plan node.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use datafusion::common::{DFSchemaRef, Result, internal_datafusion_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use super::group_time::{GroupTime, TimeValue};
use super::marks::{Mark, Marks, marks, through};
use super::query::one_input;
use crate::config::OutputMode;

/// Groups rows of a stream and keeps the groups' partial states until their time has closed.
///
/// Its schema is that of the DataFusion aggregate it stands for: grouping expressions, then
/// aggregates. It is made by the analyzer, before DataFusion rewrites `count(DISTINCT …)`, and the
/// physical planner makes DataFusion's partial aggregate, the gate and DataFusion's final aggregate
/// of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamAggregate {
    /// Where the rows come from.
    pub input: LogicalPlan,
    /// The grouping expression that is a time, if there is one.
    pub time: Option<GroupTime>,
    /// The other grouping expressions, in order.
    pub keys: Vec<Expr>,
    /// For each grouping set and grouping expression, whether the set leaves it out; none where the
    /// GROUP BY has no sets.
    pub left_out: Option<Vec<Vec<bool>>>,
    /// The aggregates.
    pub aggregates: Vec<Expr>,
    /// What is emitted when.
    pub mode: OutputMode,
    /// Whether rows are judged late here: not when an operator with state emitted them.
    pub judges: bool,
    /// Number of this operator in its query, in the order of the plan; given by the analyzer.
    pub id: Option<usize>,
    /// The row as it reached its clause, if rows that are not counted are kept.
    pub row: Option<Expr>,
    schema: DFSchemaRef,
}

impl StreamAggregate {
    /// Stands for a DataFusion aggregate with this schema.
    pub(crate) fn new(
        input: LogicalPlan,
        time: Option<GroupTime>,
        keys: Vec<Expr>,
        aggregates: Vec<Expr>,
        mode: OutputMode,
        judges: bool,
        schema: DFSchemaRef,
    ) -> Self {
        Self {
            input,
            time,
            keys,
            left_out: None,
            aggregates,
            mode,
            judges,
            id: None,
            row: None,
            schema,
        }
    }

    /// Whether a grouping set leaves the time out: its groups count late rows too.
    pub fn has_timeless_set(&self) -> bool {
        let position = self.time.as_ref().map(|time| time.position);
        let sets = self.left_out.iter().flatten();
        position.is_some_and(|at| sets.into_iter().any(|set| set.get(at) == Some(&true)))
    }

    /// Marks of its columns: the group's time keeps its mark.
    pub(super) fn marks(&self) -> Result<Marks> {
        let input = marks(&self.input)?;
        let mut columns = through(&self.keys, self.input.schema(), &input);
        if let Some(time) = &self.time {
            let mark = time.closes.then(|| match &time.value {
                TimeValue::Windows(spec) | TimeValue::WindowColumn(spec) => {
                    Mark::Window(spec.clone(), time.behind)
                }
                TimeValue::Session(spec, _) => Mark::Session(spec.clone(), time.behind),
                TimeValue::Bin(bin) => Mark::Bin(bin.clone(), time.behind),
                TimeValue::Instant(_) => Mark::EventTime(time.behind),
            });
            columns.insert(time.position.min(columns.len()), mark);
        }
        columns.resize(self.schema.fields().len(), None);
        Ok(Marks {
            streaming: input.streaming,
            emitted: true,
            aggregated: true,
            columns,
        })
    }
}

impl Hash for StreamAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.time.hash(state);
        self.keys.hash(state);
        self.left_out.hash(state);
        self.aggregates.hash(state);
    }
}

impl PartialOrd for StreamAggregate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for StreamAggregate {
    fn name(&self) -> &str {
        "StreamAggregate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let time = self.time.iter().flat_map(GroupTime::exprs);
        time.chain(&self.keys)
            .chain(&self.aggregates)
            .chain(&self.row)
            .cloned()
            .collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "StreamAggregate: mode {}", self.mode)?;
        if let Some(time) = &self.time {
            write!(f, ", time {time}")?;
        }
        write!(
            f,
            ", keys [{}], aggregates [{}]",
            list(&self.keys),
            list(&self.aggregates)
        )
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut exprs = exprs.into_iter();
        let mut next = || {
            exprs
                .next()
                .ok_or_else(|| internal_datafusion_err!("an expression is missing"))
        };
        let time = self
            .time
            .as_ref()
            .map(|time| time.with_exprs(&mut next))
            .transpose()?;
        let keys = self.keys.iter().map(|_| next()).collect::<Result<_>>()?;
        let aggregates = self
            .aggregates
            .iter()
            .map(|_| next())
            .collect::<Result<_>>()?;
        let row = self.row.as_ref().map(|_| next()).transpose()?;
        Ok(Self {
            input: one_input(inputs)?,
            time,
            keys,
            aggregates,
            row,
            ..self.clone()
        })
    }

    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        // DataFusion adds the columns of the expressions itself.
        Some(vec![vec![]])
    }
}

fn list(exprs: &[Expr]) -> String {
    exprs
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
