//! Text to statements and relations.
//!
//! 1. [`split`] cuts a text into statements.
//! 2. [`parse()`] reads one: our own statements ([`StreamingStatement`]), or DataFusion's with the
//!    streaming clauses lowered (`clause`) and `window()` given its column (`rewrite`).
//! 3. [`StreamRelations`] turns the lowered relations into plan nodes when DataFusion plans the query.

mod build;
mod checked_sum;
mod clause;
mod interval;
mod parse;
mod relation;
mod retain;
mod rewrite;
mod statement;
mod tokens;

pub use checked_sum::CheckedSum;
pub(crate) use clause::LOWERED;
pub(crate) use interval::{SpanError, parse_span};
pub use parse::{Parsed, parse};
pub use relation::StreamRelations;
pub(crate) use relation::{as_stream, window_length, window_shape};
pub(crate) use retain::{RETAIN, parse_retain};
pub use statement::{CreateStreamingTable, Existing, Format, StreamingStatement, Target};
pub use tokens::{Statement, is_complete, split};
