//! Every `.slt` file beside this one, a test a file: `cargo test --test suites hopping` runs those with `hopping` in
//! their name. `tidegate test sql-tests` runs the same files without a build.

#![expect(
    clippy::expect_used,
    reason = "without its files or a runtime there is nothing to test"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use tidegate::context::StreamContext;
use tidegate::slt;
use tokio::runtime::{Builder, Runtime};

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
    let trials = files
        .into_iter()
        .map(|file| trial(&root, file, Arc::clone(&runtime)))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The test of one file, named by its path below the folder of the suites.
fn trial(root: &Path, file: PathBuf, runtime: Arc<Runtime>) -> Trial {
    let name = file
        .strip_prefix(root)
        .unwrap_or(&file)
        .display()
        .to_string();
    Trial::test(name, move || {
        // On a thread of the runtime, for its stack.
        let run = runtime.spawn(async move { slt::run_file(&file, StreamContext::new).await });
        runtime
            .block_on(run)
            .map_err(|error| Failed::from(error.to_string()))?
            .map_err(|failure| Failed::from(failure.text(false)))
    })
}
