use super::*;

#[tokio::test]
async fn tables_views_and_schemas_are_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    for sql in [
        "CREATE TABLE t (id BIGINT NOT NULL, k VARCHAR DEFAULT 'none', ts TIMESTAMP, i INTERVAL)",
        "INSERT INTO t (id, ts) VALUES (1, '2026-10-01T09:05:00')",
        "CREATE TABLE copied AS SELECT id, [id, 2] AS list, CAST(ts AS TIMESTAMP(0)) AS s FROM t",
        "CREATE SCHEMA other",
        "CREATE TABLE other.\"Odd. Name\" (\"A b\" INT)",
        "INSERT INTO other.\"Odd. Name\" VALUES (7)",
        "CREATE VIEW v AS SELECT id + 1 AS n FROM t",
        "CREATE VIEW over AS SELECT n * 10 AS n FROM v",
        "CREATE OR REPLACE VIEW v AS SELECT id + 5 AS n FROM t",
        "CREATE TABLE gone (a INT)",
        "DROP TABLE gone",
    ] {
        run(&ctx, sql).await;
    }
    let ctx = ctx.reopen().await.unwrap();
    assert!(ctx.unopened().is_empty());
    run(&ctx, "INSERT INTO t (id, i) VALUES (2, INTERVAL '1 month')").await;
    assert!(
        refused(&ctx, "INSERT INTO t VALUES (NULL, 'a', NULL, NULL)")
            .await
            .contains("null")
    );
    let ctx = ctx.reopen().await.unwrap();
    let rows = ["1 none 2026-10-01T09:05:00 NULL", "2 none NULL 1 mons"];
    assert_eq!(run(&ctx, "SELECT * FROM t").await, rows);
    assert_eq!(
        run(&ctx, "SELECT * FROM copied").await,
        ["1 [1, 2] 2026-10-01T09:05:00"]
    );
    assert_eq!(
        run(&ctx, "SELECT \"A b\" FROM other.\"Odd. Name\"").await,
        ["7"]
    );
    assert_eq!(run(&ctx, "SELECT n FROM v").await, ["6", "7"]);
    // A view keeps the meaning that its names had.
    assert_eq!(run(&ctx, "SELECT n FROM over").await, ["20", "30"]);
    assert!(refused(&ctx, "SELECT * FROM gone").await.contains("gone"));
    let names = run(&ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema IN ('public', 'other')").await;
    assert_eq!(names, ["Odd. Name", "copied", "over", "t", "v"]);
}

#[tokio::test]
async fn one_process_at_a_time_has_it_open() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    let error = StreamContext::open(dir.path())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("[DATABASE_IN_USE]"), "{error}");
    drop(ctx);
    open(dir.path()).await;
}

/// A streaming table for each kind of state.
fn tables() -> Vec<(&'static str, String)> {
    let stream = "FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 MINUTE";
    let define = |name, with: &str, select: &str, group: &str| {
        let sql =
            format!("CREATE STREAMING TABLE {name} {with} AS SELECT {select} {stream} {group}");
        (name, sql)
    };
    let aggregates = "window.start, k, count(*), sum(v), avg(v)";
    let session = "session_window.start, session_window.end, k, count(*)";
    vec![
        define(
            "hop",
            "",
            aggregates,
            "GROUP BY window(ts, '10 minutes', '3 minutes'), k",
        ),
        define(
            "ses",
            "",
            session,
            "GROUP BY session_window(ts, '5 minutes'), k",
        ),
        define(
            "upd",
            "WITH (output_mode = 'update')",
            "window.start, k, sum(v)",
            "GROUP BY window(ts, '10 minutes'), k",
        ),
        define(
            "com",
            "WITH (output_mode = 'complete')",
            "k, count(*), min(v)",
            "GROUP BY k",
        ),
        define(
            "lim",
            "",
            "window.start, k, median(v)",
            "GROUP BY window(ts, '4 minutes'), k LIMIT 5",
        ),
        define("ded", "", "DISTINCT ON (v) v, k, ts", ""),
    ]
}

/// Rows out of order, some late, a few without a time.
fn inserts() -> Vec<String> {
    let insert = |epoch: i64| {
        let rows = (0..9).map(|row| {
            let minute = (epoch * 4 + row * 7 % 11) - if row == 8 { 25 } else { 0 };
            let time = match (epoch + row) % 13 {
                0 => "NULL".to_owned(),
                _ => format!("TIMESTAMP '2026-10-01T12:00:00' + INTERVAL '{minute} minutes'"),
            };
            format!("({time}, 'k{}', {})", row % 3, (epoch * 5 + row * 3) % 17)
        });
        format!(
            "INSERT INTO t VALUES {}",
            rows.collect::<Vec<_>>().join(", ")
        )
    };
    (0..12).map(insert).collect()
}

