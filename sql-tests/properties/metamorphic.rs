//! Changes to a scenario of which the effect on every epoch is known without a model.
//!
//! | change | effect |
//! |---|---|
//! | all times later by a multiple of the slide, any length for sessions and keys | every time of the result and every watermark as much later |
//! | empty epochs in between | none, but for the numbers of epochs |
//! | 1, 2 or 4 partitions | none |

use crate::arrivals::Feed;
use crate::chains::ChainScenario;
use crate::deduplication::DedupScenario;
use crate::follow::{same, sorted};
use crate::model::Figures;
use crate::query::{Aggregate, Cell, Mode, Row, Rows};
use crate::scenario::{Rng, Scenario};
use crate::session::{Checked, Session};
use crate::session_windows::SessionScenario;
use crate::text;
use crate::trial::Trial;

/// A shift for queries whose results no grid aligns: a day and a microsecond.
const ANY_LENGTH: i64 = 86_400_000_001;

/// A scenario that can be changed.
pub(crate) trait Subject: Trial {
    /// The statement that defines the streaming table `q`.
    fn definition(&self) -> String;

    /// What arrives.
    fn feed(&self) -> &Feed;

    /// The same with other arrivals.
    fn with_feed(&self, feed: Feed) -> Self;

    /// The output mode.
    fn mode(&self) -> Mode;

    /// A length by which all times can be shifted, in microseconds.
    fn period(&self) -> i64;

    /// The same query with the times in its text later by `by`.
    fn with_later_text(&self, by: i64) -> Self;

    /// Positions of the columns of the result that hold times.
    fn times(&self) -> Vec<usize>;
}

/// A change.
#[derive(Debug, Clone)]
enum Change {
    /// All times are later by so many microseconds.
    Later(i64),
    /// Empty rounds come before the rounds of these numbers, in ascending order.
    Empty(Vec<usize>),
    /// Other numbers of partitions.
    Partitions,
}

/// A scenario and what is changed in it.
#[derive(Debug, Clone)]
pub(crate) struct Changed<S> {
    subject: S,
    change: Change,
}

impl<S: Subject> Changed<S> {
    /// A scenario with a change that its seed decides.
    pub(crate) fn of(subject: S) -> Self {
        let mut rng = Rng::new(subject.seed() ^ 0x5EED);
        let change = match rng.size(0, 2) {
            0 => Change::Later(rng.between(-1_000, 1_000) * subject.period()),
            1 => Change::Empty(draw_places(&mut rng, subject.feed().rounds.len())),
            _ => Change::Partitions,
        };
        Self { subject, change }
    }

    /// Runs the subject and its changed double, and compares.
    async fn compare(&self) -> Checked<()> {
        let plain = trace(&self.subject).await?;
        match &self.change {
            Change::Later(by) => {
                let double = later(&self.subject, *by);
                let expected = plain.later(*by, &self.subject.times());
                same("all times later", &trace(&double).await?, &expected)
            }
            Change::Empty(places) => {
                let double = with_empty_rounds(&self.subject, places);
                let actual = trace(&double).await?;
                let actual = actual.without_empty_rounds(places, self.subject.mode())?;
                same("empty epochs in between", &actual, &plain)
            }
            Change::Partitions => {
                for partitions in [1, 2, 4] {
                    let feed = self.subject.feed().clone();
                    let double = self.subject.with_feed(Feed { partitions, ..feed });
                    let what = format!("{partitions} partitions");
                    same(&what, &trace(&double).await?, &plain)?;
                }
                Ok(())
            }
        }
    }
}

/// Up to four numbers of rounds, one past the last included, in ascending order.
fn draw_places(rng: &mut Rng, rounds: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..rng.size(1, 4)).map(|_| rng.size(0, rounds)).collect();
    places.sort_unstable();
    places
}

impl<S: Subject> Trial for Changed<S> {
    fn seed(&self) -> u64 {
        self.subject.seed()
    }

    async fn run(&self) -> Checked<()> {
        self.compare().await
    }

    fn smaller(&self) -> Vec<Self> {
        let with = |subject: S| {
            let change = match &self.change {
                Change::Empty(places) => {
                    let rounds = subject.feed().rounds.len();
                    Change::Empty(places.iter().map(|place| *place.min(&rounds)).collect())
                }
                other => other.clone(),
            };
            Self { subject, change }
        };
        self.subject.smaller().into_iter().map(with).collect()
    }

    fn replay(&self) -> String {
        format!("-- {:?}\n{}", self.change, self.subject.replay())
    }
}

/// What a streaming table did.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trace {
    refreshes: Vec<Refresh>,
    table: Rows,
}

/// What one refresh did.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refresh {
    epochs: Vec<Figures>,
    /// Rows emitted in the last epoch.
    emitted: Rows,
}

/// Runs a scenario and notes what it did.
async fn trace<S: Subject>(subject: &S) -> Checked<Trace> {
    let feed = subject.feed();
    let session = Session::open(feed.partitions).await?;
    session.create("t").await?;
    session.run(&subject.definition()).await?;
    let mut rng = Rng::new(feed.seed);
    let mut refreshes = Vec::new();
    for round in &feed.rounds {
        session.feed("t", round, &mut rng).await?;
        let epochs = session.refresh("q").await?;
        let last = epochs.last().ok_or("a refresh has at least one epoch")?;
        let emitted = session.rows(&text::emitted(last.epoch)).await?;
        refreshes.push(Refresh { epochs, emitted });
    }
    let table = session.rows("SELECT * FROM q").await?;
    Ok(Trace { refreshes, table })
}

