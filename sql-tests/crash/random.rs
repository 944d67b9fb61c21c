//! What a seed draws: numbers, and models of crashes.

use tidegate::disk::sim::Crash;

use crate::splitmix::SplitMix;

/// A source of numbers.
#[derive(Debug)]
pub(crate) struct Random(SplitMix);

impl Random {
    /// A source for `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix(seed))
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.next() % end
    }

    /// One of the models.
    pub(crate) fn model(&mut self) -> Crash {
        Crash::ALL[self.below(4) as usize]
    }
}
