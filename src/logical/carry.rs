//! Carries each row, as it reached its WATERMARK clause, to the operators that may not count it.
//!
//! A clause's columns become one more column, a struct, that travels with the row through names, projections,
//! filters, unions and joins with tables:
//!
//! ```text
//! StreamAggregate                     row = __row           a late row leaves here, whole
//!   Projection: a * 2, __row          a * 2
//!     Filter: b > 0                   b > 0
//!       Projection: *, struct(*) AS __row
//!         Watermark: event_time       Watermark: event_time
//! ```
//!
//! - Only the inputs of operators that may drop a row get the column; an operator ends its way.
//! - The columns of all clauses have one type, so that they may meet in a union: a column that a clause has not is
//!   null there.
//! - What the optimizer does not need above is still read: this costs time, and is done only where it is asked for.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::functions::core::expr_fn::named_struct;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, ScalarUDF, Union, lit, try_cast,
};

use super::aggregate::StreamAggregate;
use super::deduplicate::StreamDeduplicate;
use super::group_time::TimeValue;
use super::marks::marks;
use super::query::extension;
use super::row_number::RowNumber;
use super::watermark::Watermark;
use crate::config::{arrow_unit, unit_of};
use crate::error::Refusal;
use crate::time::Unit;

/// Name of the column that carries a row.
const ROW: &str = "__tidegate_row";

/// Field of a carried row that holds its event time again, in the unit of the table of rows and without a zone.
pub const EVENT_TIME: &str = "__tidegate_event_time";

/// Field of a carried row that holds its number, where a join may copy it: a row is kept once.
pub const NUMBER: &str = "__tidegate_number";

/// Column with the watermark that a row which was not counted was judged by.
pub const WATERMARK: &str = "_watermark";

/// Column with the reason for which a row was not counted.
pub const REASON: &str = "_reason";

/// What stands behind the clause's columns in a table of rows that were not counted: names of its columns.
pub const ASIDE: [&str; 7] = [
    "_epoch",
    WATERMARK,
    "_late_by",
    "_window_start",
    "_window_end",
    "_operator",
    REASON,
];

/// A query that keeps the rows which it does not count.
#[derive(Debug, Clone)]
pub struct Carrying {
    /// The query.
    pub plan: LogicalPlan,
    /// Columns of the rows: those of the clauses, then [`ASIDE`].
    pub schema: SchemaRef,
}

/// Makes the clauses and operators of an analyzed query give the rows that they do not count. With a guard against
/// event times of the future a clause leaves rows out by itself.
///
/// # Errors
/// - nothing would ever drop a row
/// - a row does not reach the operator whole, or its columns cannot be those of a table
pub fn carry_rows(plan: LogicalPlan, guarded: bool) -> Result<Carrying> {
    let whole = Whole::of(&plan)?;
    let carried = plan.transform_down(|node| whole.keep(node))?;
    let gives_rows = carried.transformed || guarded && whole.has_clause();
    if !gives_rows {
        return Err(Refusal::new(
            "LATE_ROWS_WITHOUT_OPERATOR",
            "42616",
            "late_rows keeps nothing: the query has no operator that drops late rows.",
        )
        .hint("group by a time window behind a WATERMARK clause, or leave late_rows out")
        .into());
    }
    Ok(Carrying {
        plan: carried.data.transform_up(keeping)?.data,
        schema: whole.schema(),
    })
}

/// A clause that keeps the rows which it leaves out itself.
fn keeping(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Extension(Extension { node }) = &plan else {
        return Ok(Transformed::no(plan));
    };
    match node.as_any().downcast_ref::<Watermark>() {
        Some(clause) => Ok(Transformed::yes(extension(Watermark {
            keeps_rows: true,
            ..clause.clone()
        }))),
        None => Ok(Transformed::no(plan)),
    }
}

/// A row as it reaches its clause: what all clauses of a query have together.
struct Whole {
    fields: Vec<Field>,
    unit: TimeUnit,
    /// Zone of the times in the table.
    zone: Option<Arc<str>>,
    /// What numbers rows, where a join may copy them.
    number: Option<Arc<ScalarUDF>>,
}

