use super::*;
use crate::splitmix::SplitMix;

fn below(numbers: &mut SplitMix, most: u64) -> u64 {
    numbers.next() % most
}

fn extent_of(part: &[Option<i64>]) -> Extent {
    let mut extent = Extent::default();
    extent.add(part.iter().copied());
    extent
}

/// Reads parts as the reader does; the places of each stretch, and how often a bin was counted again.
fn read(
    parts: &[Vec<Option<i64>>],
    extents: &[Extent],
    from: Place,
    limit: u64,
) -> (Vec<Vec<Place>>, usize) {
    let mut bins = Bins::of(extents.iter(), from, limit);
    let (mut stretches, mut counted) = (Vec::new(), 0);
    let places = |part: usize| {
        let extent = extents[part];
        parts[part].iter().map(move |ticks| extent.place(*ticks))
    };
    while let Some(next) = bins.next() {
        match next {
            Next::Read(stretch) => {
                let met = (0..parts.len()).filter(|part| extents[*part].meets(&stretch));
                let rows = met.flat_map(places);
                stretches.push(rows.filter(|place| stretch.holds(*place)).collect());
            }
            Next::Count(bin) => {
                counted += 1;
                let mut counts = Histogram::default();
                counts.add(
                    (0..parts.len())
                        .flat_map(places)
                        .filter_map(|place| match place {
                            Place::At(at) if bin.start <= place && place <= bin.last => Some(at),
                            _ => None,
                        }),
                );
                bins.divided(bin, counts);
            }
        }
    }
    (stretches, counted)
}

#[test]
fn every_row_is_in_one_stretch_in_order_and_no_stretch_has_too_many() {
    for seed in 1..=300_u64 {
        let mut numbers = SplitMix(seed);
        let wide = [3, 100, 1 << 40][below(&mut numbers, 3) as usize];
        let parts: Vec<Vec<Option<i64>>> = (0..=below(&mut numbers, 8))
            .map(|_| {
                let start = below(&mut numbers, wide) as i64 - 50;
                let length = below(&mut numbers, 60);
                let time = |numbers: &mut SplitMix| start + below(numbers, wide) as i64;
                (0..length)
                    .map(|_| (below(&mut numbers, 9) > 0).then(|| time(&mut numbers)))
                    .collect()
            })
            .collect();
        let extents: Vec<Extent> = parts.iter().map(|part| extent_of(part)).collect();
        let limit = 1 + below(&mut numbers, 40);
        let (stretches, _) = read(&parts, &extents, Place::At(i64::MIN), limit);
        let mut all: Vec<Place> = parts
            .iter()
            .flatten()
            .map(|ticks| ticks.map_or(Place::Untimed, Place::At))
            .collect();
        all.sort();
        let mut given: Vec<Place> = Vec::new();
        for stretch in stretches {
            let mut stretch = stretch;
            stretch.sort();
            let alike = stretch.first() == stretch.last();
            assert!(alike || stretch.len() as u64 <= limit, "seed {seed}");
            if let (Some(before), Some(first)) = (given.last(), stretch.first()) {
                assert!(before < first, "seed {seed}");
            }
            given.extend(stretch);
        }
        assert_eq!(given, all, "seed {seed}");
        // From the middle on, as after a restart.
        let Some(from) = all.get(all.len() / 2).copied() else {
            continue;
        };
        let (stretches, _) = read(&parts, &extents, from, limit);
        let mut rest: Vec<Place> = stretches.into_iter().flatten().collect();
        rest.sort();
        let expected: Vec<Place> = all.into_iter().filter(|place| *place >= from).collect();
        assert_eq!(rest, expected, "seed {seed}");
    }
}

#[test]
fn parts_that_do_not_overlap_are_not_counted_again() {
    let parts: Vec<Vec<Option<i64>>> = (0..365)
        .map(|day| (0..70).map(|row| Some(day * 100 + row)).collect())
        .collect();
    let extents: Vec<Extent> = parts.iter().map(|part| extent_of(part)).collect();
    let (stretches, counted) = read(&parts, &extents, Place::At(i64::MIN), 150);
    assert_eq!(counted, 0);
    // Two days each, and the last one alone.
    assert_eq!(stretches.len(), 183);
}

#[test]
fn rows_outside_of_what_statistics_say_are_read_once_too() {
    let parts = vec![
        vec![Some(1), Some(50), None, Some(99)],
        vec![Some(40), None],
    ];
    let lying = [
        Extent {
            times: Some((10, 60)),
            rows: 4,
            untimed: 0,
        },
        Extent {
            times: None,
            rows: 2,
            untimed: 2,
        },
    ];
    let (stretches, _) = read(&parts, &lying, Place::At(i64::MIN), 1);
    assert_eq!(stretches.concat().len(), 6);
}

#[test]
fn the_ends_of_the_type_are_places_like_others() {
    let parts = vec![vec![
        Some(i64::MIN),
        Some(-1),
        Some(0),
        Some(i64::MAX),
        None,
    ]];
    let extents = [extent_of(&parts[0])];
    let (stretches, _) = read(&parts, &extents, Place::At(i64::MIN), 1);
    let expected = [
        Place::At(i64::MIN),
        Place::At(-1),
        Place::At(0),
        Place::At(i64::MAX),
        Place::Untimed,
    ];
    assert_eq!(stretches.concat(), expected);
}

#[test]
fn a_histogram_of_many_times_is_small_and_its_bins_can_be_counted_again() {
    let times: Vec<i64> = (0..200_000_i64).map(|row| row * row * 1_000).collect();
    let mut counts = Histogram::default();
    counts.add(times.iter().copied());
    assert!(counts.counts.len() <= MOST_BINS);
    let bins = counts.bins();
    assert_eq!(bins.iter().map(|bin| bin.rows).sum::<u64>(), 200_000);
    assert!(bins.is_sorted_by(|one, other| one.last < other.start));
    let parts = vec![times.iter().copied().map(Some).collect::<Vec<_>>()];
    let (stretches, counted) = read(&parts, &[extent_of(&parts[0])], Place::At(i64::MIN), 500);
    assert!(counted > 1);
    assert!(stretches.iter().all(|stretch| stretch.len() <= 500));
    assert_eq!(stretches.concat().len(), 200_000);
}

#[test]
fn a_stretch_is_bounded_where_it_does_not_hold_all_that_is_before_or_behind() {
    let extent = |untimed| Extent {
        times: Some((10, 20)),
        rows: 9,
        untimed,
    };
    let stretch = |start, until| Stretch {
        start: Place::At(start),
        until,
    };
    let inside = stretch(12, Some(Place::At(15)));
    assert_eq!(inside.bounds(&extent(3)), Some((Some(12), Some(15))));
    // Rows that are outside of the extent are taken for its ends.
    let first = stretch(10, Some(Place::At(20)));
    assert_eq!(first.bounds(&extent(0)), Some((None, Some(20))));
    let last = stretch(20, Some(Place::Untimed));
    assert_eq!(last.bounds(&extent(3)), Some((Some(20), None)));
    assert_eq!(stretch(20, None).bounds(&extent(0)), Some((Some(20), None)));
    assert_eq!(stretch(20, None).bounds(&extent(3)), None);
}
