//! Groups of a result, found by their grouping values.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, make_comparator,
};
use datafusion::arrow::compute::{SortOptions, cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::{Result, internal_datafusion_err};

use super::plans::{CLOSED, ROWS};
use super::sizes::size_name;
use crate::source::conform;

/// How far two sums of the same floating-point numbers may be apart, as a part of what is summed.
const TOLERANCE: f64 = 1e-9;

/// A result's columns, with the size of the numbers that each is made of, the number of rows of each group and whether
/// it is closed.
pub(super) fn counted_schema(result: &SchemaRef) -> SchemaRef {
    let mut fields = result.fields().to_vec();
    let sizes = (0..fields.len()).map(size_name);
    fields.extend(sizes.map(|name| Arc::new(Field::new(name, DataType::Float64, true))));
    fields.push(Arc::new(Field::new(ROWS, DataType::Int64, true)));
    fields.push(Arc::new(Field::new(CLOSED, DataType::Boolean, true)));
    Arc::new(Schema::new(fields))
}

/// Makes grouping values comparable, of all results of one query.
#[derive(Debug)]
pub(super) struct Keys {
    columns: Vec<usize>,
    types: Vec<DataType>,
    converter: RowConverter,
}

impl Keys {
    /// Of these columns of a schema.
    ///
    /// # Errors
    /// - values that cannot be compared
    pub(super) fn new(schema: &SchemaRef, columns: &[usize]) -> Result<Self> {
        let types = columns.iter().map(|at| {
            let field = schema.fields().get(*at);
            let field = field.ok_or_else(|| internal_datafusion_err!("no column {at}"))?;
            Ok(field.data_type().clone())
        });
        let types = types.collect::<Result<Vec<_>>>()?;
        let fields = types.iter().cloned().map(SortField::new);
        Ok(Self {
            columns: columns.to_vec(),
            converter: RowConverter::new(fields.collect())?,
            types,
        })
    }

    /// The grouping values of each row.
    pub(super) fn of(&self, rows: &RecordBatch) -> Result<Vec<OwnedRow>> {
        if self.columns.is_empty() {
            // All rows are of one group; the converter counts rows by their columns.
            let parser = self.converter.parser();
            return Ok(vec![parser.parse(&[]).owned(); rows.num_rows()]);
        }
        let columns = self.columns.iter();
        let columns: Vec<ArrayRef> = columns.map(|at| Arc::clone(rows.column(*at))).collect();
        let keys = self.converter.convert_columns(&columns)?;
        Ok(keys.iter().map(|key| key.owned()).collect())
    }

    /// Their columns again.
    pub(super) fn columns<'a>(
        &self,
        keys: impl Iterator<Item = &'a OwnedRow>,
    ) -> Result<Vec<ArrayRef>> {
        let columns = self.converter.convert_rows(keys.map(OwnedRow::row))?;
        // What was a dictionary comes back as its values.
        let columns = columns.iter().zip(&self.types);
        columns
            .map(|(column, wanted)| Ok(cast(column, wanted)?))
            .collect()
    }
}

/// The rows of a result, one for a group.
#[derive(Debug)]
pub(super) struct Groups {
    pub rows: RecordBatch,
    pub keys: Vec<OwnedRow>,
    by_key: HashMap<OwnedRow, usize>,
}

impl Groups {
    /// Finds the groups of rows that have this schema, up to the form of their texts.
    pub(super) fn new(keys: &Keys, schema: &SchemaRef, rows: &[RecordBatch]) -> Result<Self> {
        let rows = rows.iter().map(|batch| conform(batch, schema));
        let rows = concat_batches(schema, &rows.collect::<Result<Vec<_>>>()?)?;
        let keys = keys.of(&rows)?;
        let by_key = keys.iter().cloned().zip(0..).collect();
        Ok(Self { rows, keys, by_key })
    }

    /// The row of a group.
    pub(super) fn get(&self, key: &OwnedRow) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// A number of a row; none where it is null or no whole number.
    pub(super) fn number(&self, row: usize, column: usize) -> Option<i64> {
        let column = self.rows.columns().get(column)?;
        let column = column.as_primitive_opt::<Int64Type>()?;
        column.is_valid(row).then(|| column.value(row))
    }

    /// Of rows with a count: the number of rows that are in a group; none are where there is no such group.
    pub(super) fn counted(&self, key: &OwnedRow) -> i64 {
        let row = self.get(key);
        row.and_then(|row| self.number(row, self.rows.num_columns().wrapping_sub(2)))
            .unwrap_or_default()
    }

    /// Of rows with a count: whether the group is closed.
    pub(super) fn is_closed(&self, row: usize) -> bool {
        let closed = self.rows.columns().last();
        let closed = closed.and_then(|column| column.as_boolean_opt());
        closed.is_some_and(|closed| closed.is_valid(row) && closed.value(row))
    }

