//! History in any order of files or rows, read in the order of event time: no row is late, none is read twice or left
//! out, no epoch has more rows than it may, and a restart between any two epochs changes nothing.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::catalog::MemTable;
use tidegate::query::EpochProgress;

use super::history::{FLIGHTS, Format, copy_after, flights, scatter, set_modified};
use super::*;

/// Departures an hour and an airport, over a relation.
fn hourly(relation: &str) -> String {
    format!(
        "SELECT window.start AS hour, origin, count(*) AS flights, sum(dep_delay) AS delay \
         FROM {relation} GROUP BY window(dep_ts, '1 hour'), origin"
    )
}

/// The external table `flights` over a directory.
async fn external(ctx: &StreamContext, dir: &Path, format: Format) {
    run(
        ctx,
        &format!(
            "CREATE EXTERNAL TABLE flights (seq BIGINT, batch BIGINT, carrier VARCHAR, origin VARCHAR, \
             dest VARCHAR, dep_delay BIGINT, sched_utc TIMESTAMP(6), dep_ts TIMESTAMP(6), arrived TIMESTAMP(6)) \
             STORED AS {} LOCATION '{}/'",
            format.stored(),
            dir.display()
        ),
    )
    .await;
}

/// The streaming table `q` over them.
async fn query(ctx: &StreamContext, order: &str, rows: usize, delay: &str) {
    let select = hourly(&format!(
        "STREAM flights WATERMARK dep_ts DELAY OF INTERVAL {delay}"
    ));
    let options = format!(
        "initial_order = '{order}', max_rows_per_epoch = '{rows}', checkpoints_kept = '1000'"
    );
    run(
        ctx,
        &format!("CREATE STREAMING TABLE q WITH ({options}) AS {select}"),
    )
    .await;
}

fn late(epochs: &[EpochProgress]) -> u64 {
    epochs.iter().map(|epoch| epoch.late_rows).sum()
}

fn input(epochs: &[EpochProgress]) -> u64 {
    epochs.iter().map(|epoch| epoch.input_rows).sum()
}

/// The windows of the batch query that a watermark has closed.
async fn closed(ctx: &StreamContext, watermark: &str) -> Vec<String> {
    let batch = hourly("flights");
    run(
        ctx,
        &format!(
            "SELECT * FROM ({batch}) WHERE hour + INTERVAL '1 hour' <= TIMESTAMP '{watermark}'"
        ),
    )
    .await
}

#[tokio::test]
async fn a_month_in_365_shuffled_files_drops_nothing_and_is_the_batch_answer() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("flights");
    scatter(&files, &flights().await, 365, Format::Parquet, 7);
    for (order, delay) in [
        ("arrival", "4 HOURS"),
        ("event_time", "4 HOURS"),
        ("event_time", "0 HOURS"),
    ] {
        let ctx = StreamContext::new().unwrap();
        external(&ctx, &files, Format::Parquet).await;
        query(&ctx, order, 1_000, delay).await;
        let epochs = ctx.refresh("q").await.unwrap();
        assert_eq!(input(&epochs), 26_675, "{order}");
        let most = epochs.iter().map(|epoch| epoch.input_rows).max();
        assert!(most <= Some(1_000), "{most:?}");
        if order == "arrival" {
            assert_eq!(late(&epochs), 24_526);
            continue;
        }
        assert_eq!(late(&epochs), 0);
        // No stretch is much smaller than it may be.
        assert!(epochs.len() <= 32, "{}", epochs.len());
        let nulls: u64 = epochs.iter().map(|epoch| epoch.null_rows).sum();
        assert_eq!(nulls, 510);
        let watermark = epochs.last().unwrap().watermark.clone().unwrap();
        let rows = run(&ctx, "SELECT * FROM q").await;
        assert!(rows.len() > 1_700, "{}", rows.len());
        assert_eq!(rows, closed(&ctx, &watermark).await);
    }
}

