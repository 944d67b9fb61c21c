use std::fs;
use std::path::PathBuf;

use super::*;

const SELECT: &str = "SELECT window.start, count(*) AS n, sum(v) AS s FROM STREAM t \
     WATERMARK ts DELAY OF INTERVAL '5' MINUTE GROUP BY window(ts, '5 minutes')";

async fn begun(dir: &Path) -> StreamContext {
    let ctx = open(dir).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT, k VARCHAR)").await;
    run(&ctx, &format!("CREATE STREAMING TABLE q AS {SELECT}")).await;
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:01:00', 1, 'a')").await;
    refresh(&ctx, "q").await;
    ctx.reopen().await.unwrap()
}

#[tokio::test]
async fn another_query_on_the_kept_state_is_refused_and_the_difference_named() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = begun(dir.path()).await;
    for (from, to, difference) in [
        (
            "'5 minutes')",
            "'7 minutes')",
            "it was window(t.ts, 5 minutes), it is window(t.ts, 7 minutes)",
        ),
        ("sum(v)", "max(v)", "aggregates"),
        ("count(*) AS n", "count(DISTINCT k) AS n", "aggregates"),
        ("'5 minutes')", "'5 minutes'), k", "keys: it was none"),
        ("sum(v) AS s", "sum(v * 1.5) AS s", "columns"),
        ("sum(v) AS s", "sum(v) AS total", "columns"),
    ] {
        let other = SELECT.replace(from, to);
        assert_ne!(other, SELECT);
        let error = refused(
            &ctx,
            &format!("CREATE OR REFRESH STREAMING TABLE q AS {other}"),
        )
        .await;
        assert!(error.contains(difference), "{error}");
    }
    for with in [
        "WITH (output_mode = 'update')",
        "STORED AS PARQUET LOCATION '/tmp/none/'",
    ] {
        let error = refused(
            &ctx,
            &format!("CREATE OR REFRESH STREAMING TABLE q {with} AS {SELECT}"),
        )
        .await;
        assert!(error.contains("[STREAMING_QUERY_CHANGED]"), "{error}");
    }
    // Nothing has changed.
    run(
        &ctx,
        "INSERT INTO t VALUES ('2026-03-02 10:02:00', 2, 'a'), ('2026-03-02 10:20:00', 2, 'a')",
    )
    .await;
    refresh(&ctx, "q").await;
    assert_eq!(
        run(&ctx, "SELECT * FROM q").await,
        ["2026-03-02T10:00:00 2 3"]
    );
}

#[tokio::test]
async fn another_delay_or_filter_goes_on_with_the_kept_state() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = begun(dir.path()).await;
    let other = SELECT
        .replace("'5' MINUTE", "'1' HOUR")
        .replace("GROUP", "WHERE v < 100 GROUP");
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:02:00', 2, 'a'), ('2026-03-02 10:03:00', 200, 'a'), ('2026-03-02 10:20:00', 4, 'a')").await;
    run(
        &ctx,
        &format!("CREATE OR REFRESH STREAMING TABLE q AS {other}"),
    )
    .await;
    // The watermark 09:56 stays, for it never goes back.
    let shown = run(&ctx, "SELECT watermark FROM progress('q') WHERE epoch = 1").await;
    assert_eq!(shown, ["2026-03-02T09:56:00"]);
    let ctx = ctx.reopen().await.unwrap();
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 11:10:00', 8, 'a')").await;
    refresh(&ctx, "q").await;
    assert_eq!(
        run(&ctx, "SELECT * FROM q").await,
        ["2026-03-02T10:00:00 2 3"]
    );
}

#[tokio::test]
async fn another_source_under_the_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(&dir.path().join("db")).await;
    let sources = [dir.path().join("one"), dir.path().join("two")];
    let external = |at: usize| {
        let folder = &sources[at];
        fs::create_dir_all(folder).unwrap();
        format!(
            "CREATE EXTERNAL TABLE t (ts TIMESTAMP, v BIGINT) STORED AS CSV LOCATION '{}/'",
            folder.display()
        )
    };
    run(&ctx, &external(0)).await;
    run(&ctx, "CREATE STREAMING TABLE q AS SELECT v FROM STREAM t").await;
    refresh(&ctx, "q").await;
    assert!(refused(&ctx, "DROP TABLE t").await.contains("q"));
    drop(ctx);
    // Another process, with another directory under the name.
    let session = SessionContext::new();
    let ctx = StreamContext::open_over(session, dir.path().join("db"))
        .await
        .unwrap();
    ctx.session().deregister_table("t").unwrap();
    ctx.session().sql(&external(1)).await.unwrap();
    let error = refused(&ctx, "REFRESH STREAMING TABLE q").await;
    assert!(error.contains("STREAMING_QUERY_CHANGED"), "{error}");
}

