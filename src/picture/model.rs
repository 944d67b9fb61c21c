//! What a picture shows.

use crate::time::{Instant, Span};

/// A stretch of a streaming query's epochs, as it is drawn. Instants are event times.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Picture {
    /// Name of the streaming table.
    pub name: String,
    /// What is grouped by, and what is awaited: `window 1 hour, delay 4 hours`.
    pub rule: String,
    /// Whether the event time has a zone: the picture then says that its times are UTC.
    pub zoned: bool,
    /// The epochs, in order, without gaps.
    pub epochs: Vec<EpochMark>,
    /// Late rows of every epoch whose record is kept, the ones of [`epochs`](Self::epochs) included, and the number
    /// of the first: where in the whole the stretch lies.
    pub overview: (u64, Vec<u64>),
    /// Rows that arrived.
    pub rows: Rows,
    /// Rows that came too late.
    pub late: LateRows,
    /// Windows that rows of the stretch belong to, by begin; none where windows are not known.
    pub windows: Vec<WindowMark>,
    /// Windows that are left out there: the oldest, where they are very many.
    pub older_windows: u64,
    /// Windows that are open after the last epoch of the whole.
    pub open: OpenWindows,
    /// What the picture does not show, a sentence each.
    pub notes: Vec<String>,
}

/// One epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochMark {
    /// Its number.
    pub number: u64,
    /// Rows read in it.
    pub rows: u64,
    /// Rows that came too late in it.
    pub late: u64,
    /// Watermark by which its rows were judged; none before the first event.
    pub before: Option<Instant>,
    /// Watermark at its end.
    pub after: Option<Instant>,
    /// Least, mean and greatest event time of its rows, if any had one.
    pub times: Option<[Instant; 3]>,
}

/// The rows of a picture.
#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// So many of them, evenly chosen.
    Sampled {
        /// One in so many rows is drawn.
        every: u64,
        /// The chosen ones, in order of arrival.
        points: Vec<Point>,
    },
    /// None could be read again: an epoch is drawn from its least to its greatest event time.
    Bands {
        /// Why, as the end of a sentence.
        because: String,
    },
}

impl Default for Rows {
    fn default() -> Self {
        Rows::Sampled {
            every: 1,
            points: Vec::new(),
        }
    }
}

/// A row: when it arrived and when it happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Arrival, in epochs: 3.5 is in the middle of epoch 3.
    pub at: f64,
    /// Event time.
    pub time: Instant,
}

/// Rows that came too late.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LateRows {
    /// Those that are drawn, in order of arrival.
    pub marks: Vec<LateMark>,
    /// How many there are in the stretch, counted when they arrived.
    pub counted: u64,
    /// How many of them were found again: all, unless the sources have changed.
    pub found: u64,
    /// The greatest time that lay between the end of a row's last window and the watermark.
    pub by: Option<Span>,
}

/// A row that came too late.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LateMark {
    /// The row.
    pub point: Point,
    /// Epoch it arrived in.
    pub epoch: u64,
    /// Watermark by which it was judged.
    pub watermark: Instant,
    /// The newest window it belongs to: begin, inclusive, and end, exclusive; none where a row is a group of its own.
    pub window: Option<(Instant, Instant)>,
    /// Watermark less the end of that window: a delay longer by more than this would have counted the row.
    pub by: Span,
}

/// A window, and when rows came to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowMark {
    /// Begin, inclusive.
    pub begin: Instant,
    /// End, exclusive.
    pub end: Instant,
    /// Arrival of its first row, in epochs.
    pub from: f64,
    /// When it closed, in epochs: at the end of one. None while it is open.
    pub to: Option<f64>,
    /// Rows of the stretch that it counted.
    pub rows: u64,
    /// Rows of the stretch that came too late for it.
    pub late: u64,
}

/// Windows that are open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenWindows {
    /// Their number.
    pub windows: u64,
    /// Rows in them.
    pub rows: u64,
    /// What each holds, by begin; empty where it is not known.
    pub fills: Vec<Fill>,
}

/// What an open window holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Begin, inclusive.
    pub begin: Instant,
    /// End, exclusive.
    pub end: Instant,
    /// Rows.
    pub rows: u64,
}

impl Picture {
    /// Number of the first epoch and the one behind the last.
    pub(super) fn extent(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.epochs.first()?, self.epochs.last()?);
        Some((first.number, last.number.saturating_add(1)))
    }

    /// Rows read in the stretch.
    pub(super) fn rows_read(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.rows).sum()
    }

    /// The watermark after the last epoch of the stretch.
    pub(super) fn watermark(&self) -> Option<Instant> {
        self.epochs.last().and_then(|last| last.after)
    }

    /// Corners of the watermark's staircase, arrival and watermark; it begins where there is a watermark.
    pub(super) fn staircase(&self) -> Vec<(f64, Instant)> {
        let mut corners = Vec::new();
        for epoch in &self.epochs {
            let (from, to) = (as_f64(epoch.number), as_f64(epoch.number.saturating_add(1)));
            if let Some(before) = epoch.before {
                corners.push((from, before));
                corners.push((to, before));
            }
            if let Some(after) = epoch.after {
                corners.push((to, after));
            }
        }
        corners.dedup();
        corners
    }
}

/// A count as a coordinate.
#[expect(
    clippy::cast_precision_loss,
    reason = "a place in a picture is not exact to the row"
)]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Nanoseconds as a coordinate.
#[expect(
    clippy::cast_precision_loss,
    reason = "a place in a picture is not exact to the nanosecond"
)]
pub(super) fn nanos_f64(nanos: i128) -> f64 {
    nanos as f64
}

#[cfg(test)]
mod tests {
    use super::super::samples::{epoch, hours};
    use super::*;

    #[test]
    fn the_staircase_rises_at_the_end_of_an_epoch() {
        let picture = Picture {
            epochs: vec![
                epoch(4, None, Some(1)),
                epoch(5, Some(1), Some(1)),
                epoch(6, Some(1), Some(3)),
            ],
            ..Picture::default()
        };
        assert_eq!(
            picture.staircase(),
            vec![
                (5.0, hours(1)),
                (6.0, hours(1)),
                (7.0, hours(1)),
                (7.0, hours(3))
            ]
        );
    }
}