#[tokio::test]
async fn a_select_over_the_files_is_the_batch_answer_in_every_format() {
    let rows = flights().await;
    for format in [Format::Parquet, Format::Csv, Format::CsvGz, Format::Json] {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().join("flights");
        scatter(&files, &rows, 31, format, 11);
        let ctx = StreamContext::new().unwrap();
        external(&ctx, &files, format).await;
        let stream = hourly(
            "STREAM flights WITH (initial_order = 'event_time', max_rows_per_epoch = '5000') \
             WATERMARK dep_ts DELAY OF INTERVAL 0 SECONDS",
        );
        let answer = run(&ctx, &stream).await;
        assert_eq!(answer.len(), 1_744, "{format:?}");
        // DataFusion alone does not read a directory of packed files.
        run(
            &ctx,
            &format!("CREATE EXTERNAL TABLE file STORED AS PARQUET LOCATION '{FLIGHTS}'"),
        )
        .await;
        assert_eq!(answer, run(&ctx, &hourly("file")).await, "{format:?}");
    }
}

#[tokio::test]
async fn of_one_file_with_many_row_groups_each_row_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("flights");
    scatter(&files, &flights().await, 1, Format::Parquet, 12);
    for pushed_down in [false, true] {
        let ctx = StreamContext::new().unwrap();
        external(&ctx, &files, Format::Parquet).await;
        let setting = "datafusion.execution.parquet.pushdown_filters";
        run(&ctx, &format!("SET {setting} = {pushed_down}")).await;
        query(&ctx, "event_time", 1_000, "0 SECONDS").await;
        let epochs = ctx.refresh("q").await.unwrap();
        assert_eq!((input(&epochs), late(&epochs)), (26_675, 0));
        let watermark = epochs.last().unwrap().watermark.clone().unwrap();
        let rows = run(&ctx, "SELECT * FROM q").await;
        assert_eq!(rows, closed(&ctx, &watermark).await);
    }
}

#[tokio::test]
async fn hopping_windows_sessions_and_first_rows_lose_nothing_without_any_delay() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("flights");
    scatter(&files, &flights().await, 62, Format::Parquet, 13);
    let ctx = StreamContext::new().unwrap();
    external(&ctx, &files, Format::Parquet).await;
    let stream = "STREAM flights WATERMARK dep_ts DELAY OF INTERVAL 0 SECONDS";
    let queries = [
        format!(
            "SELECT window.start, count(*) AS n FROM {stream} GROUP BY window(dep_ts, '3 hours', '1 hour')"
        ),
        format!(
            "SELECT session_window.start, carrier, count(*) AS n FROM {stream} GROUP BY session_window(dep_ts, '20 minutes'), carrier"
        ),
        format!("SELECT dep_ts, count(*) AS n FROM {stream} GROUP BY dep_ts"),
        format!("SELECT DISTINCT ON (carrier, dep_ts) carrier, dep_ts FROM {stream}"),
    ];
    for (at, query) in queries.iter().enumerate() {
        run(
            &ctx,
            &format!("CREATE STREAMING TABLE s{at} WITH (initial_order = 'event_time', max_rows_per_epoch = '997') AS {query}"),
        )
        .await;
        let epochs = ctx.refresh(&format!("s{at}")).await.unwrap();
        assert_eq!((input(&epochs), late(&epochs)), (26_675, 0), "{query}");
        assert!(epochs.len() >= 27);
    }
}

#[tokio::test]
async fn a_restart_between_any_two_epochs_changes_nothing() {
    let rows = flights().await;
    for format in [Format::Parquet, Format::Csv] {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().join("flights");
        scatter(&files, &rows, 31, format, 17);
        let whole = dir.path().join("whole");
        let ctx = open(&whole).await;
        external(&ctx, &files, format).await;
        query(&ctx, "event_time", 3_000, "4 HOURS").await;
        let epochs = ctx.refresh("q").await.unwrap();
        let expected = run(&ctx, "SELECT * FROM q").await;
        assert_eq!(input(&epochs), 26_675);
        drop(ctx);
        for after in 0..epochs.len() {
            let cut = dir.path().join(format!("after{after}"));
            copy_after(&whole, &cut, after as u64);
            let ctx = open_with(&cut, 1 + after % 4).await;
            let rest = ctx.refresh("q").await.unwrap();
            let before = input(epochs.get(..after).unwrap());
            assert_eq!(before + input(&rest), 26_675, "after {after}");
            assert_eq!(late(&rest), 0, "after {after}");
            assert_eq!(
                run(&ctx, "SELECT * FROM q").await,
                expected,
                "after {after}"
            );
        }
    }
}

