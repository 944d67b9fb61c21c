//! The lines of an audit: a group each, with where its rows are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, new_null_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::row::OwnedRow;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::collect;

use super::counts::{Counts, expected};
use super::figures::{Figures, Published, check_open};
use super::groups::{Groups, Keys, Same};
use super::late::LateRows;
use super::sessions::Sessions;
use super::shape::{Shape, taken};
use super::snapshot::Snapshot;

/// Columns of an audit behind the grouping columns, and what is in them.
type Column = (&'static str, fn(&Figures) -> i64);
const COLUMNS: [Column; 11] = [
    ("emitted", |of| of.emitted),
    ("recount", |of| of.recount),
    ("difference", Figures::difference),
    ("late_rows", |of| of.late),
    ("guarded_rows", |of| of.guarded),
    ("open_rows", |of| of.open),
    ("unread_rows", |of| of.unread),
    ("unexplained", |of| of.unexplained),
    ("corrected_rows", |of| of.corrected),
    ("null_rows", |of| of.null),
    ("rejected_rows", |of| of.rejected),
];

/// The columns of an audit: those of the result that hold grouping values, then the figures.
///
/// # Errors
/// - `AUDIT_UNSUPPORTED`: a grouping value has the name of a figure
pub(super) fn audit_schema(result: &SchemaRef, shape: &Shape) -> Result<SchemaRef> {
    let named = shape
        .key
        .iter()
        .filter_map(|at| result.fields().get(*at).cloned());
    let named: Vec<FieldRef> = named.collect();
    let is_figure = |name: &str| COLUMNS.iter().any(|(figure, _)| *figure == name);
    if let Some(field) = named.iter().find(|field| is_figure(field.name())) {
        return Err(taken("audit", field.name()).into());
    }
    let figures = COLUMNS.map(|(name, _)| Arc::new(Field::new(name, DataType::Int64, false)));
    let fields = named.into_iter().chain(figures);
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// Runs an audit.
///
/// # Errors
/// - those of the plans
pub(super) async fn audit(
    snapshot: &Snapshot,
    schema: &SchemaRef,
    context: &Arc<TaskContext>,
) -> Result<RecordBatch> {
    let keys = Keys::new(&snapshot.schema, &snapshot.shape.key)?;
    let counts = Counts::of(snapshot, &keys, context).await?;
    let published = collect(Arc::clone(&snapshot.published), Arc::clone(context)).await?;
    let published = Groups::new(&keys, &snapshot.schema, &published)?;
    let mut lines = match snapshot.shape.is_session() {
        true => session_lines(snapshot, &counts, &published)?,
        false => {
            let expected = expected(snapshot, &keys, context).await?;
            window_lines(snapshot, &counts, &published, &expected)?
        }
    };
    if snapshot.shape.one_group && !snapshot.publishes_open {
        check_open(lines.values_mut(), snapshot.open_rows);
    }
    let timeless = snapshot.late.as_ref().map(without_time);
    table(schema, &keys, &lines, timeless.unwrap_or_default())
}

/// The figures of windows that do not depend on each other.
fn window_lines(
    snapshot: &Snapshot,
    counts: &Counts,
    published: &Groups,
    expected: &Groups,
) -> Result<BTreeMap<OwnedRow, Figures>> {
    let same = Same::new(&published.rows, &expected.rows, &snapshot.shape.stable)?;
    let mut lines = BTreeMap::new();
    for key in counts.recount.keys.iter().chain(&published.keys) {
        let mut figures = Figures {
            recount: counts.recount.counted(key),
            ..Figures::default()
        };
        for (part, groups) in counts.parts() {
            *part.of_window(&mut figures) += groups.counted(key);
        }
        let closed = counts
            .recount
            .get(key)
            .is_some_and(|row| counts.recount.is_closed(row));
        let found = match (published.get(key), expected.get(key)) {
            (None, _) if !closed && !snapshot.publishes_open => Published::Awaited,
            (None, None) => Published::Right,
            (Some(row), Some(other)) if same.rows(row, other) => Published::Right,
            (None, Some(_)) => Published::Wrong(None),
            (Some(row), _) => {
                let rows = snapshot
                    .shape
                    .count
                    .and_then(|at| published.number(row, at));
                // A group has a row at least, whether or not its number is selected.
                Published::Wrong(rows.or((figures.accepted() == 0).then_some(1)))
            }
        };
        lines.insert(key.clone(), figures.complete(found));
    }
    Ok(lines)
}

/// The figures of sessions: each as it is in the recount, with all that lies in it.
fn session_lines(
    snapshot: &Snapshot,
    counts: &Counts,
    published: &Groups,
) -> Result<BTreeMap<OwnedRow, Figures>> {
    let shape = &snapshot.shape;
    let (Some(bounds), Some(count)) = (shape.bounds, shape.count) else {
        return Err(internal_datafusion_err!("sessions without bounds or count"));
    };
    let recount = &counts.recount;
    let sessions = Sessions::new(snapshot, recount, bounds)?;
    let mut figures: HashMap<OwnedRow, (Figures, i64)> = HashMap::new();
    for key in &recount.keys {
        figures.entry(key.clone()).or_default().0.recount = recount.counted(key);
    }
    for (part, groups) in counts.parts() {
        for (row, whole) in sessions.holding(groups, bounds)?.into_iter().enumerate() {
            let key = whole.map_or(&groups.keys[row], |whole| &recount.keys[whole]);
            let rows = groups.counted(&groups.keys[row]);
            *part.of_session(&mut figures.entry(key.clone()).or_default().0) += rows;
        }
    }
    let same = Same::new(&published.rows, &recount.rows, &shape.stable)?;
    for (row, whole) in sessions.holding(published, bounds)?.into_iter().enumerate() {
        let key = &published.keys[row];
        let whole_key = whole.map_or(key, |whole| &recount.keys[whole]);
        let (found, emitted) = figures.entry(whole_key.clone()).or_default();
        let rows = published.number(row, count).unwrap_or_default();
        let complete = found.late + found.guarded + found.unread == 0;
        let wrong =
            whole.is_some_and(|whole| complete && whole_key == key && !same.rows(row, whole));
        *emitted += if wrong { 0 } else { rows };
    }
    let lines = figures.into_iter().map(|(key, (figures, emitted))| {
        let closed = recount.get(&key).is_none_or(|row| recount.is_closed(row));
        let figures = figures.complete_session(emitted, closed, snapshot.corrected.is_some());
        (key, figures)
    });
    Ok(lines.collect())
}

/// The rows that are in no window.
fn without_time(late: &LateRows) -> Figures {
    Figures {
        null: i64::try_from(late.null).unwrap_or(i64::MAX),
        rejected: i64::try_from(late.rejected).unwrap_or(i64::MAX),
        ..Figures::default()
    }
}

/// The lines in the order of their groups; last the rows that have none, if there are any.
fn table(
    schema: &SchemaRef,
    keys: &Keys,
    lines: &BTreeMap<OwnedRow, Figures>,
    timeless: Figures,
) -> Result<RecordBatch> {
    let has_timeless = timeless != Figures::default();
    let all: Vec<Figures> = lines
        .values()
        .copied()
        .chain(has_timeless.then_some(timeless))
        .collect();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for column in keys.columns(lines.keys())? {
        columns.push(match has_timeless {
            true => concat(&[&column, &new_null_array(column.data_type(), 1)])?,
            false => column,
        });
    }
    for (_, figure) in COLUMNS {
        columns.push(Arc::new(Int64Array::from_iter_values(
            all.iter().map(figure),
        )));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
