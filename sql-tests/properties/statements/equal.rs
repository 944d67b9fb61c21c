//! A stream that ends with its input answers what the same text without `STREAM` does.

use std::sync::Arc;

use datafusion::common::DataFusionError;
use tidegate::context::StreamContext;
use tidegate::error::refusal;

use super::answer::{Answer, answer};
use super::data::Tables;
use super::relations::Draft;
use super::tally::Tally;
use crate::follow::same;
use crate::scenario::Rng;
use crate::session::{Checked, Session};
use crate::trial::Trial;

/// A query that a stream may take.
#[derive(Debug, Clone)]
pub(super) struct EqualTrial {
    seed: u64,
    tables: Tables,
    /// Templates of the statements that make its views, and of the query itself.
    views: Vec<String>,
    query: String,
    /// `max_rows_per_epoch`.
    most: usize,
    /// `datafusion.execution.batch_size`.
    batch: usize,
    partitions: usize,
    tally: Arc<Tally>,
}

impl EqualTrial {
    /// The query of a seed.
    pub(super) fn of(seed: u64, tally: &Arc<Tally>) -> Self {
        let mut rng = Rng::new(seed);
        let tables = Tables::draw(&mut rng);
        let (views, query) = draw(&mut rng, &tables);
        Self {
            seed,
            tables,
            views,
            query,
            most: if rng.one_in(20) { 1 } else { rng.size(6, 25) },
            batch: if rng.one_in(6) { 5 } else { 8192 },
            partitions: rng.pick(&[1, 1, 2, 4]),
            tally: Arc::clone(tally),
        }
    }

    /// What the query answers, its views made anew.
    async fn answer(
        &self,
        context: &StreamContext,
        text: fn(&str) -> String,
    ) -> Result<Answer, DataFusionError> {
        for view in &self.views {
            answer(context, &text(view)).await?;
        }
        answer(context, &text(&self.query)).await
    }

    /// The settings that cut the rows into epochs and into batches.
    fn settings(&self) -> [String; 2] {
        [
            format!("SET tidegate.max_rows_per_epoch = {}", self.most),
            format!("SET datafusion.execution.batch_size = {}", self.batch),
        ]
    }
}

/// Templates of the views and of the query.
pub(super) fn draw(rng: &mut Rng, tables: &Tables) -> (Vec<String>, String) {
    let mut draft = Draft::new(rng, tables);
    let depth = draft.rng.pick(&[0, 0, 0, 0, 1, 1, 1, 1, 2, 3]);
    let select = draft.select(depth);
    let tail = draft.tail(&select);
    let with = if draft.ctes.is_empty() {
        String::new()
    } else {
        format!("WITH {} ", draft.ctes.join(", "))
    };
    let query = format!("{with}{}{tail}", select.text);
    (draft.views, query)
}

/// The text over the stream.
pub(super) fn streaming(template: &str) -> String {
    let marks = [
        ("§(", "STREAM("),
        ("§)", ")"),
        ("§[", ""),
        ("§]", ""),
        ("§", "STREAM"),
    ];
    let text = template.to_owned();
    marks
        .iter()
        .fold(text, |text, (mark, word)| text.replace(mark, word))
}

/// The text without `STREAM`.
pub(super) fn finite(template: &str) -> String {
    let mut text = String::new();
    for (place, part) in template.split("§[").enumerate() {
        let said = match part.split_once("§]") {
            Some((_, after)) if place > 0 => after,
            _ => part,
        };
        text.push_str(said);
    }
    ["§(", "§)", "§ "]
        .iter()
        .fold(text, |text, mark| text.replace(mark, ""))
}

impl Trial for EqualTrial {
    fn seed(&self) -> u64 {
        self.seed
    }

    async fn run(&self) -> Checked<()> {
        let session = Session::open(self.partitions).await?;
        let made = self.tables.make(session.context()).await;
        made.map_err(|error| error.to_string())?;
        for setting in self.settings() {
            session.run(&setting).await?;
        }
        let context = session.context();
        let stream = self.answer(context, streaming).await;
        self.tally.add(stream.is_ok());
        if stream.as_ref().is_err_and(|error| refusal(error).is_some()) {
            return Ok(());
        }
        let batch = self.answer(context, finite).await;
        compare(stream, batch)
    }

    fn smaller(&self) -> Vec<Self> {
        let tables = self.tables.smaller().into_iter();
        tables
            .map(|tables| Self {
                tables,
                ..self.clone()
            })
            .collect()
    }

    fn replay(&self) -> String {
        let mut all = vec![format!(
            "SET datafusion.execution.target_partitions = {}",
            self.partitions
        )];
        all.extend(self.tables.statements());
        all.extend(self.settings());
        all.extend(self.views.iter().map(|view| streaming(view)));
        all.push(streaming(&self.query));
        all.extend(self.views.iter().map(|view| finite(view)));
        all.push(finite(&self.query));
        all.join(";\n") + ";\n"
    }
}

/// Compares the answer of a stream with that of the batch query.
fn compare(
    stream: Result<Answer, DataFusionError>,
    batch: Result<Answer, DataFusionError>,
) -> Checked<()> {
    match (stream, batch) {
        (Ok(stream), Ok(batch)) => {
            same("columns", &stream.columns, &batch.columns)?;
            same(
                "rows of the stream and of the batch query",
                &stream.rows,
                &batch.rows,
            )
        }
        // It is no statement, whatever reads it.
        (Err(_), Err(_)) => Ok(()),
        (Ok(_), Err(error)) => Err(format!(
            "only the batch query fails: {}",
            error.strip_backtrace()
        )),
        (Err(error), Ok(_)) => Err(format!(
            "only the stream fails: {}",
            error.strip_backtrace()
        )),
    }
}
