//! What the epoch loop asks of a node that keeps state between epochs.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;

use super::{DeduplicateExec, TimeWindowGateExec};
use crate::state::{Epoch, OperatorCounts};

/// A node that takes in all rows of an epoch before it lets any through.
#[async_trait]
pub trait Stateful: Send + Sync {
    /// Its name, as errors give it.
    fn label(&self) -> String;

    /// Number of partitions.
    fn partitions(&self) -> usize;

    /// Moves state to this plan's number of partitions, if it was made with another.
    ///
    /// # Errors
    /// - a key cannot be hashed
    fn fit(&self, epoch: &Epoch) -> Result<()>;

    /// Takes in all of the epoch's rows of a partition, once.
    ///
    /// # Errors
    /// - those of the input, and of the memory pool
    async fn absorb(&self, partition: usize, context: Arc<TaskContext>) -> Result<()>;

    /// Makes the epoch's changes permanent, and tells what became of its rows.
    ///
    /// # Errors
    /// - sessions that nobody has read cannot be merged
    fn commit(&self, epoch: &Epoch) -> Result<OperatorCounts>;

    /// Merges state that many epochs have left in pieces.
    ///
    /// # Errors
    /// - those of DataFusion's aggregate
    async fn compact(&self, _context: &Arc<TaskContext>) -> Result<()> {
        Ok(())
    }
}

/// A plan node as one that keeps state, if it is one.
pub fn as_stateful(plan: &Arc<dyn ExecutionPlan>) -> Option<&dyn Stateful> {
    if let Some(gate) = plan.downcast_ref::<TimeWindowGateExec>() {
        return Some(gate);
    }
    plan.downcast_ref::<DeduplicateExec>()
        .map(|dedup| dedup as &dyn Stateful)
}
