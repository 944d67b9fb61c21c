//! Scenarios: a query, its rounds of arrivals and how they are fed, each a function of one seed.
//!
//! Times are drawn on a grid of ticks that is also the grid of window bounds and delays, so that
//! event times often fall on a window's end and watermarks on both.

use crate::query::{Aggregate, Filter, Grouping, Mode, Predicate, Query, Row};

/// 2026-01-01T00:00:00Z in microseconds.
const RECENT: i64 = 1_767_225_600_000_000;

/// Lengths of a tick, in microseconds: one microsecond to one hour.
const TICKS: [i64; 6] = [1, 1_000, 100_000, 1_000_000, 60_000_000, 3_600_000_000];

/// The tick under `date_trunc('minute', ts)`: a sixth of the bin.
const MINUTE_TICK: i64 = 10_000_000;

/// A source of numbers (splitmix64) that gives the same ones for the same seed everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A source for `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `least..=greatest`.
    pub(crate) fn between(&mut self, least: i64, greatest: i64) -> i64 {
        let span = u64::try_from(greatest - least + 1).expect("least <= greatest");
        least + i64::try_from(self.next() % span).expect("within the span")
    }

    /// A number in `least..=greatest`.
    pub(crate) fn size(&mut self, least: usize, greatest: usize) -> usize {
        least + usize::try_from(self.next()).expect("64 bits") % (greatest - least + 1)
    }

    /// True once in `times`.
    fn one_in(&mut self, times: usize) -> bool {
        self.size(1, times) == 1
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.size(0, choices.len() - 1)]
    }
}

/// A query and what arrives for it.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// The seed it was made from.
    pub(crate) seed: u64,
    /// The query.
    pub(crate) query: Query,
    /// Rows that arrive before each refresh, in order of arrival.
    pub(crate) rounds: Vec<Vec<Row>>,
    /// `max_rows_per_epoch`: cuts a round into several epochs.
    pub(crate) max_rows: Option<usize>,
    /// `datafusion.execution.target_partitions`.
    pub(crate) partitions: usize,
}

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (tick, grouping) = draw_grouping(&mut rng);
        let arrivals = Arrivals::draw(&mut rng, tick);
        let query = draw_query(&mut rng, grouping, &arrivals);
        let rounds = arrivals.rounds(&mut rng);
        Self {
            seed,
            query,
            rounds,
            max_rows: rng.one_in(4).then(|| rng.size(3, 15)),
            partitions: rng.pick(&[1, 2, 4]),
        }
    }

    /// The epochs into which one round is cut: at least one, empty if nothing arrived.
    pub(crate) fn epochs<'a>(&self, round: &'a [Row]) -> Vec<&'a [Row]> {
        match self.max_rows {
            Some(most) if !round.is_empty() => round.chunks(most).collect(),
            _ => vec![round],
        }
    }

    /// The same scenario with one round or one row less, larger cuts first.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let rounds = (0..self.rounds.len()).map(|round| {
            let mut fewer = self.clone();
            fewer.rounds.remove(round);
            fewer
        });
        let rows = self.rounds.iter().enumerate().flat_map(|(round, rows)| {
            (0..rows.len()).map(move |row| {
                let mut fewer = self.clone();
                fewer.rounds[round].remove(row);
                fewer
            })
        });
        rounds.chain(rows).collect()
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
    let delay = match rng.size(0, 3) {
        0 => 0,
        _ => rng.between(0, 25) * arrivals.tick,
    };
    Query {
        grouping,
        keyed: rng.one_in(2),
        key_first: rng.one_in(2),
        delay: (!unbounded_state).then_some(delay),
        filter: rng.one_in(4).then(|| draw_filter(rng, arrivals)),
        having: rng.one_in(6).then(|| rng.size(2, 3)),
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

fn key(rng: &mut Rng, keys: i64) -> String {
    format!("k{}", rng.between(1, keys))
}

/// How event times, keys and nulls are spread.
#[derive(Debug)]
struct Arrivals {
    /// Microseconds of a tick.
    tick: i64,
    /// Event time about which the first round lies, in microseconds.
    begin: i64,
    /// Distinct keys.
    keys: i64,
    /// Ticks that a row may be behind its round without being a straggler.
    disorder: i64,
    /// Whether event times may be null.
    null_times: bool,
    /// Whether rows of a round arrive in order of event time.
    sorted: bool,
}

impl Arrivals {
    fn draw(rng: &mut Rng, tick: i64) -> Self {
        Self {
            tick,
            begin: rng.pick(&[0, -40 * tick, RECENT]),
            keys: rng.between(1, 6),
            disorder: rng.between(0, 15),
            null_times: rng.one_in(2),
            sorted: rng.one_in(3),
        }
    }

    /// Up to twelve rounds of up to thirty rows, moving forward in event time.
    fn rounds(&self, rng: &mut Rng) -> Vec<Vec<Row>> {
        let mut now = self.begin;
        (0..rng.size(0, 12))
            .map(|_| {
                let leap = if rng.one_in(15) { 200 } else { 8 };
                now += rng.between(0, leap) * self.tick;
                self.round(rng, now)
            })
            .collect()
    }

    fn round(&self, rng: &mut Rng, now: i64) -> Vec<Row> {
        let rows = if rng.one_in(6) { 0 } else { rng.size(0, 30) };
        let mut round: Vec<Row> = (0..rows).map(|_| self.row(rng, now)).collect();
        if self.sorted {
            round.sort_by_key(|row| row.ts);
        }
        round
    }

    fn row(&self, rng: &mut Rng, now: i64) -> Row {
        let no_time = self.null_times && rng.one_in(10);
        Row {
            ts: (!no_time).then(|| self.time(rng, now)),
            k: (!rng.one_in(8)).then(|| key(rng, self.keys)),
            v: (!rng.one_in(6)).then(|| rng.between(-5, 9)),
            x: (!rng.one_in(6)).then(|| i32::try_from(rng.between(-20, 20)).expect("small")),
        }
    }

    /// An event time on the grid every other time, far behind once in twelve.
    fn time(&self, rng: &mut Rng, now: i64) -> i64 {
        let ticks = if rng.one_in(12) {
            -rng.between(0, 150)
        } else {
            rng.between(-self.disorder, self.disorder / 2)
        };
        let within = if rng.one_in(2) {
            0
        } else {
            rng.between(0, self.tick - 1)
        };
        now + ticks * self.tick + within
    }
}
