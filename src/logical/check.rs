//! What a stream cannot do, each with its reason and what to write instead.
//!
//! Condition names and SQLSTATEs are Spark's.

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, JoinType, Result};
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Join, Limit, LogicalPlan, Operator, SkipType,
};

use super::aggregate::StreamAggregate;
use super::group_time::{GroupTime, TimeValue};
use super::grouping_sets::Sets;
use super::marks::{Mark, Marks, expr_mark, marks};
use super::time_window::{TimeWindow, Windows};
use crate::config::OutputMode;
use crate::error::{Place, Refusal};

/// SQLSTATE of what a streaming query cannot do.
const UNSUPPORTED: &str = "42KDE";
/// Spark's name for an operation that an output mode does not allow.
const OUTPUT_MODE: &str = "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION";

/// Operators that stay above the streaming part: statements, and what needs the whole result.
pub(super) fn stays_above(plan: &LogicalPlan, mode: OutputMode) -> bool {
    // In complete mode every epoch has the whole result.
    let whole = matches!(plan, LogicalPlan::Sort(_) | LogicalPlan::Limit(_));
    if whole {
        return mode != OutputMode::Complete;
    }
    matches!(
        plan,
        LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Statement(_)
    )
}

/// An aggregate over this input whose groups could never be emitted in append mode.
pub(super) fn emits(
    mode: OutputMode,
    time: Option<&GroupTime>,
    keys: &[Expr],
    input: &LogicalPlan,
    input_marks: &Marks,
) -> Result<()> {
    if mode == OutputMode::Update
        && time.is_some_and(|time| matches!(time.value, TimeValue::Session(..)))
    {
        return Err(Refusal::new(
            OUTPUT_MODE,
            UNSUPPORTED,
            "In update mode session windows are not supported: a session that grows would leave its shorter versions behind.",
        )
        .hint("use append mode, or complete")
        .into());
    }
    if mode != OutputMode::Append || time.is_some_and(|time| time.closes) {
        return Ok(());
    }
    let never = Never {
        time,
        keys,
        input,
        marks: input_marks,
    };
    let (why, hint) = never.explained()?;
    Err(Refusal::new(
        OUTPUT_MODE,
        UNSUPPORTED,
        format!("In append mode this aggregate or DISTINCT would never emit a row: {why}."),
    )
    .hint(hint)
    .into())
}

/// An aggregate that no watermark closes.
struct Never<'a> {
    time: Option<&'a GroupTime>,
    keys: &'a [Expr],
    input: &'a LogicalPlan,
    marks: &'a Marks,
}

