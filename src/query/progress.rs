//! What an epoch did: counts that repeat exactly whatever the partitions, and times that do not.
//!
//! The figures are those of Spark's `StreamingQueryProgress`, under our names:
//!
//! | Spark | here |
//! |---|---|
//! | `batchId`, `numInputRows` | `epoch`, `input_rows` |
//! | `inputRowsPerSecond`, `processedRowsPerSecond` | the methods of the same names |
//! | `durationMs` | `phases`, `duration` |
//! | `eventTime` | `clauses`, one for each WATERMARK clause; `watermark_before` is what Spark calls `watermark` |
//! | `stateOperators` | `operators` |
//! | `sources` | `sources` |

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::state::Observed;
use crate::time::Instant;

/// The record of one finished epoch of a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Rows whose event time was later than now by more than `max_future`: they were set aside at their clause.
    #[serde(default)]
    pub guarded_rows: u64,
    /// Rows the query emitted.
    pub output_rows: u64,
    /// Windows that hold rows and have not closed.
    pub open_windows: u64,
    /// Accepted rows that are still in an open window.
    pub open_rows: u64,
    /// Groups of partial state held between epochs, and rows of small epochs that wait to be aggregated.
    pub open_groups: u64,
    /// Watermark by which the epoch's rows were judged: that at its start.
    pub watermark_before: Option<String>,
    /// Watermark at the end of the epoch, as a person reads it (`2026-10-01T09:20:00`).
    pub watermark: Option<String>,
    /// Records left out because they could not be read (`on_bad_record = 'skip'`).
    pub skipped_records: u64,
    /// Bytes of state held in memory between epochs.
    pub state_bytes: u64,
    /// Bytes of state held on disk between epochs, packed: what had no room in memory.
    #[serde(default)]
    pub state_spilled_bytes: u64,
    /// What each source gave.
    pub sources: Vec<SourceProgress>,
    /// What passed each WATERMARK clause, in the order of the text.
    pub clauses: Vec<ClauseProgress>,
    /// What each operator with state did, the lowest first.
    pub operators: Vec<OperatorProgress>,
    /// Where the time went.
    pub phases: Phases,
    /// Time from the start of the epoch to its end.
    pub duration: Duration,
    /// Time from the start of the epoch before to the start of this one; none for the first.
    pub since_previous: Option<Duration>,
}

impl EpochProgress {
    /// Rows read for each second that the epoch took.
    pub fn processed_rows_per_second(&self) -> f64 {
        per_second(self.input_rows, self.duration)
    }

    /// Rows read for each second since the epoch before began; none for the first.
    pub fn input_rows_per_second(&self) -> Option<f64> {
        self.since_previous
            .map(|since| per_second(self.input_rows, since))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate is not exact to the row")]
fn per_second(rows: u64, time: Duration) -> f64 {
    match time.as_secs_f64() {
        0.0 => 0.0,
        seconds => rows as f64 / seconds,
    }
}

/// Where the time of an epoch went. What is not in the sum is between the phases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// Taking the epoch's rows from the sources.
    pub read: Duration,
    /// Running them into the operators with state, to the new watermark.
    pub absorb: Duration,
    /// Releasing what the watermark has closed, to the query's result.
    pub emit: Duration,
    /// Making the changes of the state permanent; in a database, on disk too, while the next epoch reads.
    pub commit: Duration,
}

/// What one source gave in an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceProgress {
    /// Name of the table.
    pub name: String,
    /// Rows read.
    pub rows: u64,
    /// Records left out because they could not be read.
    pub skipped_records: u64,
    /// Files that were found changed after they had been read; they are not read again.
    pub changed_files: Vec<String>,
}

/// What passed one WATERMARK clause in an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClauseProgress {
    /// Column that the clause names.
    pub column: String,
    /// Tables below the clause, with `, ` between them.
    pub sources: String,
    /// Delay, as a person reads it (`10 minutes`).
    pub delay: String,
    /// Rows that passed.
    pub rows: u64,
    /// Rows among them without an event time.
    pub null_rows: u64,
    /// How much later than now an event time might be, as a person reads it; none where every row passes.
    #[serde(default)]
    pub max_future: Option<String>,
    /// Rows that did not pass, for they were later.
    #[serde(default)]
    pub guarded_rows: u64,
    /// Greatest event time of those.
    #[serde(default)]
    pub guarded_max: Option<String>,
    /// Least event time of the epoch's rows.
    pub event_time_min: Option<String>,
    /// Greatest event time of the epoch's rows.
    pub event_time_max: Option<String>,
    /// Mean event time of the epoch's rows, rounded down.
    pub event_time_avg: Option<String>,
    /// Watermark that this clause alone would make.
    pub watermark: Option<String>,
    /// When it last gave a row by the clock (UTC), or the query began, if it has been idle since: it does not hold the
    /// query's watermark.
    #[serde(default)]
    pub idle_since: Option<String>,
    pub(crate) observed: Observed,
}

/// What one operator with state did in an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorProgress {
    /// Its name, as errors give it (`TimeWindowGate 0`).
    pub operator: String,
    /// Rows that it counted.
    pub accepted_rows: u64,
    /// Rows that came too late for it.
    pub late_rows: u64,
    /// Rows without an event time.
    pub null_rows: u64,
    /// Rows that can have no window.
    pub rejected_rows: u64,
    /// Windows that hold rows and have not closed.
    pub open_windows: u64,
    /// Accepted rows in them.
    pub open_rows: u64,
    /// Rows of state held: keys of a deduplication; of an aggregate its groups, one that several epochs
    /// touched counted for each until they are merged, and rows of small epochs that wait to be aggregated.
    pub state_rows: u64,
    /// Rows of state that the epoch added.
    pub state_rows_added: u64,
    /// Rows of state that the epoch removed.
    pub state_rows_removed: u64,
    /// Bytes of state held in memory.
    pub state_bytes: u64,
    /// Bytes of state held on disk, packed.
    #[serde(default)]
    pub state_spilled_bytes: u64,
    /// Watermark that closes the oldest open window.
    pub closes_at: Option<String>,
    pub(crate) due: Option<Instant>,
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
