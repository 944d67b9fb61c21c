//! Rows that an epoch did not count, as rows of a table.
//!
//! ```text
//! clause's columns …  _epoch  _watermark  _late_by  _window_start  _window_end  _operator         _reason
//! 17  8.50  09:05         42  11:20       02:15     09:00          10:00        TimeWindowGate 0  late
//! ```
//!
//! - `_watermark` is the one that the epoch began with, by which its rows are judged; `_late_by` is how far the
//!   event time is behind it. Both are null before there is a watermark, and `_late_by` without an event time.
//! - A row that a join has copied is there once, however many copies were left out.
//! - A row that counts in newer windows only is there too, as `missed`: with the newest of those that lack it.
//! - `_window_start` and `_window_end` are the bounds of the newest window that the row is in, of a session its own
//!   stretch `[ts, ts + gap)`: for a late row all of them had closed. They are null where there is none, and the
//!   end is where windows are what a function of the event time returns.
//! - Times are in the finest unit of the query's event times and windows; what that unit cannot hold is null.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, StructArray,
    UInt64Array, new_null_array,
};
use datafusion::arrow::compute::{cast, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef, UInt64Type};
use datafusion::common::{Result, internal_datafusion_err, internal_err};

use crate::config::{arrow_unit, unit_of};
use crate::logical::{ASIDE, EVENT_TIME, NUMBER, WATERMARK};
use crate::state::SetAside;
use crate::time::{Instant, Unit};

/// The rows that an epoch set aside, in the columns of a table of them.
///
/// # Errors
/// - the schema is not that of such a table
pub(super) fn late_rows(
    aside: &[SetAside],
    epoch: u64,
    watermark: Option<Instant>,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let mut seen = HashSet::new();
    let batches = aside.iter().map(|rows| {
        let batch = late_batch(rows, epoch, watermark, schema)?;
        once(rows, batch, &mut seen)
    });
    batches.collect()
}

/// The rows of a batch that are not copies of one that the operator has left out already.
fn once<'a>(
    aside: &'a SetAside,
    batch: RecordBatch,
    seen: &mut HashSet<(&'a str, u64)>,
) -> Result<RecordBatch> {
    let numbers = aside.rows.as_struct_opt();
    let numbers = numbers.and_then(|rows| rows.column_by_name(NUMBER));
    let Some(numbers) = numbers.and_then(|column| column.as_primitive_opt::<UInt64Type>()) else {
        return Ok(batch);
    };
    let new = numbers
        .values()
        .iter()
        .map(|number| Some(seen.insert((aside.operator.as_str(), *number))));
    Ok(filter_record_batch(&batch, &new.collect::<BooleanArray>())?)
}

fn late_batch(
    aside: &SetAside,
    epoch: u64,
    watermark: Option<Instant>,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let rows = aside.rows.as_struct_opt();
    let rows = rows.ok_or_else(|| internal_datafusion_err!("a carried row is a struct"))?;
    let count = aside.reasons.len();
    let unit = unit(schema)?;
    let watermark = watermark.map(|watermark| unit.floor(watermark));
    let event_times = event_times(rows, schema)?;
    let late_by = event_times.iter().map(|time| watermark?.checked_sub(time?));
    let windows = &aside.windows;
    let bound = |ticks: &Int64Array| in_unit(ticks, windows.unit, unit);
    let reasons = aside.reasons.iter().map(|reason| reason.name());
    let columns: [ArrayRef; ASIDE.len()] = [
        Arc::new(UInt64Array::from_value(epoch, count)),
        Arc::new(Int64Array::from_iter(std::iter::repeat_n(watermark, count))),
        Arc::new(late_by.collect::<Int64Array>()),
        bound(&windows.starts),
        bound(&windows.ends),
        Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
            &aside.operator,
            count,
        ))),
        Arc::new(StringArray::from_iter_values(reasons)),
    ];
    let own = schema.fields().len().saturating_sub(ASIDE.len());
    let of_row = schema.fields().iter().take(own);
    let of_row = of_row.map(|field| match rows.column_by_name(field.name()) {
        Some(column) => Arc::clone(column),
        None => new_null_array(field.data_type(), count),
    });
    let typed = schema.fields().iter().skip(own).zip(columns);
    let typed = typed.map(|(field, column)| cast(&column, field.data_type()));
    let columns = of_row.map(Ok).chain(typed).collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Unit of the times of a table of rows.
fn unit(schema: &SchemaRef) -> Result<Unit> {
    match schema.field_with_name(WATERMARK)?.data_type() {
        DataType::Timestamp(unit, _) => Ok(unit_of(unit)),
        other => internal_err!("a watermark is a timestamp, not {other}"),
    }
}

/// Event times of carried rows, in the unit of the table.
fn event_times(rows: &StructArray, schema: &SchemaRef) -> Result<Int64Array> {
    let times = rows.column_by_name(EVENT_TIME);
    let times = times.ok_or_else(|| internal_datafusion_err!("a carried row has an event time"))?;
    let times = cast(times, &DataType::Timestamp(arrow_unit(unit(schema)?), None))?;
    Ok(cast(&times, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}

/// Ticks in another unit; null where it cannot hold them.
fn in_unit(ticks: &Int64Array, from: Unit, to: Unit) -> ArrayRef {
    if from == to {
        return Arc::new(ticks.clone());
    }
    let moved = ticks.iter().map(|tick| {
        let instant = from.instant(tick?);
        let moved = to.floor(instant);
        (to.instant(moved) == instant).then_some(moved)
    });
    Arc::new(moved.collect::<Int64Array>())
}
