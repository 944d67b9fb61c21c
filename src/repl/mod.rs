//! The binary's command line and prompt.
//!
//! ```text
//! args      what was asked for: prompt, scripts (-c, -f, stdin), or suites
//! prompt    the interactive loop  ── helper: complete, highlight, keywords, lex, names
//! script    text or lines -> statements and dot commands  ── source: where lines come from
//! commands  the dot commands, as a table
//! session   one statement: run it, let Ctrl-C cancel it, tell how it went
//! run       the part of that which runs on a worker: plan, execute, page
//! print     record batches -> table, csv, json, ndjson  ── console: the two ways out
//! progress  the line on stderr while a statement takes long
//! ```
//!
//! Contracts:
//! - Data goes to stdout and nothing else does; all writing is in `console`.
//! - Scripts stop at the first statement that fails, a prompt goes on.
//! - A statement's rows are out before the next statement starts.
//! - The exit code is 0, 1 (a statement failed), 2 (usage, a file that cannot be read), or 130 (Ctrl-C).
//!   A reader that closes stdout early ends the program quietly with 0.
//!
//! Only what an embedder can use of this crate is used here.

mod args;
mod commands;
mod complete;
mod console;
mod helper;
mod highlight;
mod keywords;
mod lex;
mod names;
mod print;
mod progress;
mod prompt;
mod run;
mod script;
mod session;
mod source;

use std::process::ExitCode;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use args::{Options, Request};
use session::{End, Shell};

/// Does what the command line asks for, and returns the exit code.
///
/// Must run on the thread that called `block_on` of a multi-threaded runtime: the prompt waits for
/// keys on it.
pub fn main() -> LocalBoxFuture<'static, ExitCode> {
    // Boxed, so that it is compiled here and not in every program that calls it.
    serve().boxed_local()
}

async fn serve() -> ExitCode {
    let options = match args::parse() {
        Ok(options) => options,
        Err(message) => return args::explain(&message),
    };
    match options.request {
        Request::Test {
            paths,
            complete,
            jobs,
        } => crate::slt::main(paths, complete, jobs).await,
        _ => match shell(options).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(end) => end.code(),
        },
    }
}

/// Runs scripts or the prompt in a new session.
async fn shell(options: Options) -> Result<(), End> {
    let interactive = matches!(options.request, Request::Prompt);
    let mut shell = Shell::new(&options, interactive).await?;
    match options.request {
        Request::Prompt => prompt::run(&mut shell).await,
        Request::Scripts(inputs) => script::run(&mut shell, inputs).await,
        Request::Test { .. } => Ok(()),
    }
}
