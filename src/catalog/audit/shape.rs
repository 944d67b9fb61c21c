//! What of a query can be audited: one windowed aggregate over one stream, and what its result's columns hold.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Volatility};

use crate::error::Refusal;
use crate::logical::{
    Bin, GroupTime, StreamAggregate, StreamDeduplicate, StreamQuery, TimeValue, Watermark,
    group_columns, is_fixed, is_stream_scan,
};
use crate::time::Span;

/// When a group closes, given a watermark.
#[derive(Debug, Clone)]
pub(super) enum Closing {
    /// When the watermark reaches the end of its window, whose bounds have this type.
    Window(DataType),
    /// The same, of a session.
    Session(DataType),
    /// When its value is less than the function of the watermark.
    Bin(Bin),
    /// When the watermark reaches its value, of this type.
    Instant(DataType),
    /// Never: the query has no watermark, or groups by no time.
    Never,
}

/// What an audit knows of a query before it runs.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Columns of the result that hold nothing but grouping values: they name a line.
    pub(super) key: Vec<usize>,
    /// Position of the time among the grouping expressions.
    pub(super) time: Option<usize>,
    /// When a group closes.
    pub(super) closing: Closing,
    /// Column of the result with the number of rows in the group, if it has one.
    pub(super) count: Option<usize>,
    /// Columns of grouping values that do not come from the time.
    beside: Vec<usize>,
    /// Columns of the result with the bounds of the session.
    pub(super) bounds: Option<(usize, usize)>,
    /// Whether a row is in one group at most.
    pub(super) one_group: bool,
    /// Columns that the same rows always give the same values.
    pub(super) stable: Vec<usize>,
}

impl Shape {
    /// Columns of grouping values but for those that the bounds of a session are in.
    pub(super) fn keyed_beside_bounds(&self) -> Vec<usize> {
        self.beside.clone()
    }

    /// Whether its windows are sessions.
    pub(super) fn is_session(&self) -> bool {
        matches!(self.closing, Closing::Session(_))
    }
}

/// What a column of a plan holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// A grouping value.
    Group(usize),
    /// A bound of the window that this grouping value is.
    Start(usize),
    End(usize),
    /// Something computed from grouping values alone.
    OfGroups,
    /// The number of rows.
    Count,
    /// Another value that the same rows give again.
    Stable,
    /// What depends on the order of rows, or on the clock.
    Unstable,
}

/// Looks at an analyzed query.
///
/// # Errors
/// - `AUDIT_UNSUPPORTED`: it is of another shape, with what it is
pub(crate) fn shape_of(
    plan: &LogicalPlan,
    limit: Option<u64>,
) -> std::result::Result<Shape, Refusal> {
    let unsupported = || refused("the query does not group the rows of one stream");
    if limit.is_some() {
        return Err(refused("its LIMIT leaves out windows, whatever arrived"));
    }
    let (aggregate, held, having) = trace(plan).ok_or_else(unsupported)?;
    below(&aggregate.input)?;
    let mut choosing = grouping(aggregate)
        .into_iter()
        .chain(having.iter().copied());
    if let Some(function) = choosing.find_map(changing) {
        return Err(not_fixed(&function));
    }
    if aggregate.left_out.is_some() {
        return Err(refused("its groups are of several grouping sets"));
    }
    if group_columns(plan).is_none() {
        return Err(refused("a grouping expression is not in its result")
            .hint("add the window (or window.start) and every key to the SELECT list"));
    }
    let closing = closing(aggregate.time.as_ref(), &aggregate.input)?;
    let time = aggregate.time.as_ref().map(|time| time.position);
    let place = |wanted: Option<Held>| held.iter().position(|held| Some(*held) == wanted);
    let bounds = place(time.map(Held::Start)).zip(place(time.map(Held::End)));
    let count = place(Some(Held::Count));
    if matches!(closing, Closing::Session(_)) {
        if bounds.is_none() || count.is_none() {
            return Err(refused("sessions are compared by their bounds and counts")
                .hint("select session_window.start, session_window.end and count(*) as well"));
        }
        if !having.is_empty() {
            return Err(refused("HAVING leaves out sessions")
                .hint("leave HAVING out, and filter when you read"));
        }
    }
    let at = |wanted: &dyn Fn(Held) -> bool| {
        let found = held.iter().enumerate().filter(|(_, held)| wanted(**held));
        found.map(|(at, _)| at).collect()
    };
    let hops = match aggregate.time.as_ref().map(|time| &time.value) {
        Some(TimeValue::Windows(spec) | TimeValue::WindowColumn(spec)) => spec.shape.hops(),
        _ => false,
    };
    Ok(Shape {
        one_group: !hops,
        key: at(&|held| is_of_groups(held)),
        time,
        beside: at(&|held| matches!(held, Held::Group(group) if Some(group) != time)),
        closing,
        count,
        bounds,
        stable: at(&|held| held != Held::Unstable),
    })
}

