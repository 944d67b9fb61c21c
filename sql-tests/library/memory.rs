//! State under a memory limit: the rows of an unlimited run, or an error that names the operator and the setting.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray, TimestampSecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use tidegate::context::StreamContext;
use tidegate::query::EpochProgress;

/// What a query groups by, and its name in a test.
const TUMBLING: &str = "window(ts, '10 seconds'), k";
const HOPPING: &str = "window(ts, '20 seconds', '10 seconds'), k";
const SESSIONS: &str = "session_window(ts, '5 seconds'), k";

/// A limit that no test reaches.
const ROOM: usize = 1 << 34;

/// A day: no window closes before the row that ends the test.
const DELAY: &str = "INTERVAL 1 DAY";

fn runtime(limit: Option<usize>, disk: DiskManagerMode) -> Arc<RuntimeEnv> {
    let disk = DiskManagerBuilder::default().with_mode(disk);
    let mut builder = RuntimeEnvBuilder::new().with_disk_manager_builder(disk);
    if let Some(limit) = limit {
        builder = builder.with_memory_pool(Arc::new(GreedyMemoryPool::new(limit)));
    }
    builder.build_arc().unwrap()
}

/// Batches as small as the limits of a test: an aggregate of DataFusion's has some in hand.
fn config(partitions: usize) -> SessionConfig {
    let config = SessionConfig::new().with_target_partitions(partitions);
    config.with_batch_size(512)
}

/// A session with so many bytes of memory and so many partitions.
fn session(limit: Option<usize>, partitions: usize) -> SessionContext {
    let runtime = runtime(limit, DiskManagerMode::OsTmpDirectory);
    let config = config(partitions);
    SessionContext::new_with_config_rt(config, runtime)
}

async fn run(ctx: &StreamContext, sql: &str) {
    ctx.sql(sql).await.unwrap().collect().await.unwrap();
}

/// The table `t` and the streaming table `q` over it.
async fn create(ctx: &StreamContext, grouping: &str, with: &str) {
    create_of(ctx, grouping, with, "min(v) AS m").await;
}

async fn create_of(ctx: &StreamContext, grouping: &str, with: &str, more: &str) {
    run(ctx, "CREATE TABLE t (ts TIMESTAMP, k TEXT, v BIGINT)").await;
    let sql = format!(
        "CREATE STREAMING TABLE q WITH ({with}) AS \
         SELECT window.start AS start, k, count(*) AS n, sum(v) AS s, {more} \
         FROM STREAM t WATERMARK ts DELAY OF {DELAY} GROUP BY {grouping}"
    );
    run(ctx, &sql.replace("window.start", bound(grouping))).await;
}

fn bound(grouping: &str) -> &str {
    match grouping {
        SESSIONS => "session_window.start",
        _ => "window.start",
    }
}

/// Rows `from..to` of a series in which about two rows share a group, over so many seconds. Keys are short: for
/// long ones DataFusion's tables take blocks of 2 MiB each, more than the limits here.
async fn feed(ctx: &StreamContext, rows: std::ops::Range<i64>, keys: i64, seconds: i64) {
    let key = |row: i64| row % keys;
    for from in rows.clone().step_by(8_192) {
        let rows = from..rows.end.min(from + 8_192);
        let times = rows.clone().map(|row| (key(row) * 7_919) % seconds);
        let texts = rows.clone().map(|row| Some(format!("k{}", key(row))));
        let values = Int64Array::from_iter_values(rows.clone().map(|row| row % 97));
        append(ctx, times.collect(), texts.collect(), values).await;
    }
}

async fn append(ctx: &StreamContext, times: Vec<i64>, texts: StringArray, values: Int64Array) {
    let schema = ctx.session().table("t").await.unwrap();
    let schema = Arc::clone(schema.schema().inner());
    let times = TimestampSecondArray::from(times);
    let columns: [Arc<dyn datafusion::arrow::array::Array>; 3] =
        [Arc::new(times), Arc::new(texts), Arc::new(values)];
    let columns = columns.iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()).unwrap());
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap();
    ctx.append("t", batch).await.unwrap();
}

/// A row so late that every window before it closes.
async fn close(ctx: &StreamContext) {
    let (texts, values) = (StringArray::from(vec!["end"]), Int64Array::from(vec![0]));
    append(ctx, vec![1_000_000], texts, values).await;
}

/// The rows of the result as texts, in order.
async fn rows(ctx: &StreamContext) -> Vec<String> {
    let batches = ctx.session().sql("SELECT * FROM q").await.unwrap();
    let batches = batches.collect().await.unwrap();
    let mut rows = Vec::new();
    for batch in batches {
        let options = FormatOptions::default();
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
            .collect();
        rows.extend((0..batch.num_rows()).map(|row| {
            let cells = columns.iter().map(|column| column.value(row).to_string());
            cells.collect::<Vec<_>>().join(" ")
        }));
    }
    rows.sort_unstable();
    rows
}

/// What a run gave: its rows, the most bytes that it held in memory and on disk, and how long it took.
struct Given {
    rows: Vec<String>,
    held: u64,
    spilled: u64,
    seconds: f64,
}

