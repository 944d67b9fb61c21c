//! From the hand-over of the batch that closes a window to the window's rows in the reader's hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{
    ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{
    DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::StreamExt;
use tidegate::context::StreamContext;
use tokio::sync::mpsc;

use super::feed::SECOND;

/// Rows of a batch, and time between two: 100,000 rows a second.
const ROWS: i64 = 1_000;
const BETWEEN: Duration = Duration::from_millis(10);
/// Windows of a fifth of a second: every twentieth batch closes one. Microseconds.
const WINDOW: i64 = SECOND / 5;

/// Rows from a channel, without an end of its own.
#[derive(Debug)]
struct Channel {
    schema: SchemaRef,
    receiver: std::sync::Mutex<Option<mpsc::Receiver<RecordBatch>>>,
}

impl PartitionStream for Channel {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let receiver = self.receiver.lock().ok().and_then(|mut held| held.take());
        let rows = futures::stream::unfold(receiver, |receiver| async {
            let mut receiver = receiver?;
            let batch = receiver.recv().await?;
            Some((Ok(batch), Some(receiver)))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        ))
    }
}

fn batch(schema: &SchemaRef, number: i64) -> Result<RecordBatch> {
    let rows = number * ROWS..(number + 1) * ROWS;
    // 10 microseconds a row.
    let times = TimestampMicrosecondArray::from_iter_values(rows.clone().map(|row| row * 10));
    let keys = Int64Array::from_iter_values(rows.map(|row| row % 100));
    let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(keys)];
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Feeds batches at a fixed rate and prints the time from a closing batch to its window's rows.
pub(crate) async fn latency(smaller: usize) -> Result<()> {
    let batches = (6_000 / smaller as i64).max(100);
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("key", DataType::Int64, true),
    ]));
    let (sender, receiver) = mpsc::channel(1_000);
    let channel = Channel {
        schema: Arc::clone(&schema),
        receiver: std::sync::Mutex::new(Some(receiver)),
    };
    let table = StreamingTable::try_new(Arc::clone(&schema), vec![Arc::new(channel)])?
        .with_infinite_table(true);
    let context = StreamContext::new()?;
    let partitions = "SET datafusion.execution.target_partitions = 2";
    context.sql(partitions).await?.collect().await?;
    context.session().register_table("live", Arc::new(table))?;
    let mut rows = context
        .stream(
            "SELECT window.start AS ws, key, count(*) AS n
            FROM STREAM live WATERMARK ts DELAY OF INTERVAL 0 SECONDS
            GROUP BY window(ts, '200 milliseconds'), key",
        )
        .await?;
    let feeding = tokio::spawn(feed(sender, schema, batches));
    let windows = batches * ROWS * 10 / WINDOW;
    let mut arrivals: Vec<Option<Instant>> = vec![None; windows as usize];
    let mut counted = 0;
    while let Some(batch) = rows.next().await {
        let (now, batch) = (Instant::now(), batch?);
        let starts = batch.column(0).as_primitive::<TimestampMicrosecondType>();
        for start in starts.values() {
            if let Some(arrival) = arrivals.get_mut((start / WINDOW) as usize) {
                // The last row of a window counts.
                *arrival = Some(now);
            }
        }
        counted += batch.num_rows();
    }
    let handed = feeding
        .await
        .map_err(|error| exec_datafusion_err!("{error}"))??;
    if counted as i64 != windows * 100 {
        return exec_err!("{counted} rows of {windows} windows by 100 keys");
    }
    let mut times = Vec::new();
    for (window, arrival) in arrivals.iter().enumerate().take(windows as usize - 1) {
        // The first batch at or behind the window's end.
        let closing = (window as i64 + 1) * WINDOW / (ROWS * 10);
        if let (Some(arrival), Some(handed)) = (arrival, handed.get(closing as usize)) {
            times.push(arrival.duration_since(*handed).as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        times
            .get((times.len() as f64 * share) as usize)
            .copied()
            .unwrap_or(f64::NAN)
    };
    println!(
        "from the closing batch to the window's rows, {} windows: {:.2} ms median, {:.2} ms p99",
        times.len(),
        at(0.5),
        at(0.99),
    );
    Ok(())
}

/// Hands batches over, one every [`BETWEEN`]; returns when each was.
async fn feed(
    sender: mpsc::Sender<RecordBatch>,
    schema: SchemaRef,
    batches: i64,
) -> Result<Vec<Instant>> {
    let mut handed = Vec::new();
    let mut ticks = tokio::time::interval(BETWEEN);
    for number in 0..batches {
        let batch = batch(&schema, number)?;
        ticks.tick().await;
        handed.push(Instant::now());
        let sent = sender.send(batch).await;
        sent.map_err(|_| exec_datafusion_err!("the query has ended"))?;
    }
    Ok(handed)
}
