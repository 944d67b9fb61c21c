//! Which partition of the gate a group is in: DataFusion's hash partitioning by the keys.
//!
//! The gate does it by itself, where DataFusion would put a `RepartitionExec` under it: that one hands
//! every batch to a task of another partition over a channel, which costs an epoch of one row more than
//! all the rest, and here every partition's rows end in the same place anyway.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::physical_plan::Partitioning;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;

/// Parts batches of partial states by their keys. The slice is no key: the slices of a window must meet
/// in one partition.
pub(super) struct Exchange {
    /// None where there is one partition.
    partitioner: Option<BatchPartitioner>,
}

impl Exchange {
    /// By the columns `keys` of `schema`, into so many partitions.
    pub(super) fn try_new(schema: &Schema, keys: Range<usize>, partitions: usize) -> Result<Self> {
        if keys.is_empty() || partitions < 2 {
            return Ok(Self { partitioner: None });
        }
        let keys = keys.map(|at| Arc::new(Column::new(schema.field(at).name(), at)) as _);
        let partitioning = Partitioning::Hash(keys.collect(), partitions);
        let partitioner = BatchPartitioner::try_new(partitioning, Time::default(), 0, 1)?;
        Ok(Self {
            partitioner: Some(partitioner),
        })
    }

    /// Hands each row of a batch to its partition.
    pub(super) fn route(
        &mut self,
        batch: RecordBatch,
        mut to: impl FnMut(usize, RecordBatch) -> Result<()>,
    ) -> Result<()> {
        match &mut self.partitioner {
            None => to(0, batch),
            Some(partitioner) => partitioner.partition(batch, to),
        }
    }
}
