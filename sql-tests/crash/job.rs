//! What is run: a table that rows come to in parts, and streaming tables over it.
//!
//! ```text
//! parts    1   2 | 3   4          each an INSERT, or an append; all rows of one or none
//! refresh        ^       ^        of every streaming table; a chunk of rows is an epoch
//! ```
//!
//! A part is a whole number of chunks, so that epochs are cut at the same rows however often the job was interrupted:
//! which rows are late depends on where epochs end.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::common::Result;
use datafusion::prelude::{SessionConfig, SessionContext};
use tidegate::disk::Disk;
use tidegate::prelude::*;
use tidegate::source::AppendTable;

/// Id of the database.
const ID: &str = "db";

/// Where the rows of a streaming table are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// In the table.
    Itself,
    /// In files of a folder: how they are stored, and how their names end.
    Files(&'static str, &'static str),
}

/// A streaming table of a job.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name, and that of its folder below `out`.
    pub(crate) name: &'static str,
    /// Its query.
    query: &'static str,
    /// Options besides the size of an epoch.
    options: &'static str,
    /// Where its rows are.
    pub(crate) place: Place,
}

/// A table `t`, and streaming tables over it.
#[derive(Debug)]
pub(crate) struct Job {
    /// Its name.
    pub(crate) name: &'static str,
    /// The streaming tables.
    pub(crate) tables: &'static [Table],
    /// Rows of an epoch.
    pub(crate) chunk: u64,
    /// Rows of a part: a multiple.
    pub(crate) part: u64,
    /// Number of parts.
    pub(crate) parts: u64,
    /// Whether parts are INSERTs, and not appends of a program.
    pub(crate) sql: bool,
}

/// Windows that overlap, to Parquet files; windows that are counted on and on, by key.
pub(crate) const WINDOWS: Job = Job {
    name: "windows",
    tables: &[
        Table {
            name: "hop",
            query: "SELECT window.start AS opened, window.end AS closed, count(*) AS n, sum(v) AS total \
                    FROM STREAM t WATERMARK ts DELAY OF INTERVAL 20 MINUTES \
                    GROUP BY window(ts, '20 minutes', '10 minutes')",
            options: "",
            place: Place::Files("PARQUET", ".parquet"),
        },
        Table {
            name: "upd",
            query: "SELECT window.start AS opened, k, count(*) AS n, sum(v) AS total \
                    FROM STREAM t WATERMARK ts DELAY OF INTERVAL 20 MINUTES \
                    GROUP BY window(ts, '30 minutes'), k",
            options: ", output_mode = 'update'",
            place: Place::Itself,
        },
    ],
    chunk: 8,
    part: 8,
    parts: 4,
    sql: true,
};

/// Sessions, in the table itself; the first row of each number, to CSV files; a few rows and no more.
pub(crate) const ROWS: Job = Job {
    name: "rows",
    tables: &[
        Table {
            name: "sessions",
            query: "SELECT session_window.start AS opened, session_window.end AS closed, k, count(*) AS n \
                    FROM STREAM t WATERMARK ts DELAY OF INTERVAL 20 MINUTES \
                    GROUP BY session_window(ts, '5 minutes'), k",
            options: "",
            place: Place::Itself,
        },
        Table {
            name: "firsts",
            query: "SELECT DISTINCT ON (d) d, ts, v FROM STREAM t WATERMARK ts DELAY OF INTERVAL 20 MINUTES",
            options: "",
            place: Place::Files("CSV", ".csv"),
        },
        Table {
            name: "few",
            query: "SELECT ts, k, v FROM STREAM t WHERE v > 3 LIMIT 13",
            options: "",
            place: Place::Itself,
        },
    ],
    chunk: 8,
    part: 16,
    parts: 2,
    sql: false,
};

/// Epochs of a row, and so many that what they wrote is written together anew, in the table too.
pub(crate) const LONG: Job = Job {
    name: "long",
    tables: &[Table {
        name: "sums",
        query: "SELECT k, d, count(*) AS n FROM STREAM t GROUP BY k, d",
        options: ", output_mode = 'update'",
        place: Place::Itself,
    }],
    chunk: 1,
    part: 1,
    parts: 18,
    sql: false,
};

/// What has been said to be done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done {
    /// Rows of the table `t`.
    pub(crate) rows: u64,
    /// Rows that each streaming table has read; one that is not here was not made.
    pub(crate) read: BTreeMap<&'static str, u64>,
}

/// A statement of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// `CREATE TABLE`.
    Table,
    /// `CREATE STREAMING TABLE`, by its place.
    Streaming(usize),
    /// The rows of a part.
    Part(u64),
    /// `REFRESH`, by the table's place.
    Refresh(usize),
}

/// Opens the database over a session with so many partitions.
pub(crate) async fn open(disk: Arc<dyn Disk>, partitions: usize) -> Result<StreamContext> {
    let config = SessionConfig::new().with_target_partitions(partitions);
    StreamContext::open_on(SessionContext::new_with_config(config), disk, Some(ID)).await
}

/// Runs what is asynchronous on this thread; what it left running has ended when this returns.
pub(crate) fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

impl Job {
    /// Rows in all.
    pub(crate) fn rows(&self) -> u64 {
        self.part * self.parts
    }

