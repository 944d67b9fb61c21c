//! The directory on a disk that loses power and fails, and as DataFusion reads it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::prelude::SessionContext;
use tokio::runtime::Runtime;

use super::*;
use crate::disk::sim::Crash;
use crate::disk::sim::Fault;
use crate::disk::{LocalDisk, SimDisk};
use crate::error::refusal;

/// City and number.
type Row = (&'static str, i64);

/// Rows of an epoch.
type Rows = Vec<Row>;

/// Files by path, with the numbers in them.
type Files = BTreeMap<String, Vec<i64>>;

/// Runs a future to its end: the sink waits for the disk on another thread of the runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    RUNTIME.block_on(future)
}

/// Epochs that differ in their partitions; one has no rows.
fn epochs() -> Vec<Rows> {
    vec![
        vec![("a", 1), ("b", 2), ("a", 3)],
        vec![("b", 4)],
        vec![],
        vec![("c", 5), ("a", 6)],
    ]
}

/// What takes the place of the last epochs when a query goes back.
fn others() -> Vec<Rows> {
    vec![
        vec![("a", 1), ("b", 2), ("a", 3)],
        vec![("d", 7)],
        vec![("a", 8)],
        vec![],
    ]
}

fn batches(rows: &[Row]) -> (SchemaRef, Vec<RecordBatch>) {
    let cities = StringArray::from_iter_values(rows.iter().map(|(city, _)| *city));
    let numbers = Int64Array::from_iter_values(rows.iter().map(|(_, number)| *number));
    let (cities, numbers): (ArrayRef, ArrayRef) = (Arc::new(cities), Arc::new(numbers));
    let batch = RecordBatch::try_from_iter([("city", cities), ("n", numbers)]).unwrap();
    let half = rows.len() / 2;
    let halves = vec![batch.slice(0, half), batch.slice(half, rows.len() - half)];
    (batch.schema(), halves)
}

fn sink(disk: &SimDisk) -> DirectorySink {
    let disk = Arc::new(disk.clone());
    DirectorySink::new(
        disk,
        "out/deep/",
        FileFormat::Parquet,
        vec!["city".to_owned()],
    )
}

fn deliver(sink: &DirectorySink, epoch: usize, rows: &[Row]) -> Result<()> {
    let (schema, rows) = batches(rows);
    block_on(sink.deliver("q", epoch as u64, &schema, &rows))
}

/// Opens the query and runs it to its end. An epoch counts as committed before it is delivered.
fn run(sink: &DirectorySink, epochs: &[Rows], committed: &mut usize) -> Result<()> {
    block_on(sink.begin("q", *committed as u64))?;
    if let Some(last) = committed.checked_sub(1) {
        deliver(sink, last, &epochs[last])?;
    }
    while let Some(rows) = epochs.get(*committed) {
        *committed += 1;
        deliver(sink, *committed - 1, rows)?;
    }
    Ok(())
}

/// What there is when all of some epochs have been delivered.
fn expected(epochs: &[Rows]) -> Files {
    let mut files = Files::new();
    for (epoch, rows) in epochs.iter().enumerate() {
        for (city, number) in rows {
            let path = format!("out/deep/city={city}/part-q-{epoch:010}.parquet");
            files.entry(path).or_default().push(*number);
        }
    }
    files
}

/// Every file that a reader would take, read whole.
fn found(disk: &SimDisk) -> Files {
    let paths = disk
        .files()
        .into_iter()
        .filter(|path| path.ends_with(".parquet"));
    paths
        .map(|path| {
            let bytes = Bytes::from(disk.read(&path).unwrap());
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
            let batches = reader.build().unwrap().map(|batch| batch.unwrap());
            let numbers = batches.flat_map(|batch| {
                batch
                    .column(0)
                    .as_primitive::<Int64Type>()
                    .values()
                    .to_vec()
            });
            let numbers = numbers.collect();
            (path, numbers)
        })
        .collect()
}

