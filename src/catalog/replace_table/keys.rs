//! The keys of rows as bytes, which are equal where the keys are.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Result;

/// The columns that name a row.
#[derive(Debug)]
pub(super) struct Key {
    columns: Vec<usize>,
    /// What makes bytes of them. The types are those of the first rows.
    converter: OnceLock<RowConverter>,
}

impl Key {
    pub(super) fn new(columns: Vec<usize>) -> Self {
        Self {
            columns,
            converter: OnceLock::new(),
        }
    }

    /// The keys of some rows. Without a column all rows have one key.
    ///
    /// # Errors
    /// - a type that has no such bytes; columns of other types than before
    pub(super) fn of(&self, batch: &RecordBatch) -> Result<Keys> {
        let columns = self.columns.iter();
        let columns: Vec<ArrayRef> = columns.map(|at| Arc::clone(batch.column(*at))).collect();
        let rows = match columns.is_empty() {
            true => None,
            false => Some(self.converter(&columns)?.convert_columns(&columns)?),
        };
        Ok(Keys {
            rows,
            count: batch.num_rows(),
        })
    }

    fn converter(&self, columns: &[ArrayRef]) -> Result<&RowConverter> {
        if let Some(converter) = self.converter.get() {
            return Ok(converter);
        }
        let fields = columns
            .iter()
            .map(|column| SortField::new(column.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        Ok(self.converter.get_or_init(|| converter))
    }
}

/// The keys of some rows.
#[derive(Debug)]
pub(super) struct Keys {
    /// None where the key has no column.
    rows: Option<Rows>,
    count: usize,
}

impl Keys {
    /// The bytes of each row's key.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let rows = self.rows.as_ref();
        (0..self.count).map(move |row| rows.map_or(&[][..], |rows| rows.row(row).data()))
    }
}
