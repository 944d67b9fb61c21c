//! An epoch is written and handed on while the next one reads. The disk here can be told to wait with a checkpoint
//! until something else has happened, which shows what goes on beside what.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use tidegate::disk::sim::Crash;
use tidegate::disk::{Disk, Entry, Lock, SimDisk};
use tidegate::sink::Sink;
use tokio::sync::Notify;

use super::*;

/// Whoever waits longer for something waits in vain.
const LONG: Duration = Duration::from_secs(60);

/// What a checkpoint waits for before it is written, by its number; none if for nothing.
type Waits = fn(u64) -> Option<String>;

/// A disk that takes note of what happens, and waits.
#[derive(Debug)]
struct Gated {
    disk: SimDisk,
    waits: Waits,
    seen: Mutex<Seen>,
    changed: Condvar,
    told: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    /// `write 1`, `written 1`, `row 2`, `deliver 0` …
    events: Vec<String>,
    /// Number of the checkpoint that is being written.
    writing: Option<u64>,
    /// Number of the checkpoint whose writing fails.
    fails: Option<u64>,
}

impl Gated {
    fn new(waits: Waits) -> Arc<Self> {
        Arc::new(Self {
            disk: SimDisk::new(1),
            waits,
            seen: Mutex::default(),
            changed: Condvar::new(),
            told: Notify::new(),
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn note(&self, event: String) {
        self.seen().events.push(event);
        self.changed.notify_all();
        self.told.notify_waiters();
    }

    fn has(&self, event: &str) -> bool {
        self.seen().events.iter().any(|one| one == event)
    }

    /// Waits until something has happened.
    async fn until(&self, event: &str) {
        loop {
            let told = self.told.notified();
            if self.has(event) {
                return;
            }
            told.await;
        }
    }

    /// When something happened.
    fn at(&self, event: &str) -> usize {
        let seen = self.seen();
        let at = seen.events.iter().position(|one| one == event);
        at.unwrap_or_else(|| panic!("no {event}: {:?}", seen.events))
    }

    /// Begins to write a checkpoint, when it may.
    fn write(&self, number: u64) -> io::Result<()> {
        self.seen().writing = Some(number);
        self.note(format!("write {number}"));
        if let Some(event) = (self.waits)(number) {
            let waiting = |seen: &mut Seen| seen.events.iter().all(|one| *one != event);
            let seen = self.seen();
            let waited = self.changed.wait_timeout_while(seen, LONG, waiting);
            if waited.unwrap().1.timed_out() {
                self.note(format!("no {event}"));
            }
        }
        let mut seen = self.seen();
        if seen.fails != Some(number) {
            return Ok(());
        }
        (seen.fails, seen.writing) = (None, None);
        Err(io::Error::other("the disk is full"))
    }

    /// Who else is at the checkpoints while one is being written is noted.
    fn alone(&self, path: &str) {
        let writing = self.seen().writing;
        if let Some(number) = writing.filter(|_| path.starts_with("queries/")) {
            self.note(format!("{path} while {number} is written"));
        }
    }

    fn disturbed(&self) -> Vec<String> {
        let seen = self.seen();
        let events = seen.events.iter();
        events
            .filter(|event| event.contains("while") || event.starts_with("no "))
            .cloned()
            .collect()
    }
}

/// The number in the name of a checkpoint's file, written under another name or not.
fn number_in(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?;
    let name = name.trim_start_matches(".tmp-").trim_end_matches(".part");
    name.strip_suffix(".epoch")?.parse().ok()
}

impl Disk for Gated {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.alone(path);
        self.disk.read(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        self.alone(dir);
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn write_new(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.alone(path);
        if let Some(number) = number_in(path) {
            self.write(number)?;
        }
        self.disk.write_new(path, bytes)
    }

    fn sync_file(&self, path: &str) -> io::Result<()> {
        self.disk.sync_file(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let done = self.disk.sync_dir(dir);
        let written = self.seen().writing.take();
        if let Some(number) = written {
            self.note(format!("written {number}"));
        }
        done
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.alone(path);
        self.disk.remove(path)
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.alone(dir);
        self.disk.remove_dir(dir)
    }

    fn lock(&self, path: &str) -> io::Result<Lock> {
        self.disk.lock(path)
    }
}

/// Takes note of what is delivered.
#[derive(Debug)]
struct Noted(Arc<Gated>);

#[async_trait]
impl Sink for Noted {
    async fn begin(&self, _query: &str, _next: u64) -> Result<()> {
        Ok(())
    }

    async fn deliver(
        &self,
        _query: &str,
        epoch: u64,
        _schema: &SchemaRef,
        _rows: &[RecordBatch],
    ) -> Result<()> {
        self.0.note(format!("deliver {epoch}"));
        Ok(())
    }
}

/// The database on the disk, with a function that notes the rows which it has seen, and a sink that notes epochs.
async fn open_on(disk: &Arc<Gated>) -> StreamContext {
    let noting = Arc::clone(disk);
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    session.register_udf(create_udf(
        "seen",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(move |values: &[ColumnarValue]| {
            if let ColumnarValue::Array(values) = &values[0] {
                let values = values.as_primitive::<Int64Type>();
                let values = values.iter().flatten();
                values.for_each(|value| noting.note(format!("row {value}")));
            }
            Ok(values[0].clone())
        }),
    ));
    let ctx = StreamContext::open_on(session, Arc::clone(disk) as _, Some("db"));
    ctx.await.unwrap()
}

/// A table with the rows 1 to 5, and a query over it whose epochs are a row each: that of row n is written as
/// checkpoint n.
async fn begun(disk: &Arc<Gated>, options: &str, query: &str) -> StreamContext {
    let ctx = open_on(disk).await;
    ctx.register_sink("noted", Arc::new(Noted(Arc::clone(disk))));
    run(&ctx, "CREATE TABLE t (v BIGINT)").await;
    let create =
        format!("CREATE STREAMING TABLE q WITH (max_rows_per_epoch = '1'{options}) AS {query}");
    run(&ctx, &create).await;
    run(&ctx, "INSERT INTO t VALUES (1), (2), (3), (4), (5)").await;
    ctx
}

/// A checkpoint waits until the row of the next epoch has been seen.
fn next_row(number: u64) -> Option<String> {
    (1..5)
        .contains(&number)
        .then(|| format!("row {}", number + 1))
}

const PLAIN: &str = "SELECT seen(v) AS v FROM STREAM t";

#[tokio::test]
async fn the_next_epoch_reads_while_one_is_written_and_commits_when_it_is_handed_on() {
    let disk = Gated::new(next_row);
    let ctx = begun(&disk, ", sink = 'noted'", PLAIN).await;
    assert_eq!(ctx.refresh("q").await.unwrap().len(), 5);
    for number in 1..5 {
        let order = [
            format!("row {}", number + 1),
            format!("written {number}"),
            format!("deliver {}", number - 1),
            format!("write {}", number + 1),
        ];
        let at: Vec<usize> = order.iter().map(|event| disk.at(event)).collect();
        assert!(at.is_sorted(), "{order:?}: {:?}", disk.seen().events);
    }
    // The last one too.
    assert!(disk.at("written 5") < disk.at("deliver 4"));
    assert_eq!(disk.disturbed(), [""; 0]);
}

#[tokio::test]
async fn what_a_refresh_returns_is_durable_and_in_the_table() {
    let disk = Gated::new(next_row);
    let ctx = begun(&disk, "", PLAIN).await;
    ctx.refresh("q").await.unwrap();
    let rows = ["1", "2", "3", "4", "5"];
    assert_eq!(run(&ctx, "SELECT v FROM q").await, rows);
    drop(ctx);
    disk.disk.reopen(Crash::Lost);
    let ctx = open_on(&disk).await;
    assert_eq!(run(&ctx, "SELECT v FROM q").await, rows);
    assert_eq!(ctx.progress("q").unwrap().len(), 5);
}

#[tokio::test]
async fn an_epoch_that_cannot_be_written_takes_the_one_with_it_that_is_read_meanwhile() {
    for (options, query) in [
        ("", PLAIN),
        (
            ", output_mode = 'update'",
            "SELECT max(seen(v)) AS v, v % 7 AS k FROM STREAM t GROUP BY v % 7",
        ),
    ] {
        let disk = Gated::new(next_row);
        let ctx = begun(&disk, options, query).await;
        disk.seen().fails = Some(2);
        let error = ctx.refresh("q").await.unwrap_err().to_string();
        assert!(error.contains("[DISK_FAILED]"), "{error}");
        assert!(
            error.contains("00000000000000000002.epoch: the disk is full"),
            "{error}"
        );
        assert!(disk.has("row 3"));
        assert_eq!(run(&ctx, "SELECT v FROM q").await, ["1"]);
        assert_eq!(ctx.progress("q").unwrap().len(), 1);
        let epochs = ctx.refresh("q").await.unwrap();
        assert_eq!(
            epochs.iter().map(|one| one.epoch).collect::<Vec<_>>(),
            [1, 2, 3, 4]
        );
        let rows = ["1", "2", "3", "4", "5"];
        assert_eq!(run(&ctx, "SELECT v FROM q").await, rows);
        drop(ctx);
        assert_eq!(run(&open_on(&disk).await, "SELECT v FROM q").await, rows);
        assert_eq!(disk.disturbed(), [""; 0]);
    }
}

#[tokio::test]
async fn another_query_goes_on_behind_an_epoch_that_could_not_be_written() {
    let disk = Gated::new(next_row);
    let ctx = begun(&disk, "", PLAIN).await;
    disk.seen().fails = Some(2);
    let other = format!(
        "CREATE OR REFRESH STREAMING TABLE q WITH (max_rows_per_epoch = '1') AS {PLAIN} WHERE v < 100"
    );
    let error = refused(&ctx, &other).await;
    assert!(error.contains("[DISK_FAILED]"), "{error}");
    // The first reads the state again; the second finds it, and nothing more to read.
    for epochs in [4, 1] {
        assert_eq!(ctx.refresh("q").await.unwrap().len(), epochs);
    }
    let rows = ["1", "2", "3", "4", "5"];
    assert_eq!(run(&ctx, "SELECT v FROM q").await, rows);
}

#[tokio::test]
async fn what_did_not_reach_the_disk_is_not_audited() {
    let disk = Gated::new(next_row);
    let query = "SELECT window.start AS minute, count(*) AS n \
        FROM (SELECT seen(v) AS v, to_timestamp_seconds(v * 60) AS ts FROM STREAM t) \
        WATERMARK ts DELAY OF INTERVAL 0 SECONDS GROUP BY window(ts, '1 minute')";
    let ctx = begun(&disk, ", late_rows = 'late'", query).await;
    disk.seen().fails = Some(3);
    ctx.refresh("q").await.unwrap_err();
    for ask in [
        "SELECT * FROM audit('q')",
        "SELECT * FROM correct('q')",
        "ALTER STREAMING TABLE q CORRECT",
    ] {
        let asked = match ctx.sql(ask).await {
            Ok(frame) => frame.collect().await.map(|_| ()),
            Err(error) => Err(error),
        };
        let error = asked.unwrap_err().to_string();
        assert!(error.contains("[AUDIT_NOT_SETTLED]"), "{error}");
    }
    ctx.refresh("q").await.unwrap();
    let sums = "SELECT sum(emitted), sum(open_rows), sum(unexplained) FROM audit('q')";
    assert_eq!(run(&ctx, sums).await, ["4 1 0"]);
    run(&ctx, "ALTER STREAMING TABLE q CORRECT").await;
    assert_eq!(run(&ctx, "SELECT count(*) FROM q").await, ["4"]);
}

#[tokio::test]
async fn the_error_of_the_next_epoch_does_not_take_the_one_that_is_written() {
    let disk = Gated::new(|number| (number == 2).then(|| "row 3".to_owned()));
    let ctx = begun(&disk, "", "SELECT 6 / (3 - seen(v)) AS v FROM STREAM t").await;
    ctx.refresh("q").await.unwrap_err();
    assert!(disk.at("row 3") < disk.at("written 2"));
    assert_eq!(run(&ctx, "SELECT v FROM q").await, ["3", "6"]);
    assert_eq!(ctx.progress("q").unwrap().len(), 2);
}

/// A checkpoint that waits until it is let go.
fn held(number: u64) -> Option<String> {
    (number == 2).then(|| "let go".to_owned())
}

/// A query whose refresh was dropped while its second epoch was being written.
async fn dropped(disk: &Arc<Gated>) -> StreamContext {
    let ctx = begun(disk, "", PLAIN).await;
    tokio::select! {
        done = ctx.refresh("q") => panic!("it was written: {done:?}"),
        () = disk.until("row 3") => {}
    }
    ctx
}

/// Lets the checkpoint go when whoever waits for it has had the time to do something else.
async fn let_go(disk: &Gated) {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    disk.note("let go".to_owned());
}

#[tokio::test]
async fn a_run_after_one_that_was_dropped_waits_for_what_it_was_writing() {
    let disk = Gated::new(held);
    let ctx = dropped(&disk).await;
    assert_eq!(run(&ctx, "SELECT v FROM q").await, ["1"]);
    let (epochs, ()) = tokio::join!(ctx.refresh("q"), let_go(&disk));
    let epochs: Vec<u64> = epochs.unwrap().iter().map(|epoch| epoch.epoch).collect();
    assert_eq!(epochs, [2, 3, 4]);
    let rows = ["1", "2", "3", "4", "5"];
    assert_eq!(run(&ctx, "SELECT v FROM q").await, rows);
    assert_eq!(ctx.progress("q").unwrap().len(), 5);
    assert_eq!(disk.disturbed(), [""; 0]);
    drop(ctx);
    assert_eq!(run(&open_on(&disk).await, "SELECT v FROM q").await, rows);
}

#[tokio::test]
async fn a_run_that_was_dropped_and_could_not_write_is_made_good() {
    let disk = Gated::new(held);
    disk.seen().fails = Some(2);
    let ctx = dropped(&disk).await;
    let (epochs, ()) = tokio::join!(ctx.refresh("q"), let_go(&disk));
    let epochs: Vec<u64> = epochs.unwrap().iter().map(|epoch| epoch.epoch).collect();
    assert_eq!(epochs, [1, 2, 3, 4]);
    assert_eq!(
        run(&ctx, "SELECT v FROM q").await,
        ["1", "2", "3", "4", "5"]
    );
    assert_eq!(disk.disturbed(), [""; 0]);
}

#[tokio::test]
async fn a_table_goes_when_nothing_of_it_is_being_written() {
    for (sql, rows) in [
        ("REFRESH STREAMING TABLE q FULL", "5"),
        ("DROP STREAMING TABLE q", "0"),
    ] {
        let disk = Gated::new(held);
        let ctx = dropped(&disk).await;
        let (_, ()) = tokio::join!(run(&ctx, sql), let_go(&disk));
        let files = disk.disk.files().into_iter();
        let files = files.filter(|path| path.ends_with(".epoch"));
        let folders: Vec<String> = files
            .filter_map(|path| Some(path.rsplit_once('/')?.0.to_owned()))
            .collect();
        assert!(
            folders.iter().all(|folder| *folder == folders[0]),
            "{folders:?}"
        );
        match rows {
            "0" => assert!(folders.is_empty(), "{folders:?}"),
            rows => assert_eq!(run(&ctx, "SELECT count(*) FROM q").await, [rows]),
        }
        assert_eq!(disk.disturbed(), [""; 0], "{sql}");
    }
}

#[tokio::test]
async fn a_limit_counts_the_rows_that_are_on_their_way() {
    let disk = Gated::new(next_row);
    let ctx = begun(&disk, "", &format!("{PLAIN} LIMIT 3")).await;
    let epochs = ctx.refresh("q").await.unwrap();
    let rows: Vec<u64> = epochs.iter().map(|epoch| epoch.output_rows).collect();
    assert_eq!(rows, [1, 1, 1, 0, 0]);
    assert_eq!(run(&ctx, "SELECT v FROM q").await, ["1", "2", "3"]);
    drop(ctx);
    assert_eq!(
        run(&open_on(&disk).await, "SELECT v FROM q").await,
        ["1", "2", "3"]
    );
}

#[tokio::test]
async fn groups_are_replaced_in_the_order_of_the_epochs() {
    for mode in ["update", "complete"] {
        let disk = Gated::new(next_row);
        let query =
            "SELECT v % 2 AS k, count(*) AS n, sum(seen(v)) AS s FROM STREAM t GROUP BY v % 2";
        let ctx = begun(&disk, &format!(", output_mode = '{mode}'"), query).await;
        ctx.refresh("q").await.unwrap();
        let rows = ["0 2 6", "1 3 9"];
        assert_eq!(run(&ctx, "SELECT * FROM q").await, rows, "{mode}");
        drop(ctx);
        let ctx = open_on(&disk).await;
        assert_eq!(run(&ctx, "SELECT * FROM q").await, rows, "{mode}");
        run(&ctx, "INSERT INTO t VALUES (7)").await;
        ctx.refresh("q").await.unwrap();
        let rows = ["0 2 6", "1 4 16"];
        assert_eq!(run(&ctx, "SELECT * FROM q").await, rows, "{mode}");
        assert_eq!(disk.disturbed(), [""; 0]);
    }
}
