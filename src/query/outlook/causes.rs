//! What of time itself stands behind a watermark: event times of the future, guards against them, inputs that are idle.

use super::{Standing, counted, named};
use crate::config::WatermarkPolicy;
use crate::query::progress::ClauseProgress;
use crate::query::show::show_instant;
use crate::time::{Instant, Unit};

impl Standing<'_> {
    /// The clauses that hold the watermark, or would by their place.
    pub(super) fn holding(&self) -> Vec<&ClauseProgress> {
        let min = self.policy == WatermarkPolicy::Min;
        let counts = |one: &&ClauseProgress| !min || one.idle_since.is_none();
        let counting = || self.clauses().iter().filter(counts);
        let watermarks = counting().map(|one| one.observed.watermark());
        let held = match self.policy {
            WatermarkPolicy::Min => watermarks.min(),
            WatermarkPolicy::Max => watermarks.max(),
        };
        let holds = |one: &&ClauseProgress| Some(one.observed.watermark()) == held;
        counting().filter(holds).collect()
    }

    /// Whether no clause holds the watermark, because every input is idle.
    pub(super) fn all_idle(&self) -> bool {
        let clauses = self.clauses();
        !clauses.is_empty() && clauses.iter().all(|one| one.idle_since.is_some())
    }

    /// Inputs that do not hold the watermark, and since when they have given nothing.
    pub(super) fn idle(&self) -> Vec<String> {
        let clauses = self.clauses().iter();
        let idle = clauses.filter_map(|one| {
            let since = one.idle_since.as_deref()?;
            Some(format!(
                "{}: no row since {since}, so it does not hold the watermark",
                named(one)
            ))
        });
        idle.collect()
    }

    /// The event times of the future by which the watermark stands where it does. One is meant if it is later than the
    /// clock says now, and if that does harm: the watermark is of the future too, or rows have been late since.
    pub(super) fn futures(&self) -> Vec<String> {
        let holding = self.holding();
        let clauses = self.clauses().iter().enumerate();
        let held = clauses.filter(|(_, one)| holding.iter().any(|held| std::ptr::eq(*held, *one)));
        held.filter_map(|(at, one)| self.future(at, one)).collect()
    }

    fn future(&self, at: usize, clause: &ClauseProgress) -> Option<String> {
        let seen = &clause.observed;
        let greatest = seen.unit.instant(seen.greatest?);
        if greatest <= self.now {
            return None;
        }
        let saw = self.history.iter().find(|record| {
            let then = record.clauses.get(at);
            then.is_some_and(|then| then.observed.greatest == seen.greatest)
        })?;
        let since = self
            .history
            .iter()
            .filter(|record| record.epoch > saw.epoch);
        let late: u64 = since.map(|record| record.late_rows).sum();
        let watermark = seen.watermark()?;
        if watermark <= self.now && late == 0 {
            return None;
        }
        // Records of epochs before those that are kept may have it too.
        let first = self.history.front().map(|record| record.epoch);
        let before = match first == Some(saw.epoch) && saw.epoch > 0 {
            true => " or before",
            false => "",
        };
        let show = |at: Instant| show_instant(at, seen.unit, seen.zoned);
        let guard = match &clause.max_future {
            None => "WITH (max_future = INTERVAL '1' HOUR) would set such rows aside".to_owned(),
            Some(span) => {
                format!(
                    "max_future sets aside what is later than now by more than {span} when it is read"
                )
            }
        };
        Some(format!(
            "the watermark stands at {} because of an event time of {} of {}, seen in epoch {}{before}, and now it is {}: {} been late since; {guard}",
            show(watermark),
            show(greatest),
            clause.sources,
            saw.epoch,
            show_instant(self.now, Unit::Millisecond, true),
            match late {
                1 => "1 row has".to_owned(),
                rows => format!("{rows} rows have"),
            },
        ))
    }

    /// What to do about a watermark of the future: rows of now are late.
    pub(super) fn ahead(&self) -> Option<String> {
        let ahead = |one: &&ClauseProgress| one.observed.watermark() > Some(self.now);
        self.holding().into_iter().find(ahead)?;
        Some(format!(
            "the watermark does not go back: with max_future for {}, REFRESH STREAMING TABLE {} FULL begins anew",
            self.name, self.name
        ))
    }

    /// Rows that clauses have set aside, and the latest of them.
    pub(super) fn guarded(&self) -> Vec<String> {
        let clauses = self.clauses().iter().enumerate();
        let guarded = clauses.filter_map(|(at, clause)| {
            let records = self.history.iter();
            let records =
                records.filter_map(|record| Some((record.epoch, record.clauses.get(at)?)));
            let records: Vec<_> = records.filter(|(_, then)| then.guarded_rows > 0).collect();
            let rows: u64 = records.iter().map(|(_, then)| then.guarded_rows).sum();
            let (epoch, last) = records.last()?;
            Some(format!(
                "{}: {} later than now by more than {}, the last in epoch {epoch} with up to {}",
                named(clause),
                match rows {
                    1 => "1 row was".to_owned(),
                    rows => format!("{} were", counted(rows, "row")),
                },
                last.max_future.as_deref().unwrap_or_default(),
                last.guarded_max.as_deref().unwrap_or_default(),
            ))
        });
        guarded.collect()
    }

    /// What to do about a clause all of whose rows were set aside.
    pub(super) fn all_guarded(&self) -> Option<String> {
        let clauses = self.clauses().iter().enumerate();
        let mut unseen = clauses.filter(|(_, one)| one.observed.greatest.is_none());
        let (_, clause) = unseen.find(|(at, _)| {
            let mut records = self.history.iter();
            records.any(|record| {
                record
                    .clauses
                    .get(*at)
                    .is_some_and(|then| then.guarded_rows > 0)
            })
        })?;
        Some(format!(
            "look at {} and at the clock, or take a greater max_future: every event time was of the future",
            named(clause)
        ))
    }
}
