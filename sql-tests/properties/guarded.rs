//! A guard against event times of the future, over the scenarios of time windows: rows beyond it are as if they had
//! not come, but for being read and counted.
//!
//! ```text
//! times, in order         3   12   5   40   7        the clock and max_future make the bound 12
//! the model is given      3   12   5        7        1 row is guarded
//! ```

use std::sync::Arc;

use tidegate::context::Clock;

use crate::follow::{Reference, follow, same};
use crate::model::{Model, Outcome};
use crate::query::{Query, Row, Rows, count};
use crate::scenario::{Rng, Scenario};
use crate::session::{Checked, Session};
use crate::text;
use crate::trial::Trial;

/// A scenario of time windows, and the greatest event time that passes, in microseconds.
#[derive(Debug, Clone)]
pub(crate) struct Guarded {
    scenario: Scenario,
    bound: i64,
}

/// A clock that stands still.
#[derive(Debug)]
struct Fixed(i64);

impl Clock for Fixed {
    fn now_ms(&self) -> i64 {
        self.0
    }
}

impl Guarded {
    /// The scenario of a seed, with a bound at the event time of one of its rows, or a microsecond beside it.
    pub(crate) fn of(seed: u64) -> Self {
        let mut scenario = Scenario::of(seed);
        // Without a clause there is nothing to guard.
        scenario.query.delay = scenario.query.delay.or(Some(0));
        let mut rng = Rng::new(!seed);
        let rows = scenario.feed.rounds.iter().flatten();
        let times: Vec<i64> = rows.filter_map(|row| row.ts).collect();
        let bound = match times.as_slice() {
            [] => 0,
            times => rng.pick(times) + rng.between(-1, 1),
        };
        Self { scenario, bound }
    }

    fn now_ms(&self) -> i64 {
        self.bound.div_euclid(1_000)
    }

    fn definition(&self) -> String {
        let beyond = self.bound.rem_euclid(1_000);
        let with = format!("WITH (max_future = '{beyond} microseconds', ");
        text::definition(&self.scenario).replacen("WITH (", &with, 1)
    }

    fn model(&self) -> GuardedModel<'_> {
        GuardedModel {
            model: Model::new(&self.scenario.query),
            query: &self.scenario.query,
            bound: self.bound,
            guarded: Vec::new(),
        }
    }
}

/// A model that is given what passes.
struct GuardedModel<'a> {
    model: Model<'a>,
    query: &'a Query,
    bound: i64,
    /// Number and guarded rows of each epoch.
    guarded: Rows,
}

impl Reference for GuardedModel<'_> {
    fn epoch(&mut self, rows: &[Row]) -> Outcome {
        let is_beyond = |row: &&Row| row.ts.is_some_and(|ts| ts > self.bound);
        let (beyond, passing): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(is_beyond);
        let guarded = beyond.iter().filter(|row| self.query.observes(row)).count();
        let passing: Vec<Row> = passing.into_iter().cloned().collect();
        let mut outcome = self.model.epoch(&passing);
        outcome.figures.input = rows.len();
        self.guarded
            .push(vec![count(self.guarded.len()), count(guarded)]);
        outcome
    }

    fn table(&self) -> Rows {
        self.model.table()
    }
}

impl Trial for Guarded {
    fn seed(&self) -> u64 {
        self.scenario.feed.seed
    }

    async fn run(&self) -> Checked<()> {
        let feed = &self.scenario.feed;
        let session = Session::open_at(feed.partitions, Arc::new(Fixed(self.now_ms()))).await?;
        let mut model = self.model();
        follow(&session, feed, &self.definition(), &mut model).await?;
        let guarded = session
            .rows("SELECT epoch, guarded_rows FROM progress('q')")
            .await?;
        same("guarded rows", &guarded, &model.guarded)
    }

    fn smaller(&self) -> Vec<Self> {
        let feeds = self.scenario.feed.smaller().into_iter();
        let smaller = feeds.map(|feed| Self {
            scenario: Scenario {
                feed,
                ..self.scenario.clone()
            },
            ..*self
        });
        smaller.collect()
    }

    fn replay(&self) -> String {
        let statements = text::replay(&self.scenario.feed, &self.definition(), self.model());
        format!(
            "-- the clock says {} milliseconds after 1970\n{statements}",
            self.now_ms()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_scenarios_guard_some_rows_and_let_some_pass() {
        let splits = |seed: &u64| {
            let guarded = Guarded::of(*seed);
            let rows = guarded.scenario.feed.rounds.iter().flatten();
            let (beyond, within): (Vec<i64>, Vec<i64>) = rows
                .filter_map(|row| row.ts)
                .partition(|ts| *ts > guarded.bound);
            !beyond.is_empty() && !within.is_empty()
        };
        assert!((0..100).filter(splits).count() > 50);
    }
}
