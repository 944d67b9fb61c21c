//! Slices of a batch whose event times lie close together, which is nearly every batch: few slices of one
//! length. Each row's slice, how many rows each slice got, and which are late, in one pass.
//!
//! Which slice a late row is in means nothing to anyone. Those older than the last late slice are put into that
//! one: a straggler from long ago does not need a place for every slice since.

use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::buffer::BooleanBuffer;

use super::assign::{Assigned, Slices};
use super::counts::Fates;
use crate::time::{Divisor, WindowShape};

/// Slices that are counted in a table: more than this are not few.
const MOST: u64 = 1 << 14;

/// Slices that are few, where they are not counted.
const FEW: usize = 64;

/// The greatest number that divides two that are not negative.
fn divisor_of_both(one: i64, other: i64) -> i64 {
    match other {
        0 => one,
        _ => divisor_of_both(other, one % other),
    }
}

/// Least and greatest of some ticks.
pub(super) fn extent(ticks: &[i64]) -> Option<(i64, i64)> {
    let first = *ticks.first()?;
    Some(
        ticks
            .iter()
            .fold((first, first), |(least, greatest), tick| {
                (least.min(*tick), greatest.max(*tick))
            }),
    )
}

/// Assigns ticks without nulls; slices up to `late_through` are late. None where the slices are many, of
/// two lengths, or near the limits of the type.
pub(super) fn assign(
    shape: &WindowShape,
    ticks: &[i64],
    late_through: Option<i64>,
) -> Option<Assigned> {
    let (least, greatest) = extent(ticks)?;
    let (first_safe, last_safe) = shape.safe_ticks();
    if least < first_safe || greatest > last_safe || !shape.is_even() {
        return None;
    }
    let divisor = Divisor::new(shape.slide())?;
    let begin = shape.slice_unchecked(least);
    let begin = last_late(shape, late_through)
        .filter(|last| begin < *last && *last < greatest)
        .unwrap_or(begin);
    let reach = u64::try_from(greatest.checked_sub(begin)?).ok()?;
    let last = divisor.takes(reach).then(|| divisor.divide(reach))?;
    if last >= MOST {
        return None;
    }
    let mut counts = vec![0_u32; usize::try_from(last).ok()? + 1];
    let mut places = Vec::with_capacity(ticks.len());
    places.extend(ticks.iter().map(|tick| {
        let offset = (*tick).max(begin).wrapping_sub(begin);
        let place = divisor.divide(offset.cast_unsigned()) as u32;
        if let Some(count) = counts.get_mut(place as usize) {
            *count += 1;
        }
        place
    }));
    let near = Near {
        begin,
        slide: shape.slide(),
        places: Arc::new(places),
        used: Vec::new(),
    };
    Some(judged(near, &counts, late_through))
}

/// The last slice that is late, where it is one of those between which the arithmetic cannot overflow.
fn last_late(shape: &WindowShape, late_through: Option<i64>) -> Option<i64> {
    let (first_safe, last_safe) = shape.safe_ticks();
    let last = late_through.filter(|last| (first_safe..=last_safe).contains(last))?;
    Some(shape.slice_unchecked(last))
}

/// Slices of rows that lie close together, as places on a grid.
#[derive(Debug, Clone)]
pub struct Near {
    /// The slice at place 0.
    begin: i64,
    /// From one place to the next.
    slide: i64,
    /// Place of each row.
    pub places: Arc<Vec<u32>>,
    /// Places of rows that are not late, ascending: those behind the late ones.
    pub used: Vec<u32>,
}

