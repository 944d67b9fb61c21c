//! What is run: the input, the script, and what must come out.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::TempDir;

use crate::number;
use crate::reader::Reader;

/// Flights of one month in the order in which they landed.
const JANUARY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/sql-tests/data/nyc_january.parquet"
);

/// Rows of it.
const ROWS: u64 = 26_675;

/// Days from a copy's times to the next one's: the first flight of a copy departs after the last of the one before.
const DAYS: u64 = 31;

/// Epochs of a table: enough that most kills fall within or between them and not at the ends.
const EPOCHS: u64 = 25;

/// A streaming table of the job.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its name, and that of its directory.
    pub(crate) name: &'static str,
    /// Its columns, in their order.
    pub(crate) columns: &'static str,
    /// Its query.
    query: &'static str,
}

/// The streaming tables, in the order in which they are refreshed: one of each kind of window. A delay of six hours
/// makes some rows late, one of four hours many.
pub(crate) const TABLES: [Table; 3] = [
    Table {
        name: "hourly",
        columns: "hour, origin, flights, delay",
        query: "SELECT window.start AS hour, origin, count(*) AS flights, sum(dep_delay) AS delay
FROM STREAM flights WATERMARK dep_ts DELAY OF INTERVAL 6 HOURS
GROUP BY window(dep_ts, '1 hour'), origin",
    },
    Table {
        name: "hopping",
        columns: "opened, closed, flights",
        query: "SELECT window.start AS opened, window.end AS closed, count(*) AS flights
FROM STREAM flights WATERMARK dep_ts DELAY OF INTERVAL 4 HOURS
GROUP BY window(dep_ts, '6 hours', '1 hour')",
    },
    Table {
        name: "sessions",
        columns: "opened, closed, carrier, origin, flights",
        query: "SELECT session_window.start AS opened, session_window.end AS closed, carrier, origin, count(*) AS flights
FROM STREAM flights WATERMARK dep_ts DELAY OF INTERVAL 4 HOURS
GROUP BY session_window(dep_ts, '30 minutes'), carrier, origin",
    },
];

/// A value for each of [`TABLES`]: the sorted rows.
pub(crate) type TableRows = [Vec<String>; TABLES.len()];

/// The job, with its input in a directory that goes when the test has passed.
#[derive(Debug)]
pub(crate) struct Job {
    /// Reads what was written.
    pub(crate) reader: Reader,
    /// What must come out.
    pub(crate) expected: TableRows,
    copies: u64,
    input: PathBuf,
    folder: Kept,
}

impl Job {
    /// Writes the input, and finds what must come out with everything in memory.
    pub(crate) fn prepare() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("tidegate-kill-")
            .tempdir()
            .expect("a temporary directory");
        let mut job = Self {
            reader: Reader::start(),
            expected: TableRows::default(),
            copies: number("TIDEGATE_KILL_COPIES", 1).max(1),
            input: folder.path().join("input"),
            folder: Kept(folder),
        };
        job.write_input();
        let script = job.script(None);
        job.reader.answer(&script);
        for (expected, table) in job.expected.iter_mut().zip(&TABLES) {
            *expected = job.reader.rows(table.columns, table.name);
            assert!(!expected.is_empty(), "{} has no rows", table.name);
        }
        job
    }

    /// A directory for all that the test writes.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.0.path()
    }

    /// The script of the job, which may be run again at any time; without `out` the tables keep their rows in memory.
    pub(crate) fn script(&self, out: Option<&Path>) -> String {
        let rows = (ROWS * self.copies).div_ceil(EPOCHS);
        let mut script = format!(
            "CREATE EXTERNAL TABLE IF NOT EXISTS flights STORED AS PARQUET LOCATION '{}/';\n",
            self.input.display()
        );
        for Table { name, query, .. } in &TABLES {
            let stored = out.map_or_else(String::new, |out| {
                let folder = out.join(name);
                format!("STORED AS PARQUET LOCATION '{}/' ", folder.display())
            });
            script += &format!(
                "CREATE STREAMING TABLE IF NOT EXISTS {name} WITH (max_rows_per_epoch = '{rows}') {stored}AS\n{query};\n"
            );
        }
        for table in &TABLES {
            script += &format!("REFRESH STREAMING TABLE {};\n", table.name);
        }
        script
    }

    /// Writes a file for each month. They are read by the time at which they were written, then by name: in this order.
    fn write_input(&mut self) {
        fs::create_dir(&self.input).expect("a directory is made");
        self.reader.answer(&format!(
            "CREATE EXTERNAL TABLE january STORED AS PARQUET LOCATION '{JANUARY}';"
        ));
        for copy in 0..self.copies {
            self.reader.answer(&format!(
                "COPY (SELECT carrier, origin, dep_delay, dep_ts + INTERVAL '{} days' AS dep_ts
                 FROM january ORDER BY seq) TO '{}/month-{copy:05}.parquet' STORED AS PARQUET;",
                copy * DAYS,
                self.input.display()
            ));
        }
    }
}

/// A directory that is kept, and named, when the test fails.
#[derive(Debug)]
struct Kept(TempDir);

impl Drop for Kept {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.disable_cleanup(true);
            eprintln!("kept: {}", self.0.path().display());
        }
    }
}
