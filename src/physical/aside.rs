//! Sets rows aside that leave an operator uncounted, where that is asked for.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch, UInt64Array};
use datafusion::arrow::compute::take;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;

use crate::state::{Epoch, Reason, SetAside, Windows};
use crate::time::Unit;

/// A row of a batch that leaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// Its index in the batch.
    pub row: usize,
    /// Why it leaves.
    pub reason: Reason,
    /// `[start, end)` of its newest window, as far as it has one.
    pub window: (Option<i64>, Option<i64>),
}

impl Left {
    /// A row without a window.
    pub(super) fn windowless(row: usize, reason: Reason) -> Self {
        let window = (None, None);
        Self {
            row,
            reason,
            window,
        }
    }
}

/// Takes the rows that leave one operator in one epoch.
pub(super) struct Aside {
    /// The row as it reached its clause.
    row: Arc<dyn PhysicalExpr>,
    operator: String,
    epoch: Arc<Epoch>,
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside")
            .field("operator", &self.operator)
            .finish_non_exhaustive()
    }
}

impl Aside {
    /// For the operator of this name; none where the rows are not asked for.
    pub(super) fn new(
        row: Option<&Arc<dyn PhysicalExpr>>,
        operator: &str,
        epoch: &Arc<Epoch>,
    ) -> Option<Self> {
        row.map(|row| Self {
            row: Arc::clone(row),
            operator: operator.to_owned(),
            epoch: Arc::clone(epoch),
        })
    }

    /// Sets rows of a batch aside; bounds of windows are in ticks of the unit.
    ///
    /// # Errors
    /// - those of the expression that gives the rows
    pub(super) fn put(&self, batch: &RecordBatch, left: &[Left], unit: Unit) -> Result<()> {
        if left.is_empty() {
            return Ok(());
        }
        let indices = UInt64Array::from_iter_values(left.iter().map(|left| left.row as u64));
        let rows = self.row.evaluate(batch)?.into_array(batch.num_rows())?;
        self.epoch.set_aside(SetAside {
            operator: self.operator.clone(),
            rows: take(&rows, &indices, None)?,
            reasons: left.iter().map(|left| left.reason).collect(),
            windows: Windows {
                unit,
                starts: left
                    .iter()
                    .map(|left| left.window.0)
                    .collect::<Int64Array>(),
                ends: left
                    .iter()
                    .map(|left| left.window.1)
                    .collect::<Int64Array>(),
            },
        });
        Ok(())
    }
}
