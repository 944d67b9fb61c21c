//! One run of a query: wall time, CPU time of the process, and what came out.

use std::time::Instant;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::{cast, sum};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::dataframe::DataFrame;
use futures::StreamExt;

/// Ticks a second of the times in `/proc`: the same on every Linux that a person meets.
const TICKS: f64 = 100.0;

/// One run.
pub(crate) struct Sample {
    /// Seconds.
    wall: f64,
    /// Seconds of all threads, user and system.
    cpu: f64,
    /// Rows that came out.
    output: usize,
    /// Sum of the column `n`.
    pub(crate) counted: i64,
}

/// Plans and runs a query to its end.
pub(crate) async fn sample(planning: impl Future<Output = Result<DataFrame>>) -> Result<Sample> {
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
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    Ok(Sample {
        wall,
        cpu,
        output,
        counted,
    })
}

/// User and system time of this process so far: fields 14 and 15 of `/proc/self/stat`.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The second field is a name in parentheses that may hold spaces.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    Ok(ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS)
}

/// The middle value, the upper of two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Names of the columns that [`report`] prints.
pub(crate) const HEADER: &str =
    "query side             rows/s   wall s    CPU s      x   late rows  output rows";

/// Prints a line and gives the median wall time; `x` is `yardstick` divided by it.
pub(crate) fn report(
    query: &str,
    side: &str,
    rows: usize,
    samples: &[Sample],
    late: usize,
    yardstick: Option<f64>,
) -> f64 {
    let wall = median(samples.iter().map(|sample| sample.wall).collect());
    let cpu = median(samples.iter().map(|sample| sample.cpu).collect());
    let (speed, ratio) = (rows as f64 / wall, yardstick.unwrap_or(wall) / wall);
    let output = samples.first().map_or(0, |sample| sample.output);
    println!(
        "{query:5} {side:10} {speed:>12.0} {wall:>8.3} {cpu:>8.2} {ratio:>6.2} {late:>11} {output:>12}"
    );
    wall
}