/// Every file there is must be one of these.
fn assert_all_whole(disk: &SimDisk, of: &[Files], when: &str) {
    for (path, numbers) in found(disk) {
        let whole = of.iter().any(|files| files.get(&path) == Some(&numbers));
        assert!(whole, "{when}: {path} has {numbers:?}");
    }
}

/// No file is left that is not published.
fn assert_no_litter(disk: &SimDisk, when: &str) {
    let files = disk.files();
    assert!(
        files.iter().all(|path| path.ends_with(".parquet")),
        "{when}: {files:?}"
    );
}

#[test]
fn what_is_delivered_twice_is_there_once() {
    let disk = SimDisk::new(1);
    let sink = sink(&disk);
    run(&sink, &epochs(), &mut 0).unwrap();
    let once = found(&disk);
    assert_eq!(once, expected(&epochs()));
    for (epoch, rows) in epochs().iter().enumerate() {
        deliver(&sink, epoch, rows).unwrap();
    }
    assert_eq!(found(&disk), once);
    disk.reopen(Crash::Lost);
    assert_eq!(found(&disk), once);
}

#[test]
fn an_epoch_without_rows_makes_nothing() {
    let disk = SimDisk::new(1);
    let sink = sink(&disk);
    block_on(sink.begin("q", 0)).unwrap();
    deliver(&sink, 0, &[]).unwrap();
    assert!(disk.list("").unwrap().is_empty());
}

#[test]
fn the_root_of_a_disk_needs_no_folder() {
    let disk = SimDisk::new(1);
    let sink = DirectorySink::new(Arc::new(disk.clone()), "", FileFormat::Csv, Vec::new());
    deliver(&sink, 12, &[("a", 1), ("b", 2)]).unwrap();
    disk.reopen(Crash::Lost);
    assert_eq!(disk.files(), ["part-q-0000000012.csv"]);
    assert_eq!(
        disk.read("part-q-0000000012.csv").unwrap(),
        b"city,n\na,1\nb,2\n"
    );
    block_on(sink.begin("q", 12)).unwrap();
    assert_eq!(disk.files(), Vec::<String>::new());
}

#[test]
fn a_query_forgets_its_own_files_only() {
    let disk = SimDisk::new(1);
    let sink = sink(&disk);
    run(&sink, &epochs(), &mut 0).unwrap();
    let mine = found(&disk);
    let others = [
        "out/deep/city=a/part-q-2-0000000003.parquet",
        "out/deep/city=a/part-qq-0000000003.parquet",
        "out/deep/city=a/part-q-3.parquet",
        "out/deep/city=a/part-q-00000000003.parquet",
        "out/deep/city=a/part-q-0000000003.avro",
        "out/deep/city=a/.tmp-part-q2-0000000003.parquet.part",
        "out/deep/city=a/.tmp-part-q-0000000003.parquet",
        "out/deep/other/part-q-0000000003.parquet",
        "out/part-q-0000000003.parquet",
    ];
    disk.create_dir("out/deep/other").unwrap();
    disk.write_new(
        "out/deep/city=a/.tmp-part-q-0000000000.parquet.part",
        b"torn",
    )
    .unwrap();
    for path in others {
        disk.write_new(path, b"not mine").unwrap();
    }
    let there = |next: u64| {
        block_on(sink.begin("q", next)).unwrap();
        let files = disk
            .files()
            .into_iter()
            .filter(|path| !others.contains(&path.as_str()));
        files.collect::<Vec<_>>()
    };
    let until = |end: &str| {
        let paths = mine
            .keys()
            .filter(|path| path.as_str().split("part-q-").nth(1) < Some(end));
        paths.cloned().collect::<Vec<_>>()
    };
    assert_eq!(there(4), until("0000000004"));
    assert_eq!(there(1), until("0000000001"));
    assert_eq!(there(0), Vec::<String>::new());
    assert!(
        others
            .iter()
            .all(|path| disk.read(path).unwrap() == b"not mine")
    );
}

