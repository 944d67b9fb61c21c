//! A year of real flights, in the order in which they were reported, against every row that must come out.
//!
//! The files are too large to keep here. The test runs when the environment variable `TIDEGATE_NYC_DIR` names a folder
//! with `nyc_flights_arrivals.parquet`, `nyc_expected_6h.csv` and `nyc_expected_4h.csv`, and otherwise says that it
//! did not. `main/nyc_january.slt` runs the first month of the same data always.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::path::{Path, PathBuf};

use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::Result;
use tidegate::context::StreamContext;
use tidegate::query::EpochProgress;
use tokio::runtime::Builder;

/// Stack of a thread in bytes: planning in a debug build needs more than the two megabytes that are usual.
const STACK: usize = 8 << 20;
/// Epochs of the year: the hours in which something was reported.
const EPOCHS: usize = 8_250;
/// Flights without a departure, which were cancelled.
const CANCELLED: u64 = 8_255;

/// What a delay leads to, over the whole year.
struct Totals {
    hours: u32,
    groups: i64,
    rows: i64,
    minutes: i64,
    late: u64,
    open_windows: u64,
    open_rows: u64,
}

#[test]
fn a_delay_of_six_hours_loses_seven_hundred_flights() {
    run(Totals {
        hours: 6,
        groups: 21_089,
        rows: 327_685,
        minutes: 4_144_197,
        late: 700,
        open_windows: 7,
        open_rows: 136,
    });
}

#[test]
fn a_delay_of_four_hours_loses_one_flight_in_eighteen() {
    run(Totals {
        hours: 4,
        groups: 21_093,
        rows: 310_188,
        minutes: 4_036_852,
        late: 18_277,
        open_windows: 5,
        open_rows: 56,
    });
}

#[test]
fn what_delays_lose_is_known_before_they_are_run() {
    on_the_year(|folder| async move { predict(&folder).await });
}

#[test]
fn every_flight_that_a_delay_loses_is_kept_and_explained() {
    on_the_year(|folder| async move {
        for (hours, late, open) in [
            (2, 65_084, 14),
            (4, 18_277, 56),
            (6, 700, 136),
            (12, 0, 435),
        ] {
            explain(&folder, hours, late, open).await?;
        }
        Ok(())
    });
}

/// Runs the year with one delay, if its files are there.
fn run(totals: Totals) {
    on_the_year(|folder| async move { check(&folder, &totals).await });
}

/// Runs a test of the year, if its files are there.
fn on_the_year<F, T>(test: F)
where
    F: FnOnce(PathBuf) -> T,
    T: Future<Output = Result<()>> + Send + 'static,
{
    let Some(folder) = std::env::var_os("TIDEGATE_NYC_DIR").map(PathBuf::from) else {
        eprintln!("skipped: TIDEGATE_NYC_DIR does not name the folder of the flights");
        return;
    };
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()
        .expect("a runtime starts");
    let year = runtime.spawn(test(folder));
    runtime
        .block_on(year)
        .expect("the year ends")
        .expect("every statement runs");
}

async fn check(folder: &Path, totals: &Totals) -> Result<()> {
    let context = StreamContext::new()?;
    define(&context, folder, totals.hours).await?;
    let epochs = context.refresh("hourly").await?;

    let sums = "SELECT count(*), sum(flights), sum(delay) FROM hourly";
    assert_eq!(
        numbers(&context, sums).await?,
        [[totals.groups, totals.rows, totals.minutes]],
        "groups, flights in them, minutes of delay"
    );
    for (left, right) in [("hourly", "expected"), ("expected", "hourly")] {
        let sql = format!(
            "SELECT count(*) FROM (SELECT hour, origin, flights, delay FROM {left}
             EXCEPT SELECT hour, origin, flights, delay FROM {right})"
        );
        let missing = numbers(&context, &sql).await?;
        assert_eq!(missing, [[0]], "rows in {left} that are not in {right}");
    }
    check_epochs(&context, &epochs).await?;

    assert_eq!(epochs.iter().map(|e| e.late_rows).sum::<u64>(), totals.late);
    assert_eq!(epochs.iter().map(|e| e.null_rows).sum::<u64>(), CANCELLED);
    let last = epochs.last().expect("there are epochs");
    assert_eq!(last.open_windows, totals.open_windows);
    assert_eq!(last.open_rows, totals.open_rows);
    Ok(())
}

