use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use tidegate::sink::Sink;
use tokio::sync::Notify;

use super::*;

/// Rows by query and epoch; it can be told to fail.
#[derive(Debug, Default)]
pub(super) struct Memory {
    held: Mutex<BTreeMap<(String, u64), usize>>,
    fails: Mutex<u32>,
    calls: Mutex<Vec<String>>,
}

#[async_trait]
impl Sink for Memory {
    async fn begin(&self, query: &str, next: u64) -> Result<()> {
        self.calls.lock().unwrap().push(format!("begin {next}"));
        self.held
            .lock()
            .unwrap()
            .retain(|(of, epoch), _| of != query || *epoch < next);
        Ok(())
    }

    async fn deliver(
        &self,
        query: &str,
        epoch: u64,
        _schema: &SchemaRef,
        rows: &[RecordBatch],
    ) -> Result<()> {
        self.calls.lock().unwrap().push(format!("deliver {epoch}"));
        let mut fails = self.fails.lock().unwrap();
        if *fails > 0 {
            *fails -= 1;
            return Err(DataFusionError::Execution("the sink is full".to_owned()));
        }
        let rows = rows.iter().map(RecordBatch::num_rows).sum();
        self.held
            .lock()
            .unwrap()
            .insert((query.to_owned(), epoch), rows);
        Ok(())
    }
}

impl Memory {
    fn rows(&self) -> Vec<usize> {
        self.held.lock().unwrap().values().copied().collect()
    }
}

const ROWS: &str = "INSERT INTO t VALUES ('2026-03-02 10:01:00', 1), ('2026-03-02 10:12:00', 2)";

#[tokio::test]
async fn a_sink_that_fails_gets_the_rows_again_over_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(Memory::default());
    let ctx = open(dir.path()).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    let create = "CREATE STREAMING TABLE q WITH (sink = 'mine', max_rows_per_epoch = '1') AS SELECT v FROM STREAM t";
    assert!(refused(&ctx, create).await.contains("[SINK_NOT_FOUND]"));
    ctx.register_sink("mine", Arc::clone(&sink) as _);
    run(&ctx, create).await;
    run(&ctx, ROWS).await;
    *sink.fails.lock().unwrap() = 1;
    assert!(
        refused(&ctx, "REFRESH STREAMING TABLE q")
            .await
            .contains("the sink is full")
    );
    // The epoch has committed, its rows wait.
    *sink.fails.lock().unwrap() = 1;
    assert!(
        refused(&ctx, "REFRESH STREAMING TABLE q")
            .await
            .contains("the sink is full")
    );
    assert!(sink.rows().is_empty());
    drop(ctx);
    let session = SessionContext::new();
    let ctx = StreamContext::open_over(session, dir.path()).await.unwrap();
    ctx.register_sink("mine", Arc::clone(&sink) as _);
    ctx.open_rest().await.unwrap();
    assert!(ctx.unopened().is_empty());
    assert_eq!(sink.rows(), [1]);
    ctx.refresh("q").await.unwrap();
    assert_eq!(sink.rows(), [1, 1]);
    assert!(
        refused(&ctx, "SELECT * FROM q")
            .await
            .contains("[ROWS_ARE_IN_SINK]")
    );
    assert_eq!(run(&ctx, "SELECT * FROM emitted('q')").await, ["2"]);
}

#[tokio::test]
async fn in_memory_too_the_rows_of_a_failed_delivery_come_first() {
    let sink = Arc::new(Memory::default());
    let ctx = StreamContext::new().unwrap();
    ctx.register_sink("mine", Arc::clone(&sink) as _);
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    run(
        &ctx,
        "CREATE STREAMING TABLE q WITH (sink = 'mine') AS SELECT v FROM STREAM t",
    )
    .await;
    run(&ctx, ROWS).await;
    *sink.fails.lock().unwrap() = 1;
    refused(&ctx, "REFRESH STREAMING TABLE q").await;
    run(&ctx, "INSERT INTO t VALUES (NULL, 3)").await;
    ctx.refresh("q").await.unwrap();
    assert_eq!(sink.rows(), [2, 1]);
    // The sink looks again at what it has before it gets them.
    let calls = ["begin 0", "deliver 0", "begin 1", "deliver 0", "deliver 1"];
    assert_eq!(*sink.calls.lock().unwrap(), calls);
}

/// A sink that begins when it may.
#[derive(Debug, Default)]
struct Slow {
    memory: Memory,
    is_asked: AtomicBool,
    may: Notify,
}

