//! What can be seen of a job: the rows of every result, as a reader would read them, and the figures.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::physical_plan::collect;
use tidegate::disk::{Disk, SimDisk};
use tidegate::prelude::*;

use crate::job::{Done, Job, Place, Table, block, open, shown};

/// What can be seen of a streaming table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenTable {
    pub(crate) name: &'static str,
    /// Its rows, sorted.
    pub(crate) rows: Vec<String>,
    /// Rows that it has read, those that came too late, and those without a time.
    pub(crate) figures: [u64; 3],
}

/// What can be seen of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Rows of the table `t`, sorted; nothing if it is not there.
    pub(crate) input: Option<Vec<String>>,
    /// The streaming tables that are there.
    pub(crate) tables: Vec<SeenTable>,
}

impl Seen {
    /// Looks at everything that is there.
    ///
    /// # Errors
    /// - something that is there cannot be read
    pub(crate) async fn of(job: &Job, ctx: &StreamContext, disk: &SimDisk) -> Result<Self> {
        let there = ctx.session().table_exist("t")?;
        let input = match there {
            true => Some(rows_of(ctx, "t").await?),
            false => None,
        };
        let known = ctx.streaming_tables();
        let mut tables = Vec::new();
        for table in job.tables {
            if known.iter().any(|name| name == table.name) {
                tables.push(SeenTable::of(table, ctx, disk).await?);
            }
        }
        Ok(Self { input, tables })
    }
}

impl SeenTable {
    pub(crate) async fn of(table: &Table, ctx: &StreamContext, disk: &SimDisk) -> Result<Self> {
        let rows = match table.place {
            Place::Itself => rows_of(ctx, table.name).await?,
            Place::Files(_, ending) => rows_of_files(disk, &format!("out/{}/", table.name), ending),
        };
        let mut figures = [0; 3];
        for epoch in ctx.progress(table.name)? {
            let of_epoch = [epoch.input_rows, epoch.late_rows, epoch.null_rows];
            (0..3).for_each(|at| figures[at] += of_epoch[at]);
        }
        Ok(Self {
            name: table.name,
            rows,
            figures,
        })
    }
}

/// What a job must show when its tables have read so many chunks: found without any disturbance, a chunk at a time.
#[derive(Debug)]
pub(crate) struct Expected(Vec<Seen>);

impl Expected {
    /// Runs the job chunk by chunk.
    pub(crate) fn of(job: &Job) -> Self {
        let by_chunk = Job {
            part: job.chunk,
            parts: job.rows() / job.chunk,
            ..*job
        };
        let states = block(async {
            let disk = SimDisk::new(0);
            let ctx = open(Arc::new(disk.clone()), 1).await.expect("it is opened");
            let mut done = Done::default();
            let some = |parts| Job { parts, ..by_chunk };
            let mut states = Vec::new();
            for parts in 0..=by_chunk.parts {
                some(parts).finish(&ctx, &mut done).await.expect("it runs");
                states.push(Seen::of(job, &ctx, &disk).await.expect("it is read"));
            }
            states
        });
        let last = states.last().expect("there is a last one");
        for table in &last.tables {
            assert!(table.rows.len() > 5, "{table:?}");
        }
        Self(states)
    }

    /// What there is when all is done.
    pub(crate) fn last(&self) -> &Seen {
        self.0.last().expect("there is a last one")
    }

    /// What is seen is what must come out.
    #[track_caller]
    pub(crate) fn check_last(&self, seen: &Seen) {
        assert_eq!(seen, self.last());
    }

    /// What is seen is what must come out of what was read, and at least what was said to be done.
    #[track_caller]
    pub(crate) fn check(&self, job: &Job, seen: &Seen, done: &Done) {
        let input = seen.input.clone().unwrap_or_default();
        assert!(
            input.len() as u64 >= done.rows,
            "rows of t are lost: {input:?}"
        );
        assert_eq!(input.len() as u64 % job.part, 0, "a part of an INSERT");
        let mut expected: Vec<String> = (0..input.len() as u64).map(shown).collect();
        expected.sort_unstable();
        assert_eq!(input, expected);
        for name in done.read.keys() {
            assert!(
                seen.tables.iter().any(|table| table.name == *name),
                "{name} is not there any more"
            );
        }
        for table in &seen.tables {
            let [read, _, _] = table.figures;
            let said = done.read.get(table.name).copied().unwrap_or_default();
            assert!(
                read >= said,
                "{}: {said} rows were read, now {read}",
                table.name
            );
            self.check_table(job, table);
        }
    }

    /// What is seen of a streaming table is what must come out of what it has read.
    #[track_caller]
    pub(crate) fn check_table(&self, job: &Job, table: &SeenTable) {
        let [read, _, _] = table.figures;
        assert_eq!(read % job.chunk, 0, "{}: half an epoch", table.name);
        let then = &self.0[usize::try_from(read / job.chunk).expect("a small number")];
        let then = then.tables.iter().find(|then| then.name == table.name);
        assert_eq!(Some(table), then, "after {read} rows");
    }
}

/// The rows of a table, sorted; those of a scan, without a plan above it.
pub(crate) async fn rows_of(ctx: &StreamContext, name: &str) -> Result<Vec<String>> {
    let state = ctx.session().state();
    let table = ctx.session().table_provider(name).await?;
    let plan = table.scan(&state, None, &[], None).await?;
    let rows = collect(plan, Arc::new(TaskContext::from(&state))).await?;
    Ok(sorted(rows.iter().flat_map(lines).collect()))
}

/// The rows of all files below a folder whose names end so, for one who knows nothing of who wrote them.
fn rows_of_files(disk: &SimDisk, folder: &str, ending: &str) -> Vec<String> {
    // The reader has a disk that is well.
    let disk = disk.fork();
    disk.heal();
    let mut rows = Vec::new();
    let files = disk.files().into_iter();
    for path in files.filter(|path| path.starts_with(folder) && path.ends_with(ending)) {
        let bytes = disk.read(&path).expect("a file is read");
        match ending {
            ".csv" => {
                let text = String::from_utf8(bytes).expect("a text");
                rows.extend(text.lines().skip(1).map(|line| line.replace(',', "|")));
            }
            _ => {
                let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))
                    .unwrap_or_else(|error| panic!("{path} is not whole: {error}"));
                let reader = reader.build().expect("a reader");
                rows.extend(reader.flat_map(|batch| lines(&batch.expect("rows"))));
            }
        }
    }
    sorted(rows)
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}

/// A line for each row.
fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default();
    let columns: Vec<ArrayFormatter<'_>> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).expect("a column is shown"))
        .collect();
    let line = |row| {
        let values = columns.iter().map(|column| column.value(row).to_string());
        values.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(line).collect()
}
