//! A [`StreamContext`] as sqllogictest sees a database.

use std::fmt;
use std::io;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::DataFusionError;
use sqllogictest::{AsyncDB, DBOutput};

use super::normalize::{Letter, letter, rows};
use crate::context::StreamContext;
use crate::error::refusal;

/// One connection of a suite. All connections of a suite share one context.
pub(super) struct Database {
    context: StreamContext,
}

impl Database {
    pub(super) fn new(context: StreamContext) -> Self {
        Self { context }
    }
}

/// An error as suites match it: a refusal alone, without what DataFusion wrapped around it; anything else without
/// its backtrace.
#[derive(Debug)]
pub(super) struct Raised(DataFusionError);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match refusal(&self.0) {
            Some(refusal) => refusal.fmt(f),
            None => f.write_str(&self.0.strip_backtrace()),
        }
    }
}

impl std::error::Error for Raised {}

impl From<DataFusionError> for Raised {
    fn from(error: DataFusionError) -> Self {
        Self(error)
    }
}

#[async_trait]
impl AsyncDB for Database {
    type Error = Raised;
    type ColumnType = Letter;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Letter>, Raised> {
        let frame = self.context.sql(sql).await?;
        let types: Vec<Letter> = frame
            .schema()
            .fields()
            .iter()
            .map(|field| letter(field.data_type()))
            .collect();
        let batches = frame.collect().await?;
        // A statement that defines something answers no columns at all.
        if types.is_empty() {
            return Ok(DBOutput::StatementComplete(0));
        }
        let rows = rows(&batches)?;
        Ok(DBOutput::Rows { types, rows })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "tidegate"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    async fn run_command(mut command: Command) -> io::Result<Output> {
        command.stdin(Stdio::null());
        tokio::task::spawn_blocking(move || command.output())
            .await
            .map_err(io::Error::other)?
    }

    fn error_sql_state(error: &Raised) -> Option<String> {
        refusal(&error.0).map(|refusal| refusal.sql_state.to_owned())
    }
}
