//! What a query takes the time of day for: rows of the future, inputs that are idle, and event time that goes on
//! without rows. Time stands still but when a test moves it.
//!
//! | family | catches |
//! |---|---|
//! | the future | a row that moves the watermark though it is guarded, or is in no count; a cause that is named wrongly |
//! | idle inputs | one that holds the watermark for ever, one that lets go too early, an epoch that nobody runs |
//! | event time without rows | one out of order with the rows, one that wakes nobody |

use std::sync::Arc;

use datafusion::prelude::{SessionConfig, SessionContext};
use tidegate::context::StreamContext;
use tidegate::query::EpochProgress;
use tidegate::time::{Instant, Unit};

use super::hands::Hands;
use super::{WINDOWS, rows, schema, show};

/// A session with so many partitions, at a time, with tables `t` and `u`.
fn context_of(partitions: usize, hands: &Arc<Hands>) -> StreamContext {
    let config = SessionConfig::new().with_target_partitions(partitions);
    let ctx = StreamContext::over(SessionContext::new_with_config(config)).unwrap();
    let ctx = ctx.with_clock(hands.clone()).with_ticker(hands.clone());
    ctx.create_table("t", schema()).unwrap();
    ctx.create_table("u", schema()).unwrap();
    ctx
}

fn context(hands: &Arc<Hands>) -> StreamContext {
    context_of(2, hands)
}

async fn run(ctx: &StreamContext, sql: &str) {
    ctx.sql(sql).await.unwrap().collect().await.unwrap();
}

async fn epoch(ctx: &StreamContext) -> EpochProgress {
    ctx.refresh("q").await.unwrap().pop().unwrap()
}

async fn give(ctx: &StreamContext, table: &str, times: &[i64]) {
    let given: Vec<(i64, i64)> = times.iter().map(|ts| (*ts, 1)).collect();
    ctx.append(table, rows(&given)).await.unwrap();
}

/// A time of the first day of 1970, by its seconds, as it is shown.
fn at(seconds: i64) -> Option<String> {
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    Some(format!("1970-01-01T{hours:02}:{minutes:02}:{seconds:02}"))
}

/// The answers to a question of EXPLAIN STREAMING TABLE.
async fn answers(ctx: &StreamContext, question: &str) -> Vec<String> {
    let lines = ctx.outlook("q").await.unwrap();
    let asked = lines.into_iter().filter(|(asked, _)| *asked == question);
    asked.map(|(_, answer)| answer).collect()
}

#[tokio::test]
async fn a_row_of_the_future_is_set_aside_and_the_bound_itself_is_not() {
    for partitions in [1, 4] {
        let hands = Hands::at(1_000);
        let ctx = context_of(partitions, &hands);
        run(
            &ctx,
            &format!("CREATE STREAMING TABLE q WITH (max_future = '10 seconds') AS {WINDOWS}"),
        )
        .await;
        give(&ctx, "t", &[1_001, 1_011, 1_010, 99_999, 5]).await;
        let first = epoch(&ctx).await;
        assert_eq!((first.input_rows, first.guarded_rows), (5, 2));
        assert_eq!(first.watermark, at(1_010));
        assert_eq!((first.late_rows, first.open_rows), (0, 1));
        // Time has come for the one, and not for the other.
        hands.pass(1);
        give(&ctx, "t", &[1_011, 99_999, 1_009]).await;
        let second = epoch(&ctx).await;
        assert_eq!((second.guarded_rows, second.late_rows), (1, 1));
        assert_eq!(second.watermark, at(1_011));
        let table = show(&ctx, "SELECT sum(s) AS n FROM q").await;
        assert!(table.contains("| 2 |"), "{table}");
    }
}

#[tokio::test]
async fn every_row_has_one_fate_in_every_mode() {
    for mode in ["append", "update", "complete"] {
        let hands = Hands::at(500);
        let ctx = context(&hands);
        run(
            &ctx,
            &format!(
                "CREATE STREAMING TABLE q WITH (max_future = '0 seconds', output_mode = '{mode}', max_rows_per_epoch = 7) AS {}",
                WINDOWS.replace("0 SECONDS", "20 SECONDS")
            ),
        )
        .await;
        // Times go up to 999, and now is 500, later 700.
        let times: Vec<i64> = (0..300).map(|row| row * 7_919 % 1_000).collect();
        let mut all = Vec::new();
        for part in times.chunks(150) {
            give(&ctx, "t", part).await;
            all.extend(ctx.refresh("q").await.unwrap());
            hands.pass(200);
        }
        for progress in &all {
            let operators = progress.operators.iter();
            let fates: u64 = operators
                .map(|one| one.accepted_rows + one.late_rows + one.null_rows + one.rejected_rows)
                .sum();
            assert_eq!(progress.input_rows, fates + progress.guarded_rows, "{mode}");
        }
        let guarded: u64 = all.iter().map(|progress| progress.guarded_rows).sum();
        let (one, other) = times.split_at(150);
        let beyond = |times: &[i64], now| times.iter().filter(|ts| **ts > now).count() as u64;
        assert_eq!(guarded, beyond(one, 500) + beyond(other, 700), "{mode}");
        assert!(all.last().unwrap().watermark <= at(680), "{mode}");
    }
}

