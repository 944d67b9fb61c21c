//! Which columns of a query's result name its groups.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use super::aggregate::StreamAggregate;
use super::initial_order::is_fixed;
use super::query::StreamQuery;
use super::windows::WindowTime;

/// For each column of a plan the grouping expression it holds, by its position; and how many there are.
struct Groups {
    columns: Vec<Option<usize>>,
    count: usize,
}

/// Columns of the result that together name a group: rows of one group are alike in them, rows of two
/// groups are not. None if a grouping expression is not among the columns. A query that does not
/// group has no such columns: every row is new.
pub fn group_columns(plan: &LogicalPlan) -> Option<Vec<usize>> {
    let groups = groups(plan)?;
    let mut found = BTreeSet::new();
    let mut key = Vec::new();
    for (at, column) in groups.columns.iter().enumerate() {
        if let Some(group) = column
            && found.insert(*group)
        {
            key.push(at);
        }
    }
    (found.len() == groups.count).then_some(key)
}

/// A key that may be null and that a grouping set leaves out, where it is null as well: rows of two groups are alike in
/// it then.
///
/// # Errors
/// - the plan does not have the columns that it uses
pub fn null_or_left_out(plan: &LogicalPlan) -> Result<Option<String>> {
    let mut found = None;
    plan.apply(|node| {
        if let LogicalPlan::Extension(extension) = node
            && let Some(aggregate) = extension.node.as_any().downcast_ref::<StreamAggregate>()
        {
            let sets = aggregate.left_out.as_deref().unwrap_or_default();
            let time = aggregate.time.as_ref().map(|time| time.position);
            for (at, key) in aggregate.keys.iter().enumerate() {
                // The time stands among the grouping expressions, and not among the keys.
                let position = at + usize::from(time.is_some_and(|time| time <= at));
                let left_out = sets.iter().any(|set| set.get(position) == Some(&true));
                if left_out && key.nullable(aggregate.input.schema().as_ref())? {
                    found = Some(key.to_string());
                    return Ok(TreeNodeRecursion::Stop);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether a filter above the aggregate may let a group through in one epoch and not in a later one. None where the
/// result is not the groups of one aggregate.
pub fn groups_may_leave(plan: &LogicalPlan) -> Option<bool> {
    lasting(plan).map(|lasting| lasting.may_leave)
}

/// For each column of a plan whether a group has one value in it for good; and whether a filter asks for other columns.
struct Lasting {
    columns: Vec<bool>,
    may_leave: bool,
}

impl Lasting {
    /// Whether a group has one value of an expression for good.
    fn has(&self, expr: &Expr, schema: &DFSchema) -> bool {
        let lasts = |column| {
            let at = schema.index_of_column(column).ok();
            at.and_then(|at| self.columns.get(at)) == Some(&true)
        };
        is_fixed(expr) && expr.column_refs().into_iter().all(lasts)
    }
}

fn lasting(plan: &LogicalPlan) -> Option<Lasting> {
    match plan {
        LogicalPlan::Extension(extension) => {
            let node = extension.node.as_any();
            if let Some(query) = node.downcast_ref::<StreamQuery>() {
                return lasting(&query.input);
            }
            let aggregate = node.downcast_ref::<StreamAggregate>()?;
            // Before the aggregates is what is grouped by, and the number of the grouping set.
            let fields = plan.schema().fields().len();
            let named = fields.saturating_sub(aggregate.aggregates.len());
            Some(Lasting {
                columns: (0..fields).map(|at| at < named).collect(),
                may_leave: false,
            })
        }
        LogicalPlan::Projection(projection) => {
            let input = lasting(&projection.input)?;
            let schema = projection.input.schema();
            let columns = projection.expr.iter().map(|expr| input.has(expr, schema));
            Some(Lasting {
                columns: columns.collect(),
                may_leave: input.may_leave,
            })
        }
        LogicalPlan::Filter(filter) => {
            let input = lasting(&filter.input)?;
            let lasts = input.has(&filter.predicate, filter.input.schema());
            Some(Lasting {
                may_leave: input.may_leave || !lasts,
                ..input
            })
        }
        LogicalPlan::SubqueryAlias(alias) => lasting(&alias.input),
        _ => None,
    }
}

fn groups(plan: &LogicalPlan) -> Option<Groups> {
    match plan {
        LogicalPlan::Extension(extension) => {
            let node = extension.node.as_any();
            if let Some(query) = node.downcast_ref::<StreamQuery>() {
                return groups(&query.input);
            }
            let aggregate = node.downcast_ref::<StreamAggregate>()?;
            let count = aggregate.keys.len() + usize::from(aggregate.time.is_some());
            let fields = plan.schema().fields().len();
            let columns = (0..fields).map(|at| (at < count).then_some(at)).collect();
            Some(Groups { columns, count })
        }
        LogicalPlan::Projection(projection) => {
            let input = groups(&projection.input)?;
            let schema = projection.input.schema();
            let columns = projection
                .expr
                .iter()
                .map(|expr| group_of(expr, schema, &input))
                .collect();
            Some(Groups { columns, ..input })
        }
        LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => groups(plan.inputs().first()?),
        _ => None,
    }
}

/// The grouping expression that an expression is one-to-one with: a column, or a bound of a window.
fn group_of(expr: &Expr, schema: &DFSchema, input: &Groups) -> Option<usize> {
    match expr {
        Expr::Alias(alias) => group_of(&alias.expr, schema, input),
        Expr::Column(column) => input
            .columns
            .get(schema.index_of_column(column).ok()?)
            .copied()
            .flatten(),
        Expr::ScalarFunction(function)
            if matches!(function.name(), "get_field" | "window_time") =>
        {
            // A field of another struct does not name its group.
            let window = function.args.first()?;
            let data_type = window.get_type(schema).ok()?;
            WindowTime::result_type(&data_type)?;
            group_of(window, schema, input)
        }
        _ => None,
    }
}
