//! Keys as DataFusion's groups see them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type,
};

/// Keys with one zero: 0.0 and -0.0 are one group, though their bytes differ.
pub(super) fn with_one_zero(keys: &[ArrayRef]) -> Vec<ArrayRef> {
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
