//! The mark: which columns of a plan carry the event time of a WATERMARK clause, or a window of it.
//!
//! A mark starts at a [`Watermark`] node and travels with the column through names, projections,
//! filters and joins; a window or a monotone bin of a marked column is marked in its own way. Any
//! other expression loses it: `ts + INTERVAL '1' HOUR` is not what the watermark speaks of.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, Extension, LogicalPlan};

use super::aggregate::StreamAggregate;
use super::bins::bin;
use super::deduplicate::StreamDeduplicate;
use super::group_time::Bin;
use super::scan::is_stream_scan;
use super::time_window::{SessionSpec, TimeWindow, WindowSpec, Windows};
use super::watermark::Watermark;
use crate::config::unit_of;
use crate::time::{Span, Unit};

/// What a marked column holds. Each has with it how long before the moment that the watermark speaks of
/// it may come: a window of windows in nanoseconds closes a little after its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The event time.
    EventTime(Span),
    /// A window of it: `Struct(start, end)`.
    Window(WindowSpec, Span),
    /// A session of it: `Struct(start, end)`.
    Session(SessionSpec, Span),
    /// A bound of such a window.
    Bound(WindowSpec, String, Span),
    /// A monotone function of it.
    Bin(Bin, Span),
}

/// What the rows of a plan are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    /// Whether they come from a stream.
    pub streaming: bool,
    /// Whether an operator with state emitted them: they are not judged late again.
    pub emitted: bool,
    /// Whether an aggregate emitted them: the rows of a window come together, in one epoch.
    pub aggregated: bool,
    /// Mark of each column.
    pub columns: Vec<Option<Mark>>,
}

impl Marks {
    fn none(plan: &LogicalPlan, streaming: bool) -> Self {
        Self {
            streaming,
            emitted: false,
            aggregated: false,
            columns: vec![None; plan.schema().fields().len()],
        }
    }

    fn with_columns(self, columns: Vec<Option<Mark>>) -> Self {
        Self { columns, ..self }
    }
}

/// Marks of a plan's columns.
pub(crate) fn marks(plan: &LogicalPlan) -> Result<Marks> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let input = marks(&projection.input)?;
            let columns = through(&projection.expr, projection.input.schema(), &input);
            Ok(input.with_columns(columns))
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_) => first_input(plan),
        LogicalPlan::Aggregate(aggregate) => {
            let input = marks(&aggregate.input)?;
            let mut columns = through(&aggregate.group_expr, aggregate.input.schema(), &input);
            columns.resize(plan.schema().fields().len(), None);
            Ok(Marks {
                emitted: input.streaming,
                aggregated: input.streaming,
                ..input
            }
            .with_columns(columns))
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (marks(&join.left)?, marks(&join.right)?);
            Ok(joined(plan, join.join_type, left, right))
        }
        LogicalPlan::Union(union) => {
            let inputs = union
                .inputs
                .iter()
                .map(|input| marks(input))
                .collect::<Result<Vec<_>>>()?;
            Ok(united(plan, &inputs))
        }
        LogicalPlan::Extension(extension) => of_extension(plan, extension),
        _ if is_stream_scan(plan) => Ok(Marks::none(plan, true)),
        _ => by_name(plan),
    }
}

fn first_input(plan: &LogicalPlan) -> Result<Marks> {
    match plan.inputs().first() {
        Some(input) => marks(input),
        None => Ok(Marks::none(plan, false)),
    }
}

/// Marks of our own nodes.
fn of_extension(plan: &LogicalPlan, extension: &Extension) -> Result<Marks> {
    let node = extension.node.as_any();
    if let Some(watermark) = node.downcast_ref::<Watermark>() {
        let input = marks(&watermark.input)?;
        // The clause nearest to the reader names the event time: an inner one's mark ends here.
        let mut columns = vec![None; input.columns.len()];
        if input.streaming
            && let Some(column) = columns.get_mut(watermark.event_time_index()?)
        {
            *column = Some(Mark::EventTime(Span::ZERO));
        }
        return Ok(input.with_columns(columns));
    }
    if let Some(window) = node.downcast_ref::<TimeWindow>() {
        let mut input = marks(&window.input)?;
        let event_time = time_mark(&window.time, window.input.schema(), &input);
        let mark = match (event_time, &window.windows) {
            (Some(Mark::EventTime(behind)), Windows::Fixed(spec)) => {
                Some(Mark::Window(spec.clone(), behind))
            }
            (Some(Mark::EventTime(behind)), Windows::Session(spec, _)) => {
                Some(Mark::Session(spec.clone(), behind))
            }
            _ => None,
        };
        input.columns.push(mark);
        return Ok(input);
    }
    if let Some(aggregate) = node.downcast_ref::<StreamAggregate>() {
        return aggregate.marks();
    }
    if let Some(dedup) = node.downcast_ref::<StreamDeduplicate>() {
        let mut input = marks(&dedup.input)?;
        input.columns.truncate(dedup.outputs);
        input.emitted = true;
        return Ok(input);
    }
    first_input(plan)
}