#[tokio::test]
async fn rows_of_a_table_are_read_in_order_too_and_a_restart_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let ctx = open(&whole).await;
    run(
        &ctx,
        &format!("CREATE EXTERNAL TABLE file STORED AS PARQUET LOCATION '{FLIGHTS}'"),
    )
    .await;
    run(
        &ctx,
        "CREATE TABLE flights AS SELECT * FROM file ORDER BY seq * 7919 % 26681",
    )
    .await;
    query(&ctx, "event_time", 3_000, "4 HOURS").await;
    let epochs = ctx.refresh("q").await.unwrap();
    assert_eq!((input(&epochs), late(&epochs)), (26_675, 0));
    let expected = run(&ctx, "SELECT * FROM q").await;
    let watermark = epochs.last().unwrap().watermark.clone().unwrap();
    assert_eq!(expected, closed(&ctx, &watermark).await);
    // What is inserted behind is read by arrival: these are late.
    run(
        &ctx,
        "INSERT INTO flights SELECT * FROM file WHERE dep_ts < TIMESTAMP '2013-01-02' LIMIT 5",
    )
    .await;
    let behind = ctx.refresh("q").await.unwrap();
    assert_eq!((input(&behind), late(&behind)), (5, 5));
    drop(ctx);
    for after in [0, 1, 4, epochs.len() - 1] {
        let cut = dir.path().join(format!("after{after}"));
        copy_after(&whole, &cut, after as u64);
        let ctx = open_with(&cut, 1 + after % 3).await;
        let rest = ctx.refresh("q").await.unwrap();
        let before = input(epochs.get(..after).unwrap());
        assert_eq!(before + input(&rest), 26_680, "after {after}");
        // With no epoch committed the rows are taken anew, the five with them.
        let expected_late = if after == 0 { 0 } else { 5 };
        assert_eq!(late(&rest), expected_late, "after {after}");
        if after > 0 {
            assert_eq!(
                run(&ctx, "SELECT * FROM q").await,
                expected,
                "after {after}"
            );
        }
    }
}

/// Files of two rows each, the later ones with earlier minutes; a database that has read two of the four minutes.
async fn begun(dir: &Path) -> PathBuf {
    let files = dir.join("files");
    fs::create_dir_all(&files).unwrap();
    for (file, minutes) in [("a", [3, 2]), ("b", [2, 1]), ("c", [0, 0]), ("d", [1, 3])] {
        write_minutes(&files, file, &minutes);
    }
    let whole = dir.join("whole");
    let ctx = open(&whole).await;
    run(
        &ctx,
        &format!(
            "CREATE EXTERNAL TABLE t (ts TIMESTAMP, v BIGINT) STORED AS JSON LOCATION '{}/'",
            files.display()
        ),
    )
    .await;
    run(
        &ctx,
        "CREATE STREAMING TABLE q WITH (initial_order = 'event_time', max_rows_per_epoch = '2', checkpoints_kept = '10') \
         AS SELECT window.start, count(*) AS n FROM STREAM t WATERMARK ts DELAY OF INTERVAL 0 SECONDS \
         GROUP BY window(ts, '1 minute')",
    )
    .await;
    let epochs = ctx.refresh("q").await.unwrap();
    let rows: Vec<u64> = epochs.iter().map(|epoch| epoch.input_rows).collect();
    assert_eq!(rows, [2, 2, 2, 2]);
    assert_eq!(late(&epochs), 0);
    drop(ctx);
    let cut = dir.join("cut");
    copy_after(&whole, &cut, 2);
    cut
}

fn write_minutes(dir: &Path, file: &str, minutes: &[u32]) {
    let line = |minute: &u32| format!("{{\"ts\":\"2026-03-02T10:{minute:02}:00\",\"v\":1}}\n");
    let text: String = minutes.iter().map(line).collect();
    let path = dir.join(format!("{file}.json"));
    fs::write(&path, text).unwrap();
    set_modified(&path, 1);
}