impl Never<'_> {
    /// Why nothing closes its groups, and what to write instead.
    fn explained(&self) -> Result<(String, String)> {
        if let Some(types) = self.united_types()? {
            let why = format!(
                "the UNION casts event times of different types, {types}, and what is cast carries no watermark"
            );
            let hint = "write one WATERMARK clause behind the UNION, (SELECT … UNION ALL SELECT …) WATERMARK ts DELAY OF \
                        INTERVAL 10 MINUTES, or cast them to one type in subqueries before the clauses";
            return Ok((why, hint.to_owned()));
        }
        for key in self.keys {
            match self.mark(key) {
                Some(Mark::Bound(_, bound, _)) => return Ok(self.of_bound(key, &bound)),
                Some(Mark::Session(..)) => {
                    let why = format!(
                        "it groups by {}, a session that has closed before",
                        self.written(key)
                    );
                    let hint = "group by a window of sessions: GROUP BY window(window_time(session_window), '1 hour')";
                    return Ok((why, hint.to_owned()));
                }
                _ => {}
            }
        }
        let keys = self.keys.iter().map(|key| self.written(key));
        let keys = keys.collect::<Vec<_>>().join(", ");
        let why = match self.time {
            Some(time) => format!("the time {} carries no watermark", self.written(&time.expr)),
            None if keys.is_empty() => "it has no groups that a watermark could close".to_owned(),
            None => format!("no watermark closes groups by {keys}"),
        };
        let hint = "add WATERMARK ts DELAY OF INTERVAL 10 MINUTES behind the stream and group by a window of ts, \
                    or choose output_mode = 'update', by WITH of a streaming table or SET tidegate.output_mode for a SELECT";
        Ok((why, hint.to_owned()))
    }

    /// Of an aggregate that groups by a bound of a window.
    fn of_bound(&self, key: &Expr, bound: &str) -> (String, String) {
        let why = format!(
            "it groups by {}, the {bound} of a window, and only the window itself closes",
            self.written(key)
        );
        let hint = match self.marks.aggregated {
            true => format!(
                "select the window itself below, window AS w, and group by w or write SELECT DISTINCT window, …; its {bound} \
                 can be taken above"
            ),
            false => format!(
                "write GROUP BY window(ts, '1 hour'), or the column that holds the window, and select window.{bound}"
            ),
        };
        (why, hint)
    }

    fn mark(&self, expr: &Expr) -> Option<Mark> {
        expr_mark(expr, self.input.schema(), self.marks)
    }

    /// Types of event times that a UNION below has cast to one, if it has and a time is grouped by.
    fn united_types(&self) -> Result<Option<String>> {
        let schema: &DFSchema = self.input.schema();
        let is_time = |key: &Expr| matches!(key.get_type(schema), Ok(DataType::Timestamp(..)));
        if self.time.is_none() && !self.keys.iter().any(is_time) {
            return Ok(None);
        }
        let mut found = None;
        self.input.apply(|node| {
            if let LogicalPlan::Union(union) = node {
                for at in 0..union.schema.fields().len() {
                    let times = union.inputs.iter().map(|input| event_type(input, at));
                    let times: Vec<Option<DataType>> = times.collect::<Result<_>>()?;
                    let times: Option<Vec<DataType>> = times.into_iter().collect();
                    let mut times = times.unwrap_or_default();
                    let mut seen = HashSet::new();
                    times.retain(|time| seen.insert(time.clone()));
                    if times.len() > 1 {
                        found = Some(list(&times));
                        return Ok(TreeNodeRecursion::Stop);
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    }

    /// An expression as a query writes it: a field behind a dot, and the column of a window under its function's name.
    fn written(&self, expr: &Expr) -> String {
        let written = expr.clone().transform_down(|expr| {
            let name = match &expr {
                Expr::Column(column) if column.name.starts_with("__tidegate_") => {
                    match self.mark(&expr) {
                        Some(Mark::Session(..)) => Some("session_window".to_owned()),
                        _ => Some("window".to_owned()),
                    }
                }
                Expr::ScalarFunction(call) if call.name() == "get_field" => {
                    match call.args.as_slice() {
                        [of, Expr::Literal(field, _)] => {
                            let field = field.try_as_str().flatten();
                            field.map(|field| format!("{}.{field}", self.written(of)))
                        }
                        _ => None,
                    }
                }
                _ => None,
            };
            Ok(match name {
                Some(name) => {
                    let named = Expr::Column(Column::new_unqualified(name));
                    Transformed::new(named, true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(expr),
            })
        });
        written.map_or_else(|_| expr.to_string(), |written| written.data.to_string())
    }
}

/// Type of an event time that is a column of a UNION's input, before it was cast to that of the others.
fn event_type(input: &LogicalPlan, at: usize) -> Result<Option<DataType>> {
    let LogicalPlan::Projection(projection) = input else {
        let marked = matches!(
            marks(input)?.columns.get(at),
            Some(Some(Mark::EventTime(_)))
        );
        let field = input.schema().fields().get(at);
        let field = field.filter(|_| marked);
        return Ok(field.map(|field| field.data_type().clone()));
    };
    let Some(mut expr) = projection.expr.get(at) else {
        return Ok(None);
    };
    while let Expr::Alias(Alias { expr: below, .. }) | Expr::Cast(Cast { expr: below, .. }) = expr {
        expr = below;
    }
    let schema = projection.input.schema();
    match expr_mark(expr, schema, &marks(&projection.input)?) {
        Some(Mark::EventTime(_)) => Ok(Some(expr.get_type(schema.as_ref())?)),
        _ => Ok(None),
    }
}

/// Types, with commas.
fn list(types: &[DataType]) -> String {
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    types.join(", ")
}

/// A DISTINCT ON of which no column is left to tell the rows apart.
pub(super) fn nothing_selected() -> DataFusionError {
    Refusal::new(
        "UNSUPPORTED_STREAMING_OPERATOR",
        UNSUPPORTED,
        "DISTINCT ON over a stream must select a column.",
    )
    .hint("select the keys: SELECT DISTINCT ON (k) k, … FROM STREAM …")
    .into()
}

/// Keys that no watermark would ever forget.
pub(super) fn keys_for_ever() -> DataFusionError {
    Refusal::new(
        OUTPUT_MODE,
        UNSUPPORTED,
        "DISTINCT ON over a stream without a watermark would keep every key for ever.",
    )
    .hint("add WATERMARK ts DELAY OF INTERVAL 10 MINUTES behind the stream, and keep ts in the rows below")
    .into()
}

/// Which row is first is the stream's to say.
pub(super) fn ordered_deduplication() -> DataFusionError {
    Refusal::new(
        "UNSUPPORTED_STREAMING_OPERATOR",
        UNSUPPORTED,
        "DISTINCT ON over a stream takes no ORDER BY: of a key's first epoch it keeps the row with the least event time.",
    )
    .hint("leave ORDER BY out, or group by a window and take first_value(… ORDER BY …)")
    .into()
}

/// A session is not known before the rows are grouped.
pub(super) fn session_without_group(place: Option<Place>) -> DataFusionError {
    Refusal::new(
        "SESSION_WINDOW_WITHOUT_GROUP",
        "42K0E",
        "session_window() can only be grouped by: where a session ends depends on the rows of its group.",
    )
    .at(place)
    .hint("write GROUP BY session_window(ts, '5 minutes'), and use session_window.start in the SELECT list only")
    .into()
}

/// A session window that its aggregate has not taken, because it is used elsewhere too.
pub(super) fn no_session_below(input: &LogicalPlan) -> Result<()> {
    let mut below = input;
    while let LogicalPlan::Filter(filter) = below {
        below = &filter.input;
    }
    if let LogicalPlan::Extension(extension) = below
        && let Some(window) = extension.node.as_any().downcast_ref::<TimeWindow>()
        && matches!(window.windows, Windows::Session(..))
    {
        return Err(session_without_group(window.place));
    }
    Ok(())
}

/// Grouping sets whose groups could never be emitted, and sessions in them.
pub(super) fn grouping_sets(mode: OutputMode, sets: &Sets, time: Option<&GroupTime>) -> Result<()> {
    let Some(left_out) = &sets.left_out else {
        return Ok(());
    };
    let position = time.map(|time| time.position);
    let without_time = left_out
        .iter()
        .any(|set| position.is_none_or(|at| set.get(at) == Some(&true)));
    if mode == OutputMode::Append && without_time {
        return Err(Refusal::new(
            OUTPUT_MODE,
            UNSUPPORTED,
            "In append mode a grouping set without the time window would never emit a row.",
        )
        .hint("name the window in every set: GROUPING SETS ((window, k), (window))")
        .into());
    }
    if time.is_some_and(|time| matches!(time.value, TimeValue::Session(..))) {
        return refuse(
            "GROUPING_SETS",
            "ROLLUP, CUBE and GROUPING SETS over session windows are not supported.",
            "write one query for each grouping",
        );
    }
    Ok(())
}

fn refuse(what: &str, message: &str, hint: &str) -> Result<()> {
    let condition = match what {
        "OVER" => "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING",
        "SUBQUERY" => {
            return Err(Refusal::new(
                "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY",
                "42823",
                message,
            )
            .hint(hint)
            .into());
        }
        _ => "UNSUPPORTED_STREAMING_OPERATOR",
    };
    Err(Refusal::new(condition, UNSUPPORTED, message)
        .hint(hint)
        .into())
}

/// Complete mode shows all groups: without groups it would have to keep every row.
pub(super) fn complete_has_groups(plan: &LogicalPlan, mode: OutputMode) -> Result<()> {
    let all = marks(plan)?;
    if mode != OutputMode::Complete || !all.streaming || all.aggregated {
        return Ok(());
    }
    Err(Refusal::new(
        OUTPUT_MODE,
        UNSUPPORTED,
        "In complete mode a query needs an aggregate: without one every row would have to be kept.",
    )
    .hint("use append mode")
    .into())
}

/// Checks that no expression of a plan reads a stream.
pub(super) fn no_streaming_subqueries(plan: &LogicalPlan) -> Result<()> {
    plan.apply(|node| {
        subqueries(node)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Checks every node of a plan.
pub(super) fn check(plan: &LogicalPlan, mode: OutputMode) -> Result<()> {
    plan.apply(|node| {
        operator(node, mode)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// A stream inside an expression's subquery would have to end before the first row could pass.
fn subqueries(node: &LogicalPlan) -> Result<()> {
    node.apply_subqueries(|subquery| {
        let streaming = subquery.exists(|inner| Ok(super::scan::is_stream_scan(inner)))?;
        if streaming {
            refuse(
                "SUBQUERY",
                "A stream cannot stand in a subquery of an expression.",
                "join the stream instead, or read the table without STREAM",
            )?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn operator(node: &LogicalPlan, mode: OutputMode) -> Result<()> {
    match node {
        LogicalPlan::Window(window) if marks(&window.input)?.streaming => refuse(
            "OVER",
            "OVER needs rows of several epochs together, which a stream never has.",
            "group by a time window, or write the result to a streaming table and use OVER on that",
        ),
        LogicalPlan::Limit(limit)
            if mode == OutputMode::Complete && marks(&limit.input)?.streaming =>
        {
            offset(limit)
        }
        LogicalPlan::Aggregate(_) => Ok(()),
        LogicalPlan::Join(join) => streaming_join(join),
        LogicalPlan::Union(union) => {
            let inputs = union
                .inputs
                .iter()
                .map(|input| marks(input))
                .collect::<Result<Vec<_>>>()?;
            streaming_union(&inputs)
        }
        LogicalPlan::RecursiveQuery(_) if marks(node)?.streaming => refuse(
            "RECURSIVE",
            "A stream cannot stand in a recursive query.",
            "read the table without STREAM",
        ),
        LogicalPlan::Extension(extension) => {
            whole_below(&extension.node.inputs())?;
            match extension.node.as_any().downcast_ref::<StreamAggregate>() {
                Some(aggregate) => chained(aggregate, mode),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// OFFSET would show a part of every epoch's result that moves as groups come.
fn offset(limit: &Limit) -> Result<()> {
    if matches!(limit.get_skip_type()?, SkipType::Literal(0)) {
        return Ok(());
    }
    refuse(
        "OFFSET",
        "OFFSET over a stream is not supported.",
        "use LIMIT alone, or OFFSET when you read the result",
    )
}

/// What needs the whole result cannot stand below one of our nodes, which see one epoch after the other.
fn whole_below(inputs: &[&LogicalPlan]) -> Result<()> {
    let whole = |node: &LogicalPlan| {
        Ok(matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Limit(_)) && marks(node)?.streaming)
    };
    for input in inputs {
        if input.exists(whole)? {
            return refuse(
                "LIMIT",
                "LIMIT, OFFSET and ORDER BY cannot stand below a WATERMARK clause, DISTINCT ON or an aggregate over a stream.",
                "move them to the outermost SELECT",
            );
        }
    }
    Ok(())
}

/// An aggregate over an aggregate: only final rows may be counted again.
fn chained(aggregate: &StreamAggregate, mode: OutputMode) -> Result<()> {
    if marks(&aggregate.input)?.aggregated && mode != OutputMode::Append {
        return Err(Refusal::new(
            OUTPUT_MODE,
            UNSUPPORTED,
            format!("In {mode} mode an aggregate cannot read another aggregate of a stream: its rows are not final."),
        )
        .hint("use append mode")
        .into());
    }
    Ok(())
}

/// A union whose finite side would come again in every epoch.
fn streaming_union(inputs: &[Marks]) -> Result<()> {
    let streams = inputs.iter().filter(|input| input.streaming).count();
    if streams == 0 {
        return Ok(());
    }
    if streams == inputs.len() {
        return mixed_union(inputs);
    }
    refuse(
        "UNION",
        "UNION of a stream and a finite table would emit the table's rows in every epoch.",
        "read the table as a stream too: STREAM t",
    )
}

/// A union of rows that are judged late with rows that are not: what reads it could not tell which is which.
fn mixed_union(inputs: &[Marks]) -> Result<()> {
    let emitted = inputs.iter().filter(|input| input.emitted).count();
    if emitted == 0 || emitted == inputs.len() {
        return Ok(());
    }
    refuse(
        "UNION",
        "UNION of a stream's own rows and of rows that an aggregate or DISTINCT ON has emitted is not supported.",
        "aggregate both sides in the same way before the UNION, or write two streaming tables",
    )
}

fn streaming_join(join: &Join) -> Result<()> {
    let (left, right) = (marks(&join.left)?, marks(&join.right)?);
    match (left.streaming, right.streaming) {
        (false, false) => Ok(()),
        (true, true) => two_streams(join, &left, &right),
        (true, false) => one_stream(join.join_type, true),
        (false, true) => one_stream(join.join_type, false),
    }
}

/// A join with a finite table runs in every epoch: what it says of a row must not depend on rows of
/// other epochs.
fn one_stream(join_type: JoinType, stream_left: bool) -> Result<()> {
    use JoinType as J;
    let sound = match join_type {
        J::Inner => true,
        J::Left | J::LeftSemi | J::LeftAnti | J::LeftMark => stream_left,
        J::Right | J::RightSemi | J::RightAnti | J::RightMark => !stream_left,
        J::Full => false,
    };
    if sound {
        return Ok(());
    }
    refuse(
        "JOIN",
        &format!(
            "A {join_type} join cannot keep the unmatched rows of a finite table against a stream: a later row could match."
        ),
        "make the stream the outer side: stream LEFT JOIN table",
    )
}

/// Two streams meet only in windows: both sides emit a window in the same epoch, so it is complete.
fn two_streams(join: &Join, left: &Marks, right: &Marks) -> Result<()> {
    let equal_windows = join
        .on
        .iter()
        .any(|(l, r)| same_window(l, r, join, left, right))
        || join
            .filter
            .as_ref()
            .is_some_and(|filter| filter_has_window(filter, join, left, right));
    if left.aggregated && right.aggregated && equal_windows {
        return Ok(());
    }
    refuse(
        "JOIN",
        "A join of two streams must be on a time window of both: rows of different epochs never meet.",
        "aggregate both sides by the same window, of event times of one unit and zone, and join ON a.window = b.window",
    )
}

fn same_window(l: &Expr, r: &Expr, join: &Join, left: &Marks, right: &Marks) -> bool {
    let mark_of = |expr: &Expr| {
        expr_mark(expr, join.left.schema(), left)
            .or_else(|| expr_mark(expr, join.right.schema(), right))
    };
    match (mark_of(l), mark_of(r)) {
        (Some(a), Some(b)) => {
            a == b && matches!(a, Mark::Window(..) | Mark::Bound(..) | Mark::Bin(..))
        }
        _ => false,
    }
}

fn filter_has_window(filter: &Expr, join: &Join, left: &Marks, right: &Marks) -> bool {
    datafusion::logical_expr::utils::split_conjunction(filter)
        .into_iter()
        .any(|part| match part {
            Expr::BinaryExpr(BinaryExpr {
                left: l,
                op: Operator::Eq,
                right: r,
            }) => same_window(l, r, join, left, right),
            _ => false,
        })
}
