//! The plans of an audit: a query's text over finite rows, with a count of the rows of each group.
//!
//! ```text
//! projections, HAVING       upper part: the count goes up with the columns
//!   groups + count(*)       the aggregate
//!     filters, windows      lower part: over the source, over late rows, over rows that were not read
//!       WATERMARK
//!         source
//! ```

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result, TableReference, internal_datafusion_err};
use datafusion::datasource::provider_as_source;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias, cast, col,
    lit,
};

use super::closing::{is_closed, literal, timed};
use super::shape::Shape;
use super::sizes::{is_size, size_name, sizes, sizes_of};
use crate::logical::{Watermark, stream_scan};
use crate::time::Instant;

/// Columns that are carried through a plan, named so that no column of a user is.
pub(super) const ROWS: &str = "__tidegate_rows";
pub(super) const CLOSED: &str = "__tidegate_closed";
pub(super) const WATERMARK: &str = "__tidegate_watermark";

/// A plan without streams: the same text over the tables as they are, or over another one in the place of each.
///
/// # Errors
/// - none of its own
pub(super) fn finite(
    plan: LogicalPlan,
    instead: Option<&Arc<dyn TableProvider>>,
) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = &node else {
            return Ok(Transformed::no(node));
        };
        let Some(stream) = stream_scan(&scan.source) else {
            return Ok(Transformed::no(node));
        };
        let mut scan = scan.clone();
        scan.source = provider_as_source(Arc::clone(instead.unwrap_or(&stream.provider)));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(plan.data)
}

/// A table of some rows.
///
/// # Errors
/// - rows of another schema
pub(super) fn table_of(
    schema: SchemaRef,
    rows: Vec<RecordBatch>,
) -> Result<Arc<dyn TableProvider>> {
    Ok(Arc::new(MemTable::try_new(schema, vec![rows])?))
}

/// The aggregate of a query that is not analyzed yet.
///
/// # Errors
/// - there is none
pub(super) fn aggregate_of(plan: &LogicalPlan) -> Result<&Aggregate> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => Ok(aggregate),
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::Filter(Filter { input, .. })
        | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => aggregate_of(input),
        other => Err(internal_datafusion_err!(
            "no aggregate where one was: {}",
            other.display()
        )),
    }
}

/// What is under the WATERMARK clause of a plan, or the whole plan if it has none.
pub(super) fn clause_of(plan: &LogicalPlan) -> Option<&Watermark> {
    if let LogicalPlan::Extension(extension) = plan
        && let Some(watermark) = extension.node.as_any().downcast_ref::<Watermark>()
    {
        return Some(watermark);
    }
    plan.inputs().into_iter().find_map(clause_of)
}

/// Rows of a table of late rows, as they come out of the clause: its columns first, then the watermark that they
/// were judged by.
///
/// # Errors
/// - the table has other columns
pub(super) fn late_leaf(
    clause: &DFSchema,
    schema: &SchemaRef,
    rows: Vec<RecordBatch>,
) -> Result<LogicalPlan> {
    let late = LogicalPlanBuilder::scan(
        "__tidegate_late",
        provider_as_source(table_of(Arc::clone(schema), rows)?),
        None,
    )?;
    let columns = clause.iter().map(|(qualifier, field)| {
        let (name, of) = (field.name(), field.data_type().clone());
        let found = column(late.schema(), name)
            .ok_or_else(|| internal_datafusion_err!("late rows have no column {name}"))?;
        Ok(cast(found, of).alias_qualified(qualifier.cloned(), name))
    });
    let watermark = Expr::Column(Column::new(
        Some(TableReference::bare("__tidegate_late")),
        crate::logical::WATERMARK,
    ));
    let mut columns = columns.collect::<Result<Vec<_>>>()?;
    columns.push(watermark.alias(WATERMARK));
    late.project(columns)?.build()
}

/// The lower part of a query over other rows than the source's: `leaf` stands in the place of the clause.
///
/// # Errors
/// - a node that does not take another input
pub(super) fn over_clause(plan: &LogicalPlan, leaf: &LogicalPlan) -> Result<LogicalPlan> {
    if let LogicalPlan::Extension(extension) = plan
        && extension.node.as_any().is::<Watermark>()
    {
        return Ok(leaf.clone());
    }
    let inputs: Vec<LogicalPlan> = plan
        .inputs()
        .into_iter()
        .map(|input| over_clause(input, leaf))
        .collect::<Result<_>>()?;
    let carried = inputs
        .iter()
        .find_map(|input| column(input.schema(), WATERMARK));
    match (plan, carried, inputs.as_slice()) {
        (_, None, _) => Ok(plan.clone()),
        (LogicalPlan::Projection(projection), Some(carried), [input]) => {
            let columns = projection.expr.iter().cloned().chain([carried]).collect();
            let projection = Projection::try_new(columns, Arc::new(input.clone()))?;
            Ok(LogicalPlan::Projection(projection))
        }
        (LogicalPlan::SubqueryAlias(alias), _, [input]) => Ok(LogicalPlan::SubqueryAlias(
            SubqueryAlias::try_new(Arc::new(input.clone()), alias.alias.clone())?,
        )),
        _ => plan.with_new_exprs(plan.expressions(), inputs),
    }
}

/// A column by its bare name.
pub(super) fn column(schema: &DFSchema, name: &str) -> Option<Expr> {
    let found = schema.iter().find(|(_, field)| field.name() == name)?;
    Some(Expr::Column(Column::from(found)))
}

