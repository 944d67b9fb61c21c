//! Ground floor: event time, spans, watermarks and the geometry of time windows.
//!
//! Everything here is integers. There is no Arrow and no DataFusion in this folder, no clock and no
//! I/O, so that the rules can be read, tested and reasoned about alone.
//!
//! Two scales are used. *Ticks* are `i64` counts of a column's own unit since 1970-01-01T00:00:00Z,
//! as Arrow stores them: windows are cut on ticks. *Instants* are `i128` nanoseconds since the same
//! moment: watermarks are instants, because one query may compare columns of different units, and
//! because no sum of an `i64` timestamp and a delay leaves an `i128`.

mod divide;
mod instant;
mod search;
mod span;
mod unit;
mod window;

pub use divide::Divisor;
pub use instant::Instant;
pub use search::first_passed;
pub use span::Span;
pub use unit::Unit;
pub use window::{Closed, WindowShape};
