//! Records of epochs as rows: what REFRESH, `progress()` and EXPLAIN STREAMING TABLE return.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{
    Array, ArrayRef, Float64Array, ListArray, RecordBatch, StringArray, StructArray, UInt64Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::Result;

use crate::query::{ClauseProgress, EpochProgress, Lines, OperatorProgress, SourceProgress};

/// A column: its name, its values, and whether a value can be null.
type Column = (&'static str, ArrayRef, bool);

fn number<T>(name: &'static str, rows: &[T], of: impl Fn(&T) -> u64) -> Column {
    let values = UInt64Array::from_iter_values(rows.iter().map(of));
    (name, Arc::new(values), false)
}

fn text<'a, T>(name: &'static str, rows: &'a [T], of: impl Fn(&'a T) -> &'a str) -> Column {
    let values = StringArray::from_iter_values(rows.iter().map(of));
    (name, Arc::new(values), false)
}

fn time<T>(name: &'static str, rows: &[T], of: impl Fn(&T) -> &Option<String>) -> Column {
    let values = StringArray::from_iter(rows.iter().map(|row| of(row).as_deref()));
    (name, Arc::new(values), true)
}

fn rate<T>(name: &'static str, rows: &[T], of: impl Fn(&T) -> Option<f64>) -> Column {
    (
        name,
        Arc::new(Float64Array::from_iter(rows.iter().map(of))),
        true,
    )
}

fn millis<T>(name: &'static str, rows: &[T], of: impl Fn(&T) -> Duration) -> Column {
    let values = rows.iter().map(|row| of(row).as_secs_f64() * 1_000.0);
    (
        name,
        Arc::new(Float64Array::from_iter_values(values)),
        false,
    )
}

/// A list for each record, of structs with these columns.
fn list<T: Clone>(
    name: &'static str,
    records: &[EpochProgress],
    of: impl Fn(&EpochProgress) -> &[T],
    columns: impl Fn(&[T]) -> Vec<Column>,
) -> Column {
    let items: Vec<T> = records
        .iter()
        .flat_map(|record| of(record).iter().cloned())
        .collect();
    let columns = columns(&items);
    let fields: Fields = columns
        .iter()
        .map(|(name, values, nullable)| Field::new(*name, values.data_type().clone(), *nullable))
        .collect();
    let arrays = columns.into_iter().map(|(_, values, _)| values).collect();
    let structs = StructArray::new(fields.clone(), arrays, None);
    let item = Arc::new(Field::new_list_field(DataType::Struct(fields), false));
    let lengths = OffsetBuffer::from_lengths(records.iter().map(|record| of(record).len()));
    (
        name,
        Arc::new(ListArray::new(item, lengths, Arc::new(structs), None)),
        false,
    )
}

