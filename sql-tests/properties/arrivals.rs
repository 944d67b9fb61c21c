//! What arrives: rounds of rows about a moving time, and how they are fed.

use crate::query::Row;
use crate::scenario::Rng;

/// 2026-01-01T00:00:00Z in microseconds.
const RECENT: i64 = 1_767_225_600_000_000;

/// Lengths of a tick, in microseconds: one microsecond to one hour.
pub(crate) const TICKS: [i64; 6] = [1, 1_000, 100_000, 1_000_000, 60_000_000, 3_600_000_000];

/// Rows of the table `t`, and how a session takes them in.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    /// The seed that the rows were drawn from; also that of the pieces they are fed in.
    pub(crate) seed: u64,
    /// Rows that arrive before each refresh, in order of arrival.
    pub(crate) rounds: Vec<Vec<Row>>,
    /// `max_rows_per_epoch`: cuts a round into several epochs.
    pub(crate) max_rows: Option<usize>,
    /// `datafusion.execution.target_partitions`.
    pub(crate) partitions: usize,
}

impl Feed {
    /// Rounds of rows that are spread like `arrivals`.
    pub(crate) fn draw(rng: &mut Rng, seed: u64, arrivals: &Arrivals) -> Self {
        Self {
            seed,
            rounds: arrivals.rounds(rng),
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

    /// The same with one round or one row less, larger cuts first.
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

/// A delay on the grid: nothing once in four.
pub(crate) fn delay(rng: &mut Rng, tick: i64) -> i64 {
    match rng.size(0, 3) {
        0 => 0,
        _ => rng.between(0, 25) * tick,
    }
}

/// One of so many keys.
pub(crate) fn key(rng: &mut Rng, keys: i64) -> String {
    format!("k{}", rng.between(1, keys))
}

/// How event times, keys and nulls are spread.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Microseconds of a tick.
    pub(crate) tick: i64,
    /// Event time about which the first round lies, in microseconds.
    pub(crate) begin: i64,
    /// Distinct keys.
    pub(crate) keys: i64,
    /// Ticks that a row may be behind its round without being a straggler.
    disorder: i64,
    /// Whether event times may be null.
    null_times: bool,
    /// Whether rows of a round arrive in order of event time.
    sorted: bool,
}

impl Arrivals {
    /// How rows arrive about a grid of ticks.
    pub(crate) fn draw(rng: &mut Rng, tick: i64) -> Self {
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
