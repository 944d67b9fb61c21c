//! Sets of group keys: which groups an epoch touched.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::Result;

/// The groups of some runs, by their key columns: those behind the slice.
pub(super) struct Groups {
    keys: usize,
    converter: RowConverter,
    rows: HashSet<OwnedRow>,
}

impl Groups {
    /// The groups of `runs`, whose key columns are the `keys` columns behind the first.
    pub(super) fn of<'a>(
        keys: usize,
        runs: impl Iterator<Item = &'a RecordBatch>,
    ) -> Result<Option<Self>> {
        let mut runs = runs.peekable();
        let Some(first) = runs.peek() else {
            return Ok(None);
        };
        let fields = key_columns(first, keys)
            .into_iter()
            .map(|column| SortField::new(column.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        let mut rows = HashSet::new();
        for run in runs {
            let converted = converter.convert_columns(&key_columns(run, keys))?;
            rows.extend(converted.iter().map(|row| row.owned()));
        }
        Ok(Some(Self {
            keys,
            converter,
            rows,
        }))
    }

    /// The rows of a run whose group is one of these.
    pub(super) fn of_run(&self, run: &RecordBatch) -> Result<RecordBatch> {
        if self.keys == 0 {
            return Ok(run.clone());
        }
        let converted = self
            .converter
            .convert_columns(&key_columns(run, self.keys))?;
        let mask: BooleanArray = converted
            .iter()
            .map(|row| Some(self.rows.contains(&row.owned())))
            .collect();
        Ok(filter_record_batch(run, &mask)?)
    }
}

fn key_columns(run: &RecordBatch, keys: usize) -> Vec<ArrayRef> {
    run.columns()
        .iter()
        .skip(1)
        .take(keys)
        .map(Arc::clone)
        .collect()
}
