//! Rows of small epochs, which wait to be aggregated with those of later ones: the rows, counts and late rows are those
//! of a run in which none waits. A memory limit that is never reached is such a run.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{Array, BooleanArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::array::{ArrayRef, TimestampSecondArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::exec_err;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::{SessionConfig, SessionContext};
use tidegate::context::StreamContext;
use tidegate::query::EpochProgress;

const TUMBLING: &str = "window(ts, '10 seconds')";
const HOPPING: &str = "window(ts, '30 seconds', '10 seconds')";

/// An engine, and whether its function `fine` fails.
struct Engine {
    ctx: StreamContext,
    fails: Arc<AtomicBool>,
}

impl Engine {
    /// With the streaming table `q`, whose epochs have so many rows.
    async fn new(waits: bool, grouping: &str, epoch: usize) -> Self {
        let pool = Arc::new(GreedyMemoryPool::new(1 << 34));
        let builder = match waits {
            true => RuntimeEnvBuilder::new(),
            false => RuntimeEnvBuilder::new().with_memory_pool(pool),
        };
        let config = SessionConfig::new().with_target_partitions(2);
        let session = SessionContext::new_with_config_rt(config, builder.build_arc().unwrap());
        let fails = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&fails);
        let fine = move |arguments: &[ColumnarValue]| match flag.load(Ordering::SeqCst) {
            true => exec_err!("not fine"),
            false => {
                let rows = ColumnarValue::values_to_arrays(arguments)?[0].len();
                Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(vec![
                    true;
                    rows
                ]))))
            }
        };
        session.register_udf(create_udf(
            "fine",
            vec![DataType::Int64],
            DataType::Boolean,
            Volatility::Volatile,
            Arc::new(fine),
        ));
        let engine = Self {
            ctx: StreamContext::over(session).unwrap(),
            fails,
        };
        engine
            .run("CREATE TABLE t (ts TIMESTAMP(0), k BIGINT, name TEXT, v BIGINT)")
            .await;
        engine
            .run(&format!(
                "CREATE STREAMING TABLE q WITH (max_rows_per_epoch = {epoch}, late_rows = 'late') AS \
                 SELECT window.start AS start, k, name, count(*) AS n, sum(v) AS s, avg(v) AS mean, min(v) AS least, \
                 max(name) AS most \
                 FROM STREAM t WATERMARK ts DELAY OF INTERVAL 20 SECONDS \
                 GROUP BY {grouping}, k, name HAVING fine(count(*))"
            ))
            .await;
        engine
    }

    async fn run(&self, sql: &str) -> Vec<RecordBatch> {
        self.ctx.sql(sql).await.unwrap().collect().await.unwrap()
    }

    /// Rows of a series: ten of a second, out of order, one in 17 of them often too late, one in 31 without a time.
    async fn feed(&self, rows: Range<i64>) {
        self.feed_at(10, rows).await;
    }

    /// The same with so many of a second.
    async fn feed_at(&self, rate: i64, rows: Range<i64>) {
        let time = |row: i64| {
            let straggles = if row % 17 == 3 { row * 7 % 90 } else { 0 };
            (row % 31 != 5).then_some(100 + row / rate - row * 37 % 15 - straggles)
        };
        let columns: [ArrayRef; 4] = [
            Arc::new(rows.clone().map(time).collect::<TimestampSecondArray>()),
            Arc::new(
                rows.clone()
                    .map(|row| (row % 5 > 0).then_some(row % 5))
                    .collect::<Int64Array>(),
            ),
            Arc::new(
                rows.clone()
                    .map(|row| Some(format!("name {}", row % 3)))
                    .collect::<StringArray>(),
            ),
            Arc::new(
                rows.map(|row| (row % 9 != 4).then_some(row * 31 % 97))
                    .collect::<Int64Array>(),
            ),
        ];
        let schema = self.ctx.session().table("t").await.unwrap();
        let schema = Arc::clone(schema.schema().inner());
        let columns = columns.iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| {
            datafusion::arrow::compute::cast(column, field.data_type()).unwrap()
        });
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap();
        self.ctx.append("t", batch).await.unwrap();
    }

    /// What the table, its late rows and its epochs are.
    async fn all(&self, epochs: &[EpochProgress]) -> (String, String, Vec<[u64; 7]>) {
        let rows = self.run("SELECT * FROM q ORDER BY start, k, name, n").await;
        let late = self
            .run("SELECT * FROM late ORDER BY ts, k, name, v, _reason, _epoch")
            .await;
        let counts = epochs.iter().map(|epoch| {
            [
                epoch.input_rows,
                epoch.late_rows,
                epoch.null_rows,
                epoch.output_rows,
                epoch.open_windows,
                epoch.open_rows,
                epoch.epoch,
            ]
        });
        let text = |batches: &[RecordBatch]| pretty_format_batches(batches).unwrap().to_string();
        (text(&rows), text(&late), counts.collect())
    }
}

/// Two engines that are given the same rows: in one of them rows wait.
async fn pair(grouping: &str, epoch: usize) -> [Engine; 2] {
    [
        Engine::new(true, grouping, epoch).await,
        Engine::new(false, grouping, epoch).await,
    ]
}