/// The refusal of a query that chooses or groups other rows each time that it runs.
fn not_fixed(function: &str) -> Refusal {
    refused(&format!(
        "{function}() gives another value for the same row each time, and other rows are counted"
    ))
    .hint(format!(
        "leave {function}() out, or keep its value in the rows: INSERT INTO t SELECT …, {function}()"
    ))
}

/// The refusal of a column of a result that has the name of one of the columns of a function over it.
pub(super) fn taken(function: &str, column: &str) -> Refusal {
    Refusal::new(
        "AUDIT_UNSUPPORTED",
        "0A000",
        format!("{function}() has a column {column} of its own, and the result of this streaming table has one too."),
    )
    .hint(format!("name it otherwise: {column} AS …"))
}

/// The refusal of a query that cannot be audited.
fn refused(reason: &str) -> Refusal {
    Refusal::new(
        "AUDIT_UNSUPPORTED",
        "0A000",
        format!("This streaming table cannot be audited or corrected: {reason}."),
    )
}

fn is_of_groups(held: Held) -> bool {
    matches!(
        held,
        Held::Group(_) | Held::Start(_) | Held::End(_) | Held::OfGroups
    )
}

/// The aggregate under a plan, what the plan's columns hold of it, and the filters between.
fn trace(plan: &LogicalPlan) -> Option<(&StreamAggregate, Vec<Held>, Vec<&Expr>)> {
    match plan {
        LogicalPlan::Extension(extension) => {
            let node = extension.node.as_any();
            if let Some(query) = node.downcast_ref::<StreamQuery>() {
                return trace(&query.input);
            }
            let aggregate = node.downcast_ref::<StreamAggregate>()?;
            let groups = aggregate.keys.len() + usize::from(aggregate.time.is_some());
            let schema = aggregate.input.schema();
            let aggregates = aggregate.aggregates.iter();
            let aggregates = aggregates.map(|expr| aggregated(expr, schema));
            let held = (0..groups).map(Held::Group).chain(aggregates).collect();
            Some((aggregate, held, Vec::new()))
        }
        LogicalPlan::Projection(projection) => {
            let (aggregate, input, having) = trace(&projection.input)?;
            let schema = projection.input.schema();
            let held = projection.expr.iter();
            let held = held.map(|expr| computed(expr, schema, &input)).collect();
            Some((aggregate, held, having))
        }
        LogicalPlan::Filter(filter) => {
            let (aggregate, held, mut having) = trace(&filter.input)?;
            having.push(&filter.predicate);
            Some((aggregate, held, having))
        }
        LogicalPlan::SubqueryAlias(alias) => trace(&alias.input),
        _ => None,
    }
}

/// What an aggregate gives.
fn aggregated(expr: &Expr, schema: &DFSchema) -> Held {
    const UNSTABLE: [&str; 5] = [
        "array_agg",
        "string_agg",
        "first_value",
        "last_value",
        "nth_value",
    ];
    let mut expr = expr;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    let Expr::AggregateFunction(call) = expr else {
        return Held::Unstable;
    };
    let (name, params) = (call.func.name(), &call.params);
    if UNSTABLE.contains(&name) || name.starts_with("approx") || !is_fixed(expr) {
        return Held::Unstable;
    }
    let counts_all = |arg: &Expr| match arg {
        Expr::Literal(value, _) => !value.is_null(),
        arg => arg.nullable(schema).is_ok_and(|nullable| !nullable),
    };
    let plain = !params.distinct && params.filter.is_none();
    match name == "count" && plain && params.args.iter().all(counts_all) {
        true => Held::Count,
        false => Held::Stable,
    }
}

