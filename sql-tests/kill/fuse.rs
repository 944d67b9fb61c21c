//! How long a job lives before it is killed.
//!
//! A time is drawn evenly from nothing to a limit. The limit moves: longer after a kill that found no new row, shorter
//! after one that did, so that about half of the kills find one. Then some fall before the first epoch that a start
//! makes, some behind it, on any machine, and a round has many kills: they move through the whole job. Now and then
//! the limit is the time of a whole job, for what shows only in a process that has lived long.

use std::time::Duration;

use crate::splitmix::SplitMix;

/// One draw in so many may be as long as a whole job.
const LONG_ONES: u64 = 16;

/// What the limit is multiplied or divided by after a kill.
const STEP: f64 = 1.1;

/// Draws the time to the next kill.
#[derive(Debug)]
pub(crate) struct Fuse {
    rng: Rng,
    limit: Duration,
    least: Duration,
    most: Duration,
}

impl Fuse {
    /// Fuses for a job that takes `undisturbed` when nobody kills it.
    pub(crate) fn new(seed: u64, undisturbed: Duration) -> Self {
        Self {
            rng: Rng(SplitMix(seed)),
            limit: undisturbed / 4,
            least: undisturbed / 50,
            // Some kills come at the very end: a job may take longer than it did when it was measured.
            most: undisturbed.mul_f64(1.2),
        }
    }

    /// The time to the next kill.
    pub(crate) fn draw(&mut self) -> Duration {
        let limit = match self.rng.0.next() % LONG_ONES {
            0 => self.most,
            _ => self.limit,
        };
        limit.mul_f64(self.rng.unit())
    }

    /// Moves the limit by whether the last kill found new rows.
    pub(crate) fn learn(&mut self, found_rows: bool) {
        let factor = if found_rows { 1.0 / STEP } else { STEP };
        self.limit = self.limit.mul_f64(factor).clamp(self.least, self.most);
    }
}

/// A source of shares.
#[derive(Debug)]
struct Rng(SplitMix);

impl Rng {
    /// A number in `[0, 1)`, a multiple of 2⁻³².
    fn unit(&mut self) -> f64 {
        f64::from((self.0.next() >> 32) as u32) / 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Duration = Duration::from_millis(1000);

    #[test]
    fn the_same_seed_draws_the_same_times() {
        let (mut left, mut right) = (Fuse::new(7, JOB), Fuse::new(7, JOB));
        for _ in 0..100 {
            assert_eq!(left.draw(), right.draw());
        }
    }

    #[test]
    fn the_limit_stays_within_its_bounds() {
        let mut fuse = Fuse::new(7, JOB);
        for found_rows in [true, false] {
            for _ in 0..200 {
                fuse.learn(found_rows);
                assert!(fuse.draw() <= JOB.mul_f64(1.2));
            }
            let bound = if found_rows { fuse.least } else { fuse.most };
            assert_eq!(fuse.limit, bound);
        }
    }
}
