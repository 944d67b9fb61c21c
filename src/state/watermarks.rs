//! The watermark of a query: what its clauses have observed, and how far it has come.

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

    /// The watermark that the clauses together make.
    pub fn reached(&self, policy: WatermarkPolicy) -> Option<Instant> {
        let clauses = self.lock();
        let each = clauses.iter().flatten().map(Observed::watermark);
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
        assert_eq!(watermarks.reached(WatermarkPolicy::Min), None);
        assert_eq!(
            watermarks.reached(WatermarkPolicy::Max),
            Some(Unit::Second.instant(90))
        );
        watermarks.observe(1, seen(50, 0));
        assert_eq!(
            watermarks.reached(WatermarkPolicy::Min),
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
            watermarks.reached(WatermarkPolicy::Min),
            Some(Unit::Second.instant(100))
        );
    }
}
