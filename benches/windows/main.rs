//! Windowed aggregation of a stream beside DataFusion's own batch aggregation of the same files.
//!
//! Both run in one process, in turn, several times; a first turn of each is not counted. Every answer
//! is checked against counts made while the data was generated. The last line is the fixed cost of an
//! epoch: one row appended and the streaming table refreshed.
//!
//! ```text
//! cargo bench --bench windows
//! cargo bench --bench windows -- --rows 8000000 --reps 5 --epoch-rows 1048576 --partitions 2 --only Q1
//! ```
//!
//! Rows a second and seconds of wall and CPU time are medians; `x` is DataFusion's wall time divided
//! by ours: more than 1 is faster than the batch. Without `--bench`, which cargo passes, it is a
//! smoke run of few rows.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a program that prints a table and stops at the first surprise"
)]

mod generate;
mod measure;
mod queries;

use std::time::Instant;

use datafusion::common::{Result, exec_err};
use datafusion::prelude::SessionContext;
use tidegate::context::StreamContext;

use generate::Events;
use measure::{HEADER, median, report, sample};
use queries::{ONE_ROW, QUERIES, Query};

struct Arguments {
    rows: usize,
    reps: usize,
    epoch_rows: usize,
    partitions: usize,
    one_row_epochs: usize,
    only: Option<String>,
}

impl Arguments {
    fn read() -> Self {
        let texts: Vec<String> = std::env::args().collect();
        let full = texts.iter().any(|text| text == "--bench");
        let value = |name| {
            let place = texts.iter().position(|text| text == name)?;
            Some(texts.get(place + 1).expect("a value").clone())
        };
        let number = |name, bench, smoke| match value(name) {
            Some(text) => text.parse().expect("a number"),
            None if full => bench,
            None => smoke,
        };
        Self {
            rows: number("--rows", 8_000_000, 50_000),
            reps: number("--reps", 5, 1),
            epoch_rows: number("--epoch-rows", 1_048_576, 8_192),
            partitions: number("--partitions", 2, 2),
            one_row_epochs: if full { 1_000 } else { 20 },
            only: value("--only"),
        }
    }

    fn wants(&self, query: &Query) -> bool {
        self.only.as_deref().is_none_or(|only| only == query.name)
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::read();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.partitions)
        .enable_all()
        .build()?;
    runtime.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let events = Events::write(folder.path(), arguments.rows)?;
    let (rows, epoch_rows) = (arguments.rows, arguments.epoch_rows);
    println!("{rows} rows, epochs of {epoch_rows} rows\n{HEADER}");
    // DataFusion alone has nothing of ours in it.
    let (stream, batch) = (StreamContext::new()?, SessionContext::new());
    let partitions = arguments.partitions;
    let partitions = format!("SET datafusion.execution.target_partitions = {partitions}");
    let path = folder.path().display();
    let files = format!("CREATE EXTERNAL TABLE events STORED AS PARQUET LOCATION '{path}/'");
    for statement in [&partitions, &files] {
        stream.sql(statement).await?.collect().await?;
        batch.sql(statement).await?.collect().await?;
    }
    let epoch = format!("SET tidegate.max_rows_per_epoch = {epoch_rows}");
    stream.sql(&epoch).await?.collect().await?;
    for query in QUERIES.iter().filter(|query| arguments.wants(query)) {
        compare(query, &stream, &batch, &events, arguments).await?;
    }
    one_row_epochs(arguments.one_row_epochs).await
}

/// Runs both sides of a query in turn, checks their answers and prints two lines.
async fn compare(
    query: &Query,
    stream: &StreamContext,
    batch: &SessionContext,
    events: &Events,
    arguments: &Arguments,
) -> Result<()> {
    let expected = events.count(query.size, query.slide, arguments.epoch_rows);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..=arguments.reps {
        let one = sample(stream.sql(query.streaming)).await?;
        agree(query.name, one.counted, expected.in_stream)?;
        let other = sample(batch.sql(query.batch)).await?;
        agree(query.name, other.counted, expected.in_batch)?;
        if turn > 0 {
            ours.push(one);
            theirs.push(other);
        }
    }
    let wall = report(query.name, "datafusion", arguments.rows, &theirs, 0, None);
    report(
        query.name,
        "tidegate",
        arguments.rows,
        &ours,
        expected.late,
        Some(wall),
    );
    Ok(())
}

/// The sum of a result's counts must be the one known from the data.
fn agree(query: &str, actual: i64, expected: i64) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    exec_err!("{query}: counts sum to {actual}, not to {expected}")
}

/// Prints the median time of an epoch of one row: each in a refresh of its own, which plans the query
/// anew, and all in one refresh, which plans it once.
async fn one_row_epochs(epochs: usize) -> Result<()> {
    let context = StreamContext::new()?;
    for statement in ONE_ROW {
        context.sql(statement).await?.collect().await?;
    }
    let mut apart = Vec::with_capacity(epochs);
    for epoch in 0..epochs {
        let row = generate::one_row(epoch)?;
        let start = Instant::now();
        context.append("ticks", row).await?;
        context.refresh("per_second").await?;
        apart.push(start.elapsed().as_secs_f64() * 1e6);
    }
    for epoch in epochs..2 * epochs {
        context.append("ticks", generate::one_row(epoch)?).await?;
    }
    let records = context.refresh("per_second").await?;
    let together = records
        .iter()
        .map(|record| record.duration.as_secs_f64() * 1e6)
        .collect();
    println!(
        "epoch of one row: {:.0} microseconds in a refresh of its own, {:.0} in a refresh of {}; medians",
        median(apart),
        median(together),
        records.len(),
    );
    Ok(())
}
