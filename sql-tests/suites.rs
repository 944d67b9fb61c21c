//! Every `.slt` file beside this one, a test a file: `cargo test --test suites hopping` runs those with `hopping` in
//! their name. `tidegate test sql-tests` runs the same files without a build.
//!
//! Each file is run twice: in memory, and, as `restarted/…`, on a database that is closed before each statement and
//! opened again. The disk of that database is simulated, for its speed.

#![expect(
    clippy::expect_used,
    reason = "without its files or a runtime there is nothing to test"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::prelude::{SessionConfig, SessionContext};
use libtest_mimic::{Arguments, Failed, Trial};
use tidegate::context::StreamContext;
use tidegate::disk::SimDisk;
use tidegate::slt;
use tokio::runtime::{Builder, Runtime};

/// Suites of what belongs to a session, and goes with it: prepared statements, the time since the epoch before,
/// queries that were started.
const OF_A_SESSION: [&str; 4] = [
    "plain_datafusion.slt",
    "prepared.slt",
    "progress.slt",
    "started.slt",
];

/// Stack of a thread in bytes: planning in a debug build needs more than the two megabytes that are usual.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql-tests");
    let files =
        slt::find_files(std::slice::from_ref(&root)).expect("the folder of the suites can be read");
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()
        .expect("a runtime starts");
    let runtime = Arc::new(runtime);
    let in_memory = |file: &PathBuf| trial(&root, file.clone(), false, Arc::clone(&runtime));
    let restarted = |file: &PathBuf| trial(&root, file.clone(), true, Arc::clone(&runtime));
    let lasting = |file: &&PathBuf| !OF_A_SESSION.iter().any(|name| file.ends_with(name));
    let trials = files.iter().map(in_memory);
    let trials = trials.chain(files.iter().filter(lasting).map(restarted));
    let trials = trials.collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The test of one file, named by its path below the folder of the suites.
fn trial(root: &Path, file: PathBuf, restarts: bool, runtime: Arc<Runtime>) -> Trial {
    let folder = if restarts { "restarted/" } else { "" };
    let name = file
        .strip_prefix(root)
        .unwrap_or(&file)
        .display()
        .to_string();
    Trial::test(format!("{folder}{name}"), move || {
        // On a thread of the runtime, for its stack.
        let run = runtime.spawn(async move {
            match restarts {
                false => slt::run_file(&file, StreamContext::new).await,
                true => {
                    let context = database().await.map_err(slt::Failure::Context)?;
                    slt::run_file_with_restarts(&file, context).await
                }
            }
        });
        runtime
            .block_on(run)
            .map_err(|error| Failed::from(error.to_string()))?
            .map_err(|failure| Failed::from(failure.text(false)))
    })
}

/// A new database on a disk of its own.
async fn database() -> Result<StreamContext> {
    let mut config = SessionConfig::new().with_information_schema(true);
    config.options_mut().sql_parser.collect_spans = true;
    let session = SessionContext::new_with_config(config);
    StreamContext::open_on(session, Arc::new(SimDisk::new(1)), Some("suite")).await
}
