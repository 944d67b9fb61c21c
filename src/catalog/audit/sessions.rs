//! Which session of a recount holds a session of fewer rows.
//!
//! ```text
//! recount     [--------------------)        [----)
//! published   [-----)     [--------)        [----)
//! late               [------)
//! ```
//!
//! More rows only merge sessions: every session of some of the rows lies in one session of all of them.

use std::collections::HashMap;

use datafusion::arrow::row::OwnedRow;
use datafusion::common::Result;

use super::groups::{Groups, Keys};
use super::snapshot::Snapshot;

/// The sessions of a recount, by the rest of their key.
pub(super) struct Sessions {
    keys: Keys,
    by_key: HashMap<OwnedRow, Vec<Span>>,
}

/// A session: its bounds, and its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: i64,
    end: i64,
    row: usize,
}

impl Sessions {
    /// The sessions of these rows, whose bounds are in two columns.
    pub(super) fn new(
        snapshot: &Snapshot,
        groups: &Groups,
        bounds: (usize, usize),
    ) -> Result<Self> {
        let key = snapshot.shape.keyed_beside_bounds();
        let keys = Keys::new(&snapshot.schema, &key)?;
        let mut by_key: HashMap<OwnedRow, Vec<Span>> = HashMap::new();
        for (key, span) in spans(&keys, groups, bounds)? {
            by_key.entry(key).or_default().push(span);
        }
        by_key.values_mut().for_each(|spans| spans.sort_unstable());
        Ok(Self { keys, by_key })
    }

    /// For each of these sessions the row of the one that holds it.
    pub(super) fn holding(
        &self,
        groups: &Groups,
        bounds: (usize, usize),
    ) -> Result<Vec<Option<usize>>> {
        let inner = spans(&self.keys, groups, bounds)?.into_iter();
        Ok(inner
            .map(|(key, inner)| holds(self.by_key.get(&key)?, inner))
            .collect())
    }
}

/// Sessions with the rest of their key.
fn spans(
    keys: &Keys,
    groups: &Groups,
    (start, end): (usize, usize),
) -> Result<Vec<(OwnedRow, Span)>> {
    let (starts, ends) = (groups.times(start)?, groups.times(end)?);
    let spans = keys.of(&groups.rows)?.into_iter().enumerate();
    Ok(spans
        .map(|(row, key)| {
            let (start, end) = (starts.value(row), ends.value(row));
            (key, Span { start, end, row })
        })
        .collect())
}

/// The one of sorted spans without overlap that holds another; its row.
fn holds(sorted: &[Span], inner: Span) -> Option<usize> {
    let after = sorted.partition_point(|span| span.start <= inner.start);
    let found = sorted.get(after.checked_sub(1)?)?;
    (inner.end <= found.end).then_some(found.row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_lies_in_one_of_more_rows() {
        let span = |start, end, row| Span { start, end, row };
        let all = [span(0, 30, 4), span(40, 50, 7)];
        let held = |start, end| holds(&all, span(start, end, 0));
        assert_eq!(held(0, 10), Some(4));
        assert_eq!(held(12, 30), Some(4));
        assert_eq!(held(40, 50), Some(7));
        assert_eq!(
            [held(-5, 3), held(25, 35), held(45, 60), held(31, 32)],
            [None; 4]
        );
    }
}
