//! What a database costs: a streaming table refreshed in memory and in a database on disk, in turn, over the same
//! Parquet file.
//!
//! ```text
//! cargo bench --bench checkpoints
//! cargo bench --bench checkpoints -- 5000000 8192
//! ```
//!
//! The arguments are rows (5,000,000 unless given; 10,000 a second of event time, 10,000 keys, windows of 10 seconds)
//! and rows of an epoch (1,048,576). Medians of five turns; `speed x` is the time in memory divided by that on disk: 1
//! means that the database costs nothing. Without `--bench`, which cargo passes, it is a smoke run of few rows.

#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::path::Path;
use std::time::{Duration, Instant};

use datafusion::common::{Result, exec_err};
use tidegate::context::StreamContext;

/// Turns that count; one before them does not.
const TURNS: usize = 5;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let rows = numbers
        .next()
        .unwrap_or(if measured { 5_000_000 } else { 20_000 });
    let epoch = numbers
        .next()
        .unwrap_or(if measured { 1_048_576 } else { 4_096 });
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("input.parquet");
    write_input(&file, rows).await?;
    let data = folder.path().join("data");
    let (mut memory, mut disk) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let ctx = StreamContext::new()?;
        let in_memory = refresh(&ctx, &file, epoch, rows).await?;
        let ctx = StreamContext::open(&data).await?;
        let on_disk = refresh(&ctx, &file, epoch, rows).await?;
        if turn > 0 {
            memory.push(in_memory);
            disk.push(on_disk);
        }
        drop(ctx);
        if turn < TURNS {
            std::fs::remove_dir_all(&data)?;
        }
    }
    let epochs = rows.div_ceil(epoch);
    let (memory, disk) = (median(memory), median(disk));
    let each = disk.saturating_sub(memory).as_secs_f64() * 1_000.0 / epochs.max(1) as f64;
    println!(
        "| rows | epochs | in memory s | on disk s | speed x | cost of an epoch ms | bytes on disk |"
    );
    println!("|---|---|---|---|---|---|---|");
    println!(
        "| {rows} | {epochs} | {:.3} | {:.3} | {:.2} | {each:.2} | {} |",
        memory.as_secs_f64(),
        disk.as_secs_f64(),
        memory.as_secs_f64() / disk.as_secs_f64(),
        size(&data)?
    );
    Ok(())
}

/// Rows of ten thousand a second, each up to 30 seconds before the newest.
async fn write_input(file: &Path, rows: u64) -> Result<()> {
    let ctx = StreamContext::new()?;
    let sql = format!(
        "COPY (SELECT to_timestamp_micros(value * 100 - (value * 7919) % 30000000 + 60000000) AS ts, \
         (value * 31) % 10007 AS k, value AS v FROM generate_series(1, {rows}) AS s(value)) TO '{}'",
        file.display()
    );
    ctx.sql(&sql).await?.collect().await?;
    Ok(())
}

/// The time that a REFRESH of all rows takes.
async fn refresh(ctx: &StreamContext, file: &Path, epoch: u64, rows: u64) -> Result<Duration> {
    let source = format!(
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{}'",
        file.display()
    );
    let table = format!(
        "CREATE STREAMING TABLE q WITH (max_rows_per_epoch = '{epoch}') AS \
         SELECT window.start, k, count(*) AS n, sum(v) AS s, min(v) AS least, max(v) AS most FROM STREAM t \
         WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY window(ts, '10 seconds'), k"
    );
    for sql in [
        "SET datafusion.execution.target_partitions = 2",
        &source,
        &table,
    ] {
        ctx.sql(sql).await?.collect().await?;
    }
    let began = Instant::now();
    let epochs = ctx.refresh("q").await?;
    let took = began.elapsed();
    let read: u64 = epochs.iter().map(|epoch| epoch.input_rows).sum();
    match read == rows {
        true => Ok(took),
        false => exec_err!("{read} rows were read, not {rows}"),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Bytes of all files in a folder and below.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => size(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
