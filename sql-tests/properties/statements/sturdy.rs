//! Whatever is written, the answer is rows or an error with words.

use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::prelude::{SessionConfig, SessionContext};
use tidegate::context::StreamContext;
use tidegate::error::render;

use super::answer::{answer, read};
use super::data::Tables;
use super::equal;
use super::known::known_error;
use super::mutation::{mutated, tokens};
use super::tally::Tally;
use super::wild::Wild;
use crate::scenario::Rng;
use crate::session::{Checked, Session};
use crate::trial::Trial;

/// What no error says.
const FAULTS: [&str; 4] = [
    "Internal error",
    "likely caused by a bug",
    "panicked",
    "PLANNER_PANIC",
];

/// Statements of any kind.
#[derive(Debug, Clone)]
pub(super) struct SturdyTrial {
    seed: u64,
    tables: Tables,
    statements: Vec<String>,
    partitions: usize,
    tally: Arc<Tally>,
}

impl SturdyTrial {
    /// The statements of a seed: some as they were drawn, then some that were changed.
    pub(super) fn of(seed: u64, tally: &Arc<Tally>) -> Self {
        let mut rng = Rng::new(seed ^ 0xBAD);
        let tables = Tables::draw(&mut rng);
        let query = rng.one_in(4).then(|| equal::draw(&mut rng, &tables));
        let mut statements = Vec::new();
        let query = query.map(|(views, query)| {
            statements.extend(views.iter().map(|view| equal::streaming(view)));
            equal::streaming(&query)
        });
        let whole = Wild::new(&mut rng).statements(query);
        let changed: Vec<String> = (0..rng.size(1, 5))
            .map(|_| {
                // The last ones are about the query.
                let place = rng.size(whole.len().saturating_sub(4), whole.len() - 1);
                mutated(&mut rng, &whole[place])
            })
            .collect();
        statements.extend(whole);
        statements.extend(changed);
        Self {
            seed,
            tables,
            statements,
            partitions: rng.pick(&[1, 2, 4]),
            tally: Arc::clone(tally),
        }
    }
}

impl Trial for SturdyTrial {
    fn seed(&self) -> u64 {
        self.seed
    }

    async fn run(&self) -> Checked<()> {
        let session = Session::open(self.partitions).await?;
        let made = self.tables.make(session.context()).await;
        made.map_err(|error| error.to_string())?;
        for (place, text) in self.statements.iter().enumerate() {
            let problem = self.problem(session.context(), text).await;
            if let Err(problem) = problem
                && !known_error(&self.statements[..=place].join(";\n"), &problem)
                && !self.is_datafusions(place).await
            {
                return Err(format!("{text}\n{problem}"));
            }
        }
        Ok(())
    }

    fn smaller(&self) -> Vec<Self> {
        let without = |place: usize| {
            let mut fewer = self.clone();
            fewer.statements.remove(place);
            fewer
        };
        let places = 0..self.statements.len();
        let mut all: Vec<Self> = places.clone().map(without).collect();
        for place in places {
            for text in shorter(&self.statements[place]) {
                let mut fewer = self.clone();
                fewer.statements[place] = text;
                all.push(fewer);
            }
        }
        all.extend(self.tables.smaller().into_iter().map(|tables| Self {
            tables,
            ..self.clone()
        }));
        all
    }

    fn replay(&self) -> String {
        let mut all = vec![format!(
            "SET datafusion.execution.target_partitions = {}",
            self.partitions
        )];
        all.extend(self.tables.statements());
        all.extend(self.statements.iter().cloned());
        all.join(";\n") + ";\n"
    }
}

impl SturdyTrial {
    /// Runs a statement in a task of its own, which may panic; says what is wrong with its answer, if anything is.
    async fn problem(&self, context: &StreamContext, text: &str) -> Checked<()> {
        let (context, sql) = (context.clone(), text.to_owned());
        let answer = tokio::spawn(async move { answer(&context, &sql).await }).await;
        let answer = answer.map_err(|panic| panic.to_string())?;
        self.tally.add(answer.is_ok());
        answer.map_or_else(|error| in_words(text, &error), |_| Ok(()))
    }

    /// Whether DataFusion alone says the same of the statement in this place, without what is not its own.
    async fn is_datafusions(&self, place: usize) -> bool {
        let config = SessionConfig::new().with_information_schema(true);
        let context = SessionContext::new_with_config(config);
        let before = self
            .tables
            .statements()
            .into_iter()
            .chain(self.statements[..place].iter().cloned());
        for statement in before {
            // What it does not understand, it leaves out.
            if let Ok(frame) = context.sql(&without_streams(&statement)).await {
                drop(read(frame).await);
            }
        }
        let text = without_streams(&self.statements[place]);
        let answer = match context.sql(&text).await {
            Ok(frame) => read(frame).await,
            Err(error) => Err(error),
        };
        answer.is_err_and(|error| in_words(&text, &error).is_err())
    }
}

/// That an error says something, and nothing of a fault; also as it is shown to a person.
fn in_words(text: &str, error: &DataFusionError) -> Checked<()> {
    for said in [
        error.strip_backtrace(),
        error.to_string(),
        render(text, error),
    ] {
        if said.trim().is_empty() {
            return Err("an error without words".to_owned());
        }
        if FAULTS.iter().any(|fault| said.contains(fault)) {
            return Err(format!("an error that tells of a fault: {said}"));
        }
    }
    Ok(())
}

/// The text with some tokens less, larger cuts first.
fn shorter(text: &str) -> Vec<String> {
    let all = tokens(text);
    let mut texts = Vec::new();
    let mut length = all.len() / 2;
    while length > 0 {
        for start in (0..all.len()).step_by(length) {
            let (before, after) = (&all[..start], &all[(start + length).min(all.len())..]);
            texts.push([before, after].concat().concat());
        }
        length /= 2;
    }
    texts
}

/// A text without `STREAM` and the clause, as far as it can be told from its tokens; windows become structs.
fn without_streams(text: &str) -> String {
    let mut all: Vec<String> = tokens(text);
    all.retain(|token| !token.eq_ignore_ascii_case("STREAM"));
    let is = |token: &String, word: &str| token.eq_ignore_ascii_case(word);
    while let Some(start) = all.iter().position(|token| is(token, "WATERMARK")) {
        let rest = &all[start..];
        let end = rest
            .iter()
            .position(|token| is(token, "INTERVAL"))
            .unwrap_or(0);
        let number = |token: &&String| {
            token.starts_with(|first: char| first == '\'' || first.is_ascii_digit())
        };
        let length = rest[end..]
            .iter()
            .position(|token| number(&token))
            .unwrap_or(0);
        let unit = |token: &String| {
            ["second", "minute", "hour", "day"]
                .iter()
                .any(|unit| token.to_ascii_lowercase().starts_with(unit))
        };
        let after = rest.get(end + length + 1..).unwrap_or_default();
        let more = after
            .iter()
            .take(2)
            .position(unit)
            .map_or(0, |place| place + 1);
        all.drain(start..=start + end + length + more);
    }
    for place in 0..all.len() {
        let called = all.get(place + 1).is_some_and(|next| next == "(");
        if called && (is(&all[place], "window") || is(&all[place], "session_window")) {
            all[place] = "struct".to_owned();
        }
    }
    all.concat()
}