#[async_trait]
impl Sink for Slow {
    async fn begin(&self, query: &str, next: u64) -> Result<()> {
        // Whoever asks next is not kept waiting, and would come before the first.
        if !self.is_asked.swap(true, Ordering::SeqCst) {
            self.may.notified().await;
        }
        self.memory.begin(query, next).await
    }

    async fn deliver(
        &self,
        query: &str,
        epoch: u64,
        schema: &SchemaRef,
        rows: &[RecordBatch],
    ) -> Result<()> {
        self.memory.deliver(query, epoch, schema, rows).await
    }
}

#[tokio::test]
async fn nothing_is_delivered_while_a_sink_is_told_where_to_begin() {
    let sink = Arc::new(Slow::default());
    let ctx = StreamContext::new().unwrap();
    ctx.register_sink("mine", Arc::clone(&sink) as _);
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    run(&ctx, ROWS).await;
    let mut create =
        ctx.sql("CREATE STREAMING TABLE q WITH (sink = 'mine') AS SELECT v FROM STREAM t");
    while !sink.is_asked.load(Ordering::SeqCst) {
        assert!(futures::poll!(&mut create).is_pending());
        tokio::task::yield_now().await;
    }
    let mut refresh = ctx.refresh("q");
    for _ in 0..100 {
        assert!(futures::poll!(&mut refresh).is_pending());
        tokio::task::yield_now().await;
    }
    sink.may.notify_one();
    create.await.unwrap();
    refresh.await.unwrap();
    assert_eq!(*sink.memory.calls.lock().unwrap(), ["begin 0", "deliver 0"]);
    assert_eq!(sink.memory.rows(), [2]);
}

#[tokio::test]
async fn a_directory_has_each_row_once_and_full_writes_it_anew() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ctx = open(&dir.path().join("db")).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    let create = format!(
        "CREATE STREAMING TABLE q STORED AS PARQUET LOCATION '{}/' PARTITIONED BY (day) AS SELECT v, CAST(ts AS DATE) AS day FROM STREAM t",
        out.display()
    );
    run(&ctx, &create).await;
    run(&ctx, ROWS).await;
    run(&ctx, "INSERT INTO t VALUES ('2026-03-03 00:00:00', 3)").await;
    ctx.refresh("q").await.unwrap();
    let rows = ["1 2026-03-02", "2 2026-03-02", "3 2026-03-03"];
    assert_eq!(run(&ctx, "SELECT v, day FROM q").await, rows);
    let ctx = ctx.reopen().await.unwrap();
    run(&ctx, "INSERT INTO t VALUES ('2026-03-03 00:00:00', 4)").await;
    ctx.refresh("q").await.unwrap();
    assert_eq!(
        run(&ctx, "SELECT v FROM q WHERE day = '2026-03-03'").await,
        ["3", "4"]
    );
    assert_eq!(
        run(&ctx, "SELECT rows FROM (SELECT count(*) AS rows FROM q)").await,
        ["4"]
    );
    run(&ctx, "REFRESH STREAMING TABLE q FULL").await;
    assert_eq!(run(&ctx, "SELECT count(*), sum(v) FROM q").await, ["4 10"]);
    run(&ctx, &create.replace("CREATE", "CREATE OR REPLACE")).await;
    assert_eq!(run(&ctx, "SELECT count(*) FROM q").await, ["0"]);
    // Another table does not write among its files.
    ctx.refresh("q").await.unwrap();
    let error = refused(&ctx, &create.replace("TABLE q", "TABLE r")).await;
    assert!(error.contains("[LOCATION_NOT_EMPTY]"), "{error}");
}

#[tokio::test]
async fn an_audit_finds_the_columns_of_a_directory_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(&dir.path().join("db")).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, p BIGINT, k VARCHAR)").await;
    let create = format!(
        "CREATE STREAMING TABLE q WITH (late_rows = 'l') STORED AS PARQUET LOCATION '{}/' PARTITIONED BY (p, k) AS
        SELECT window.start, p, k, count(*) AS n FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 MINUTE
        GROUP BY window(ts, '1 hour'), p, k",
        dir.path().join("out").display()
    );
    run(&ctx, &create).await;
    run(
        &ctx,
        "INSERT INTO t VALUES ('2026-03-02 10:00:00', 7, 'a'), ('2026-03-02 10:01:00', 7, 'a'),
        ('2026-03-02 10:00:00', 8, 'c'), ('2026-03-02 15:00:00', 9, 'b')",
    )
    .await;
    ctx.refresh("q").await.unwrap();
    let audit = "SELECT p, k, emitted, recount, late_rows, open_rows, unexplained FROM audit('q')";
    let open = "9 b 0 1 0 1 0";
    let read = ["7 a 2 2 0 0 0", "8 c 1 1 0 0 0", open];
    assert_eq!(run(&ctx, audit).await, read);
    let correct = "SELECT * FROM correct('q')";
    assert!(run(&ctx, correct).await.is_empty());
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 10:30:00', 7, 'a')").await;
    ctx.refresh("q").await.unwrap();
    let read = ["7 a 2 3 1 0 0", "8 c 1 1 0 0 0", open];
    assert_eq!(run(&ctx, audit).await, read);
    assert_eq!(
        run(&ctx, correct).await,
        ["upsert 2026-03-02T10:00:00 7 a 3"]
    );
}

