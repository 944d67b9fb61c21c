//! A window of a window: what the lower one emits reaches the upper one in the same epoch, and is never late there.

use std::collections::BTreeMap;

use crate::arrivals::{Arrivals, Feed, TICKS, delay};
use crate::follow::{Reference, follow};
use crate::metamorphic::Subject;
use crate::model::{Figures, Model, Outcome};
use crate::query::{Cell, Grouping, Mode, Query, Row, Rows};
use crate::scenario::Rng;
use crate::session::{Checked, Session};
use crate::text;
use crate::trial::Trial;

/// Sums, by windows, of counts by smaller windows.
#[derive(Debug, Clone)]
pub(crate) struct ChainQuery {
    /// The lower windows.
    lower: Query,
    /// Size of the upper windows in microseconds; not always a multiple of the lower.
    size: i64,
    /// Whether the column between the two has a name of its own.
    named: bool,
}

impl ChainQuery {
    /// The least length by which both kinds of windows can be shifted, in microseconds.
    pub(crate) fn period(&self) -> i64 {
        let slide = self.lower.grouping.slide();
        slide / divisor(slide, self.size) * self.size
    }

    fn text(&self) -> String {
        let (column, alias) = if self.named {
            ("w", " AS w")
        } else {
            ("window", "")
        };
        let bin = format!("window({column}, '{}')", text::duration(self.size));
        let start = if self.named {
            format!("{bin}.start")
        } else {
            "window.start".to_owned()
        };
        let lower = text::select_columns(
            &self.lower,
            "STREAM t",
            &format!("window{alias}, count(*) AS n"),
        );
        format!("SELECT {start} AS ws, sum(n) AS s\nFROM (\n{lower}\n)\nGROUP BY {bin}")
    }
}

/// The greatest common divisor of two lengths.
fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// The model of the lower windows, and above it the sums that the upper ones hold.
#[derive(Debug)]
pub(crate) struct ChainModel<'a> {
    query: &'a ChainQuery,
    lower: Model<'a>,
    /// Sums by the start of their window.
    held: BTreeMap<i64, i64>,
    table: Rows,
}

impl<'a> ChainModel<'a> {
    /// A query that has read nothing.
    pub(crate) fn new(query: &'a ChainQuery) -> Self {
        Self {
            query,
            lower: Model::new(&query.lower),
            held: BTreeMap::new(),
            table: Vec::new(),
        }
    }

    /// Adds a row that the lower windows emitted: its time is the last moment of its window.
    fn take(&mut self, row: &[Cell]) {
        let end = row[1].int().expect("the end of a window");
        let n = row[self.query.lower.count_column()].int();
        let start = (end - 1).div_euclid(self.query.size) * self.query.size;
        *self.held.entry(start).or_default() += n.expect("a count");
    }

    /// The sums of the windows that have closed.
    fn release(&mut self, watermark: Option<i64>) -> Rows {
        let size = self.query.size;
        let closed = |start: &i64| watermark.is_some_and(|watermark| start + size <= watermark);
        let leaving = self.held.iter().filter(|(start, _)| closed(start));
        let emitted: Rows = leaving
            .map(|(start, sum)| vec![Cell::Int(*start), Cell::Int(*sum)])
            .collect();
        self.held.retain(|start, _| !closed(start));
        emitted
    }
}

impl Reference for ChainModel<'_> {
    fn epoch(&mut self, rows: &[Row]) -> Outcome {
        let lower = self.lower.epoch(rows);
        for row in &lower.emitted {
            self.take(row);
        }
        let emitted = self.release(lower.figures.watermark);
        self.table.extend(emitted.iter().cloned());
        let figures = Figures {
            output: emitted.len(),
            ..lower.figures
        };
        Outcome { figures, emitted }
    }

    fn table(&self) -> Rows {
        self.table.clone()
    }

    /// What is open in two operators at once is left open.
    fn told(&self, figures: Figures) -> Figures {
        Figures {
            open_windows: 0,
            open_rows: 0,
            ..figures
        }
    }
}

/// A chain and what arrives for it.
#[derive(Debug, Clone)]
pub(crate) struct ChainScenario {
    /// The query.
    pub(crate) query: ChainQuery,
    /// What arrives.
    pub(crate) feed: Feed,
}

impl ChainScenario {
    /// The scenario of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let tick = rng.pick(&TICKS);
        let arrivals = Arrivals::draw(&mut rng, tick);
        let query = draw_query(&mut rng, tick);
        let feed = Feed::draw(&mut rng, seed, &arrivals);
        Self { query, feed }
    }

    /// The statement that defines it.
    pub(crate) fn definition(&self) -> String {
        text::define(Mode::Append, &self.feed, &self.query.text())
    }
}

/// Tumbling or hopping windows of up to six ticks, and above them windows of up to four times as many.
fn draw_query(rng: &mut Rng, tick: i64) -> ChainQuery {
    let size = rng.between(1, 6);
    let slide = if rng.one_in(3) {
        rng.between(1, size)
    } else {
        size
    };
    let upper = if rng.one_in(2) {
        size * rng.between(1, 4)
    } else {
        rng.between(1, 24)
    };
    ChainQuery {
        lower: Query {
            grouping: Grouping::Window {
                size: size * tick,
                slide: slide * tick,
                start: 0,
            },
            keyed: rng.one_in(3),
            key_first: false,
            delay: Some(delay(rng, tick)),
            filter: None,
            having: None,
            mode: Mode::Append,
            aggregates: Vec::new(),
        },
        size: upper * tick,
        named: rng.one_in(2),
    }
}

impl Trial for ChainScenario {
    fn seed(&self) -> u64 {
        self.feed.seed
    }

    async fn run(&self) -> Checked<()> {
        let session = Session::open(self.feed.partitions).await?;
        let mut model = ChainModel::new(&self.query);
        follow(&session, &self.feed, &self.definition(), &mut model).await?;
        Ok(())
    }

    fn smaller(&self) -> Vec<Self> {
        let feeds = self.feed.smaller().into_iter();
        feeds.map(|feed| self.with_feed(feed)).collect()
    }

    fn replay(&self) -> String {
        text::replay(&self.feed, &self.definition(), ChainModel::new(&self.query))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_windows_close_in_one_epoch_and_ends_belong_to_the_window_before() {
        let mut query = draw_query(&mut Rng::new(0), 1);
        query.lower.grouping = Grouping::Window {
            size: 5,
            slide: 5,
            start: 0,
        };
        query.lower.delay = Some(0);
        query.size = 10;
        let at = |ts| Row {
            ts: Some(ts),
            k: None,
            v: None,
            x: None,
        };
        let mut model = ChainModel::new(&query);
        let emitted = model.epoch(&[at(1), at(7), at(9), at(10)]).emitted;
        assert_eq!(emitted, [[0, 3].map(Cell::Int)]);
        assert_eq!(model.epoch(&[at(15)]).emitted, Rows::new());
        assert_eq!(model.epoch(&[at(20)]).emitted, [[10, 2].map(Cell::Int)]);
    }
}
