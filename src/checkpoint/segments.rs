//! Which parts of a piece an epoch writes: what it added, and what is written together anew.
//!
//! Two rules keep both the number of parts and the rows in them small:
//!
//! * Rows that no longer count may stay in a part. When the parts have more than twice the rows that the state
//!   really has, the state is written whole and the parts are let go. As many rows must be added before that
//!   happens again, so a row is written about twice.
//! * When there are [`PARTS`], the newest are written together, and with them older ones that are no
//!   larger than those behind them together: a row is written again each time the rows double.

use std::fmt;

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::{filter_record_batch, max};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::Result;

use super::file::Segment;
use super::rows::count;

/// Parts that a piece may have before some are written together.
const PARTS: usize = 16;

/// Rows that are not worth writing the state whole for.
const FEW: u64 = 8_192;

/// A part of so many rows is not written again: to read and encode it once more costs more than to name one part more
/// in every epoch.
const LARGE: u64 = 1 << 16;

/// What an epoch adds to one piece of its query's state.
pub struct Piece {
    /// Its name.
    pub name: String,
    /// The rows that are added, all of one schema.
    pub added: Vec<RecordBatch>,
    /// Whether they take the place of those there were.
    pub replaces: bool,
    /// When rows leave by themselves, if they do.
    pub until: Option<Until>,
    /// How many of the rows that there were still count, the newest ones, if not all do. The oldest parts go as long
    /// as so many are left.
    pub newest: Option<u64>,
    /// The piece as it is with the added rows, where it can be had.
    pub whole: Option<Whole>,
}

/// Rows leave when a column's value has been passed.
pub struct Until {
    /// Which column: an `Int64`. A row without a value never leaves.
    pub column: usize,
    /// Whether rows of this value have left. What holds for a value holds for those below it.
    pub gone: Box<dyn Fn(i64) -> bool + Send + Sync>,
}

/// A piece as it is, to be asked for when it is to be written whole.
pub struct Whole {
    /// Its number of rows.
    pub rows: u64,
    /// The rows.
    pub all: Box<dyn Fn() -> Result<Vec<RecordBatch>> + Send + Sync>,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece")
            .field("name", &self.name)
            .field("added", &count(&self.added))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Until")
            .field("column", &self.column)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Whole")
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl Piece {
    /// Rows that are added and stay.
    pub fn new(name: impl Into<String>, added: Vec<RecordBatch>) -> Self {
        Self {
            name: name.into(),
            added,
            replaces: false,
            until: None,
            newest: None,
            whole: None,
        }
    }

    /// Rows in the place of those there were.
    pub fn replacing(name: impl Into<String>, added: Vec<RecordBatch>) -> Self {
        Self {
            replaces: true,
            ..Self::new(name, added)
        }
    }

    /// What of the piece is written in this epoch, and which of its parts stay.
    pub(super) fn planned(&self, mut segments: Vec<Segment>) -> Planned {
        if self.replaces {
            return Planned::default();
        }
        if let Some(until) = &self.until {
            segments.retain(|segment| segment.until.is_none_or(|last| !(until.gone)(last)));
        }
        if let Some(newest) = self.newest {
            let mut left: u64 = segments.iter().map(|segment| segment.rows).sum();
            let gone = segments.iter().take_while(|segment| {
                let goes = left.saturating_sub(segment.rows) >= newest;
                left -= if goes { segment.rows } else { 0 };
                goes
            });
            let gone = gone.count();
            segments.drain(..gone);
        }
        let added = count(&self.added);
        let stored: u64 = segments.iter().map(|segment| segment.rows).sum();
        if let Some(whole) = &self.whole
            && stored > 0
            && stored + added > whole.rows.saturating_mul(2).saturating_add(FEW)
        {
            return Planned {
                whole: true,
                ..Planned::default()
            };
        }
        if added == 0 {
            return Planned {
                stay: segments,
                ..Planned::default()
            };
        }
        let rows: Vec<u64> = segments.iter().map(|segment| segment.rows).collect();
        let again = segments.split_off(together(&rows, added));
        Planned {
            stay: segments,
            again,
            whole: false,
        }
    }

    /// Rows without those that have left.
    pub(super) fn living(&self, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
        let Some(until) = &self.until else {
            return Ok(batches);
        };
        let living = batches.into_iter().map(|batch| {
            let Some(values) = of_column(&batch, until.column) else {
                return Ok(batch);
            };
            let stays = values
                .iter()
                .map(|value| value.is_none_or(|value| !(until.gone)(value)));
            let stays: BooleanArray = stays.map(Some).collect();
            Ok(filter_record_batch(&batch, &stays)?)
        });
        living.collect()
    }

    /// The greatest value by which rows leave; none if some never do.
    pub(super) fn last(&self, batches: &[RecordBatch]) -> Option<i64> {
        let until = self.until.as_ref()?;
        let values = batches.iter().map(|batch| {
            let values = of_column(batch, until.column)?;
            (datafusion::arrow::array::Array::null_count(values) == 0).then(|| max(values))?
        });
        let greatest: Option<Vec<i64>> = values.collect();
        greatest?.into_iter().max()
    }
}

fn of_column(
    batch: &RecordBatch,
    column: usize,
) -> Option<&datafusion::arrow::array::PrimitiveArray<Int64Type>> {
    batch.columns().get(column)?.as_primitive_opt::<Int64Type>()
}

/// What is written of a piece.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// Parts that stay as they are.
    pub stay: Vec<Segment>,
    /// Parts that are written again, with the added rows behind them.
    pub again: Vec<Segment>,
    /// Whether the piece is written whole instead.
    pub whole: bool,
}

