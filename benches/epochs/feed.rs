//! A streaming table that is fed epoch by epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use datafusion::common::Result;
use tidegate::context::StreamContext;
use tidegate::query::EpochProgress;

/// Microseconds.
pub(crate) const SECOND: i64 = 1_000_000;
const ROWS: usize = 8_192;

/// `feed (turn BIGINT, ts TIMESTAMP(6), key BIGINT, v BIGINT)` and a streaming table over it that counts
/// by windows of a second and by key, with a delay of an hour. What one call appends is one epoch.
pub(crate) struct Feed {
    context: StreamContext,
    turn: AtomicI64,
}

impl Feed {
    pub(crate) async fn new(mode: &str, aggregates: &str) -> Result<Self> {
        let context = StreamContext::new()?;
        let statements = [
            "SET datafusion.execution.target_partitions = 2".to_owned(),
            "SET tidegate.max_rows_per_epoch = 100000000".to_owned(),
            "CREATE TABLE feed (turn BIGINT NOT NULL, ts TIMESTAMP(6), \"key\" BIGINT, v BIGINT)"
                .to_owned(),
            format!(
                "CREATE STREAMING TABLE fed WITH (epoch_by = 'turn', output_mode = '{mode}') AS
                SELECT window.start AS ws, key, {aggregates}
                FROM STREAM feed WATERMARK ts DELAY OF INTERVAL 1 HOUR
                GROUP BY window(ts, '1 second'), key"
            ),
        ];
        for statement in statements {
            context.sql(&statement).await?.collect().await?;
        }
        let turn = AtomicI64::new(0);
        Ok(Self { context, turn })
    }

    /// One epoch with one row.
    pub(crate) async fn row(&self, time: i64) -> Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.append(turn, vec![time], vec![turn]).await
    }

    /// One epoch with a row of one of those keys.
    pub(crate) async fn group(&self, key: i64) -> Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.append(turn, vec![0], vec![key]).await
    }

    /// One epoch with a row of each of so many keys, all in one window. Repeated calls without a refresh
    /// between them are one epoch each.
    pub(crate) async fn groups(&self, keys: usize) -> Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let keys: Vec<i64> = (0..keys as i64).collect();
        for keys in keys.chunks(ROWS) {
            self.append(turn, vec![0; keys.len()], keys.to_vec())
                .await?;
        }
        Ok(())
    }

    async fn append(&self, turn: i64, times: Vec<i64>, keys: Vec<i64>) -> Result<()> {
        let columns = [
            (
                "turn",
                Arc::new(Int64Array::from(vec![turn; keys.len()])) as ArrayRef,
                false,
            ),
            ("ts", Arc::new(TimestampMicrosecondArray::from(times)), true),
            ("key", Arc::new(Int64Array::from(keys.clone())), true),
            ("v", Arc::new(Int64Array::from(keys)), true),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
        self.context.append("feed", batch).await
    }

    pub(crate) async fn refresh(&self) -> Result<Vec<EpochProgress>> {
        self.context.refresh("fed").await
    }
}