    /// The moments in a column, as plain numbers.
    pub(super) fn times(&self, column: usize) -> Result<Int64Array> {
        let column = self.rows.columns().get(column);
        let column = column.ok_or_else(|| internal_datafusion_err!("no column of a time"))?;
        Ok(cast(column, &DataType::Int64)?
            .as_primitive::<Int64Type>()
            .clone())
    }
}

/// Compares rows of two results in some of their columns.
pub(super) struct Same {
    columns: Vec<Box<dyn Fn(usize, usize) -> bool + Send + Sync>>,
}

impl Same {
    /// Of rows of a result and rows that were counted.
    ///
    /// # Errors
    /// - values that cannot be compared
    pub(super) fn new(one: &RecordBatch, counted: &RecordBatch, columns: &[usize]) -> Result<Self> {
        let width = one.num_columns();
        let columns = columns.iter().map(|at| {
            let size = counted.columns().get(width + at);
            same(one.column(*at), counted.column(*at), size)
        });
        Ok(Self {
            columns: columns.collect::<Result<_>>()?,
        })
    }

    /// Whether a row of the one and a row of the other are alike.
    pub(super) fn rows(&self, one: usize, other: usize) -> bool {
        self.columns.iter().all(|same| same(one, other))
    }
}

/// Compares values of two columns of one type; those of the other may have sizes.
fn same(
    one: &ArrayRef,
    other: &ArrayRef,
    size: Option<&ArrayRef>,
) -> Result<Box<dyn Fn(usize, usize) -> bool + Send + Sync>> {
    if one.data_type().is_floating() {
        let [one, other] = [one, other].map(|column| cast(column, &DataType::Float64));
        let (one, other, size) = (one?, other?, size.cloned());
        return Ok(Box::new(move |a, b| {
            let value = |column: &ArrayRef, at| {
                let column = column.as_primitive::<Float64Type>();
                column.is_valid(at).then(|| column.value(at))
            };
            let size = size.as_ref().and_then(|size| value(size, b));
            alike(value(&one, a), value(&other, b), size.unwrap_or_default())
        }));
    }
    let compare = make_comparator(one.as_ref(), other.as_ref(), SortOptions::default())?;
    Ok(Box::new(move |a, b| compare(a, b) == Ordering::Equal))
}

/// Whether two numbers are the same, up to the last bits of a sum of numbers of this size: it may be far less than they
/// are.
fn alike(one: Option<f64>, other: Option<f64>, size: f64) -> bool {
    let size = if size.is_finite() { size } else { 0.0 };
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            one == other
                || one.is_nan() && other.is_nan()
                || (one - other).is_finite()
                    && (one - other).abs() <= TOLERANCE * one.abs().max(other.abs()).max(size)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringArray;

    use super::*;

    #[test]
    fn sums_of_the_same_numbers_are_alike_and_others_are_not() {
        assert!(alike(Some(0.1 + 0.2), Some(0.3), 0.0));
        assert!(alike(Some(f64::NAN), Some(f64::NAN), 0.0));
        assert!(alike(Some(f64::INFINITY), Some(f64::INFINITY), 0.0));
        assert!(alike(None, None, 0.0));
        assert!(!alike(None, Some(0.0), 1.0));
        assert!(!alike(Some(1.0), Some(1.000_001), 1.0));
        assert!(!alike(Some(f64::INFINITY), Some(1.0), f64::INFINITY));
    }

    #[test]
    fn sums_that_cancel_are_alike_by_what_is_summed() {
        assert!(alike(Some(0.0), Some(8.3e-17), 1.2));
        assert!(!alike(Some(0.0), Some(8.3e-17), 1e-9));
        assert!(!alike(Some(0.0), Some(1.0), f64::INFINITY));
    }

    #[test]
    fn without_key_columns_all_rows_are_of_one_group() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let rows = RecordBatch::try_from_iter([("v", column)]).unwrap();
        let keys = Keys::new(&rows.schema(), &[]).unwrap();
        let found = keys.of(&rows).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|key| *key == found[0]));
        assert!(keys.columns(found.iter()).unwrap().is_empty());
    }

    #[test]
    fn keys_come_back_as_what_they_were() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let rows = RecordBatch::try_from_iter([("k", cast(&texts, &kind).unwrap())]).unwrap();
        let keys = Keys::new(&rows.schema(), &[0]).unwrap();
        let found = keys.of(&rows).unwrap();
        let columns = keys.columns(found.iter()).unwrap();
        assert_eq!(columns[0].data_type(), &kind);
        assert_eq!(&cast(&columns[0], &DataType::Utf8).unwrap(), &texts);
    }
}