#[tokio::test]
async fn without_a_guard_the_event_time_of_the_future_is_named() {
    let hands = Hands::at(1_000);
    let ctx = context(&hands);
    let delayed = WINDOWS.replace("0 SECONDS", "1 MINUTE");
    run(&ctx, &format!("CREATE STREAMING TABLE q AS {delayed}")).await;
    give(&ctx, "t", &[900]).await;
    epoch(&ctx).await;
    // A clock that is ahead by less than the delay has done no harm yet.
    give(&ctx, "t", &[1_030]).await;
    epoch(&ctx).await;
    assert_eq!(answers(&ctx, "cause").await, [""; 0]);
    give(&ctx, "t", &[915]).await;
    epoch(&ctx).await;
    assert_eq!(
        answers(&ctx, "cause").await,
        [
            "the watermark stands at 1970-01-01T00:16:10 because of an event time of 1970-01-01T00:17:10 of t, seen in epoch 1, \
          and now it is 1970-01-01T00:16:40Z: 1 row has been late since; WITH (max_future = INTERVAL '1' HOUR) would \
          set such rows aside"
        ]
    );
    // A watermark of the future is harm, though no row has been late yet.
    give(&ctx, "t", &[50_000]).await;
    epoch(&ctx).await;
    let cause = answers(&ctx, "cause").await.pop().unwrap();
    assert!(
        cause.contains("of 1970-01-01T13:53:20 of t, seen in epoch 3, "),
        "{cause}"
    );
    assert!(cause.contains("0 rows have been late since"), "{cause}");
    let next = answers(&ctx, "next").await.pop().unwrap();
    assert!(
        next.contains("REFRESH STREAMING TABLE q FULL begins anew"),
        "{next}"
    );
    give(&ctx, "t", &[950, 1_000]).await;
    epoch(&ctx).await;
    let cause = answers(&ctx, "cause").await.pop().unwrap();
    assert!(cause.contains("2 rows have been late since"), "{cause}");
    // When its time has come it is no cause any more.
    hands.pass(50_000);
    assert_eq!(answers(&ctx, "cause").await, [""; 0]);
    let next = answers(&ctx, "next").await.pop().unwrap();
    assert!(next.starts_with("wait for a row of t"), "{next}");
}

/// Two inputs, of which the slower holds the watermark.
const BOTH: &str = "SELECT ts, v FROM STREAM t WATERMARK ts DELAY OF INTERVAL 0 SECONDS \
    UNION ALL SELECT ts, v FROM STREAM u WATERMARK ts DELAY OF INTERVAL 0 SECONDS";

/// Windows over both.
fn windows_of_both(with: &str) -> String {
    format!(
        "CREATE STREAMING TABLE q WITH ({with}) AS SELECT window.start AS start, sum(v) AS s \
         FROM ({BOTH}) GROUP BY window(ts, '10 seconds')"
    )
}

#[tokio::test]
async fn an_idle_input_does_not_hold_the_watermark_until_it_gives_rows_again() {
    let hands = Hands::at(0);
    let ctx = context(&hands);
    run(
        &ctx,
        &windows_of_both("idle_timeout = INTERVAL '60' SECOND"),
    )
    .await;
    give(&ctx, "t", &[100]).await;
    give(&ctx, "u", &[20]).await;
    assert_eq!(epoch(&ctx).await.watermark, at(20));
    hands.pass(30);
    give(&ctx, "t", &[200]).await;
    assert_eq!(epoch(&ctx).await.watermark, at(20));
    hands.pass(29);
    assert_eq!(epoch(&ctx).await.watermark, at(20));
    assert_eq!(answers(&ctx, "idle").await, [""; 0]);
    // u gave its last row 60 seconds ago, t 30.
    hands.pass(1);
    let idle = epoch(&ctx).await;
    assert_eq!(idle.watermark, at(200));
    assert_eq!(idle.clauses[0].idle_since, None);
    assert_eq!(
        idle.clauses[1].idle_since.as_deref(),
        Some("1970-01-01T00:00:00Z")
    );
    assert_eq!(
        answers(&ctx, "idle").await,
        ["ts of u: no row since 1970-01-01T00:00:00Z, so it does not hold the watermark"]
    );
    assert_eq!(
        answers(&ctx, "held by").await,
        ["ts of t: 1970-01-01T00:03:20 less 0 seconds"]
    );
    // It counts again at once; the watermark does not go back, and its row is late.
    give(&ctx, "u", &[30]).await;
    give(&ctx, "t", &[300]).await;
    let back = epoch(&ctx).await;
    assert_eq!((back.watermark, back.late_rows), (at(200), 1));
    assert_eq!(back.clauses[1].idle_since, None);
    give(&ctx, "u", &[250]).await;
    assert_eq!(epoch(&ctx).await.watermark, at(250));
}

