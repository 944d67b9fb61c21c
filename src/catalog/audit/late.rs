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
use crate::source::{AppendLog, behind};

/// Column with the watermark that a row was judged by.
pub(super) const WATERMARK: &str = "_watermark";
/// Column that says why a row is here.
const REASON: &str = "_reason";

/// Reasons of rows that are missing in closed windows, and of rows that the clause never saw.
const LATE: [&str; 2] = ["late", "missed"];
const GUARDED: [&str; 1] = ["guarded"];

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
    /// - `AUDIT_UNSUPPORTED`: it has not the columns of a table of late rows
    pub(super) fn of(name: &str, log: &AppendLog, corrected: u64) -> Result<Self> {
        let schema = log.schema();
        let all = log.snapshot();
        if log.base() > 0 {
            return Err(gone(name, log.base()).into());
        }
        let found = [WATERMARK, REASON].map(|name| schema.index_of(name));
        let [Ok(_), Ok(reason)] = found else {
            return Err(Refusal::new(
                "AUDIT_UNSUPPORTED",
                "0A000",
                format!("{name} is not a table of late rows: it has no columns {WATERMARK} and {REASON}."),
            )
            .hint("name a table that is not there yet: it is made with the streaming table")
            .into());
        };
        let new = behind(&all, corrected);
        let mut old = Vec::new();
        let mut left = corrected;
        for batch in &all {
            let length = left.min(batch.num_rows() as u64);
            left -= length;
            old.push(batch.slice(0, usize::try_from(length).unwrap_or(usize::MAX)));
        }
        let with = |rows: &[RecordBatch], reasons: &[&str]| -> Result<Vec<RecordBatch>> {
            let kept = rows.iter().map(|batch| of_reasons(batch, reason, reasons));
            kept.collect()
        };
        let number = |reasons: &[&str]| -> Result<u64> {
            Ok(with(&all, reasons)?
                .iter()
                .map(|batch| batch.num_rows() as u64)
                .sum())
        };
        Ok(Self {
            late: with(&new, &LATE)?,
            guarded: with(&new, &GUARDED)?,
            corrected: [with(&old, &LATE)?, with(&old, &GUARDED)?],
            null: number(&["null"])?,
            rejected: number(&["rejected"])?,
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
fn of_reasons(batch: &RecordBatch, column: usize, reasons: &[&str]) -> Result<RecordBatch> {
    let text = cast(batch.column(column), &DataType::Utf8)?;
    let text = text.as_string::<i32>();
    let wanted: BooleanArray = text
        .iter()
        .map(|text| Some(text.is_some_and(|text| reasons.contains(&text))))
        .collect();
    Ok(filter_record_batch(batch, &wanted)?)
}
