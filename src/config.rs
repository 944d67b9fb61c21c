//! Settings of a session, `SET tidegate.…`, and small conversions that all floors share.

mod choice;
mod length;

pub use choice::{EndOfInput, InitialOrder, OnBadRecord, OutputMode, WatermarkPolicy};
pub use length::OptionalSpan;
pub(crate) use length::{SpanError, parse_span};

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use datafusion::arrow::datatypes::{FieldRef, TimeUnit};
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::SessionConfig;

use crate::error::Refusal;
use crate::time::Unit;

/// Declares the settings: fields, and what DataFusion asks of an extension's options. DataFusion's own
/// macro lists keys without their prefix, so that `SHOW tidegate.output_mode` would not find them.
macro_rules! settings {
    ($($(#[doc = $doc:literal])* $field:ident: $kind:ty = $default:expr),+ $(,)?) => {
        /// Settings under the prefix `tidegate`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct TidegateOptions { $($(#[doc = $doc])* pub $field: $kind),+ }

        impl Default for TidegateOptions {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl ExtensionOptions for TidegateOptions {
            fn as_any(&self) -> &dyn Any {
                self
            }

            fn as_any_mut(&mut self) -> &mut dyn Any {
                self
            }

            fn cloned(&self) -> Box<dyn ExtensionOptions> {
                Box::new(self.clone())
            }

            fn set(&mut self, key: &str, value: &str) -> Result<()> {
                match key {
                    $(stringify!($field) => self.$field = read(key, value)?,)+
                    _ => return Err(unknown(key, &[$(stringify!($field)),+])),
                }
                Ok(())
            }

            fn entries(&self) -> Vec<ConfigEntry> {
                vec![$(ConfigEntry {
                    key: format!("{}.{}", Self::PREFIX, stringify!($field)),
                    value: Some(self.$field.to_string()),
                    description: concat!($($doc),*).trim_start(),
                }),+]
            }
        }
    };
}

/// Rows of an epoch unless it is said: so many that the fixed cost of an epoch does not count beside them.
const ROWS: NonZeroUsize = match NonZeroUsize::new(1_048_576) {
    Some(rows) => rows,
    None => NonZeroUsize::MIN,
};

/// Checkpoints that are kept unless it is said: the newest, and one to go back to.
const CHECKPOINTS: NonZeroUsize = match NonZeroUsize::new(2) {
    Some(two) => two,
    None => NonZeroUsize::MIN,
};

/// Milliseconds between two looks at a source that does not tell when something arrives, unless it is said:
/// a person does not notice, and planning a refresh takes a few of them.
const POLL: NonZeroUsize = match NonZeroUsize::new(1_000) {
    Some(second) => second,
    None => NonZeroUsize::MIN,
};

settings! {
    /// What an ad-hoc SELECT does when its input ends: `close` closes every window, `hold` ends without closing.
    end_of_input: EndOfInput = EndOfInput::Close,
    /// Which watermark a query with several clauses has: `min`, the least of its inputs', or `max`.
    multiple_watermark_policy: WatermarkPolicy = WatermarkPolicy::Min,
    /// Output mode of ad-hoc queries: `append`, `update` or `complete`.
    output_mode: OutputMode = OutputMode::Append,
    /// Greatest number of rows that an epoch takes from a source.
    max_rows_per_epoch: NonZeroUsize = ROWS,
    /// Greatest number of files that an epoch takes from a source; 0 means no limit.
    max_files_per_epoch: usize = 0,
    /// Column at whose change of value an epoch ends; empty means none.
    epoch_by: String = String::new(),
    /// In which order a query reads what a source holds when it first starts: `arrival` or `event_time`.
    initial_order: InitialOrder = InitialOrder::Arrival,
    /// What a record that cannot be read does: `fail` fails its epoch, `skip` leaves it out and counts it.
    on_bad_record: OnBadRecord = OnBadRecord::Fail,
    /// How many checkpoints of a streaming table are kept, the newest included.
    checkpoints_kept: NonZeroUsize = CHECKPOINTS,
    /// Whether a streaming table that is kept on disk may read a source that gives its rows only once.
    accept_loss: bool = false,
    /// Milliseconds between two looks at sources that do not tell when something arrives, such as directories.
    poll_interval: NonZeroUsize = POLL,
    /// How much later than now an event time may be: a row beyond it is set aside and counted; `none` lets all pass.
    max_future: OptionalSpan = OptionalSpan(None),
    /// How long an input without rows holds the watermark of a query with several clauses; `none` means for ever.
    idle_timeout: OptionalSpan = OptionalSpan(None),
}

impl ConfigExtension for TidegateOptions {
    const PREFIX: &'static str = "tidegate";
}

/// Reads a setting's value.
fn read<T: Setting>(key: &str, value: &str) -> Result<T>
where
    T::Err: fmt::Display,
{
    value.parse().map_err(|reason: T::Err| {
        let refused = |reason: &str| {
            let message = format!("{key} cannot be '{value}': {reason}.");
            Refusal::new("INVALID_CONF_VALUE", "22022", message)
        };
        let refusal = match T::TAKES {
            Some((kind, example)) => {
                refused(&format!("it takes {kind}")).hint(format!("write {key} = {example}"))
            }
            None => refused(&reason.to_string()),
        };
        refusal.into()
    })
}

/// A type that settings have.
trait Setting: FromStr {
    /// What it takes, and an example, where its own errors do not say it.
    const TAKES: Option<(&str, &str)> = None;
}

impl Setting for NonZeroUsize {
    const TAKES: Option<(&str, &str)> = Some(("a whole number above zero", "1000"));
}

impl Setting for usize {
    const TAKES: Option<(&str, &str)> = Some(("a whole number, zero or above", "10"));
}

impl Setting for bool {
    const TAKES: Option<(&str, &str)> = Some(("true or false", "true"));
}

impl Setting for String {}
impl Setting for OptionalSpan {}
impl Setting for EndOfInput {}
impl Setting for InitialOrder {}
impl Setting for OnBadRecord {}
impl Setting for OutputMode {}
impl Setting for WatermarkPolicy {}

fn unknown(key: &str, known: &[&str]) -> DataFusionError {
    Refusal::new(
        "INVALID_CONF_NAME",
        "42616",
        format!("There is no setting '{key}'."),
    )
    .hint(format!("the settings are {}", known.join(", ")))
    .into()
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

/// Columns as a person reads them: name and type of each.
pub fn shown_columns(fields: &[FieldRef]) -> String {
    let columns = fields.iter();
    let columns = columns.map(|field| format!("{} {}", field.name(), field.data_type()));
    columns.collect::<Vec<_>>().join(", ")
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
