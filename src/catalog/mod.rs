//! Names: streaming tables, their results, and the functions that show what they did, in rows and in pictures.

mod audit;
mod computed;
mod correcting;
mod database;
mod definition;
mod functions;
mod late_columns;
mod lateness;
mod outlet;
mod picture;
mod plot;
mod records;
mod refused_table;
mod registry;
mod replace_table;
mod result;
mod streaming_table;
mod table_options;
mod unbounded;

pub use audit::{AuditFunction, CorrectFunction, RecountFunction, Shape};
pub use database::{Database, Entry, Former, KeptRows, Kind};
pub use definition::Definition;
pub(crate) use functions::unknown;
pub use functions::{EmittedFunction, LateRowsFunction, ProgressFunction};
pub use lateness::{LatenessFunction, OutOfOrderFunction};
pub use outlet::{application_outlet, cleaner, directory_outlet};
pub use plot::PlotFunction;
pub use records::{outlook_batch, progress_batch, refresh_batch};
pub use refused_table::RefusedTable;
pub use registry::StreamingTables;
pub use replace_table::ReplaceTable;
pub use streaming_table::{Awaiting, Outlet, Retentions, StreamingTable};
pub use table_options::TableOptions;
pub use unbounded::UnboundedTables;
