//! What small epochs cost, beside whatever is open: time of an epoch, memory of a group, time to a result.
//!
//! ```text
//! cargo bench --bench epochs
//! cargo bench --bench epochs -- latency
//! ```
//!
//! Names behind `--` choose measurements: `one_row`, `update`, `memory`, `latency`; all if none is given.
//! Two partitions. Each checks what came out. Without `--bench`, which cargo passes, it is a smoke run.

#![allow(
    clippy::print_stdout,
    reason = "a program that prints what it has measured"
)]

mod feed;
mod latency;

use datafusion::common::{Result, exec_err};
use tidegate::query::EpochProgress;

use feed::{Feed, SECOND};

/// Sizes of a full run and of a smoke run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    epochs: usize,
    /// Everything else is divided by this.
    smaller: usize,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let full = arguments.iter().any(|one| one == "--bench");
    let names: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|one| !one.starts_with("--"))
        .collect();
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    let scale = match full {
        true => Scale {
            epochs: 1_000,
            smaller: 1,
        },
        false => Scale {
            epochs: 10,
            smaller: 1_000,
        },
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        if wanted("one_row") {
            one_row(scale).await?;
        }
        if wanted("update") {
            update(scale).await?;
        }
        if wanted("memory") {
            memory(scale).await?;
        }
        if wanted("latency") {
            latency::latency(scale.smaller).await?;
        }
        Ok(())
    })
}

/// Median duration of some epochs, in microseconds.
fn median(records: &[EpochProgress]) -> f64 {
    let mut times: Vec<f64> = records
        .iter()
        .map(|record| record.duration.as_secs_f64() * 1e6)
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn check(what: &str, actual: u64, expected: usize) -> Result<()> {
    if actual == expected as u64 {
        return Ok(());
    }
    exec_err!("{what}: {actual}, not {expected}")
}

const AGGREGATES: &str = "count(*) AS n, sum(v) AS s, avg(v) AS a, min(v) AS least, max(v) AS most";

/// An epoch of one row: with nothing else open, beside open groups that it does not touch, and beside many
/// rows in open windows.
async fn one_row(scale: Scale) -> Result<()> {
    let cases = [
        ("nothing else open", 0, 0),
        ("100,000 groups open", 100_000, 1),
        ("10,000,000 rows in 1,000 groups open", 1_000, 10_000),
    ];
    for (name, groups, rows_each) in cases {
        let (groups, rows_each) = (groups / scale.smaller, rows_each.max(1));
        let feed = Feed::new("append", AGGREGATES).await?;
        if groups > 0 {
            for _ in 0..rows_each {
                feed.groups(groups).await?;
            }
            feed.refresh().await?;
        }
        for _ in 0..scale.epochs {
            feed.row(5 * SECOND).await?;
        }
        let records = feed.refresh().await?;
        let open = records.last().map_or(0, |record| record.open_rows);
        check("epochs", records.len() as u64, scale.epochs)?;
        check("open rows", open, scale.epochs + groups * rows_each)?;
        println!(
            "epoch of one row, {name}: {:.0} microseconds, median",
            median(&records)
        );
    }
    let feed = Feed::new("append", AGGREGATES).await?;
    let mut apart = Vec::new();
    for _ in 0..scale.epochs {
        feed.row(5 * SECOND).await?;
        let begin = std::time::Instant::now();
        feed.refresh().await?;
        apart.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    apart.sort_by(f64::total_cmp);
    let middle = apart.get(apart.len() / 2).copied().unwrap_or(f64::NAN);
    println!("a REFRESH of one row: {middle:.0} microseconds, median");
    Ok(())
}

/// Update mode: a thousand groups touched in an epoch, of more and more that are open.
async fn update(scale: Scale) -> Result<()> {
    let touched = 1_000 / scale.smaller.min(100);
    let mut first = None;
    for groups in [100_000, 1_000_000] {
        let groups = (groups / scale.smaller).max(touched);
        let feed = Feed::new("update", AGGREGATES).await?;
        feed.groups(groups).await?;
        feed.refresh().await?;
        let epochs = (scale.epochs / 5).max(2);
        for _ in 0..epochs {
            feed.groups(touched).await?;
        }
        let records = feed.refresh().await?;
        for record in &records {
            check("rows of an update", record.output_rows, touched)?;
        }
        let time = median(&records);
        println!(
            "update of {touched} groups of {groups}: {time:.0} microseconds, median ({:.2} x)",
            time / *first.get_or_insert(time)
        );
    }
    one_updated(scale).await
}

/// Update mode: one group touched in an epoch, of many that the result has. The time is that of a refresh, for an
/// epoch's record ends before its rows are in the result.
async fn one_updated(scale: Scale) -> Result<()> {
    let groups = 100_000 / scale.smaller;
    let feed = Feed::new("update", AGGREGATES).await?;
    feed.groups(groups).await?;
    feed.refresh().await?;
    for epoch in 0..scale.epochs {
        feed.group((epoch * 7_919 % groups) as i64).await?;
    }
    let begin = std::time::Instant::now();
    let records = feed.refresh().await?;
    let time = begin.elapsed().as_secs_f64() * 1e6 / scale.epochs as f64;
    check("epochs", records.len() as u64, scale.epochs)?;
    println!("update of one group of {groups}: {time:.0} microseconds an epoch, with the result");
    Ok(())
}

/// Bytes of a group: key, five aggregates.
async fn memory(scale: Scale) -> Result<()> {
    let groups = 1_000_000 / scale.smaller;
    let feed = Feed::new("append", AGGREGATES).await?;
    feed.groups(groups).await?;
    let records = feed.refresh().await?;
    let Some(record) = records.last() else {
        return exec_err!("no epoch");
    };
    check("open groups", record.open_groups, groups)?;
    println!(
        "{groups} open groups: {:.0} bytes each",
        record.state_bytes as f64 / groups as f64
    );
    Ok(())
}
