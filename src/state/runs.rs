//! Runs: rows of partial aggregate state, grouped by the slice in their first column.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{partition, sort_to_indices, take_record_batch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::{Result, internal_datafusion_err};

/// The slices of a run's rows: its first column.
pub(super) fn slices(batch: &RecordBatch) -> Result<&Int64Array> {
    batch
        .columns()
        .first()
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| internal_datafusion_err!("a run of partial states begins with its slice"))
}

/// Cuts a batch into one run for each slice in it.
pub(super) fn by_slice(
    batch: RecordBatch,
    into: &mut BTreeMap<i64, Vec<RecordBatch>>,
) -> Result<()> {
    let column = slices(&batch)?;
    let (Some(first), Some(last)) = (column.values().first(), column.values().last()) else {
        return Ok(());
    };
    if first == last && column.values().iter().all(|slice| slice == first) {
        into.entry(*first).or_default().push(batch);
        return Ok(());
    }
    let order: UInt64Array = sort_to_indices(column, None, None)?
        .values()
        .iter()
        .map(|at| u64::from(*at))
        .collect();
    let sorted = take_record_batch(&batch, &order)?;
    let keys = Arc::clone(sorted.column(0));
    for range in partition(&[Arc::clone(&keys)])?.ranges() {
        let slice = slices(&sorted)?.value(range.start);
        let run = sorted.slice(range.start, range.len());
        into.entry(slice).or_default().push(run);
    }
    Ok(())
}

/// The same run as part of another slice: of the window that begins at `slice`.
pub(super) fn moved(run: &RecordBatch, slice: i64) -> Result<RecordBatch> {
    let mut columns = run.columns().to_vec();
    if let Some(first) = columns.first_mut() {
        *first = Arc::new(Int64Array::from_value(slice, run.num_rows()));
    }
    Ok(RecordBatch::try_new(run.schema(), columns)?)
}

/// Bytes that runs hold, buffers shared between runs counted once for each share of their rows.
pub(super) fn bytes(runs: &[RecordBatch]) -> usize {
    use datafusion::arrow::array::Array;
    runs.iter()
        .flat_map(RecordBatch::columns)
        .map(|column| {
            column
                .to_data()
                .get_slice_memory_size()
                .unwrap_or_else(|_| column.get_array_memory_size())
        })
        .sum()
}
