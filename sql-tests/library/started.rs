//! Queries that were started: when they refresh, what stops them, and what is left then. Time passes when a
//! test says so.
//!
//! | family | catches |
//! |---|---|
//! | arrival, intervals, looks | rows that nobody reads, epochs without rows, intervals that are made up for |
//! | failures | one query's error that stops another, rows lost or read twice behind an error or a panic |
//! | statements | a DROP, REPLACE or FULL beside a task that still writes; one that fails and stops it; a run by a query that the table had before; a REFRESH that waits for ever |
//! | ends | tasks and locks that outlive their context |

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use tidegate::context::StreamContext;
use tidegate::prelude::QueryStatus;
use tokio::sync::mpsc;

use super::hands::Hands;
use super::{Channel, WINDOWS, only, rows, schema, show};

/// A context over time that stands still, with a table `t`.
fn context() -> (StreamContext, Arc<Hands>) {
    let hands = Arc::new(Hands::default());
    let ctx = StreamContext::new().unwrap().with_ticker(hands.clone());
    ctx.create_table("t", schema()).unwrap();
    (ctx, hands)
}

async fn run(ctx: &StreamContext, sql: &str) {
    ctx.sql(sql).await.unwrap().collect().await.unwrap();
}

/// Looks whenever something has changed.
async fn until(ctx: &StreamContext, is_so: impl Fn() -> bool) {
    let mut changes = ctx.status_changes();
    while !is_so() {
        changes.changed().await.unwrap();
    }
}

/// Waits until a run that begins now, or one after it, has ended.
async fn one_run(ctx: &StreamContext, begin: impl Future<Output = ()>) {
    let mut changes = ctx.status_changes();
    begin.await;
    changes.changed().await.unwrap();
}

/// Rows that the epochs of `q` have read, and the number of epochs.
fn read(ctx: &StreamContext) -> (u64, usize) {
    let epochs = ctx.progress("q").unwrap();
    let rows = epochs.iter().map(|epoch| epoch.input_rows).sum();
    (rows, epochs.len())
}

async fn define(ctx: &StreamContext) {
    run(ctx, &format!("CREATE STREAMING TABLE q AS {WINDOWS}")).await;
}

#[tokio::test]
async fn rows_are_read_as_they_arrive_and_there_are_no_empty_epochs() {
    let (ctx, _) = context();
    define(&ctx).await;
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Stopped);
    let mut changes = ctx.status_changes();
    ctx.start("q", None).await.unwrap();
    // The start, and the end of a run that finds nothing.
    changes.changed().await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Running);
    assert_eq!(read(&ctx), (0, 0));
    for (epoch, ts) in [1, 3, 12, 25].into_iter().enumerate() {
        ctx.append("t", rows(&[(ts, 1)])).await.unwrap();
        until(&ctx, || read(&ctx).0 == epoch as u64 + 1).await;
        assert_eq!(read(&ctx).1, epoch + 1);
    }
    let table = show(&ctx, "SELECT count(*) AS windows, sum(s) AS s FROM q").await;
    assert!(table.contains("| 2       | 3 |"), "{table}");
    ctx.stop("q").await.unwrap();
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Stopped);
    ctx.append("t", rows(&[(40, 1)])).await.unwrap();
    // A REFRESH reads what no query that runs has, and runs an epoch where there is nothing.
    assert_eq!(ctx.refresh("q").await.unwrap()[0].input_rows, 1);
    assert_eq!(ctx.refresh("q").await.unwrap()[0].input_rows, 0);
    // To stop what is stopped is no mistake.
    run(&ctx, "ALTER STREAMING TABLE q STOP").await;
}

#[tokio::test]
async fn a_query_that_reads_another_one_follows_it() {
    let (ctx, _) = context();
    define(&ctx).await;
    run(
        &ctx,
        "CREATE STREAMING TABLE sums AS SELECT s FROM STREAM q WATERMARK start DELAY OF INTERVAL 0 SECONDS",
    )
    .await;
    run(&ctx, "ALTER STREAMING TABLE sums START").await;
    run(&ctx, "ALTER STREAMING TABLE q START").await;
    ctx.append("t", rows(&[(1, 7), (30, 1)])).await.unwrap();
    until(&ctx, || !ctx.progress("sums").unwrap().is_empty()).await;
    assert!(show(&ctx, "SELECT * FROM sums").await.contains("| 7 |"));
}

