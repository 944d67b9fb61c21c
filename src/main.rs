//! The `tidegate` binary: a runtime, and [`tidegate::repl::main`] on it.

use std::io::Write;
use std::process::ExitCode;

/// Bytes of stack of a worker. Plans are trees that planners and optimizer rules walk recursively, and
/// statements run on workers: tokio's 2 MiB are too few for a deeply nested statement.
const WORKER_STACK: usize = 64 << 20;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(WORKER_STACK)
        .build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(tidegate::repl::main());
            // A cancelled statement that is still busy must not keep the process alive.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            // When stderr is gone there is nowhere left to tell.
            writeln!(std::io::stderr(), "error: no runtime: {error}").ok();
            ExitCode::FAILURE
        }
    }
}
