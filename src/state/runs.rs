//! Runs: rows of partial aggregate state, grouped by the slice in their first column.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{
    filter_record_batch, is_not_null, is_null, partition, sort_to_indices, take_record_batch,
};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::{Result, internal_datafusion_err};

use super::groups::KeyIndex;
use super::spill::OnDisk;
use crate::checkpoint::rows_joined;

/// The slice of groups without a time beside groups with one: no watermark reaches it.
pub(super) const TIMELESS: i64 = i64::MAX;

/// A batch with fewer rows is small.
const SMALL_ROWS: usize = 128;

/// Rows that small batches are put together to.
const BATCH_ROWS: usize = 8_192;

/// Rows of partial state, and their share of the memory that they hold, which may be that of more rows.
#[derive(Debug)]
pub struct Part {
    /// The rows.
    pub batch: RecordBatch,
    /// Bytes.
    pub bytes: usize,
}

impl Part {
    /// A batch of its own, with all the memory it holds.
    pub fn whole(batch: RecordBatch) -> Self {
        let bytes = batch.get_array_memory_size();
        Self { batch, bytes }
    }

    /// A batch that was read from a file: its buffers are parts of one, which is counted once.
    pub fn read(batch: RecordBatch) -> Self {
        let columns = batch.columns().iter();
        let bytes = columns.map(|column| {
            let slice = column.to_data().get_slice_memory_size();
            slice.unwrap_or_else(|_| column.get_array_memory_size())
        });
        Self {
            bytes: bytes.sum(),
            batch,
        }
    }
}

/// Rows of partial state, and the memory that was reserved for them.
#[derive(Debug, Clone)]
pub(super) struct Run {
    held: Held,
    /// None on disk.
    pub bytes: usize,
    /// Made when groups are first sought in it.
    pub index: Arc<OnceLock<KeyIndex>>,
}

/// Where the rows of a run are.
#[derive(Debug, Clone)]
enum Held {
    Memory(RecordBatch),
    Disk(OnDisk),
}

impl Run {
    /// A batch of its own, with all the memory it holds.
    pub(super) fn whole(batch: RecordBatch) -> Self {
        let bytes = batch.get_array_memory_size();
        Self::part(batch, bytes)
    }

    /// A batch that shares its memory with others, and its share.
    pub(super) fn part(batch: RecordBatch, bytes: usize) -> Self {
        Self {
            held: Held::Memory(batch),
            bytes,
            index: Arc::default(),
        }
    }

    /// How many rows it has.
    pub(super) fn rows(&self) -> usize {
        match &self.held {
            Held::Memory(batch) => batch.num_rows(),
            Held::Disk(at) => at.rows,
        }
    }

    /// Its rows, if they are in memory.
    pub(super) fn in_memory(&self) -> Option<&RecordBatch> {
        match &self.held {
            Held::Memory(batch) => Some(batch),
            Held::Disk(_) => None,
        }
    }

    /// Its rows, read from disk if they are there.
    ///
    /// # Errors
    /// - they cannot be read
    pub(super) fn load(&self) -> Result<RecordBatch> {
        match &self.held {
            Held::Memory(batch) => Ok(batch.clone()),
            Held::Disk(at) => at.load(),
        }
    }

    /// Bytes that it takes on disk.
    pub(super) fn disk_bytes(&self) -> u64 {
        match &self.held {
            Held::Memory(_) => 0,
            Held::Disk(at) => at.len,
        }
    }

    /// Bytes that it takes in memory, or did before it went to disk.
    pub(super) fn size(&self) -> u64 {
        match &self.held {
            Held::Memory(_) => self.bytes as u64,
            Held::Disk(at) => at.bytes as u64,
        }
    }

    /// Whether it is this one, not one with the same rows.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.index, &other.index)
    }

    /// Lets go of the memory: the rows are on disk.
    pub(super) fn put_on_disk(&mut self, mut at: OnDisk) {
        at.bytes = self.bytes;
        *self = Self {
            held: Held::Disk(at),
            bytes: 0,
            index: Arc::default(),
        };
    }

    /// Puts a copy in the place of rows that share their memory with others.
    pub(super) fn put_alone(&mut self, batch: RecordBatch, bytes: usize) {
        (self.held, self.bytes) = (Held::Memory(batch), bytes);
    }
}

/// Memory reserved for some runs.
pub(super) fn bytes(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.bytes).sum()
}

/// Rows of partial state in some runs.
pub(super) fn rows(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.rows() as u64).sum()
}