#[tokio::test]
async fn an_input_that_has_never_given_anything_is_idle_too_and_if_all_are_the_watermark_stays() {
    let hands = Hands::at(0);
    let ctx = context(&hands);
    run(&ctx, "SET tidegate.idle_timeout = '60 seconds'").await;
    run(&ctx, &windows_of_both("checkpoints_kept = 2")).await;
    give(&ctx, "t", &[100]).await;
    assert_eq!(epoch(&ctx).await.watermark, None);
    hands.pass(60);
    give(&ctx, "t", &[110]).await;
    assert_eq!(epoch(&ctx).await.watermark, at(110));
    hands.pass(60);
    let idle = epoch(&ctx).await;
    assert_eq!(idle.watermark, at(110));
    assert!(idle.clauses.iter().all(|one| one.idle_since.is_some()));
    assert_eq!(
        answers(&ctx, "held by").await,
        ["no input: all are idle, and the watermark stays"]
    );
    // One row of either closes the next window.
    let closes = answers(&ctx, "closed by").await.pop().unwrap();
    assert!(closes.contains(" or a row of u "), "{closes}");
    give(&ctx, "u", &[130]).await;
    assert_eq!(epoch(&ctx).await.watermark, at(130));
}

#[tokio::test]
async fn a_streams_own_timeout_goes_before_and_one_without_holds_for_ever() {
    let hands = Hands::at(0);
    let ctx = context(&hands);
    let both = BOTH.replace(
        "STREAM u",
        "STREAM u WITH (idle_timeout = INTERVAL 5 SECONDS)",
    );
    run(&ctx, &format!("CREATE STREAMING TABLE q AS {both}")).await;
    give(&ctx, "u", &[50]).await;
    epoch(&ctx).await;
    // t has no timeout.
    hands.pass(1_000_000);
    assert_eq!(epoch(&ctx).await.watermark, None);
    give(&ctx, "t", &[70]).await;
    assert_eq!(epoch(&ctx).await.watermark, at(70));
}

/// Looks whenever something has changed.
async fn until(ctx: &StreamContext, is_so: impl Fn() -> bool) {
    let mut changes = ctx.status_changes();
    while !is_so() {
        changes.changed().await.unwrap();
    }
}

fn epochs(ctx: &StreamContext) -> usize {
    ctx.progress("q").unwrap().len()
}

fn watermark(ctx: &StreamContext) -> Option<String> {
    ctx.progress("q").unwrap().pop()?.watermark
}

#[tokio::test]
async fn a_started_query_runs_an_epoch_when_an_input_becomes_idle_and_no_other() {
    let hands = Hands::at(0);
    let ctx = context(&hands);
    run(&ctx, &windows_of_both("idle_timeout = '60 seconds'")).await;
    ctx.start("q", None).await.unwrap();
    give(&ctx, "u", &[10]).await;
    until(&ctx, || epochs(&ctx) == 1).await;
    hands.pass(40);
    give(&ctx, "t", &[100]).await;
    until(&ctx, || epochs(&ctx) == 2).await;
    assert_eq!(watermark(&ctx), at(10));
    hands.pass(19);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(epochs(&ctx), 2);
    hands.pass(1);
    until(&ctx, || epochs(&ctx) == 3).await;
    assert_eq!(watermark(&ctx), at(100));
    // The other one too, once; then there is nothing to wait for.
    hands.pass(40);
    until(&ctx, || epochs(&ctx) == 4).await;
    hands.pass(1_000);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(epochs(&ctx), 4);
    give(&ctx, "u", &[120]).await;
    until(&ctx, || epochs(&ctx) == 5).await;
    assert_eq!(watermark(&ctx), at(120));
    ctx.stop("q").await.unwrap();
}

fn second(seconds: i64) -> Instant {
    Unit::Second.instant(seconds)
}

