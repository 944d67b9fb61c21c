//! Which slice a row is in, and whether it comes too late.
//!
//! ```text
//! tick       null   outside the type   in a slice, every window closed   in a slice, a window open
//! fate       null   rejected           late                              accepted
//! ```

use datafusion::arrow::array::{Array, AsArray, BooleanArray, Int64Array};
use datafusion::arrow::compute::{filter, max, min};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::Result;

use super::counts::Fates;
use super::dense::{self, Near};
use crate::time::{Closed, WindowShape};

/// How ticks become slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// Event times, into the slices of these windows.
    Windows(WindowShape),
    /// Values that are slices already.
    Values,
}

/// The slices of a batch's rows.
#[derive(Debug)]
pub struct Assigned {
    /// Slice of each row; meaningless where the row does not stay.
    pub slices: Slices,
    /// Which rows stay; none means all.
    pub stays: Option<BooleanArray>,
    /// What became of the rows.
    pub fates: Fates,
    /// Slices of the accepted rows with their numbers, where they were counted on the way.
    pub accepted: Option<Vec<(i64, u64)>>,
}

/// The slice of each row of a batch.
#[derive(Debug, Clone)]
pub enum Slices {
    /// Of rows whose slices are few and of one length.
    Near(Near),
    /// Of any rows; null where there is none.
    Any(Int64Array),
}

impl Slices {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Slices::Near(near) => near.places.len(),
            Slices::Any(slices) => slices.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slices as a column.
    pub fn into_array(self) -> Int64Array {
        match self {
            Slices::Near(near) => {
                Int64Array::from_iter_values(near.places.iter().map(|place| near.slice(*place)))
            }
            Slices::Any(slices) => slices,
        }
    }

    /// The places of the rows, which all have a slice, if their slices are few.
    ///
    /// # Errors
    /// - they are not: the slices are given back
    pub fn into_near(self) -> std::result::Result<Near, Self> {
        match self {
            Slices::Near(near) => Ok(near),
            Slices::Any(slices) => Near::of(slices.values()).ok_or(Slices::Any(slices)),
        }
    }

    /// The slices of the rows that stay, which all have one.
    ///
    /// # Errors
    /// - the mask has another length
    pub fn filter(self, stays: &BooleanArray) -> Result<Self> {
        Ok(match self {
            Slices::Near(near) => Slices::Near(near.without_late()),
            Slices::Any(slices) => {
                let slices = filter(&slices, stays)?;
                let slices = slices.as_primitive::<Int64Type>();
                // The filter has left no null.
                Slices::Any(Int64Array::new(slices.values().clone(), None))
            }
        })
    }
}

/// The slice of rows that come too late for their windows but count in groups without a time. Where there
/// are such groups no window has it, and the gate takes none of it.
pub(super) const LATE: i64 = i64::MIN;

impl Assigned {
    /// Keeps late rows, in the slice `LATE`: they count somewhere, so they are not late. A row that is in
    /// that slice by its own time has no window here.
    pub fn keep_late(&mut self) {
        let slices = self.slices.clone().into_array();
        if self.stays.is_none() && min(&slices) != Some(LATE) {
            return;
        }
        let stays = |row: usize| self.stays.as_ref().is_none_or(|stays| stays.value(row));
        let mut taken = 0;
        let slices = slices.iter().enumerate().map(|(row, slice)| match slice {
            Some(LATE) if stays(row) => {
                taken += 1;
                None
            }
            Some(_) if !stays(row) => Some(LATE),
            slice => slice,
        });
        let slices: Int64Array = slices.collect();
        self.fates.accepted -= taken;
        self.fates.rejected += taken;
        let all: BooleanArray = slices.iter().map(|slice| Some(slice.is_some())).collect();
        self.slices = Slices::Any(slices);
        self.stays = Some(all);
        self.accepted = None;
        // What was late is accepted.
        self.fates.accepted += std::mem::take(&mut self.fates.late);
    }
}