/// The figures of each epoch that repeat exactly, whatever the partitions: `epoch`, `input_rows`,
/// `late_rows`, `null_rows`, `rejected_rows`, `output_rows`, `open_windows`, `open_rows` (numbers) and
/// `watermark` (text, null before the first event); behind `rejected_rows`, `guarded_rows` if a clause of the query has
/// a guard (`max_future`).
///
/// # Errors
/// - none of its own: the columns are of one length
pub fn refresh_batch(records: &[EpochProgress]) -> Result<RecordBatch> {
    let mut columns = exact(records);
    let guards = |record: &EpochProgress| record.clauses.iter().any(|one| one.max_future.is_some());
    if records.iter().any(guards) {
        let behind = columns.iter().position(|(name, ..)| *name == "output_rows");
        let guarded = number("guarded_rows", records, |r| r.guarded_rows);
        columns.insert(behind.unwrap_or(columns.len()), guarded);
    }
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn exact(records: &[EpochProgress]) -> Vec<Column> {
    vec![
        number("epoch", records, |r| r.epoch),
        number("input_rows", records, |r| r.input_rows),
        number("late_rows", records, |r| r.late_rows),
        number("null_rows", records, |r| r.null_rows),
        number("rejected_rows", records, |r| r.rejected_rows),
        number("output_rows", records, |r| r.output_rows),
        number("open_windows", records, |r| r.open_windows),
        number("open_rows", records, |r| r.open_rows),
        time("watermark", records, |r| &r.watermark),
    ]
}

/// All figures of each epoch: those of [`refresh_batch`], then
///
/// - `watermark_before` (text), `guarded_rows`, `open_groups`, `skipped_records`, `state_bytes`,
///   `state_spilled_bytes` (numbers)
/// - `input_rows_per_second` (null for the first epoch), `processed_rows_per_second`
/// - `read_ms`, `absorb_ms`, `emit_ms`, `commit_ms`, `duration_ms`
/// - `sources`, `clauses`, `operators`: lists of structs with the fields of [`SourceProgress`],
///   [`ClauseProgress`] and [`OperatorProgress`], for `unnest`
///
/// # Errors
/// - none of its own: the columns are of one length
pub fn progress_batch(records: &[EpochProgress]) -> Result<RecordBatch> {
    let mut columns = exact(records);
    columns.extend([
        time("watermark_before", records, |r| &r.watermark_before),
        number("guarded_rows", records, |r| r.guarded_rows),
        number("open_groups", records, |r| r.open_groups),
        number("skipped_records", records, |r| r.skipped_records),
        number("state_bytes", records, |r| r.state_bytes),
        number("state_spilled_bytes", records, |r| r.state_spilled_bytes),
        rate("input_rows_per_second", records, |r| {
            r.input_rows_per_second()
        }),
        rate("processed_rows_per_second", records, |r| {
            Some(r.processed_rows_per_second())
        }),
        millis("read_ms", records, |r| r.phases.read),
        millis("absorb_ms", records, |r| r.phases.absorb),
        millis("emit_ms", records, |r| r.phases.emit),
        millis("commit_ms", records, |r| r.phases.commit),
        millis("duration_ms", records, |r| r.duration),
        list("sources", records, |r| &r.sources, source_columns),
        list("clauses", records, |r| &r.clauses, clause_columns),
        list("operators", records, |r| &r.operators, operator_columns),
    ]);
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn source_columns(sources: &[SourceProgress]) -> Vec<Column> {
    vec![
        text("name", sources, |s| &s.name),
        number("rows", sources, |s| s.rows),
        number("skipped_records", sources, |s| s.skipped_records),
    ]
}

fn clause_columns(clauses: &[ClauseProgress]) -> Vec<Column> {
    vec![
        text("column", clauses, |c| &c.column),
        text("sources", clauses, |c| &c.sources),
        text("delay", clauses, |c| &c.delay),
        number("rows", clauses, |c| c.rows),
        number("null_rows", clauses, |c| c.null_rows),
        time("max_future", clauses, |c| &c.max_future),
        number("guarded_rows", clauses, |c| c.guarded_rows),
        time("guarded_max", clauses, |c| &c.guarded_max),
        time("event_time_min", clauses, |c| &c.event_time_min),
        time("event_time_max", clauses, |c| &c.event_time_max),
        time("event_time_avg", clauses, |c| &c.event_time_avg),
        time("watermark", clauses, |c| &c.watermark),
        time("idle_since", clauses, |c| &c.idle_since),
    ]
}

fn operator_columns(operators: &[OperatorProgress]) -> Vec<Column> {
    vec![
        text("operator", operators, |o| &o.operator),
        number("accepted_rows", operators, |o| o.accepted_rows),
        number("late_rows", operators, |o| o.late_rows),
        number("null_rows", operators, |o| o.null_rows),
        number("rejected_rows", operators, |o| o.rejected_rows),
        number("open_windows", operators, |o| o.open_windows),
        number("open_rows", operators, |o| o.open_rows),
        number("state_rows", operators, |o| o.state_rows),
        number("state_rows_added", operators, |o| o.state_rows_added),
        number("state_rows_removed", operators, |o| o.state_rows_removed),
        number("state_bytes", operators, |o| o.state_bytes),
        number("state_spilled_bytes", operators, |o| o.state_spilled_bytes),
        time("closes_at", operators, |o| &o.closes_at),
    ]
}

/// The answer to EXPLAIN STREAMING TABLE: `question` and `answer`, both text.
///
/// # Errors
/// - none of its own: the columns are of one length
pub fn outlook_batch(lines: &Lines) -> Result<RecordBatch> {
    Ok(RecordBatch::try_from_iter_with_nullable([
        text("question", lines, |(question, _)| question),
        text("answer", lines, |(_, answer)| answer),
    ])?)
}
