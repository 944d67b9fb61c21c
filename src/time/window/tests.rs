//! Windows against their definition: every tick near zero, every small shape.

use super::*;

fn shapes() -> impl Iterator<Item = WindowShape> {
    (1..=9).flat_map(|size| {
        (1..=size).flat_map(move |slide| {
            (1 - slide..slide)
                .filter_map(move |start| WindowShape::new(Unit::Second, size, slide, start))
        })
    })
}

/// Begins of the windows that hold `tick`, by trying all.
fn by_definition(shape: &WindowShape, tick: i64) -> Vec<i64> {
    (tick - shape.size + 1..=tick)
        .rev()
        .filter(|begin| (begin - shape.start).rem_euclid(shape.slide) == 0)
        .collect()
}

#[test]
fn the_windows_of_a_ticks_slice_are_the_windows_that_hold_the_tick() {
    for shape in shapes() {
        for tick in -25..=25 {
            let slice = shape.slice(tick).unwrap();
            assert!(slice <= tick);
            let windows: Vec<i64> = shape.windows(slice).collect();
            assert_eq!(windows, by_definition(&shape, tick), "{shape:?} at {tick}");
            assert_eq!(shape.slice_unchecked(tick), slice);
        }
    }
}

#[test]
fn ticks_of_one_slice_are_in_the_same_windows_and_slices_are_longest() {
    for shape in shapes() {
        for tick in -25..=25 {
            let same_slice = shape.slice(tick) == shape.slice(tick + 1);
            let same_windows = by_definition(&shape, tick) == by_definition(&shape, tick + 1);
            assert_eq!(same_slice, same_windows, "{shape:?} at {tick}");
        }
    }
}

#[test]
fn a_window_is_closed_when_its_end_is_at_or_before_the_watermark() {
    let shape = WindowShape::new(Unit::Second, 10, 10, 0).unwrap();
    let at = |nanos| shape.closed_by(Instant::from_nanos(nanos));
    assert!(at(20_000_000_000).contains(10));
    assert!(!at(19_999_999_999).contains(10));
    assert!(!at(-1).contains(-10));
    assert!(at(0).contains(-10));
}

#[test]
fn bounds_outside_the_type_are_none_and_never_wrap() {
    let shape = WindowShape::new(Unit::Nanosecond, 10, 5, 2).unwrap();
    assert_eq!(shape.slice(i64::MIN), None);
    assert_eq!(shape.slice(i64::MAX), None);
    let (least, greatest) = shape.safe_ticks();
    assert!(shape.slice(least).is_some() && shape.slice(greatest).is_some());
    assert_eq!(
        shape.closed_by(Instant::from_nanos(i128::MIN)),
        Closed::None
    );
}

#[test]
fn a_window_fits_when_its_own_bounds_are_in_the_type() {
    let tumbling = WindowShape::new(Unit::Second, 10, 10, 0).unwrap();
    let first = (i64::MIN.div_euclid(10) + 1) * 10;
    assert_eq!(tumbling.slice(first), Some(first));
    assert_eq!(tumbling.slice(first - 1), None);
    let last = (i64::MAX.div_euclid(10) - 1) * 10;
    assert_eq!(tumbling.slice(last + 9), Some(last));
    assert_eq!(tumbling.slice(last + 10), None);
    let hopping = WindowShape::new(Unit::Second, 10, 5, 0).unwrap();
    assert_eq!(hopping.slice(first), Some(first));
    // Its older window begins ten before, two ticks outside the type.
    assert_eq!(hopping.slice(first - 1), None);
}

#[test]
fn no_window_is_closed_by_a_watermark_before_its_end() {
    let shape = WindowShape::new(Unit::Second, 1 << 10, 1 << 10, 0).unwrap();
    assert_eq!(shape.slice(i64::MIN), Some(i64::MIN));
    let closed = |tick| {
        shape
            .closed_by(Unit::Second.instant(tick))
            .contains(i64::MIN)
    };
    assert!(!closed(i64::MIN) && !closed(i64::MIN + (1 << 10) - 1));
    assert!(closed(i64::MIN + (1 << 10)));
}

#[test]
fn impossible_shapes_are_refused() {
    for (size, slide, start) in [
        (0, 1, 0),
        (5, 0, 0),
        (5, 6, 0),
        (5, 5, 5),
        (5, 2, -2),
        (-1, -1, 0),
    ] {
        assert_eq!(WindowShape::new(Unit::Second, size, slide, start), None);
    }
}
