//! `DISTINCT ON` over a stream: random arrivals next to a model that remembers keys.
//!
//! ```text
//! DISTINCT ON (k), delay 5    key a at 3 gets through; a is held until 3 + 5 <= W
//! DISTINCT ON (k, ts)         (a, 3) gets through, and is held until 3 <= W: after that it would be late
//! ```

use std::collections::BTreeMap;

use crate::arrivals::{Arrivals, Feed, TICKS, delay};
use crate::follow::{Reference, follow};
use crate::metamorphic::Subject;
use crate::model::{Figures, Outcome};
use crate::query::{Cell, Mode, Row, Rows};
use crate::scenario::Rng;
use crate::session::{Checked, Session};
use crate::text;
use crate::trial::Trial;

/// The first row of each key: columns ts, k, v.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DedupQuery {
    /// Whether the event time is a key too, and if so whether it comes first.
    time: TimeKey,
    /// The delay in microseconds.
    delay: i64,
}

/// Where the event time stands among the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeKey {
    /// `DISTINCT ON (k)`.
    None,
    /// `DISTINCT ON (ts, k)`.
    First,
    /// `DISTINCT ON (k, ts)`.
    Last,
}

/// Values of the keys of one row.
type Key = (Option<String>, Option<i64>);

/// A row in the order by which the first of a key is found: nulls come first.
type Candidate = (i64, Option<String>, Option<i64>);

impl DedupQuery {
    fn text(&self) -> String {
        let keys = match self.time {
            TimeKey::None => "k",
            TimeKey::First => "ts, k",
            TimeKey::Last => "k, ts",
        };
        format!(
            "SELECT DISTINCT ON ({keys}) ts, k, v\nFROM STREAM t {}",
            text::clause(self.delay)
        )
    }

    fn key(&self, (ts, k, _): &Candidate) -> Key {
        let by_time = self.time != TimeKey::None;
        (k.clone(), by_time.then_some(*ts))
    }

    /// Watermark at which a key is forgotten whose row has the event time `ts`.
    fn expiry(&self, ts: i64) -> i64 {
        match self.time {
            TimeKey::None => ts + self.delay,
            TimeKey::First | TimeKey::Last => ts,
        }
    }
}

/// A query and the keys it remembers.
#[derive(Debug)]
pub(crate) struct DedupModel<'a> {
    query: &'a DedupQuery,
    epochs: u64,
    /// Greatest event time that the clause has seen.
    seen: Option<i64>,
    watermark: Option<i64>,
    /// Keys that are held, with their expiry.
    held: BTreeMap<Key, i64>,
    table: Rows,
}

impl<'a> DedupModel<'a> {
    /// A query that has read nothing.
    pub(crate) fn new(query: &'a DedupQuery) -> Self {
        Self {
            query,
            epochs: 0,
            seen: None,
            watermark: None,
            held: BTreeMap::new(),
            table: Vec::new(),
        }
    }

    /// The least of the rows of each key that is not held.
    fn first_of_keys(&self, timely: &[Candidate]) -> BTreeMap<Key, Candidate> {
        let mut first: BTreeMap<Key, Candidate> = BTreeMap::new();
        for candidate in timely {
            let key = self.query.key(candidate);
            if self.held.contains_key(&key) {
                continue;
            }
            let known = first.entry(key).or_insert_with(|| candidate.clone());
            if candidate < known {
                known.clone_from(candidate);
            }
        }
        first
    }
}

impl Reference for DedupModel<'_> {
    fn epoch(&mut self, rows: &[Row]) -> Outcome {
        let timed = rows
            .iter()
            .filter_map(|row| Some((row.ts?, row.k.clone(), row.v)));
        let timed: Vec<Candidate> = timed.collect();
        let timely = timed
            .iter()
            .filter(|(ts, ..)| self.watermark.is_none_or(|watermark| *ts > watermark));
        let timely: Vec<Candidate> = timely.cloned().collect();
        let first = self.first_of_keys(&timely);
        self.seen = self.seen.max(timed.iter().map(|(ts, ..)| *ts).max());
        self.watermark = self.seen.map(|seen| seen - self.query.delay);
        let emitted: Rows = first.values().map(cells).collect();
        let fresh = first.into_iter().map(|(key, (ts, ..))| (key, ts));
        self.held
            .extend(fresh.map(|(key, ts)| (key, self.query.expiry(ts))));
        let watermark = self.watermark;
        self.held
            .retain(|_, expiry| watermark.is_none_or(|watermark| *expiry > watermark));
        self.table.extend(emitted.iter().cloned());
        let figures = Figures {
            epoch: self.epochs,
            input: rows.len(),
            late: timed.len() - timely.len(),
            null: rows.len() - timed.len(),
            rejected: 0,
            output: emitted.len(),
            open_windows: 0,
            open_rows: 0,
            watermark,
        };
        self.epochs += 1;
        Outcome { figures, emitted }
    }

    fn table(&self) -> Rows {
        self.table.clone()
    }
}

