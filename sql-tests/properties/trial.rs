//! Trials: what can be run from a seed, made smaller when it fails, and replayed by hand.

use std::time::{Duration, Instant};

use crate::session::Checked;

/// Time after which a scenario of a few hundred rows hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Time spent on making a failing trial smaller.
const SHRINKING: Duration = Duration::from_secs(30);

/// Something to run and to compare, made from one seed.
pub(crate) trait Trial: Clone + Send + Sync + 'static {
    /// The seed it was made from.
    fn seed(&self) -> u64;

    /// Runs it in a session of its own.
    fn run(&self) -> impl Future<Output = Checked<()>> + Send;

    /// The same with a little less, larger cuts first.
    fn smaller(&self) -> Vec<Self>;

    /// Statements that a person can run, with what each refresh should say.
    fn replay(&self) -> String;
}

/// Panics, with seed and statements to replay, if the trial fails.
pub(crate) async fn check<T: Trial>(trial: T) {
    let Err(first) = attempt(&trial).await else {
        return;
    };
    let (smallest, problem) = shrink(trial, first).await;
    panic!(
        "TIDEGATE_SEED={}\n{problem}\nThe smallest scenario that fails:\n{}",
        smallest.seed(),
        smallest.replay()
    );
}

/// Takes away rounds and rows as long as what is left still fails.
async fn shrink<T: Trial>(mut trial: T, mut problem: String) -> (T, String) {
    let begin = Instant::now();
    'smaller: loop {
        for candidate in trial.smaller() {
            if begin.elapsed() > SHRINKING {
                return (trial, problem);
            }
            if let Err(again) = attempt(&candidate).await {
                (trial, problem) = (candidate, again);
                continue 'smaller;
            }
        }
        return (trial, problem);
    }
}

/// Runs a trial; a panic or a hang is a failure like any other.
async fn attempt<T: Trial>(trial: &T) -> Checked<()> {
    let trial = trial.clone();
    let task = tokio::spawn(async move { trial.run().await });
    let stop = task.abort_handle();
    match tokio::time::timeout(PATIENCE, task).await {
        Ok(ended) => ended.unwrap_or_else(|error| Err(error.to_string())),
        Err(_) => {
            stop.abort();
            Err(format!("not done after {PATIENCE:?}"))
        }
    }
}
