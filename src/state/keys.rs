//! Keys as DataFusion's groups see them.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float16Type, Float32Type, Float64Type, Int64Type, Schema,
    SchemaRef,
};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::key_columns::KeyColumns;
use super::key_table::KeyTable;

/// Numbers keys from 0 in the order in which they are first seen. Without key columns every row has number 0.
pub struct KeyNumbers {
    numbers: Numbers,
}

/// How keys are numbered.
enum Numbers {
    /// Without key columns: one number for all rows.
    One,
    /// By a table, as long as the keys of the one column lie close together; with the column's schema.
    Table(KeyTable, SchemaRef),
    /// By the numbers of several columns, as long as these are few; with the columns' schema.
    Columns(KeyColumns, SchemaRef),
    /// By DataFusion's groups.
    Hashed(Box<dyn GroupValues>),
}

impl std::fmt::Debug for KeyNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyNumbers")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl KeyNumbers {
    /// Of keys in these columns.
    ///
    /// # Errors
    /// - a type that cannot be grouped by
    pub fn try_new(keys: SchemaRef) -> Result<Self> {
        let mut fields = keys.fields().iter();
        let integers = fields.all(|key| *key.data_type() == DataType::Int64);
        let numbers = match keys.fields().len() {
            0 => Numbers::One,
            1 if integers => Numbers::Table(KeyTable::default(), keys),
            _ => match KeyColumns::try_new(&keys)? {
                Some(columns) => Numbers::Columns(columns, keys),
                None => Numbers::Hashed(new_group_values(keys, &GroupOrdering::None)?),
            },
        };
        Ok(Self { numbers })
    }

    /// Of keys like these.
    ///
    /// # Errors
    /// - a type that cannot be grouped by
    pub fn of(keys: &[ArrayRef]) -> Result<Self> {
        let fields = keys.iter().enumerate();
        let fields: Vec<Field> = fields
            .map(|(at, key)| Field::new(at.to_string(), key.data_type().clone(), true))
            .collect();
        Self::try_new(Arc::new(Schema::new(fields)))
    }

    /// Whether there are key columns.
    pub fn is_keyed(&self) -> bool {
        !matches!(self.numbers, Numbers::One)
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        match &self.numbers {
            Numbers::One => 1,
            Numbers::Table(table, _) => table.count(),
            Numbers::Columns(columns, _) => columns.count(),
            Numbers::Hashed(values) => values.len(),
        }
    }

    /// Bytes that the keys take.
    pub fn size(&self) -> usize {
        match &self.numbers {
            Numbers::One => 0,
            Numbers::Table(table, _) => table.size(),
            Numbers::Columns(columns, _) => columns.size(),
            Numbers::Hashed(values) => values.size(),
        }
    }

    /// The number of each row's key, in the place of what `into` holds.
    ///
    /// # Errors
    /// - the columns are not those of the keys
    pub fn number(&mut self, keys: &[ArrayRef], rows: usize, into: &mut Vec<usize>) -> Result<()> {
        into.clear();
        match &mut self.numbers {
            Numbers::One => into.resize(rows, 0),
            Numbers::Table(table, schema) => {
                let key = keys.first();
                let key = key.and_then(|key| key.as_primitive_opt::<Int64Type>());
                let in_table = key.is_some_and(|key| table.number(key, into));
                if !in_table {
                    let (schema, known) = (Arc::clone(schema), vec![table.take()]);
                    self.hash(schema, &known, keys, into)?;
                }
            }
            Numbers::Columns(columns, schema) => {
                if !columns.number(keys, rows, into)? {
                    let (schema, known) = (Arc::clone(schema), columns.take()?);
                    self.hash(schema, &known, keys, into)?;
                }
            }
            Numbers::Hashed(values) => values.intern(keys, into)?,
        }
        Ok(())
    }

    /// Numbers keys by DataFusion's groups from here on.
    fn hash(
        &mut self,
        schema: SchemaRef,
        known: &[ArrayRef],
        keys: &[ArrayRef],
        into: &mut Vec<usize>,
    ) -> Result<()> {
        let mut values = new_group_values(schema, &GroupOrdering::None)?;
        into.clear();
        if known.first().is_some_and(|first| !first.is_empty()) {
            // Seen first, the known keys keep their numbers.
            values.intern(known, into)?;
            into.clear();
        }
        values.intern(keys, into)?;
        self.numbers = Numbers::Hashed(values);
        Ok(())
    }

    /// The key columns, a row for each number.
    ///
    /// # Errors
    /// - those of DataFusion's groups
    pub fn finish(self) -> Result<Vec<ArrayRef>> {
        match self.numbers {
            Numbers::Table(mut table, _) if table.count() > 0 => Ok(vec![table.take()]),
            Numbers::Columns(mut columns, _) if columns.count() > 0 => columns.take(),
            Numbers::Hashed(mut values) if !values.is_empty() => values.emit(EmitTo::All),
            _ => Ok(vec![]),
        }
    }
}