/// What an expression over columns gives.
fn computed(expr: &Expr, schema: &DFSchema, input: &[Held]) -> Held {
    let of = |column| {
        let at = schema.index_of_column(column).ok();
        at.and_then(|at| input.get(at)).copied()
    };
    match expr {
        Expr::Alias(alias) => return computed(&alias.expr, schema, input),
        Expr::Column(column) => return of(column).unwrap_or(Held::Unstable),
        Expr::ScalarFunction(call) if call.name() == "get_field" => {
            if let [window, Expr::Literal(ScalarValue::Utf8(Some(field)), _)] = call.args.as_slice()
                && let Held::Group(group) = computed(window, schema, input)
            {
                match field.as_str() {
                    "start" => return Held::Start(group),
                    "end" => return Held::End(group),
                    _ => {}
                }
            }
        }
        _ => {}
    }
    let refs: BTreeSet<_> = expr.column_refs().into_iter().collect();
    let held: Vec<Held> = refs
        .into_iter()
        .map(|column| of(column).unwrap_or(Held::Unstable))
        .collect();
    if !is_fixed(expr) || held.contains(&Held::Unstable) {
        return Held::Unstable;
    }
    match !held.is_empty() && held.iter().all(|held| is_of_groups(*held)) {
        true => Held::OfGroups,
        false => Held::Stable,
    }
}

/// When groups close.
fn closing(time: Option<&GroupTime>, input: &LogicalPlan) -> std::result::Result<Closing, Refusal> {
    let Some(time) = time.filter(|time| time.closes) else {
        return Ok(Closing::Never);
    };
    if time.behind != Span::ZERO {
        return Err(refused(
            "its windows are of an earlier time than the watermark's",
        ));
    }
    let instant = || time.expr.get_type(input.schema());
    Ok(match &time.value {
        TimeValue::Windows(spec) | TimeValue::WindowColumn(spec) => {
            Closing::Window(spec.bound_type())
        }
        TimeValue::Session(spec, _) => Closing::Session(spec.bound_type()),
        TimeValue::Bin(bin) => Closing::Bin(bin.clone()),
        TimeValue::Instant(_) => {
            Closing::Instant(instant().map_err(|error| refused(&error.strip_backtrace()))?)
        }
    })
}

/// What rows are grouped by.
fn grouping(aggregate: &StreamAggregate) -> Vec<&Expr> {
    let mut grouping: Vec<&Expr> = aggregate.keys.iter().collect();
    if let Some(time) = &aggregate.time {
        grouping.push(&time.expr);
        if let TimeValue::Session(_, gap) = &time.value {
            grouping.push(gap);
        }
    }
    grouping
}

/// The name of a function in an expression that may give another value for the same row when it is asked again.
fn changing(expr: &Expr) -> Option<String> {
    let mut found = None;
    let walked = expr.apply(|part| {
        Ok(match part {
            Expr::ScalarFunction(call)
                if call.func.signature().volatility != Volatility::Immutable =>
            {
                found = Some(call.name().to_owned());
                TreeNodeRecursion::Stop
            }
            _ => TreeNodeRecursion::Continue,
        })
    });
    walked.ok()?;
    found
}

/// Refuses what may not be below the aggregate: there, a row in is a row out, whatever else arrives.
fn below(plan: &LogicalPlan) -> std::result::Result<(), Refusal> {
    let (mut streams, mut clauses, mut other, mut function) = (0, 0, None, None);
    let walked = plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(_) => streams += usize::from(is_stream_scan(node)),
            LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) => {}
            LogicalPlan::Union(_) => other = Some("it reads a UNION"),
            LogicalPlan::Limit(_) => other = Some("it has a LIMIT below its windows"),
            LogicalPlan::Extension(extension) => {
                let node = extension.node.as_any();
                clauses += usize::from(node.is::<Watermark>());
                if node.is::<StreamAggregate>() || node.is::<StreamDeduplicate>() {
                    other = Some("it groups or deduplicates rows more than once");
                }
            }
            _ => {}
        }
        node.apply_expressions(|expr| {
            function = function.take().or_else(|| changing(expr));
            Ok(TreeNodeRecursion::Continue)
        })
    });
    walked.map_err(|error| refused(&error.strip_backtrace()))?;
    match (other, function) {
        (Some(other), _) => Err(refused(other)),
        (None, Some(function)) => Err(not_fixed(&function)),
        (None, None) if streams != 1 || clauses > 1 => Err(refused("it reads several streams")),
        (None, None) => Ok(()),
    }
}
