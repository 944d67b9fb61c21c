//! Event time that goes on where no rows come.

use datafusion::common::Result;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::StreamContext;
use crate::error::Refusal;
use crate::source::AppendTable;
use crate::time::Instant;

impl StreamContext {
    /// Says, without a row, that the event time of a table has come as far as this (a heartbeat): every query that reads
    /// the table as a stream takes it as it would a row with that event time, and its WATERMARK clause over the table
    /// makes a watermark of at least `to` less its delay at the end of the query's next epoch. An instant is made of a
    /// number, `Unit::Millisecond.instant(1_790_000_000_000)`.
    ///
    /// - It has its place among the rows. Rows that were inserted before it are read before it or in the same epoch, and
    ///   are judged without it; rows that are inserted after it may be late.
    /// - A query that was started is woken by it; another one sees it in its next refresh.
    /// - It never takes an event time back, is a sign of life (`idle_timeout`) if it is later than all that was seen, and
    ///   does nothing while it is later than a clause's guard lets event times be (`max_future`).
    /// - The table does not keep it: a query that has committed an epoch with it has it in its checkpoint, and behind a
    ///   restart other queries do not see it. Of many that no query has passed some may be forgotten, never the last.
    ///
    /// # Errors
    /// - there is no such table
    /// - UNSUPPORTED_STREAM_SOURCE: it is not one of `CREATE TABLE`, nor a streaming table that rows are added to
    pub fn advance_event_time<'a>(
        &'a self,
        table: &'a str,
        to: Instant,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let provider = self.session.table_provider(table).await?;
            match provider.downcast_ref::<AppendTable>() {
                Some(table) => {
                    table.log().advance(to);
                    Ok(())
                }
                None => Err(Refusal::new(
                    "UNSUPPORTED_STREAM_SOURCE",
                    "42KDE",
                    format!("The event time of '{table}' cannot be advanced: only a table of CREATE TABLE, or a streaming table that rows are added to, has a place among its rows for that."),
                )
                .hint("name the table that the query reads; of files and other sources a row alone moves the event time")
                .into()),
            }
        }
        .boxed()
    }
}
