//! SQL texts from a grammar, each a function of a seed.
//!
//! | property | catches |
//! |---|---|
//! | `any_text_*` | panics, hangs, errors without words and errors that tell of a fault, whatever is written |
//! | `batch_*` | a stream that ends with its input and does not answer what the same text without `STREAM` does |
//!
//! The first draws statements without regard to what they mean ([`wild`]), some of the second kind, and changes tokens
//! of them ([`mutation`]). The second draws what a stream takes in append mode ([`selects`]) over rows that are never
//! late, and counts how many it took. What is known to fail is in [`known`].

mod answer;
mod combined;
mod data;
mod equal;
mod groups;
mod known;
mod mutation;
mod relations;
mod selects;
mod sources;
mod sturdy;
mod tally;
mod wild;
mod wild_from;
mod wild_select;

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::trial::{Trial, check};
use crate::{SCENARIOS, number};
use equal::EqualTrial;
use sturdy::SturdyTrial;
use tally::Tally;

/// Halves of the seeds, to run side by side.
const HALVES: u64 = 2;

/// Of a hundred queries that a stream should take, those that it takes at least.
const TAKEN: usize = 60;

/// Of a hundred statements of any kind, those that are answered with rows at least.
const ANSWERED: usize = 15;

/// Stack of a thread in bytes: a debug build needs more than the usual two megabytes to plan deep queries.
const STACK: usize = 16 << 20;

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Checks every seed of a half, or, in the first half, the one that `TIDEGATE_SEED` names.
fn check_half<T: Trial>(half: u64, of: impl Fn(u64) -> T) {
    let seeds: Vec<u64> = match number("TIDEGATE_SEED") {
        Some(seed) if half == 0 => vec![seed],
        Some(_) => Vec::new(),
        None => (0..number("TIDEGATE_SCENARIOS").unwrap_or(SCENARIOS))
            .filter(|seed| seed % HALVES == half)
            .collect(),
    };
    let runtime = runtime();
    for seed in seeds {
        let trial = of(seed);
        // On a thread of the runtime, for its stack.
        if let Err(failed) = runtime.block_on(runtime.spawn(check(trial))) {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

fn any_text(half: u64) {
    let tally = Arc::new(Tally::default());
    check_half(half, |seed| SturdyTrial::of(seed, &tally));
    tally.check(ANSWERED);
}

fn batch_answers(half: u64) {
    let tally = Arc::new(Tally::default());
    check_half(half, |seed| EqualTrial::of(seed, &tally));
    tally.check(TAKEN);
}

#[test]
fn any_text_has_an_answer_first_half() {
    any_text(0);
}

#[test]
fn any_text_has_an_answer_second_half() {
    any_text(1);
}

#[test]
fn batch_answers_the_same_first_half() {
    batch_answers(0);
}

#[test]
fn batch_answers_the_same_second_half() {
    batch_answers(1);
}

#[test]
fn a_statement_is_a_function_of_its_seed() {
    let tally = Arc::new(Tally::default());
    let any_text = |seed| SturdyTrial::of(seed, &tally).replay();
    let batch_answers = |seed| EqualTrial::of(seed, &tally).replay();
    for seed in 0..200 {
        assert_eq!(any_text(seed), any_text(seed));
        assert_eq!(batch_answers(seed), batch_answers(seed));
    }
}
