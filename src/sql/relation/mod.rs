//! Plans the lowered calls of the FROM clause: `STREAM`, `WATERMARK` and `window()` become nodes.

mod length;
mod names;
mod stream;
mod watermark;
mod window;

use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, JoinOperator, SetExpr,
    TableAlias, TableFactor, TableWithJoins, Value,
};

pub(crate) use self::length::{length as window_length, shape as window_shape};
pub(crate) use self::stream::as_stream;
use self::stream::{plan_options, plan_stream};
use self::watermark::plan_watermark;
use self::window::plan_window;
use super::clause::{OPTIONS_CALL, STREAM_CALL, WATERMARK_CALL};
use super::rewrite::WINDOW_CALL;
use crate::error::Place;

/// Makes plan nodes of the calls that the lowering wrote.
#[derive(Debug, Default)]
pub struct StreamRelations;

impl RelationPlanner for StreamRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::TableFunction { expr, alias } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(call) = LoweredCall::of(expr) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let plan = match call.name {
            STREAM_CALL => plan_stream(&call, alias.clone(), context)?,
            OPTIONS_CALL => plan_options(&call, alias.clone(), context)?,
            WATERMARK_CALL => plan_watermark(&call, alias.clone(), context)?,
            _ => plan_window(&call, alias.clone(), context)?,
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan, None,
        ))))
    }
}

/// A lowered call: its relation and its further arguments.
struct LoweredCall<'a> {
    name: &'static str,
    from: &'a [TableWithJoins],
    arguments: Vec<&'a SqlExpr>,
}

impl<'a> LoweredCall<'a> {
    fn of(expr: &'a SqlExpr) -> Option<Self> {
        let SqlExpr::Function(function) = expr else {
            return None;
        };
        let name = function.name.to_string();
        let name = [STREAM_CALL, OPTIONS_CALL, WATERMARK_CALL, WINDOW_CALL]
            .into_iter()
            .find(|known| *known == name)?;
        let FunctionArguments::List(list) = &function.args else {
            return None;
        };
        let mut arguments = list.args.iter().filter_map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        });
        let Some(SqlExpr::Subquery(query)) = arguments.next() else {
            return None;
        };
        let SetExpr::Select(select) = query.body.as_ref() else {
            return None;
        };
        Some(Self {
            name,
            from: &select.from,
            arguments: arguments.collect(),
        })
    }

    /// The place written as two numbers, from this argument on.
    fn place(&self, at: usize) -> Option<Place> {
        let number = |at: usize| -> Option<u64> {
            match self.arguments.get(at)? {
                SqlExpr::Value(value) => match &value.value {
                    Value::Number(text, _) => text.to_string().parse().ok(),
                    _ => None,
                },
                _ => None,
            }
        };
        let place = Place {
            line: number(at)?,
            column: number(at + 1)?,
        };
        (place.line > 0).then_some(place)
    }

    fn text(&self, at: usize) -> Option<&str> {
        match self.arguments.get(at)? {
            SqlExpr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// The relation, under the alias that the whole call was given: a column is seen through it.
    fn plan(
        &self,
        alias: Option<TableAlias>,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<LogicalPlan> {
        let mut factor = one_factor(self.from)?;
        if let Some(alias) = alias {
            set_alias(&mut factor, alias);
        }
        context.plan(factor)
    }
}

/// A FROM list as one table factor: `a, b` is `(a CROSS JOIN b)`.
fn one_factor(from: &[TableWithJoins]) -> Result<TableFactor> {
    use sqlparser::ast::Join;
    let [first, rest @ ..] = from else {
        return not_impl_err!("a relation is missing");
    };
    if rest.is_empty() && first.joins.is_empty() {
        return Ok(first.relation.clone());
    }
    let mut all = first.clone();
    for table in rest {
        all.joins.push(Join {
            relation: table.relation.clone(),
            global: false,
            join_operator: JoinOperator::CrossJoin(sqlparser::ast::JoinConstraint::None),
        });
        all.joins.extend(table.joins.clone());
    }
    Ok(TableFactor::NestedJoin {
        table_with_joins: Box::new(all),
        alias: None,
    })
}

/// Gives a factor an alias; one that it has already goes below.
fn set_alias(factor: &mut TableFactor, new: TableAlias) {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. }
            if alias.is_none() =>
        {
            *alias = Some(new);
        }
        _ => {
            let inner = std::mem::replace(
                factor,
                TableFactor::TableFunction {
                    expr: SqlExpr::value(Value::Null),
                    alias: None,
                },
            );
            *factor = TableFactor::NestedJoin {
                table_with_joins: Box::new(TableWithJoins {
                    relation: inner,
                    joins: Vec::new(),
                }),
                alias: Some(new),
            };
        }
    }
}
