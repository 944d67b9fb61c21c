use std::fs;

use super::*;

const QUERY: &str = "CREATE STREAMING TABLE q AS SELECT window.start, count(*) AS n, sum(v) AS s \
     FROM STREAM t WATERMARK ts DELAY OF INTERVAL '5' MINUTE GROUP BY window(ts, '5 minutes')";

/// A table, the query over it, and a first pair of rows.
async fn begun(dir: &Path, rows: &str) -> StreamContext {
    let ctx = open(dir).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    run(&ctx, QUERY).await;
    run(&ctx, &format!("INSERT INTO t VALUES {rows}")).await;
    ctx
}

#[tokio::test]
async fn the_watermark_is_kept_and_late_rows_stay_late() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = begun(
        dir.path(),
        "('2026-03-02 10:01:00', 1), ('2026-03-02 10:12:00', 2)",
    )
    .await;
    assert_eq!(
        refresh(&ctx, "q").await,
        (0, 1, "2026-03-02T10:07:00".to_owned())
    );
    let ctx = ctx.reopen().await.unwrap();
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:02:00', 4)").await;
    assert_eq!(
        refresh(&ctx, "q").await,
        (1, 0, "2026-03-02T10:07:00".to_owned())
    );
    let ctx = ctx.reopen().await.unwrap();
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:21:00', 8)").await;
    assert_eq!(
        refresh(&ctx, "q").await,
        (0, 1, "2026-03-02T10:16:00".to_owned())
    );
    let rows = ["2026-03-02T10:00:00 1 1", "2026-03-02T10:10:00 1 2"];
    assert_eq!(run(&ctx, "SELECT * FROM q").await, rows);
}

#[tokio::test]
async fn open_windows_are_kept_and_rows_behind_the_checkpoint_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = begun(
        dir.path(),
        "('2026-03-02 10:01:00', 1), ('2026-03-02 10:02:00', 2)",
    )
    .await;
    refresh(&ctx, "q").await;
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:03:00', 4)").await;
    let ctx = ctx.reopen().await.unwrap();
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:10:00', 8)").await;
    refresh(&ctx, "q").await;
    assert_eq!(
        run(&ctx, "SELECT * FROM q").await,
        ["2026-03-02T10:00:00 3 7"]
    );
}

#[tokio::test]
async fn a_late_row_that_touches_a_closed_session_makes_one_of_its_own_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    run(&ctx, "CREATE STREAMING TABLE s AS SELECT session_window.start, session_window.end, count(*) AS n \
         FROM STREAM t WATERMARK ts DELAY OF INTERVAL 0 SECONDS GROUP BY session_window(ts, '10 seconds')").await;
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:00:00', 1), ('2026-03-02 10:00:05', 1), ('2026-03-02 10:00:20', 1)").await;
    refresh(&ctx, "s").await;
    // It begins within the closed session [10:00:00, 10:00:15) and ends behind the watermark 10:00:20.
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:00:11', 1)").await;
    refresh(&ctx, "s").await;
    let ctx = ctx.reopen().await.unwrap();
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:10:00', 1)").await;
    refresh(&ctx, "s").await;
    let rows = [
        "2026-03-02T10:00:00 2026-03-02T10:00:15 2",
        "2026-03-02T10:00:11 2026-03-02T10:00:30 2",
    ];
    assert_eq!(run(&ctx, "SELECT * FROM s").await, rows);
}

#[tokio::test]
async fn each_file_is_read_once_and_one_that_changed_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in");
    fs::create_dir(&input).unwrap();
    let write = |name: &str, second: u32, v: u32| {
        let line = format!("{{\"ts\":\"2026-03-02T10:00:0{second}\",\"v\":{v}}}\n");
        fs::write(input.join(name), line).unwrap();
    };
    write("a.json", 1, 1);
    write("b.json", 2, 2);
    write("c.json", 3, 4);
    let ctx = open(&dir.path().join("db")).await;
    run(&ctx, &format!("CREATE UNBOUNDED EXTERNAL TABLE t (ts TIMESTAMP, v BIGINT) STORED AS JSON LOCATION '{}/'", input.display())).await;
    run(&ctx, "CREATE STREAMING TABLE q WITH (max_files_per_epoch = '1') AS SELECT window.start, count(*) AS n, sum(v) AS s \
         FROM STREAM t WATERMARK ts DELAY OF INTERVAL '0' SECOND GROUP BY window(ts, '1 minute')").await;
    assert_eq!(ctx.refresh("q").await.unwrap().len(), 3);
    let ctx = ctx.reopen().await.unwrap();
    // Renamed over itself: another time, and the same length with other content.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    write("b.json", 2, 9);
    fs::File::options()
        .write(true)
        .open(input.join("b.json"))
        .unwrap()
        .set_modified(later)
        .unwrap();
    fs::write(
        input.join("d.json"),
        "{\"ts\":\"2026-03-02T10:01:00\",\"v\":8}\n",
    )
    .unwrap();
    let epochs = ctx.refresh("q").await.unwrap();
    let changed: Vec<&String> = epochs
        .iter()
        .flat_map(|epoch| &epoch.sources)
        .flat_map(|source| &source.changed_files)
        .collect();
    assert!(
        matches!(changed.as_slice(), [one] if one.ends_with("b.json")),
        "{changed:?}"
    );
    assert_eq!(
        run(&ctx, "SELECT * FROM q").await,
        ["2026-03-02T10:00:00 3 7"]
    );
    // It is told once.
    let ctx = ctx.reopen().await.unwrap();
    let epochs = ctx.refresh("q").await.unwrap();
    assert!(
        epochs
            .iter()
            .flat_map(|epoch| &epoch.sources)
            .all(|source| source.changed_files.is_empty())
    );
}