/// Where the newest runs begin that are worth merging: half of `limit`, and older ones as long as they are
/// no larger than those behind them together.
pub(super) fn newest(runs: &[Run], limit: usize) -> usize {
    let (mut first, mut behind) = (runs.len(), 0);
    for run in runs.iter().rev() {
        let rows = run.rows();
        if runs.len() - first >= limit / 2 && rows > behind {
            break;
        }
        first -= 1;
        behind += rows;
    }
    first
}

/// Where the runs begin that are behind all those on disk.
pub(super) fn behind_disk(runs: &[Run]) -> usize {
    let last = runs.iter().rposition(|run| run.in_memory().is_none());
    last.map_or(0, |last| last + 1)
}

/// The slices of a run's rows: its first column.
///
/// # Errors
/// - it is no `Int64`
pub fn slices(batch: &RecordBatch) -> Result<&Int64Array> {
    batch
        .columns()
        .first()
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| internal_datafusion_err!("a run of partial states begins with its slice"))
}

/// Cuts a batch into one run for each slice in it. The cuts share the batch's buffers: each has the
/// share of its rows in the memory, and the last one what is left by rounding.
pub(super) fn by_slice(part: Part) -> Result<Vec<(i64, Run)>> {
    let Part { batch, bytes } = part;
    if slices(&batch)?.null_count() > 0 {
        return with_timeless(&batch);
    }
    let column = slices(&batch)?;
    let (Some(first), rows) = (column.values().first().copied(), batch.num_rows()) else {
        return Ok(Vec::new());
    };
    if column.values().iter().all(|slice| *slice == first) {
        return Ok(vec![(first, Run::part(batch, bytes))]);
    }
    let (sorted, total) = if column.values().is_sorted() {
        (batch, bytes)
    } else {
        let sorted = take_record_batch(&batch, &sort_to_indices(column, None, None)?)?;
        let total = sorted.get_array_memory_size();
        (sorted, total)
    };
    let ranges = partition(&[Arc::clone(sorted.column(0))])?.ranges();
    let keys = slices(&sorted)?;
    let mut left = total;
    let mut cuts = Vec::with_capacity(ranges.len());
    for range in ranges {
        let bytes = match range.end == rows {
            true => left,
            false => total / rows * range.len(),
        };
        left -= bytes;
        let batch = sorted.slice(range.start, range.len());
        cuts.push((keys.value(range.start), Run::part(batch, bytes)));
    }
    Ok(cuts)
}

/// Parts the groups of grouping sets without the time, whose slice is null, from the others. Rows that
/// came too late for their window are left out of the groups with one.
fn with_timeless(batch: &RecordBatch) -> Result<Vec<(i64, Run)>> {
    let column = slices(batch)?;
    let timeless = filter_record_batch(batch, &is_null(column)?)?;
    let timed = filter_record_batch(batch, &is_not_null(column)?)?;
    let mut cuts = by_slice(Part::whole(timed))?;
    cuts.push((TIMELESS, Run::whole(timeless)));
    Ok(cuts)
}

/// Batches of which many are small, as fewer: whoever reads them has a cost for each.
pub fn coalesced(batches: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let (mut out, mut small, mut rows) = (Vec::new(), Vec::new(), 0);
    for batch in batches {
        if batch.num_rows() >= SMALL_ROWS {
            out.push(batch);
            continue;
        }
        rows += batch.num_rows();
        small.push(batch);
        if rows >= BATCH_ROWS {
            out.append(&mut rows_joined(std::mem::take(&mut small)));
            rows = 0;
        }
    }
    out.append(&mut rows_joined(small));
    out
}

/// The same run as part of another slice: of the window that begins at `slice`.
pub(super) fn moved(run: &RecordBatch, slice: i64) -> Result<RecordBatch> {
    let mut columns = run.columns().to_vec();
    if let Some(first) = columns.first_mut() {
        *first = Arc::new(Int64Array::from_value(slice, run.num_rows()));
    }
    Ok(RecordBatch::try_new(run.schema(), columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_run_is_left_alone_until_those_behind_it_are_as_large() {
        let run = |rows: i64| {
            let slice = Int64Array::from_iter_values((0..rows).map(|_| 0));
            let columns = [("slice", Arc::new(slice) as _)];
            Run::whole(RecordBatch::try_from_iter(columns).unwrap())
        };
        let runs = |rows: &[i64]| rows.iter().map(|rows| run(*rows)).collect::<Vec<_>>();
        assert_eq!(newest(&runs(&[1_000, 1, 1, 1, 1]), 4), 1);
        assert_eq!(newest(&runs(&[1_000, 30, 1, 1, 1]), 4), 2);
        assert_eq!(newest(&runs(&[4, 1, 1, 1, 1]), 4), 0);
        assert_eq!(newest(&runs(&[99, 8, 7, 6, 5]), 4), 1);
    }
}
