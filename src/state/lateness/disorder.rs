//! How far rows are out of order.
//!
//! A row is out of order when it is earlier than a row seen before; how far, is its distance from the greatest event
//! time seen before it. Rows in order have a distance of zero.
//!
//! Distances are counted in buckets, exact to the tick as long as [`BUCKETS`] are enough; then buckets become wider,
//! to the next step of 1, 10 and 100 of a unit, and at last to days. A bucket holds what is rounded up to it, so a
//! percentile is never below the true one, and above it by less than a bucket.

use std::collections::HashMap;

use crate::time::{Span, Unit};

/// Distances that are told apart: some megabytes of them.
pub const BUCKETS: usize = 65_536;

/// Nanoseconds of the widths that buckets can have: each divides the next, so that rounding up twice is rounding up
/// once. Above them widths grow by 10.
const WIDTHS: [i128; 15] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    60_000_000_000,
    600_000_000_000,
    3_600_000_000_000,
    86_400_000_000_000,
];

/// Distances of rows from the greatest event time before them.
#[derive(Debug)]
pub struct Disorder {
    unit: Unit,
    /// Width of a bucket, in nanoseconds.
    width: i128,
    /// Rows out of order, by distance in widths.
    buckets: HashMap<i128, u64>,
    most: usize,
    newest: Option<i64>,
    timed: u64,
    out_of_order: u64,
    /// The greatest distance, in ticks.
    greatest: u64,
}

impl Disorder {
    /// Of a column of this unit.
    pub fn new(unit: Unit) -> Self {
        Self::keeping(unit, BUCKETS)
    }

    pub(super) fn keeping(unit: Unit, most: usize) -> Self {
        Self {
            unit,
            width: i128::from(unit.nanos()),
            buckets: HashMap::new(),
            most,
            newest: None,
            timed: 0,
            out_of_order: 0,
            greatest: 0,
        }
    }

    /// Takes the next row, by its event time in ticks.
    pub fn add(&mut self, tick: i64) {
        self.timed += 1;
        let newest = *self.newest.get_or_insert(tick);
        if tick >= newest {
            self.newest = Some(tick);
            return;
        }
        let distance = newest.abs_diff(tick);
        self.out_of_order += 1;
        self.greatest = self.greatest.max(distance);
        let bucket = up(self.nanos(distance), self.width);
        *self.buckets.entry(bucket).or_default() += 1;
        while self.buckets.len() > self.most {
            self.widen();
        }
    }

    fn nanos(&self, ticks: u64) -> i128 {
        i128::from(ticks).saturating_mul(self.unit.nanos().into())
    }

    /// Makes buckets wider by a step.
    fn widen(&mut self) {
        let wider = WIDTHS.into_iter().find(|width| *width > self.width);
        let wider = wider.unwrap_or_else(|| self.width.saturating_mul(10));
        let factor = wider.div_euclid(self.width);
        let mut buckets = HashMap::new();
        for (bucket, rows) in self.buckets.drain() {
            *buckets.entry(up(bucket, factor)).or_default() += rows;
        }
        self.buckets = buckets;
        self.width = wider;
    }

    /// Rows with an event time.
    pub fn timed(&self) -> u64 {
        self.timed
    }

    /// Rows earlier than a row before them.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// What distances are rounded up to.
    pub fn rounded_to(&self) -> Span {
        Span::from_nanos(self.width)
    }

    /// The greatest distance, exactly; none without a row.
    pub fn greatest(&self) -> Option<Span> {
        (self.timed > 0).then(|| Span::from_nanos(self.nanos(self.greatest)))
    }

    /// The least distance within which so many of a thousand timed rows are; none without a row.
    pub fn within(&self, per_mille: u64) -> Option<Span> {
        let greatest = self.greatest()?;
        let rank = u128::from(self.timed) * u128::from(per_mille);
        let rank = rank.div_ceil(1_000).max(1);
        let mut seen = u128::from(self.timed - self.out_of_order);
        if seen >= rank {
            return Some(Span::ZERO);
        }
        let mut buckets: Vec<(i128, u64)> =
            self.buckets.iter().map(|(at, rows)| (*at, *rows)).collect();
        buckets.sort_unstable();
        let found = buckets.into_iter().find(|(_, rows)| {
            seen += u128::from(*rows);
            seen >= rank
        });
        let found = found.map(|(bucket, _)| Span::from_nanos(bucket.saturating_mul(self.width)));
        Some(found.map_or(greatest, |found| found.min(greatest)))
    }
}

/// `number / by`, rounded up.
fn up(number: i128, by: i128) -> i128 {
    number.div_euclid(by) + i128::from(number.rem_euclid(by) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: i128) -> Option<Span> {
        Some(Span::from_nanos(seconds * 1_000_000_000))
    }

    #[test]
    fn a_distance_is_from_the_greatest_before() {
        let mut disorder = Disorder::new(Unit::Second);
        for tick in [10, 10, 7, 9, 20, 5] {
            disorder.add(tick);
        }
        // Distances 0, 0, 3, 1, 0, 15.
        assert_eq!((disorder.timed(), disorder.out_of_order()), (6, 3));
        assert_eq!(disorder.within(500), seconds(0));
        assert_eq!(disorder.within(501), seconds(1));
        assert_eq!(disorder.within(667), seconds(3));
        assert_eq!(disorder.within(999), seconds(15));
        assert_eq!(disorder.greatest(), seconds(15));
    }

    #[test]
    fn without_a_row_there_is_no_distance() {
        let disorder = Disorder::new(Unit::Second);
        assert_eq!((disorder.within(500), disorder.greatest()), (None, None));
    }

    #[test]
    fn wider_buckets_round_up_by_less_than_their_width() {
        for (unit, spread) in [
            (Unit::Second, 100_000_u64),
            (Unit::Microsecond, 10_000_000),
            (Unit::Nanosecond, 1_000),
            (Unit::Nanosecond, u64::MAX),
            (Unit::Second, u64::MAX),
        ] {
            let mut disorder = Disorder::keeping(unit, 50);
            let mut distances = vec![0];
            disorder.add(i64::MAX);
            for step in 1..2_000_u64 {
                let distance = (step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % spread).max(1);
                distances.push(distance);
                disorder.add(i64::MAX.wrapping_sub(distance as i64));
            }
            assert!(disorder.buckets.len() <= 50);
            distances.sort_unstable();
            for per_mille in [1, 500, 900, 990, 999, 1_000] {
                let rank = (distances.len() as u64 * per_mille).div_ceil(1_000).max(1);
                let exact = distances[rank as usize - 1];
                let exact = i128::from(exact) * i128::from(unit.nanos());
                let found = disorder.within(per_mille).unwrap().nanos();
                let width = disorder.rounded_to().nanos();
                assert!(
                    exact <= found && found < exact + width,
                    "{exact}, {found}, {width}"
                );
            }
            assert_eq!(disorder.within(1_000), disorder.greatest());
        }
    }
}
