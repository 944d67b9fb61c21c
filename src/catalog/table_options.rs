//! Options of a streaming table.

use std::time::Duration;

use datafusion::common::config::ExtensionOptions;
use datafusion::common::{Result, TableReference};
use datafusion::execution::SessionState;

use crate::config::{OptionalSpan, OutputMode, TidegateOptions, rebuilt};
use crate::error::Refusal;
use crate::sql::{RETAIN, parse_retain};

/// Options of `WITH (…)`: they take the place of the session's settings for this table.
#[derive(Debug, Clone, Default)]
pub struct TableOptions(Vec<(String, String)>);

/// The options there are: settings of the session under the same names.
const OPTIONS: [&str; 15] = [
    "output_mode",
    "multiple_watermark_policy",
    "max_rows_per_epoch",
    "max_files_per_epoch",
    "epoch_by",
    "initial_order",
    "on_bad_record",
    "checkpoints_kept",
    "accept_loss",
    SINK,
    RETAIN,
    LATE_ROWS,
    "poll_interval",
    "max_future",
    "idle_timeout",
];

/// The option that names the table of rows that are not counted; it is no setting of a session.
const LATE_ROWS: &str = "late_rows";

/// The option that names a sink of the application; it is no setting of a session.
const SINK: &str = "sink";

/// Whether a text was read as a name of one to three parts, and not as one of any characters.
fn is_name(text: &str, read: &TableReference) -> bool {
    let odd = |c: char| c.is_whitespace() || c == '.' || c == '"';
    let bare = matches!(read, TableReference::Bare { .. });
    let quoted = text.trim().starts_with('"');
    !read.table().is_empty() && (!bare || quoted || !read.table().contains(odd))
}

impl TableOptions {
    /// Checks names; values are checked when they are used.
    ///
    /// # Errors
    /// - an unknown name
    pub fn try_new(options: Vec<(String, String)>) -> Result<Self> {
        for (key, _) in &options {
            if !OPTIONS.contains(&key.as_str()) {
                return Err(Refusal::new(
                    "INVALID_STREAM_OPTION",
                    "42616",
                    format!("A streaming table has no option '{key}'."),
                )
                .hint(format!("the options are {}", OPTIONS.join(", ")))
                .into());
            }
        }
        Ok(Self(options))
    }

    /// Names and values as they were given, by name.
    pub fn sorted(&self) -> Vec<(String, String)> {
        let mut options = self.0.clone();
        options.sort();
        options
    }

    /// The sink of the application that rows go to, if they do.
    pub fn sink(&self) -> Option<&str> {
        let named = self.0.iter().find(|(key, _)| key == SINK);
        named.map(|(_, name)| name.as_str())
    }

    /// Whether event times of the future are left out of a stream, by these options and its own alone: a session's
    /// settings may be others when the table is opened again.
    pub fn guards(&self, stream: &[(String, String)]) -> bool {
        let named = |options: &[(String, String)]| {
            let limit = options.iter().find(|(key, _)| key == "max_future");
            limit.and_then(|(_, limit)| limit.parse::<OptionalSpan>().ok())
        };
        let limit = named(stream).or_else(|| named(&self.0));
        limit.is_some_and(|limit| limit.0.is_some())
    }

    /// How long rows of the result are kept, if not for good.
    ///
    /// # Errors
    /// - a value that is no length of time, or not longer than zero
    pub fn retain(&self) -> Result<Option<Duration>> {
        let named = self.0.iter().find(|(key, _)| key == RETAIN);
        let retain = named.map(|(_, text)| parse_retain(text, None));
        Ok(retain.transpose()?)
    }

    /// The table that rows which are not counted go to, if they are kept.
    ///
    /// # Errors
    /// - a value that is no name
    pub fn late_rows(&self) -> Result<Option<TableReference>> {
        let Some((_, name)) = self.0.iter().find(|(key, _)| key == LATE_ROWS) else {
            return Ok(None);
        };
        match TableReference::parse_str(name) {
            reference if is_name(name, &reference) => Ok(Some(reference)),
            _ => Err(Refusal::new(
                "INVALID_STREAM_OPTION",
                "42616",
                format!("late_rows takes the name of a table, not '{name}'."),
            )
            .hint("write late_rows = 'orders_late'")
            .into()),
        }
    }

    /// A session's state with these options as its settings.
    ///
    /// # Errors
    /// - a value that the setting cannot take
    pub fn apply(&self, state: &SessionState) -> Result<SessionState> {
        let mut config = state.config().clone();
        // What an ad-hoc query emits, and where its epochs end, is no one else's business.
        let mut settings = TidegateOptions {
            output_mode: OutputMode::default(),
            epoch_by: String::new(),
            ..crate::config::options(config.options())
        };
        let is_setting = |key: &str| ![SINK, RETAIN, LATE_ROWS].contains(&key);
        for (key, value) in self.0.iter().filter(|(key, _)| is_setting(key)) {
            settings.set(key, value)?;
        }
        config.options_mut().extensions.insert(settings);
        Ok(rebuilt(state.clone(), config).build())
    }
}
