//! Counts that keep a property from saying less and less without a word.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Statements below which their share says nothing.
const ENOUGH: usize = 50;

/// How many statements were tried, and how many of them had rows for an answer.
#[derive(Debug, Default)]
pub(super) struct Tally {
    tried: AtomicUsize,
    answered: AtomicUsize,
}

impl Tally {
    /// Counts a statement.
    pub(super) fn add(&self, answered: bool) {
        self.tried.fetch_add(1, Ordering::Relaxed);
        let answered = usize::from(answered);
        self.answered.fetch_add(answered, Ordering::Relaxed);
    }

    /// Panics if fewer than so many of a hundred statements were answered.
    pub(super) fn check(&self, least: usize) {
        let tried = self.tried.load(Ordering::Relaxed);
        let answered = self.answered.load(Ordering::Relaxed);
        assert!(
            tried < ENOUGH || answered * 100 >= tried * least,
            "{answered} of {tried} statements were answered, less than {least} %: the property says too little"
        );
    }
}
