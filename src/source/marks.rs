//! What was said of a table's event time without a row.
//!
//! A mark stands between two rows: readers that have passed the row before it have seen it.
//!
//! ```text
//! rows     0   1   2       3   4
//! marks              09:00       09:30
//! passed   <--- 3 ---> sees 09:00, and not 09:30
//! ```

use crate::time::Instant;

/// Marks that are kept, at most. Beyond it every other one goes, the last never: a reader behind one that has gone
/// sees the one before it, and the next when it gets there.
const MOST: usize = 1_024;

#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Its number among all marks of the table, from 1.
    number: u64,
    /// Number of the row before which it stands.
    row: u64,
    time: Instant,
}

/// The marks of a table, in the order in which they were set: `row` never falls.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    count: u64,
}

/// The marks that a reader has passed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed {
    /// How many have been set before the place where it is; 0 if none has.
    pub number: u64,
    /// Event times of those that are kept.
    pub times: Vec<Instant>,
}

impl Marks {
    /// Sets a mark before the row of this number; tells how many have been set.
    pub(super) fn set(&mut self, row: u64, time: Instant) -> u64 {
        self.count += 1;
        let number = self.count;
        self.marks.push(Mark { number, row, time });
        if self.marks.len() > MOST {
            let mut keep = self.marks.len().is_multiple_of(2);
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        number
    }

    /// The marks before the row of this number.
    pub(super) fn passed(&self, row: u64) -> Passed {
        let passed = self.marks.partition_point(|mark| mark.row <= row);
        let marks = self.marks.get(..passed).unwrap_or_default();
        Passed {
            number: marks.last().map_or(0, |mark| mark.number),
            times: marks.iter().map(|mark| mark.time).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: i128) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_reader_has_passed_the_marks_before_its_place() {
        let mut marks = Marks::default();
        assert_eq!(marks.passed(0), Passed::default());
        marks.set(3, at(9));
        marks.set(5, at(7));
        assert_eq!(marks.passed(2).number, 0);
        assert_eq!(marks.passed(3).times, [at(9)]);
        assert_eq!(marks.passed(4).number, 1);
        assert_eq!(marks.passed(5).times, [at(9), at(7)]);
        assert_eq!(marks.passed(u64::MAX).number, 2);
    }

    #[test]
    fn however_many_are_set_few_are_kept_and_the_last_is() {
        let mut marks = Marks::default();
        for time in 0..10_000_u64 {
            marks.set(time / 3, at(i128::from(time)));
            assert!(marks.marks.len() <= MOST);
            let passed = marks.passed(time / 3);
            assert_eq!(passed.number, time + 1);
            assert_eq!(passed.times.last(), Some(&at(i128::from(time))));
        }
        let rows: Vec<u64> = marks.marks.iter().map(|mark| mark.row).collect();
        assert!(rows.is_sorted());
    }
}
