//! What the epoch loop asks of a node that keeps state between epochs.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::try_join_all;
use tokio::task::JoinSet;

use super::{DeduplicateExec, TimeWindowGateExec};
use crate::checkpoint::Piece;
use crate::state::{Epoch, GateAdded, OperatorCounts};

/// A node that takes in all rows of an epoch before it lets any through.
#[async_trait]
pub trait Stateful: Send + Sync {
    /// Its name, as errors give it.
    fn label(&self) -> String;

    /// Number of partitions of its input: each is taken in by itself.
    fn intakes(&self) -> usize;

    /// Takes in the state of a checkpoint, if there is one, and moves state to this plan's number of
    /// partitions, if it was made with another.
    ///
    /// # Errors
    /// - the state is another operator's
    /// - a key cannot be hashed
    /// - there is neither memory nor disk for the state
    fn fit(&self, context: &TaskContext) -> Result<()>;

    /// Takes in all of the epoch's rows of a partition of the input, once.
    ///
    /// # Errors
    /// - those of the input, and of the memory pool
    async fn absorb(&self, intake: usize, context: Arc<TaskContext>) -> Result<()>;

    /// Takes note that all partitions of the input have been taken in.
    ///
    /// # Errors
    /// - those of the memory pool
    async fn set_absorbed(&self, _context: &Arc<TaskContext>) -> Result<()> {
        Ok(())
    }

    /// Makes ready what the watermark lets through, once it is known and all rows have been taken in.
    ///
    /// # Errors
    /// - those of the aggregates and of the memory pool
    async fn ripen(&self, _context: &Arc<TaskContext>) -> Result<()> {
        Ok(())
    }

    /// Rows that are let through at the epoch's end, once it has taken in all of its rows and made them ready: how many at
    /// most.
    /// None where it is not known.
    fn releases(&self, _epoch: &Epoch) -> Option<u64> {
        None
    }

    /// What the running epoch adds to its state, for a checkpoint; asked for before it commits.
    ///
    /// # Errors
    /// - none of its own
    fn added(&self, epoch: &Epoch) -> Result<Added>;

    /// Its pieces of a checkpoint, once the epoch has committed.
    ///
    /// # Errors
    /// - none of its own
    fn pieces(&self, epoch: &Epoch, added: Added) -> Result<Vec<Piece>>;

    /// What its state is made of: aspects and what they are. State made otherwise cannot be taken in.
    fn made_of(&self) -> Vec<(String, String)>;

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

/// What an epoch adds to an operator's state.
#[derive(Debug)]
pub enum Added {
    /// To a gate.
    Gate(GateAdded),
    /// Keys of a deduplication.
    Keys(Vec<RecordBatch>),
}

/// A plan node as one that keeps state, if it is one.
pub fn as_stateful(plan: &Arc<dyn ExecutionPlan>) -> Option<&dyn Stateful> {
    if let Some(gate) = plan.downcast_ref::<TimeWindowGateExec>() {
        return Some(gate);
    }
    plan.downcast_ref::<DeduplicateExec>()
        .map(|dedup| dedup as &dyn Stateful)
}

/// Takes in all rows of some nodes, all partitions of all of them side by side: a hash exchange below
/// would stop if one of its outputs were not read. Few rows are taken in by the task that asks.
///
/// # Errors
/// - those of [`Stateful::absorb`]; the others then end too
pub async fn absorb_all(
    nodes: &[Arc<dyn ExecutionPlan>],
    context: &Arc<TaskContext>,
    few: bool,
) -> Result<()> {
    let intakes = nodes.iter().flat_map(|node| {
        let count = as_stateful(node).map_or(0, Stateful::intakes);
        (0..count).map(move |intake| absorb(Arc::clone(node), intake, Arc::clone(context)))
    });
    if few {
        try_join_all(intakes).await?;
    } else {
        // Dropping the set ends what is still running.
        let mut tasks: JoinSet<Result<()>> = intakes.collect();
        while let Some(task) = tasks.join_next().await {
            task.map_err(|error| DataFusionError::External(Box::new(error)))??;
        }
    }
    for node in nodes.iter().filter_map(as_stateful) {
        node.set_absorbed(context).await?;
    }
    Ok(())
}

async fn absorb(
    node: Arc<dyn ExecutionPlan>,
    intake: usize,
    context: Arc<TaskContext>,
) -> Result<()> {
    match as_stateful(&node) {
        Some(stateful) => stateful.absorb(intake, context).await,
        None => Ok(()),
    }
}