#[tokio::test]
async fn rows_that_wait_are_counted_as_others_are() {
    // Few epochs, and more than batches may wait.
    for (epoch, rows) in [(7, 700), (20, 7_000), (1_000, 10_000)] {
        for grouping in [TUMBLING, HOPPING] {
            let (mut given, mut held) = (Vec::new(), Vec::new());
            for engine in pair(grouping, epoch).await {
                engine.feed(0..rows).await;
                let epochs = engine.ctx.refresh("q").await.unwrap();
                let all = engine.all(&epochs).await;
                assert!(all.1.contains("late"), "no row is late");
                held.push(epochs.iter().map(|epoch| epoch.open_groups).max());
                given.push(all);
            }
            // A row that waits is one of the state, and groups are counted in each run that they are in.
            assert!(
                held[0] != held[1] || epoch < 20,
                "no row has waited: {held:?}"
            );
        }
    }
}

#[tokio::test]
async fn large_epochs_between_small_ones_lose_nothing() {
    let mut given = Vec::new();
    for engine in pair(TUMBLING, 200_000).await {
        let (mut epochs, mut from) = (Vec::new(), 0);
        // The third has more rows than wait, and the others have more together than may.
        for rows in [10, 80_000, 140_000, 500, 130_000, 130_000, 3_000] {
            engine.feed_at(4_000, from..from + rows).await;
            from += rows;
            epochs.extend(engine.ctx.refresh("q").await.unwrap());
        }
        given.push(engine.all(&epochs).await);
    }
    assert!(given[0] == given[1], "other rows");
}

#[tokio::test]
async fn an_epoch_that_fails_leaves_the_rows_that_wait() {
    for grouping in [TUMBLING, HOPPING] {
        let mut given = Vec::new();
        for engine in pair(grouping, 100).await {
            let mut epochs = Vec::new();
            let mut failed = 0;
            for from in (0..3_000).step_by(150) {
                engine.feed(from..from + 150).await;
                engine.fails.store(from % 4 < 2, Ordering::SeqCst);
                match engine.ctx.refresh("q").await {
                    Ok(done) => epochs.extend(done),
                    // Windows had closed, and their rows been taken from those that wait.
                    Err(_) => failed += 1,
                }
                engine.fails.store(false, Ordering::SeqCst);
                epochs.extend(engine.ctx.refresh("q").await.unwrap());
            }
            assert!(failed > 5, "{failed} epochs have failed");
            let (rows, late, _) = engine.all(&epochs).await;
            given.push((rows, late));
        }
        assert!(given[0] == given[1], "{grouping}: other rows");
    }
}

#[tokio::test]
async fn rows_that_wait_are_among_the_rows_of_state() {
    let [engine, _] = pair(TUMBLING, 100).await;
    engine.feed(0..1_000).await;
    let epochs = engine.ctx.refresh("q").await.unwrap();
    let mut held = 0;
    for epoch in &epochs {
        let operator = &epoch.operators[0];
        held = held + operator.state_rows_added - operator.state_rows_removed;
        assert_eq!(operator.state_rows, held, "epoch {}", epoch.epoch);
    }
    // A limit from now on: what waited is aggregated at the end of the next epoch, and can go to disk.
    engine
        .run("SET datafusion.runtime.memory_limit = '1G'")
        .await;
    engine.feed(1_000..1_100).await;
    let epochs = engine.ctx.refresh("q").await.unwrap();
    engine.feed(1_100..1_200).await;
    let next = engine.ctx.refresh("q").await.unwrap();
    let rows = |epochs: &[EpochProgress]| epochs.last().unwrap().operators[0].state_rows;
    let (before, after) = (rows(&epochs), rows(&next));
    assert!(after < before, "{before} rows of state, then {after}");
}

#[tokio::test]
async fn batches_that_wait_for_good_are_at_most_256() {
    let ctx = StreamContext::new().unwrap();
    for sql in [
        "CREATE TABLE t (ts TIMESTAMP(0), k BIGINT, v BIGINT)",
        "CREATE STREAMING TABLE q AS SELECT window.start, k, sum(v) AS s FROM STREAM t \
         WATERMARK ts DELAY OF INTERVAL 1 HOUR GROUP BY window(ts, '10 seconds'), k",
    ] {
        ctx.sql(sql).await.unwrap().collect().await.unwrap();
    }
    let mut most = 0;
    for value in 0..400 {
        let sql = format!("INSERT INTO t VALUES (to_timestamp_seconds(1), 7, {value})");
        ctx.sql(&sql).await.unwrap().collect().await.unwrap();
        most = most.max(ctx.refresh("q").await.unwrap()[0].open_groups);
    }
    assert!((200..=257).contains(&most), "{most} rows of state");
    let last = "INSERT INTO t VALUES (to_timestamp_seconds(10000), 7, 0)";
    ctx.sql(last).await.unwrap().collect().await.unwrap();
    ctx.refresh("q").await.unwrap();
    let rows = ctx.sql("SELECT s FROM q").await.unwrap();
    let rows = rows.collect().await.unwrap();
    let rows = pretty_format_batches(&rows).unwrap().to_string();
    assert!(rows.contains("79800"), "{rows}");
}