impl Assignment {
    /// Assigns a batch, with the windows that were closed when the epoch began.
    pub fn assign(&self, ticks: &Int64Array, closed: Closed) -> Assigned {
        let late_through = self.late_through(closed);
        if let (Assignment::Windows(shape), 0) = (self, ticks.null_count())
            && let Some(assigned) = dense::assign(shape, ticks.values(), late_through)
        {
            return assigned;
        }
        let slices = self.slices(ticks);
        let none_late =
            late_through.is_none_or(|last| min(&slices).is_none_or(|least| least > last));
        if slices.null_count() == 0 && none_late {
            let fates = Fates {
                accepted: slices.len() as u64,
                ..Fates::default()
            };
            return Assigned {
                slices: Slices::Any(slices),
                stays: None,
                fates,
                accepted: None,
            };
        }
        let late = |slice: i64| late_through.is_some_and(|last| slice <= last);
        let stays: BooleanArray = slices
            .iter()
            .map(|slice| Some(slice.is_some_and(|slice| !late(slice))))
            .collect();
        let accepted = stays.true_count() as u64;
        let null = ticks.null_count() as u64;
        let rejected = (slices.null_count() as u64).saturating_sub(null);
        let late = (slices.len() as u64).saturating_sub(accepted + null + rejected);
        Assigned {
            slices: Slices::Any(slices),
            stays: Some(stays),
            fates: Fates {
                accepted,
                late,
                null,
                rejected,
            },
            accepted: None,
        }
    }

    /// Slice of each tick; null where there is none.
    fn slices(&self, ticks: &Int64Array) -> Int64Array {
        let Assignment::Windows(shape) = self else {
            return ticks.clone();
        };
        let (least, greatest) = shape.safe_ticks();
        let safe = min(ticks).is_none_or(|tick| tick >= least)
            && max(ticks).is_none_or(|tick| tick <= greatest);
        if safe {
            ticks.unary(|tick| shape.slice_unchecked(tick))
        } else {
            ticks.iter().map(|tick| shape.slice(tick?)).collect()
        }
    }

    /// The greatest slice whose every window is closed.
    fn late_through(&self, closed: Closed) -> Option<i64> {
        match (self, closed) {
            (_, Closed::None) => None,
            (_, Closed::All) => Some(i64::MAX),
            (Assignment::Values, Closed::Through(last)) => Some(last),
            (Assignment::Windows(shape), Closed::Through(last)) => {
                // Slices up to the next window's begin have `newest(last)` as their newest window.
                let newest = shape.newest(last)?;
                Some(newest.saturating_add(shape.slide()).saturating_sub(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Instant, Unit};

    #[test]
    fn every_row_has_one_fate() {
        let shape = WindowShape::new(Unit::Second, 10, 10, 0).unwrap();
        let closed = shape.closed_by(Unit::Second.instant(20));
        let ticks = Int64Array::from(vec![Some(19), Some(20), None, Some(i64::MAX), Some(35)]);
        let assigned = Assignment::Windows(shape).assign(&ticks, closed);
        assert_eq!(
            assigned.fates,
            Fates {
                accepted: 2,
                late: 1,
                null: 1,
                rejected: 1
            }
        );
        let stays: Vec<_> = assigned.stays.unwrap().iter().flatten().collect();
        assert_eq!(stays, [false, true, false, false, true]);
    }

    #[test]
    fn kept_late_rows_do_not_meet_the_first_tick_of_the_type() {
        let ticks = Int64Array::from(vec![Some(i64::MIN), Some(5), None]);
        let mut assigned = Assignment::Values.assign(&ticks, Closed::None);
        assigned.keep_late();
        let fates = Fates {
            accepted: 1,
            rejected: 1,
            null: 1,
            late: 0,
        };
        assert_eq!(assigned.fates, fates);
        let mut assigned = Assignment::Values.assign(&ticks, Closed::Through(5));
        assigned.keep_late();
        assert_eq!(
            assigned.slices.into_array().iter().collect::<Vec<_>>(),
            [Some(LATE), Some(LATE), None]
        );
        assert_eq!((assigned.fates.accepted, assigned.fates.late), (2, 0));
    }

    #[test]
    fn a_row_of_hopping_windows_is_late_when_its_newest_window_is_closed() {
        let shape = WindowShape::new(Unit::Second, 10, 4, 0).unwrap();
        for watermark in -30..30 {
            let instant = Instant::from_nanos(watermark * 1_000_000_000);
            for tick in -20..20 {
                let assigned = Assignment::Windows(shape)
                    .assign(&Int64Array::from(vec![tick]), shape.closed_by(instant));
                let newest = shape.newest(tick).unwrap();
                let late = i128::from(newest + 10) <= watermark;
                assert_eq!(
                    assigned.fates.late == 1,
                    late,
                    "tick {tick}, watermark {watermark}"
                );
            }
        }
    }
}
