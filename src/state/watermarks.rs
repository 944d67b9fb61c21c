//! The watermark of a query: what its clauses have observed, and how far it has come.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::config::WatermarkPolicy;
use crate::time::{Instant, Span, Unit};

/// What one WATERMARK clause has observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Observed {
    /// Greatest event time seen, in ticks of the column.
    pub greatest: Option<i64>,
    /// Unit of the column.
    pub unit: Unit,
    /// Whether the column has a zone.
    pub zoned: bool,
    /// Delay of the clause.
    pub delay: Span,
}

impl Observed {
    /// The watermark that this clause alone would make.
    pub fn watermark(&self) -> Option<Instant> {
        self.greatest
            .map(|ticks| self.unit.instant(ticks).behind(self.delay, self.unit))
    }
}

/// What all clauses of a query have observed. Owned by the query; an epoch works on it under a lock
/// that is taken once for each partition of each clause.
#[derive(Debug, Default)]
pub struct Watermarks {
    clauses: Mutex<Vec<Option<Observed>>>,
}

impl Watermarks {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Observed>>> {
        // Observations are whole numbers: a panic elsewhere cannot leave one half written.
        self.clauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what a clause saw, if only of its being there: it then holds the least watermark.
    /// The greatest event time never decreases.
    pub fn observe(&self, clause: usize, seen: Observed) {
        let mut clauses = self.lock();
        if clauses.len() <= clause {
            clauses.resize(clause.saturating_add(1), None);
        }
        if let Some(slot) = clauses.get_mut(clause) {
            let greatest = slot.and_then(|known| known.greatest).max(seen.greatest);
            *slot = Some(Observed { greatest, ..seen });
        }
    }

    /// Greatest event time that a clause has seen, in ticks of its column.
    pub fn greatest(&self, clause: usize) -> Option<i64> {
        self.lock().get(clause).copied().flatten()?.greatest
    }

    /// The watermark that the clauses together make; idle ones do not hold the least. None if all are idle: it stays
    /// where it is.
    pub fn reached(&self, policy: WatermarkPolicy, idle: &BTreeSet<usize>) -> Option<Instant> {
        let clauses = self.lock();
        let counts = |clause: &usize| policy == WatermarkPolicy::Max || !idle.contains(clause);
        let clauses = clauses.iter().enumerate().filter(|(at, _)| counts(at));
        let each = clauses.filter_map(|(_, seen)| Some(seen.as_ref()?.watermark()));
        match policy {
            WatermarkPolicy::Min => each.min().flatten(),
            WatermarkPolicy::Max => each.max().flatten(),
        }
    }

    /// What each clause has observed, to go back to if an epoch fails.
    pub fn snapshot(&self) -> Vec<Option<Observed>> {
        self.lock().clone()
    }

    /// Goes back to a snapshot.
    pub fn restore(&self, snapshot: Vec<Option<Observed>>) {
        *self.lock() = snapshot;
    }

    /// Unit of the finest clause, in which the watermark is shown, and whether any has a zone.
    pub fn shown_in(&self) -> (Unit, bool) {
        let clauses = self.lock();
        let unit = clauses.iter().flatten().map(|seen| seen.unit).max();
        (
            unit.unwrap_or(Unit::Second),
            clauses.iter().flatten().any(|seen| seen.zoned),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(greatest: impl Into<Option<i64>>, delay: i128) -> Observed {
        Observed {
            greatest: greatest.into(),
            unit: Unit::Second,
            zoned: false,
            delay: Span::from_nanos(delay * 1_000_000_000),
        }
    }

    #[test]
    fn the_least_clause_holds_the_watermark_and_an_unseen_one_holds_it_back() {
        let watermarks = Watermarks::default();
        watermarks.observe(0, seen(None, 0));
        watermarks.observe(1, seen(None, 0));
        watermarks.observe(0, seen(100, 10));
        assert_eq!(
            watermarks.reached(WatermarkPolicy::Min, &BTreeSet::new()),
            None
        );
        assert_eq!(
            watermarks.reached(WatermarkPolicy::Max, &BTreeSet::new()),
            Some(Unit::Second.instant(90))
        );
        watermarks.observe(1, seen(50, 0));
        assert_eq!(
            watermarks.reached(WatermarkPolicy::Min, &BTreeSet::new()),
            Some(Unit::Second.instant(50))
        );
    }

    #[test]
    fn the_greatest_event_time_never_goes_back() {
        let watermarks = Watermarks::default();
        watermarks.observe(0, seen(100, 0));
        watermarks.observe(0, seen(40, 0));
        watermarks.observe(0, seen(None, 0));
        assert_eq!(
            watermarks.reached(WatermarkPolicy::Min, &BTreeSet::new()),
            Some(Unit::Second.instant(100))
        );
    }

    #[test]
    fn an_idle_clause_does_not_hold_the_least_and_if_all_are_it_stays() {
        let watermarks = Watermarks::default();
        watermarks.observe(0, seen(100, 10));
        watermarks.observe(1, seen(None, 0));
        watermarks.observe(2, seen(60, 0));
        let reached =
            |policy, idle: &[usize]| watermarks.reached(policy, &idle.iter().copied().collect());
        let at = |seconds| Some(Unit::Second.instant(seconds));
        assert_eq!(reached(WatermarkPolicy::Min, &[0]), None);
        assert_eq!(reached(WatermarkPolicy::Min, &[1]), at(60));
        assert_eq!(reached(WatermarkPolicy::Min, &[1, 2]), at(90));
        assert_eq!(reached(WatermarkPolicy::Min, &[0, 1, 2]), None);
        assert_eq!(reached(WatermarkPolicy::Max, &[0, 1, 2]), at(90));
    }
}
