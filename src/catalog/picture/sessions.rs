//! Sessions as a picture's rows make them, row by row in order of arrival.
//!
//! ```text
//! key a    .....      ......       two sessions that touch become one, as old as the older
//! key b       .........            keys do not mix
//! ```
//!
//! A session takes rows until it has closed; a row that would touch one that has begins another one, or is late.

use datafusion::arrow::array::ArrayRef;
use datafusion::common::Result;

use super::replay::Seen;
use crate::state::{KeyNumbers, with_one_zero};
use crate::time::Closed;

/// Sessions that have closed are kept at most twice so many: the oldest leave.
const MOST: usize = 4_096;

/// A session, and what was seen of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub begin: i64,
    pub end: i64,
    pub seen: Seen,
}

/// The sessions of some rows.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    keys: Option<KeyNumbers>,
    /// Numbers of the keys of the batch at hand.
    numbers: Vec<usize>,
    /// Those that may be open, by the number of their key.
    open: Vec<Vec<Drawn>>,
    closed: Vec<Drawn>,
    left_out: u64,
}

impl Sessions {
    /// Goes on with so many rows of these keys.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(super) fn enter(&mut self, keys: &[ArrayRef], rows: usize) -> Result<()> {
        let keys = with_one_zero(keys);
        let numbers = match &mut self.keys {
            Some(numbers) => numbers,
            none => none.insert(KeyNumbers::of(&keys)?),
        };
        numbers.number(&keys, rows, &mut self.numbers)?;
        self.open.resize_with(numbers.count(), Vec::new);
        Ok(())
    }

    /// Takes a row of the batch at hand, of this stretch, where sessions in `closed` have closed.
    pub(super) fn take(&mut self, row: usize, stretch: (i64, i64), at: f64, closed: Closed) {
        let key = self.numbers.get(row).copied().unwrap_or_default();
        let Some(open) = self.open.get_mut(key) else {
            return;
        };
        let (begin, end) = stretch;
        let mut joined = Drawn {
            begin,
            end,
            seen: Seen {
                from: at,
                rows: 1,
                late: 0,
            },
        };
        let mut others = Vec::new();
        for session in open.drain(..) {
            if closed.contains(session.end) {
                self.closed.push(session);
            } else if session.begin <= joined.end && joined.begin <= session.end {
                joined.join(session);
            } else {
                others.push(session);
            }
        }
        others.push(joined);
        *open = others;
        if self.closed.len() >= 2 * MOST {
            self.closed.sort_unstable_by_key(|session| session.begin);
            self.left_out += MOST as u64;
            self.closed.drain(..MOST);
        }
    }

    /// All of them by begin, and how many older ones have been left out.
    pub(super) fn finish(self) -> (Vec<Drawn>, u64) {
        let mut all = self.closed;
        all.extend(self.open.into_iter().flatten());
        all.sort_by_key(|session| (session.begin, session.end));
        (all, self.left_out)
    }
}

impl Drawn {
    fn join(&mut self, other: Self) {
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        self.seen.from = self.seen.from.min(other.seen.from);
        self.seen.rows += other.seen.rows;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::StringArray;

    use super::*;

    /// Begin, end and rows of the sessions of stretches of keys, where one in `closed` has closed.
    fn drawn(rows: &[(&str, i64, i64)], closed: Closed) -> Vec<(i64, i64, u64)> {
        let mut sessions = Sessions::default();
        let keys: Vec<&str> = rows.iter().map(|(key, ..)| *key).collect();
        let keys: ArrayRef = Arc::new(StringArray::from(keys));
        sessions.enter(&[keys], rows.len()).unwrap();
        for (row, (_, begin, end)) in rows.iter().enumerate() {
            sessions.take(row, (*begin, *end), row as f64, closed);
        }
        let (all, left_out) = sessions.finish();
        assert_eq!(left_out, 0);
        all.iter()
            .map(|one| (one.begin, one.end, one.seen.rows))
            .collect()
    }

    #[test]
    fn sessions_of_a_key_that_touch_are_one() {
        let rows = [("a", 4, 7), ("b", 3, 6), ("a", 20, 23), ("a", 1, 4)];
        let expected = [(1, 7, 2), (3, 6, 1), (20, 23, 1)];
        assert_eq!(drawn(&rows, Closed::None), expected);
    }

    #[test]
    fn a_session_that_has_closed_takes_no_more_rows() {
        let rows = [("a", 1, 4), ("a", 3, 9)];
        assert_eq!(drawn(&rows, Closed::None), [(1, 9, 2)]);
        assert_eq!(drawn(&rows, Closed::Through(4)), [(1, 4, 1), (3, 9, 1)]);
    }

    #[test]
    fn a_row_joins_all_that_it_touches() {
        let rows = [("a", 1, 4), ("a", 8, 11), ("a", 4, 8)];
        assert_eq!(drawn(&rows, Closed::None), [(1, 11, 3)]);
    }
}
