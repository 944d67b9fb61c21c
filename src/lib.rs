//! Tidegate
pub mod catalog;
pub mod config;
pub mod context;
pub mod error;
pub mod logical;
pub mod physical;
pub mod query;
pub mod repl;
pub mod slt;
pub mod source;
pub mod sql;
pub mod state;
pub mod time;

/// What most programs need.
pub mod prelude {
    pub use crate::context::StreamContext;
    pub use crate::query::EpochProgress;
}
