//! Tidegate
pub mod context;
pub mod error;
pub mod query;
pub mod repl;
pub mod slt;
pub mod sql;