#[tokio::test]
async fn with_an_interval_rows_wait_for_it_and_missed_ones_are_not_made_up_for() {
    let (ctx, hands) = context();
    define(&ctx).await;
    one_run(&ctx, async {
        run(
            &ctx,
            "ALTER STREAMING TABLE q START EVERY INTERVAL 10 SECONDS",
        )
        .await;
    })
    .await;
    ctx.append("t", rows(&[(1, 1)])).await.unwrap();
    until(&ctx, || read(&ctx) == (1, 1)).await;
    ctx.append("t", rows(&[(2, 1)])).await.unwrap();
    hands.pass(9);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&ctx), (1, 1));
    hands.pass(1);
    until(&ctx, || read(&ctx) == (2, 2)).await;
    // Three intervals and a half pass: one run. The next is due behind the half that is left.
    ctx.append("t", rows(&[(3, 1)])).await.unwrap();
    hands.pass(35);
    until(&ctx, || read(&ctx) == (3, 3)).await;
    ctx.append("t", rows(&[(4, 1)])).await.unwrap();
    hands.pass(5);
    until(&ctx, || read(&ctx) == (4, 4)).await;
    // Another interval holds from now on, and none is as none at the start.
    ctx.start("q", Some(Duration::from_secs(60))).await.unwrap();
    ctx.start("q", None).await.unwrap();
    ctx.append("t", rows(&[(5, 1)])).await.unwrap();
    until(&ctx, || read(&ctx).0 == 5).await;
    let zero = ctx.start("q", Some(Duration::ZERO)).await.unwrap_err();
    assert!(zero.to_string().contains("INVALID_STREAM_OPTION"), "{zero}");
}

/// A table over a directory of CSV files, and a query over it.
async fn over_files(ctx: &StreamContext, folder: &Path) {
    run(
        ctx,
        &format!(
            "CREATE EXTERNAL TABLE files (ts TIMESTAMP, v BIGINT) STORED AS CSV LOCATION '{}/' OPTIONS ('format.has_header' 'false')",
            folder.display()
        ),
    )
    .await;
    run(
        ctx,
        "CREATE STREAMING TABLE q AS SELECT v FROM STREAM files WATERMARK ts DELAY OF INTERVAL 1 SECOND",
    )
    .await;
}

#[tokio::test]
async fn a_directory_is_looked_at_again() {
    let folder = tempfile::tempdir().unwrap();
    let (ctx, hands) = context();
    run(&ctx, "SET tidegate.poll_interval = 5000").await;
    over_files(&ctx, folder.path()).await;
    let mut changes = ctx.status_changes();
    ctx.start("q", None).await.unwrap();
    changes.changed().await.unwrap();
    changes.changed().await.unwrap();
    for (file, name) in ["a.csv", "b.csv"].into_iter().enumerate() {
        std::fs::write(folder.path().join(name), "2026-10-01T09:00:00,1\n").unwrap();
        hands.pass(4);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(read(&ctx).0, file as u64);
        one_run(&ctx, async { hands.pass(1) }).await;
        until(&ctx, || read(&ctx) == (file as u64 + 1, file + 1)).await;
    }
}

