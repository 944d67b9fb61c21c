//! Sessions: random streams of them, next to the model and next to the batch query.

use crate::arrivals::{Arrivals, Feed, TICKS, delay};
use crate::follow::{follow, same};
use crate::metamorphic::Subject;
use crate::query::{Mode, Row, Rows};
use crate::scenario::Rng;
use crate::session::{Checked, Session};
use crate::session_model::SessionModel;
use crate::text;
use crate::trial::Trial;

/// How long after a row its session stays open, in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gap {
    /// The same for every row.
    Constant(i64),
    /// By the row's `v`.
    PerRow {
        /// Rows with `v` above this have the gap `more`.
        above: i64,
        /// Their gap.
        more: i64,
        /// The gap of all other rows.
        others: i64,
        /// Rows with `v` below the first have the second, no usable gap: NULL, nothing or less.
        unusable: Option<(i64, Option<i64>)>,
    },
}

impl Gap {
    /// The gap of a row.
    pub(crate) fn of(&self, row: &Row) -> Option<i64> {
        match self {
            Self::Constant(gap) => Some(*gap),
            Self::PerRow {
                above,
                more,
                others,
                unusable,
            } => match (row.v, unusable) {
                (Some(v), Some((below, gap))) if v < *below => *gap,
                (Some(v), _) if v > *above => Some(*more),
                _ => Some(*others),
            },
        }
    }

    /// The second argument of `session_window`.
    fn text(&self) -> String {
        let quoted = |gap: i64| format!("'{}'", text::duration(gap));
        match self {
            Self::Constant(gap) => quoted(*gap),
            Self::PerRow {
                above,
                more,
                others,
                unusable,
            } => {
                let unusable = unusable.map_or_else(String::new, |(below, gap)| {
                    let gap = gap.map_or_else(|| "NULL".to_owned(), quoted);
                    format!("WHEN v < {below} THEN {gap} ")
                });
                format!(
                    "CASE {unusable}WHEN v > {above} THEN {} ELSE {} END",
                    quoted(*more),
                    quoted(*others)
                )
            }
        }
    }
}

/// A count and a sum by session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionQuery {
    /// The gap.
    pub(crate) gap: Gap,
    /// Whether `k` is a group key too.
    pub(crate) keyed: bool,
    /// The delay in microseconds.
    pub(crate) delay: i64,
    /// Append or complete.
    pub(crate) mode: Mode,
}

impl SessionQuery {
    /// The query over `relation`, which is `STREAM t` or a table's name.
    fn text(&self, relation: &str) -> String {
        let key = if self.keyed { ", k" } else { "" };
        format!(
            "SELECT session_window.start AS ws, session_window.end AS we{key}, count(*) AS n, sum(v) AS s\n\
             FROM {relation} {}\n\
             GROUP BY session_window(ts, {}){key}",
            text::clause(self.delay),
            self.gap.text()
        )
    }
}

/// A query by session and what arrives for it.
#[derive(Debug, Clone)]
pub(crate) struct SessionScenario {
    /// The query.
    pub(crate) query: SessionQuery,
    /// What arrives.
    pub(crate) feed: Feed,
}

impl SessionScenario {
    /// The scenario of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let tick = rng.pick(&TICKS);
        let arrivals = Arrivals::draw(&mut rng, tick);
        let query = SessionQuery {
            gap: draw_gap(&mut rng, tick),
            keyed: rng.one_in(2),
            delay: delay(&mut rng, tick),
            mode: rng.pick(&[Mode::Append, Mode::Append, Mode::Complete]),
        };
        let feed = Feed::draw(&mut rng, seed, &arrivals);
        Self { query, feed }
    }

    /// The statement that defines it.
    pub(crate) fn definition(&self) -> String {
        text::define(self.query.mode, &self.feed, &self.query.text("STREAM t"))
    }
}

/// A gap on the grid, now and then of nothing.
fn draw_gap(rng: &mut Rng, tick: i64) -> Gap {
    if rng.one_in(2) {
        let ticks = if rng.one_in(20) { 0 } else { rng.between(1, 8) };
        return Gap::Constant(ticks * tick);
    }
    Gap::PerRow {
        above: rng.between(-2, 6),
        more: rng.between(1, 3) * tick,
        others: rng.between(1, 12) * tick,
        unusable: rng.one_in(2).then(|| {
            let gap = rng.pick(&[None, Some(0), Some(-tick)]);
            (rng.between(-4, 1), gap)
        }),
    }
}

impl Trial for SessionScenario {
    fn seed(&self) -> u64 {
        self.feed.seed
    }

    async fn run(&self) -> Checked<()> {
        let session = Session::open(self.feed.partitions).await?;
        let mut model = SessionModel::new(&self.query);
        let table = follow(&session, &self.feed, &self.definition(), &mut model).await?;
        self.recount(&session, &model, &table).await
    }

    fn smaller(&self) -> Vec<Self> {
        let feeds = self.feed.smaller().into_iter();
        feeds.map(|feed| self.with_feed(feed)).collect()
    }

    fn replay(&self) -> String {
        text::replay(
            &self.feed,
            &self.definition(),
            SessionModel::new(&self.query),
        )
    }
}

impl SessionScenario {
    /// Compares with the same text without `STREAM`, over the accepted rows alone; in append, its closed sessions.
    async fn recount(
        &self,
        session: &Session,
        model: &SessionModel<'_>,
        table: &Rows,
    ) -> Checked<()> {
        let Some(accepted) = model.merged_at_once() else {
            return Ok(());
        };
        let mut rng = Rng::new(self.feed.seed);
        session.create("t_accepted").await?;
        session.feed("t_accepted", &accepted, &mut rng).await?;
        let mut batch = session.rows(&self.query.text("t_accepted")).await?;
        if self.query.mode == Mode::Append {
            batch.retain(|row| row[1].int().is_some_and(|end| model.is_shut(end)));
        }
        same("rows of q and of the batch query", table, &batch)
    }
}