impl Trace {
    /// The same with every time later.
    fn later(mut self, by: i64, times: &[usize]) -> Self {
        for refresh in &mut self.refreshes {
            for figures in &mut refresh.epochs {
                figures.watermark = figures.watermark.map(|watermark| watermark + by);
            }
            refresh.emitted = later_rows(&refresh.emitted, by, times);
        }
        self.table = later_rows(&self.table, by, times);
        self
    }

    /// The same without the refreshes that [`with_empty_rounds`] put in, numbered as if they had not been.
    fn without_empty_rounds(mut self, places: &[usize], mode: Mode) -> Checked<Self> {
        for place in places {
            self.idle(*place, mode)?;
            self.refreshes.remove(*place);
            let after = self.refreshes.iter_mut().skip(*place);
            for figures in after.flat_map(|refresh| &mut refresh.epochs) {
                figures.epoch -= 1;
            }
        }
        Ok(self)
    }

    /// Checks that a refresh without rows was one epoch that left everything as the one before had.
    fn idle(&self, place: usize, mode: Mode) -> Checked<()> {
        let (before, emitted) = match place.checked_sub(1).map(|before| &self.refreshes[before]) {
            Some(before) => (before.epochs.last().copied(), before.emitted.clone()),
            None => (None, Rows::new()),
        };
        // In complete mode every group comes out again.
        let emitted = match mode {
            Mode::Complete => emitted,
            Mode::Append | Mode::Update => Rows::new(),
        };
        let expected = Figures {
            epoch: before.map_or(0, |before| before.epoch + 1),
            input: 0,
            late: 0,
            null: 0,
            rejected: 0,
            output: emitted.len(),
            open_windows: before.map_or(0, |before| before.open_windows),
            open_rows: before.map_or(0, |before| before.open_rows),
            watermark: before.and_then(|before| before.watermark),
        };
        let epochs = vec![expected];
        let expected = Refresh { epochs, emitted };
        same("an empty epoch", &self.refreshes[place], &expected)
    }
}

fn later_rows(rows: &Rows, by: i64, times: &[usize]) -> Rows {
    let mut rows = rows.clone();
    for row in &mut rows {
        for place in times {
            if let Cell::Int(time) = &mut row[*place] {
                *time += by;
            }
        }
    }
    sorted(rows)
}

/// The subject with all times later.
fn later<S: Subject>(subject: &S, by: i64) -> S {
    let mut feed = subject.feed().clone();
    for row in feed.rounds.iter_mut().flatten() {
        row.ts = row.ts.map(|ts| ts + by);
    }
    subject.with_later_text(by).with_feed(feed)
}

/// The subject with an empty round before the round of each number.
fn with_empty_rounds<S: Subject>(subject: &S, places: &[usize]) -> S {
    let mut feed = subject.feed().clone();
    for place in places.iter().rev() {
        feed.rounds.insert(*place, Vec::<Row>::new());
    }
    subject.with_feed(feed)
}

impl Subject for Scenario {
    fn definition(&self) -> String {
        text::definition(self)
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn with_feed(&self, feed: Feed) -> Self {
        let query = self.query.clone();
        Self { query, feed }
    }

    fn mode(&self) -> Mode {
        self.query.mode
    }

    fn period(&self) -> i64 {
        self.query.grouping.slide()
    }

    fn with_later_text(&self, by: i64) -> Self {
        let mut later = self.clone();
        if let Some(filter) = &mut later.query.filter {
            filter.predicate.shift(by);
        }
        later
    }

    fn times(&self) -> Vec<usize> {
        let bounds = 0..=usize::from(self.query.selects_end());
        let first = self.query.count_column() + 1;
        let aggregates = (first..).zip(&self.query.aggregates);
        let times = aggregates.filter(|(_, aggregate)| **aggregate == Aggregate::MaxTs);
        bounds.chain(times.map(|(place, _)| place)).collect()
    }
}

impl Subject for SessionScenario {
    fn definition(&self) -> String {
        SessionScenario::definition(self)
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn with_feed(&self, feed: Feed) -> Self {
        let query = self.query.clone();
        Self { query, feed }
    }

    fn mode(&self) -> Mode {
        self.query.mode
    }

    fn period(&self) -> i64 {
        ANY_LENGTH
    }

    fn with_later_text(&self, _by: i64) -> Self {
        self.clone()
    }

    fn times(&self) -> Vec<usize> {
        vec![0, 1]
    }
}

impl Subject for DedupScenario {
    fn definition(&self) -> String {
        DedupScenario::definition(self)
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn with_feed(&self, feed: Feed) -> Self {
        let query = self.query.clone();
        Self { query, feed }
    }

    fn mode(&self) -> Mode {
        Mode::Append
    }

    fn period(&self) -> i64 {
        ANY_LENGTH
    }

    fn with_later_text(&self, _by: i64) -> Self {
        self.clone()
    }

    fn times(&self) -> Vec<usize> {
        vec![0]
    }
}

impl Subject for ChainScenario {
    fn definition(&self) -> String {
        ChainScenario::definition(self)
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn with_feed(&self, feed: Feed) -> Self {
        let query = self.query.clone();
        Self { query, feed }
    }

    fn mode(&self) -> Mode {
        Mode::Append
    }

    fn period(&self) -> i64 {
        self.query.period()
    }

    fn with_later_text(&self, _by: i64) -> Self {
        self.clone()
    }

    fn times(&self) -> Vec<usize> {
        vec![0]
    }
}