#[tokio::test]
async fn what_could_not_be_opened_is_not_taken_by_another_statement() {
    let dir = tempfile::tempdir().unwrap();
    let sink = Arc::new(Memory::default());
    let ctx = open(dir.path()).await;
    ctx.register_sink("mine", Arc::clone(&sink) as _);
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    run(
        &ctx,
        "CREATE STREAMING TABLE q WITH (sink = 'mine') AS SELECT v FROM STREAM t",
    )
    .await;
    run(&ctx, ROWS).await;
    ctx.refresh("q").await.unwrap();
    drop(ctx);
    let ctx = StreamContext::open_over(SessionContext::new(), dir.path())
        .await
        .unwrap();
    assert_eq!(ctx.unopened().len(), 1);
    for sql in [
        "CREATE TABLE q (a INT)",
        "CREATE VIEW q AS SELECT 1",
        "CREATE STREAMING TABLE IF NOT EXISTS q AS SELECT v FROM STREAM t",
    ] {
        assert!(
            refused(&ctx, sql).await.contains("[TABLE_NOT_OPENED]"),
            "{sql}"
        );
    }
    run(&ctx, "DROP TABLE IF EXISTS q").await;
    ctx.register_sink("mine", Arc::clone(&sink) as _);
    ctx.open_rest().await.unwrap();
    assert!(ctx.unopened().is_empty());
    run(&ctx, ROWS).await;
    ctx.refresh("q").await.unwrap();
    assert_eq!(sink.rows(), [2, 2]);
}

#[tokio::test]
async fn a_directory_belongs_to_one_table_whatever_its_format() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ctx = open(&dir.path().join("db")).await;
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, v BIGINT)").await;
    let create = |name: &str, stored: &str| {
        format!(
            "CREATE OR REPLACE STREAMING TABLE {name} STORED AS {stored} AS SELECT v, CAST(ts AS DATE) AS day FROM STREAM t"
        )
    };
    let place = format!("LOCATION '{}/'", out.display());
    run(
        &ctx,
        &create("q", &format!("PARQUET {place} PARTITIONED BY (day)")),
    )
    .await;
    // Before either has written.
    let error = refused(&ctx, &create("r", &format!("PARQUET {place}"))).await;
    assert!(error.contains("[LOCATION_NOT_EMPTY]"), "{error}");
    run(&ctx, ROWS).await;
    ctx.refresh("q").await.unwrap();
    run(&ctx, &create("q", &format!("CSV {place}"))).await;
    ctx.refresh("q").await.unwrap();
    assert_eq!(run(&ctx, "SELECT v FROM q").await, ["1", "2"]);
    let elsewhere = format!("PARQUET LOCATION '{}/'", dir.path().join("other").display());
    run(&ctx, &create("q", &elsewhere)).await;
    let left: Vec<_> = walk(&out);
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_row_that_cannot_be_written_is_refused_before_its_epoch_commits() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = open(&dir.path().join("db")).await;
    let place = format!("LOCATION '{}/'", dir.path().join("out").display());
    let create = |or: &str, filter: &str| {
        format!(
            "CREATE {or} STREAMING TABLE q STORED AS PARQUET {place} PARTITIONED BY (k) AS SELECT v, k FROM STREAM t{filter}"
        )
    };
    run(&ctx, "CREATE TABLE t (v BIGINT, k VARCHAR)").await;
    run(&ctx, &create("", "")).await;
    run(&ctx, "INSERT INTO t VALUES (1, 'a')").await;
    ctx.refresh("q").await.unwrap();
    // Nine bytes for each sign.
    run(&ctx, "INSERT INTO t VALUES (2, repeat('世', 30))").await;
    let refresh = "REFRESH STREAMING TABLE q";
    let error = refused(&ctx, refresh).await;
    assert!(error.contains("[PARTITION_VALUE_TOO_LONG]"), "{error}");
    let ctx = ctx.reopen().await.unwrap();
    let error = refused(&ctx, refresh).await;
    assert!(error.contains("[PARTITION_VALUE_TOO_LONG]"), "{error}");
    assert_eq!(run(&ctx, "SELECT v, k FROM q").await, ["1 a"]);
    run(&ctx, "INSERT INTO t VALUES (3, NULL)").await;
    run(&ctx, "INSERT INTO t VALUES (4, 'b')").await;
    let error = refused(&ctx, &create("OR REFRESH", " WHERE v <> 2")).await;
    assert!(error.contains("[NULL_PARTITION_VALUE]"), "{error}");
    run(&ctx, &create("OR REFRESH", " WHERE v NOT IN (2, 3)")).await;
    assert_eq!(run(&ctx, "SELECT v, k FROM q").await, ["1 a", "4 b"]);
}

