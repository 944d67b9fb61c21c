//! Finding suite files, running one, and writing its answers into it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use datafusion::common::{DataFusionError, Result};
use sqllogictest::{
    Record, Runner, TestError, default_column_validator, default_normalizer, parse_file,
};

use super::database::{Database, Raised, Shared};
use super::normalize::{Letter, same};
use crate::context::StreamContext;

/// Name, in a suite, of the folder that holds the suite's file.
const SUITE_DIR: &str = "SUITE_DIR";

/// Why a suite did not pass.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// A path that cannot be read, or is not a path in UTF-8.
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The closure that makes contexts failed.
    Context(DataFusionError),
    /// A record's answer is not what the file says, or the file is not in the form of a suite.
    Record(TestError),
    /// The file could not be rewritten.
    Complete(String),
}

impl Failure {
    /// The text a person reads; a difference in rows is in colours if `colours`.
    pub fn text(&self, colours: bool) -> String {
        match self {
            Self::Record(error) => error.display(colours).to_string(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Context(error) => write!(f, "no context to run the suite on: {error}"),
            Self::Record(error) => error.fmt(f),
            Self::Complete(reason) => write!(f, "the answers could not be written: {reason}"),
        }
    }
}

impl std::error::Error for Failure {}

/// The suite files of `paths`: a file as it is given, a folder as all `*.slt` files in it and in the folders below
/// (not behind symbolic links), sorted by path.
///
/// # Errors
/// - a path that does not exist or cannot be read
pub fn find_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| unreadable(path, error))?;
        if metadata.is_dir() {
            let start = files.len();
            search(path, &mut files)?;
            if let Some(found) = files.get_mut(start..) {
                found.sort();
            }
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// Adds the suite files in `folder` and below.
fn search(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let broken = |error| unreadable(folder, error);
    for entry in fs::read_dir(folder).map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let path = entry.path();
        if entry.file_type().map_err(broken)?.is_dir() {
            search(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
    Ok(())
}

/// Runs one suite on a context of its own, made by `make_context`.
///
/// # Errors
/// - the file cannot be read or is not in the form of a suite
/// - `make_context` fails
/// - a record answers something else than the file says
pub async fn run_file<F>(path: &Path, make_context: F) -> Result<(), Failure>
where
    F: Fn() -> Result<StreamContext>,
{
    run_shared(
        path,
        Shared::new(make_context().map_err(Failure::Context)?, false),
    )
    .await
}

/// Runs one suite like [`run_file`] on a database that is closed before each statement and opened again: nothing may
/// show that it was.
///
/// # Errors
/// - those of [`run_file`]
/// - the database cannot be opened again
pub async fn run_file_with_restarts(path: &Path, context: StreamContext) -> Result<(), Failure> {
    run_shared(path, Shared::new(context, true)).await
}

async fn run_shared(path: &Path, shared: Shared) -> Result<(), Failure> {
    let folder = folder(path)?;
    let records = parse_file::<Letter>(path).map_err(|error| Failure::Record(error.into()))?;
    let mut runner = Runner::new(|| connect(&shared));
    runner.with_validator(same);
    runner.set_var(SUITE_DIR.to_owned(), folder);
    let outcome = runner.run_multi_async(records).await;
    runner.shutdown_async().await;
    outcome.map_err(Failure::Record)
}

/// Runs one suite like [`run_file`], and instead of comparing writes what was answered into the file. Answers that
/// are the same but for spaces stay as they are written.
///
/// # Errors
/// - the file cannot be read, is not in the form of a suite, or cannot be written
/// - `make_context` fails
pub async fn complete_file<F>(path: &Path, make_context: F) -> Result<(), Failure>
where
    F: Fn() -> Result<StreamContext>,
{
    let folder = folder(path)?;
    let records = parse_file::<Letter>(path).map_err(|error| Failure::Record(error.into()))?;
    if !records.iter().any(answers) {
        return Ok(());
    }
    let shared = Shared::new(make_context().map_err(Failure::Context)?, false);
    let mut runner = Runner::new(|| connect(&shared));
    runner.set_var(SUITE_DIR.to_owned(), folder);
    let outcome = runner
        .update_test_file(
            path,
            " ",
            same,
            default_normalizer,
            default_column_validator,
        )
        .await
        .map_err(|error| Failure::Complete(error.to_string()));
    runner.shutdown_async().await;
    outcome
}

/// Whether a record has an answer that could be written into the file.
fn answers(record: &Record<Letter>) -> bool {
    matches!(
        record,
        Record::Statement { .. } | Record::Query { .. } | Record::System { .. }
    )
}

/// A connection to the one context of a suite.
fn connect(shared: &Shared) -> std::future::Ready<Result<Database, Raised>> {
    std::future::ready(Ok(Database::new(shared.clone())))
}

/// The folder of a suite's file, absolute. Says here what the parser would panic on: a file that cannot be read, and
/// a name or content that is not UTF-8.
fn folder(path: &Path) -> Result<String, Failure> {
    let not_text = || unreadable(path, io::Error::other("the path is not in UTF-8"));
    fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    let whole = fs::canonicalize(path).map_err(|error| unreadable(path, error))?;
    path.to_str().ok_or_else(not_text)?;
    let folder = whole.parent().unwrap_or(&whole);
    Ok(folder.to_str().ok_or_else(not_text)?.to_owned())
}

fn unreadable(path: &Path, error: io::Error) -> Failure {
    Failure::Unreadable {
        path: path.to_owned(),
        error,
    }
}
