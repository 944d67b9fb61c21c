//! Numbers rows as they pass, so that copies of one row are known again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::UInt64Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// A function without arguments: a number for each row, `UInt64`, that no other row of the plan has.
#[derive(Debug)]
pub(super) struct RowNumber {
    signature: Signature,
    next: Arc<AtomicU64>,
}

impl RowNumber {
    pub(super) fn new() -> Self {
        Self {
            signature: Signature::nullary(Volatility::Volatile),
            next: Arc::default(),
        }
    }
}

impl PartialEq for RowNumber {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.next, &other.next)
    }
}

impl Eq for RowNumber {}

impl std::hash::Hash for RowNumber {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.signature.hash(state);
    }
}

impl ScalarUDFImpl for RowNumber {
    fn name(&self) -> &str {
        "__tidegate_row_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows as u64;
        let first = self.next.fetch_add(rows, Ordering::Relaxed);
        let numbers = (first..).take(args.number_rows);
        Ok(ColumnarValue::Array(Arc::new(
            UInt64Array::from_iter_values(numbers),
        )))
    }
}