#[tokio::test]
async fn files_that_arrive_meanwhile_wait_and_are_read_by_arrival() {
    let dir = tempfile::tempdir().unwrap();
    let cut = begun(dir.path()).await;
    // The new one is of a minute that has not been read, and would be the oldest file.
    write_minutes(&dir.path().join("files"), "0", &[2, 7]);
    let ctx = open(&cut).await;
    let waiting = run(&ctx, "EXPLAIN STREAMING TABLE q").await;
    assert!(
        waiting.iter().any(|line| line.contains("4 files")),
        "{waiting:?}"
    );
    let epochs = ctx.refresh("q").await.unwrap();
    let rows: Vec<u64> = epochs.iter().map(|epoch| epoch.input_rows).collect();
    assert_eq!(rows, [2, 2, 2]);
    let lost: Vec<u64> = epochs.iter().map(|epoch| epoch.late_rows).collect();
    assert_eq!(lost, [0, 0, 1]);
    let closed = [
        "2026-03-02T10:00:00 2",
        "2026-03-02T10:01:00 2",
        "2026-03-02T10:02:00 2",
        "2026-03-02T10:03:00 2",
    ];
    assert_eq!(run(&ctx, "SELECT * FROM q").await, closed);
}

#[tokio::test]
async fn a_file_that_is_needed_must_be_what_it_was_and_one_that_was_read_need_not_be() {
    let dir = tempfile::tempdir().unwrap();
    let cut = begun(dir.path()).await;
    let files = dir.path().join("files");
    fs::remove_file(files.join("c.json")).unwrap();
    fs::rename(files.join("b.json"), files.join("b.away")).unwrap();
    let ctx = open(&cut).await;
    let error = ctx.refresh("q").await.unwrap_err().to_string();
    assert!(error.contains("[SOURCE_FILE_GONE]"), "{error}");
    fs::rename(files.join("b.away"), files.join("b.json")).unwrap();
    set_modified(&files.join("b.json"), 9);
    let error = ctx.refresh("q").await.unwrap_err().to_string();
    assert!(
        error.contains("[SOURCE_FILE_CHANGED]") && error.contains("b.json"),
        "{error}"
    );
    set_modified(&files.join("b.json"), 1);
    let epochs = ctx.refresh("q").await.unwrap();
    assert_eq!((input(&epochs), late(&epochs)), (4, 0));
    assert_eq!(run(&ctx, "SELECT * FROM q").await.len(), 3);
}

#[tokio::test]
async fn what_was_begun_by_one_event_time_goes_on_by_it_and_not_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let cut = begun(dir.path()).await;
    let ctx = open(&cut).await;
    let create = |with: &str, time: &str| {
        format!(
            "CREATE OR REFRESH STREAMING TABLE q {with} AS SELECT window.start, count(*) AS n \
             FROM STREAM t WATERMARK {time} DELAY OF INTERVAL 0 SECONDS GROUP BY window(ts, '1 minute')"
        )
    };
    let other = refused(&ctx, &create("", "date_trunc('hour', ts) AS hour")).await;
    assert!(other.contains('['), "{other}");
    // Without the option: the first rows were begun in the order of event time, and none is lost.
    run(&ctx, &create("WITH (max_rows_per_epoch = '2')", "ts")).await;
    let rows = run(
        &ctx,
        "SELECT sum(late_rows), sum(input_rows) FROM progress('q')",
    )
    .await;
    assert_eq!(rows, ["0 8"]);
}

#[tokio::test]
async fn a_table_of_the_application_has_its_own_order() {
    let rows = flights().await;
    let table = MemTable::try_new(rows.schema(), vec![vec![rows]]).unwrap();
    let ctx = StreamContext::new().unwrap();
    let session = ctx.session();
    session.register_table("outside", Arc::new(table)).unwrap();
    let select = "FROM STREAM outside WATERMARK dep_ts DELAY OF INTERVAL 0 SECONDS \
                  GROUP BY window(dep_ts, '1 hour')";
    let create = format!(
        "CREATE STREAMING TABLE q WITH (initial_order = 'event_time') AS SELECT count(*) AS n {select}"
    );
    let error = refused(&ctx, &create).await;
    assert!(error.contains("[UNSUPPORTED_INITIAL_ORDER]"), "{error}");
    run(&ctx, "SET tidegate.initial_order = 'event_time'").await;
    let error = refused(&ctx, &format!("SELECT count(*) AS n {select}")).await;
    assert!(error.contains("table of the application"), "{error}");
}