#[tokio::test]
async fn a_file_cut_by_an_epoch_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.csv");
    let lines: String = (0..100)
        .map(|at| format!("2026-03-02T10:{:02}:00,{at}\n", at % 60))
        .collect();
    fs::write(&file, format!("ts,v\n{lines}")).unwrap();
    let mut ctx = open(&dir.path().join("db")).await;
    run(&ctx, &format!("CREATE EXTERNAL TABLE t (ts TIMESTAMP, v BIGINT) STORED AS CSV LOCATION '{}' OPTIONS ('format.has_header' 'true')", file.display())).await;
    run(&ctx, "CREATE STREAMING TABLE q WITH (max_rows_per_epoch = '7') AS SELECT v FROM STREAM t LIMIT 1000").await;
    // Each run is given up after its first epochs, as by a kill.
    for _ in 0..3 {
        ctx = ctx.reopen().await.unwrap();
        ctx.refresh("q").await.unwrap();
    }
    assert_eq!(
        run(&ctx, "SELECT count(*), sum(v) FROM q").await,
        ["100 4950"]
    );
    fs::write(&file, "ts,v\n").unwrap();
    let ctx = ctx.reopen().await.unwrap();
    ctx.refresh("q").await.unwrap();
    assert_eq!(
        run(&ctx, "SELECT count(*), sum(v) FROM q").await,
        ["100 4950"]
    );
}

/// `TIDEGATE_TINY_FILES=100000 cargo test --release --test database tiny -- --nocapture` is the long form.
#[tokio::test]
async fn tiny_files_are_each_read_once_over_restarts() {
    let count = std::env::var("TIDEGATE_TINY_FILES").ok();
    let count: u32 = count.map_or(1_000, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in");
    fs::create_dir(&input).unwrap();
    let write = |at: u32| {
        let line = format!("{},{at}\n", 1_772_445_600 + u64::from(at));
        fs::write(input.join(format!("{at:06}.csv")), line).unwrap();
    };
    (0..count).for_each(write);
    let mut ctx = open(&dir.path().join("db")).await;
    run(&ctx, &format!("CREATE EXTERNAL TABLE t (ts TIMESTAMP(0), v BIGINT) STORED AS CSV LOCATION '{}/' OPTIONS ('format.has_header' 'false')", input.display())).await;
    run(
        &ctx,
        "CREATE STREAMING TABLE q WITH (max_files_per_epoch = '100') AS SELECT v FROM STREAM t",
    )
    .await;
    let began = std::time::Instant::now();
    ctx.refresh("q").await.unwrap();
    println!("{count} files in {:?}", began.elapsed());
    // Renamed files are other files; removed ones are not missed.
    fs::rename(input.join("000000.csv"), input.join("renamed.csv")).unwrap();
    fs::remove_file(input.join("000001.csv")).unwrap();
    write(count);
    ctx = ctx.reopen().await.unwrap();
    let epochs = ctx.refresh("q").await.unwrap();
    let rows: u64 = epochs.iter().map(|epoch| epoch.input_rows).sum();
    assert_eq!(rows, 2);
    let all = u64::from(count);
    let expected = format!("{} {}", all + 2, all * (all + 1) / 2);
    assert_eq!(
        run(&ctx, "SELECT count(*), sum(v) FROM q").await,
        [expected]
    );
}

#[tokio::test]
async fn a_line_that_is_still_being_written_is_an_error_and_the_file_is_read_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.json");
    fs::write(&file, "{\"v\":1}\n{\"v\":2}\n{\"v\"").unwrap();
    let ctx = open(&dir.path().join("db")).await;
    run(
        &ctx,
        &format!(
            "CREATE EXTERNAL TABLE t (v BIGINT) STORED AS JSON LOCATION '{}'",
            file.display()
        ),
    )
    .await;
    run(&ctx, "CREATE STREAMING TABLE q AS SELECT v FROM STREAM t").await;
    let error = refused(&ctx, "REFRESH STREAMING TABLE q").await;
    assert!(
        error.contains("in.json") && error.contains("line 3"),
        "{error}"
    );
    let ctx = ctx.reopen().await.unwrap();
    assert!(run(&ctx, "SELECT * FROM q").await.is_empty());
    fs::write(&file, "{\"v\":1}\n{\"v\":2}\n{\"v\":3}\n").unwrap();
    ctx.refresh("q").await.unwrap();
    assert_eq!(run(&ctx, "SELECT * FROM q").await, ["1", "2", "3"]);
}
