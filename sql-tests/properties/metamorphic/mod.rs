//! Changes to a scenario of which the effect on every epoch is known without a model.
//!
//! | change | effect |
//! |---|---|
//! | all times later by a multiple of the slide, any length for sessions and keys | every time of the result and every watermark as much later |
//! | empty epochs in between | none, but for the numbers of epochs |
//! | 1, 2 or 4 partitions | none |
//! | the rows of an epoch in another order | none |
//! | other names of keys, in the same order | those names |
//! | a round in two, the first without what moves the watermark | none, the two taken together |

mod subjects;
mod trace;

use crate::arrivals::Feed;
use crate::follow::same;
use crate::query::{Mode, Row};
use crate::scenario::Rng;
use crate::session::Checked;
use crate::trial::Trial;
use trace::{Trace, other_name, trace};

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

    /// The delay, if a round may be split: no row's fate or result depends on the epoch it is in as long as
    /// the watermark stands.
    fn delay(&self) -> Option<i64>;

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
    /// The rows of each epoch in an order that this number decides.
    Order(u64),
    /// Other names of keys.
    Names,
    /// The round of this number in two.
    Split(usize),
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
        let rounds = subject.feed().rounds.len();
        let change = match rng.size(0, 5) {
            0 => Change::Later(rng.between(-1_000, 1_000) * subject.period()),
            1 => Change::Empty(draw_places(&mut rng, rounds)),
            2 => Change::Order(subject.seed()),
            3 => Change::Names,
            4 if splits(&subject) => Change::Split(rng.size(0, rounds - 1)),
            _ => Change::Partitions,
        };
        Self { subject, change }
    }

    /// Runs the subject and its changed double, and compares.
    async fn compare(&self) -> Checked<()> {
        let (definition, feed) = (self.subject.definition(), self.subject.feed());
        let plain = trace(&definition, feed).await?;
        match &self.change {
            Change::Later(by) => {
                let double = later(&self.subject, *by);
                let expected = plain.later(*by, &self.subject.times());
                let actual = trace(&double.definition(), double.feed()).await?;
                same("all times later", &actual, &expected)
            }
            Change::Empty(places) => {
                let actual = trace(&definition, &with_empty_rounds(feed, places)).await?;
                let actual = actual.without_empty_rounds(places, self.subject.mode())?;
                same("empty epochs in between", &actual, &plain)
            }
            Change::Partitions => {
                for partitions in [1, 2, 4] {
                    let feed = feed.clone();
                    let double = Feed { partitions, ..feed };
                    let what = format!("{partitions} partitions");
                    same(&what, &trace(&definition, &double).await?, &plain)?;
                }
                Ok(())
            }
            Change::Order(order) => {
                let actual = trace(&definition, &reordered(feed, *order)).await?;
                same("another order within epochs", &actual, &plain)
            }
            Change::Names => {
                let definition = definition.replace("'k", "'nk");
                let actual = trace(&definition, &renamed(feed)).await?;
                same("other names of keys", &actual, &plain.renamed())
            }
            Change::Split(place) => self.compare_split(*place, plain).await,
        }
    }

    /// Runs the double whose round of this number is split.
    async fn compare_split(&self, place: usize, mut plain: Trace) -> Checked<()> {
        let (feed, mode) = (self.subject.feed(), self.subject.mode());
        if place >= feed.rounds.len() {
            return Ok(());
        }
        let before = place.checked_sub(1).map(|before| &plain.refreshes[before]);
        let watermark = before.and_then(|refresh| refresh.epochs.last()?.watermark);
        let seen = watermark.and_then(|watermark| Some(watermark + self.subject.delay()?));
        let double = with_split(feed, place, seen);
        let actual = trace(&self.subject.definition(), &double).await?;
        let actual = actual.joined(place, mode)?;
        if mode == Mode::Update {
            plain.forget_emitted(place);
        }
        same("a round in two", &actual, &plain)
    }
}

/// Whether a round may be split: there is one, and each is one epoch.
fn splits<S: Subject>(subject: &S) -> bool {
    let feed = subject.feed();
    subject.delay().is_some() && feed.max_rows.is_none() && !feed.rounds.is_empty()
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

/// The subject with all times later.
fn later<S: Subject>(subject: &S, by: i64) -> S {
    let mut feed = subject.feed().clone();
    for row in feed.rounds.iter_mut().flatten() {
        row.ts = row.ts.map(|ts| ts + by);
    }
    subject.with_later_text(by).with_feed(feed)
}

/// The feed with an empty round before the round of each number.
fn with_empty_rounds(feed: &Feed, places: &[usize]) -> Feed {
    let mut feed = feed.clone();
    for place in places.iter().rev() {
        feed.rounds.insert(*place, Vec::<Row>::new());
    }
    feed
}

/// The feed with the rows of each epoch shuffled.
fn reordered(feed: &Feed, order: u64) -> Feed {
    let mut rng = Rng::new(order);
    let mut double = feed.clone();
    for round in &mut double.rounds {
        let most = feed.max_rows.unwrap_or(usize::MAX).max(1);
        for epoch in round.chunks_mut(most) {
            for last in (1..epoch.len()).rev() {
                epoch.swap(last, rng.size(0, last));
            }
        }
    }
    double
}

/// The feed with other names of keys.
fn renamed(feed: &Feed) -> Feed {
    let mut feed = feed.clone();
    for row in feed.rounds.iter_mut().flatten() {
        row.k = row.k.as_deref().map(other_name);
    }
    feed
}

/// The feed with a round in two: first what cannot move the watermark, for its time has been seen.
fn with_split(feed: &Feed, place: usize, seen: Option<i64>) -> Feed {
    let mut feed = feed.clone();
    let round = std::mem::take(&mut feed.rounds[place]);
    let moves = |row: &Row| row.ts.is_some() && row.ts > seen;
    let (second, first) = round.into_iter().partition(moves);
    feed.rounds[place] = first;
    feed.rounds.insert(place + 1, second);
    feed
}