impl Whole {
    fn of(plan: &LogicalPlan) -> Result<Self> {
        let (mut fields, mut times, mut unit) = (Vec::new(), Vec::new(), Unit::Second);
        let mut copies = false;
        plan.apply(|node| {
            copies |= matches!(node, LogicalPlan::Join(_));
            let LogicalPlan::Extension(Extension { node }) = node else {
                return Ok(TreeNodeRecursion::Continue);
            };
            if let Some(clause) = node.as_any().downcast_ref::<Watermark>() {
                add_fields(&mut fields, clause)?;
                let at = clause.event_time_index()?;
                times.push(clause.input.schema().field(at).data_type().clone());
            }
            if let Some(aggregate) = node.as_any().downcast_ref::<StreamAggregate>() {
                unit = unit.max(bound_unit(aggregate));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let zone = times.iter().find_map(|time| match time {
            DataType::Timestamp(_, zone) => Some(zone.clone()),
            _ => None,
        });
        for time in &times {
            if let DataType::Timestamp(of, _) = time {
                unit = unit.max(unit_of(of));
            }
        }
        let unit = arrow_unit(unit);
        Ok(Self {
            fields,
            unit,
            zone: zone.flatten(),
            number: copies.then(|| Arc::new(ScalarUDF::from(RowNumber::new()))),
        })
    }

    fn has_clause(&self) -> bool {
        !self.fields.is_empty()
    }

    /// Schema of the table of rows.
    fn schema(&self) -> SchemaRef {
        let time = || DataType::Timestamp(self.unit, self.zone.clone());
        let types = [
            DataType::UInt64,
            time(),
            DataType::Duration(self.unit),
            time(),
            time(),
            DataType::Utf8,
            DataType::Utf8,
        ];
        let aside = ASIDE.iter().zip(types);
        let aside = aside.map(|(name, data_type)| Field::new(*name, data_type, true));
        Arc::new(Schema::new(
            self.fields.iter().cloned().chain(aside).collect::<Vec<_>>(),
        ))
    }

    /// Carries rows to a node, if it may drop some.
    fn keep(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Extension(Extension { node }) = &plan else {
            return Ok(Transformed::no(plan));
        };
        if let Some(aggregate) = node.as_any().downcast_ref::<StreamAggregate>()
            && aggregate.time.is_some()
            && aggregate.row.is_none()
            && reads_rows(&aggregate.input)?
        {
            let (input, row) = self.carried(aggregate.input.clone())?;
            let mut aggregate = aggregate.clone();
            (aggregate.input, aggregate.row) = (input, Some(Expr::Column(row)));
            return Ok(Transformed::yes(extension(aggregate)));
        }
        if let Some(dedup) = node.as_any().downcast_ref::<StreamDeduplicate>()
            && !dedup.keeps_rows
            && reads_rows(&dedup.input)?
        {
            let (input, row) = self.carried(dedup.input.clone())?;
            let mut dedup = dedup.clone();
            (dedup.input, dedup.keeps_rows) = (with_row_last(input, &row)?, true);
            return Ok(Transformed::yes(extension(dedup)));
        }
        Ok(Transformed::no(plan))
    }

    /// A plan with its rows, as they reached their clause, in one more column.
    fn carried(&self, plan: LogicalPlan) -> Result<(LogicalPlan, Column)> {
        match plan {
            LogicalPlan::Extension(Extension { ref node }) => {
                match node.as_any().downcast_ref::<Watermark>() {
                    Some(clause) => self.at_clause(clause),
                    None => Err(cut_off(node.name())),
                }
            }
            LogicalPlan::Projection(projection) => {
                let (input, row) = self.carried(Arc::unwrap_or_clone(projection.input))?;
                let exprs = projection.expr.into_iter();
                let exprs = exprs.chain([Expr::Column(row.clone()).alias(ROW)]);
                let plan = LogicalPlanBuilder::from(input)
                    .project(exprs.collect::<Vec<_>>())?
                    .build()?;
                Ok((plan, Column::new_unqualified(ROW)))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let (input, row) = self.carried(Arc::unwrap_or_clone(alias.input))?;
                let plan = LogicalPlanBuilder::from(input).alias(alias.alias.clone())?;
                Ok((plan.build()?, Column::new(Some(alias.alias), row.name)))
            }
            LogicalPlan::Union(union) => self.through_union(&union),
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::Repartition(_) => {
                self.through(&plan)
            }
            other => Err(cut_off(&other.display().to_string())),
        }
    }

    /// The rows of a clause.
    fn at_clause(&self, clause: &Watermark) -> Result<(LogicalPlan, Column)> {
        let schema = clause.input.schema();
        let mut parts = Vec::new();
        for field in &self.fields {
            let found = schema
                .fields()
                .iter()
                .position(|one| one.name() == field.name());
            let value = match found {
                Some(at) => Expr::Column(Column::from(schema.qualified_field(at))),
                None => lit(ScalarValue::try_from(field.data_type())?),
            };
            parts.extend([lit(field.name().as_str()), value]);
        }
        let event_time = Expr::Column(clause.event_time.clone());
        // Without a zone a time is what it is in UTC: the clauses of a query may differ in theirs.
        let unzoned = DataType::Timestamp(self.unit, None);
        parts.extend([lit(EVENT_TIME), try_cast(event_time, unzoned)]);
        if let Some(number) = &self.number {
            parts.extend([lit(NUMBER), number.call(vec![])]);
        }
        let columns = schema.iter().map(|field| Expr::Column(Column::from(field)));
        let columns = columns.chain([named_struct(parts).alias(ROW)]);
        let plan = LogicalPlanBuilder::from(extension(clause.clone()))
            .project(columns.collect::<Vec<_>>())?
            .build()?;
        Ok((plan, Column::new_unqualified(ROW)))
    }

    /// Rows of all inputs of a union: the column is the last one of each.
    fn through_union(&self, union: &Union) -> Result<(LogicalPlan, Column)> {
        let inputs = union.inputs.iter().map(|input| {
            let (input, row) = self.carried(input.as_ref().clone())?;
            Ok(Arc::new(with_row_last(input, &row)?))
        });
        let union = Union::try_new(inputs.collect::<Result<Vec<_>>>()?)?;
        let last = union.schema.fields().len().saturating_sub(1);
        let row = Column::from(union.schema.qualified_field(last));
        Ok((LogicalPlan::Union(union), row))
    }

    /// A node that passes on the columns of the one input that is a stream.
    fn through(&self, plan: &LogicalPlan) -> Result<(LogicalPlan, Column)> {
        let mut row = None;
        let mut inputs = Vec::new();
        for input in plan.inputs() {
            if row.is_none() && marks(input)?.streaming {
                let (input, column) = self.carried(input.clone())?;
                inputs.push(input);
                row = Some(column);
            } else {
                inputs.push(input.clone());
            }
        }
        let carried = plan.with_new_exprs(plan.expressions(), inputs)?;
        let row = row.filter(|row| carried.schema().has_column(row));
        let row = row.ok_or_else(|| cut_off(&plan.display().to_string()))?;
        Ok((carried, row))
    }
}

/// Adds the columns that a clause has.
fn add_fields(fields: &mut Vec<Field>, clause: &Watermark) -> Result<()> {
    let mut names = HashSet::new();
    for field in clause.input.schema().fields() {
        let name = field.name();
        let of_ours =
            ASIDE.contains(&name.as_str()) || [EVENT_TIME, NUMBER].contains(&name.as_str());
        let known = fields.iter().find(|one| one.name() == name);
        let other = known.is_some_and(|one| one.data_type() != field.data_type());
        let new = known.is_none();
        if of_ours || other || !names.insert(name) {
            let why = match of_ours {
                true => "a column of the table of late rows has that name",
                false => "another column has that name",
            };
            return Err(Refusal::new(
                "LATE_ROWS_COLUMN",
                "42711",
                format!("late_rows: the column '{name}' cannot be kept: {why}."),
            )
            .hint("read the stream through a subquery that gives it another name: FROM (SELECT …, c AS d FROM STREAM t) WATERMARK …")
            .into());
        }
        if new {
            fields.push(Field::new(name, field.data_type().clone(), true));
        }
    }
    Ok(())
}

/// Whether the rows of a plan come from a clause, and not from an operator.
fn reads_rows(plan: &LogicalPlan) -> Result<bool> {
    let marks = marks(plan)?;
    let clause = |node: &LogicalPlan| match node {
        LogicalPlan::Extension(Extension { node }) => node.as_any().is::<Watermark>(),
        _ => false,
    };
    Ok(marks.streaming && !marks.emitted && plan.exists(|node| Ok(clause(node)))?)
}

/// Unit of the bounds of an aggregate's windows.
fn bound_unit(aggregate: &StreamAggregate) -> Unit {
    match aggregate.time.as_ref().map(|time| &time.value) {
        Some(TimeValue::Windows(spec) | TimeValue::WindowColumn(spec)) => spec.shape.unit(),
        Some(TimeValue::Session(spec, _)) => spec.unit,
        Some(TimeValue::Instant(unit)) => *unit,
        Some(TimeValue::Bin(_)) | None => Unit::Second,
    }
}

/// A plan whose last column is the carried row.
fn with_row_last(plan: LogicalPlan, row: &Column) -> Result<LogicalPlan> {
    let schema = plan.schema();
    let at = schema.index_of_column(row)?;
    let last = schema.fields().len().checked_sub(1);
    if Some(at) == last {
        return Ok(plan);
    }
    let columns = schema.iter().map(|field| Expr::Column(Column::from(field)));
    let mut columns: Vec<Expr> = columns.collect();
    let row = columns.remove(at);
    columns.push(row);
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// The error of a row that does not get to its operator whole.
fn cut_off(what: &str) -> datafusion::common::DataFusionError {
    let what = what.split(':').next().unwrap_or(what);
    Refusal::new(
        "LATE_ROWS_NOT_WHOLE",
        "42616",
        format!("late_rows: rows do not get from the WATERMARK clause to the operator that drops them as they were: {what} stands between."),
    )
    .hint("leave late_rows out: late rows are counted all the same")
    .into()
}