#[tokio::test]
async fn a_time_that_has_no_text_is_refused_filtertimes_are_texts() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = StreamContext::new().unwrap();
    run(&ctx, "CREATE TABLE t (k TIMESTAMP(3), v BIGINT)").await;
    for format in ["csv", "json", "parquet"] {
        let out = dir.path().join(format);
        let create = format!(
            "CREATE STREAMING TABLE {format}_q STORED AS {format} LOCATION '{}/' AS SELECT k, v FROM STREAM t",
            out.display()
        );
        run(&ctx, &create).await;
    }
    run(&ctx, "INSERT INTO t VALUES ('2026-01-01 00:00:00', 1)").await;
    for format in ["csv", "json", "parquet"] {
        ctx.refresh(&format!("{format}_q")).await.unwrap();
    }
    let far = "arrow_cast(9000000000000000000, 'Timestamp(Millisecond, None)')";
    run(&ctx, &format!("INSERT INTO t VALUES ({far}, 2)")).await;
    for format in ["csv", "json"] {
        let error = refused(&ctx, &format!("REFRESH STREAMING TABLE {format}_q")).await;
        assert!(error.contains("[DATETIME_OVERFLOW]"), "{error}");
        let rows = run(&ctx, &format!("SELECT k, v FROM {format}_q")).await;
        assert_eq!(rows, ["2026-01-01T00:00:00 1"], "{format}");
    }
    ctx.refresh("parquet_q").await.unwrap();
    assert_eq!(run(&ctx, "SELECT v FROM parquet_q").await, ["1", "2"]);
}

#[tokio::test]
async fn what_a_dictionary_holds_is_read_from_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = StreamContext::new().unwrap();
    run(&ctx, "CREATE TABLE t (v BIGINT, k VARCHAR)").await;
    run(&ctx, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (NULL, 'a')").await;
    for format in ["csv", "json", "parquet"] {
        let out = dir.path().join(format);
        let create = format!(
            "CREATE STREAMING TABLE {format}_q STORED AS {format} LOCATION '{}/' AS SELECT \
             arrow_cast(v, 'Dictionary(Int32, Int64)') AS v, arrow_cast(k, 'Dictionary(Int32, Utf8)') AS k, \
             arrow_cast(k, 'LargeUtf8') AS w FROM STREAM t",
            out.display()
        );
        run(&ctx, &create).await;
        ctx.refresh(&format!("{format}_q")).await.unwrap();
        let rows = run(&ctx, &format!("SELECT v, k, w FROM {format}_q")).await;
        assert_eq!(rows, ["1 a a", "2 b b", "NULL a a"], "{format}");
    }
}

#[tokio::test]
async fn every_sign_of_a_directorys_name_is_itself() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = StreamContext::new().unwrap();
    run(&ctx, "CREATE TABLE t (v BIGINT, k VARCHAR)").await;
    run(&ctx, "INSERT INTO t VALUES (1, 'a'), (2, 'b')").await;
    let names = ["x*y", "q?z", "[ab]", "50%", "a b#c", "grün"];
    for (at, name) in names.into_iter().enumerate() {
        let create = format!(
            "CREATE STREAMING TABLE q{at} STORED AS CSV LOCATION '{}/' PARTITIONED BY (k) AS SELECT v, k FROM STREAM t",
            dir.path().join(name).display()
        );
        run(&ctx, &create).await;
        ctx.refresh(&format!("q{at}")).await.unwrap();
        let rows = run(&ctx, &format!("SELECT v, k FROM q{at}")).await;
        assert_eq!(rows, ["1 a", "2 b"], "{name}");
        let rows = run(&ctx, &format!("SELECT v FROM q{at} WHERE k = 'b'")).await;
        assert_eq!(rows, ["2"], "{name}");
        assert!(dir.path().join(name).is_dir(), "{name}");
    }
}