#[tokio::test]
async fn an_error_stops_its_query_alone_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (ctx, hands) = context();
    over_files(&ctx, folder.path()).await;
    run(&ctx, &format!("CREATE STREAMING TABLE other AS {WINDOWS}")).await;
    let (good, bad) = (folder.path().join("a.csv"), folder.path().join("b.csv"));
    std::fs::write(good, "2026-10-01T09:00:00,1\n").unwrap();
    ctx.start("other", None).await.unwrap();
    ctx.start("q", None).await.unwrap();
    until(&ctx, || read(&ctx).0 == 1).await;
    std::fs::write(&bad, "2026-10-01T09:00:00,two\n").unwrap();
    hands.pass(1);
    let failed = || matches!(ctx.status("q").unwrap(), QueryStatus::Failed(_));
    until(&ctx, failed).await;
    let error = ctx.status("q").unwrap().error().unwrap().to_owned();
    assert!(error.contains("b.csv"), "{error}");
    let shown = show(&ctx, "SHOW STREAMING TABLES").await;
    assert!(
        shown.contains("| failed ") && shown.contains("b.csv"),
        "{shown}"
    );
    assert!(shown.contains("| running | "), "{shown}");
    let outlook = ctx.outlook("q").await.unwrap();
    assert_eq!(outlook[0], ("status", format!("failed: {error}")));
    assert!(
        outlook
            .last()
            .unwrap()
            .1
            .contains("ALTER STREAMING TABLE q START")
    );
    ctx.append("t", rows(&[(1, 1)])).await.unwrap();
    until(&ctx, || ctx.progress("other").unwrap().len() == 1).await;
    // A start without a change fails again; behind the change every row is there once.
    ctx.start("q", None).await.unwrap();
    until(&ctx, failed).await;
    std::fs::write(&bad, "2026-10-01T09:00:00,2\n").unwrap();
    ctx.start("q", None).await.unwrap();
    until(&ctx, || read(&ctx).0 == 2).await;
    let table = show(&ctx, "SELECT count(*) AS n, sum(v) AS v FROM q").await;
    assert!(table.contains("| 2 | 3 |"), "{table}");
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Running);
}

#[tokio::test]
async fn a_panic_is_a_failure_of_its_query() {
    let (ctx, _) = context();
    let panics = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&panics);
    ctx.session().register_udf(create_udf(
        "fragile",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        Arc::new(move |values: &[ColumnarValue]| {
            assert!(!seen.load(Ordering::SeqCst), "it is fragile");
            Ok(values[0].clone())
        }),
    ));
    run(
        &ctx,
        "CREATE STREAMING TABLE q AS SELECT fragile(v) AS v FROM STREAM t",
    )
    .await;
    ctx.append("t", rows(&[(1, 1)])).await.unwrap();
    ctx.start("q", None).await.unwrap();
    until(&ctx, || ctx.status("q").unwrap().error().is_some()).await;
    let error = ctx.status("q").unwrap().error().unwrap().to_owned();
    assert!(error.contains("fragile"), "{error}");
    panics.store(false, Ordering::SeqCst);
    ctx.start("q", None).await.unwrap();
    until(&ctx, || read(&ctx) == (1, 1)).await;
}

#[tokio::test]
async fn what_takes_the_table_away_stops_its_query_first() {
    let (ctx, _) = context();
    define(&ctx).await;
    ctx.append("t", rows(&[(1, 1)])).await.unwrap();
    ctx.start("q", None).await.unwrap();
    until(&ctx, || read(&ctx).0 == 1).await;
    // FULL begins anew, and the query runs again behind it.
    run(&ctx, "REFRESH STREAMING TABLE q FULL").await;
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Running);
    assert_eq!(read(&ctx), (1, 1));
    ctx.append("t", rows(&[(2, 1)])).await.unwrap();
    until(&ctx, || read(&ctx) == (2, 2)).await;
    // Another query that goes on with the state: the task follows.
    run(
        &ctx,
        &format!("CREATE OR REFRESH STREAMING TABLE q AS {WINDOWS} HAVING sum(v) > 0"),
    )
    .await;
    ctx.append("t", rows(&[(30, 1)])).await.unwrap();
    until(&ctx, || read(&ctx).0 == 3).await;
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Running);
    run(
        &ctx,
        &format!("CREATE OR REPLACE STREAMING TABLE q AS {WINDOWS}"),
    )
    .await;
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Stopped);
    ctx.start("q", None).await.unwrap();
    run(&ctx, "DROP STREAMING TABLE q").await;
    assert!(ctx.statuses().is_empty());
    define(&ctx).await;
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Stopped);
}

