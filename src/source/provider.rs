//! Any other table as a stream: its scan, read once.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::{ExecutionPlanProperties, execute_stream};
use futures::{FutureExt, StreamExt};

use super::position::rows_before;
use super::{Arrival, Position, ReadEnv, Reader};

/// Reads a provider's scan. A bounded one ends; an unbounded one waits for more.
pub(super) struct ProviderReader {
    stream: SendableRecordBatchStream,
    unbounded: bool,
    /// Rows still to pass over: they were taken before the reader was opened.
    skip: u64,
    from: u64,
    /// What came while waiting.
    ahead: Option<Result<Arrival>>,
}

impl ProviderReader {
    pub(super) async fn open(
        provider: &Arc<dyn TableProvider>,
        columns: &[usize],
        from: Option<Position>,
        env: &ReadEnv,
    ) -> Result<Self> {
        let plan = provider
            .scan(env.session.as_ref(), Some(&columns.to_vec()), &[], None)
            .await?;
        let unbounded = plan.boundedness().is_unbounded();
        let stream = execute_stream(plan, Arc::clone(&env.task))?;
        let from = rows_before(from);
        // What an unbounded provider gave before is gone: it goes on where it is.
        let skip = if unbounded { 0 } else { from };
        Ok(Self {
            stream,
            unbounded,
            skip,
            from,
            ahead: None,
        })
    }

    /// Leaves out rows that were taken before.
    fn fresh(&mut self, arrival: Arrival) -> Option<Arrival> {
        let Arrival::Rows(batch) = arrival else {
            return Some(arrival);
        };
        let rows = batch.num_rows() as u64;
        let skip = self.skip.min(rows);
        self.skip -= skip;
        let at = usize::try_from(skip).unwrap_or(usize::MAX);
        (skip < rows).then(|| Arrival::Rows(batch.slice(at, batch.num_rows() - at)))
    }
}

#[async_trait]
impl Reader for ProviderReader {
    async fn next(&mut self) -> Result<Arrival> {
        loop {
            let arrival = match self.ahead.take() {
                Some(arrival) => arrival?,
                None if self.unbounded => match self.stream.next().now_or_never() {
                    None => return Ok(Arrival::Waiting),
                    Some(None) => Arrival::Ended,
                    Some(Some(batch)) => Arrival::Rows(batch?),
                },
                None => match self.stream.next().await {
                    None => Arrival::Ended,
                    Some(batch) => Arrival::Rows(batch?),
                },
            };
            if let Some(arrival) = self.fresh(arrival) {
                return Ok(arrival);
            }
        }
    }

    async fn arrived(&mut self) {
        if self.unbounded && self.ahead.is_none() {
            self.ahead = Some(match self.stream.next().await {
                Some(batch) => batch.map(Arrival::Rows),
                None => Ok(Arrival::Ended),
            });
        }
    }

    fn endless(&self) -> bool {
        self.unbounded
    }

    fn position(&mut self, rows: u64) -> Position {
        Position::Rows(self.from + rows)
    }
}
