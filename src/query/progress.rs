//! What an epoch did: counts that repeat exactly whatever the partitions, and times that do not.

use std::time::Duration;

/// The record of one finished epoch of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochProgress {
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Rows read from the sources, each source counted once.
    pub input_rows: u64,
    /// Rows whose every window had closed before the epoch began.
    pub late_rows: u64,
    /// Rows without an event time that reached a time window.
    pub null_rows: u64,
    /// Rows that can have no window: its bounds are outside the type.
    pub rejected_rows: u64,
    /// Rows the query emitted.
    pub output_rows: u64,
    /// Windows that hold rows and have not closed.
    pub open_windows: u64,
    /// Accepted rows that are still in an open window.
    pub open_rows: u64,
    /// Groups of partial state held between epochs.
    pub open_groups: u64,
    /// Watermark at the end of the epoch, as a person reads it (`2026-10-01T09:20:00`).
    pub watermark: Option<String>,
    /// Records left out because they could not be read (`on_bad_record = 'skip'`).
    pub skipped_records: u64,
    /// Bytes of state held between epochs.
    pub state_bytes: u64,
    /// Time from the start of the epoch to its end.
    pub duration: Duration,
}

/// Figures of a query that is running now, for a line of progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// Whether a streaming query is running.
    pub running: bool,
    /// Rows read so far.
    pub rows: u64,
    /// Epochs finished so far.
    pub epochs: u64,
    /// Watermark, as a person reads it.
    pub watermark: Option<String>,
    /// Windows that hold rows and have not closed.
    pub open_windows: u64,
}
