//! What plan nodes keep between epochs, and what an epoch is.
//!
//! Nodes of a physical plan hold no data. They find their state through the [`Epoch`] in the task's
//! context, under their number in the query ([`QueryState`]). State is Arrow: per slice of time, runs
//! of partial aggregate states ([`GateState`]).
//!
//! An epoch's additions are *pending* until it commits, and are dropped if it fails: state never
//! holds half an epoch.
//!
//! State counts against the session's memory pool. When that has no room, runs go to disk and are read back one
//! by one when they are released ([`QueryState`] says which, `spill` how). Sessions and keys stay in memory.

mod aside;
mod assign;
mod counts;
mod dedup;
mod dense;
mod epoch;
mod gate;
mod groups;
mod idleness;
mod key_columns;
mod key_table;
mod keys;
mod lateness;
mod memory;
mod partial;
mod runs;
mod sessions;
mod spill;
mod times;
mod watermarks;

pub use aside::{Reason, SetAside, Windows};
pub use assign::{Assigned, Assignment, Slices};
pub use counts::{Accepted, Fates, OperatorCounts, Turnover};
pub use dedup::{Candidates, DedupState};
pub use dense::Near;
pub use epoch::{Epoch, FEW_ROWS, QueryState, RowFeed, SourceSlice};
pub use gate::{
    ENOUGH_BATCHES, ENOUGH_ROWS, Fragments, GateAdded, GateShape, GateState, Release, Released,
    Ripe, SharedSlices, Waiting, WindowOfSlices, rows_of,
};
pub use idleness::Idleness;
pub use keys::{KeyNumbers, with_one_zero};
pub use lateness::{BUCKETS, Disorder, Lateness, Outcome, WINDOWS, usual_delays};
pub use memory::MEMORY_LIMIT;
pub use partial::{Arguments, PartialAggregate};
pub use runs::{Part, coalesced, slices};
pub use sessions::{Merged, Session, merge};
pub use times::EventTimes;
pub use watermarks::{Observed, Watermarks};
