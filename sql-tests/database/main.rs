//! A database on disk: what is there when it is opened again, and what is refused.
//!
//! | file | what |
//! |---|---|
//! | `reopened` | tables, views and streaming tables are as they were left; one process at a time |
//! | `restarts` | faults that people met elsewhere: a watermark, open windows or files that a restart forgets |
//! | `changed` | another query, another source or a damaged file under the kept state |
//! | `ordered` | what is there first is read in the order of event time, over restarts anywhere |
//! | `sinks` | directories and sinks of the application: each row once |
//! | `retained` | rows that are old go, when all who read them have passed them |
//! | `in_flight` | an epoch is written while the next one reads, and handed on when it is |
//! | `clocks` | guards, idle inputs and event time without rows behind a restart |
//! | `history` | files in any order, for `ordered` |
//! | `golden` | a database that was written by an earlier build is read |
//!
//! Every suite is run over restarts too (`suites.rs`), and the crashes are in `crash` and `kill`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod changed;
mod clocks;
mod golden;
#[path = "../support/hands.rs"]
mod hands;
mod history;
mod in_flight;
mod ordered;
mod reopened;
mod restarts;
mod retained;
mod sinks;
#[path = "../support/splitmix.rs"]
mod splitmix;

use std::path::Path;

use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::{SessionConfig, SessionContext};
use tidegate::prelude::*;

/// The database in a folder, with so many partitions.
async fn open_with(dir: &Path, partitions: usize) -> StreamContext {
    let config = SessionConfig::new()
        .with_information_schema(true)
        .with_target_partitions(partitions);
    let session = SessionContext::new_with_config(config);
    let ctx = StreamContext::open_over(session, dir).await.unwrap();
    let unopened = ctx.unopened();
    assert!(unopened.is_empty(), "{unopened:?}");
    ctx
}

async fn open(dir: &Path) -> StreamContext {
    open_with(dir, 2).await
}

/// Runs a statement; its rows as text, one line each, sorted.
async fn run(ctx: &StreamContext, sql: &str) -> Vec<String> {
    attempt(ctx, sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Runs a statement that must fail; its error.
async fn refused(ctx: &StreamContext, sql: &str) -> String {
    match attempt(ctx, sql).await {
        Ok(rows) => panic!("{sql}: {rows:?}"),
        Err(error) => error,
    }
}

async fn attempt(ctx: &StreamContext, sql: &str) -> Result<Vec<String>, String> {
    let frame = ctx.sql(sql).await.map_err(|error| error.to_string())?;
    let batches = frame.collect().await.map_err(|error| error.to_string())?;
    let options = FormatOptions::new().with_null("NULL");
    let mut lines = Vec::new();
    for batch in &batches {
        let columns = batch.columns().iter();
        let columns: Vec<ArrayFormatter<'_>> = columns
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
            .collect();
        lines.extend((0..batch.num_rows()).map(|row| {
            let cells: Vec<String> = columns
                .iter()
                .map(|one| one.value(row).to_string())
                .collect();
            cells.join(" ")
        }));
    }
    lines.sort();
    Ok(lines)
}

/// The only row of a REFRESH: late rows, output rows and watermark.
async fn refresh(ctx: &StreamContext, name: &str) -> (u64, u64, String) {
    let epochs = ctx.refresh(name).await.unwrap();
    let [epoch] = epochs.as_slice() else {
        panic!("one epoch, not {epochs:?}");
    };
    let watermark = epoch.watermark.clone().unwrap_or_default();
    (epoch.late_rows, epoch.output_rows, watermark)
}
