//! Merges and moves runs with DataFusion's own aggregate and hash partitioning.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, collect};

use crate::state::GateState;

/// Runs that a slice may have before they are merged. A merge reads every group of the slice, so its
/// cost is spread over this many epochs; more runs make an epoch's release read more.
const RUNS: usize = 32;

/// What is needed to merge partial states: DataFusion's partial-to-partial aggregate.
#[derive(Debug)]
pub(crate) struct Reducer {
    pub group_by: PhysicalGroupBy,
    pub aggregates: Vec<Arc<AggregateFunctionExpr>>,
    /// Schema of the rows below the partial aggregate.
    pub raw_schema: SchemaRef,
}

impl Reducer {
    /// Merges the runs of every slice of a partition that has too many.
    pub(super) async fn compact(
        &self,
        state: &GateState,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<()> {
        for (slice, runs) in state.fragmented(partition, RUNS) {
            let merged = self.merge(runs, context).await?;
            state.compacted(partition, slice, merged);
        }
        Ok(())
    }

    async fn merge(
        &self,
        runs: Vec<RecordBatch>,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<RecordBatch>> {
        let Some(schema) = runs.first().map(RecordBatch::schema) else {
            return Ok(runs);
        };
        let input = MemorySourceConfig::try_new_exec(&[runs], schema, None)?;
        let merge = AggregateExec::try_new(
            AggregateMode::PartialReduce,
            self.group_by.as_final(),
            self.aggregates.clone(),
            vec![None; self.aggregates.len()],
            input,
            Arc::clone(&self.raw_schema),
        )?;
        collect(Arc::new(merge), Arc::clone(context)).await
    }

    /// Partial state of the one group of an aggregate without GROUP BY, over no rows.
    pub(super) async fn of_nothing(&self, context: &Arc<TaskContext>) -> Result<RecordBatch> {
        let states = AggregateExec::try_new(
            AggregateMode::Partial,
            PhysicalGroupBy::new_single(vec![]),
            self.aggregates.clone(),
            vec![None; self.aggregates.len()],
            Arc::new(EmptyExec::new(Arc::clone(&self.raw_schema))),
            Arc::clone(&self.raw_schema),
        )?;
        let schema = AggregateExec::try_new(
            AggregateMode::Partial,
            self.group_by.clone(),
            self.aggregates.clone(),
            vec![None; self.aggregates.len()],
            Arc::new(EmptyExec::new(Arc::clone(&self.raw_schema))),
            Arc::clone(&self.raw_schema),
        )?
        .schema();
        let states = collect(Arc::new(states), Arc::clone(context)).await?;
        let states = states.first().map(RecordBatch::columns).unwrap_or_default();
        let slice: ArrayRef = Arc::new(Int64Array::from(vec![0_i64]));
        let columns = std::iter::once(slice)
            .chain(states.iter().cloned())
            .collect();
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    /// Spreads all runs of a gate over another number of partitions, by their keys.
    pub(super) fn spread(
        &self,
        state: &GateState,
        keys: Range<usize>,
        partitions: usize,
    ) -> Result<()> {
        let runs = state.take_all();
        let Some(schema) = runs.first().map(RecordBatch::schema) else {
            return Ok(());
        };
        if keys.is_empty() || partitions == 1 {
            return runs.into_iter().try_for_each(|run| state.put(0, run));
        }
        let keys = keys
            .map(|at| Arc::new(Column::new(schema.field(at).name(), at)) as _)
            .collect();
        let mut partitioner =
            BatchPartitioner::try_new(Partitioning::Hash(keys, partitions), Time::default(), 0, 1)?;
        for run in runs {
            partitioner.partition(run, |partition, batch| state.put(partition, batch))?;
        }
        Ok(())
    }
}