#[tokio::test]
async fn every_kind_of_state_goes_on_at_any_number_of_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let memory = StreamContext::new().unwrap();
    let mut kept = open(dir.path()).await;
    for ctx in [&memory, &kept] {
        run(ctx, "CREATE TABLE t (ts TIMESTAMP, k VARCHAR, v BIGINT)").await;
        for (_, table) in tables() {
            run(ctx, &table).await;
        }
    }
    for (at, insert) in inserts().iter().enumerate() {
        drop(kept);
        kept = open_with(dir.path(), at % 4 + 1).await;
        for (name, _) in tables() {
            let refresh = format!("REFRESH STREAMING TABLE {name}");
            let shown = format!("SELECT * FROM {name}");
            if at % 2 == 0 {
                // What was inserted by the process before.
                assert_eq!(
                    run(&kept, &refresh).await,
                    run(&memory, &refresh).await,
                    "{name} at {at}"
                );
            }
            let (one, other) = (run(&kept, &shown).await, run(&memory, &shown).await);
            match name {
                "lim" => assert_eq!(one.len(), other.len()),
                _ => assert_eq!(one, other, "{name} at {at}"),
            }
        }
        for ctx in [&memory, &kept] {
            run(ctx, insert).await;
        }
    }
    let figures = "SELECT epoch, input_rows, late_rows, null_rows, open_rows FROM progress('hop')";
    assert_eq!(run(&kept, figures).await, run(&memory, figures).await);
    assert_eq!(run(&kept, "SELECT count(*) FROM lim").await, ["5"]);
}

#[tokio::test]
async fn a_schema_that_is_dropped_is_gone_with_its_tables() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE SCHEMA s").await;
    run(&ctx, "CREATE TABLE s.t (a INT)").await;
    run(&ctx, "DROP SCHEMA s CASCADE").await;
    let ctx = ctx.reopen().await.unwrap();
    assert!(ctx.unopened().is_empty());
    assert!(
        refused(&ctx, "SELECT * FROM s.t")
            .await
            .contains("not found")
    );
    run(&ctx, "CREATE SCHEMA s").await;
}

#[tokio::test]
async fn many_epochs_leave_few_files() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    run(&ctx, "CREATE STREAMING TABLE q WITH (max_rows_per_epoch = '10') AS SELECT window.start, count(*) AS n \
         FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY window(ts, '10 minutes')").await;
    run(
        &ctx,
        "INSERT INTO t SELECT to_timestamp_seconds(value), value \
         FROM generate_series(1, 5000) AS s(value)",
    )
    .await;
    assert_eq!(ctx.refresh("q").await.unwrap().len(), 500);
    let queries = std::fs::read_dir(dir.path().join("queries")).unwrap();
    let files: usize = queries
        .map(|query| std::fs::read_dir(query.unwrap().path()).unwrap().count())
        .sum();
    assert!(files < 60, "{files} files");
    let before = run(&ctx, "SELECT * FROM q").await;
    let ctx = ctx.reopen().await.unwrap();
    assert_eq!(run(&ctx, "SELECT * FROM q").await, before);
    assert_eq!(
        run(&ctx, "SELECT count(*) FROM progress('q')").await,
        ["500"]
    );
}

#[tokio::test]
async fn dropping_the_wrong_kind_drops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE TABLE t (a INT)").await;
    run(&ctx, "INSERT INTO t VALUES (1)").await;
    run(&ctx, "CREATE VIEW v AS SELECT a FROM t").await;
    run(&ctx, "DROP VIEW IF EXISTS t").await;
    run(&ctx, "DROP TABLE IF EXISTS v").await;
    let ctx = ctx.reopen().await.unwrap();
    assert_eq!(run(&ctx, "SELECT a FROM t").await, ["1"]);
    assert_eq!(run(&ctx, "SELECT a FROM v").await, ["1"]);
}

#[tokio::test]
async fn a_name_that_was_a_views_is_free_for_a_streaming_table() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let ctx = open(&db).await;
    run(&ctx, "CREATE TABLE t (v BIGINT)").await;
    run(&ctx, "CREATE VIEW q AS SELECT 1 AS a").await;
    run(&ctx, "CREATE VIEW other AS SELECT 2 AS a").await;
    run(&ctx, "DROP VIEW q").await;
    let ctx = ctx.reopen().await.unwrap();
    assert!(refused(&ctx, "SELECT * FROM q").await.contains("not found"));
    let create = format!(
        "CREATE STREAMING TABLE q STORED AS CSV LOCATION '{}/' AS SELECT v FROM STREAM t",
        out.display()
    );
    run(&ctx, &create).await;
    run(&ctx, "INSERT INTO t VALUES (1), (2)").await;
    ctx.refresh("q").await.unwrap();
    run(&ctx, "REFRESH STREAMING TABLE q FULL").await;
    let other = create
        .replace("CREATE", "CREATE OR REFRESH")
        .replace("FROM STREAM t", "FROM STREAM t WHERE v > 0");
    run(&ctx, &other).await;
    let ctx = ctx.reopen().await.unwrap();
    assert!(ctx.unopened().is_empty());
    assert_eq!(run(&ctx, "SELECT v FROM q").await, ["1", "2"]);
}

#[tokio::test]
async fn views_have_their_meaning_also_when_a_table_came_later_again() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    for sql in [
        "CREATE TABLE t (a INT)",
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE VIEW w AS SELECT a + 1 AS a FROM v",
        "CREATE OR REPLACE VIEW v AS SELECT 100 AS a",
        "CREATE OR REPLACE TABLE t (a INT)",
        "INSERT INTO t VALUES (1)",
    ] {
        run(&ctx, sql).await;
    }
    let ctx = ctx.reopen().await.unwrap();
    assert_eq!(run(&ctx, "SELECT a FROM v").await, ["100"]);
    assert_eq!(run(&ctx, "SELECT a FROM w").await, ["2"]);
}
