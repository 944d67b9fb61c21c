//! A running query: the epoch loop, and what it reports.
//!
//! 1. [`StreamQueryExec`] is the root of the streaming part of a physical plan; executing it runs the
//!    loop (`run`).
//! 2. Each turn takes a slice of every source (`sources`), runs the plan over it in two passes (`epoch`) and
//!    commits, or undoes everything the turn did.
//!    An epoch of a database is written and handed on while the next one reads (`in_flight`).
//! 3. A streaming table attaches its own state and result through [`Attached`]; a query without one
//!    starts from nothing and ends with its input.

mod attach;
mod clock;
mod epoch;
mod exec;
mod in_flight;
mod late;
mod metrics;
mod outlook;
mod progress;
mod record;
mod run;
mod saved;
mod saved_order;
mod show;
mod sources;
mod trigger;

pub use attach::{Attached, EpochRows, EpochSink, RunState, is_redefined};
pub use clock::{QueryClock, instant_of_ms, now_ms};
pub use exec::{QueryPlanner, StreamQueryExec};
pub use outlook::{Lines, Standing, Totals};
pub use progress::{ClauseProgress, EpochProgress, Live, OperatorProgress, Phases, SourceProgress};
pub use run::LiveSender;
pub use saved::{SourceAt, SourceStanding};
pub use show::{read_instant, show_instant};
pub(crate) use sources::reads;
pub use sources::{home, short};
pub use trigger::{Orders, QueryStatus, Trigger};
