//! Slices of a batch whose event times lie close together, which is nearly every batch: few slices of one
//! length. Each row's slice, how many rows each slice got, and which are late, in one pass.

use datafusion::arrow::array::{BooleanArray, Int64Array};

use super::assign::Assigned;
use super::counts::Fates;
use crate::time::{Divisor, WindowShape};

/// Slices that are counted in a table: more than this are not few.
const MOST: u64 = 1 << 14;

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
    let reach = u64::try_from(greatest.checked_sub(begin)?).ok()?;
    let last = divisor.takes(reach).then(|| divisor.divide(reach))?;
    if last >= MOST {
        return None;
    }
    let mut counts = vec![0_u32; usize::try_from(last).ok()? + 1];
    let slices: Vec<i64> = ticks
        .iter()
        .map(|tick| {
            let at = divisor.divide(tick.wrapping_sub(begin).cast_unsigned());
            if let Some(count) = counts.get_mut(at as usize) {
                *count += 1;
            }
            begin.wrapping_add(shape.slide().wrapping_mul(at.cast_signed()))
        })
        .collect();
    Some(judged(shape, begin, slices, &counts, late_through))
}

/// Parts the late slices, which come first, from the others.
fn judged(
    shape: &WindowShape,
    begin: i64,
    slices: Vec<i64>,
    counts: &[u32],
    late_through: Option<i64>,
) -> Assigned {
    let is_late = |slice: i64| late_through.is_some_and(|last| slice <= last);
    let begins = (0_i64..).map(|at| begin.wrapping_add(shape.slide().wrapping_mul(at)));
    let mut fates = Fates::default();
    let mut accepted = Vec::new();
    for (slice, count) in begins.zip(counts).filter(|(_, count)| **count > 0) {
        let count = u64::from(*count);
        if is_late(slice) {
            fates.late += count;
        } else {
            fates.accepted += count;
            accepted.push((slice, count));
        }
    }
    let stays = (fates.late > 0).then(|| {
        BooleanArray::from_unary(&Int64Array::from(slices.clone()), |slice| !is_late(slice))
    });
    Assigned {
        slices: Int64Array::from(slices),
        stays,
        fates,
        accepted: Some(accepted),
    }
}

#[cfg(test)]
mod tests {
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
            (own.accepted > 0).then(|| assigned.slices.value(0))
        });
        (slices.collect(), fates)
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
                let (slices, fates) = one_by_one(shape, &ticks, closed);
                assert_eq!(fast.fates, fates);
                for (row, slice) in slices.iter().enumerate() {
                    let stays = fast.stays.as_ref().is_none_or(|stays| stays.value(row));
                    assert_eq!(stays.then(|| fast.slices.value(row)), *slice);
                }
                for (slice, count) in accepted {
                    let rows = slices.iter().filter(|one| **one == Some(slice)).count();
                    assert_eq!(rows as u64, count);
                }
            }
        }
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
