//! Keys as DataFusion's groups see them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float16Type, Float32Type, Float64Type, Schema, SchemaRef,
};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

/// Numbers keys from 0 in the order in which they are first seen. Without key columns every row has number 0.
pub struct KeyNumbers {
    values: Option<Box<dyn GroupValues>>,
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
        let values = match keys.fields().is_empty() {
            true => None,
            false => Some(new_group_values(keys, &GroupOrdering::None)?),
        };
        Ok(Self { values })
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
        self.values.is_some()
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.values.as_ref().map_or(1, |values| values.len())
    }

    /// Bytes that the keys take.
    pub fn size(&self) -> usize {
        self.values.as_ref().map_or(0, |values| values.size())
    }

    /// The number of each row's key, in the place of what `into` holds.
    ///
    /// # Errors
    /// - the columns are not those of the keys
    pub fn number(&mut self, keys: &[ArrayRef], rows: usize, into: &mut Vec<usize>) -> Result<()> {
        into.clear();
        match &mut self.values {
            Some(values) => values.intern(keys, into),
            None => {
                into.resize(rows, 0);
                Ok(())
            }
        }
    }

    /// The key columns, a row for each number.
    ///
    /// # Errors
    /// - those of DataFusion's groups
    pub fn finish(self) -> Result<Vec<ArrayRef>> {
        match self.values {
            Some(mut values) if !values.is_empty() => values.emit(EmitTo::All),
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
