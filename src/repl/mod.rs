//! The binary's command line and prompt.
//!
//! ```text
//! args      what was asked for: prompt, scripts (-c, -f, stdin), or suites
//! prompt    the interactive loop  ── helper: complete, highlight, keywords, lex, names
//! script    text or lines -> statements and dot commands  ── source: where lines come from
//! commands  the dot commands, as a table
//! session   one statement: run it, let Ctrl-C cancel it, tell how it went; what runs behind it
//! signals   SIGTERM, and the terminal that it must be left with
//! run       the part of that which runs on a worker: plan, execute, page
//! print     record batches -> table, csv, json, ndjson  ── console: the two ways out
//! progress  the line on stderr while a statement takes long
//! ```
//!
//! Contracts:
//! - Data goes to stdout and nothing else does; all writing is in `console`.
//! - Scripts stop at the first statement that fails, a prompt goes on.
//! - A statement's rows are out before the next statement starts.
//! - The exit code is 0, 1 (a statement or a started query failed), 2 (usage, a file that cannot be read),
//!   130 (Ctrl-C while statements ran), or 143 (SIGTERM). A reader that closes stdout early ends the program
//!   quietly with 0.
//!
//! Queries that were started (`ALTER STREAMING TABLE name START`) run beside the statements:
//! - Ctrl-C cancels a statement and leaves them alone; at a prompt they run until the session ends.
//! - Behind its scripts a program stays as long as one of them runs, as a service. SIGINT and SIGTERM then
//!   are its ordinary end: 0, or 1 if one has failed.
//! - However the program ends, the epoch of each ends first, or is abandoned after a few seconds and read
//!   again the next time. At the next opening they are stopped.
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
mod signals;
mod source;

use std::process::ExitCode;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use args::{Options, Request};
use session::{End, Shell};

/// Does what the command line asks for, and returns the exit code.
///
/// Needs a multi-threaded runtime: statements run on its workers.
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
    let done = match options.request {
        Request::Prompt => prompt::run(&mut shell).await,
        Request::Scripts(inputs) => match script::run(&mut shell, inputs).await {
            Ok(()) | Err(End::Quit) => shell.serve().await,
            end => end,
        },
        Request::Test { .. } => Ok(()),
    };
    shell.shut_down().await;
    done
}
