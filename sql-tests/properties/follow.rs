//! Follows the streaming table `q` over `t`, epoch by epoch, next to a model of what it means.

use std::fmt::Debug;

use crate::arrivals::Feed;
use crate::model::{Figures, Outcome};
use crate::query::{Cell, Row, Rows};
use crate::scenario::Rng;
use crate::session::{Checked, Session};
use crate::text;

/// A model: what every epoch must have done.
pub(crate) trait Reference {
    /// Runs one epoch over `rows`.
    fn epoch(&mut self, rows: &[Row]) -> Outcome;

    /// What the streaming table holds.
    fn table(&self) -> Rows;

    /// The figures that are compared; the model says nothing about the others.
    fn told(&self, figures: Figures) -> Figures {
        figures
    }
}

/// Feeds all rounds to a query that is defined by `definition`, and compares every epoch and the table.
/// Gives the table.
pub(crate) async fn follow<R: Reference>(
    session: &Session,
    feed: &Feed,
    definition: &str,
    model: &mut R,
) -> Checked<Rows> {
    session.create("t").await?;
    session.run(definition).await?;
    let mut rng = Rng::new(feed.seed);
    for round in &feed.rounds {
        session.feed("t", round, &mut rng).await?;
        let records = session.refresh("q").await?;
        compare(session, feed, round, &records, model).await?;
    }
    let table = session.rows("SELECT * FROM q").await?;
    same("rows of q", &table, &sorted(model.table()))?;
    Ok(table)
}

/// Compares the epochs of one refresh; gives the rows of the last.
pub(crate) async fn compare<R: Reference>(
    session: &Session,
    feed: &Feed,
    round: &[Row],
    records: &[Figures],
    model: &mut R,
) -> Checked<Rows> {
    let outcomes: Vec<_> = feed
        .epochs(round)
        .into_iter()
        .map(|rows| model.epoch(rows))
        .collect();
    let told = |figures: &Figures| model.told(*figures);
    let actual: Vec<Figures> = records.iter().map(told).collect();
    let expected: Vec<Figures> = outcomes
        .iter()
        .map(|outcome| told(&outcome.figures))
        .collect();
    same("figures", &actual, &expected)?;
    if session.keeps_late() {
        late_rows(session, records).await?;
    }
    let last = outcomes.into_iter().next_back();
    let last = last.ok_or("a refresh has at least one epoch")?;
    let epoch = last.figures.epoch;
    let emitted = session.rows(&text::emitted(epoch)).await?;
    let what = format!("rows emitted in epoch {epoch}");
    same(&what, &emitted, &sorted(last.emitted))?;
    Ok(emitted)
}

/// The table of rows that were not counted has, of each of these epochs, exactly as many of each kind as it says.
async fn late_rows(session: &Session, records: &[Figures]) -> Checked<()> {
    let kept = session.rows(&text::late()).await?;
    let of = |epoch: u64, reason: &str| {
        let found = kept.iter().find(|row| {
            row[0].int() == i64::try_from(epoch).ok() && row[1] == Cell::Text(reason.to_owned())
        });
        let count = found.and_then(|row| row[2].int()).unwrap_or_default();
        usize::try_from(count).unwrap_or_default()
    };
    for record in records {
        let epoch = record.epoch;
        let kept = ["late", "null", "rejected"].map(|reason| of(epoch, reason));
        let counted = [record.late, record.null, record.rejected];
        same(
            &format!("rows not counted in epoch {epoch}"),
            &kept,
            &counted,
        )?;
    }
    Ok(())
}

/// The rows in an order of their own.
pub(crate) fn sorted(mut rows: Rows) -> Rows {
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
