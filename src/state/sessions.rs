//! Sessions: stretches of one key's events that touch.
//!
//! Every event is a stretch `[ts, ts + gap)`. Stretches of one key that overlap or touch are one
//! session, from the first start to the greatest end:
//!
//! ```text
//! key a   [1----4)  [4----7)            [20---23)     two sessions: [1, 7) and [20, 23)
//! key b        [3-----6)                              one session:  [3, 6)
//! ```
//!
//! Merging is associative, so fragments of an epoch merge with the sessions kept from earlier ones in
//! the same way. Source: Spark's `session_window`.

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{concat_batches, filter_record_batch, min, not, sum};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, internal_datafusion_err};
use std::sync::Arc;

use super::keys::with_one_zero;
use crate::time::Closed;

/// Bounds of the session of each row, and how many sessions there are.
#[derive(Debug)]
pub struct Merged {
    /// Start of the row's session.
    pub starts: Int64Array,
    /// End of the row's session.
    pub ends: Int64Array,
    /// Number of sessions.
    pub sessions: u64,
}

/// Merges the stretches of rows with equal keys.
///
/// # Errors
/// - keys of a type that has no order
pub fn merge(keys: &[ArrayRef], starts: &Int64Array, ends: &Int64Array) -> Result<Merged> {
    let rows = match keys {
        [] => None,
        keys => {
            let fields = keys
                .iter()
                .map(|key| SortField::new(key.data_type().clone()))
                .collect();
            Some(RowConverter::new(fields)?.convert_columns(&with_one_zero(keys))?)
        }
    };
    let key_order = |a: usize, b: usize| {
        rows.as_ref().map_or(std::cmp::Ordering::Equal, |rows| {
            rows.row(a).cmp(&rows.row(b))
        })
    };
    let mut order: Vec<usize> = (0..starts.len()).collect();
    order.sort_unstable_by(|a, b| {
        key_order(*a, *b).then_with(|| starts.value(*a).cmp(&starts.value(*b)))
    });
    let mut bounds = vec![(0_i64, 0_i64); starts.len()];
    let mut sessions = 0;
    let mut at = 0;
    while let Some(first) = order.get(at).copied() {
        let (start, mut end) = (starts.value(first), ends.value(first));
        let mut last = at + 1;
        while let Some(next) = order.get(last).copied() {
            if key_order(first, next).is_ne() || starts.value(next) > end {
                break;
            }
            end = end.max(ends.value(next));
            last += 1;
        }
        for row in order.get(at..last).unwrap_or_default() {
            if let Some(bound) = bounds.get_mut(*row) {
                *bound = (start, end);
            }
        }
        sessions += 1;
        at = last;
    }
    let (starts, ends): (Vec<i64>, Vec<i64>) = bounds.into_iter().unzip();
    Ok(Merged {
        starts: starts.into(),
        ends: ends.into(),
        sessions,
    })
}

/// What becomes of runs `(start, end, keys …, states …, rows)` at the end of an epoch.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Rows of sessions that have closed.
    pub closed: Option<RecordBatch>,
    /// Rows of sessions that stay.
    pub open: Option<RecordBatch>,
    /// Sessions that stay.
    pub sessions: u64,
}

/// Merges all runs of a partition and parts them by whether their session has closed.
pub(super) fn settle(runs: &[RecordBatch], keys: usize, closed: Closed) -> Result<Settled> {
    let Some(first) = runs.first() else {
        return Ok(Settled::default());
    };
    let all = concat_batches(&first.schema(), runs)?;
    let merged = merge(key_columns(&all, keys), bound(&all, 0)?, bound(&all, 1)?)?;
    let closes: BooleanArray = merged
        .ends
        .iter()
        .map(|end| end.map(|end| closed.contains(end)))
        .collect();
    let mut columns = all.columns().to_vec();
    columns.splice(
        0..2,
        [
            Arc::new(merged.starts) as ArrayRef,
            Arc::new(merged.ends) as ArrayRef,
        ],
    );
    let all = RecordBatch::try_new(first.schema(), columns)?;
    let open = filter_record_batch(&all, &not(&closes)?)?;
    let gone = filter_record_batch(&all, &closes)?;
    // Sessions are counted again only when some have left.
    let sessions = match gone.num_rows() {
        0 => merged.sessions,
        _ => merge(key_columns(&open, keys), bound(&open, 0)?, bound(&open, 1)?)?.sessions,
    };
    let some = |batch: RecordBatch| (batch.num_rows() > 0).then_some(batch);
    Ok(Settled {
        closed: some(gone),
        open: some(open),
        sessions,
    })
}

/// The key columns behind the two bounds.
fn key_columns(run: &RecordBatch, keys: usize) -> &[ArrayRef] {
    run.columns().get(2..2 + keys).unwrap_or_default()
}

/// A bound: the first or the second column.
fn bound(run: &RecordBatch, at: usize) -> Result<&Int64Array> {
    run.columns()
        .get(at)
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| internal_datafusion_err!("a run of sessions begins with its bounds"))
}

/// Where the first session of a run ends.
pub(super) fn first_end(run: &RecordBatch) -> Option<i64> {
    min(bound(run, 1).ok()?)
}

/// Rows that were aggregated into runs: the sum of their last column.
pub(super) fn rows(runs: impl Iterator<Item = RecordBatch>) -> u64 {
    let counts =
        runs.filter_map(|run| sum(run.columns().last()?.as_primitive_opt::<Int64Type>()?));
    counts.map(i64::unsigned_abs).sum()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringArray;

    use super::*;

    fn merged(keys: &[&str], stretches: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let keys: Vec<ArrayRef> = vec![Arc::new(StringArray::from(keys.to_vec()))];
        let starts = Int64Array::from_iter_values(stretches.iter().map(|(start, _)| *start));
        let ends = Int64Array::from_iter_values(stretches.iter().map(|(_, end)| *end));
        let merged = merge(&keys, &starts, &ends).unwrap();
        merged
            .starts
            .values()
            .iter()
            .copied()
            .zip(merged.ends.values().iter().copied())
            .collect()
    }

    #[test]
    fn stretches_that_touch_are_one_session_and_keys_do_not_mix() {
        assert_eq!(
            merged(&["a", "b", "a", "a"], &[(4, 7), (3, 6), (20, 23), (1, 4)]),
            [(1, 7), (3, 6), (20, 23), (1, 7)]
        );
    }

    #[test]
    fn a_long_stretch_holds_what_begins_within_it() {
        assert_eq!(
            merged(&["a", "a", "a"], &[(1, 10), (2, 3), (9, 12)]),
            [(1, 12), (1, 12), (1, 12)]
        );
    }
}