/// The columns that an aggregate reads, under names that are their numbers: `input` is its input or one like it.
///
/// # Errors
/// - a column is missing
pub(super) fn narrow(input: LogicalPlan, aggregate: &Aggregate) -> Result<LogicalPlan> {
    let columns = used(aggregate)?;
    let named = columns.into_iter().enumerate();
    let named = named.map(|(at, column)| Expr::Column(column).alias(format!("c{at}")));
    LogicalPlanBuilder::from(input)
        .project(named.collect::<Vec<_>>())?
        .build()
}

/// The same columns of a table, under their names again.
///
/// # Errors
/// - a column is missing
pub(super) fn widen(table: Arc<dyn TableProvider>, aggregate: &Aggregate) -> Result<LogicalPlan> {
    let scan = LogicalPlanBuilder::scan("__tidegate_rest", provider_as_source(table), None)?;
    let columns = used(aggregate)?.into_iter().enumerate();
    let columns = columns.map(|(at, column)| {
        col(format!("__tidegate_rest.c{at}")).alias_qualified(column.relation, column.name)
    });
    scan.project(columns.collect::<Vec<_>>())?.build()
}

/// The columns that an aggregate reads, as its input has them; one at least.
fn used(aggregate: &Aggregate) -> Result<Vec<Column>> {
    let schema = aggregate.input.schema();
    let exprs = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
    let mut at = Vec::new();
    for expr in exprs {
        for column in expr.column_refs() {
            at.push(schema.index_of_column(column)?);
        }
    }
    at.sort_unstable();
    at.dedup();
    if at.is_empty() && !schema.fields().is_empty() {
        at.push(0);
    }
    let columns = at.into_iter();
    Ok(columns
        .map(|at| Column::from(schema.qualified_field(at)))
        .collect())
}

/// The query over this input of its aggregate, without the rows that have no group. Behind its columns come the size of
/// each, the number of rows of each group and whether the watermark has closed it. HAVING is left out if it is to be.
///
/// # Errors
/// - none of its own
pub(super) fn counted(
    query: &LogicalPlan,
    input: LogicalPlan,
    shape: &Shape,
    watermark: Option<Instant>,
    having: bool,
) -> Result<LogicalPlan> {
    let aggregate = aggregate_of(query)?;
    let counting = aggregate.aggr_expr.iter().cloned();
    let counting = counting
        .chain(sizes(aggregate))
        .chain([count(lit(1_i64)).alias(ROWS)])
        .collect();
    let groups = aggregate.group_expr.clone();
    let input = timed(input, aggregate, shape)?;
    let base = Aggregate::try_new(Arc::new(input), groups, counting)?;
    let base = LogicalPlan::Aggregate(base);
    let closed = match (shape.time, watermark) {
        (Some(at), Some(watermark)) => {
            let group = Expr::Column(Column::from(base.schema().qualified_field(at)));
            is_closed(&shape.closing, group, literal(&shape.closing, watermark))?
        }
        _ => lit(false),
    };
    let columns = base
        .schema()
        .iter()
        .map(|field| Expr::Column(Column::from(field)));
    let columns: Vec<Expr> = columns.chain([closed.alias(CLOSED)]).collect();
    let base = LogicalPlanBuilder::from(base).project(columns)?.build()?;
    let risen = rise(query, base, having)?;
    // What is carried comes last, whatever the query selects.
    let schema = risen.schema();
    let extra = [ROWS, CLOSED]
        .iter()
        .filter_map(|name| column(schema, name));
    let own = schema.iter().filter(|(_, field)| !is_carried(field.name()));
    let own: Vec<Expr> = own.map(|field| Expr::Column(Column::from(field))).collect();
    let sizes = (0..own.len()).map(|at| {
        let size = column(schema, &size_name(at)).unwrap_or_else(|| lit(0.0));
        size.alias(size_name(at))
    });
    let columns: Vec<Expr> = own.into_iter().chain(sizes).chain(extra).collect();
    LogicalPlanBuilder::from(risen).project(columns)?.build()
}

/// Whether a column is carried through a plan, behind those of the query.
fn is_carried(name: &str) -> bool {
    name == ROWS || name == CLOSED || is_size(name)
}

/// The upper part of a query over another aggregate.
fn rise(query: &LogicalPlan, base: LogicalPlan, having: bool) -> Result<LogicalPlan> {
    match query {
        LogicalPlan::Projection(projection) => {
            let input = rise(&projection.input, base, having)?;
            let carried = [ROWS, CLOSED]
                .iter()
                .filter_map(|name| column(input.schema(), name));
            let sizes = sizes_of(projection, input.schema());
            let own = projection.expr.iter().cloned();
            let columns = own.chain(sizes).chain(carried).collect();
            let projection = Projection::try_new(columns, Arc::new(input))?;
            Ok(LogicalPlan::Projection(projection))
        }
        LogicalPlan::Filter(filter) => {
            let input = rise(&filter.input, base, having)?;
            match having {
                true => Ok(LogicalPlan::Filter(Filter::try_new(
                    filter.predicate.clone(),
                    Arc::new(input),
                )?)),
                false => Ok(input),
            }
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let input = Arc::new(rise(&alias.input, base, having)?);
            let alias = SubqueryAlias::try_new(input, alias.alias.clone())?;
            Ok(LogicalPlan::SubqueryAlias(alias))
        }
        _ => Ok(base),
    }
}
