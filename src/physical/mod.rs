//! DataFusion plan nodes of a streaming query, thin: the algorithms are in [`state`](crate::state).
//!
//! From the leaf up, as the rows flow:
//!
//! 1. [`StreamScanExec`]: the epoch's slice of a source.
//! 2. [`WatermarkExec`]: observes the greatest event time; rows from the future leave, if there is a guard.
//! 3. [`TimeWindowPartialExec`]: slice of each row; late and null rows leave, counted; what stays is aggregated
//!    by slice and keys. Where DataFusion's partial aggregate does the latter, [`TimeWindowAssignExec`] gives
//!    it the slices, and [`SessionAssignExec`] the bounds of sessions.
//! 4. [`TimeWindowGateExec`]: keeps partial states of open windows, lets those of closed ones through.
//!    Deduplication is a node beside it: [`DeduplicateExec`].
//!
//! [`planner`] puts them together with DataFusion's aggregates. [`Inputs`] makes sure that every
//! source is read to its end in every epoch, whatever the operators above do.

mod aside;
mod assign;
mod closing;
mod deduplicate;
mod gate;
mod guard;
mod inputs;
mod limits;
mod partial;
pub mod planner;
mod scan;
mod session;
mod stateful;
mod watermark;

pub use assign::TimeWindowAssignExec;
pub use closing::Closing;
pub(crate) use closing::ticks;
pub use deduplicate::DeduplicateExec;
pub use gate::{GateInfo, TimeWindowGateExec};
pub use inputs::Inputs;
pub use partial::TimeWindowPartialExec;
pub use scan::{EventTime, StreamScanExec};
pub use session::SessionAssignExec;
pub(crate) use session::ticks_of as gap_ticks;
pub use stateful::{Added, Stateful, absorb_all, as_stateful};
pub use watermark::WatermarkExec;

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;

use crate::state::Epoch;

/// The epoch that a task runs in.
fn epoch(context: &TaskContext) -> Result<Arc<Epoch>> {
    context
        .session_config()
        .get_extension::<Epoch>()
        .ok_or_else(|| internal_datafusion_err!("a streaming operator runs only in an epoch"))
}

/// Whether a node is one of this folder: they keep nothing between epochs.
pub fn is_ours(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<StreamScanExec>()
        || plan.is::<WatermarkExec>()
        || plan.is::<TimeWindowAssignExec>()
        || plan.is::<TimeWindowPartialExec>()
        || plan.is::<SessionAssignExec>()
        || as_stateful(plan).is_some()
}

/// The only child of a node that has one.
pub(crate) fn one_child(children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
    children
        .into_iter()
        .next()
        .ok_or_else(|| internal_datafusion_err!("a node with one child was given none"))
}

/// A schema with `Int64` columns of these names behind its own, none of them nullable.
fn with_bounds(schema: &SchemaRef, names: &[&str]) -> SchemaRef {
    let bounds = names
        .iter()
        .map(|name| Arc::new(Field::new(*name, DataType::Int64, false)));
    let fields: Vec<_> = schema.fields().iter().cloned().chain(bounds).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
