//! What a query means: plan nodes, and the rules that find the window, carry the mark of the event
//! time and refuse what cannot be.
//!
//! In the order in which a query meets them:
//!
//! 1. [`Watermark`] and [`TimeWindow`]: the nodes that the FROM clause makes.
//! 2. `marks`: which columns carry the event time or a window of it.
//! 3. [`analyze()`]: turns aggregates over streams into [`StreamAggregate`], expands windows that no
//!    aggregate takes, removes clauses over finite tables, refuses what a stream cannot do, and
//!    puts the streaming part under one [`StreamQuery`].
//! 4. [`carry_rows`]: where rows that are not counted are kept, carries each to the operator that drops it.
//! 5. [`KeepStreams`]: keeps DataFusion's optimizer from moving filters below a watermark.

mod aggregate;
mod analyze;
mod bins;
mod carry;
mod check;
mod deduplicate;
mod group_columns;
mod group_time;
mod grouping_sets;
mod initial_order;
mod keep;
mod marks;
mod query;
mod row_number;
mod scan;
mod time_window;
mod watermark;
mod windows;

pub use aggregate::StreamAggregate;
pub use analyze::{StreamAnalyzer, analyze, without_places};
pub use carry::{ASIDE, Carrying, EVENT_TIME, NUMBER, REASON, WATERMARK, carry_rows};
pub use deduplicate::StreamDeduplicate;
pub use group_columns::{group_columns, groups_may_leave, null_or_left_out};
pub use group_time::{Bin, GroupTime, TimeValue};
pub(crate) use initial_order::is_fixed;
pub use keep::KeepStreams;
pub use query::StreamQuery;
pub use scan::{OptionScan, StreamScan, is_stream_scan, option_scan, stream_scan, stream_scans};
pub use time_window::{SessionSpec, TimeWindow, WindowSpec, Windows};
pub use watermark::Watermark;
pub(crate) use windows::SliceGroup;
pub use windows::{Misplaced, SliceToGroup, WindowBounds, WindowTime};