#[tokio::test]
async fn a_directory_belongs_to_one_table_by_whatever_name() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ctx = StreamContext::new().unwrap();
    run(&ctx, "CREATE TABLE t (v BIGINT)").await;
    let create = |name: &str, place: &Path| {
        format!(
            "CREATE STREAMING TABLE {name} STORED AS CSV LOCATION '{}/' AS SELECT v FROM STREAM t",
            place.display()
        )
    };
    run(&ctx, &create("q", &out)).await;
    let mut others = vec![
        dir.path().join("x/../out"),
        dir.path().join("./out"),
        out.join("day=1"),
        out.join("day=1/k=2"),
    ];
    #[cfg(unix)]
    {
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&out, &link).unwrap();
        others.push(link);
    }
    for other in others {
        let error = refused(&ctx, &create("r", &other)).await;
        assert!(error.contains("[LOCATION_NOT_EMPTY]"), "{error}");
    }
    // A way up in the name is the disk's: what is written there is read.
    let up = dir.path().join("x/../other");
    run(&ctx, &create("r", &up)).await;
    run(&ctx, "INSERT INTO t VALUES (1)").await;
    ctx.refresh("r").await.unwrap();
    assert_eq!(run(&ctx, "SELECT v FROM r").await, ["1"]);
    assert_eq!(walk(&dir.path().join("other")).len(), 1);
}

#[tokio::test]
async fn a_directory_that_was_removed_is_made_again() {
    for kept in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let ctx = match kept {
            true => open(&dir.path().join("db")).await,
            false => StreamContext::new().unwrap(),
        };
        run(&ctx, "CREATE TABLE t (v BIGINT)").await;
        let create = format!(
            "CREATE STREAMING TABLE q STORED AS CSV LOCATION '{}/' AS SELECT v FROM STREAM t",
            out.display()
        );
        run(&ctx, &create).await;
        run(&ctx, "INSERT INTO t VALUES (1)").await;
        ctx.refresh("q").await.unwrap();
        std::fs::remove_dir_all(&out).unwrap();
        run(&ctx, "INSERT INTO t VALUES (2)").await;
        let error = refused(&ctx, "REFRESH STREAMING TABLE q").await;
        assert!(error.contains("[SINK_FAILED]"), "{error}");
        ctx.refresh("q").await.unwrap();
        assert_eq!(run(&ctx, "SELECT v FROM q").await, ["2"], "{kept}");
    }
}

/// The files in a folder and below.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(walk(&path)),
            false => files.push(path),
        }
    }
    files
}

#[tokio::test]
async fn a_source_that_gives_its_rows_once_is_refused_unless_the_loss_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let session = SessionContext::new();
    let batch = RecordBatch::try_from_iter([(
        "v",
        Arc::new(datafusion::arrow::array::Int64Array::from(vec![1])) as _,
    )])
    .unwrap();
    let once = Once(Mutex::new(Some(batch.clone())), batch.schema());
    let table = datafusion::catalog::streaming::StreamingTable::try_new(
        batch.schema(),
        vec![Arc::new(once)],
    )
    .unwrap();
    session.register_table("t", Arc::new(table)).unwrap();
    let ctx = StreamContext::open_over(session, dir.path()).await.unwrap();
    run(&ctx, "CREATE STREAMING TABLE q AS SELECT v FROM STREAM t").await;
    let error = refused(&ctx, "REFRESH STREAMING TABLE q").await;
    assert!(error.contains("[SOURCE_CANNOT_REPLAY]"), "{error}");
    run(
        &ctx,
        "CREATE STREAMING TABLE r WITH (accept_loss = 'true') AS SELECT v FROM STREAM t",
    )
    .await;
    ctx.refresh("r").await.unwrap();
    assert_eq!(run(&ctx, "SELECT * FROM r").await, ["1"]);
}

/// A partition whose rows can be asked for once.
#[derive(Debug)]
struct Once(Mutex<Option<RecordBatch>>, SchemaRef);

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.1
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.0.lock().unwrap().take();
        let rows = futures::stream::iter(rows.map(Ok));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.1), rows))
    }
}