fn most(epochs: &[EpochProgress], of: impl Fn(&EpochProgress) -> u64) -> u64 {
    epochs.iter().map(of).max().unwrap_or_default()
}

/// Feeds all rows, then closes all windows.
async fn whole(
    limit: Option<usize>,
    partitions: usize,
    grouping: &str,
    with: &str,
    count: i64,
) -> Result<Given> {
    let ctx = StreamContext::over(session(limit, partitions)).unwrap();
    create(&ctx, grouping, with).await;
    feed(&ctx, 0..count, count / 2, 400).await;
    let began = Instant::now();
    let epochs = ctx.refresh("q").await?;
    close(&ctx).await;
    let last = ctx.refresh("q").await?;
    let seconds = began.elapsed().as_secs_f64();
    let last = last.last().unwrap();
    // The last row may be on disk, and nothing else.
    assert!(last.open_rows == 1 && last.state_spilled_bytes < 4_096);
    for epoch in &epochs {
        let operators = epoch.operators.iter();
        let spilled: u64 = operators.map(|one| one.state_spilled_bytes).sum();
        assert_eq!(epoch.state_spilled_bytes, spilled);
    }
    let read: u64 = epochs.iter().map(|epoch| epoch.input_rows).sum();
    assert_eq!(epochs.last().unwrap().open_rows, read);
    let files = ctx.session().runtime_env().spilling_progress();
    assert!(files.active_files_count <= 1, "files are left");
    Ok(Given {
        rows: rows(&ctx).await,
        held: most(&epochs, |epoch| epoch.state_bytes),
        spilled: most(&epochs, |epoch| epoch.state_spilled_bytes),
        seconds,
    })
}

/// A state of four times the limit gives the rows of an unlimited run.
async fn four_times(grouping: &str, with: &str, count: i64) {
    for partitions in [1, 4] {
        let free = whole(None, partitions, grouping, with, count)
            .await
            .unwrap();
        assert_eq!(free.spilled, 0);
        let limit = usize::try_from(free.held / 4).unwrap();
        let tight = whole(Some(limit), partitions, grouping, with, count).await;
        let tight = tight.unwrap();
        eprintln!(
            "{grouping}, {with}, {partitions} partitions: {} bytes, limit {limit}: {:.2} s free, {:.2} s tight; {} held, {} on disk",
            free.held, free.seconds, tight.seconds, tight.held, tight.spilled
        );
        assert!(tight.spilled > 0 && tight.held <= limit as u64);
        assert!(
            tight.rows == free.rows,
            "{partitions} partitions: other rows"
        );
    }
}

#[tokio::test]
async fn windows_of_four_times_the_memory_come_out_as_without_a_limit() {
    four_times(TUMBLING, "max_rows_per_epoch = 20000", 200_000).await;
}

#[tokio::test]
async fn so_they_do_when_they_have_come_in_one_epoch() {
    four_times(TUMBLING, "max_rows_per_epoch = 1000000", 200_000).await;
}

#[tokio::test]
async fn so_do_hopping_windows() {
    four_times(HOPPING, "max_rows_per_epoch = 20000", 200_000).await;
}

/// Figures: `cargo test --release --test library -- --ignored --nocapture memory`.
#[tokio::test]
#[ignore = "a measurement"]
async fn the_time_that_spilling_takes() {
    for grouping in [TUMBLING, HOPPING] {
        for _ in 0..3 {
            four_times(grouping, "max_rows_per_epoch = 100000", 2_000_000).await;
        }
    }
}

async fn open(dir: &Path, limit: Option<usize>, partitions: usize) -> StreamContext {
    StreamContext::open_over(session(limit, partitions), dir)
        .await
        .unwrap()
}

