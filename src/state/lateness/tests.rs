//! Each count against a model that runs one delay at a time, epoch by epoch, and keeps every window.

use std::collections::BTreeMap;

use super::*;
use crate::time::{Closed, Instant};

use crate::splitmix::SplitMix;

fn below(random: &mut SplitMix, limit: u64) -> u64 {
    random.next() % limit
}

/// A tick around `base`, now and then at an end of the type.
fn tick(random: &mut SplitMix, base: i64) -> i64 {
    match below(random, 200) {
        0 => i64::MIN + below(random, 3) as i64,
        1 => i64::MAX - below(random, 3) as i64,
        2..20 => base - below(random, 500) as i64,
        _ => base + below(random, 40) as i64 - 20,
    }
}

/// Epochs of ticks that move forward and are out of order.
fn epochs(random: &mut SplitMix, extremes: bool) -> Vec<Vec<i64>> {
    let mut base = below(random, 2_000) as i64 - 1_000;
    (0..below(random, 12))
        .map(|_| {
            (0..below(random, 30))
                .map(|_| {
                    base += below(random, 8) as i64;
                    let tick = tick(random, base);
                    if extremes {
                        tick
                    } else {
                        tick.clamp(-100_000, 100_000)
                    }
                })
                .collect()
        })
        .collect()
}

/// What one delay leads to, found as the engine does it: the watermark of the epochs before judges, and windows that
/// hold rows stay until it has passed them.
fn model(epochs: &[Vec<i64>], shape: WindowShape, unit: Unit, delay: Span) -> Outcome {
    let finer = unit.nanos() / shape.unit().nanos();
    let (mut watermark, mut greatest) = (None, None);
    let (mut late_rows, mut most, mut closed, mut waited) = (0, 0, 0, 0_i128);
    let mut open: BTreeMap<i64, u64> = BTreeMap::new();
    for epoch in epochs {
        let shut = watermark.map_or(Closed::None, |mark: Instant| shape.closed_by(mark));
        for tick in epoch {
            greatest = greatest.max(Some(*tick));
            let begin = tick.checked_mul(finer).and_then(|tick| shape.slice(tick));
            match begin {
                None => {}
                Some(begin) if shut.contains(begin) => late_rows += 1,
                Some(begin) => *open.entry(begin).or_default() += 1,
            }
        }
        let Some(now) = greatest.map(|tick| unit.instant(tick)) else {
            continue;
        };
        watermark = Some(now.behind(delay, unit));
        let shut = watermark.map_or(Closed::None, |mark| shape.closed_by(mark));
        open.retain(|begin, _| {
            if shut.contains(*begin) {
                // The watermark has the column's unit: it meets the end at the tick behind it.
                let end = unit.instant(unit.ceil(shape.end(*begin)));
                closed += 1;
                waited += (now.nanos() - end.nanos()) / i128::from(unit.nanos());
            }
            !shut.contains(*begin)
        });
        most = most.max(open.len() as u64);
    }
    Outcome {
        delay,
        late_rows,
        open_windows: Some(most),
        wait: (closed > 0).then(|| {
            let mean = (waited + closed - 1).div_euclid(closed);
            Span::from_nanos(mean * i128::from(unit.nanos()))
        }),
    }
}

fn counted(epochs: &[Vec<i64>], lateness: &mut Lateness) -> Vec<Outcome> {
    for epoch in epochs {
        epoch.iter().for_each(|tick| lateness.add(*tick));
        lateness.end_epoch();
    }
    lateness.outcomes()
}

#[test]
fn every_delay_has_the_figures_of_a_run_with_it() {
    for seed in 0..1_000 {
        let mut random = SplitMix(seed);
        let unit = Unit::ALL[below(&mut random, 4) as usize];
        let finer: Vec<Unit> = Unit::ALL.into_iter().filter(|one| *one >= unit).collect();
        let bounds = finer[below(&mut random, finer.len().min(2) as u64) as usize];
        let size = match bounds == unit {
            true => 1 + below(&mut random, 60) as i64,
            false => 1 + below(&mut random, 5_000) as i64,
        };
        let shape = WindowShape::new(bounds, size, size, 0).unwrap();
        let extremes = below(&mut random, 4) == 0;
        let epochs = epochs(&mut random, extremes);
        let nanos = i128::from(unit.nanos());
        let delays: Vec<Span> = (0..12)
            .map(|_| {
                let ticks = i128::from(below(&mut random, 300));
                // Some are not whole ticks.
                let rest = i128::from(below(&mut random, 2))
                    * i128::from(below(&mut random, unit.nanos() as u64));
                Span::from_nanos(ticks * nanos + rest)
            })
            .chain([Span::ZERO, Span::from_nanos(i128::from(u64::MAX) * nanos)])
            .collect();
        let mut lateness = Lateness::new(shape, unit, &delays);
        for outcome in counted(&epochs, &mut lateness) {
            let expected = model(&epochs, shape, unit, outcome.delay);
            assert_eq!(outcome, expected, "seed {seed}, {unit}, windows of {shape}");
        }
    }
}