#[test]
fn after_a_crash_at_any_call_the_rows_are_there_once() {
    let epochs = epochs();
    let whole = expected(&epochs);
    for model in Crash::ALL {
        for call in 0.. {
            let when = format!("{model:?} at call {call}");
            let disk = SimDisk::new(call);
            disk.crash_at(call);
            let mut committed = 0;
            let ran = run(&sink(&disk), &epochs, &mut committed);
            if !disk.crashed() {
                break;
            }
            // A call that is taken as best effort may be the one that met the crash.
            assert!(ran.is_err() || committed == epochs.len(), "{when}");
            disk.reopen(model);
            assert_all_whole(&disk, std::slice::from_ref(&whole), &when);
            run(&sink(&disk), &epochs, &mut committed).unwrap();
            assert_eq!(found(&disk), whole, "{when}");
            assert_no_litter(&disk, &when);
            disk.reopen(Crash::Lost);
            assert_eq!(found(&disk), whole, "{when}, and once more");
        }
    }
}

#[test]
fn after_a_crash_while_epochs_are_forgotten_none_comes_back() {
    let (old, new) = (epochs(), others());
    let both = [expected(&old), expected(&new)];
    for model in Crash::ALL {
        for call in 0.. {
            let when = format!("{model:?} at call {call}");
            let disk = SimDisk::new(call);
            run(&sink(&disk), &old, &mut 0).unwrap();
            disk.crash_at(disk.calls() + call);
            let mut committed = 1;
            let ran = run(&sink(&disk), &new, &mut committed);
            if !disk.crashed() {
                break;
            }
            assert!(ran.is_err() || committed == new.len(), "{when}");
            disk.reopen(model);
            assert_all_whole(&disk, &both, &when);
            run(&sink(&disk), &new, &mut committed).unwrap();
            assert_eq!(found(&disk), both[1], "{when}");
            disk.reopen(Crash::Lost);
            assert_eq!(found(&disk), both[1], "{when}, and once more");
        }
    }
}

/// Faults of calls that say they failed.
const FAULTS: [Fault; 5] = [
    Fault::Eio,
    Fault::Enospc,
    Fault::ShortWrite,
    Fault::FailedSync,
    Fault::FailedRename,
];

#[test]
fn after_a_fault_of_any_call_the_next_run_makes_all_durable() {
    let (old, new) = (epochs(), others());
    let whole = expected(&new);
    for fault in FAULTS {
        for call in 0.. {
            let when = format!("{fault:?} at call {call}");
            let disk = SimDisk::new(call);
            run(&sink(&disk), &old, &mut 0).unwrap();
            let at = disk.calls() + call;
            disk.fail_at(at, fault, false);
            let sink = sink(&disk);
            let mut committed = 1;
            if let Err(error) = run(&sink, &new, &mut committed) {
                let refusal = refusal(&error).unwrap();
                assert_eq!(
                    (refusal.condition, refusal.sql_state),
                    ("SINK_FAILED", "58030")
                );
                assert!(refusal.message.contains("out"), "{when}: {error}");
                run(&sink, &new, &mut committed).unwrap();
            }
            if disk.calls() <= at {
                break;
            }
            assert_eq!(found(&disk), whole, "{when}");
            disk.reopen(Crash::Lost);
            assert_eq!(found(&disk), whole, "{when}, and power was lost");
        }
    }
}

#[test]
fn a_fault_while_folders_are_made_leaves_none_in_doubt() {
    let whole = expected(&epochs());
    for fault in FAULTS {
        for call in 0.. {
            let when = format!("{fault:?} at call {call}");
            let disk = SimDisk::new(call);
            disk.fail_at(call, fault, false);
            let mut committed = 0;
            if run(&sink(&disk), &epochs(), &mut committed).is_err() {
                run(&sink(&disk), &epochs(), &mut committed).unwrap();
            }
            if disk.calls() <= call {
                break;
            }
            disk.reopen(Crash::Lost);
            assert_eq!(found(&disk), whole, "{when}");
        }
    }
}

