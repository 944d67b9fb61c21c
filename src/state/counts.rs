//! What became of every row that reached an operator with state.

use std::collections::BTreeMap;

use datafusion::common::HashMap;

use crate::time::Instant;

/// Fates of the rows of one epoch at one operator. Every row is exactly one of the four.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fates {
    /// Counted in a window that was open.
    pub accepted: u64,
    /// Every window had closed before the epoch began.
    pub late: u64,
    /// No event time.
    pub null: u64,
    /// No window whose bounds are in the type.
    pub rejected: u64,
}

impl Fates {
    /// Adds other fates.
    pub fn add(&mut self, other: Fates) {
        self.accepted += other.accepted;
        self.late += other.late;
        self.null += other.null;
        self.rejected += other.rejected;
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.accepted + self.late + self.null + self.rejected
    }
}

/// What an epoch did to an operator's state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turnover {
    /// What became of the epoch's rows.
    pub fates: Fates,
    /// Rows of state, or keys, that it added.
    pub added: u64,
    /// Rows of state, or keys, that it removed.
    pub removed: u64,
}

/// What one operator counted in an epoch, and what it holds after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperatorCounts {
    /// What the epoch did to it.
    pub turnover: Turnover,
    /// Windows that hold rows and have not closed.
    pub open_windows: u64,
    /// Accepted rows in them.
    pub open_rows: u64,
    /// Groups of partial state, or keys, that are held.
    pub groups: u64,
    /// Bytes that are held in memory.
    pub bytes: u64,
    /// Bytes that are held on disk.
    pub spilled_bytes: u64,
    /// Least watermark that closes the oldest open window.
    pub due: Option<Instant>,
}

/// Accepted rows by slice, of one partition of one epoch.
///
/// Rows out of order go back and forth between a few slices: their counts stand in a small table, one
/// place a slice, and move to the map when another slice needs the place.
#[derive(Debug)]
pub struct Accepted {
    places: Box<[(i64, u64); PLACES]>,
    moved: HashMap<i64, u64>,
}

/// Places of the table: more than the windows that a row is usually out of order by.
const PLACES: usize = 64;

impl Default for Accepted {
    fn default() -> Self {
        Self {
            places: Box::new([(0, 0); PLACES]),
            moved: HashMap::new(),
        }
    }
}

/// The place of a slice: the upper bits of a product that spreads slices of any distance.
#[inline]
fn place(slice: i64) -> usize {
    let spread = slice.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(spread >> 58).unwrap_or_default() % PLACES
}

impl Accepted {
    /// Counts one row for each slice.
    pub fn count(&mut self, slices: &[i64]) {
        for slice in slices {
            let (held, rows) = &mut self.places[place(*slice)];
            if held != slice {
                if *rows > 0 {
                    *self.moved.entry(*held).or_default() += *rows;
                }
                (*held, *rows) = (*slice, 0);
            }
            *rows += 1;
        }
    }

    /// Adds rows that were counted.
    pub fn add(&mut self, counted: &[(i64, u64)]) {
        for (slice, rows) in counted {
            *self.moved.entry(*slice).or_default() += rows;
        }
    }

    /// The counts.
    pub fn finish(mut self) -> BTreeMap<i64, u64> {
        for (slice, rows) in self.places.iter().filter(|(_, rows)| *rows > 0) {
            *self.moved.entry(*slice).or_default() += *rows;
        }
        self.moved.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_share_a_place_are_counted_apart() {
        let mut accepted = Accepted::default();
        let slices: Vec<i64> = (0..1_000)
            .chain(0..1_000)
            .map(|slice| slice * 10_000_000)
            .collect();
        accepted.count(&slices);
        let counts = accepted.finish();
        assert_eq!(counts.len(), 1_000);
        assert!(counts.values().all(|rows| *rows == 2));
    }

    #[test]
    fn rows_are_counted_over_batches() {
        let mut accepted = Accepted::default();
        accepted.count(&[5, 5, 3]);
        accepted.count(&[3, 5]);
        accepted.count(&[]);
        assert_eq!(
            accepted.finish().into_iter().collect::<Vec<_>>(),
            [(3, 2), (5, 3)]
        );
    }
}
