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
//! Merging is associative: an epoch merges its own stretches ([`merge`]), and the gate joins what is left of them with
//! the sessions that are open ([`OpenSessions`]), at the cost of the epoch's rows. Source: Spark's `session_window`.

mod index;
mod open;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{concat_batches, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::{Result, internal_datafusion_err};

pub(super) use open::OpenSessions;

use super::keys::{KeyNumbers, with_one_zero};
use crate::time::Closed;

/// Bounds of the session of each row.
#[derive(Debug)]
pub struct Merged {
    /// Start of the row's session.
    pub starts: Int64Array,
    /// End of the row's session.
    pub ends: Int64Array,
}

/// Merges the stretches of rows with equal keys.
///
/// # Errors
/// - keys of a type that cannot be grouped by
pub fn merge(keys: &[ArrayRef], starts: &Int64Array, ends: &Int64Array) -> Result<Merged> {
    let (keys, count) = numbered(keys, starts.len())?;
    let (mut begins, mut bounds) = (counted(&keys, count), vec![(0_i64, 0_i64); starts.len()]);
    // Each key's stretches side by side, by counting: sorting all rows by their keys would compare texts.
    let mut stretches = vec![Stretch::default(); starts.len()];
    let all = starts.values().iter().zip(ends.values()).zip(0..);
    for (key, ((start, end), row)) in keys.iter().zip(all) {
        let place = begins.get_mut(*key);
        let slot = place.and_then(|at| stretches.get_mut(std::mem::replace(at, *at + 1)));
        if let Some(slot) = slot {
            *slot = Stretch {
                start: *start,
                end: *end,
                row,
            };
        }
    }
    let mut from = 0;
    // Where a key began, the next one begins now.
    for to in begins {
        let of_key = stretches.get_mut(from..to).unwrap_or_default();
        sweep(of_key, &mut bounds);
        from = to;
    }
    let (starts, ends): (Vec<i64>, Vec<i64>) = bounds.into_iter().unzip();
    Ok(Merged {
        starts: starts.into(),
        ends: ends.into(),
    })
}

/// One event's stretch, and the row it is in.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    start: i64,
    end: i64,
    row: usize,
}

/// A number for each row's key, and how many keys there are.
fn numbered(keys: &[ArrayRef], rows: usize) -> Result<(Vec<usize>, usize)> {
    let keys = with_one_zero(keys);
    let mut numbers = KeyNumbers::of(&keys)?;
    let mut of_rows = Vec::with_capacity(rows);
    numbers.number(&keys, rows, &mut of_rows)?;
    Ok((of_rows, numbers.count()))
}

/// Where each key's rows begin when they stand side by side.
fn counted(keys: &[usize], count: usize) -> Vec<usize> {
    let mut rows = vec![0; count];
    for key in keys {
        if let Some(rows) = rows.get_mut(*key) {
            *rows += 1;
        }
    }
    let mut begin = 0;
    for rows in &mut rows {
        begin += std::mem::replace(rows, begin);
    }
    rows
}

/// Merges the stretches of one key: gives each row its session's bounds.
fn sweep(stretches: &mut [Stretch], bounds: &mut [(i64, i64)]) {
    stretches.sort_unstable_by_key(|stretch| stretch.start);
    let mut rest = &*stretches;
    while let Some(first) = rest.first() {
        let mut end = first.end;
        let touches = |next: &&Stretch| {
            let within = next.start <= end;
            end = if within { end.max(next.end) } else { end };
            within
        };
        let length = rest.iter().take_while(touches).count();
        let (session, behind) = rest.split_at(length);
        for stretch in session {
            if let Some(bound) = bounds.get_mut(stretch.row) {
                *bound = (first.start, end);
            }
        }
        rest = behind;
    }
}

/// A session, and how many rows were aggregated into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Begin, inclusive.
    pub begin: i64,
    /// End, exclusive.
    pub end: i64,
    /// Its rows.
    pub rows: u64,
}

