//! Starting and stopping the queries of streaming tables.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{Result, TableReference};
use datafusion::dataframe::DataFrame;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::StreamContext;
use super::started::{Paused, Started};
use super::ticker::Ticker;
use crate::catalog::StreamingTable;
use crate::error::Refusal;
use crate::query::{QueryStatus, Trigger};

impl StreamContext {
    /// The context with another time for the queries that are started from now on. Those that were started
    /// before through it are stopped.
    #[must_use]
    pub fn with_ticker(mut self, ticker: Arc<dyn Ticker>) -> Self {
        self.started = Arc::new(Started::with_ticker(ticker));
        self
    }

    /// Refreshes a streaming table from now on, as `ALTER STREAMING TABLE name START [EVERY INTERVAL …]`
    /// does: without an interval whenever something has arrived, at once for rows of append-only tables and
    /// of other streaming tables, and else when the sources are looked at again (`tidegate.poll_interval`);
    /// with an interval (more than zero) at once and then once every interval.
    ///
    /// - The next refresh begins when the last one has ended; an interval that was missed is not made up for.
    /// - Where nothing has arrived no epoch runs, but for an input that has become idle (`idle_timeout`) and for event
    ///   time that was advanced without a row.
    /// - A query that runs already goes on, with this interval from now on; one that has failed starts again.
    /// - It runs as a task of the runtime that awaits this, until it is stopped, fails, or the last clone of
    ///   this context is dropped; [`shutdown`](Self::shutdown) ends it in order.
    /// - After a restart every query is stopped.
    ///
    /// # Errors
    /// - there is no such streaming table; its checkpoint is damaged, or its query cannot be planned any more
    /// - the interval is zero
    /// - outside a tokio runtime
    pub fn start<'a>(
        &'a self,
        name: &'a str,
        every: Option<Duration>,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            self.start_query(&TableReference::parse_str(name), every)
                .await
        }
        .boxed()
    }

    /// Refreshes a streaming table no longer, as `ALTER STREAMING TABLE name STOP` does: returns when the
    /// epoch that runs has ended. Dropped before, the epoch is abandoned. A query that is stopped stays so,
    /// and one that has failed is stopped: its error is forgotten.
    ///
    /// # Errors
    /// - there is no such streaming table
    pub fn stop<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        async move { self.stop_query(&TableReference::parse_str(name)).await }.boxed()
    }

    /// Whether a streaming table refreshes by itself, or why it does no longer.
    ///
    /// # Errors
    /// - there is no such streaming table
    pub fn status(&self, name: &str) -> Result<QueryStatus> {
        let table = self.streaming_table(&TableReference::parse_str(name))?;
        Ok(self.started.status(table.name()))
    }

    /// Every streaming table, by its name without catalog and schema, and its status.
    pub fn statuses(&self) -> Vec<(String, QueryStatus)> {
        let tables = self.tables.all();
        tables
            .iter()
            .map(|table| {
                let status = self.started.status(table.name());
                (table.bare_name().to_owned(), status)
            })
            .collect()
    }

    /// Changes whenever a refresh of a query that was started has ended, with epochs or without, and when
    /// such a query is started, stopped, or fails.
    pub fn status_changes(&self) -> watch::Receiver<u64> {
        self.started.changes()
    }

    /// Stops every query that was started: returns when the epoch of each has ended, or, if one takes longer
    /// than `limit`, has been abandoned; nothing is lost by that, its rows are read again. Returns the
    /// resolved names of the tables whose epoch was abandoned.
    ///
    /// A program awaits this before it ends, and before it opens the same directory again: dropping the
    /// context abandons the epochs too, but does not wait until they have let go of the directory.
    pub fn shutdown(&self, limit: Duration) -> BoxFuture<'_, Vec<String>> {
        async move {
            let abandoned = self.started.shutdown(limit).await;
            for name in &abandoned {
                if let Some(table) = self.tables.get(name) {
                    self.started.within(limit, table.settled()).await;
                }
            }
            abandoned
        }
        .boxed()
    }

    /// Starts a query, or gives one that runs another interval.
    pub(super) async fn start_query(
        &self,
        name: &TableReference,
        every: Option<Duration>,
    ) -> Result<()> {
        let table = self.streaming_table(name)?;
        let trigger = match every {
            None => Trigger::Arrival,
            Some(Duration::ZERO) => return Err(no_interval()),
            Some(every) => Trigger::Every(every),
        };
        table
            .try_plan(&self.session.state(), &self.unbounded)
            .await?;
        self.started
            .start(table.name().to_owned(), trigger, &self.home)
    }

    /// Stops a query.
    pub(super) async fn stop_query(&self, name: &TableReference) -> Result<()> {
        let table = self.streaming_table(name)?;
        self.started.stop(table.name()).await;
        Ok(())
    }

    /// `REFRESH … FULL`: a query that runs is stopped first, and started again behind the refresh.
    pub(super) async fn refresh_anew(&self, name: &TableReference) -> Result<DataFrame> {
        let table = self.streaming_table(name)?;
        self.refuse_if_read(name, "begin anew")?;
        let _paused = self.started.pause(table.name(), None, &self.home).await;
        self.begin_anew(name).await?;
        self.started.forget_failed(table.name());
        self.refreshed(name).await
    }

    /// Stops the query of a table as long as a statement is under way that may take the table away.
    pub(super) async fn pause(&self, table: &StreamingTable) -> Paused {
        let id = Some(table.id());
        self.started.pause(table.name(), id, &self.home).await
    }
}

/// The refusal of an interval that is no time.
fn no_interval() -> datafusion::common::DataFusionError {
    Refusal::new(
        "INVALID_STREAM_OPTION",
        "42616",
        "The interval from one refresh to the next is zero.",
    )
    .hint("name no interval to refresh whenever something arrives")
    .into()
}