    /// All statements, in order: half of the parts, then all tables, twice.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let tables = || 0..self.tables.len();
        let mut steps = vec![Step::Table];
        steps.extend(tables().map(Step::Streaming));
        for half in [0..self.parts / 2, self.parts / 2..self.parts] {
            steps.extend(half.map(Step::Part));
            steps.extend(tables().map(Step::Refresh));
        }
        steps
    }

    /// Runs a statement, and takes note of what it has done.
    pub(crate) async fn step(
        &self,
        ctx: &StreamContext,
        step: Step,
        done: &mut Done,
    ) -> Result<()> {
        match step {
            Step::Table => {
                let sql =
                    "CREATE TABLE IF NOT EXISTS t (ts TIMESTAMP, k VARCHAR, d BIGINT, v BIGINT)";
                run(ctx, sql).await?;
            }
            Step::Streaming(at) => {
                let table = &self.tables[at];
                run(ctx, &self.create(table)).await?;
                done.read.entry(table.name).or_default();
            }
            Step::Part(part) => {
                let rows = part * self.part..(part + 1) * self.part;
                match self.sql {
                    true => run(ctx, &insert(rows)).await?,
                    false => ctx.append("t", batch(ctx, rows).await).await?,
                }
                done.rows += self.part;
            }
            Step::Refresh(at) => {
                let name = self.tables[at].name;
                for epoch in ctx.refresh(name).await? {
                    *done.read.entry(name).or_default() += epoch.input_rows;
                }
            }
        }
        Ok(())
    }

    /// Runs all statements until one fails.
    pub(crate) async fn run(&self, ctx: &StreamContext, done: &mut Done) -> Result<()> {
        for step in self.steps() {
            self.step(ctx, step, done).await?;
        }
        Ok(())
    }

    /// Does what is left of the job, whatever was done before.
    pub(crate) async fn finish(&self, ctx: &StreamContext, done: &mut Done) -> Result<()> {
        self.step(ctx, Step::Table, done).await?;
        for at in 0..self.tables.len() {
            self.step(ctx, Step::Streaming(at), done).await?;
        }
        done.rows = rows_of_t(ctx).await?;
        assert_eq!(done.rows % self.part, 0, "t has a part of a part");
        for part in done.rows / self.part..self.parts {
            self.step(ctx, Step::Part(part), done).await?;
        }
        for at in 0..self.tables.len() {
            self.step(ctx, Step::Refresh(at), done).await?;
        }
        Ok(())
    }

    fn create(&self, table: &Table) -> String {
        let Table {
            name,
            query,
            options,
            place,
        } = table;
        let stored = match place {
            Place::Itself => String::new(),
            Place::Files(format, _) => format!("STORED AS {format} LOCATION 'out/{name}/' "),
        };
        let rows = self.chunk;
        format!(
            "CREATE STREAMING TABLE IF NOT EXISTS {name} WITH (max_rows_per_epoch = '{rows}'{options}) {stored}AS {query}"
        )
    }
}

/// Runs a statement to its end.
pub(crate) async fn run(ctx: &StreamContext, sql: &str) -> Result<()> {
    ctx.sql(sql).await?.collect().await.map(drop)
}

/// Number of rows of the table `t`.
async fn rows_of_t(ctx: &StreamContext) -> Result<u64> {
    let table = ctx.session().table_provider("t").await?;
    match table.downcast_ref::<AppendTable>() {
        Some(table) => Ok(table.log().rows()),
        None => {
            run(ctx, "SELECT * FROM t").await?;
            panic!("t can be read and takes no rows");
        }
    }
}

/// A row of the input: minutes, key, number, value.
type Row = (Option<i64>, &'static str, i64, i64);

/// The row of this number. Some come before their time, some long after it, some have none.
fn row(at: u64) -> Row {
    let number = i64::try_from(at).expect("a small number");
    let minutes = 1_000 + 4 * number;
    let minutes = match number {
        it if it % 13 == 6 => None,
        it if it % 11 == 7 => Some(minutes - 150),
        it if it % 5 == 3 => Some(minutes - 11),
        _ => Some(minutes),
    };
    let key = ["a", "b", "c"][usize::try_from(at / 2 % 3).expect("one of three")];
    (
        minutes,
        key,
        number - i64::from(number % 4 == 1),
        number * number % 17,
    )
}

/// A row as it is shown.
pub(crate) fn shown(at: u64) -> String {
    let (minutes, key, number, value) = row(at);
    let time = minutes.map(|at| format!("1970-01-01T{:02}:{:02}:00", at / 60, at % 60));
    format!("{}|{key}|{number}|{value}", time.unwrap_or_default())
}

fn insert(rows: std::ops::Range<u64>) -> String {
    let rows = rows.map(|at| {
        let (minutes, key, number, value) = row(at);
        let time = minutes.map_or("NULL".to_owned(), |at| {
            format!("TIMESTAMP '1970-01-01T{:02}:{:02}:00'", at / 60, at % 60)
        });
        format!("({time}, '{key}', {number}, {value})")
    });
    format!(
        "INSERT INTO t VALUES {}",
        rows.collect::<Vec<_>>().join(", ")
    )
}

async fn batch(ctx: &StreamContext, rows: std::ops::Range<u64>) -> RecordBatch {
    let table = ctx.session().table_provider("t").await.expect("t is there");
    let rows: Vec<Row> = rows.map(row).collect();
    let nanos = |minutes: Option<i64>| minutes.map(|at| at * 60_000_000_000);
    let columns: [ArrayRef; 4] = [
        Arc::new(
            rows.iter()
                .map(|row| nanos(row.0))
                .collect::<TimestampNanosecondArray>(),
        ),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.3))),
    ];
    let schema = table.schema();
    let columns = columns.iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()).expect("a cast"));
    RecordBatch::try_new(Arc::clone(&schema), columns.collect()).expect("rows")
}