/// `out_of_order()` and `lateness()` say of the year what is known of it; what delays of 4 and 6 hours drop is
/// what the other tests count.
async fn predict(folder: &Path) -> Result<()> {
    let context = StreamContext::new()?;
    define(&context, folder, 6).await?;
    let order = "SELECT * FROM out_of_order('flights', 'dep_ts')";
    let expected = "rows null_rows out_of_order_rows out_of_order_percent p50 p90 p99 p999 max rounded_to
        336776 8255 291134 88.6 1 hour 18 minutes 4 hours 21 minutes 5 hours 15 minutes 9 hours 23 minutes
        10 hours 46 minutes 1 microsecond";
    assert_eq!(words(&shown(&context, order).await?), words(expected));
    let lost = "SELECT late_rows, epochs
                FROM lateness('flights', 'dep_ts', '1 hour', 'batch', '2 hours, 4 hours, 6 hours, 12 hours')";
    let epochs = EPOCHS as i64;
    let expected = [65_084, 18_277, 700, 0].map(|late| vec![late, epochs]);
    assert_eq!(numbers(&context, lost).await?, expected);
    Ok(())
}

/// The late flights of a delay are rows of a table, each behind its window by the watermark it names. They and the
/// flights in open windows are all that the audit misses, and a correction leaves the open ones.
async fn explain(folder: &Path, hours: u32, late: i64, open: i64) -> Result<()> {
    let context = StreamContext::new()?;
    let flights = format!(
        "CREATE EXTERNAL TABLE flights STORED AS PARQUET LOCATION '{}/nyc_flights_arrivals.parquet'",
        folder.display()
    );
    let hourly = format!(
        "CREATE STREAMING TABLE hourly WITH (epoch_by = 'batch', late_rows = 'flights_late') AS
         SELECT window.start AS hour, origin, count(*) AS flights, sum(dep_delay) AS delay
         FROM STREAM flights WATERMARK dep_ts DELAY OF INTERVAL {hours} HOURS
         GROUP BY window(dep_ts, '1 hour'), origin"
    );
    for sql in [
        flights.as_str(),
        hourly.as_str(),
        "REFRESH STREAMING TABLE hourly",
    ] {
        context.sql(sql).await?.collect().await?;
    }
    let kept = "SELECT count(*), count(*) FILTER (WHERE _window_end <= _watermark AND _late_by = _watermark - dep_ts
                AND date_trunc('hour', dep_ts) = _window_start) FROM flights_late WHERE _reason = 'late'";
    assert_eq!(
        numbers(&context, kept).await?,
        [[late, late]],
        "{hours} hours"
    );
    let sums = "SELECT sum(difference), sum(late_rows), sum(open_rows), sum(abs(unexplained)), sum(corrected_rows)
                FROM audit('hourly')";
    let before = [[late + open, late, open, 0, 0]];
    assert_eq!(numbers(&context, sums).await?, before, "{hours} hours");
    let correct = "ALTER STREAMING TABLE hourly CORRECT";
    context.sql(correct).await?.collect().await?;
    let after = [[open, 0, open, 0, late]];
    assert_eq!(
        numbers(&context, sums).await?,
        after,
        "{hours} hours, corrected"
    );
    Ok(())
}

/// The answer to a query, as a table.
async fn shown(context: &StreamContext, sql: &str) -> Result<String> {
    let rows = context.sql(sql).await?.collect().await?;
    Ok(pretty_format_batches(&rows)?.to_string())
}

