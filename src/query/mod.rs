//! A running query: epochs, progress.
mod progress;
pub use progress::{EpochProgress, Live};
