//! Names: streaming tables, their results, and the functions that show what they did.

mod definition;
mod functions;
mod records;
mod registry;
mod replace_table;
mod streaming_table;
mod unbounded;

pub use definition::{Definition, TableOptions};
pub(crate) use functions::unknown;
pub use functions::{EmittedFunction, ProgressFunction};
pub use records::{outlook_batch, progress_batch, refresh_batch};
pub use registry::StreamingTables;
pub use replace_table::ReplaceTable;
pub use streaming_table::StreamingTable;
pub use unbounded::UnboundedTables;
