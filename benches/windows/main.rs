//! Windowed aggregation of a stream beside DataFusion's own batch aggregation of the same rows.
//!
//! Both run in one process, in turn, several times; a first turn of each is not counted. Every answer
//! is checked against counts made while the rows were generated.
//!
//! ```text
//! cargo bench --bench windows
//! cargo bench --bench windows -- --input memory --only Q1,Q2 --epoch-rows 8192
//! ```
//!
//! | argument | what it is | default |
//! |---|---|---|
//! | `--input` | `parquet`, `memory`, `csv` or `json` | `parquet` |
//! | `--only` | queries of `queries.rs`, with commas | Q1,Q2,Q3,Q4 |
//! | `--side` | `tidegate` or `datafusion` alone | both, in turn |
//! | `--rows`, `--rate`, `--disorder`, `--stragglers`, `--keys`, `--users`, `--seed` | the rows: number, a second of event time, seconds, share, … | 5000000, 10000, 30, 0.001, 10000, 100000, 42 |
//! | `--epoch-rows`, `--partitions`, `--reps` | epochs of so many rows, partitions of both sides, turns | 1048576, 2, 5 |
//!
//! Rows a second and seconds of wall and CPU time are medians, the peak is the greatest; `wall x` and `CPU x`
//! are our median divided by DataFusion's: less than 1 is faster than the batch. A peak is the whole
//! process's, what the other side left with the allocator included: `--side` measures one alone. Without
//! `--bench`, which cargo passes, it is a smoke run of few rows.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::panic,
    reason = "a program that prints a table and stops at the first surprise"
)]

mod arguments;
mod input;
mod measure;
mod queries;
mod workload;

use datafusion::common::{Result, exec_err};
use datafusion::prelude::SessionContext;
use tidegate::context::StreamContext;

use arguments::{Arguments, Side};
use measure::{HEADER, report, sample};
use queries::{QUERIES, Query};
use workload::Expected;

fn main() -> Result<()> {
    let arguments = Arguments::read();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.partitions)
        .enable_all()
        .build()?;
    runtime.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> Result<()> {
    let queries: Vec<&Query> = QUERIES.iter().filter(|one| arguments.wants(one)).collect();
    let expected = |query: &&Query| Expected::new(query.windows, arguments.epoch_rows);
    let mut expected: Vec<Expected> = queries.iter().map(expected).collect();
    // DataFusion alone has nothing of ours in it.
    let (stream, batch) = (StreamContext::new()?, SessionContext::new());
    let partitions = arguments.partitions;
    let partitions = format!("SET datafusion.execution.target_partitions = {partitions}");
    let epoch = format!("SET tidegate.max_rows_per_epoch = {}", arguments.epoch_rows);
    stream.sql(&partitions).await?.collect().await?;
    stream.sql(&epoch).await?.collect().await?;
    batch.sql(&partitions).await?.collect().await?;
    let folder = tempfile::tempdir()?;
    let (input, workload) = (arguments.input, &arguments.workload);
    input::make(
        input,
        workload,
        folder.path(),
        &mut expected,
        &stream,
        &batch,
    )
    .await?;
    println!(
        "{} rows, input {input:?}, epochs of {} rows, {} partitions\n{HEADER}",
        workload.rows, arguments.epoch_rows, arguments.partitions
    );
    for (query, expected) in queries.into_iter().zip(&expected) {
        compare(query, &stream, &batch, expected, arguments).await?;
    }
    Ok(())
}

/// Runs both sides of a query in turn, checks their answers and prints a line for each.
async fn compare(
    query: &Query,
    stream: &StreamContext,
    batch: &SessionContext,
    expected: &Expected,
    arguments: &Arguments,
) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..=arguments.reps {
        if arguments.side != Some(Side::DataFusion) {
            let one = sample(stream.sql(query.streaming)).await?;
            agree(query.name, one.counted, expected.in_stream)?;
            ours.extend((turn > 0).then_some(one));
        }
        if arguments.side != Some(Side::Tidegate) {
            let other = sample(batch.sql(query.batch)).await?;
            agree(query.name, other.counted, expected.in_batch)?;
            theirs.extend((turn > 0).then_some(other));
        }
    }
    let rows = arguments.workload.rows;
    let yardstick =
        (!theirs.is_empty()).then(|| report(query.name, "datafusion", rows, &theirs, 0, None));
    if !ours.is_empty() {
        report(
            query.name,
            "tidegate",
            rows,
            &ours,
            expected.late,
            yardstick,
        );
    }
    Ok(())
}

/// The sum of a result's counts must be the one known from the data.
fn agree(query: &str, actual: i64, expected: i64) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    exec_err!("{query}: counts sum to {actual}, not to {expected}")
}
