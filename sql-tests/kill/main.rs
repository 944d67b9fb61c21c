//! The job that is killed: whenever SIGKILL comes, nothing is lost, nothing doubled, nothing left behind.
//!
//! A job is one script, run by the binary with a data directory: flights in order of landing, as an external table,
//! and three streaming tables over it, each written to a directory of Parquet files of its own. Every statement of it
//! may be run again, so what a person does after a crash is what the tests do: start the same command once more.
//!
//! ```text
//! start     1        2     3            4                 5
//! job       |--------|-----|------------|-----------------|   hourly, then hopping, then sessions
//! ended by  kill     kill  kill         kill              itself: the round is over
//! looked at     each time: what the three directories hold, read by a process that knows nothing of the job
//! ```
//!
//! | test | catches |
//! |---|---|
//! | `killed_at_any_time_…` | rows lost, doubled or taken back by a kill, at any point from the start of the process to its exit; files that are seen before they are complete or that change; a data directory that does not open again |
//! | `killed_again_and_again_…` | files and bytes that kills and dropped tables leave in the data directory; memory and open files, as figures |
//! | `*::tests` | comparisons that would not see a difference |
//!
//! What must come out is told by a run that keeps everything in memory and writes no file. Rows are compared as
//! multisets of lines, never as sets:
//!
//! - after each kill, what is there is a part of what must come out, and holds all that was there before;
//! - when a job has ended by itself, what is there is what must come out;
//! - while a job runs, a file whose name ends in `.parquet` is whole when it is first seen, and its length stays.
//!
//! **Input.** January 2013, 26,675 rows, most of them out of order and some late. `TIDEGATE_KILL_COPIES` puts further
//! months behind it: the same rows with times 31 days later, month by month, a file each. (Rows with the same times
//! would all be late but for the last hours.) An epoch is a 25th of the input, whatever its size.
//!
//! ```text
//! cargo test --test kill                                                  100 kills of one month, 5 s of soak
//! TIDEGATE_KILLS=10000 TIDEGATE_KILL_COPIES=30 cargo test --release --test kill -- --nocapture
//! TIDEGATE_SOAK_SECONDS=3600 cargo test --release --test kill again_and_again -- --nocapture
//! ```
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `TIDEGATE_KILLS` | 100 | kills in all |
//! | `TIDEGATE_KILL_COPIES` | 1 | months of input, in both tests |
//! | `TIDEGATE_KILL_SEED` | 1 | seed of the times to the kills; where in the job these fall is the machine's |
//! | `TIDEGATE_SOAK_SECONDS` | 60 | after so many seconds no kill and no round begins |
//! | `TIDEGATE_SOAK_KILL_SECONDS` | 2 | seconds from one kill to the next |
//!
//! Figures go to stderr. A failure keeps the temporary directory and names it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod files;
mod fuse;
mod job;
mod kills;
#[path = "../support/number.rs"]
mod number;
mod process;
mod reader;
mod round;
mod rows;
mod soak;
#[path = "../support/splitmix.rs"]
mod splitmix;

use std::sync::{Mutex, MutexGuard, PoisonError};

use number::number;

/// Held by the test that runs: each measures times, which the other would change.
static TURN: Mutex<()> = Mutex::new(());

/// Waits until no other test runs.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn killed_at_any_time_a_job_goes_on_where_it_was() {
    let _turn = turn();
    kills::run(
        number("TIDEGATE_KILLS", 100),
        number("TIDEGATE_KILL_SEED", 1),
    );
}

#[test]
fn killed_again_and_again_a_job_leaves_nothing_behind() {
    let _turn = turn();
    soak::run(
        number("TIDEGATE_SOAK_SECONDS", 60),
        number("TIDEGATE_SOAK_KILL_SECONDS", 2),
    );
}