#[tokio::test]
async fn a_statement_that_fails_or_is_abandoned_stops_no_query() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("foreign.csv"), "v\n1\n").unwrap();
    let (ctx, _) = context();
    define(&ctx).await;
    ctx.start("q", None).await.unwrap();
    let replace = format!(
        "CREATE OR REPLACE STREAMING TABLE q STORED AS CSV LOCATION '{}/' AS {WINDOWS}",
        folder.path().display()
    );
    let error = ctx.sql(&replace).await.unwrap_err().to_string();
    assert!(error.contains("[LOCATION_NOT_EMPTY]"), "{error}");
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Running);
    ctx.append("t", rows(&[(1, 1)])).await.unwrap();
    until(&ctx, || read(&ctx) == (1, 1)).await;
    // It waits until the task has ended, which is not before this one waits.
    let mut full = ctx.sql("REFRESH STREAMING TABLE q FULL");
    assert!(futures::poll!(&mut full).is_pending());
    drop(full);
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Running);
    ctx.append("t", rows(&[(2, 1)])).await.unwrap();
    until(&ctx, || read(&ctx) == (2, 2)).await;
}

/// Lets something come as far as it comes, which is not its end.
async fn comes_to_wait<T>(future: &mut (impl Future<Output = T> + Unpin)) {
    for _ in 0..100 {
        assert!(futures::poll!(&mut *future).is_pending());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_refresh_that_waits_goes_by_the_query_that_the_table_has_then() {
    let (ctx, _) = context();
    ctx.append("t", rows(&[(1, 1), (2, 2)])).await.unwrap();
    let (channel, sender) = hanging(&ctx);
    run(
        &ctx,
        "CREATE STREAMING TABLE q AS SELECT v FROM STREAM hanging",
    )
    .await;
    let mut first = ctx.refresh("q");
    while channel.receiver.lock().unwrap().is_some() {
        assert!(futures::poll!(&mut first).is_pending());
        tokio::task::yield_now().await;
    }
    let mut other =
        ctx.sql("CREATE OR REFRESH STREAMING TABLE q AS SELECT v * 10 AS v FROM STREAM t");
    comes_to_wait(&mut other).await;
    // Planned by the query that the table still has.
    let mut second = ctx.refresh("q");
    comes_to_wait(&mut second).await;
    drop(sender);
    let (first, other, second) = tokio::join!(first, other, second);
    first.unwrap();
    other.unwrap();
    second.unwrap();
    let epochs = ctx.progress("q").unwrap();
    let sources = epochs
        .iter()
        .map(|epoch| only(&epoch.sources).name.as_str());
    assert_eq!(sources.collect::<Vec<_>>(), ["hanging", "t", "t"]);
    let table = show(&ctx, "SELECT count(*) AS n, sum(v) AS v FROM q").await;
    assert!(table.contains("| 2 | 30 |"), "{table}");
}

#[tokio::test]
async fn a_query_that_waits_for_rows_waits_for_those_of_another_source_when_it_reads_that() {
    let (ctx, _) = context();
    ctx.create_table("u", schema()).unwrap();
    run(&ctx, "CREATE STREAMING TABLE q AS SELECT v FROM STREAM t").await;
    ctx.start("q", None).await.unwrap();
    ctx.append("t", rows(&[(1, 1)])).await.unwrap();
    until(&ctx, || read(&ctx).0 == 1).await;
    run(
        &ctx,
        "CREATE OR REFRESH STREAMING TABLE q AS SELECT v FROM STREAM u",
    )
    .await;
    ctx.append("u", rows(&[(1, 2)])).await.unwrap();
    until(&ctx, || read(&ctx).0 == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refreshes_by_hand_take_turns_with_a_query_that_runs() {
    let ctx = StreamContext::new().unwrap();
    ctx.create_table("t", schema()).unwrap();
    run(
        &ctx,
        &format!("CREATE STREAMING TABLE q WITH (max_rows_per_epoch = 7) AS {WINDOWS}"),
    )
    .await;
    ctx.start("q", None).await.unwrap();
    let hand = || async {
        for _ in 0..20 {
            ctx.refresh("q").await.unwrap();
        }
    };
    let writer = async {
        for ts in 0..200 {
            ctx.append("t", rows(&[(ts, 1), (ts, 1)])).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let switch = async {
        for _ in 0..10 {
            ctx.stop("q").await.unwrap();
            ctx.start("q", None).await.unwrap();
        }
    };
    tokio::join!(hand(), hand(), writer, switch);
    until(&ctx, || read(&ctx).0 == 400).await;
    let table = show(&ctx, "SELECT count(*) AS windows, sum(s) AS s FROM q").await;
    assert!(table.contains("| 19      | 380 |"), "{table}");
}

/// A table whose rows never come, and whether it is being read.
fn hanging(
    ctx: &StreamContext,
) -> (
    Arc<Channel>,
    mpsc::Sender<datafusion::arrow::array::RecordBatch>,
) {
    let (sender, receiver) = mpsc::channel(1);
    let channel = Arc::new(Channel {
        schema: schema(),
        receiver: Mutex::new(Some(receiver)),
    });
    let table = StreamingTable::try_new(schema(), vec![channel.clone()]).unwrap();
    ctx.session()
        .register_table("hanging", Arc::new(table))
        .unwrap();
    (channel, sender)
}

#[tokio::test]
async fn shutdown_waits_for_epochs_and_abandons_what_takes_too_long() {
    let (ctx, hands) = context();
    define(&ctx).await;
    ctx.append("t", rows(&[(1, 1)])).await.unwrap();
    let (channel, _sender) = hanging(&ctx);
    run(
        &ctx,
        "CREATE STREAMING TABLE h AS SELECT v FROM STREAM hanging",
    )
    .await;
    ctx.start("q", None).await.unwrap();
    ctx.start("h", None).await.unwrap();
    while channel.receiver.lock().unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    let mut shutdown = ctx.shutdown(Duration::from_secs(3));
    for _ in 0..100 {
        assert!(futures::poll!(&mut shutdown).is_pending());
        tokio::task::yield_now().await;
    }
    hands.pass(3);
    assert_eq!(shutdown.await, ["datafusion.public.h"]);
    let stopped = |(_, status): &(String, QueryStatus)| *status == QueryStatus::Stopped;
    assert!(ctx.statuses().iter().all(stopped));
    // What was asked for is all that is forgotten: each can be started again.
    ctx.start("q", None).await.unwrap();
    until(&ctx, || read(&ctx).0 == 1).await;
    assert!(ctx.shutdown(Duration::from_secs(3)).await.is_empty());
}

#[tokio::test]
async fn a_context_that_goes_leaves_no_task_in_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    let open = || async {
        let hands = Arc::new(Hands::default());
        let ctx = StreamContext::open(folder.path()).await.unwrap();
        ctx.with_ticker(hands)
    };
    let ctx = open().await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP(0), v BIGINT)").await;
    define(&ctx).await;
    run(
        &ctx,
        "INSERT INTO t VALUES ('1970-01-01T00:00:01', 1), ('1970-01-01T00:00:30', 2)",
    )
    .await;
    ctx.start("q", None).await.unwrap();
    until(&ctx, || read(&ctx).0 == 2).await;
    drop(ctx);
    // With its rows, and stopped.
    let ctx = open().await;
    assert_eq!(read(&ctx), (2, 1));
    assert_eq!(ctx.status("q").unwrap(), QueryStatus::Stopped);
    ctx.start("q", Some(Duration::from_secs(1))).await.unwrap();
    run(&ctx, "INSERT INTO t VALUES ('1970-01-01T00:01:00', 3)").await;
    // In the middle of its first run.
    assert!(ctx.shutdown(Duration::from_secs(1)).await.is_empty());
    drop(ctx);
    let ctx = open().await;
    ctx.refresh("q").await.unwrap();
    assert_eq!(read(&ctx).0, 3);
    let table = show(&ctx, "SELECT count(*) AS windows, sum(s) AS s FROM q").await;
    assert!(table.contains("| 2       | 3 |"), "{table}");
}

#[test]
fn without_a_runtime_nothing_starts() {
    let (ctx, _) = context();
    let error = futures::executor::block_on(async {
        define(&ctx).await;
        ctx.start("q", None).await.unwrap_err()
    });
    assert!(error.to_string().contains("runtime"), "{error}");
}
