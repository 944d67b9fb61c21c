//! Delays that a person would write.

use crate::time::{Span, Unit};

/// Nanoseconds in a microsecond, a millisecond, a second, a minute, an hour and a day.
const LENGTHS: [i128; 7] = [
    1,
    1_000,
    1_000_000,
    1_000_000_000,
    60_000_000_000,
    3_600_000_000_000,
    86_400_000_000_000,
];

/// How many of each length: steps of about a factor of 1.5 where delays usually are, of 10 where they are not.
const NUMBERS: [&[i128]; 7] = [
    &[1, 10, 100],
    &[1, 10, 100],
    &[1, 2, 5, 10, 20, 50, 100, 200, 500],
    &[1, 2, 5, 10, 15, 20, 30],
    &[1, 2, 5, 10, 15, 20, 30, 45],
    &[1, 2, 3, 4, 6, 8, 10, 12, 18],
    &[
        1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90, 180, 365, 1_000, 10_000, 100_000, 1_000_000,
    ],
];

/// No delay, and those from one tick of the unit to a million days, in order.
pub fn usual_delays(unit: Unit) -> Vec<Span> {
    let all = LENGTHS.iter().zip(NUMBERS).flat_map(|(length, numbers)| {
        numbers
            .iter()
            .map(|number| Span::from_nanos(length.saturating_mul(*number)))
    });
    let tick = i128::from(unit.nanos());
    let whole = all.filter(|delay| delay.nanos().rem_euclid(tick) == 0);
    std::iter::once(Span::ZERO).chain(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_rise_and_are_whole_ticks() {
        for unit in Unit::ALL {
            let delays = usual_delays(unit);
            assert!(delays.is_sorted_by(|a, b| a < b), "{unit}");
            assert_eq!(delays.first(), Some(&Span::ZERO));
            assert_eq!(delays.get(1), Some(&Span::from_nanos(unit.nanos().into())));
            let longest = delays.last().map(ToString::to_string);
            assert_eq!(longest.as_deref(), Some("1000000 days"));
            let whole = |delay: &Span| delay.nanos().rem_euclid(unit.nanos().into()) == 0;
            assert!(delays.iter().all(whole));
        }
    }
}
