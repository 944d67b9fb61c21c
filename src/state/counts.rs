//! What became of every row that reached an operator with state.

use std::collections::BTreeMap;

use super::assign::LATE;

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

/// What one operator counted in an epoch, and what it holds after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperatorCounts {
    /// What became of the epoch's rows.
    pub fates: Fates,
    /// Windows that hold rows and have not closed.
    pub open_windows: u64,
    /// Accepted rows in them.
    pub open_rows: u64,
    /// Groups of partial state, or keys, that are held.
    pub groups: u64,
    /// Bytes that are held.
    pub bytes: u64,
}

impl OperatorCounts {
    /// Adds another operator's counts.
    pub fn add(&mut self, other: &OperatorCounts) {
        self.fates.add(other.fates);
        self.open_windows += other.open_windows;
        self.open_rows += other.open_rows;
        self.groups += other.groups;
        self.bytes += other.bytes;
    }
}

/// Accepted rows by slice, of one partition of one epoch.
///
/// Neighbouring rows are mostly in the same slice: the last one is remembered, so that a row costs a
/// comparison and not a search.
#[derive(Debug, Default)]
pub struct Accepted {
    slices: BTreeMap<i64, u64>,
    last: Option<(i64, u64)>,
}

impl Accepted {
    /// Counts one row for each slice.
    pub fn count(&mut self, slices: &[i64]) {
        let Some(first) = slices.first() else {
            return;
        };
        let (mut slice, mut rows) = self.last.take().unwrap_or((*first, 0));
        for next in slices {
            if *next == slice {
                rows += 1;
            } else {
                *self.slices.entry(slice).or_default() += rows;
                (slice, rows) = (*next, 1);
            }
        }
        self.last = Some((slice, rows));
    }

    /// The counts.
    pub fn finish(mut self) -> BTreeMap<i64, u64> {
        if let Some((slice, rows)) = self.last.take() {
            *self.slices.entry(slice).or_default() += rows;
        }
        // Rows that are in no window are in no open one.
        self.slices.remove(&LATE);
        self.slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
