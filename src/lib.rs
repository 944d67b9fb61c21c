//! Event-time watermarks and streaming windows in SQL, for Apache DataFusion.
//!
//! ```sql
//! SELECT window.start AS hour, count(*) AS orders
//! FROM STREAM orders WATERMARK event_time DELAY OF INTERVAL 1 HOUR
//! GROUP BY window(event_time, '1 hour')
//! ```
//!
//! It is a library over a [`SessionContext`](datafusion::prelude::SessionContext), a prompt
//! (`tidegate`), and a runner of sqllogictest suites. It is one process: no cluster, no daemon, no
//! fork of DataFusion, whose operators, aggregates, readers and formats do the work.
//!
//! # The life of a streaming query
//!
//! 1. [`sql::split`] cuts a text into statements; [`sql::parse()`] finds the streaming clauses on the
//!    tokens and lowers them to what DataFusion's parser takes.
//! 2. [`sql::StreamRelations`] plans the lowered relations: [`logical::StreamScan`],
//!    [`logical::Watermark`], [`logical::TimeWindow`].
//! 3. [`logical::analyze()`] follows the event time through the plan, turns aggregates into
//!    [`logical::StreamAggregate`], refuses what a stream cannot do, and puts the streaming part
//!    under one [`logical::StreamQuery`].
//! 4. DataFusion optimizes the plan; [`logical::KeepStreams`] keeps it from changing what the
//!    watermark sees.
//! 5. [`physical::planner`] makes plan nodes: [`physical::StreamScanExec`],
//!    [`physical::WatermarkExec`], [`physical::TimeWindowPartialExec`],
//!    [`physical::TimeWindowGateExec`], DataFusion's final aggregate.
//! 6. [`query::StreamQueryExec`] runs that plan over and over, an epoch a turn: a finite DataFusion
//!    query over the rows that have arrived.
//! 7. [`source::Cursor`] cuts every source's rows into epochs, in order of arrival; what is there first in that of
//!    event time, if the query says so.
//! 8. Rows pass the clause, which observes the greatest event time ([`state::Watermarks`]) and may set aside
//!    those of the future, and are
//!    assigned to slices of time; late ones leave, counted ([`state::Assignment`]). The others are
//!    aggregated by slice and keys, with DataFusion's accumulators ([`state::PartialAggregate`]).
//! 9. The gate keeps partial states of open windows ([`state::GateState`]). At the epoch's end the
//!    watermark is known, and the states of the windows it has closed go on to the final aggregate.
//! 10. The epoch commits: in a database as one file ([`checkpoint::Checkpoint`]), which is written while the
//!     next epoch reads; then its rows go to the
//!     reader, the streaming table ([`catalog::StreamingTable`]) or a [`sink::Sink`], its figures to the
//!     [`query::EpochProgress`], and the cursors move. If anything failed before that, nothing of the epoch
//!     stays.
//!
//! # Folders, in the order of the flow
//!
//! A module imports from its own folder and from lower floors only; a test checks it.
//!
//! | folder | what is there |
//! |---|---|
//! | [`sql`] | text to statements and relations |
//! | [`logical`] | what a query means: nodes and rules |
//! | [`physical`] | DataFusion plan nodes, thin, and their planner |
//! | [`state`] | what nodes keep between epochs |
//! | [`query`] | a running query: the epoch loop, progress |
//! | [`source`] | where rows come from |
//! | [`sink`] | where rows go to |
//! | [`checkpoint`] | what survives a restart, a file for each epoch |
//! | [`catalog`] | names: streaming tables and the functions that show them |
//! | [`picture`] | which rows were late and why, drawn: on a terminal, as SVG, as a page |
//! | [`context`] | [`StreamContext`](context::StreamContext): installs all of it into DataFusion |
//! | [`repl`], [`slt`] | the prompt; the sqllogictest adapter |
//! | [`guide`] | how fast it is, and why |
//! | [`disk`] | ground floor: the one door to the disk, and a simulated one that can lose power |
//! | [`time`] | ground floor: instants, spans, windows; integers only |
//! | [`config`], [`error`] | ground floor: settings; refusals and how they are shown |

pub mod catalog;
pub mod checkpoint;
pub mod config;
pub mod context;
pub mod disk;
pub mod error;
pub mod guide;
pub mod logical;
pub mod physical;
pub mod picture;
pub mod query;
pub mod repl;
pub mod sink;
pub mod slt;
pub mod source;
pub mod sql;
pub mod state;
pub mod time;

#[cfg(test)]
#[path = "../sql-tests/support/splitmix.rs"]
mod splitmix;

/// What most programs need.
pub mod prelude {
    pub use crate::context::StreamContext;
    pub use crate::query::{EpochProgress, QueryStatus};
}
