//! Where a function of time that never decreases passes a value, when nothing else is known of it.

/// Ticks that are looked at together.
const TOGETHER: i64 = 32;

/// Powers of two by which ticks are tried first, a group together: a failure far away does not hide
/// what is near.
const GALLOP: [std::ops::Range<u32>; 4] = [0..16, 16..32, 32..48, 48..62];

/// The first tick after `begin` that has passed. `passed` is given ascending ticks and tells the place of
/// the first that has, if any; `None` from it means that it cannot tell.
///
/// It is asked about 4 times while steps double, then once for every 5 bits of the last step.
pub fn first_passed(begin: i64, passed: impl Fn(&[i64]) -> Option<Option<usize>>) -> Option<i64> {
    let (mut low, mut high) = gallop(begin, &passed)?;
    while high.checked_sub(low)? > 1 {
        let step = high.checked_sub(low)?.div_euclid(TOGETHER).max(1);
        let ticks: Vec<i64> = (1..TOGETHER)
            .map_while(|at| low.checked_add(at.checked_mul(step)?))
            .take_while(|tick| *tick < high)
            .collect();
        let found = passed(&ticks)?;
        if let Some(before) = before(&ticks, found) {
            low = before;
        }
        if let Some(tick) = found.and_then(|at| ticks.get(at)) {
            high = *tick;
        }
    }
    Some(high)
}

/// A tick that has not passed and one that has.
fn gallop(begin: i64, passed: &impl Fn(&[i64]) -> Option<Option<usize>>) -> Option<(i64, i64)> {
    let mut low = begin;
    for exponents in GALLOP {
        let ticks: Vec<i64> = exponents
            .map_while(|exponent| begin.checked_add(1_i64.checked_shl(exponent)?))
            .collect();
        let found = passed(&ticks)?;
        if let Some(before) = before(&ticks, found) {
            low = before;
        }
        if let Some(high) = found.and_then(|at| ticks.get(at)) {
            return Some((low, *high));
        }
    }
    None
}

/// The last of the ticks that has not passed.
fn before(ticks: &[i64], found: Option<usize>) -> Option<i64> {
    match found {
        Some(at) => ticks.get(at.checked_sub(1)?).copied(),
        None => ticks.last().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tick_is_found_near_and_far_on_both_sides_of_zero() {
        for begin in [-1_000_000_007, -5, 0, 12_345] {
            for far in [1_i64, 2, 31, 32, 33, 1_000, 86_400_000_000_000, 1 << 60] {
                let target = begin + far;
                let passed = |ticks: &[i64]| Some(ticks.iter().position(|tick| *tick >= target));
                assert_eq!(first_passed(begin, passed), Some(target), "{begin} + {far}");
            }
        }
    }

    #[test]
    fn what_never_passes_has_no_first_tick() {
        assert_eq!(first_passed(0, |_| Some(None)), None);
        assert_eq!(first_passed(i64::MAX, |_| Some(None)), None);
        assert_eq!(first_passed(0, |_| None), None);
    }
}