impl Near {
    /// The places of rows whose slices are few, whatever their lengths: on the widest grid that all of them are on.
    pub fn of(slices: &[i64]) -> Option<Self> {
        let mut known: Vec<i64> = Vec::new();
        let mut last = None;
        for slice in slices {
            if last.replace(*slice) == Some(*slice) {
                continue;
            }
            if let Err(at) = known.binary_search(slice) {
                if known.len() == FEW {
                    return None;
                }
                known.insert(at, *slice);
            }
        }
        let begin = *known.first()?;
        let distances = known.iter().map(|slice| slice.checked_sub(begin));
        let distances: Vec<i64> = distances.collect::<Option<_>>()?;
        let slide = distances.iter().copied().fold(0, divisor_of_both).max(1);
        let places = distances
            .iter()
            .map(|distance| u32::try_from(distance / slide).ok());
        let used: Vec<u32> = places.collect::<Option<_>>()?;
        if used.last().is_some_and(|last| u64::from(*last) >= MOST) {
            return None;
        }
        let place = |slice: &i64| ((*slice - begin) / slide) as u32;
        Some(Self {
            begin,
            slide,
            places: Arc::new(slices.iter().map(place).collect()),
            used,
        })
    }

    /// Leaves the late rows out.
    pub fn without_late(mut self) -> Self {
        let first = self.first_open();
        Arc::make_mut(&mut self.places).retain(|place| *place >= first);
        self
    }

    /// Which rows are not late.
    pub fn stays(&self) -> BooleanArray {
        let (places, first) = (self.places.as_slice(), self.first_open());
        let open = |row: usize| places.get(row).is_some_and(|place| *place >= first);
        BooleanArray::from(BooleanBuffer::collect_bool(places.len(), open))
    }

    /// The first place whose rows are not late.
    fn first_open(&self) -> u32 {
        self.used.first().copied().unwrap_or(u32::MAX)
    }

    /// The slice at a place.
    pub fn slice(&self, place: u32) -> i64 {
        let slides = self.slide.wrapping_mul(i64::from(place));
        self.begin.wrapping_add(slides)
    }
}

