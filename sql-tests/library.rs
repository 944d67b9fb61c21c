//! The library as an application uses it: endless inputs, sessions of one's own, functions of one's
//! own, failures and what is left after them; queries that run by themselves; what time it is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

#[path = "library/clocks.rs"]
mod clocks;
#[path = "support/hands.rs"]
mod hands;
#[path = "library/memory.rs"]
mod memory;
#[path = "library/pictures.rs"]
mod pictures;
#[path = "library/small_epochs.rs"]
mod small_epochs;
#[path = "library/started.rs"]
mod started;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, TimestampSecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Volatility, create_udaf};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use tidegate::prelude::*;
use tokio::sync::mpsc;

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Second, None);
    Arc::new(Schema::new(vec![
        Field::new("ts", time, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

fn rows(rows: &[(i64, i64)]) -> RecordBatch {
    let times = TimestampSecondArray::from_iter_values(rows.iter().map(|(ts, _)| *ts));
    let values = Int64Array::from_iter_values(rows.iter().map(|(_, v)| *v));
    RecordBatch::try_new(schema(), vec![Arc::new(times), Arc::new(values)]).unwrap()
}

async fn show(ctx: &StreamContext, sql: &str) -> String {
    let batches = ctx.sql(sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// The one there is.
fn only<T: std::fmt::Debug>(all: &[T]) -> &T {
    match all {
        [one] => one,
        _ => panic!("one, not {all:?}"),
    }
}

const WINDOWS: &str = "SELECT window.start AS start, sum(v) AS s FROM STREAM t \
     WATERMARK ts DELAY OF INTERVAL 0 SECONDS GROUP BY window(ts, '10 seconds')";

/// A provider of one partition that gives what is sent to it, without end.
#[derive(Debug)]
struct Channel {
    schema: SchemaRef,
    receiver: Mutex<Option<mpsc::Receiver<RecordBatch>>>,
}

impl PartitionStream for Channel {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let receiver = self.receiver.lock().unwrap().take();
        let batches = futures::stream::unfold(receiver, |receiver| async move {
            let mut receiver = receiver?;
            let batch = receiver.recv().await?;
            Some((Ok(batch), Some(receiver)))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches,
        ))
    }
}

fn endless(ctx: &StreamContext) -> mpsc::Sender<RecordBatch> {
    let (sender, receiver) = mpsc::channel(16);
    let channel = Channel {
        schema: schema(),
        receiver: Mutex::new(Some(receiver)),
    };
    let table = StreamingTable::try_new(schema(), vec![Arc::new(channel)])
        .unwrap()
        .with_infinite_table(true);
    ctx.session().register_table("t", Arc::new(table)).unwrap();
    sender
}

#[tokio::test]
async fn an_endless_select_gives_windows_as_they_close_and_all_of_them_when_the_input_ends() {
    let ctx = StreamContext::new().unwrap();
    let sender = endless(&ctx);
    // The word STREAM may be left out: the scan is unbounded.
    let sql = WINDOWS.replace("STREAM t", "t");
    let mut windows = ctx.stream(&sql).await.unwrap();
    let sum = |batch: &RecordBatch| batch.column(1).as_primitive::<Int64Type>().value(0);
    sender.send(rows(&[(1, 5), (3, 6)])).await.unwrap();
    sender.send(rows(&[(12, 7)])).await.unwrap();
    assert_eq!(sum(&windows.next().await.unwrap().unwrap()), 11);
    sender.send(rows(&[(25, 1)])).await.unwrap();
    assert_eq!(sum(&windows.next().await.unwrap().unwrap()), 7);
    drop(sender);
    assert_eq!(sum(&windows.next().await.unwrap().unwrap()), 1);
    assert!(windows.next().await.is_none());
}

#[tokio::test]
async fn what_a_source_gives_once_is_not_counted_again() {
    let ctx = StreamContext::new().unwrap();
    let _sender = endless(&ctx);
    let create = format!("CREATE STREAMING TABLE q WITH (output_mode = 'complete') AS {WINDOWS}");
    ctx.sql(&create).await.unwrap();
    for call in ["recount", "audit", "correct"] {
        let asked = ctx.sql(&format!("SELECT * FROM {call}('q')")).await;
        let error = asked.unwrap().collect().await.unwrap_err().to_string();
        assert!(error.contains("RECOUNT_UNBOUNDED"), "{call}: {error}");
    }
}

#[tokio::test]
async fn what_a_query_reads_may_change_and_the_columns_of_its_late_rows_may_not() {
    let ctx = StreamContext::new().unwrap();
    for statement in [
        "CREATE TABLE t (id BIGINT, ts TIMESTAMP)",
        "CREATE TABLE names (id BIGINT, name VARCHAR)",
        "CREATE STREAMING TABLE q WITH (late_rows = 'q_late') AS SELECT window.start, count(*) AS n \
         FROM (SELECT t.id, ts, name FROM STREAM t JOIN names ON t.id = names.id) \
         WATERMARK ts DELAY OF INTERVAL 0 SECONDS GROUP BY window(ts, '1 minute')",
        "DROP TABLE names",
        "CREATE TABLE names (id BIGINT, name BIGINT)",
    ] {
        ctx.sql(statement).await.unwrap().collect().await.unwrap();
    }
    let error = ctx.refresh("q").await.unwrap_err().to_string();
    assert!(error.contains("[STREAMING_QUERY_CHANGED]"), "{error}");
    assert!(
        error.contains("The columns of datafusion.public.q_late were"),
        "{error}"
    );
}

#[tokio::test]
async fn a_query_that_asks_for_its_own_recount_is_refused_and_does_not_hang() {
    let ctx = StreamContext::new().unwrap();
    ctx.create_table("t", schema()).unwrap();
    ctx.append("t", rows(&[(1, 2), (25, 1)])).await.unwrap();
    for call in ["recount", "audit", "correct"] {
        let plain = WINDOWS.replace("sum(v) AS s", "count(*) AS n");
        let create = format!(
            "CREATE OR REPLACE STREAMING TABLE q WITH (output_mode = 'complete') AS {plain}"
        );
        ctx.sql(&create).await.unwrap();
        let joined = plain.replace(
            "GROUP BY",
            &format!("LEFT JOIN {call}('q') AS own ON own.start = ts GROUP BY"),
        );
        let create = format!(
            "CREATE OR REPLACE STREAMING TABLE q WITH (output_mode = 'complete') AS {joined}"
        );
        ctx.sql(&create).await.unwrap();
        // The call names the table that there was; planned again it names the one that there is.
        let refreshed = ctx.refresh("q").await;
        let error = refreshed.unwrap_err().to_string();
        assert!(
            error.contains("RECURSIVE_STREAMING_TABLE"),
            "{call}: {error}"
        );
    }
}

#[tokio::test]
async fn a_limit_over_an_endless_select_ends_it() {
    let ctx = StreamContext::new().unwrap();
    let sender = endless(&ctx);
    for ts in [1, 12, 25] {
        sender.send(rows(&[(ts, 1)])).await.unwrap();
    }
    let table = show(&ctx, &format!("{WINDOWS} LIMIT 2")).await;
    assert_eq!(table.lines().count(), 6, "{table}");
}

#[tokio::test]
async fn a_session_of_ones_own_keeps_its_tables_settings_and_functions() {
    let config = SessionConfig::new()
        .with_target_partitions(3)
        .with_batch_size(17);
    let session = SessionContext::new_with_config(config);
    session
        .sql("CREATE TABLE mine AS SELECT 42 AS answer")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let ctx = StreamContext::over(session.clone()).unwrap();
    assert!(show(&ctx, "SELECT answer FROM mine").await.contains("42"));
    assert_eq!(ctx.session().state().config().target_partitions(), 3);
    assert_eq!(ctx.session().state().config().batch_size(), 17);
    // The session itself knows streams now.
    ctx.create_table("t", schema()).unwrap();
    ctx.append("t", rows(&[(1, 2)])).await.unwrap();
    assert!(session.sql("SELECT * FROM mine").await.is_ok());
}

#[tokio::test]
async fn aggregates_of_ones_own_work_in_windows() {
    let ctx = StreamContext::new().unwrap();
    let last = create_udaf(
        "biggest",
        vec![DataType::Int64],
        Arc::new(DataType::Int64),
        Volatility::Immutable,
        Arc::new(|_| Ok(Box::new(Biggest(0)))),
        Arc::new(vec![DataType::Int64]),
    );
    ctx.session().register_udaf(last);
    ctx.create_table("t", schema()).unwrap();
    ctx.append("t", rows(&[(1, 4), (2, 9), (11, 3)]))
        .await
        .unwrap();
    let table = show(&ctx, &WINDOWS.replace("sum(v)", "biggest(v)")).await;
    assert!(table.contains("| 9 ") && table.contains("| 3 "), "{table}");
}

/// The greatest value above zero.
#[derive(Debug)]
struct Biggest(i64);

impl datafusion::logical_expr::Accumulator for Biggest {
    fn update_batch(&mut self, values: &[datafusion::arrow::array::ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
            self.0 = self.0.max(value);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<datafusion::common::ScalarValue> {
        Ok(self.0.into())
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }

    fn state(&mut self) -> Result<Vec<datafusion::common::ScalarValue>> {
        Ok(vec![self.0.into()])
    }

    fn merge_batch(&mut self, states: &[datafusion::arrow::array::ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

#[tokio::test]
async fn state_follows_a_change_of_partitions() {
    let ctx = StreamContext::new().unwrap();
    ctx.create_table("t", schema()).unwrap();
    let keyed = WINDOWS
        .replace("SELECT ", "SELECT v, count(*) AS n, ")
        .replace("GROUP BY ", "GROUP BY v, ");
    ctx.sql(&format!("CREATE STREAMING TABLE q AS {keyed}"))
        .await
        .unwrap();
    for (round, partitions) in [1, 4, 2, 3, 1].into_iter().enumerate() {
        ctx.sql(&format!(
            "SET datafusion.execution.target_partitions = {partitions}"
        ))
        .await
        .unwrap();
        let batch: Vec<(i64, i64)> = (0..50).map(|key| (round as i64, key)).collect();
        ctx.append("t", rows(&batch)).await.unwrap();
        ctx.refresh("q").await.unwrap();
    }
    ctx.append("t", rows(&[(60, 0)])).await.unwrap();
    let last = ctx.refresh("q").await.unwrap();
    assert_eq!(last[0].output_rows, 50);
    let table = show(
        &ctx,
        "SELECT count(*) AS groups, min(n) AS least, max(n) AS most FROM q",
    )
    .await;
    assert!(table.contains("| 50     | 5     | 5    |"), "{table}");
}

#[tokio::test]
async fn many_small_epochs_leave_one_group_not_one_a_epoch() {
    let ctx = StreamContext::new().unwrap();
    // Under a limit no row waits to be aggregated.
    show(&ctx, "SET datafusion.runtime.memory_limit = '1G'").await;
    ctx.create_table("t", schema()).unwrap();
    ctx.sql(&format!("CREATE STREAMING TABLE q AS {WINDOWS}"))
        .await
        .unwrap();
    let mut most = 0;
    for value in 0..200 {
        ctx.append("t", rows(&[(1, value)])).await.unwrap();
        most = most.max(ctx.refresh("q").await.unwrap()[0].open_groups);
    }
    assert!(most <= 40, "{most} rows of state for one group");
    ctx.append("t", rows(&[(30, 0)])).await.unwrap();
    ctx.refresh("q").await.unwrap();
    assert!(show(&ctx, "SELECT s FROM q").await.contains("19900"));
}

#[tokio::test]
async fn a_session_of_many_epochs_is_one_group_too() {
    let ctx = StreamContext::new().unwrap();
    ctx.create_table("t", schema()).unwrap();
    let sessions = WINDOWS.replace(
        "window(ts, '10 seconds')",
        "session_window(ts, '10 seconds')",
    );
    let sessions = sessions.replace("window.start AS start", "session_window.start AS start");
    ctx.sql(&format!("CREATE STREAMING TABLE q AS {sessions}"))
        .await
        .unwrap();
    let mut most = 0;
    for second in 0..200 {
        ctx.append("t", rows(&[(second, 1)])).await.unwrap();
        let epochs = ctx.refresh("q").await.unwrap();
        assert_eq!(epochs[0].open_windows, 1);
        most = most.max(epochs[0].open_groups);
    }
    assert!(most <= 40, "{most} rows of state for one session");
    ctx.append("t", rows(&[(1_000, 0)])).await.unwrap();
    ctx.refresh("q").await.unwrap();
    assert!(show(&ctx, "SELECT s FROM q").await.contains("200"));
}

#[tokio::test]
async fn a_progress_record_says_what_each_part_of_the_epoch_did() {
    let ctx = StreamContext::new().unwrap();
    ctx.create_table("t", schema()).unwrap();
    ctx.sql(&format!("CREATE STREAMING TABLE q AS {WINDOWS}"))
        .await
        .unwrap();
    ctx.append("t", rows(&[(1, 1), (2, 2), (25, 3)]))
        .await
        .unwrap();
    ctx.refresh("q").await.unwrap();
    ctx.append("t", rows(&[(3, 4), (40, 5)])).await.unwrap();
    let outlook = ctx.outlook("q").await.unwrap();
    assert!(outlook.contains(&("not read", "t: 2 rows".to_owned())));
    let epochs = ctx.refresh("q").await.unwrap();
    let epoch = only(&epochs);
    assert!(epoch.since_previous.is_some_and(|since| !since.is_zero()));
    assert!(epoch.input_rows_per_second().is_some_and(|rate| rate > 0.0));
    assert!(epoch.processed_rows_per_second() > 0.0);
    let phases = epoch.phases;
    let parts = phases.read + phases.absorb + phases.emit + phases.commit;
    assert!(parts > Duration::ZERO && parts <= epoch.duration);
    let source = only(&epoch.sources);
    assert_eq!(
        (source.name.as_str(), source.rows, source.skipped_records),
        ("t", 2, 0)
    );
    let clause = only(&epoch.clauses);
    assert_eq!(
        (clause.column.as_str(), clause.sources.as_str()),
        ("ts", "t")
    );
    assert_eq!((clause.rows, clause.null_rows), (2, 0));
    assert_eq!(
        clause.event_time_min.as_deref(),
        Some("1970-01-01T00:00:03")
    );
    assert_eq!(
        clause.event_time_max.as_deref(),
        Some("1970-01-01T00:00:40")
    );
    assert_eq!(
        clause.event_time_avg.as_deref(),
        Some("1970-01-01T00:00:21")
    );
    assert_eq!(clause.watermark, epoch.watermark);
    let operator = only(&epoch.operators);
    assert_eq!(operator.operator, "TimeWindowGate 0");
    let fates = [
        operator.accepted_rows,
        operator.late_rows,
        operator.null_rows,
        operator.rejected_rows,
    ];
    assert_eq!(fates.iter().sum::<u64>(), epoch.input_rows);
    assert_eq!(operator.late_rows, epoch.late_rows);
    assert_eq!(
        (
            operator.open_windows,
            operator.open_rows,
            operator.state_bytes
        ),
        (epoch.open_windows, epoch.open_rows, epoch.state_bytes)
    );
    assert_eq!(operator.state_rows, epoch.open_groups);
    assert!(operator.state_rows_added > 0 && operator.state_rows_removed > 0);
    assert!(operator.closes_at > epoch.watermark);
    assert!(epoch.watermark_before < epoch.watermark);
}

#[tokio::test]
async fn explain_analyze_tells_the_counts_of_a_run() {
    let ctx = StreamContext::new().unwrap();
    ctx.create_table("t", schema()).unwrap();
    ctx.append("t", rows(&[(25, 1), (40, 2), (3, 3)]))
        .await
        .unwrap();
    ctx.sql("SET tidegate.max_rows_per_epoch = 1")
        .await
        .unwrap();
    let plan = show(&ctx, &format!("EXPLAIN ANALYZE {WINDOWS}")).await;
    let counts = "output_rows=2, epochs=3, input_rows=3, late_rows=1, null_rows=0, rejected_rows=0";
    let told = |count: &str| plan.contains(count);
    assert!(counts.split(", ").all(told), "{plan}");
}

#[tokio::test]
async fn a_refresh_that_is_dropped_leaves_nothing_half_done() {
    let ctx = StreamContext::new().unwrap();
    ctx.create_table("t", schema()).unwrap();
    ctx.sql(&format!(
        "CREATE STREAMING TABLE q WITH (max_rows_per_epoch = 100) AS {WINDOWS}"
    ))
    .await
    .unwrap();
    let batch: Vec<(i64, i64)> = (0..20_000).map(|second| (second, 1)).collect();
    ctx.append("t", rows(&batch)).await.unwrap();
    for polls in 1..6 {
        let mut refresh = Box::pin(ctx.refresh("q"));
        for _ in 0..polls {
            if futures::poll!(&mut refresh).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    ctx.refresh("q").await.unwrap();
    let epochs = ctx.progress("q").unwrap();
    assert_eq!(
        epochs.iter().map(|epoch| epoch.input_rows).sum::<u64>(),
        20_000
    );
    assert_eq!(epochs.iter().map(|epoch| epoch.late_rows).sum::<u64>(), 0);
    let table = show(&ctx, "SELECT count(*) AS windows, sum(s) AS rows FROM q").await;
    assert!(table.contains("| 1999    | 19990 |"), "{table}");
}

#[tokio::test]
async fn a_stream_of_a_streaming_table_reads_what_it_emits() {
    let ctx = StreamContext::new().unwrap();
    ctx.create_table("t", schema()).unwrap();
    ctx.sql(&format!("CREATE STREAMING TABLE q AS {WINDOWS}"))
        .await
        .unwrap();
    ctx.sql(
        "CREATE STREAMING TABLE r AS SELECT window.start AS minute, sum(s) AS s FROM STREAM q \
         WATERMARK start DELAY OF INTERVAL 0 SECONDS GROUP BY window(start, '1 minute')",
    )
    .await
    .unwrap();
    ctx.append("t", rows(&[(1, 1), (15, 2), (70, 3), (95, 4)]))
        .await
        .unwrap();
    ctx.refresh("q").await.unwrap();
    let epochs = ctx.refresh("r").await.unwrap();
    assert_eq!((epochs[0].input_rows, epochs[0].output_rows), (3, 1));
    assert!(
        show(&ctx, "SELECT * FROM r")
            .await
            .contains("1970-01-01T00:00:00 | 3")
    );
    let error = ctx
        .sql("DROP STREAMING TABLE q")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("SOURCE_IN_USE"), "{error}");
}

#[tokio::test]
async fn partitions_do_not_make_state_larger() {
    let mut sizes = Vec::new();
    for partitions in [1, 8, 3] {
        let ctx = StreamContext::new().unwrap();
        let set = format!("SET datafusion.execution.target_partitions = {partitions}");
        ctx.sql(&set).await.unwrap().collect().await.unwrap();
        let rows = "CREATE TABLE t AS SELECT value AS v, TIMESTAMP '2026-10-01T09:00:00' AS ts FROM range(0, 20000)";
        ctx.sql(rows).await.unwrap().collect().await.unwrap();
        ctx.sql(
            "CREATE STREAMING TABLE q AS SELECT window.start AS start, v, count(*) AS n
             FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 SECOND GROUP BY window(ts, '10 seconds'), v",
        )
        .await
        .unwrap();
        let first = ctx.refresh("q").await.unwrap()[0].clone();
        // And none the larger when they are parted anew.
        let set = "SET datafusion.execution.target_partitions = 5";
        ctx.sql(set).await.unwrap().collect().await.unwrap();
        let second = ctx.refresh("q").await.unwrap()[0].clone();
        assert_eq!((first.open_groups, second.open_groups), (20_000, 20_000));
        sizes.extend([first.state_bytes, second.state_bytes]);
    }
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*most < 2 * least, "{sizes:?} bytes");
}
