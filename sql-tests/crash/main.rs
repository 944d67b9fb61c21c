//! The disk fails: power is lost at any call, any call goes wrong, any byte rots. Nothing is lost that was promised,
//! nothing is doubled, and no answer is wrong.
//!
//! The disk is simulated ([`SimDisk`](tidegate::disk::SimDisk)): its clock is the count of calls, so that every
//! failure can be aimed at, and is the same each time. A job is a table that rows come to in parts, some late, some
//! without a time, and streaming tables over it; all statements of a job may be run again.
//!
//! ```text
//! calls     0 1 2 3 …                    n            the job's, in order
//! job       open, CREATE …, INSERT …, REFRESH … ✗
//! after it  what survived → open, over another number of partitions → look → the rest of the job → look
//! ```
//!
//! | family | catches |
//! |---|---|
//! | `points`: a crash at every call, under every model | what was promised and is lost; what is there twice; a database that does not open; state that does not fit the position or the result |
//! | `points`: a second crash while the first is made good | a recovery that cannot be interrupted |
//! | `faults`: every call goes wrong, in every way that fits it, once or until the disk is mended | errors swallowed; errors that do not say of what; statements that cannot be run again; what is said to be done and is not durable |
//! | `rot`: every byte of every file, every length, files that are gone or in each other's place | wrong answers from damaged files; damage that spreads to what is whole; damage that cannot be mended |
//! | `regressions` | what was wrong once |
//!
//! | job | tables | epochs |
//! |---|---|---|
//! | `WINDOWS` | hopping windows to Parquet files; tumbling windows in update mode | 8 |
//! | `ROWS` | sessions in the table itself; `DISTINCT ON` to CSV files; a LIMIT | 12 |
//! | `LONG` | groups in update mode, an epoch a row: parts of state, and of the table, are written together anew | 18 |
//!
//! What must come out is told by a run that nothing disturbs, a chunk of rows at a time. After a crash each streaming
//! table must show *exactly* what it showed there when it had read as many rows: its rows (those of files are decoded
//! by a reader that knows nothing of who wrote them) and the sums of the rows read, late and without a time. What was
//! said to be done is there at least. At the end everything is. Rows are compared as multisets.
//!
//! ```text
//! cargo test --test crash                                     all crash points; one fault in 13, one byte in 5
//! TIDEGATE_CRASH_PAIRS=50000 cargo test --release --test crash second_crash -- --nocapture
//! TIDEGATE_FAULTS=all cargo test --release --test crash error_of_the_disk -- --nocapture
//! TIDEGATE_ROT=all cargo test --release --test crash every_byte -- --nocapture
//! ```
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `TIDEGATE_CRASH_PAIRS` | 60 | pairs of crashes |
//! | `TIDEGATE_CRASH_SEED` | 1 | seed of the pairs |
//! | `TIDEGATE_FAULTS` | a fixed stride | `all`: each call, each fault |
//! | `TIDEGATE_ROT` | a fixed stride | `all`: each byte and each length |
//!
//! Figures go to stderr. A failure names its case: job, call, model, seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod case;
mod faults;
mod job;
#[path = "../support/number.rs"]
mod number;
mod points;
mod random;
mod regressions;
mod rot;
mod seen;
#[path = "../support/splitmix.rs"]
mod splitmix;
mod tap;

use number::number;

/// Each failure is aimed at a call by its number, though an epoch is written while the next one reads.
#[test]
fn the_calls_of_a_job_come_in_the_same_order_each_time() {
    for job in [&job::WINDOWS, &job::ROWS, &job::LONG] {
        let once = format!("{:?}", faults::calls(job));
        for _ in 0..3 {
            assert_eq!(format!("{:?}", faults::calls(job)), once, "{}", job.name);
        }
    }
}

#[test]
fn windows_survive_a_crash_at_every_call() {
    points::every(&job::WINDOWS);
}

#[test]
fn rows_survive_a_crash_at_every_call() {
    points::every(&job::ROWS);
}

#[test]
fn a_long_job_survives_a_crash_at_every_call() {
    points::every(&job::LONG);
}

#[test]
fn a_second_crash_while_the_first_is_made_good() {
    const PAIRS: u64 = 60;
    points::pairs(
        &[&job::WINDOWS, &job::ROWS, &job::LONG],
        number("TIDEGATE_CRASH_PAIRS", PAIRS),
        number("TIDEGATE_CRASH_SEED", 1),
    );
}

/// Of the faults one in so many, or all.
fn faults(stride: usize) -> faults::Stride {
    let all = std::env::var("TIDEGATE_FAULTS").is_ok_and(|text| text == "all");
    faults::Stride(if all { 1 } else { stride })
}

#[test]
fn an_error_of_the_disk_is_an_error_of_the_statement_that_met_it() {
    faults::while_it_runs(&job::WINDOWS, faults(13));
    faults::while_it_runs(&job::ROWS, faults(13));
    faults::while_it_runs(&job::LONG, faults(29));
}

#[test]
fn an_error_of_the_disk_while_a_database_is_opened_passes() {
    faults::while_it_is_opened(&job::WINDOWS, faults(7));
    faults::while_it_is_opened(&job::ROWS, faults(7));
}

#[test]
fn every_byte_is_looked_at() {
    let all = std::env::var("TIDEGATE_ROT").is_ok_and(|text| text == "all");
    for job in [&job::WINDOWS, &job::ROWS] {
        rot::Whole::of(job).every_byte(if all { 1 } else { 5 });
    }
}

#[test]
fn what_is_damaged_says_so_and_the_rest_goes_on() {
    for job in [&job::WINDOWS, &job::ROWS] {
        rot::Whole::of(job).all_of_it(3);
    }
}