/// Parts the late slices, which come first, from the others.
fn judged(mut near: Near, counts: &[u32], late_through: Option<i64>) -> Assigned {
    let is_late = |slice: i64| late_through.is_some_and(|last| slice <= last);
    let mut fates = Fates::default();
    let mut accepted = Vec::new();
    for (place, count) in (0_u32..).zip(counts).filter(|(_, count)| **count > 0) {
        let (slice, count) = (near.slice(place), u64::from(*count));
        if is_late(slice) {
            fates.late += count;
        } else {
            near.used.push(place);
            fates.accepted += count;
            accepted.push((slice, count));
        }
    }
    let stays = (fates.late > 0).then(|| near.stays());
    Assigned {
        slices: Slices::Near(near),
        stays,
        fates,
        accepted: Some(accepted),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;
    use crate::state::Assignment;
    use crate::time::{Closed, Unit};

    /// As the assignment does it for one row after the other.
    fn one_by_one(shape: WindowShape, ticks: &[i64], closed: Closed) -> (Vec<Option<i64>>, Fates) {
        let mut fates = Fates::default();
        let slices = ticks.iter().map(|tick| {
            // Beside a null the dense form is not taken.
            let pair = Int64Array::from(vec![Some(*tick), None]);
            let assigned = Assignment::Windows(shape).assign(&pair, closed);
            let mut own = assigned.fates;
            own.null -= 1;
            fates.add(own);
            let slice = assigned.slices.into_array().value(0);
            (own.accepted > 0).then_some(slice)
        });
        (slices.collect(), fates)
    }

    #[test]
    fn the_extent_is_the_least_and_the_greatest_wherever_they_are() {
        for rows in 0..20_usize {
            let ticks: Vec<i64> = (0..rows as i64).map(|row| row * 7 % 11 - 5).collect();
            let ends = |ticks: &[i64]| Some((*ticks.iter().min()?, *ticks.iter().max()?));
            assert_eq!(extent(&ticks), ends(&ticks));
            for at in 0..rows {
                for extreme in [i64::MIN, i64::MAX] {
                    let mut ticks = ticks.clone();
                    ticks[at] = extreme;
                    assert_eq!(extent(&ticks), ends(&ticks), "{extreme} at {at} of {rows}");
                    ticks.fill(extreme);
                    assert_eq!(extent(&ticks), Some((extreme, extreme)));
                }
            }
        }
    }

    #[test]
    fn slices_of_any_lengths_have_places_on_one_grid() {
        let months = [31, 0, 59, 31, 90, -31, 0, 181];
        let near = Near::of(&months).unwrap();
        let slices = near.places.iter().map(|place| near.slice(*place));
        assert_eq!(slices.collect::<Vec<_>>(), months);
        let used = near.used.iter().map(|place| near.slice(*place));
        assert_eq!(used.collect::<Vec<_>>(), [-31, 0, 31, 59, 90, 181]);
        let hours = Near::of(&[7_200, 3_600, 36_000]).unwrap();
        assert_eq!(*hours.places, [1, 0, 9]);
        assert_eq!(Near::of(&[i64::MIN]).unwrap().slice(0), i64::MIN);
        assert_eq!(Near::of(&[5; 3]).unwrap().used, [0]);
        assert!(Near::of(&[]).is_none());
        assert!(Near::of(&[i64::MIN, i64::MAX]).is_none());
        assert!(Near::of(&[0, 1, i64::MAX]).is_none());
        let many: Vec<i64> = (0..=FEW as i64).collect();
        assert!(Near::of(&many).is_none() && Near::of(&many[1..]).is_some());
    }

    #[test]
    fn it_assigns_as_the_general_form_does() {
        let shapes = [
            (10, 10, 0),
            (10, 10, -3),
            (12, 4, 1),
            (1, 1, 0),
            (64, 16, 5),
        ];
        let ticks: Vec<i64> = (-40..90)
            .chain((0..200).map(|row| row * 37 % 101))
            .collect();
        for (size, slide, start) in shapes {
            let shape = WindowShape::new(Unit::Second, size, slide, start).unwrap();
            for closed in [
                Closed::None,
                Closed::Through(-100),
                Closed::Through(13),
                Closed::All,
            ] {
                let fast =
                    Assignment::Windows(shape).assign(&Int64Array::from(ticks.clone()), closed);
                let accepted = fast.accepted.clone().expect("few slices of one length");
                let places = fast.slices.clone().into_array();
                let (slices, fates) = one_by_one(shape, &ticks, closed);
                assert_eq!(fast.fates, fates);
                for (row, slice) in slices.iter().enumerate() {
                    let stays = fast.stays.as_ref().is_none_or(|stays| stays.value(row));
                    assert_eq!(stays.then(|| places.value(row)), *slice);
                }
                for (slice, count) in accepted {
                    let rows = slices.iter().filter(|one| **one == Some(slice)).count();
                    assert_eq!(rows as u64, count);
                }
            }
        }
    }

    #[test]
    fn late_stragglers_share_a_place() {
        let shape = WindowShape::new(Unit::Second, 10, 10, -3).unwrap();
        let ticks = [-10 * MOST.cast_signed(), 88, 96, 97, 111, 86];
        let assigned = assign(&shape, &ticks, Some(96)).unwrap();
        let fates = Fates {
            accepted: 2,
            late: 4,
            ..Fates::default()
        };
        assert_eq!(assigned.fates, fates);
        assert_eq!(assigned.accepted, Some(vec![(97, 1), (107, 1)]));
        let stays: Vec<_> = assigned.stays.unwrap().iter().flatten().collect();
        assert_eq!(stays, [false, false, false, true, true, false]);
        let Slices::Near(near) = assigned.slices else {
            panic!("few slices");
        };
        assert_eq!(*near.places, [0, 0, 0, 1, 2, 0]);
        // Bounds at the limits of the type have no slice to put them into.
        assert!(assign(&shape, &ticks, Some(i64::MAX)).is_none());
        assert!(assign(&shape, &ticks, Some(i64::MIN)).is_none());
    }

    #[test]
    fn many_slices_and_ticks_at_the_limits_take_the_general_form() {
        let shape = WindowShape::new(Unit::Second, 10, 10, 0).unwrap();
        assert!(assign(&shape, &[0, 10 * MOST.cast_signed()], None).is_none());
        assert!(assign(&shape, &[i64::MAX], None).is_none());
        assert!(assign(&shape, &[i64::MIN, 0], None).is_none());
        assert!(assign(&shape, &[], None).is_none());
        let uneven = WindowShape::new(Unit::Second, 10, 4, 0).unwrap();
        assert!(assign(&uneven, &[5], None).is_none());
    }
}