/// Nodes that name their columns anew, such as UNNEST: a column keeps the mark of the input column of
/// its name and type.
fn by_name(plan: &LogicalPlan) -> Result<Marks> {
    let inputs = plan.inputs();
    let mut all = Marks::none(plan, false);
    for input in inputs {
        let inner = marks(input)?;
        all.streaming |= inner.streaming;
        all.emitted |= inner.emitted;
        all.aggregated |= inner.aggregated;
        for (at, (qualifier, field)) in plan.schema().iter().enumerate() {
            let column = Column::new(qualifier.cloned(), field.name());
            if let Ok(index) = input.schema().index_of_column(&column)
                && input.schema().field(index).data_type() == field.data_type()
                && let Some(slot) = all.columns.get_mut(at)
            {
                slot.clone_from(&inner.columns.get(index).cloned().flatten());
            }
        }
    }
    Ok(all)
}

fn joined(plan: &LogicalPlan, join_type: JoinType, left: Marks, right: Marks) -> Marks {
    let streaming = left.streaming || right.streaming;
    let emitted = left.emitted || right.emitted;
    let aggregated = left.aggregated || right.aggregated;
    let mut columns = match join_type {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right.columns,
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left.columns,
        _ => left.columns.into_iter().chain(right.columns).collect(),
    };
    columns.resize(plan.schema().fields().len(), None);
    Marks {
        streaming,
        emitted,
        aggregated,
        columns,
    }
}

/// A column of a union is marked when it is in every input, in the same way.
fn united(plan: &LogicalPlan, inputs: &[Marks]) -> Marks {
    let columns = (0..plan.schema().fields().len())
        .map(|at| {
            let first = inputs.first()?.columns.get(at)?.clone();
            inputs
                .iter()
                .all(|input| input.columns.get(at) == Some(&first))
                .then_some(first)?
        })
        .collect();
    Marks {
        streaming: inputs.iter().any(|input| input.streaming),
        emitted: inputs.iter().any(|input| input.emitted),
        aggregated: inputs.iter().all(|input| input.aggregated),
        columns,
    }
}

/// Marks of expressions over a marked input.
pub(crate) fn through(exprs: &[Expr], schema: &DFSchema, input: &Marks) -> Vec<Option<Mark>> {
    exprs
        .iter()
        .map(|expr| expr_mark(expr, schema, input))
        .collect()
}

/// Mark of one expression over a marked input.
pub(crate) fn expr_mark(expr: &Expr, schema: &DFSchema, input: &Marks) -> Option<Mark> {
    match expr {
        Expr::Alias(alias) => expr_mark(&alias.expr, schema, input),
        Expr::Column(column) => {
            let index = schema.index_of_column(column).ok()?;
            input.columns.get(index).cloned().flatten()
        }
        Expr::ScalarFunction(function) => function_mark(expr, function, schema, input),
        _ => None,
    }
}

/// Mark of the time of a window: a cast to a finer unit, which the window's sizes may need, keeps it.
pub(crate) fn time_mark(time: &Expr, schema: &DFSchema, input: &Marks) -> Option<Mark> {
    let Expr::TryCast(cast) = time else {
        return expr_mark(time, schema, input);
    };
    match (cast.expr.get_type(schema).ok()?, cast.field.data_type()) {
        (DataType::Timestamp(from, zone), DataType::Timestamp(to, same))
            if zone == *same && unit_of(to) >= unit_of(&from) =>
        {
            expr_mark(&cast.expr, schema, input)
        }
        _ => None,
    }
}

/// How far `window_time` may be before the last tick of its window: it is a microsecond before the end,
/// and the unit may be finer.
fn before_end(unit: Unit) -> Span {
    match unit {
        Unit::Nanosecond => Span::from_nanos(999),
        Unit::Second | Unit::Millisecond | Unit::Microsecond => Span::ZERO,
    }
}

fn function_mark(
    expr: &Expr,
    function: &ScalarFunction,
    schema: &DFSchema,
    input: &Marks,
) -> Option<Mark> {
    match function.name() {
        "window_time" => match expr_mark(function.args.first()?, schema, input)? {
            Mark::Window(spec, behind) => {
                Some(Mark::EventTime(before_end(spec.shape.unit()).plus(behind)))
            }
            Mark::Session(spec, behind) => {
                Some(Mark::EventTime(before_end(spec.unit).plus(behind)))
            }
            _ => None,
        },
        "get_field" => match (
            expr_mark(function.args.first()?, schema, input)?,
            function.args.get(1)?,
        ) {
            (Mark::Window(spec, behind), Expr::Literal(field, _)) => {
                let field = field.try_as_str().flatten()?.to_owned();
                Some(Mark::Bound(spec, field, behind))
            }
            _ => None,
        },
        "date_bin" | "date_trunc" => bin(expr, function, schema, input),
        _ => None,
    }
}
