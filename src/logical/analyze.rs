//! From the plan a query was parsed to, to the plan that can run in epochs.
//!
//! The steps, each over the whole plan from the leaves up:
//!
//! 1. [`streaming_node`]: a WATERMARK clause over a finite table is a no-op and goes; DISTINCT over a
//!    stream is an aggregate, DISTINCT ON a [`StreamDeduplicate`]; an aggregate over a stream becomes a
//!    [`StreamAggregate`], taking the [`TimeWindow`] below it if nothing else uses its column.
//! 2. [`expand`]: a [`TimeWindow`] that is left becomes a projection, and an UNNEST if windows hop.
//! 3. [`number`]: clauses and aggregates get their numbers, by which they find their state.
//! 4. [`check`]: what a stream cannot do is refused.
//! 5. [`with_event_times`]: every stream is told its event time, by which its first rows may be ordered.
//! 6. [`root`]: the streaming part goes under a [`StreamQuery`]. Operators that need the whole input,
//!    such as a sort, stay above it and see the rows of all epochs.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, Extension, FetchType, Filter, Limit, LogicalPlan,
    LogicalPlanBuilder, ScalarUDF, cast,
};
use datafusion::optimizer::AnalyzerRule;

use super::aggregate::StreamAggregate;
use super::check;
use super::deduplicate::StreamDeduplicate;
use super::group_time::{GroupTime, TimeValue};
use super::grouping_sets::sets_of;
use super::initial_order::with_event_times;
use super::marks::{Mark, Marks, expr_mark, marks, time_mark};
use super::query::{StreamQuery, extension};
use super::scan::{is_stream_scan, stream_scan, stream_scans};
use super::time_window::{TimeWindow, Windows};
use super::watermark::Watermark;
use super::windows::WindowBounds;
use crate::config::{OutputMode, TidegateOptions, WatermarkPolicy, options, unit_of};
use crate::error::{Place, refusal};
use crate::time::Span;

/// The analyzer rule that DataFusion runs: [`analyze`] with the session's settings.
#[derive(Debug, Default)]
pub struct StreamAnalyzer;

impl AnalyzerRule for StreamAnalyzer {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let options = options(config);
        analyze(plan, &options)
    }

    fn name(&self) -> &str {
        "tidegate_streams"
    }
}

/// Makes a plan ready to run in epochs; a plan without our nodes is returned as it is.
///
/// # Errors
/// - what a stream cannot do, each with its condition name
pub fn analyze(plan: LogicalPlan, options: &TidegateOptions) -> Result<LogicalPlan> {
    if !concerns(&plan)? {
        return Ok(plan);
    }
    let place = first_place(&plan)?;
    analyzed(plan, options).map_err(|error| match refusal(&error) {
        // What has no place of its own is shown at the stream it is about.
        Some(found) if found.place.is_none() => found.clone().at(place).into(),
        _ => error,
    })
}

