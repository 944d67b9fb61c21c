//! Runs a scenario through SQL and compares it with the model, epoch by epoch.

use crate::follow::{Reference, compare, same, sorted};
use crate::metamorphic::Subject;
use crate::model::{Figures, Model, Outcome};
use crate::query::{Mode, Query, Row, Rows};
use crate::scenario::{Rng, Scenario};
use crate::session::{Checked, Session};
use crate::text;
use crate::trial::Trial;

impl Trial for Scenario {
    fn seed(&self) -> u64 {
        self.feed.seed
    }

    async fn run(&self) -> Checked<()> {
        run(self).await
    }

    fn smaller(&self) -> Vec<Self> {
        let feeds = self.feed.smaller().into_iter();
        feeds.map(|feed| self.with_feed(feed)).collect()
    }

    fn replay(&self) -> String {
        text::replay(&self.feed, &text::definition(self), Model::new(&self.query))
    }
}

impl Reference for Model<'_> {
    fn epoch(&mut self, rows: &[Row]) -> Outcome {
        Model::epoch(self, rows)
    }

    fn table(&self) -> Rows {
        Model::table(self)
    }
}

async fn run(scenario: &Scenario) -> Checked<()> {
    let (query, feed) = (&scenario.query, &scenario.feed);
    let session = Session::open(feed.partitions).await?;
    session.create("t").await?;
    session.run(&text::definition(scenario)).await?;
    let mut model = Model::new(query);
    let mut ledger = Ledger::default();
    let mut rng = Rng::new(feed.seed);
    for round in &feed.rounds {
        session.feed("t", round, &mut rng).await?;
        let records = session.refresh("q").await?;
        let emitted = compare(&session, feed, round, &records, &mut model).await?;
        ledger.add(query, round, &records);
        if feed.max_rows.is_none() && query.mode == Mode::Append {
            ledger.emitted += rows_in(query, &emitted);
            ledger.balance(query, ledger.emitted)?;
        }
    }
    let table = session.rows("SELECT * FROM q").await?;
    same("rows of q", &table, &sorted(model.table()))?;
    ledger.balance(query, rows_in(query, &table))?;
    recount(&session, query, &model, &table, &mut rng).await
}

/// Rows in, and where they went by the query's own account.
#[derive(Debug, Default)]
struct Ledger {
    /// Rows fed that the query's filter lets through.
    reached: usize,
    /// Rows counted as late, null-timed or rejected.
    dropped: usize,
    /// Accepted rows in an open window at the end of the last epoch.
    open: usize,
    /// Rows in the groups emitted so far.
    emitted: usize,
}

impl Ledger {
    fn add(&mut self, query: &Query, round: &[Row], records: &[Figures]) {
        self.reached += round.iter().filter(|row| query.reaches(row)).count();
        for record in records {
            self.dropped += record.late + record.null + record.rejected;
            self.open = record.open_rows;
        }
    }

    /// Conservation: what reached the aggregate is dropped, in `results`, or, in append, open.
    fn balance(&self, query: &Query, results: usize) -> Checked<()> {
        if !query.grouping.is_tumbling() || query.having.is_some() {
            return Ok(());
        }
        let open = match query.mode {
            Mode::Append => self.open,
            Mode::Update | Mode::Complete => 0,
        };
        let accounted = results + open + self.dropped;
        same("rows accounted for", &accounted, &self.reached)
    }
}

/// The rows that groups of a result count.
fn rows_in(query: &Query, rows: &Rows) -> usize {
    let counts = rows
        .iter()
        .filter_map(|row| row[query.count_column()].int());
    counts.map(|n| usize::try_from(n).unwrap_or(0)).sum()
}

/// Compares with the same text without `STREAM`, over the accepted rows alone; in append, its closed windows.
async fn recount(
    session: &Session,
    query: &Query,
    model: &Model<'_>,
    table: &Rows,
    rng: &mut Rng,
) -> Checked<()> {
    let Some(accepted) = model.wholly_accepted() else {
        return Ok(());
    };
    session.create("t_accepted").await?;
    session.feed("t_accepted", &accepted, rng).await?;
    let mut batch = session.rows(&text::select(query, "t_accepted")).await?;
    if query.mode == Mode::Append {
        batch.retain(|row| row[0].int().is_some_and(|start| model.has_closed(start)));
    }
    same("rows of q and of the batch query", table, &batch)
}
