//! The table of late rows of a streaming table, as an audit reads it.
//!
//! Its columns are those of the WATERMARK clause, then seven of its own, found by their names. Which rows they are is
//! in `_reason`:
//!
//! | `_reason` | the row |
//! |---|---|
//! | `late` | came when all of its windows had closed |
//! | `missed` | counted in newer windows of its time, and came when older ones had closed (hopping windows) |
//! | `null` | has no event time |
//! | `rejected` | can have no window |
//! | `guarded` | was kept from the clause |

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::{cast, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;

use crate::error::Refusal;
use crate::logical::REASON;
use crate::source::AppendLog;
use crate::state::Reason;

/// Reasons of rows that are missing in closed windows, and of rows that the clause never saw.
const LATE: [Reason; 2] = [Reason::Late, Reason::Missed];
const GUARDED: [Reason; 1] = [Reason::Guarded];

/// The rows of a table of late rows, by what they are.
#[derive(Debug)]
pub(super) struct LateRows {
    pub schema: SchemaRef,
    /// Late for windows that lack them.
    pub late: Vec<RecordBatch>,
    /// Kept from the clause.
    pub guarded: Vec<RecordBatch>,
    /// Those of both that a correction has put in.
    pub corrected: [Vec<RecordBatch>; 2],
    /// Without an event time.
    pub null: u64,
    /// Without a window.
    pub rejected: u64,
}

impl LateRows {
    /// What a table holds now. A correction has put in the rows before the one of this number.
    ///
    /// # Errors
    /// - `AUDIT_ROWS_GONE`: it has let rows go
    pub(super) fn of(name: &str, log: &AppendLog, corrected: u64) -> Result<Self> {
        let schema = log.schema();
        if log.base() > 0 {
            return Err(gone(name, log.base()).into());
        }
        let reason = schema.index_of(REASON)?;
        let [old, new] = log.split_at(corrected);
        let with = |rows: &[RecordBatch], reasons: &[Reason]| -> Result<Vec<RecordBatch>> {
            let kept = rows.iter().map(|batch| of_reasons(batch, reason, reasons));
            kept.collect()
        };
        let number = |reason: Reason| -> Result<u64> {
            let of = with(&log.snapshot(), &[reason])?;
            Ok(of.iter().map(|batch| batch.num_rows() as u64).sum())
        };
        Ok(Self {
            late: with(&new, &LATE)?,
            guarded: with(&new, &GUARDED)?,
            corrected: [with(&old, &LATE)?, with(&old, &GUARDED)?],
            null: number(Reason::Null)?,
            rejected: number(Reason::Rejected)?,
            schema: Arc::clone(schema),
        })
    }
}

/// The refusal to audit what has lost rows.
pub(super) fn gone(name: &str, base: u64) -> Refusal {
    Refusal::new(
        "AUDIT_ROWS_GONE",
        "KD000",
        format!("The rows of {name} before row {base} have been removed, and cannot be counted again (rows are counted from 0)."),
    )
    .hint("keep the rows as long as they are to be audited: a longer retain, or none")
}

/// The rows of a batch that are there for one of these reasons.
fn of_reasons(batch: &RecordBatch, column: usize, reasons: &[Reason]) -> Result<RecordBatch> {
    let text = cast(batch.column(column), &DataType::Utf8)?;
    let text = text.as_string::<i32>();
    let wanted: BooleanArray = text
        .iter()
        .map(|text| Some(reasons.iter().any(|reason| text == Some(reason.name()))))
        .collect();
    Ok(filter_record_batch(batch, &wanted)?)
}
