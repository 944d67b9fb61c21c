//! How queries that were started wait for time to pass.

use std::fmt::Debug;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

/// Tells how time passes, and waits for it. A test passes its own, whose time passes when the test says so.
pub trait Ticker: Debug + Send + Sync {
    /// Time since a moment that stays the same; it never falls.
    fn now(&self) -> Duration;

    /// Waits until so much time has passed since the call.
    fn wait(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// The time of tokio's runtime.
#[derive(Debug)]
pub(super) struct RuntimeTicker {
    origin: Instant,
}

impl Default for RuntimeTicker {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Ticker for RuntimeTicker {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn wait(&self, time: Duration) -> BoxFuture<'static, ()> {
        // Only a future that is polled needs a runtime.
        async move { tokio::time::sleep(time).await }.boxed()
    }
}

/// Time until the next interval begins, more than zero: intervals are counted from `began`, and those that
/// have begun by `now` are over.
///
/// ```text
/// began       every                   now
///   |-----------|-----------|----------+-|
///                                      <-> left
/// ```
pub(super) fn left(began: Duration, every: Duration, now: Duration) -> Duration {
    let passed = now.saturating_sub(began).as_nanos();
    let into = match every.as_nanos() {
        0 => 0,
        every => passed % every,
    };
    every.saturating_sub(Duration::from_nanos_u128(into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_counted_from_the_start_and_missed_ones_are_over() {
        let left = |began, now| {
            let seconds = Duration::from_secs;
            super::left(seconds(began), seconds(10), seconds(now)).as_secs()
        };
        assert_eq!(left(5, 5), 10);
        assert_eq!(left(5, 6), 9);
        assert_eq!(left(5, 14), 1);
        assert_eq!(left(5, 15), 10);
        assert_eq!(left(5, 47), 8);
    }
}