#[tokio::test]
async fn event_time_goes_on_without_a_row_in_order_with_the_rows() {
    for partitions in [1, 4] {
        let ctx = context_of(partitions, &Hands::at(0));
        let delayed = WINDOWS.replace("0 SECONDS", "10 SECONDS");
        run(
            &ctx,
            &format!("CREATE STREAMING TABLE q WITH (max_rows_per_epoch = 2) AS {delayed}"),
        )
        .await;
        give(&ctx, "t", &[1, 2]).await;
        ctx.advance_event_time("t", second(40)).await.unwrap();
        // Rows behind it are judged by it, those before are not: 3 is late, 2 was not.
        give(&ctx, "t", &[3, 35]).await;
        let epochs = ctx.refresh("q").await.unwrap();
        let seen = |progress: &EpochProgress| {
            let watermark = progress.watermark.clone();
            (
                progress.input_rows,
                progress.late_rows,
                watermark,
                progress.output_rows,
            )
        };
        let seen: Vec<_> = epochs.iter().map(seen).collect();
        assert_eq!(seen, [(2, 0, at(30), 1), (2, 1, at(30), 0)]);
        assert_eq!(epochs[0].clauses[0].event_time_max, at(2));
        // It does not go back, and a later query takes it in the same order.
        ctx.advance_event_time("t", second(20)).await.unwrap();
        assert_eq!(epoch(&ctx).await.watermark, at(30));
        run(
            &ctx,
            &format!("CREATE STREAMING TABLE later WITH (max_rows_per_epoch = 2) AS {delayed}"),
        )
        .await;
        let late: Vec<u64> = ctx
            .refresh("later")
            .await
            .unwrap()
            .iter()
            .map(|one| one.late_rows)
            .collect();
        assert_eq!(late, [0, 1]);
    }
}

#[tokio::test]
async fn it_wakes_a_started_query_and_is_a_sign_of_life() {
    let hands = Hands::at(0);
    let ctx = context(&hands);
    run(&ctx, &windows_of_both("idle_timeout = '60 seconds'")).await;
    ctx.start("q", None).await.unwrap();
    give(&ctx, "u", &[100]).await;
    give(&ctx, "t", &[5]).await;
    until(&ctx, || watermark(&ctx) == at(5)).await;
    hands.pass(50);
    ctx.advance_event_time("t", second(50)).await.unwrap();
    until(&ctx, || watermark(&ctx) == at(50)).await;
    // u is idle at 60; t said something at 50.
    let before = epochs(&ctx);
    hands.pass(10);
    until(&ctx, || epochs(&ctx) > before).await;
    let last = ctx.progress("q").unwrap().pop().unwrap();
    assert_eq!(last.clauses[0].idle_since, None);
    assert!(last.clauses[1].idle_since.is_some());
    assert_eq!(last.watermark, at(50));
    ctx.stop("q").await.unwrap();
}

#[tokio::test]
async fn it_is_guarded_as_a_row_is_and_no_later_one_is_lost_by_it() {
    let hands = Hands::at(100);
    let ctx = context(&hands);
    run(
        &ctx,
        &format!("CREATE STREAMING TABLE q WITH (max_future = '10 seconds') AS {WINDOWS}"),
    )
    .await;
    ctx.advance_event_time("t", second(1_000)).await.unwrap();
    assert_eq!(epoch(&ctx).await.watermark, None);
    ctx.advance_event_time("t", second(105)).await.unwrap();
    assert_eq!(epoch(&ctx).await.watermark, at(105));
    hands.pass(890);
    assert_eq!(epoch(&ctx).await.watermark, at(1_000));
}

#[tokio::test]
async fn only_where_rows_have_an_order_of_arrival_event_time_goes_on_without_them() {
    let ctx = context(&Hands::at(0));
    run(&ctx, "CREATE VIEW v AS SELECT * FROM t").await;
    run(
        &ctx,
        &format!("CREATE STREAMING TABLE q WITH (output_mode = 'complete') AS {WINDOWS}"),
    )
    .await;
    run(
        &ctx,
        &format!("CREATE STREAMING TABLE appended AS {WINDOWS}"),
    )
    .await;
    for table in ["v", "q"] {
        let error = ctx.advance_event_time(table, second(1)).await.unwrap_err();
        assert!(
            error.to_string().contains("UNSUPPORTED_STREAM_SOURCE"),
            "{error}"
        );
    }
    assert!(ctx.advance_event_time("nope", second(1)).await.is_err());
    // The rows of a streaming table that are added to have one.
    run(
        &ctx,
        "CREATE STREAMING TABLE above AS SELECT s FROM STREAM appended WATERMARK start DELAY OF INTERVAL 0 SECONDS",
    )
    .await;
    ctx.advance_event_time("appended", second(7)).await.unwrap();
    let above = ctx.refresh("above").await.unwrap();
    assert_eq!(above[0].watermark, at(7));
}