/// Keys with one zero: 0.0 and -0.0 are one group, though their bytes differ.
pub fn with_one_zero(keys: &[ArrayRef]) -> Vec<ArrayRef> {
    keys.iter()
        .map(|key| match key.data_type() {
            DataType::Float64 => one_zero::<Float64Type>(key),
            DataType::Float32 => one_zero::<Float32Type>(key),
            DataType::Float16 => one_zero::<Float16Type>(key),
            _ => Arc::clone(key),
        })
        .collect()
}

fn one_zero<T: ArrowPrimitiveType>(key: &ArrayRef) -> ArrayRef
where
    T::Native: std::ops::Add<Output = T::Native> + Default,
{
    // The sum of the two zeros is the positive one.
    let key: PrimitiveArray<T> = key
        .as_primitive::<T>()
        .unary(|value| value + T::Native::default());
    Arc::new(key)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int32Array, Int64Array, StringArray, StringViewArray};

    use super::*;
    use crate::splitmix::SplitMix;

    fn of_integers() -> KeyNumbers {
        let key = Field::new("key", DataType::Int64, true);
        KeyNumbers::try_new(Arc::new(Schema::new(vec![key]))).unwrap()
    }

    /// Whether keys of batches get the numbers that DataFusion's groups give them, and come out as theirs do;
    /// and whether a table was enough for them.
    fn are_numbered_by_table(mut numbers: KeyNumbers, batches: &[Vec<ArrayRef>]) -> bool {
        let fields = batches[0].iter().enumerate();
        let fields =
            fields.map(|(at, key)| Field::new(at.to_string(), key.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut groups = new_group_values(schema, &GroupOrdering::None).unwrap();
        let (mut found, mut wanted) = (vec![9], Vec::new());
        for keys in batches {
            numbers.number(keys, keys[0].len(), &mut found).unwrap();
            groups.intern(keys, &mut wanted).unwrap();
            assert_eq!(found, wanted);
            assert_eq!(numbers.count(), groups.len());
        }
        let by_table = !matches!(numbers.numbers, Numbers::Hashed(_));
        assert!(numbers.is_keyed() && numbers.size() > 0);
        let (found, wanted) = (numbers.finish().unwrap(), groups.emit(EmitTo::All).unwrap());
        assert_eq!((found.len(), &found), (batches[0].len(), &wanted));
        by_table
    }

    /// The same of keys of one column of integers.
    fn are_in_table(batches: &[ArrayRef]) -> bool {
        let batches: Vec<_> = batches.iter().map(|keys| vec![Arc::clone(keys)]).collect();
        let numbers = of_integers();
        assert!(matches!(numbers.numbers, Numbers::Table(..)));
        are_numbered_by_table(numbers, &batches)
    }

    fn batch(keys: impl Iterator<Item = i64>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(keys))
    }

    #[test]
    fn a_table_numbers_as_groups_do() {
        let mut random = SplitMix(42);
        for (spread, drift, in_table) in [
            (3, 0, true),
            (500, 40, true),
            (3_000, -90, true),
            (1_000, 2_500, true),
            // Too far apart at once, and after some batches.
            (300_000, 0, false),
            (2_000, 10_000, false),
        ] {
            let batches = (0..30_i64).map(|at| {
                let rows = 1 + random.next() % 9_000;
                let keys = (0..rows).map(|_| (random.next() % spread) as i64 + at * drift);
                batch(keys)
            });
            let batches: Vec<ArrayRef> = batches.collect();
            assert_eq!(are_in_table(&batches), in_table);
        }
    }

    #[test]
    fn a_null_or_a_far_key_is_numbered_behind_the_keys_of_the_table() {
        let near = batch([7, 5, 7, 8].into_iter());
        let null: ArrayRef = Arc::new(Int64Array::from(vec![Some(6), None, Some(5), None]));
        // The first one has a place in the table.
        let far = batch([6, i64::MAX, 5, i64::MIN, 0].into_iter());
        assert!(are_in_table(&[Arc::clone(&near)]));
        for odd in [null, far] {
            let batches = [&near, &odd, &near, &odd].map(Arc::clone);
            assert!(!are_in_table(&batches));
            // Without keys that are known.
            assert!(!are_in_table(&batches[1..]));
        }
    }

    /// The same of keys of several columns.
    fn are_in_columns(batches: &[Vec<ArrayRef>]) -> bool {
        let numbers = KeyNumbers::of(&batches[0]).unwrap();
        assert!(matches!(numbers.numbers, Numbers::Columns(..)));
        are_numbered_by_table(numbers, batches)
    }

    #[test]
    fn columns_of_few_values_number_as_groups_do() {
        let mut random = SplitMix(7);
        // Values of each of three columns, how far those of the second move from batch to batch, and whether a table is
        // enough.
        for (spread, drift, in_columns) in [
            ([1, 1, 1], 0, true),
            ([5, 10, 3], 0, true),
            ([5, 300, 2], 40, true),
            ([2, 8_000, 4], 0, true),
            ([2, 9_000, 90_000], 0, false),
            // Too many after some batches.
            ([3, 2_000, 5], 2_000, false),
        ] {
            let drift = [0, drift, 0];
            let batches = (0..20_u64).map(|at| {
                let rows = 1 + random.next() % 9_000;
                let mut column = |column: usize| -> Vec<i64> {
                    let key = || (random.next() % spread[column] + at * drift[column]) as i64;
                    std::iter::repeat_with(key).take(rows as usize).collect()
                };
                let texts = column(0)
                    .into_iter()
                    .map(|key| (key % 11 > 0).then(|| key.to_string()));
                let views = column(2)
                    .into_iter()
                    .map(|key| format!("a text of some length: {key}"));
                vec![
                    Arc::new(texts.collect::<StringArray>()) as ArrayRef,
                    Arc::new(Int64Array::from(column(1))),
                    Arc::new(StringViewArray::from_iter_values(views)),
                ]
            });
            let batches: Vec<Vec<ArrayRef>> = batches.collect();
            assert_eq!(are_in_columns(&batches), in_columns, "{spread:?} {drift:?}");
        }
    }

    #[test]
    fn a_null_is_a_value_and_no_rows_are_no_key() {
        let keys = |keys: Vec<Option<i32>>| -> Vec<ArrayRef> {
            let texts = keys.iter().map(|key| key.map(|key| key.to_string()));
            let texts: StringArray = texts.rev().collect();
            vec![Arc::new(Int32Array::from(keys)), Arc::new(texts)]
        };
        let some = keys(vec![Some(1), None, Some(1), None, Some(i32::MIN)]);
        let none = keys(vec![]);
        assert!(are_in_columns(&[
            none.clone(),
            some.clone(),
            none.clone(),
            some
        ]));
        let mut numbers = KeyNumbers::of(&none).unwrap();
        numbers.number(&none, 0, &mut Vec::new()).unwrap();
        assert!(numbers.finish().unwrap().is_empty());
    }

    #[test]
    fn floats_are_hashed_together_with_the_other_columns() {
        let keys: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![1])),
            Arc::new(datafusion::arrow::array::Float64Array::from(vec![0.0])),
        ];
        let numbers = KeyNumbers::of(&keys).unwrap();
        assert!(matches!(numbers.numbers, Numbers::Hashed(_)));
    }

    #[test]
    fn without_keys_there_is_one_number_and_of_no_rows_none() {
        let mut one = KeyNumbers::of(&[]).unwrap();
        let mut numbers = Vec::new();
        one.number(&[], 3, &mut numbers).unwrap();
        assert_eq!((numbers.len(), one.count(), one.is_keyed()), (3, 1, false));
        let mut none = of_integers();
        none.number(&[batch(std::iter::empty())], 0, &mut numbers)
            .unwrap();
        assert_eq!((numbers.len(), none.count()), (0, 0));
        assert!(none.finish().unwrap().is_empty());
    }
}
