//! Aggregates rows that have waited: those of windows that close, and all of them when they are many.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use tokio::task::JoinSet;

use super::GateInfo;
use super::exchange::Exchange;
use crate::physical::TimeWindowPartialExec;
use crate::state::{Epoch, FEW_ROWS, GateState, Part, Slices};

/// Rows and their slices.
type Rows = Vec<(RecordBatch, Slices)>;

/// What it takes to aggregate rows that have waited.
pub(super) struct Ripening<'a> {
    /// The node below the gate, which aggregates.
    pub input: &'a Arc<dyn ExecutionPlan>,
    pub info: &'a GateInfo,
    /// Partitions of the gate.
    pub partitions: usize,
    pub context: &'a Arc<TaskContext>,
}

impl Ripening<'_> {
    /// Adds the waiting rows of windows that close in the epoch to its runs, once the watermark is known and before any
    /// partition is released: not by two at a time.
    pub(super) async fn of_closing(&self, epoch: &Epoch) -> Result<()> {
        let state = self.info.state(epoch);
        let after = self.info.closed_after(epoch);
        let Some(mut ripe) = state.ripe(after)? else {
            return Ok(());
        };
        let rows = std::mem::take(&mut ripe.rows);
        let runtime = self.context.runtime_env();
        for (partition, part) in self.states(rows).await? {
            state.absorb(partition, part, epoch, &runtime)?;
        }
        state.leave(ripe, epoch)
    }

    /// Aggregates all rows that wait when they are many, or when rows wait no longer. To be called between epochs.
    pub(super) async fn of_many(&self, state: &GateState) -> Result<()> {
        let Some(partial) = self.input.downcast_ref::<TimeWindowPartialExec>() else {
            return Ok(());
        };
        let rows = state.many_waiting(!partial.may_wait(self.context)?)?;
        if rows.is_empty() {
            return Ok(());
        }
        state.aggregated(self.states(rows).await?)
    }

    /// The partial states of rows, with the partition of each: of many rows computed by several tasks.
    async fn states(&self, rows: Rows) -> Result<Vec<(usize, Part)>> {
        let (keys, partitions) = (self.info.key_range(), self.partitions);
        let mut tasks: JoinSet<Result<Vec<(usize, Part)>>> = JoinSet::new();
        let mut shares = shares(rows, self.context.session_config().target_partitions());
        // The last share is the caller's own.
        let own = shares.pop().unwrap_or_default();
        for share in shares {
            let (input, keys) = (Arc::clone(self.input), keys.clone());
            tasks.spawn(async move { aggregate(&input, share, keys, partitions) });
        }
        let mut parts = aggregate(self.input, own, keys, partitions)?;
        while let Some(more) = tasks.join_next().await {
            parts.extend(more.map_err(|error| DataFusionError::External(Box::new(error)))??);
        }
        Ok(parts)
    }
}

/// The partial states of rows, parted by the keys that they have in these columns.
fn aggregate(
    input: &Arc<dyn ExecutionPlan>,
    rows: Rows,
    keys: Range<usize>,
    partitions: usize,
) -> Result<Vec<(usize, Part)>> {
    let Some(partial) = input.downcast_ref::<TimeWindowPartialExec>() else {
        return internal_err!("rows wait above a node that does not aggregate them");
    };
    let mut parts = Vec::new();
    let states: Vec<RecordBatch> = partial.states_of(rows)?.into_iter().collect();
    Exchange::new(keys, partitions).route(&states, |partition, part| {
        parts.push((partition, part));
        Ok(())
    })?;
    Ok(parts)
}

/// Parts rows into as many shares as there may be tasks, in their order; few rows are one.
fn shares(rows: Rows, tasks: usize) -> Vec<Rows> {
    let all: usize = rows.iter().map(|(batch, _)| batch.num_rows()).sum();
    let size = all.div_ceil(tasks.max(1)).max(FEW_ROWS);
    let mut shares: Vec<Rows> = Vec::new();
    let mut room = 0;
    for one in rows {
        let count = one.0.num_rows();
        match shares.last_mut() {
            Some(share) if room >= count => share.push(one),
            _ => {
                shares.push(vec![one]);
                room = size.max(count);
            }
        }
        room -= count;
    }
    shares
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn shares_are_as_many_as_tasks_and_of_few_rows_one() {
        let rows = |sizes: &[usize]| -> Rows {
            let batches = sizes.iter().map(|rows| {
                let slices = Int64Array::from_value(0, *rows);
                let column: ArrayRef = Arc::new(slices.clone());
                let batch = RecordBatch::try_from_iter([("v", column)]).unwrap();
                (batch, Slices::Any(slices))
            });
            batches.collect()
        };
        let sizes = |given: &[usize], tasks: usize| -> Vec<Vec<usize>> {
            let shares = shares(rows(given), tasks).into_iter();
            let sizes = |share: Rows| share.iter().map(|(batch, _)| batch.num_rows()).collect();
            shares.map(sizes).collect()
        };
        assert_eq!(sizes(&[], 2), Vec::<Vec<usize>>::new());
        assert_eq!(sizes(&[1; 3], 2), [vec![1; 3]]);
        assert_eq!(sizes(&[8_000; 6], 2), [vec![8_000; 3], vec![8_000; 3]]);
        assert_eq!(sizes(&[100_000, 10], 2), [vec![100_000], vec![10]]);
        assert_eq!(sizes(&[10, 100_000], 0), [vec![10, 100_000]]);
    }
}
