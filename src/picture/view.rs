//! Which epochs a picture shows.

use std::ops::Range;

use super::model::EpochMark;
use crate::time::{Instant, Span};

/// The last epochs are shown, at least so many.
const LEAST: usize = 8;

/// Which epochs to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The last ones, so few that the delay can be seen.
    Last(Depth),
    /// Those from this number on, to that one, both included.
    Epochs {
        /// The first.
        from: u64,
        /// The last; none means the last there is.
        to: Option<u64>,
    },
}

/// How many times the delay a picture is high: what it can show in its height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// A terminal of some twenty lines.
    Text,
    /// A file of some hundreds of pixels.
    File,
}

impl Depth {
    /// A delay is then two lines of text high, or thirty pixels.
    fn delays(self) -> i128 {
        match self {
            Depth::Text => 10,
            Depth::File => 14,
        }
    }
}

impl View {
    /// Places of the epochs that are shown. `scale` is what can be seen: the delay, or the windows' size where that is
    /// longer.
    pub fn of(self, epochs: &[EpochMark], scale: Span) -> Range<usize> {
        match self {
            View::Epochs { from, to } => {
                let first = epochs.partition_point(|epoch| epoch.number < from);
                let end = to.map_or(epochs.len(), |to| {
                    epochs.partition_point(|epoch| epoch.number <= to)
                });
                first..end.max(first)
            }
            View::Last(depth) => last(epochs, scale.nanos().saturating_mul(depth.delays())),
        }
    }
}

/// The last epochs over which the watermark rises by no more than `most` nanoseconds; all if that is nothing.
fn last(epochs: &[EpochMark], most: i128) -> Range<usize> {
    let newest = epochs.last().and_then(|last| last.after.or(last.before));
    let Some(newest) = newest.filter(|_| most > 0) else {
        return 0..epochs.len();
    };
    let near = |at: Option<Instant>| {
        at.is_some_and(|at| newest.nanos().saturating_sub(at.nanos()) <= most)
    };
    let far = epochs.iter().rposition(|epoch| !near(epoch.before));
    let first = far.map_or(0, |far| far.saturating_add(1));
    // What is before the first watermark belongs to what follows.
    let none_yet = epochs
        .iter()
        .take(first)
        .all(|epoch| epoch.before.is_none());
    let first = if none_yet { 0 } else { first };
    first.min(epochs.len().saturating_sub(LEAST))..epochs.len()
}

#[cfg(test)]
mod tests {
    use super::super::samples::epoch;
    use super::*;

    const HOUR: Span = Span::from_nanos(3_600_000_000_000);

    fn hourly(count: i128) -> Vec<EpochMark> {
        (0..count)
            .map(|at| epoch(at as u64, (at > 0).then(|| at - 1), Some(at)))
            .collect()
    }

    #[test]
    fn the_last_epochs_are_those_whose_delay_can_be_seen() {
        let epochs = hourly(100);
        assert_eq!(View::Last(Depth::Text).of(&epochs, HOUR), 90..100);
        assert_eq!(View::Last(Depth::File).of(&epochs, HOUR), 86..100);
    }

    #[test]
    fn few_epochs_are_shown_whole_and_at_least_eight() {
        let minute = Span::from_nanos(60_000_000_000);
        assert_eq!(View::Last(Depth::Text).of(&hourly(100), minute), 92..100);
        assert_eq!(View::Last(Depth::Text).of(&hourly(3), minute), 0..3);
        assert_eq!(View::Last(Depth::Text).of(&[], minute), 0..0);
    }

    #[test]
    fn without_a_scale_all_are_shown() {
        assert_eq!(View::Last(Depth::Text).of(&hourly(50), Span::ZERO), 0..50);
    }

    #[test]
    fn epochs_that_are_asked_for_are_those_that_there_are() {
        let view = |from, to| View::Epochs { from, to };
        let epochs = hourly(10);
        assert_eq!(view(3, Some(5)).of(&epochs, HOUR), 3..6);
        assert_eq!(view(3, None).of(&epochs, HOUR), 3..10);
        assert_eq!(view(7, Some(2)).of(&epochs, HOUR), 7..7);
        assert_eq!(view(70, Some(u64::MAX)).of(&epochs, HOUR), 10..10);
    }
}