/// Where the newest parts begin that are written together with added rows, given the rows of each: none as long
/// as there are few; then half of those that there may be, and older ones that are no larger than what is behind
/// them.
pub(crate) fn together(rows: &[u64], added: u64) -> usize {
    let (mut first, mut behind) = (rows.len(), added);
    if rows.len() < PARTS {
        return first;
    }
    for rows_of_part in rows.iter().rev() {
        let some = rows.len() - first >= PARTS / 2;
        if some && *rows_of_part > behind || *rows_of_part >= LARGE {
            break;
        }
        first -= 1;
        behind += rows_of_part;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(rows: &[u64]) -> Vec<Segment> {
        let part = |(file, rows): (usize, &u64)| Segment {
            file: file as u64,
            section: 0,
            rows: *rows,
            until: Some(file as i64),
        };
        rows.iter().enumerate().map(part).collect()
    }

    fn added(rows: i64) -> Vec<RecordBatch> {
        let slice = datafusion::arrow::array::Int64Array::from_iter_values(0..rows);
        vec![RecordBatch::try_from_iter([("slice", std::sync::Arc::new(slice) as _)]).unwrap()]
    }

    #[test]
    fn many_epochs_leave_few_parts_and_write_a_row_few_times() {
        let (mut rows, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..10_000 {
            let planned = Piece::new("p", added(1)).planned(parts(&rows));
            let again: u64 = planned.again.iter().map(|part| part.rows).sum();
            rows = planned.stay.iter().map(|part| part.rows).collect();
            rows.push(again + 1);
            written += again + 1;
            most = most.max(rows.len());
        }
        assert_eq!(rows.iter().sum::<u64>(), 10_000);
        assert!(most <= 2 * PARTS, "{most} parts");
        assert!(written < 20 * 10_000, "{written} rows written");
    }

    #[test]
    fn parts_that_have_left_are_let_go() {
        let mut piece = Piece::new("p", Vec::new());
        piece.until = Some(Until {
            column: 0,
            gone: Box::new(|value| value < 3),
        });
        let planned = piece.planned(parts(&[9, 9, 9, 9]));
        assert_eq!(planned.stay.len(), 1);
        assert_eq!(piece.last(&added(5)), Some(4));
        assert_eq!(count(&piece.living(added(5)).unwrap()), 2);
    }

    #[test]
    fn the_oldest_parts_go_where_only_the_newest_rows_count() {
        for (newest, left) in [(10, 4), (9, 4), (8, 3), (5, 2), (4, 2), (1, 1), (0, 0)] {
            let mut piece = Piece::new("p", added(1));
            piece.newest = Some(newest);
            let planned = piece.planned(parts(&[2, 3, 3, 2]));
            assert_eq!(planned.stay.len(), left, "{newest}");
        }
    }

    #[test]
    fn a_state_much_smaller_than_its_parts_is_written_whole() {
        let mut piece = Piece::new("p", added(1));
        piece.whole = Some(Whole {
            rows: 10,
            all: Box::new(|| Ok(added(10))),
        });
        assert!(!piece.planned(parts(&[FEW])).whole);
        assert!(piece.planned(parts(&[FEW + 20])).whole);
    }
}
