//! One run that writes over the result of a streaming table.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use serde::{Deserialize, Serialize};

use super::audit::Correction;
use super::replace_table::ReplaceTable;
use super::result::{Rows, TableResult};
use crate::time::Instant;

/// What a correction of the result had seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Corrected {
    /// Number of late rows.
    pub late_rows: u64,
    /// Watermark: the windows that it had closed were corrected.
    pub watermark: Option<Instant>,
}

/// What one run writes over a result.
#[derive(Debug)]
pub(super) struct Correcting {
    correction: Correction,
    /// Numbers of the rows of a log that go.
    hidden: Vec<u64>,
}

impl Correcting {
    /// Finds the rows of a result that a correction is about.
    ///
    /// # Errors
    /// - values that cannot be compared
    pub(super) fn new(correction: Correction, result: &TableResult) -> Result<Self> {
        let mut hidden = Vec::new();
        if let Rows::Append(log) = &result.rows {
            let superseded = correction.superseded()?;
            for (start, batch) in log.numbered() {
                let goes = (start..).zip(superseded.of(&batch)?);
                let goes = goes.filter(|(row, goes)| *goes && !log.is_hidden(*row));
                hidden.extend(goes.map(|(row, _)| row));
            }
        }
        Ok(Self { correction, hidden })
    }

    /// What it has seen.
    pub(super) fn corrected(&self) -> Corrected {
        Corrected {
            late_rows: self.correction.late_rows,
            watermark: self.correction.watermark,
        }
    }

    /// A table as it is with rows written over it.
    pub(super) fn written_over(
        &self,
        table: &ReplaceTable,
        rows: &[RecordBatch],
    ) -> Result<Vec<RecordBatch>> {
        let gone = self.correction.gone()?;
        table.corrected(rows.to_vec(), &|batch| gone.of(batch))
    }

    /// Rows to add to the result.
    pub(super) fn rows(&self) -> &RecordBatch {
        &self.correction.upserts
    }

    /// Numbers of the rows of a log that go.
    pub(super) fn hidden(&self) -> &[u64] {
        &self.hidden
    }
}