/// A plan without the places of its text: a view is read by texts that are not its own.
///
/// # Errors
/// - none of its own
pub fn without_places(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match &node {
        LogicalPlan::TableScan(scan) => match stream_scan(&scan.source) {
            Some(stream) => {
                let mut scan = scan.clone();
                scan.source = Arc::new(stream.without_place());
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            None => Ok(Transformed::no(node)),
        },
        LogicalPlan::Extension(found) => match found.node.as_any().downcast_ref::<TimeWindow>() {
            Some(window) => Ok(Transformed::yes(extension(TimeWindow {
                place: None,
                ..window.clone()
            }))),
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(plan.data)
}

/// Place of the first stream of a plan that has one.
fn first_place(plan: &LogicalPlan) -> Result<Option<Place>> {
    let scans = stream_scans(plan)?;
    Ok(scans
        .iter()
        .filter_map(stream_scan)
        .find_map(|scan| scan.place))
}

fn analyzed(plan: LogicalPlan, options: &TidegateOptions) -> Result<LogicalPlan> {
    let (mode, policy) = (options.output_mode, options.multiple_watermark_policy);
    check::no_streaming_subqueries(&plan)?;
    let plan = plan
        .transform_up_with_subqueries(|node| streaming_node(node, mode))?
        .data
        .transform_up_with_subqueries(expand)?
        .data;
    check::check(&plan, mode)?;
    check::complete_has_groups(&plan, mode)?;
    let plan = with_event_times(plan, options.initial_order, policy)?;
    number(root(plan, mode, policy)?)
}

/// Whether a plan has anything of ours that is not analyzed yet.
fn concerns(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::Extension(extension) = node else {
            found |= is_stream_scan(node);
            return Ok(TreeNodeRecursion::Continue);
        };
        let node = extension.node.as_any();
        if node.is::<StreamQuery>() {
            return Ok(TreeNodeRecursion::Jump);
        }
        found |= node.is::<Watermark>() || node.is::<TimeWindow>();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Step 1 at one node.
fn streaming_node(plan: LogicalPlan, mode: OutputMode) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Extension(Extension { ref node }) => {
            if let Some(watermark) = node.as_any().downcast_ref::<Watermark>()
                && !marks(&watermark.input)?.streaming
            {
                return Ok(Transformed::yes(watermark.input.clone()));
            }
            Ok(Transformed::no(plan))
        }
        LogicalPlan::Distinct(Distinct::All(ref input)) => {
            if !marks(input)?.streaming {
                return Ok(Transformed::no(plan));
            }
            let columns = input
                .schema()
                .iter()
                .map(|field| Expr::Column(Column::from(field)));
            let aggregate = Aggregate::try_new(Arc::clone(input), columns.collect(), vec![])?;
            Ok(Transformed::yes(stream_aggregate(aggregate, mode)?))
        }
        LogicalPlan::Distinct(Distinct::On(on)) => {
            if !marks(&on.input)?.streaming {
                return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::On(on))));
            }
            Ok(Transformed::yes(stream_deduplicate(on)?))
        }
        LogicalPlan::Aggregate(aggregate) => {
            if marks(&aggregate.input)?.streaming {
                return Ok(Transformed::yes(stream_aggregate(aggregate, mode)?));
            }
            // Sessions of a finite table are found by our nodes too, all at once.
            match fold_window(&aggregate)? {
                Some((.., window)) if matches!(window.windows, Windows::Session(..)) => Ok(
                    Transformed::yes(stream_aggregate(aggregate, OutputMode::Complete)?),
                ),
                _ => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
            }
        }
        LogicalPlan::Limit(limit) if takes_nothing(&limit)? && marks(&limit.input)?.streaming => {
            // Nothing needs an order; DataFusion's sort does not take a limit of nothing.
            let unsorted =
                Arc::unwrap_or_clone(Arc::clone(&limit.input)).transform_up(|node| match node {
                    LogicalPlan::Sort(sort) => {
                        Ok(Transformed::yes(Arc::unwrap_or_clone(sort.input)))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
            Ok(Transformed::yes(LogicalPlan::Limit(Limit {
                input: Arc::new(unsorted.data),
                ..limit
            })))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether a LIMIT is 0.
fn takes_nothing(limit: &Limit) -> Result<bool> {
    Ok(matches!(
        limit.get_fetch_type()?,
        FetchType::Literal(Some(0))
    ))
}

/// `DISTINCT ON` over a stream: the columns that are selected, the keys and the event time in one
/// projection, and the deduplication above it.
fn stream_deduplicate(on: DistinctOn) -> Result<LogicalPlan> {
    let input_marks = marks(&on.input)?;
    let schema = on.input.schema();
    let time = input_marks
        .columns
        .iter()
        .position(|mark| matches!(mark, Some(Mark::EventTime(_))));
    let Some(time) = time else {
        return Err(check::keys_for_ever());
    };
    if on.sort_expr.is_some() {
        return Err(check::ordered_deduplication());
    }
    if on.select_expr.is_empty() {
        return Err(check::nothing_selected());
    }
    let time = Expr::Column(Column::from(schema.qualified_field(time)));
    let by_time = on.on_expr.contains(&time);
    let keys = on.on_expr.len();
    let outputs = on.select_expr.len();
    // Under a qualifier of their own they cannot meet a column of the user's.
    let own = || Some(TableReference::bare("__tidegate_on"));
    let named = |at: usize, expr: Expr| expr.alias_qualified(own(), format!("key{at}"));
    let keyed = on
        .on_expr
        .into_iter()
        .enumerate()
        .map(|(at, expr)| named(at, expr));
    let columns = on
        .select_expr
        .into_iter()
        .chain(keyed)
        .chain([time.alias_qualified(own(), "event_time")]);
    let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(on.input))
        .project(columns.collect::<Vec<_>>())?
        .build()?;
    let node = StreamDeduplicate {
        hold: if by_time {
            Span::ZERO
        } else {
            greatest_delay(&input)?
        },
        input,
        outputs,
        keys,
        judges: !input_marks.emitted,
        id: None,
        keeps_rows: false,
        schema: on.schema,
    };
    Ok(extension(node))
}

/// The greatest delay of the clauses below.
fn greatest_delay(plan: &LogicalPlan) -> Result<Span> {
    let mut delay = Span::ZERO;
    plan.apply(|node| {
        if let LogicalPlan::Extension(extension) = node
            && let Some(watermark) = extension.node.as_any().downcast_ref::<Watermark>()
        {
            delay = delay.max(watermark.delay);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(delay)
}

/// An aggregate over a stream.
fn stream_aggregate(aggregate: Aggregate, mode: OutputMode) -> Result<LogicalPlan> {
    let sets = sets_of(&aggregate.group_expr)?;
    let (input, folded) = match fold_window(&aggregate)? {
        Some((input, position, window)) => (input, Some((position, window))),
        None => (Arc::unwrap_or_clone(Arc::clone(&aggregate.input)), None),
    };
    if folded.is_none() {
        check::no_session_below(&input)?;
    }
    let input_marks = marks(&input)?;
    let time = match folded {
        Some((position, window)) => Some(window_time(position, &window, &input_marks)),
        None => value_time(&sets.exprs, &input, &input_marks)?,
    };
    check::grouping_sets(mode, &sets, time.as_ref())?;
    let mut keys = sets.exprs;
    if let Some(time) = &time {
        keys.remove(time.position);
    }
    check::emits(mode, time.as_ref(), &keys, &input, &input_marks)?;
    let judges = !input_marks.emitted;
    let mut node = StreamAggregate::new(
        input,
        time,
        keys,
        aggregate.aggr_expr,
        mode,
        judges,
        aggregate.schema,
    );
    node.left_out = sets.left_out;
    Ok(extension(node))
}

/// The grouping time of a folded window.
fn window_time(position: usize, window: &TimeWindow, input: &Marks) -> GroupTime {
    let mark = time_mark(&window.time, window.input.schema(), input);
    let value = match &window.windows {
        Windows::Fixed(spec) => TimeValue::Windows(spec.clone()),
        Windows::Session(spec, gap) => TimeValue::Session(spec.clone(), gap.clone()),
    };
    GroupTime {
        position,
        expr: window.time.clone(),
        value,
        closes: matches!(mark, Some(Mark::EventTime(_))),
        behind: behind(mark.as_ref()),
    }
}

/// How far a marked time may be before the moment that the watermark speaks of.
fn behind(mark: Option<&Mark>) -> Span {
    match mark {
        Some(
            Mark::EventTime(behind)
            | Mark::Window(_, behind)
            | Mark::Session(_, behind)
            | Mark::Bound(_, _, behind)
            | Mark::Bin(_, behind),
        ) => *behind,
        None => Span::ZERO,
    }
}

/// The first grouping expression whose value carries the mark.
fn value_time(
    group: &[Expr],
    input: &LogicalPlan,
    input_marks: &Marks,
) -> Result<Option<GroupTime>> {
    use datafusion::logical_expr::ExprSchemable;
    for (position, expr) in group.iter().enumerate() {
        let mark = expr_mark(expr, input.schema(), input_marks);
        let behind = behind(mark.as_ref());
        let value = match mark {
            Some(Mark::Window(spec, _)) => TimeValue::WindowColumn(spec),
            Some(Mark::Bin(bin, _)) => TimeValue::Bin(bin),
            Some(Mark::EventTime(_)) => match expr.get_type(input.schema().as_ref())? {
                DataType::Timestamp(unit, _) => TimeValue::Instant(unit_of(&unit)),
                _ => continue,
            },
            Some(Mark::Bound(..) | Mark::Session(..)) | None => continue,
        };
        let expr = expr.clone();
        return Ok(Some(GroupTime {
            position,
            expr,
            value,
            behind,
            closes: true,
        }));
    }
    Ok(None)
}

/// Takes the window out from under an aggregate that groups by it and uses it nowhere else: the
/// filters between stay, the [`TimeWindow`] goes.
fn fold_window(aggregate: &Aggregate) -> Result<Option<(LogicalPlan, usize, TimeWindow)>> {
    let mut filters: Vec<Expr> = Vec::new();
    let mut below = aggregate.input.as_ref();
    while let LogicalPlan::Filter(filter) = below {
        filters.push(filter.predicate.clone());
        below = filter.input.as_ref();
    }
    let LogicalPlan::Extension(extension) = below else {
        return Ok(None);
    };
    let Some(window) = extension.node.as_any().downcast_ref::<TimeWindow>() else {
        return Ok(None);
    };
    let (qualifier, field) = extension
        .node
        .schema()
        .qualified_field(window.window_index());
    let column = Column::new(qualifier.cloned(), field.name());
    let group = sets_of(&aggregate.group_expr)?.exprs;
    let position = group
        .iter()
        .position(|expr| *expr == Expr::Column(column.clone()));
    let uses = group.iter().chain(&aggregate.aggr_expr).chain(&filters);
    let used = uses
        .filter(|expr| expr.column_refs().contains(&column))
        .count();
    let Some(position) = position.filter(|_| used == 1) else {
        return Ok(None);
    };
    let mut input = window.input.clone();
    for predicate in filters.into_iter().rev() {
        input = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
    }
    Ok(Some((input, position, window.clone())))
}

/// Step 2 at one node: the window of each row as a projection, and UNNEST where windows hop. Rows
/// without a window, those whose time is null or out of range, leave.
fn expand(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Extension(extension) = &plan else {
        return Ok(Transformed::no(plan));
    };
    let Some(window) = extension.node.as_any().downcast_ref::<TimeWindow>() else {
        return Ok(Transformed::no(plan));
    };
    let Windows::Fixed(spec) = &window.windows else {
        return Err(check::session_without_group(window.place));
    };
    let (qualifier, field) = extension
        .node
        .schema()
        .qualified_field(window.window_index());
    let hops = spec.shape.hops();
    // What is unnested has a name of its own: the optimizer takes fields of a column below the projection
    // that names it, and would meet the same name there.
    let name = if hops {
        format!("{}_each", field.name())
    } else {
        field.name().clone()
    };
    let column = Column::new(qualifier.cloned(), &name);
    let bounds = ScalarUDF::from(WindowBounds::new(spec.clone()));
    let time = cast(window.time.clone(), spec.bound_type());
    let call = match qualifier {
        Some(qualifier) => bounds
            .call(vec![time])
            .alias_qualified(Some(qualifier.clone()), &name),
        None => bounds.call(vec![time]).alias(&name),
    };
    let columns: Vec<Expr> = window
        .input
        .schema()
        .iter()
        .map(|field| Expr::Column(Column::from(field)))
        .collect();
    let with_window = columns.iter().cloned().chain([call]);
    let mut builder = LogicalPlanBuilder::from(window.input.clone())
        .project(with_window.collect::<Vec<_>>())?
        .filter(Expr::Column(column.clone()).is_not_null())?;
    if hops {
        // UNNEST gives its column a plain name: it gets the relation's back.
        let index = builder.schema().index_of_column(&column)?;
        builder = builder.unnest_column(column)?;
        let unnested = Column::from(builder.schema().qualified_field(index));
        let named = Expr::Column(unnested).alias_qualified(qualifier.cloned(), field.name());
        builder = builder.project(columns.into_iter().chain([named]).collect::<Vec<_>>())?;
    }
    Ok(Transformed::yes(builder.build()?))
}

/// Step 3: numbers in the order of the plan.
fn number(plan: LogicalPlan) -> Result<LogicalPlan> {
    let (mut clauses, mut operators) = (0, 0);
    let plan = plan.transform_up(|plan| {
        let LogicalPlan::Extension(node) = &plan else {
            return Ok(Transformed::no(plan));
        };
        if let Some(watermark) = node.node.as_any().downcast_ref::<Watermark>() {
            let id = Some(clauses);
            clauses += 1;
            return Ok(Transformed::yes(extension(Watermark {
                id,
                ..watermark.clone()
            })));
        }
        if let Some(aggregate) = node.node.as_any().downcast_ref::<StreamAggregate>()
            && marks(&aggregate.input)?.streaming
        {
            let id = Some(operators);
            operators += 1;
            let mut aggregate = aggregate.clone();
            aggregate.id = id;
            return Ok(Transformed::yes(extension(aggregate)));
        }
        if let Some(dedup) = node.node.as_any().downcast_ref::<StreamDeduplicate>() {
            let id = Some(operators);
            operators += 1;
            return Ok(Transformed::yes(extension(StreamDeduplicate {
                id,
                ..dedup.clone()
            })));
        }
        Ok(Transformed::no(plan))
    })?;
    Ok(plan.data)
}

/// Step 6: puts the streaming part under one root.
fn root(plan: LogicalPlan, mode: OutputMode, policy: WatermarkPolicy) -> Result<LogicalPlan> {
    if !marks(&plan)?.streaming {
        return Ok(plan);
    }
    if check::stays_above(&plan, mode) || has_operators_above(&plan, mode)? {
        let inputs = plan
            .inputs()
            .into_iter()
            .map(|input| root(input.clone(), mode, policy))
            .collect::<Result<Vec<_>>>()?;
        return plan.with_new_exprs(plan.expressions(), inputs);
    }
    Ok(extension(StreamQuery {
        input: plan,
        mode,
        policy,
    }))
}

/// Whether an operator that sees the whole result stands somewhere below.
fn has_operators_above(plan: &LogicalPlan, mode: OutputMode) -> Result<bool> {
    plan.exists(|node| Ok(check::stays_above(node, mode) && marks(node)?.streaming))
}
