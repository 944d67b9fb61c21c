//! Settings of a session, `SET tidegate.…`, and small conversions that all floors share.

mod choice;

pub use choice::{EndOfInput, OnBadRecord, OutputMode, WatermarkPolicy};

use datafusion::arrow::datatypes::TimeUnit;
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::extensions_options;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::SessionConfig;

use crate::time::Unit;

extensions_options! {
    /// Settings under the prefix `tidegate`.
    pub struct TidegateOptions {
        /// What an ad-hoc SELECT does when its input ends: `close` closes every window, `hold` ends
        /// without closing.
        pub end_of_input: EndOfInput, default = EndOfInput::Close
        /// Which watermark a query with several clauses has: `min`, the least of its inputs', or `max`.
        pub multiple_watermark_policy: WatermarkPolicy, default = WatermarkPolicy::Min
        /// Output mode of ad-hoc queries: `append`, `update` or `complete`.
        pub output_mode: OutputMode, default = OutputMode::Append
        /// Greatest number of rows that an epoch takes from a source.
        pub max_rows_per_epoch: usize, default = 1_048_576
        /// Greatest number of files that an epoch takes from a source; 0 means no limit.
        pub max_files_per_epoch: usize, default = 0
        /// Column at whose change of value an epoch ends; empty means none.
        pub epoch_by: String, default = String::new()
        /// What a record that cannot be read does: `fail` fails its epoch, `skip` leaves it out and counts it.
        pub on_bad_record: OnBadRecord, default = OnBadRecord::Fail
    }
}

impl ConfigExtension for TidegateOptions {
    const PREFIX: &'static str = "tidegate";
}

/// Tidegate's settings in a configuration; their defaults where it has none.
pub fn options(config: &ConfigOptions) -> TidegateOptions {
    config
        .extensions
        .get::<TidegateOptions>()
        .cloned()
        .unwrap_or_default()
}

/// A builder of a session's state like `state`, under another configuration.
///
/// DataFusion's builder would put a new, empty default catalog in the place of the one that is there
/// whenever a configuration asks for a default catalog: here it never does.
pub fn rebuilt(state: SessionState, config: SessionConfig) -> SessionStateBuilder {
    let config = config.with_create_default_catalog_and_schema(false);
    SessionStateBuilder::new_from_existing(state).with_config(config)
}

/// Arrow's name for a unit.
pub fn arrow_unit(unit: Unit) -> TimeUnit {
    match unit {
        Unit::Second => TimeUnit::Second,
        Unit::Millisecond => TimeUnit::Millisecond,
        Unit::Microsecond => TimeUnit::Microsecond,
        Unit::Nanosecond => TimeUnit::Nanosecond,
    }
}

/// Our name for Arrow's unit.
pub fn unit_of(unit: &TimeUnit) -> Unit {
    match unit {
        TimeUnit::Second => Unit::Second,
        TimeUnit::Millisecond => Unit::Millisecond,
        TimeUnit::Microsecond => Unit::Microsecond,
        TimeUnit::Nanosecond => Unit::Nanosecond,
    }
}
