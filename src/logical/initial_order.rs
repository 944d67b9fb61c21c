//! The event time of each stream, as an expression of its table's columns: what `initial_order = 'event_time'`
//! reads the first rows by.
//!
//! A clause's event time is followed down to the scans through names, projections, filters, joins with tables
//! and unions:
//!
//! ```text
//! WATERMARK ts                      ts
//!   Projection to_timestamp(s) AS ts   to_timestamp(s)
//!     Filter s <> ''                   to_timestamp(s)
//!       StreamScan t                   to_timestamp(t.s)
//! ```
//!
//! In the order of event time no row is late only if the watermark never runs ahead of a stream that is read so.
//! What could make it do so is refused: one clause over several streams (the rows of one move it past those of the
//! other), the greatest of several watermarks, two event times of one stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};

use super::scan::{StreamScan, stream_scan};
use super::watermark::Watermark;
use crate::config::{InitialOrder, WatermarkPolicy};
use crate::error::Refusal;

/// The option's name.
const OPTION: &str = "initial_order";

/// What is known of the event time of a stream.
type Known = std::result::Result<Expr, &'static str>;

/// The event time of each stream by its name; none for a stream that no clause is about.
type Times = BTreeMap<String, Known>;

/// Tells every stream its event time, where it has one that its rows can be ordered by.
///
/// # Errors
/// - a stream is to be read in the order of event time and cannot; the error says why
pub(super) fn with_event_times(
    plan: LogicalPlan,
    session: InitialOrder,
    policy: WatermarkPolicy,
) -> Result<LogicalPlan> {
    let mut times = Times::new();
    let mut clauses = 0;
    plan.apply(|node| {
        if let LogicalPlan::Extension(extension) = node
            && let Some(watermark) = extension.node.as_any().downcast_ref::<Watermark>()
        {
            clauses += 1;
            of_clause(watermark, &mut times);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let greatest = clauses > 1 && policy == WatermarkPolicy::Max;
    let told = plan.transform_up(|node| match node {
        LogicalPlan::TableScan(mut scan) => {
            let Some(stream) = stream_scan(&scan.source) else {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            };
            let known = times.get(&stream.name);
            if is_ordered(stream, session)? {
                may_be_ordered(stream, known, greatest)?;
            }
            let time = known.and_then(|known| known.as_ref().ok().cloned());
            scan.source = Arc::new(stream.with_event_time(time));
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(told.data)
}

/// Whether a stream is to be read in the order of event time: by its own option, else by the query's.
fn is_ordered(stream: &StreamScan, session: InitialOrder) -> Result<bool> {
    let mut own = session;
    for (key, value) in &stream.options {
        if key == OPTION {
            own = value.parse().unwrap_or(session);
        }
    }
    Ok(own == InitialOrder::EventTime)
}

fn may_be_ordered(stream: &StreamScan, known: Option<&Known>, greatest: bool) -> Result<()> {
    let (reason, hint) = match known {
        _ if greatest => (
            "the greatest of several watermarks leaves the rows behind that the slower stream still has",
            "set multiple_watermark_policy to 'min', or initial_order to 'arrival'",
        ),
        None => (
            "no WATERMARK clause says which column its event time is",
            "write WATERMARK ts DELAY OF INTERVAL … behind the stream, or leave initial_order out: without the clause no row is late",
        ),
        Some(Err(reason)) => (
            *reason,
            "give the stream one WATERMARK clause of its own, made of its columns: FROM STREAM t WATERMARK ts DELAY OF INTERVAL …, or leave initial_order out",
        ),
        Some(Ok(_)) => return Ok(()),
    };
    Err(Refusal::new(
        "UNSUPPORTED_INITIAL_ORDER",
        "42KDE",
        format!(
            "{} cannot be read in the order of event time: {reason}.",
            stream.name
        ),
    )
    .at(stream.place)
    .hint(hint)
    .into())
}

/// Adds what a clause says of the streams below it.
fn of_clause(watermark: &Watermark, times: &mut Times) {
    let mut found = Vec::new();
    let time = Expr::Column(watermark.event_time.clone());
    let followed = follow(&watermark.input, time, &mut found);
    let mut names = Vec::new();
    streams_below(&watermark.input, &mut names);
    names.sort();
    names.dedup();
    let several = names.len() > 1;
    for name in names {
        let of_stream = found.iter().filter(|(stream, _)| *stream == name);
        for expr in of_stream.map(|(_, expr)| expr) {
            let known = match (&followed, several) {
                (_, true) => Err("its WATERMARK clause is about several streams"),
                (Ok(()), false) if !is_fixed(expr) => {
                    Err("its event time is not the same each time that it is computed")
                }
                (Ok(()), false) => Ok(expr.clone()),
                (Err(reason), false) => Err(*reason),
            };
            add(times, &name, known);
        }
        if let Err(reason) = &followed {
            add(times, &name, Err(reason));
        }
    }
}

fn add(times: &mut Times, name: &str, known: Known) {
    let entry = times.entry(name.to_owned()).or_insert(known.clone());
    if entry.is_ok() && *entry != known {
        *entry = known.and(Err("it has two event times"));
    }
}

fn streams_below(plan: &LogicalPlan, names: &mut Vec<String>) {
    if let LogicalPlan::TableScan(scan) = plan
        && let Some(stream) = stream_scan(&scan.source)
    {
        names.push(stream.name.clone());
    }
    for input in plan.inputs() {
        streams_below(input, names);
    }
}

/// The event time as an expression of each scan's columns.
fn follow(
    plan: &LogicalPlan,
    time: Expr,
    found: &mut Vec<(String, Expr)>,
) -> std::result::Result<(), &'static str> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            if let Some(stream) = stream_scan(&scan.source) {
                found.push((stream.name.clone(), of_table(time, scan)?));
            }
            Ok(())
        }
        LogicalPlan::Filter(filter) => follow(&filter.input, time, found),
        LogicalPlan::Limit(limit) => follow(&limit.input, time, found),
        LogicalPlan::Projection(projection) => {
            let columns = &projection.expr;
            let time = replaced(time, &projection.schema, |at| {
                columns.get(at).map(|expr| expr.clone().unalias())
            })?;
            follow(&projection.input, time, found)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let time = replaced(time, &alias.schema, |at| column_at(&alias.input, at))?;
            follow(&alias.input, time, found)
        }
        LogicalPlan::Union(union) => {
            for input in &union.inputs {
                let time = replaced(time.clone(), &union.schema, |at| column_at(input, at))?;
                follow(input, time, found)?;
            }
            Ok(())
        }
        LogicalPlan::Join(join) => {
            let sides = [&join.left, &join.right];
            let mut side = sides.into_iter().filter(|side| {
                time.column_refs()
                    .iter()
                    .all(|column| side.schema().has_column(column))
            });
            match side.next() {
                Some(side) => follow(side, time, found),
                None => Err("its event time is made of a stream and a table"),
            }
        }
        LogicalPlan::Extension(extension) if extension.node.as_any().is::<Watermark>() => {
            match extension.node.inputs().first() {
                Some(input) => follow(input, time, found),
                None => Ok(()),
            }
        }
        _ => Err(
            "its event time is not of the rows that are read, but of what an operator makes of them",
        ),
    }
}

fn column_at(plan: &LogicalPlan, at: usize) -> Option<Expr> {
    let schema = plan.schema();
    (at < schema.fields().len()).then(|| Expr::Column(Column::from(schema.qualified_field(at))))
}

/// An expression with something else in the place of each column of a schema.
fn replaced(
    time: Expr,
    schema: &DFSchema,
    by: impl Fn(usize) -> Option<Expr>,
) -> std::result::Result<Expr, &'static str> {
    let replaced = time.transform_up(|expr| {
        let Expr::Column(column) = &expr else {
            return Ok(Transformed::no(expr));
        };
        let at = schema.index_of_column(column)?;
        Ok(by(at).map_or_else(|| Transformed::no(expr), Transformed::yes))
    });
    let replaced = replaced.map_err(|_| "its event time cannot be followed to its columns")?;
    Ok(replaced.data)
}

/// An expression of a scan's columns as one of its table's.
fn of_table(time: Expr, scan: &TableScan) -> std::result::Result<Expr, &'static str> {
    let schema = &scan.projected_schema;
    replaced(time, schema, |at| {
        Some(Expr::Column(Column::new_unqualified(
            schema.field(at).name(),
        )))
    })
}

/// Whether an expression has one value for a row, whenever it is computed.
pub(crate) fn is_fixed(expr: &Expr) -> bool {
    let moves = expr.exists(|expr| {
        Ok(match expr {
            Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => true,
            _ => false,
        })
    });
    !moves.unwrap_or(true)
}
