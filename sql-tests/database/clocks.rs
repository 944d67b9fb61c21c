//! Guards, idle inputs and event time without rows over a restart.

use tidegate::time::Unit;

use super::hands::Hands;
use super::*;

#[tokio::test]
async fn what_was_guarded_stays_counted_and_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hands::at(0);
    clock.set_ms(3_600_000);
    let ctx = open(dir.path()).await.with_clock(clock.clone());
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    run(
        &ctx,
        "CREATE STREAMING TABLE q WITH (max_future = INTERVAL '1' MINUTE) AS \
         SELECT window.start, count(*) AS n FROM STREAM t WATERMARK ts DELAY OF INTERVAL '5' MINUTE \
         GROUP BY window(ts, '5 minutes')",
    )
    .await;
    run(
        &ctx,
        "INSERT INTO t VALUES ('1970-01-01 00:52:00', 1), ('1970-01-01 01:00:30', 2), ('2199-01-01', 3), (NULL, 4)",
    )
    .await;
    let header = "0 4 0 1 0 1 1 1 1 1970-01-01T00:55:30";
    assert_eq!(run(&ctx, "REFRESH STREAMING TABLE q").await, [header]);
    let ctx = ctx.reopen().await.unwrap();
    let explained = run(&ctx, "EXPLAIN STREAMING TABLE q").await.join("\n");
    assert!(
        explained.contains("1 of the future, of 4 rows read"),
        "{explained}"
    );
    let figures = "SELECT guarded_rows FROM progress('q')";
    assert_eq!(run(&ctx, figures).await, ["1"]);
    // The clock is the one that the session before had: 01:02 is of the future, until it says so.
    run(&ctx, "INSERT INTO t VALUES ('1970-01-01 01:02:00', 5)").await;
    let next = "1 1 0 0 0 1 0 1 1 1970-01-01T00:55:30";
    assert_eq!(run(&ctx, "REFRESH STREAMING TABLE q").await, [next]);
    clock.set_ms(3_700_000);
    run(&ctx, "INSERT INTO t VALUES ('1970-01-01 01:02:00', 5)").await;
    let next = "2 1 0 0 0 0 0 1 2 1970-01-01T00:57:00";
    assert_eq!(run(&ctx, "REFRESH STREAMING TABLE q").await, [next]);
}

#[tokio::test]
async fn behind_a_restart_an_input_has_its_whole_timeout_again() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hands::at(0);
    let ctx = open(dir.path()).await.with_clock(clock.clone());
    for table in ["t", "u"] {
        run(
            &ctx,
            &format!("CREATE TABLE {table} (ts TIMESTAMP, v BIGINT)"),
        )
        .await;
    }
    run(
        &ctx,
        "CREATE STREAMING TABLE q WITH (idle_timeout = INTERVAL '1' MINUTE) AS \
         SELECT v FROM STREAM t WATERMARK ts DELAY OF INTERVAL 0 SECONDS \
         UNION ALL SELECT v FROM STREAM u WATERMARK ts DELAY OF INTERVAL 0 SECONDS",
    )
    .await;
    run(&ctx, "INSERT INTO t VALUES ('1970-01-01 00:10:00', 1)").await;
    refresh(&ctx, "q").await;
    clock.set_ms(50_000);
    run(&ctx, "INSERT INTO t VALUES ('1970-01-01 00:20:00', 1)").await;
    refresh(&ctx, "q").await;
    let ctx = ctx.reopen().await.unwrap();
    clock.set_ms(70_000);
    assert_eq!(refresh(&ctx, "q").await.2, "");
    clock.set_ms(129_000);
    run(&ctx, "INSERT INTO t VALUES ('1970-01-01 00:30:00', 1)").await;
    assert_eq!(refresh(&ctx, "q").await.2, "");
    clock.set_ms(130_000);
    assert_eq!(refresh(&ctx, "q").await.2, "1970-01-01T00:30:00");
    // Where the watermark is, is kept, whoever holds it then.
    let ctx = ctx.reopen().await.unwrap();
    run(&ctx, "INSERT INTO u VALUES ('1970-01-01 00:05:00', 1)").await;
    assert_eq!(refresh(&ctx, "q").await.2, "1970-01-01T00:30:00");
}

#[tokio::test]
async fn event_time_without_a_row_is_in_the_checkpoint_of_who_has_seen_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    for query in ["saw", "did_not"] {
        run(
            &ctx,
            &format!(
                "CREATE STREAMING TABLE {query} AS SELECT window.start, count(*) AS n \
                 FROM STREAM t WATERMARK ts DELAY OF INTERVAL '1' MINUTE GROUP BY window(ts, '5 minutes')"
            ),
        )
        .await;
    }
    run(&ctx, "INSERT INTO t VALUES ('1970-01-01 00:01:00', 1)").await;
    ctx.advance_event_time("t", Unit::Second.instant(600))
        .await
        .unwrap();
    let seen = (0, 1, "1970-01-01T00:09:00".to_owned());
    assert_eq!(refresh(&ctx, "saw").await, seen);
    let ctx = ctx.reopen().await.unwrap();
    assert_eq!(refresh(&ctx, "saw").await.2, "1970-01-01T00:09:00");
    assert_eq!(refresh(&ctx, "did_not").await.2, "1970-01-01T00:00:00");
}
