//! Runs a scenario through SQL and compares it with the model, epoch by epoch.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::model::{Figures, Model};
use crate::query::{Mode, Query, Row, Rows};
use crate::scenario::{Rng, Scenario};
use crate::session::{Checked, Session};
use crate::text;

/// Time after which a scenario of a few hundred rows hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Time spent on making a failing scenario smaller.
const SHRINKING: Duration = Duration::from_secs(30);

/// Panics, with seed and statements to replay, if the scenario does not do what the model says.
pub(crate) async fn check(scenario: Scenario) {
    let Err(first) = attempt(&scenario).await else {
        return;
    };
    let (smallest, problem) = shrink(scenario, first).await;
    panic!(
        "TIDEGATE_SEED={}\n{problem}\nThe smallest scenario that fails:\n{}",
        smallest.seed,
        text::replay(&smallest)
    );
}

/// Removes rounds and rows as long as what is left still fails.
async fn shrink(mut scenario: Scenario, mut problem: String) -> (Scenario, String) {
    let begin = Instant::now();
    'smaller: loop {
        for candidate in scenario.smaller() {
            if begin.elapsed() > SHRINKING {
                return (scenario, problem);
            }
            if let Err(again) = attempt(&candidate).await {
                (scenario, problem) = (candidate, again);
                continue 'smaller;
            }
        }
        return (scenario, problem);
    }
}

/// Runs a scenario; a panic or a hang is a failure like any other.
async fn attempt(scenario: &Scenario) -> Checked<()> {
    let scenario = scenario.clone();
    let task = tokio::spawn(async move { run(&scenario).await });
    let stop = task.abort_handle();
    match tokio::time::timeout(PATIENCE, task).await {
        Ok(ended) => ended.unwrap_or_else(|error| Err(error.to_string())),
        Err(_) => {
            stop.abort();
            Err(format!("not done after {PATIENCE:?}"))
        }
    }
}

async fn run(scenario: &Scenario) -> Checked<()> {
    let query = &scenario.query;
    let session = Session::open(scenario.partitions).await?;
    session.create("t").await?;
    session.run(&text::definition(scenario)).await?;
    let mut model = Model::new(query);
    let mut ledger = Ledger::default();
    let mut rng = Rng::new(scenario.seed);
    for round in &scenario.rounds {
        session.feed("t", round, &mut rng).await?;
        let records = session.refresh("q").await?;
        let emitted = compare(&session, scenario, round, &records, &mut model).await?;
        ledger.add(query, round, &records);
        if scenario.max_rows.is_none() && query.mode == Mode::Append {
            ledger.emitted += rows_in(query, &emitted);
            ledger.balance(query, ledger.emitted)?;
        }
    }
    let table = session.rows("SELECT * FROM q").await?;
    same("rows of q", &table, &sorted(model.table()))?;
    ledger.balance(query, rows_in(query, &table))?;
    recount(&session, query, &model, &table, &mut rng).await
}

/// Compares the epochs of one refresh; gives the rows of the last.
async fn compare(
    session: &Session,
    scenario: &Scenario,
    round: &[Row],
    records: &[Figures],
    model: &mut Model<'_>,
) -> Checked<Rows> {
    let outcomes: Vec<_> = scenario
        .epochs(round)
        .into_iter()
        .map(|rows| model.epoch(rows))
        .collect();
    let expected: Vec<Figures> = outcomes.iter().map(|outcome| outcome.figures).collect();
    same("figures", records, &expected)?;
    let last = outcomes.into_iter().next_back();
    let last = last.ok_or("a refresh has at least one epoch")?;
    let epoch = last.figures.epoch;
    let emitted = format!("SELECT * FROM emitted('q', {epoch})");
    let emitted = session.rows(&emitted).await?;
    let what = format!("rows emitted in epoch {epoch}");
    same(&what, &emitted, &sorted(last.emitted))?;
    Ok(emitted)
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

fn sorted(mut rows: Rows) -> Rows {
    rows.sort();
    rows
}

/// An error that shows both sides if they differ.
pub(crate) fn same<T: PartialEq + Debug + ?Sized>(
    what: &str,
    actual: &T,
    expected: &T,
) -> Checked<()> {
    if actual == expected {
        return Ok(());
    }
    Err(format!(
        "{what}\n  actual:   {actual:?}\n  expected: {expected:?}"
    ))
}