/// The words of a table, without its lines.
fn words(table: &str) -> Vec<&str> {
    let words = table.split([' ', '|', '+', '-', '\n']);
    words.filter(|word| !word.is_empty()).collect()
}

/// Defines the flights, what must come out, and the streaming table.
async fn define(context: &StreamContext, folder: &Path, hours: u32) -> Result<()> {
    let folder = folder.display();
    for sql in [
        format!(
            "CREATE EXTERNAL TABLE flights STORED AS PARQUET
             LOCATION '{folder}/nyc_flights_arrivals.parquet'"
        ),
        format!(
            "CREATE EXTERNAL TABLE raw_expected (batch_no BIGINT, window_start TIMESTAMP(6),
             window_end TIMESTAMP(6), origin VARCHAR, n BIGINT, sum_dep_delay BIGINT)
             STORED AS CSV LOCATION '{folder}/nyc_expected_{hours}h.csv'
             OPTIONS ('format.has_header' 'true')"
        ),
        "CREATE VIEW expected AS SELECT batch_no AS epoch, window_start AS hour, origin,
         n AS flights, sum_dep_delay AS delay FROM raw_expected"
            .to_owned(),
        format!(
            "CREATE STREAMING TABLE hourly WITH (epoch_by = 'batch') AS
             SELECT window.start AS hour, origin, count(*) AS flights, sum(dep_delay) AS delay
             FROM STREAM flights WATERMARK dep_ts DELAY OF INTERVAL {hours} HOURS
             GROUP BY window(dep_ts, '1 hour'), origin"
        ),
    ] {
        context.sql(&sql).await?.collect().await?;
    }
    Ok(())
}

/// Every epoch emitted as many rows as it must, the watermark never went back, and no row was lost: what was accepted
/// so far is in the groups that came out or in open windows.
async fn check_epochs(context: &StreamContext, epochs: &[EpochProgress]) -> Result<()> {
    let by_epoch =
        "SELECT epoch, count(*), sum(flights) FROM expected GROUP BY epoch ORDER BY epoch";
    let mut emitted = vec![(0, 0); EPOCHS];
    for row in numbers(context, by_epoch).await? {
        let epoch = usize::try_from(row[0]).expect("epochs are not negative");
        emitted[epoch] = (row[1].unsigned_abs(), row[2].unsigned_abs());
    }
    assert_eq!(epochs.len(), EPOCHS);
    let (mut accepted, mut released, mut watermark) = (0, 0, None);
    for (number, (epoch, (groups, rows))) in epochs.iter().zip(emitted).enumerate() {
        assert_eq!(epoch.epoch, number as u64);
        assert_eq!(epoch.output_rows, groups, "rows emitted in epoch {number}");
        assert_eq!(epoch.rejected_rows, 0, "rows rejected in epoch {number}");
        accepted += epoch.input_rows - epoch.late_rows - epoch.null_rows;
        released += rows;
        assert_eq!(
            accepted,
            released + epoch.open_rows,
            "rows after epoch {number}"
        );
        assert!(watermark <= epoch.watermark, "watermark of epoch {number}");
        watermark.clone_from(&epoch.watermark);
    }
    Ok(())
}

/// The rows of a query whose columns are whole numbers.
async fn numbers(context: &StreamContext, sql: &str) -> Result<Vec<Vec<i64>>> {
    let mut rows = Vec::new();
    for batch in context.sql(sql).await?.collect().await? {
        let columns: Vec<Int64Array> = batch
            .columns()
            .iter()
            .map(|column| {
                Ok(cast(column, &DataType::Int64)?
                    .as_primitive::<Int64Type>()
                    .clone())
            })
            .collect::<Result<_>>()?;
        rows.extend(
            (0..batch.num_rows()).map(|row| columns.iter().map(|c| c.value(row)).collect()),
        );
    }
    Ok(rows)
}