/// A run with one more column: the bound of the sessions that had closed when its epoch began, null where none
/// had. Without it a late fragment could not be told from one that would have held a closed session open.
pub(super) fn since(run: &RecordBatch, closed: Closed) -> Result<RecordBatch> {
    let bound = match closed {
        Closed::None => None,
        Closed::Through(last) => Some(last),
        Closed::All => Some(i64::MAX),
    };
    let mut fields = run.schema().fields().to_vec();
    fields.push(Arc::new(Field::new("since", DataType::Int64, true)));
    let mut columns = run.columns().to_vec();
    columns.push(Arc::new(Int64Array::from(vec![bound; run.num_rows()])));
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// The rows of sessions that are open, of runs as [`since`] made them, in the order of their epochs: each
/// epoch's fragments meet only sessions that had not closed when it began.
pub(super) fn replay(
    runs: &[RecordBatch],
    keys: usize,
    closed: Closed,
) -> Result<Option<RecordBatch>> {
    let Some(first) = runs.first() else {
        return Ok(None);
    };
    let all = concat_batches(&first.schema(), runs)?;
    let since = all.columns().last();
    let since = since.and_then(|column| column.as_primitive_opt::<Int64Type>());
    let since = since.ok_or_else(|| internal_datafusion_err!("a saved run ends with its bound"))?;
    let (starts, ends) = (bound(&all, 0)?, bound(&all, 1)?);
    let (numbers, count) = numbered(key_columns(&all, keys), all.num_rows())?;
    let mut of_keys: Vec<Vec<Open>> = vec![Vec::new(); count];
    let stretches = starts.values().iter().zip(ends.values()).zip(since);
    for (row, (key, ((start, end), since))) in numbers.iter().zip(stretches).enumerate() {
        let Some(open) = of_keys.get_mut(*key) else {
            continue;
        };
        if let Some(since) = since {
            open.retain(|session| session.end > since);
        }
        let mut joined = Open {
            start: *start,
            end: *end,
            rows: vec![row],
        };
        // One that joins two grows, but not over what it has passed: sessions do not touch each other.
        for session in std::mem::take(open) {
            match session.start <= joined.end && joined.start <= session.end {
                true => joined.take(session),
                false => open.push(session),
            }
        }
        open.push(joined);
    }
    let mut stays = vec![false; all.num_rows()];
    let open = of_keys.iter().flatten();
    let rows = open
        .filter(|session| !closed.contains(session.end))
        .flat_map(|session| &session.rows);
    for row in rows {
        if let Some(stays) = stays.get_mut(*row) {
            *stays = true;
        }
    }
    let all = filter_record_batch(&all, &BooleanArray::from(stays))?;
    let columns: Vec<usize> = (0..all.num_columns().saturating_sub(1)).collect();
    Ok((all.num_rows() > 0)
        .then(|| all.project(&columns))
        .transpose()?)
}

/// A session while it is replayed, and its rows.
#[derive(Debug, Clone)]
struct Open {
    start: i64,
    end: i64,
    rows: Vec<usize>,
}

impl Open {
    fn take(&mut self, other: Open) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.rows.extend(other.rows);
    }
}

/// A run with the bounds of the sessions of its rows.
fn with_sessions(run: &RecordBatch, starts: Int64Array, ends: Int64Array) -> Result<RecordBatch> {
    let mut columns = run.columns().to_vec();
    let bounds = [Arc::new(starts) as ArrayRef, Arc::new(ends) as ArrayRef];
    columns.splice(0..2, bounds);
    Ok(RecordBatch::try_new(run.schema(), columns)?)
}

/// The key columns behind the two bounds.
fn key_columns(run: &RecordBatch, keys: usize) -> &[ArrayRef] {
    run.columns().get(2..2 + keys).unwrap_or_default()
}

/// How many accepted rows are in each row of a run: its last column.
fn counts(run: &RecordBatch) -> Result<&Int64Array> {
    bound(run, run.num_columns().saturating_sub(1))
}

/// A column of numbers: the first two are the bounds, the last one counts rows.
fn bound(run: &RecordBatch, at: usize) -> Result<&Int64Array> {
    run.columns()
        .get(at)
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .ok_or_else(|| {
            internal_datafusion_err!("a run of sessions has its bounds first and its rows last")
        })
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

    fn run(stretches: &[(i64, i64)], closed: Closed) -> RecordBatch {
        let starts = Int64Array::from_iter_values(stretches.iter().map(|(start, _)| *start));
        let ends = Int64Array::from_iter_values(stretches.iter().map(|(_, end)| *end));
        let keys = StringArray::from(vec!["a"; stretches.len()]);
        let columns: [(&str, ArrayRef); 3] = [
            ("start", Arc::new(starts)),
            ("end", Arc::new(ends)),
            ("key", Arc::new(keys)),
        ];
        since(&RecordBatch::try_from_iter(columns).unwrap(), closed).unwrap()
    }

    #[test]
    fn a_closed_session_is_not_joined_when_epochs_are_replayed() {
        let epochs = [
            run(&[(0, 10), (8, 20), (40, 50)], Closed::None),
            // The first session closed at 20; this stretch would touch it.
            run(&[(15, 25)], Closed::Through(20)),
            run(&[(24, 41)], Closed::Through(20)),
        ];
        let open = replay(&epochs, 1, Closed::Through(22)).unwrap().unwrap();
        assert_eq!(open.num_rows(), 3);
        let merged = merge(
            key_columns(&open, 1),
            bound(&open, 0).unwrap(),
            bound(&open, 1).unwrap(),
        );
        let starts = merged.unwrap().starts.values().to_vec();
        assert_eq!(starts, [15, 15, 15]);
        assert!(replay(&epochs, 1, Closed::Through(50)).unwrap().is_none());
    }

    #[test]
    fn a_long_stretch_holds_what_begins_within_it() {
        assert_eq!(
            merged(&["a", "a", "a"], &[(1, 10), (2, 3), (9, 12)]),
            [(1, 12), (1, 12), (1, 12)]
        );
    }
}
