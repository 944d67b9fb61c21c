//! Scenarios: a query, its rounds of arrivals and how they are fed, each a function of one seed.
//!
//! Times are drawn on a grid of ticks that is also the grid of window bounds and delays, so that
//! event times often fall on a window's end and watermarks on both.

use crate::arrivals::{Arrivals, Feed, TICKS, delay, key};
use crate::query::{Aggregate, Filter, Grouping, Mode, Predicate, Query};
use crate::splitmix::SplitMix;

/// The tick under `date_trunc('minute', ts)`: a sixth of the bin.
const MINUTE_TICK: i64 = 10_000_000;

/// Draws what a scenario is made of.
#[derive(Debug, Clone)]
pub(crate) struct Rng(SplitMix);

impl Rng {
    /// A source for `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix(seed))
    }

    /// A number in `least..=greatest`.
    pub(crate) fn between(&mut self, least: i64, greatest: i64) -> i64 {
        let span = u64::try_from(greatest - least + 1).expect("least <= greatest");
        least + i64::try_from(self.0.next() % span).expect("within the span")
    }

    /// A number in `least..=greatest`.
    pub(crate) fn size(&mut self, least: usize, greatest: usize) -> usize {
        least + usize::try_from(self.0.next()).expect("64 bits") % (greatest - least + 1)
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.size(1, times) == 1
    }

    /// One of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.size(0, choices.len() - 1)]
    }
}

/// A query and what arrives for it.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// The query.
    pub(crate) query: Query,
    /// What arrives.
    pub(crate) feed: Feed,
}

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (tick, grouping) = draw_grouping(&mut rng);
        let arrivals = Arrivals::draw(&mut rng, tick);
        let query = draw_query(&mut rng, grouping, &arrivals);
        let feed = Feed::draw(&mut rng, seed, &arrivals);
        Self { query, feed }
    }
}

/// The length of a tick and a grouping on its grid.
fn draw_grouping(rng: &mut Rng) -> (i64, Grouping) {
    let tick = rng.pick(&TICKS);
    let size = rng.between(1, 10) * tick;
    match rng.size(0, 7) {
        0 => (tick, Grouping::DateBin { size }),
        1 => (MINUTE_TICK, Grouping::TruncMinute),
        _ => (tick, draw_window(rng, size, tick)),
    }
}

/// Tumbling or hopping windows, with a start now and then.
fn draw_window(rng: &mut Rng, size: i64, tick: i64) -> Grouping {
    let slide = if rng.one_in(2) {
        size
    } else {
        rng.between(1, size / tick) * tick
    };
    let start = if rng.one_in(2) {
        0
    } else {
        rng.between(1 - slide / tick, slide / tick - 1) * tick
    };
    Grouping::Window { size, slide, start }
}

fn draw_query(rng: &mut Rng, grouping: Grouping, arrivals: &Arrivals) -> Query {
    let mode = rng.pick(&[Mode::Append, Mode::Append, Mode::Update, Mode::Complete]);
    // Without a clause a bin is an ordinary key, not a time window.
    let windows = matches!(grouping, Grouping::Window { .. });
    let unbounded_state = mode != Mode::Append && rng.one_in(5) && windows;
    let delay = delay(rng, arrivals.tick);
    Query {
        grouping,
        keyed: rng.one_in(2),
        key_first: rng.one_in(2),
        delay: (!unbounded_state).then_some(delay),
        filter: rng.one_in(4).then(|| draw_filter(rng, arrivals)),
        // A group that stops passing would keep its row in update mode: it is refused.
        having: rng
            .one_in(6)
            .then(|| rng.size(2, 3))
            .filter(|_| mode != Mode::Update),
        mode,
        aggregates: draw_aggregates(rng),
    }
}

fn draw_filter(rng: &mut Rng, arrivals: &Arrivals) -> Filter {
    let predicate = match rng.size(0, 2) {
        0 => Predicate::ValueAtLeast(rng.between(-2, 4)),
        1 => Predicate::KeyIsNot(key(rng, arrivals.keys)),
        _ => Predicate::TimeAtLeast(arrivals.begin + rng.between(-10, 20) * arrivals.tick),
    };
    Filter {
        predicate,
        below: rng.one_in(3),
    }
}

/// Up to four different aggregates.
fn draw_aggregates(rng: &mut Rng) -> Vec<Aggregate> {
    let mut left = vec![
        Aggregate::CountV,
        Aggregate::SumV,
        Aggregate::MinV,
        Aggregate::MaxV,
        Aggregate::AvgX,
        Aggregate::DistinctV,
        Aggregate::MaxTs,
        Aggregate::CountAbove(rng.between(-3, 6)),
        Aggregate::SumAbove(rng.between(-3, 6)),
    ];
    (0..rng.size(0, 4))
        .map(|_| left.swap_remove(rng.size(0, left.len() - 1)))
        .collect()
}
