//! Batches under the schema of the table that takes them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;

/// A batch with a table's schema. Columns that hold the same values in another form take the table's:
/// DataFusion plans a text as one kind and may return another.
///
/// # Errors
/// - another number of columns, a column of another type, a null where the schema has none
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch
        .columns()
        .iter()
        .enumerate()
        .map(|(at, column)| match schema.fields().get(at) {
            Some(field) if same_values(column.data_type(), field.data_type()) => {
                Ok(cast(column, field.data_type())?)
            }
            _ => Ok(Arc::clone(column)),
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Whether two different types are forms of the same values.
fn same_values(one: &DataType, other: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    let text = |kind: &DataType| matches!(kind, Utf8 | LargeUtf8 | Utf8View);
    let bytes = |kind: &DataType| matches!(kind, Binary | LargeBinary | BinaryView);
    one != other && (text(one) && text(other) || bytes(one) && bytes(other))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn a_text_takes_the_form_of_the_table_and_a_number_stays_what_it_is() {
        let text = |kind| Arc::new(Schema::new(vec![Field::new("k", kind, true)]));
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None]));
        let batch = RecordBatch::try_from_iter([("other", views)]).unwrap();
        let taken = conform(&batch, &text(DataType::Utf8)).unwrap();
        let expected: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        assert_eq!(
            (taken.column(0), taken.schema().field(0).name()),
            (&expected, &"k".to_owned())
        );
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("k", numbers)]).unwrap();
        assert!(conform(&batch, &text(DataType::Utf8)).is_err());
    }
}
