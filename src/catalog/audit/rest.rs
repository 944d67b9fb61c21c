//! Rows without some of them, as many times as those are there.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream};
use futures::{StreamExt, TryStreamExt};

/// The rows of one plan without those of others, whose columns are the same: of equal rows as many stay as there are
/// more of them.
#[derive(Debug)]
pub(super) struct Rest {
    all: Arc<dyn ExecutionPlan>,
    gone: Vec<Arc<dyn ExecutionPlan>>,
    schema: SchemaRef,
}

impl Rest {
    pub(super) fn new(all: Arc<dyn ExecutionPlan>, gone: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        let schema = all.schema();
        Self { all, gone, schema }
    }

    /// Schema of the rows.
    pub(super) fn schema_ref(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl PartitionStream for Rest {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (all, gone) = (Arc::clone(&self.all), self.gone.clone());
        let rows = async move {
            let mut removed = Removed::new(&all.schema())?;
            for plan in gone {
                for batch in collect(plan, Arc::clone(&context)).await? {
                    removed.add(&batch)?;
                }
            }
            let rows = execute_stream(all, context)?;
            Ok::<_, DataFusionError>(rows.map(move |batch| removed.without(&batch?)))
        };
        let rows = futures::stream::once(rows).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        ))
    }
}

/// Rows to leave out, by their values, and how many of each are left.
struct Removed {
    converter: RowConverter,
    rows: HashMap<Box<[u8]>, u64>,
}

impl Removed {
    fn new(schema: &SchemaRef) -> Result<Self> {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        Ok(Self {
            converter: RowConverter::new(fields.collect())?,
            rows: HashMap::new(),
        })
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        for row in &self.converter.convert_columns(batch.columns())? {
            *self.rows.entry(row.as_ref().into()).or_default() += 1;
        }
        Ok(())
    }

    fn without(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.rows.is_empty() {
            return Ok(batch.clone());
        }
        let rows = self.converter.convert_columns(batch.columns())?;
        let stays: BooleanArray = rows
            .iter()
            .map(|row| match self.rows.get_mut(row.as_ref()) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    Some(false)
                }
                _ => Some(true),
            })
            .collect();
        Ok(filter_record_batch(batch, &stays)?)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn batch(values: &[i64]) -> RecordBatch {
        let column = Int64Array::from(values.to_vec());
        RecordBatch::try_from_iter([("c0", Arc::new(column) as _)]).unwrap()
    }

    #[test]
    fn of_equal_rows_as_many_go_as_are_named() {
        let mut removed = Removed::new(&batch(&[]).schema()).unwrap();
        removed.add(&batch(&[1, 1, 2, 9])).unwrap();
        let rest = |removed: &mut Removed, values: &[i64]| {
            let rest = removed.without(&batch(values)).unwrap();
            rest.column(0).as_primitive::<Int64Type>().values().to_vec()
        };
        assert_eq!(rest(&mut removed, &[1, 2, 3]), [3]);
        assert_eq!(rest(&mut removed, &[1, 1, 2]), [1, 2]);
    }
}
