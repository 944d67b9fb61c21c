//! What a streaming table has against what a batch query says: `recount('hourly')`, `audit('hourly')` and
//! `correct('hourly')`.
//!
//! ```text
//!              the query's text
//!        |            |             |
//!   as a stream   as a batch    over late rows, unread rows
//!        |            |             |
//!    published     recount      what is missing, by group
//!        +------------+-------------+
//!                     v
//!     recount - emitted = late + guarded + unread + open + unexplained
//! ```
//!
//! A recount is the query without the word STREAM over what the sources hold now, all of it (`plans.rs`). An audit
//! looks between two epochs (`snapshot.rs`), counts the rows of each group by the same text over each kind of row (`counts.rs`),
//! and checks every published value (`lines.rs`), a floating-point one by the size of what it sums (`sizes.rs`): a row of
//! a closed window must be what the query makes of the rows that were read, without those that were late for it
//! (`rest.rs`). What no kind of row explains is unexplained
//! (`figures.rs`), and there must be none. A correction is what would have to be written over the result so that it is
//! the recount, of the windows that have closed (`correction.rs`).
//!
//! - Of hopping windows each is a line: a row that came when the older ones had closed is late for those alone.
//! - Of sessions a line is one of the recount: what was published of it in pieces is summed (`sessions.rs`).
//! - A source that has let rows go, or whose files have changed, is refused: nothing could be explained.

mod closing;
mod correction;
mod counts;
mod figures;
mod functions;
mod groups;
mod late;
mod lines;
mod plans;
mod rest;
mod sessions;
mod shape;
mod sizes;
mod snapshot;

pub(crate) use correction::Correction;
pub use functions::{AuditFunction, CorrectFunction, RecountFunction};
pub use shape::Shape;
pub(crate) use shape::shape_of;
