//! One run of a query: wall time, CPU time and memory of the process, and what came out.

use std::time::Instant;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::{cast, sum};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::dataframe::DataFrame;
use futures::StreamExt;

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// Seconds.
    pub(crate) wall: f64,
    /// Seconds of all threads, user and system.
    pub(crate) cpu: f64,
    /// Greatest resident memory of the process while it ran, in MiB.
    peak: f64,
    /// Rows that came out.
    pub(crate) output: usize,
    /// Sum of the column `n`.
    pub(crate) counted: i64,
}

/// Plans and runs a query to its end.
pub(crate) async fn sample(planning: impl Future<Output = Result<DataFrame>>) -> Result<Sample> {
    reset_peak();
    let (start, cpu) = (Instant::now(), cpu_seconds()?);
    let mut batches = planning.await?.execute_stream().await?;
    let (mut output, mut counted) = (0, 0);
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        output += batch.num_rows();
        let counts = batch.column_by_name("n");
        let counts = counts.ok_or_else(|| exec_datafusion_err!("no column n"))?;
        let counts = cast(counts, &DataType::Int64)?;
        counted += sum(counts.as_primitive::<Int64Type>()).unwrap_or(0);
    }
    Ok(Sample {
        wall: start.elapsed().as_secs_f64(),
        cpu: cpu_seconds()? - cpu,
        peak: peak_mib()?,
        output,
        counted,
    })
}

/// Time on a core of this process's threads so far, in seconds: `/proc/self/task/*/schedstat` counts in
/// nanoseconds, where `/proc/self/stat` has ticks of ten milliseconds.
fn cpu_seconds() -> Result<f64> {
    let mut nanoseconds = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        // A thread may have ended meanwhile.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next().unwrap_or("0");
        nanoseconds += first.parse::<f64>().unwrap_or(0.0);
    }
    Ok(nanoseconds / 1e9)
}

/// Lets the kernel count the greatest resident memory anew.
fn reset_peak() {
    // Where it is not allowed, the peak is that of the process so far.
    std::fs::write("/proc/self/clear_refs", "5").unwrap_or_default();
}

fn peak_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    Ok(kib.unwrap_or(f64::NAN) / 1024.0)
}

/// The middle value, the upper of two.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Names of the columns that [`report`] prints.
pub(crate) const HEADER: &str = "query side             rows/s   wall s    CPU s peak MiB \
  wall x   CPU x   late rows  output rows";

/// Medians of one side of a query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Medians {
    wall: f64,
    cpu: f64,
}

/// Prints a line: medians, and what they are divided by those of the `yardstick`.
pub(crate) fn report(
    query: &str,
    side: &str,
    rows: usize,
    samples: &[Sample],
    late: usize,
    yardstick: Option<Medians>,
) -> Medians {
    let wall = median(samples.iter().map(|sample| sample.wall));
    let cpu = median(samples.iter().map(|sample| sample.cpu));
    let peak = samples.iter().map(|sample| sample.peak).fold(0.0, f64::max);
    let output = samples.first().map_or(0, |sample| sample.output);
    let ratio = |of: fn(&Medians) -> f64, ours: f64| match &yardstick {
        Some(other) => format!("{:.2}", ours / of(other)),
        None => String::new(),
    };
    println!(
        "{query:5} {side:10} {:>12.0} {wall:>8.3} {cpu:>8.3} {peak:>8.0} {:>7} {:>7} {late:>11} {output:>12}",
        rows as f64 / wall,
        ratio(|other| other.wall, wall),
        ratio(|other| other.cpu, cpu),
    );
    Medians { wall, cpu }
}
