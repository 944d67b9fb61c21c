//! Merges runs with DataFusion's own aggregate, and moves them to other partitions.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::TOGETHER_BYTES;
use super::exchange::Exchange;
use super::windows::Windows;
use crate::config::OutputMode;
use crate::state::{GateState, Part, SharedSlices};

/// Runs that a slice may have before they are merged: more make a merge rarer, and a release read more.
const RUNS: usize = 32;

/// The same where every epoch seeks the groups that it touched in all runs.
const SEARCHED_RUNS: usize = 8;

/// What is needed to merge partial states: DataFusion's partial-to-partial aggregate.
#[derive(Debug)]
pub(crate) struct Reducer {
    pub group_by: PhysicalGroupBy,
    pub aggregates: Vec<Arc<AggregateFunctionExpr>>,
    /// Schema of the rows below the partial aggregate.
    pub raw_schema: SchemaRef,
}

/// Whether a memory pool had no room.
fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

impl Reducer {
    /// Merges the runs of every slice of a partition that has too many.
    pub(super) async fn compact(
        &self,
        state: &GateState,
        partition: usize,
        mode: OutputMode,
        context: &Arc<TaskContext>,
    ) -> Result<()> {
        let limit = match mode {
            OutputMode::Update => SEARCHED_RUNS,
            OutputMode::Append | OutputMode::Complete => RUNS,
        };
        for fragments in state.fragmented(partition, limit) {
            match self.merge(fragments.runs.clone(), context).await {
                Ok(merged) => state.compacted(partition, &fragments, merged),
                // They stay as they are, and are merged when there is room or when they are released.
                Err(error) if is_exhausted(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
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
        let merged = collect(Arc::new(merge), Arc::clone(context)).await?;
        let Some(first) = merged.first() else {
            return Ok(merged);
        };
        // One run; texts that do not fit one column stay in several.
        Ok(match concat_batches(&first.schema(), &merged) {
            Ok(one) => vec![one],
            Err(_) => merged,
        })
    }

    /// The windows of slices that they share, merged one after the other. Runs have so many keys. None where
    /// there is no memory to merge them in.
    pub(super) fn windows(
        &self,
        keys: usize,
        shared: SharedSlices,
        memory: MemoryReservation,
    ) -> Result<Option<BoxStream<'static, Result<RecordBatch>>>> {
        let run = shared.slices.iter().flatten().next();
        let Some(schema) = run.map(RecordBatch::schema) else {
            return Ok(Some(futures::stream::empty().boxed()));
        };
        let windows = Windows::try_new(schema, keys, &self.aggregates, shared, memory)?;
        Ok(windows.map(|windows| futures::stream::iter(windows).boxed()))
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
        let mut exchange = Exchange::new(keys, partitions);
        let mut parts: Vec<Vec<Part>> = Vec::new();
        parts.resize_with(partitions, Vec::new);
        let mut to = |partition: usize, part| {
            if let Some(parts) = parts.get_mut(partition) {
                parts.push(part);
            }
            Ok(())
        };
        let (mut together, mut bytes) = (Vec::new(), 0);
        for run in state.all_runs() {
            let run = run?;
            bytes += run.get_array_memory_size();
            together.push(run);
            if bytes >= TOGETHER_BYTES {
                exchange.route(&std::mem::take(&mut together), &mut to)?;
                bytes = 0;
            }
        }
        exchange.route(&together, &mut to)?;
        state.replace_all(parts)
    }
}
