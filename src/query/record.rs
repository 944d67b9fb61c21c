//! Puts the record of an epoch together.

use std::time::{Duration, Instant as Clock};

use super::attach::RunState;
use super::clock::instant_of_ms;
use super::epoch::{ClauseSeen, Committed};
use super::progress::{ClauseProgress, EpochProgress, OperatorProgress, Phases, SourceProgress};
use super::show::show_instant;
use super::sources::short;
use crate::state::{Fates, OperatorCounts};
use crate::time::{Instant, Unit};

/// Times the phases of an epoch, one after the other.
#[derive(Debug)]
pub(super) struct Stopwatch {
    began: Clock,
    lap: Clock,
    pub phases: Phases,
    since_previous: Option<Duration>,
}

impl Stopwatch {
    /// Begins an epoch; the one before began at `previous`.
    pub(super) fn start(previous: Option<Clock>) -> Self {
        let began = Clock::now();
        Self {
            began,
            lap: began,
            phases: Phases::default(),
            since_previous: previous.map(|previous| began.duration_since(previous)),
        }
    }

    /// When the epoch began.
    pub(super) fn began(&self) -> Clock {
        self.began
    }

    /// Time since the last call: that of the phase which ends.
    pub(super) fn lap(&mut self) -> Duration {
        let now = Clock::now();
        now.duration_since(std::mem::replace(&mut self.lap, now))
    }
}

/// The record of an epoch that has committed.
pub(super) fn record(
    state: &RunState,
    committed: Committed,
    home: &str,
    sources: Vec<SourceProgress>,
    output_rows: u64,
    watch: &Stopwatch,
) -> EpochProgress {
    let (unit, zoned) = state.state.watermarks.shown_in();
    let show = |instant: Option<Instant>| instant.map(|at| show_instant(at, unit, zoned));
    let total = |of: &dyn Fn(&OperatorCounts) -> u64| -> u64 {
        committed
            .operators
            .iter()
            .map(|(_, counts)| of(counts))
            .sum()
    };
    let mut fates = Fates::default();
    for (_, counts) in &committed.operators {
        fates.add(counts.turnover.fates);
    }
    EpochProgress {
        epoch: state.next_epoch,
        input_rows: sources.iter().map(|source| source.rows).sum(),
        late_rows: fates.late,
        null_rows: fates.null,
        rejected_rows: fates.rejected,
        guarded_rows: committed
            .clauses
            .iter()
            .map(|seen| seen.times.guarded)
            .sum(),
        output_rows,
        open_windows: total(&|counts| counts.open_windows),
        open_rows: total(&|counts| counts.open_rows),
        open_groups: total(&|counts| counts.groups),
        watermark_before: show(state.watermark),
        watermark: show(committed.reached),
        skipped_records: sources.iter().map(|source| source.skipped_records).sum(),
        state_bytes: total(&|counts| counts.bytes),
        state_spilled_bytes: total(&|counts| counts.spilled_bytes),
        sources,
        clauses: committed
            .clauses
            .into_iter()
            .map(|seen| clause(seen, home))
            .collect(),
        operators: committed
            .operators
            .into_iter()
            .map(|(name, counts)| operator(name, &counts, unit, zoned))
            .collect(),
        phases: watch.phases,
        duration: watch.began.elapsed(),
        since_previous: watch.since_previous,
    }
}

fn clause(seen: ClauseSeen, home: &str) -> ClauseProgress {
    let ClauseSeen {
        column,
        sources,
        observed,
        times,
        max_future,
        idle_since_ms,
    } = seen;
    let sources: Vec<&str> = sources.iter().map(|name| short(name, home)).collect();
    let show = |at: Option<Instant>| at.map(|at| show_instant(at, observed.unit, observed.zoned));
    let [least, greatest, mean] = times.instants(observed.unit);
    ClauseProgress {
        column,
        sources: sources.join(", "),
        delay: observed.delay.to_string(),
        rows: times.rows,
        null_rows: times.rows - times.timed,
        max_future: max_future.map(|span| span.to_string()),
        guarded_rows: times.guarded,
        guarded_max: show(
            times
                .greatest_guarded
                .map(|tick| observed.unit.instant(tick)),
        ),
        event_time_min: show(least),
        event_time_max: show(greatest),
        event_time_avg: show(mean),
        watermark: show(observed.watermark()),
        idle_since: idle_since_ms
            .map(|ms| show_instant(instant_of_ms(ms), Unit::Millisecond, true)),
        observed,
    }
}

fn operator(name: String, counts: &OperatorCounts, unit: Unit, zoned: bool) -> OperatorProgress {
    let fates = counts.turnover.fates;
    OperatorProgress {
        operator: name,
        accepted_rows: fates.accepted,
        late_rows: fates.late,
        null_rows: fates.null,
        rejected_rows: fates.rejected,
        open_windows: counts.open_windows,
        open_rows: counts.open_rows,
        state_rows: counts.groups,
        state_rows_added: counts.turnover.added,
        state_rows_removed: counts.turnover.removed,
        state_bytes: counts.bytes,
        state_spilled_bytes: counts.spilled_bytes,
        closes_at: counts.due.map(|due| show_instant(due, unit, zoned)),
        due: counts.due,
    }
}
