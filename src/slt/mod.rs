//! Runs [sqllogictest](https://sqlite.org/sqllogictest/doc/trunk/about.wiki) suites: files of SQL with the rows each
//! statement must answer.
//!
//! The binary runs them as `tidegate test FILE_OR_DIR… [--complete] [--jobs N]`, and an application runs its own
//! suites, over its own tables and functions, from an ordinary test:
//!
//! ```no_run
//! use datafusion::common::Result;
//! use tidegate::context::StreamContext;
//! use tidegate::slt;
//!
//! fn context() -> Result<StreamContext> {
//!     let context = StreamContext::new()?;
//!     // Register tables and functions on `context.session()` here.
//!     Ok(context)
//! }
//!
//! # async fn suites() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! for file in slt::find_files(&["sql-tests".into()])? {
//!     slt::run_file(&file, context).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # A suite
//!
//! ```text
//! statement ok
//! CREATE TABLE orders (amount BIGINT, event_time TIMESTAMP)
//!
//! statement ok
//! CREATE STREAMING TABLE hourly AS
//! SELECT window.start AS hour, sum(amount) AS amount
//! FROM STREAM orders WATERMARK event_time DELAY OF INTERVAL 1 HOUR
//! GROUP BY window(event_time, '1 hour')
//!
//! query I
//! INSERT INTO orders VALUES (5, '2026-10-01T09:10:00'), (7, '2026-10-01T11:00:00')
//! ----
//! 2
//!
//! query IIIIIIIIT
//! REFRESH STREAMING TABLE hourly
//! ----
//! 0 2 0 0 0 1 1 1 2026-10-01T10:00:00
//!
//! query PI
//! SELECT * FROM hourly
//! ----
//! 2026-10-01T09:00:00 5
//! ```
//!
//! # Contracts
//!
//! - Every file has a context of its own; all named connections of a file share it ([`run_file`]).
//! - A row is a line. Cells are compared with any run of spaces and tabs taken as one space. NULL is `NULL`, the
//!   empty string `(empty)`, a float its shortest text that reads back as the same number, a timestamp
//!   `2026-10-01T09:00:00`; anything else is as Arrow prints it. A cell of several lines continues on lines of its
//!   own, each with its number and with `-` for every leading space, as in DataFusion's own suites.
//! - The letters after `query` say what a reader should expect (`I` integer, `R` number, `B` boolean, `P` time, `T`
//!   text, `?` other) and are not compared.
//! - `statement error REGEX` is matched against the message, `statement error (42K09)` against the SQLSTATE.
//! - After `control substitution on`, `${SUITE_DIR}` is the folder of the file and `${__TEST_DIR__}` a new, empty folder
//!   that is removed after the file. `system ok` runs a shell command, in which the same names stand without braces.

mod database;
mod normalize;
mod runner;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::task::JoinSet;

use crate::context::StreamContext;

pub use runner::{Failure, complete_file, find_files, run_file, run_file_with_restarts};

/// Every file passed, or was completed.
const PASSED: u8 = 0;
/// A file failed.
const FAILED: u8 = 1;
/// There was nothing to run.
const USAGE: u8 = 2;

/// The binary's `test` command: runs the suites in `paths` (files, or folders that are searched), `jobs` files at a
/// time (0: one a processor), each on a new [`StreamContext`].
///
/// What failed goes to stderr, the line `N passed, N failed` to stdout. The code is 0 if all passed, 1 if a file
/// failed and 2 if there was no file. With `complete` nothing is compared: the answers are written into the files.
pub async fn main(paths: Vec<PathBuf>, complete: bool, jobs: usize) -> ExitCode {
    let files = match find_files(&paths) {
        Ok(files) if !files.is_empty() => files,
        Ok(_) => {
            complain("error: no .slt file found");
            return ExitCode::from(USAGE);
        }
        Err(failure) => {
            complain(&format!("error: {failure}"));
            return ExitCode::from(USAGE);
        }
    };
    let failed = if complete {
        complete_all(&files).await
    } else {
        run_all(&files, jobs).await
    };
    let verb = if complete { "completed" } else { "passed" };
    let passed = files.len().saturating_sub(failed);
    let summary = writeln!(std::io::stdout(), "{passed} {verb}, {failed} failed");
    ExitCode::from(if failed > 0 || summary.is_err() {
        FAILED
    } else {
        PASSED
    })
}

/// Runs `files`, at most `jobs` at a time, and returns how many failed.
async fn run_all(files: &[PathBuf], jobs: usize) -> usize {
    let jobs = match jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    let mut waiting = files.iter().cloned();
    let mut running = JoinSet::new();
    let mut failed: usize = 0;
    loop {
        while running.len() < jobs {
            let Some(file) = waiting.next() else { break };
            running.spawn(async move {
                let outcome = run_file(&file, StreamContext::new).await;
                (file, outcome)
            });
        }
        match running.join_next().await {
            None => return failed,
            Some(Ok((_, Ok(())))) => {}
            Some(Ok((file, Err(failure)))) => {
                failed = failed.saturating_add(1);
                report(&file, &failure);
            }
            // A panic has printed its own message; it must still count.
            Some(Err(error)) => {
                failed = failed.saturating_add(1);
                complain(&format!("error: a suite did not end: {error}"));
            }
        }
    }
}

/// Completes `files` one after the other, and returns how many could not be.
async fn complete_all(files: &[PathBuf]) -> usize {
    let mut failed: usize = 0;
    for file in files {
        if let Err(failure) = complete_file(file, StreamContext::new).await {
            failed = failed.saturating_add(1);
            report(file, &failure);
        }
    }
    failed
}

/// Says on stderr why `file` failed, in colours if a person is looking.
fn report(file: &Path, failure: &Failure) {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    complain(&format!(
        "FAILED {}\n{}",
        file.display(),
        failure.text(colours)
    ));
}

/// Writes to stderr. When stderr itself is gone there is nobody left to tell.
fn complain(text: &str) {
    writeln!(std::io::stderr(), "{text}").ok();
}
