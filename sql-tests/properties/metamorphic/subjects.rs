//! The scenarios that can be changed.

use super::{ANY_LENGTH, Subject};
use crate::arrivals::Feed;
use crate::chains::ChainScenario;
use crate::deduplication::DedupScenario;
use crate::query::{Aggregate, Mode};
use crate::scenario::Scenario;
use crate::session_windows::SessionScenario;
use crate::text;

impl Subject for Scenario {
    fn definition(&self) -> String {
        text::definition(self)
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn with_feed(&self, feed: Feed) -> Self {
        let query = self.query.clone();
        Self { query, feed }
    }

    fn mode(&self) -> Mode {
        self.query.mode
    }

    fn period(&self) -> i64 {
        self.query.grouping.slide()
    }

    fn with_later_text(&self, by: i64) -> Self {
        let mut later = self.clone();
        if let Some(filter) = &mut later.query.filter {
            filter.predicate.shift(by);
        }
        later
    }

    fn delay(&self) -> Option<i64> {
        self.query.delay
    }

    fn times(&self) -> Vec<usize> {
        let bounds = 0..=usize::from(self.query.selects_end());
        let first = self.query.count_column() + 1;
        let aggregates = (first..).zip(&self.query.aggregates);
        let times = aggregates.filter(|(_, aggregate)| **aggregate == Aggregate::MaxTs);
        bounds.chain(times.map(|(place, _)| place)).collect()
    }
}

impl Subject for SessionScenario {
    fn definition(&self) -> String {
        SessionScenario::definition(self)
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn with_feed(&self, feed: Feed) -> Self {
        let query = self.query.clone();
        Self { query, feed }
    }

    fn mode(&self) -> Mode {
        self.query.mode
    }

    fn period(&self) -> i64 {
        ANY_LENGTH
    }

    fn with_later_text(&self, _by: i64) -> Self {
        self.clone()
    }

    fn delay(&self) -> Option<i64> {
        Some(self.query.delay)
    }

    fn times(&self) -> Vec<usize> {
        vec![0, 1]
    }
}

impl Subject for DedupScenario {
    fn definition(&self) -> String {
        DedupScenario::definition(self)
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn with_feed(&self, feed: Feed) -> Self {
        let query = self.query.clone();
        let mode = self.mode;
        Self { query, mode, feed }
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn period(&self) -> i64 {
        ANY_LENGTH
    }

    fn with_later_text(&self, _by: i64) -> Self {
        self.clone()
    }

    fn delay(&self) -> Option<i64> {
        // Which row is first depends on the epoch that it is in.
        None
    }

    fn times(&self) -> Vec<usize> {
        vec![0]
    }
}

impl Subject for ChainScenario {
    fn definition(&self) -> String {
        ChainScenario::definition(self)
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn with_feed(&self, feed: Feed) -> Self {
        let query = self.query.clone();
        Self { query, feed }
    }

    fn mode(&self) -> Mode {
        Mode::Append
    }

    fn period(&self) -> i64 {
        self.query.period()
    }

    fn with_later_text(&self, _by: i64) -> Self {
        self.clone()
    }

    fn delay(&self) -> Option<i64> {
        // What is below may be a deduplication.
        None
    }

    fn times(&self) -> Vec<usize> {
        vec![0]
    }
}