#[tokio::test]
async fn full_begins_anew_from_what_the_sources_have() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = begun(dir.path()).await;
    run(
        &ctx,
        "INSERT INTO t VALUES ('2026-03-02 11:00:00', 2, 'a'), ('2026-03-02 10:02:00', 4, 'a')",
    )
    .await;
    refresh(&ctx, "q").await;
    assert_eq!(
        run(&ctx, "SELECT * FROM q").await,
        ["2026-03-02T10:00:00 2 5"]
    );
    assert_eq!(run(&ctx, "REFRESH STREAMING TABLE q FULL").await.len(), 1);
    assert_eq!(
        run(&ctx, "SELECT * FROM q").await,
        ["2026-03-02T10:00:00 2 5"]
    );
    let ctx = ctx.reopen().await.unwrap();
    assert_eq!(
        run(
            &ctx,
            "SELECT epochs FROM (SELECT count(*) AS epochs FROM progress('q'))"
        )
        .await,
        ["1"]
    );
}

/// The checkpoint files of the only query, oldest first.
fn epochs(dir: &Path) -> Vec<PathBuf> {
    let query = fs::read_dir(dir.join("queries"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut files: Vec<PathBuf> = fs::read_dir(query)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_damaged_checkpoint_is_named_and_the_one_before_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = begun(dir.path()).await;
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:02:00', 2, 'a')").await;
    refresh(&ctx, "q").await;
    drop(ctx);
    let newest = epochs(dir.path()).pop().unwrap();
    let whole = fs::read(&newest).unwrap();
    fs::write(&newest, &whole[..whole.len() / 2]).unwrap();
    let ctx = open(dir.path()).await;
    for sql in ["SELECT * FROM q", "REFRESH STREAMING TABLE q"] {
        let error = refused(&ctx, sql).await;
        let name = newest.file_name().unwrap().to_str().unwrap();
        assert!(
            error.contains("[CHECKPOINT_DAMAGED]") && error.contains(name),
            "{error}"
        );
    }
    // The other tables can be used.
    assert_eq!(run(&ctx, "SELECT count(*) FROM t").await, ["2"]);
    drop(ctx);
    fs::remove_file(&newest).unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:10:00', 8, 'a')").await;
    refresh(&ctx, "q").await;
    assert_eq!(
        run(&ctx, "SELECT * FROM q").await,
        ["2026-03-02T10:00:00 2 3"]
    );
}

#[tokio::test]
async fn full_mends_a_damaged_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    drop(begun(dir.path()).await);
    for file in epochs(dir.path()) {
        fs::write(file, "").unwrap();
    }
    let ctx = open(dir.path()).await;
    assert!(
        refused(&ctx, "SELECT * FROM q")
            .await
            .contains("CHECKPOINT_DAMAGED")
    );
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:10:00', 8, 'a')").await;
    run(&ctx, "REFRESH STREAMING TABLE q FULL").await;
    assert_eq!(
        run(&ctx, "SELECT * FROM q").await,
        ["2026-03-02T10:00:00 1 1"]
    );
}

#[tokio::test]
async fn a_source_that_was_left_keeps_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE TABLE one (v BIGINT)").await;
    run(&ctx, "CREATE TABLE two (v BIGINT)").await;
    run(&ctx, "INSERT INTO one VALUES (1)").await;
    run(&ctx, "INSERT INTO two VALUES (2)").await;
    run(
        &ctx,
        "CREATE OR REFRESH STREAMING TABLE q AS SELECT v FROM STREAM one",
    )
    .await;
    run(
        &ctx,
        "CREATE OR REFRESH STREAMING TABLE q AS SELECT v FROM STREAM two",
    )
    .await;
    let ctx = ctx.reopen().await.unwrap();
    ctx.refresh("q").await.unwrap();
    run(
        &ctx,
        "CREATE OR REFRESH STREAMING TABLE q AS SELECT v FROM STREAM one",
    )
    .await;
    assert_eq!(run(&ctx, "SELECT v FROM q").await, ["1", "2"]);
}

#[tokio::test]
async fn another_unit_of_the_event_time_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = begun(dir.path()).await;
    let other = SELECT.replace(
        "STREAM t",
        "(SELECT CAST(ts AS TIMESTAMP(0)) AS ts, v, k FROM STREAM t)",
    );
    let error = refused(
        &ctx,
        &format!("CREATE OR REFRESH STREAMING TABLE q AS {other}"),
    )
    .await;
    assert!(error.contains("[STREAMING_QUERY_CHANGED]"), "{error}");
}

#[tokio::test]
async fn a_result_has_its_columns_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE TABLE t (x BIGINT, y BIGINT)").await;
    run(&ctx, "INSERT INTO t VALUES (1, 2)").await;
    run(
        &ctx,
        "CREATE OR REFRESH STREAMING TABLE q AS SELECT * FROM (SELECT x, y FROM STREAM t)",
    )
    .await;
    drop(ctx);
    let ctx = open(dir.path()).await;
    assert_eq!(run(&ctx, "SELECT x, y FROM q").await, ["1 2"]);
}

