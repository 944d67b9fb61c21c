//! Random streaming queries against an independent model of what they mean.
//!
//! | family | catches |
//! |---|---|
//! | `scenarios_*`: `check`, `session_windows`, `deduplication`, `chains`, `guarded` | any figure or row of any epoch that the model does not give; rows lost or doubled between epochs, partitions and batches; a result that differs from the batch query |
//! | `scenarios_*`: `metamorphic` | what depends on where time begins, on empty epochs or on the number of partitions, in the model too |
//! | `plans::*` | inputs that a join, a limit or an empty side leaves unread: hangs, watermarks that stand still, state never released |
//! | `statements::any_text_*` | panics, hangs and errors that tell of a fault, whatever SQL is written |
//! | `statements::batch_*` | a stream that ends with its input and does not answer what the batch query does |
//! | `*::tests` | a model that is wrong |
//!
//! A scenario is a function of its seed. A failure prints the seed and statements to replay by hand.
//!
//! ```text
//! cargo test --test properties                                            1,000 scenarios
//! TIDEGATE_SCENARIOS=100000 cargo test --release --test properties        more
//! TIDEGATE_SEED=17 cargo test --test properties                           one
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod arrivals;
mod chains;
mod check;
mod deduplication;
mod follow;
mod guarded;
mod metamorphic;
mod model;
mod plans;
mod query;
mod scenario;
mod session;
mod session_model;
mod session_windows;
#[path = "../support/splitmix.rs"]
mod splitmix;
mod statements;
mod text;
mod trial;

use tokio::runtime::{Builder, Runtime};

use chains::ChainScenario;
use deduplication::DedupScenario;
use guarded::Guarded;
use metamorphic::Changed;
use scenario::Scenario;
use session_windows::SessionScenario;
use trial::Trial;

/// Scenarios unless `TIDEGATE_SCENARIOS` says otherwise.
const SCENARIOS: u64 = 1_000;

/// Test functions among which the seeds are dealt, to run side by side.
const SHARES: u64 = 4;

/// A runtime with two workers, so that partitions run at the same time.
fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// Checks every seed of a share, or, in the first share, the one that `TIDEGATE_SEED` names.
fn check_share(share: u64) {
    let seeds: Vec<u64> = match number("TIDEGATE_SEED") {
        Some(seed) if share == 0 => vec![seed],
        Some(_) => Vec::new(),
        None => (0..number("TIDEGATE_SCENARIOS").unwrap_or(SCENARIOS))
            .filter(|seed| seed % SHARES == share)
            .collect(),
    };
    let runtime = runtime();
    for seed in seeds {
        runtime.block_on(check_seed(seed));
    }
}

/// Checks the trial of a seed. Every share has all families, time windows the most of them.
async fn check_seed(seed: u64) {
    let (family, turn) = (seed / SHARES % 10, seed / SHARES / 10 % 3);
    match (family, turn) {
        (3, 0) => trial::check(Guarded::of(seed)).await,
        (4 | 5, _) => trial::check(SessionScenario::of(seed)).await,
        (6, _) => trial::check(DedupScenario::of(seed)).await,
        (7, _) => trial::check(ChainScenario::of(seed)).await,
        (8, _) => trial::check(Changed::of(Scenario::of(seed))).await,
        (9, 0) => trial::check(Changed::of(SessionScenario::of(seed))).await,
        (9, 1) => trial::check(Changed::of(DedupScenario::of(seed))).await,
        (9, _) => trial::check(Changed::of(ChainScenario::of(seed))).await,
        _ => trial::check(Scenario::of(seed)).await,
    }
}

#[test]
fn scenarios_first_share() {
    check_share(0);
}

#[test]
fn scenarios_second_share() {
    check_share(1);
}

#[test]
fn scenarios_third_share() {
    check_share(2);
}

#[test]
fn scenarios_fourth_share() {
    check_share(3);
}

/// The replay of one seed's trial is the same when it is made again.
fn repeats<T: Trial>(of: impl Fn(u64) -> T) {
    for seed in 0..100 {
        assert_eq!(of(seed).replay(), of(seed).replay());
    }
}

#[test]
fn a_scenario_is_a_function_of_its_seed() {
    repeats(Scenario::of);
    repeats(SessionScenario::of);
    repeats(DedupScenario::of);
    repeats(ChainScenario::of);
    repeats(Guarded::of);
    repeats(|seed| Changed::of(Scenario::of(seed)));
}