#[test]
fn a_directory_that_has_gone_is_made_again_when_the_sink_looks_again() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    for by in [Vec::new(), vec!["city".to_owned()]] {
        let disk = Arc::new(LocalDisk::open(out.clone()).unwrap());
        let sink = DirectorySink::new(disk, "", FileFormat::Csv, by);
        block_on(sink.begin("q", 0)).unwrap();
        deliver(&sink, 0, &[("a", 1)]).unwrap();
        std::fs::remove_dir_all(&out).unwrap();
        let error = deliver(&sink, 1, &[("a", 2)]).unwrap_err();
        assert_eq!(refusal(&error).unwrap().condition, "SINK_FAILED");
        block_on(sink.begin("q", 2)).unwrap();
        deliver(&sink, 1, &[("a", 2)]).unwrap();
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn a_row_that_cannot_be_written_is_refused_before_it_is_delivered() {
    let sink = sink(&SimDisk::new(1));
    let judged = |sign: &str, times: usize| {
        let city: &'static str = String::leak(sign.repeat(times));
        let (schema, rows) = batches(&[("a", 1), (city, 2)]);
        let judged = Sink::check(&sink, &schema, &rows);
        judged.map_err(|error| refusal(&error).unwrap().clone())
    };
    // `city=` and nine signs for each of them: 248, and 257.
    assert_eq!(judged("世", 27), Ok(()));
    let refused = judged("世", 28).unwrap_err();
    assert_eq!(refused.condition, "PARTITION_VALUE_TOO_LONG");
    assert!(refused.message.contains("257 bytes"), "{refused}");
    assert_eq!(judged("a", 250), Ok(()));
    assert!(judged("a", 251).is_err());
}

/// The answer of a query, a line a row.
async fn answer(context: &SessionContext, sql: &str) -> Vec<String> {
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let mut lines = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<_> = columns
            .map(|column| cast(column, &DataType::Utf8).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let values = columns
                .iter()
                .map(|column| column.as_string::<i32>().value(row));
            lines.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    lines
}

#[tokio::test]
async fn datafusion_reads_the_directory_and_finds_every_value() {
    let values = [
        "plain",
        "a/b",
        "50%",
        "x=y",
        "with space",
        "grün",
        "[1]",
        "a:b",
        "..",
        "",
    ];
    for format in [FileFormat::Parquet, FileFormat::Csv, FileFormat::Json] {
        let root = tempfile::tempdir().unwrap();
        let disk = Arc::new(LocalDisk::open(root.path().to_path_buf()).unwrap());
        let sink = DirectorySink::new(disk, "out", format, vec!["city".to_owned()]);
        let rows: Rows = values.into_iter().zip(0..).collect();
        let (schema, rows) = batches(&rows);
        DirectorySink::check(format, &schema, &["city".to_owned()]).unwrap();
        sink.begin("q", 0).await.unwrap();
        sink.deliver("q", 0, &schema, &rows).await.unwrap();
        let context = SessionContext::new();
        let location = root.path().join("out");
        let create = format!(
            "CREATE EXTERNAL TABLE t (n BIGINT, city VARCHAR) STORED AS {format} \
             PARTITIONED BY (city) LOCATION '{}/'",
            location.display()
        );
        context.sql(&create).await.unwrap().collect().await.unwrap();
        let all = answer(&context, "SELECT n, city FROM t ORDER BY n").await;
        let expected: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(n, city)| format!("{n}|{city}"))
            .collect();
        assert_eq!(all, expected, "{format}");
        for (n, city) in values.iter().enumerate() {
            let sql = format!("SELECT n FROM t WHERE city = '{city}'");
            assert_eq!(
                answer(&context, &sql).await,
                [n.to_string()],
                "{format}: {city}"
            );
        }
    }
}
