//! Which columns of a query's result name its groups.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use super::aggregate::StreamAggregate;
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
