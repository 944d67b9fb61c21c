//! Keys as DataFusion's groups see them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};

/// Keys with one zero: 0.0 and -0.0 are one group, though their bytes differ.
pub(super) fn with_one_zero(keys: &[ArrayRef]) -> Vec<ArrayRef> {
    keys.iter()
        .map(|key| match key.data_type() {
            DataType::Float64 => {
                let key: PrimitiveArray<Float64Type> =
                    key.as_primitive::<Float64Type>().unary(|value| value + 0.0);
                Arc::new(key) as ArrayRef
            }
            DataType::Float32 => {
                let key: PrimitiveArray<Float32Type> =
                    key.as_primitive::<Float32Type>().unary(|value| value + 0.0);
                Arc::new(key)
            }
            _ => Arc::clone(key),
        })
        .collect()
}
