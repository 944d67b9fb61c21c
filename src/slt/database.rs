//! A [`StreamContext`] as sqllogictest sees a database.

use std::fmt;
use std::io;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, exec_err};
use sqllogictest::{AsyncDB, DBOutput};
use tokio::sync::Mutex;

use super::normalize::{Letter, letter, rows};
use crate::context::StreamContext;
use crate::error::refusal;

/// The context that all connections of a suite share.
#[derive(Clone)]
pub(super) struct Shared {
    /// None while it is being opened again.
    context: Arc<Mutex<Option<StreamContext>>>,
    /// Whether it is closed and opened again before each statement.
    restarts: bool,
}

impl Shared {
    pub(super) fn new(context: StreamContext, restarts: bool) -> Self {
        Self {
            context: Arc::new(Mutex::new(Some(context))),
            restarts,
        }
    }
}

/// One connection of a suite.
pub(super) struct Database {
    shared: Shared,
}

impl Database {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared }
    }

    /// Answers a statement: the frame's columns, and its rows.
    async fn answer(&self, sql: &str) -> Result<(Vec<Letter>, Vec<RecordBatch>)> {
        let mut held = self.shared.context.lock().await;
        if self.shared.restarts
            && let Some(context) = held.take()
        {
            *held = Some(context.reopen().await?);
        }
        let Some(context) = held.as_ref() else {
            return exec_err!("the database could not be opened again");
        };
        let frame = context.sql(sql).await?;
        let types = frame.schema().fields().iter();
        let types = types.map(|field| letter(field.data_type())).collect();
        Ok((types, frame.collect().await?))
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
        let (types, batches) = self.answer(sql).await?;
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