#[test]
fn where_windows_were_let_go_late_rows_are_exact_and_no_figure_is_wrong() {
    let (mut known, mut unknown) = (0, 0);
    for seed in 0..500 {
        let mut random = SplitMix(seed);
        let shape = WindowShape::new(Unit::Second, 3, 3, 0).unwrap();
        let epochs = epochs(&mut random, false);
        let delays: Vec<Span> = (0..60)
            .map(|seconds| Span::from_nanos(seconds * 1_000_000_000))
            .collect();
        let mut lateness = Lateness::keeping(shape, Unit::Second, &delays, 12);
        for outcome in counted(&epochs, &mut lateness) {
            let expected = model(&epochs, shape, Unit::Second, outcome.delay);
            assert_eq!(outcome.late_rows, expected.late_rows, "seed {seed}");
            match outcome.open_windows {
                None => unknown += 1,
                Some(_) => {
                    known += 1;
                    assert_eq!(outcome, expected, "seed {seed}");
                }
            }
        }
        assert!(lateness.ends.len() <= 12);
    }
    assert!(known > 100 && unknown > 100, "{known} known, {unknown} not");
}

fn minutes(minutes: i128) -> Span {
    Span::from_nanos(minutes * 60_000_000_000)
}

#[test]
fn a_row_is_late_when_its_window_ends_at_the_watermark() {
    // 11:30, then rows of 09:50 and 10:15: their hours ended 1 h 30 min and 30 min before.
    let shape = WindowShape::new(Unit::Second, 3_600, 3_600, 0).unwrap();
    let at = |hour: i64, minute: i64| (hour * 60 + minute) * 60;
    let delays = [
        minutes(0),
        minutes(30),
        minutes(31),
        minutes(90),
        minutes(91),
    ];
    let mut lateness = Lateness::new(shape, Unit::Second, &delays);
    let outcomes = counted(
        &[vec![at(11, 30)], vec![at(9, 50), at(10, 15)]],
        &mut lateness,
    );
    let late: Vec<u64> = outcomes.iter().map(|one| one.late_rows).collect();
    assert_eq!(late, [2, 2, 1, 1, 0]);
}

#[test]
fn in_the_first_epoch_nothing_is_late() {
    let shape = WindowShape::new(Unit::Second, 10, 10, 0).unwrap();
    let mut lateness = Lateness::new(shape, Unit::Second, &[Span::ZERO]);
    let outcomes = counted(&[vec![1_000, 0]], &mut lateness);
    assert_eq!(outcomes[0].late_rows, 0);
    // The window of 0 is final at once, 990 s after its end; that of 1000 stays open.
    assert_eq!(outcomes[0].open_windows, Some(1));
    assert_eq!(outcomes[0].wait, Some(Span::from_nanos(990_000_000_000)));
}

#[test]
fn the_choice_is_the_shortest_delay_for_each_share_of_late_rows() {
    let shape = WindowShape::new(Unit::Second, 1, 1, 0).unwrap();
    let mut lateness = Lateness::new(shape, Unit::Second, &usual_delays(Unit::Second));
    lateness.add(100_000);
    lateness.end_epoch();
    // Of 1,000 rows 500 are 10 s old, 50 are 60 s, 5 are 600 s: the end of their window is a second later.
    for (rows, behind) in [(444, 0), (500, 10), (50, 60), (5, 600)] {
        for _ in 0..rows {
            lateness.add(100_000 - behind);
        }
    }
    lateness.end_epoch();
    let shown: Vec<(String, u64)> = lateness
        .choice()
        .iter()
        .map(|one| (one.delay.to_string(), one.late_rows))
        .collect();
    let expected = [
        ("0 seconds", 555),
        ("10 seconds", 55),
        ("1 minute", 5),
        ("10 minutes", 0),
    ];
    assert_eq!(
        shown,
        expected.map(|(delay, rows)| (delay.to_owned(), rows))
    );
}

#[test]
fn without_rows_the_choice_is_no_delay() {
    let shape = WindowShape::new(Unit::Second, 1, 1, 0).unwrap();
    let lateness = Lateness::new(shape, Unit::Second, &usual_delays(Unit::Second));
    let [only] = lateness.choice().try_into().unwrap();
    assert_eq!(
        (only.delay, only.late_rows, only.open_windows, only.wait),
        (Span::ZERO, 0, Some(0), None)
    );
}