#[tokio::test]
async fn a_reader_of_a_table_that_went_back_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE TABLE t (v BIGINT)").await;
    run(&ctx, "CREATE STREAMING TABLE a AS SELECT v FROM STREAM t").await;
    for v in 0..3 {
        run(&ctx, &format!("INSERT INTO t VALUES ({v})")).await;
        ctx.refresh("a").await.unwrap();
    }
    run(
        &ctx,
        "CREATE OR REFRESH STREAMING TABLE b AS SELECT v FROM STREAM a",
    )
    .await;
    drop(ctx);
    let newest = fs::read_dir(dir.path().join("queries"))
        .unwrap()
        .flat_map(|query| {
            fs::read_dir(query.unwrap().path())
                .unwrap()
                .map(|file| file.unwrap().path())
        });
    let newest = newest
        .max_by_key(|path| path.file_name().unwrap().to_owned())
        .unwrap();
    fs::remove_file(newest).unwrap();
    let ctx = open(dir.path()).await;
    let error = refused(&ctx, "REFRESH STREAMING TABLE b").await;
    assert!(error.contains("[SOURCE_ROWS_GONE]"), "{error}");
    ctx.refresh("a").await.unwrap();
    run(&ctx, "REFRESH STREAMING TABLE b FULL").await;
    assert_eq!(run(&ctx, "SELECT v FROM b").await, ["0", "1", "2"]);
}

/// What a session does with a file of this text that came into the folder of `t`: the REFRESH, then the late rows.
async fn behind(dir: &Path, name: &str, text: &str) -> Vec<String> {
    fs::write(dir.join(format!("files/{name}.csv")), text).unwrap();
    let ctx = open(&dir.join("data")).await;
    ctx.refresh("q").await.unwrap();
    run(
        &ctx,
        "SELECT * EXCLUDE (_window_start, _window_end, _operator, _watermark, _late_by) FROM l",
    )
    .await
}

#[tokio::test]
async fn late_rows_stay_when_their_source_gains_and_loses_columns() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, files) = (dir.path(), dir.path().join("files"));
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a.csv"), "ts,k\n2026-03-02T12:00:00,0\n").unwrap();
    let ctx = open(&dir.join("data")).await;
    let location = files.display();
    run(&ctx, &format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{location}/' OPTIONS ('format.has_header' 'true')")).await;
    run(
        &ctx,
        "CREATE STREAMING TABLE q WITH (late_rows = 'l') AS SELECT window.start, count(*) AS n
        FROM STREAM t WATERMARK ts DELAY OF INTERVAL 5 MINUTES GROUP BY window(ts, '5 minutes')",
    )
    .await;
    ctx.refresh("q").await.unwrap();
    drop(ctx);
    let late = behind(dir, "b", "ts,k\n2026-03-02T10:01:00,1\n").await;
    assert_eq!(late, ["2026-03-02T10:01:00 1 1 late"]);
    fs::remove_file(files.join("a.csv")).unwrap();
    fs::remove_file(files.join("b.csv")).unwrap();
    let late = behind(dir, "c", "ts,x\n2026-03-02T10:02:00,new\n").await;
    assert_eq!(
        late,
        [
            "2026-03-02T10:01:00 NULL 1 1 late",
            "2026-03-02T10:02:00 new NULL 2 late"
        ]
    );
    // Once the columns are others, and once more as they were.
    for (file, row) in [
        ("d", "2026-03-02T10:03:00,more\n"),
        ("e", "2026-03-02T10:04:00,most\n"),
    ] {
        behind(dir, file, &format!("ts,x\n{row}")).await;
    }
    let ctx = open(&dir.join("data")).await;
    let late = "SELECT x, k, _epoch FROM l";
    let all = ["NULL 1 1", "more NULL 3", "most NULL 4", "new NULL 2"];
    assert_eq!(run(&ctx, late).await, all);
    // The query that takes the place of this one has the same late rows.
    run(
        &ctx,
        "CREATE OR REFRESH STREAMING TABLE q WITH (late_rows = 'l') AS SELECT window.start, count(*) AS n
        FROM STREAM t WATERMARK ts DELAY OF INTERVAL 6 MINUTES GROUP BY window(ts, '5 minutes')",
    )
    .await;
    assert_eq!(run(&ctx, late).await, all);
    drop(ctx);
    for file in ["c", "d", "e"] {
        fs::remove_file(files.join(format!("{file}.csv"))).unwrap();
    }
    fs::write(files.join("f.csv"), "ts,x\n2026-03-02T10:04:00,7\n").unwrap();
    let ctx = open(&dir.join("data")).await;
    let error = refused(&ctx, "REFRESH STREAMING TABLE q").await;
    assert!(error.contains("[STREAMING_QUERY_CHANGED]"), "{error}");
    assert!(
        error.contains("The columns of datafusion.public.l were "),
        "{error}"
    );
}
