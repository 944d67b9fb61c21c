//! `WATERMARK expr [AS name] DELAY OF …`: a node that names the event time of its relation.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, DFSchema, ExprSchema, Result, TableReference, not_impl_err};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{Expr as SqlExpr, TableAlias};

use super::LoweredCall;
use super::names::{known_columns, placed};
use crate::error::{Place, Refusal};
use crate::logical::Watermark;
use crate::time::Span;

/// `WATERMARK expr [AS name] DELAY OF …`.
pub(super) fn plan_watermark(
    call: &LoweredCall<'_>,
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let place = call.place(3);
    let mut input = call.plan(alias, context)?;
    let Some(expr) = call.arguments.first() else {
        return not_impl_err!("a WATERMARK clause without an expression");
    };
    let planned = context
        .sql_to_expr((*expr).clone(), input.schema())
        .map_err(|error| placed(error, input.schema(), place))?;
    known_columns(&planned, input.schema(), place)?;
    of_one_row(&planned, place)?;
    let name = match call.arguments.get(1) {
        Some(SqlExpr::Identifier(ident)) => Some(context.normalize_ident(ident.clone())),
        _ => None,
    };
    let event_time = match (planned, name) {
        (Expr::Column(column), None) => column,
        (_, None) => {
            return Err(Refusal::new(
                "REQUIRES_EXPLICIT_NAME_IN_WATERMARK_CLAUSE",
                "42000",
                "The watermark's expression has no name: it adds a column to the relation.",
            )
            .at(place)
            .hint(format!("write WATERMARK {expr} AS event_time DELAY OF …"))
            .into());
        }
        (expr, Some(name)) => {
            input = add_first(input, expr, &name, place)?;
            Column::from(input.schema().qualified_field(0))
        }
    };
    timestamp(&event_time, input.schema(), place)?;
    let delay = call
        .text(2)
        .and_then(|text| text.parse().ok())
        .map_or(Span::ZERO, Span::from_nanos);
    let node = Watermark {
        input,
        event_time,
        delay,
        id: None,
        keeps_rows: false,
    };
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    }))
}

/// Refuses an event time that is not told by a row alone.
fn of_one_row(expr: &Expr, place: Option<Place>) -> Result<()> {
    let whole = expr.exists(|part| {
        Ok(matches!(
            part,
            Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::ScalarSubquery(_)
                | Expr::Exists(_)
        ))
    })?;
    if !whole {
        return Ok(());
    }
    Err(Refusal::new(
        "MISSING_GROUP_BY",
        "42803",
        format!("The event time {expr} depends on other rows."),
    )
    .at(place)
    .hint("an event time is computed from its own row: WATERMARK ts DELAY OF …")
    .into())
}

/// Adds a named expression as the first column.
fn add_first(
    input: LogicalPlan,
    expr: Expr,
    name: &str,
    place: Option<Place>,
) -> Result<LogicalPlan> {
    if input
        .schema()
        .fields()
        .iter()
        .any(|field| field.name() == name)
    {
        return Err(Refusal::new(
            "COLUMN_ALREADY_EXISTS",
            "42711",
            format!("The relation has a column '{name}' already."),
        )
        .at(place)
        .hint("give the event time another name")
        .into());
    }
    // The column belongs to the relation: it is seen through its name when it has only one.
    let mut qualifiers: Vec<Option<&TableReference>> = input
        .schema()
        .iter()
        .map(|(qualifier, _)| qualifier)
        .collect();
    qualifiers.dedup();
    let qualifier = match qualifiers.as_slice() {
        [Some(one)] => Some((*one).clone()),
        _ => None,
    };
    let added = match qualifier {
        Some(qualifier) => expr.alias_qualified(Some(qualifier), name),
        None => expr.alias(name),
    };
    let columns: Vec<Expr> = input
        .schema()
        .iter()
        .map(|field| Expr::Column(Column::from(field)))
        .collect();
    LogicalPlanBuilder::from(input)
        .project(std::iter::once(added).chain(columns).collect::<Vec<_>>())?
        .build()
}

/// Refuses an event time that is not a TIMESTAMP.
fn timestamp(column: &Column, schema: &DFSchema, place: Option<Place>) -> Result<()> {
    let field = schema.field_from_column(column)?;
    if matches!(field.data_type(), DataType::Timestamp(..)) {
        return Ok(());
    }
    Err(Refusal::new(
        "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE",
        "42K09",
        format!(
            "The event time '{}' is {}, not a TIMESTAMP.",
            column.name,
            field.data_type()
        ),
    )
    .at(place)
    .hint(format!(
        "write WATERMARK CAST({} AS TIMESTAMP) AS event_time DELAY OF …",
        column.name
    ))
    .into())
}