#[tokio::test]
async fn spilled_state_is_in_the_checkpoint_and_comes_back_under_the_limit() {
    let count = 200_000;
    let with = "max_rows_per_epoch = 20000";
    let free = whole(None, 2, TUMBLING, with, count).await.unwrap();
    // Without a limit rows wait as they are, and take less than the states that a checkpoint has.
    let states = whole(Some(ROOM), 2, TUMBLING, with, count).await.unwrap();
    let limit = Some(usize::try_from(states.held / 4).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(dir.path(), limit, 2).await;
    create(&ctx, TUMBLING, with).await;
    feed(&ctx, 0..count / 2, count / 2, 400).await;
    let epochs = ctx.refresh("q").await.unwrap();
    assert!(epochs.last().unwrap().state_spilled_bytes > 0);
    drop(ctx);
    // With another number of partitions too.
    let ctx = open(dir.path(), limit, 3).await;
    feed(&ctx, count / 2..count, count / 2, 400).await;
    let epochs = ctx.refresh("q").await.unwrap();
    let last = epochs.last().unwrap();
    assert!(last.state_spilled_bytes > 0);
    assert_eq!(last.open_rows, u64::try_from(count).unwrap());
    drop(ctx);
    let ctx = open(dir.path(), limit, 2).await;
    close(&ctx).await;
    ctx.refresh("q").await.unwrap();
    assert!(rows(&ctx).await == free.rows, "other rows");
}

/// Whether an error says which operator had no memory, and what can be changed.
fn names(error: &str, operator: &str) -> bool {
    [
        operator,
        "memory",
        "--memory-limit",
        "datafusion.runtime.memory_limit",
    ]
    .iter()
    .all(|part| error.contains(part))
}

/// Refreshes until the memory does not suffice: nothing of the failed epoch stays, and with more memory
/// the rows are those of an unlimited run.
async fn fails_by_name(ctx: &StreamContext, operator: &str, free: &[String]) {
    let error = ctx.refresh("q").await.unwrap_err().to_string();
    assert!(names(&error, operator), "{error}");
    let epochs = ctx.progress("q").unwrap();
    let read: u64 = epochs.iter().map(|epoch| epoch.input_rows).sum();
    assert_eq!(epochs.last().map_or(0, |epoch| epoch.open_rows), read);
    run(ctx, "SET datafusion.runtime.memory_limit = '1G'").await;
    ctx.refresh("q").await.unwrap();
    close(ctx).await;
    ctx.refresh("q").await.unwrap();
    assert!(rows(ctx).await == free, "other rows");
}

#[tokio::test]
async fn without_memory_or_disk_the_epoch_fails_by_name_and_can_be_tried_again() {
    let with = "max_rows_per_epoch = 5000";
    for (grouping, disk) in [
        (TUMBLING, DiskManagerMode::Disabled),
        (SESSIONS, DiskManagerMode::OsTmpDirectory),
    ] {
        let free = whole(None, 2, grouping, with, 50_000).await.unwrap();
        let config = config(2);
        let runtime = runtime(Some(usize::try_from(free.held / 3).unwrap()), disk);
        let session = SessionContext::new_with_config_rt(config, runtime);
        let ctx = StreamContext::over(session).unwrap();
        create(&ctx, grouping, with).await;
        feed(&ctx, 0..50_000, 25_000, 400).await;
        fails_by_name(&ctx, "TimeWindowGate 0", &free.rows).await;
    }
}

#[tokio::test]
async fn keys_of_a_deduplication_stay_in_memory_and_say_so() {
    let ctx = StreamContext::over(session(Some(1_000_000), 2)).unwrap();
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, k TEXT, v BIGINT)").await;
    run(
        &ctx,
        &format!(
            "CREATE STREAMING TABLE q AS \
             SELECT DISTINCT ON (k) k, ts FROM STREAM t WATERMARK ts DELAY OF {DELAY}"
        ),
    )
    .await;
    feed(&ctx, 0..50_000, 50_000, 400).await;
    let error = ctx.refresh("q").await.unwrap_err().to_string();
    assert!(names(&error, "Deduplicate 0"), "{error}");
}

/// Numbers that are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[tokio::test]
async fn under_any_limit_an_epoch_fails_by_name_or_its_rows_are_right() {
    let mut passed = 0;
    for seed in 0..24 {
        let mut numbers = Numbers(seed);
        let grouping = [TUMBLING, HOPPING, SESSIONS][numbers.below(3) as usize];
        let modes: &[&str] = match grouping {
            SESSIONS => &["append", "complete"],
            _ => &["append", "append", "update", "complete"],
        };
        let mode = modes[numbers.below(modes.len() as u64) as usize];
        let with = format!(
            "max_rows_per_epoch = {}, output_mode = '{mode}'",
            500 + numbers.below(8_000)
        );
        let count = 4_000 + i64::try_from(numbers.below(20_000)).unwrap();
        let partitions = 1 + numbers.below(4) as usize;
        let limit = 40_000 + numbers.below(3_000_000) as usize;
        let more = ["count(DISTINCT v) AS d", "max(k) AS m", "avg(v) AS a"];
        let more = more[numbers.below(3) as usize];
        let what = format!(
            "seed {seed}: {grouping} {with}, {more}, {count} rows, {partitions} partitions, limit {limit}"
        );
        let mut results = Vec::new();
        for limit in [None, Some(limit)] {
            let ctx = StreamContext::over(session(limit, partitions)).unwrap();
            create_of(&ctx, grouping, &with, more).await;
            feed(&ctx, 0..count, count / 2, 400).await;
            let mut failed = false;
            for step in 0..2 {
                while let Err(error) = ctx.refresh("q").await {
                    let error = error.to_string();
                    assert!(names(&error, ""), "{what}: {error}");
                    assert!(!failed, "{what}: with memory too: {error}");
                    failed = true;
                    run(&ctx, "SET datafusion.runtime.memory_limit = '1G'").await;
                }
                if step == 0 {
                    close(&ctx).await;
                }
            }
            if limit.is_some() {
                eprintln!("{what}: {}", if failed { "failed" } else { "passed" });
            }
            passed += u64::from(limit.is_some() && !failed);
            results.push(rows(&ctx).await);
        }
        assert!(results[0] == results[1], "{what}: other rows");
    }
    assert!(passed >= 6, "{passed} passed");
}
