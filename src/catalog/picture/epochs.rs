//! Epochs as they are drawn, from their records.

use crate::picture::EpochMark;
use crate::query::{EpochProgress, read_instant};
use crate::time::{Instant, Span};

/// The epochs of some records.
pub(super) fn marks(history: &[EpochProgress]) -> Vec<EpochMark> {
    let read = |text: &Option<String>| text.as_deref().and_then(read_instant);
    history
        .iter()
        .map(|epoch| EpochMark {
            number: epoch.epoch,
            rows: epoch.input_rows,
            late: epoch.late_rows,
            before: read(&epoch.watermark_before),
            after: read(&epoch.watermark),
            times: times(epoch),
        })
        .collect()
}

/// Least, mean and greatest event time of an epoch: of the clauses together, the mean of the first.
fn times(epoch: &EpochProgress) -> Option<[Instant; 3]> {
    let read = |text: &Option<String>| text.as_deref().and_then(read_instant);
    let least = epoch
        .clauses
        .iter()
        .filter_map(|one| read(&one.event_time_min));
    let greatest = epoch
        .clauses
        .iter()
        .filter_map(|one| read(&one.event_time_max));
    let mean = epoch
        .clauses
        .iter()
        .find_map(|one| read(&one.event_time_avg));
    Some([least.min()?, mean?, greatest.max()?])
}

/// The longest delay of the last epoch's clauses, if there are any.
pub(super) fn delay(history: &[EpochProgress]) -> Option<Span> {
    let clauses = history.last().map_or(&[][..], |last| &last.clauses);
    clauses.iter().map(|clause| clause.observed.delay).max()
}