/// The output row.
fn cells((ts, k, v): &Candidate) -> Vec<Cell> {
    vec![
        Cell::Int(*ts),
        k.clone().map_or(Cell::Null, Cell::Text),
        v.map_or(Cell::Null, Cell::Int),
    ]
}

/// A deduplication and what arrives for it.
#[derive(Debug, Clone)]
pub(crate) struct DedupScenario {
    /// The query.
    pub(crate) query: DedupQuery,
    /// Its output mode: a row that gets through is never replaced, so that both show the same.
    pub(crate) mode: Mode,
    /// What arrives.
    pub(crate) feed: Feed,
}

impl DedupScenario {
    /// The scenario of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let tick = rng.pick(&TICKS);
        let arrivals = Arrivals::draw(&mut rng, tick);
        let query = DedupQuery {
            time: rng.pick(&[TimeKey::None, TimeKey::None, TimeKey::First, TimeKey::Last]),
            delay: delay(&mut rng, tick),
        };
        let mode = rng.pick(&[Mode::Append, Mode::Append, Mode::Update]);
        let feed = Feed::draw(&mut rng, seed, &arrivals);
        Self { query, mode, feed }
    }

    /// The statement that defines it.
    pub(crate) fn definition(&self) -> String {
        text::define(self.mode, &self.feed, &self.query.text())
    }
}

impl Trial for DedupScenario {
    fn seed(&self) -> u64 {
        self.feed.seed
    }

    async fn run(&self) -> Checked<()> {
        let session = Session::open(self.feed.partitions).await?;
        let mut model = DedupModel::new(&self.query);
        follow(&session, &self.feed, &self.definition(), &mut model).await?;
        Ok(())
    }

    fn smaller(&self) -> Vec<Self> {
        let feeds = self.feed.smaller().into_iter();
        feeds.map(|feed| self.with_feed(feed)).collect()
    }

    fn replay(&self) -> String {
        text::replay(&self.feed, &self.definition(), DedupModel::new(&self.query))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ts: i64, v: Option<i64>) -> Row {
        Row {
            ts: Some(ts),
            k: None,
            v,
            x: None,
        }
    }

    fn out(ts: i64, v: Cell) -> Rows {
        vec![vec![Cell::Int(ts), Cell::Null, v]]
    }

    #[test]
    fn a_key_is_held_for_the_delay_after_its_row() {
        let (time, delay) = (TimeKey::None, 5);
        let query = DedupQuery { time, delay };
        let mut model = DedupModel::new(&query);
        let rows = [at(4, Some(1)), at(3, Some(2)), at(3, None)];
        assert_eq!(model.epoch(&rows).emitted, out(3, Cell::Null));
        // W = 8 at the end: the key, held to 8, is forgotten only after this epoch.
        assert_eq!(model.epoch(&[at(13, Some(1))]).emitted, Rows::new());
        let outcome = model.epoch(&[at(8, Some(1)), at(9, Some(1))]);
        assert_eq!(outcome.figures.late, 1);
        assert_eq!(outcome.emitted, out(9, Cell::Int(1)));
    }

    #[test]
    fn with_the_event_time_among_the_keys_every_time_is_new_until_it_is_late() {
        let (time, delay) = (TimeKey::Last, 5);
        let query = DedupQuery { time, delay };
        let mut model = DedupModel::new(&query);
        assert_eq!(model.epoch(&[at(3, None), at(4, None)]).figures.output, 2);
        assert_eq!(model.epoch(&[at(3, None), at(9, None)]).figures.output, 1);
        assert_eq!(model.epoch(&[at(4, None), at(5, None)]).figures.late, 1);
    }
}
