//! A session under test: statements in, plain cells and figures out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::NaiveDateTime;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use datafusion::arrow::array::{RecordBatch, TimestampMicrosecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::TimestampMicrosecondType;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef, TimeUnit};
use datafusion::common::DataFusionError;
use tidegate::context::{Clock, StreamContext};
use tidegate::query::EpochProgress;

use crate::model::Figures;
use crate::query::{Cell, Row, Rows};
use crate::scenario::Rng;
use crate::text::COLUMNS;

/// A result, or what went wrong in words.
pub(crate) type Checked<T> = Result<T, String>;

/// Greatest number of rows in a fed record batch.
const LARGEST_PIECE: usize = 8;

/// A context with some tables of the suite's columns.
pub(crate) struct Session {
    context: StreamContext,
    /// Whether a table of rows that are not counted was asked for.
    keeps_late: AtomicBool,
}

impl Session {
    /// A session that plans for `partitions`.
    pub(crate) async fn open(partitions: usize) -> Checked<Self> {
        let context = StreamContext::new().map_err(|error| failed("new session", &error))?;
        Self::over(context, partitions).await
    }

    /// The same at a time.
    pub(crate) async fn open_at(partitions: usize, clock: Arc<dyn Clock>) -> Checked<Self> {
        let context = StreamContext::new().map_err(|error| failed("new session", &error))?;
        Self::over(context.with_clock(clock), partitions).await
    }

    async fn over(context: StreamContext, partitions: usize) -> Checked<Self> {
        let keeps_late = AtomicBool::new(false);
        let session = Self {
            context,
            keeps_late,
        };
        let set = format!("SET datafusion.execution.target_partitions = {partitions}");
        session.run(&set).await?;
        Ok(session)
    }

    /// The context below.
    pub(crate) fn context(&self) -> &StreamContext {
        &self.context
    }

    /// Whether rows that are not counted are kept.
    pub(crate) fn keeps_late(&self) -> bool {
        self.keeps_late.load(Ordering::Relaxed)
    }

    /// Makes an empty table of the suite's columns.
    pub(crate) async fn create(&self, table: &str) -> Checked<()> {
        self.run(&format!("CREATE TABLE {table} {COLUMNS}")).await?;
        Ok(())
    }

    /// Runs a statement to its end.
    pub(crate) async fn run(&self, sql: &str) -> Checked<Vec<RecordBatch>> {
        if sql.contains("late_rows = ") {
            self.keeps_late.store(true, Ordering::Relaxed);
        }
        let frame = self.context.sql(sql).await;
        let frame = frame.map_err(|error| failed(sql, &error))?;
        frame.collect().await.map_err(|error| failed(sql, &error))
    }

    /// The rows of a query, sorted.
    pub(crate) async fn rows(&self, sql: &str) -> Checked<Rows> {
        let mut rows = Rows::new();
        for batch in self.run(sql).await? {
            read(&batch, &mut rows)?;
        }
        rows.sort();
        Ok(rows)
    }

    /// Appends rows to a table, as record batches of random small sizes.
    pub(crate) async fn feed(&self, table: &str, rows: &[Row], rng: &mut Rng) -> Checked<()> {
        let schema = self.schema(table).await?;
        let mut rest = rows;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rng.size(1, LARGEST_PIECE.min(rest.len())));
            let batch = record_batch(&schema, piece)?;
            let appended = self.context.append(table, batch).await;
            appended.map_err(|error| failed("append", &error))?;
            rest = after;
        }
        Ok(())
    }

    /// Refreshes a streaming table and gives the figures of each epoch.
    pub(crate) async fn refresh(&self, table: &str) -> Checked<Vec<Figures>> {
        let records = self.context.refresh(table).await;
        let records = records.map_err(|error| failed("refresh", &error))?;
        records.iter().map(figures).collect()
    }

    async fn schema(&self, table: &str) -> Checked<SchemaRef> {
        let frame = self.context.session().table(table).await;
        let frame = frame.map_err(|error| failed(table, &error))?;
        Ok(Arc::clone(frame.schema().inner()))
    }
}

fn failed(what: &str, error: &DataFusionError) -> String {
    format!("{what}\nfailed: {}", error.strip_backtrace())
}

/// A batch of the table's own types.
fn record_batch(schema: &SchemaRef, rows: &[Row]) -> Checked<RecordBatch> {
    let plain: [ArrayRef; 4] = [
        Arc::new(
            rows.iter()
                .map(|row| row.ts)
                .collect::<TimestampMicrosecondArray>(),
        ),
        Arc::new(
            rows.iter()
                .map(|row| row.k.as_deref())
                .collect::<StringArray>(),
        ),
        Arc::new(rows.iter().map(|row| row.v).collect::<Int64Array>()),
        Arc::new(
            rows.iter()
                .map(|row| row.x.map(f64::from))
                .collect::<Float64Array>(),
        ),
    ];
    let columns = plain
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| cast(column, field.data_type()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|error| error.to_string())
}

/// Adds the rows of a batch to `rows`.
fn read(batch: &RecordBatch, rows: &mut Rows) -> Checked<()> {
    let columns = batch.columns().iter().map(cells);
    let columns = columns.collect::<Checked<Vec<_>>>()?;
    let row = |place: usize| columns.iter().map(|cells| cells[place].clone()).collect();
    rows.extend((0..batch.num_rows()).map(row));
    Ok(())
}

fn cells(column: &ArrayRef) -> Checked<Vec<Cell>> {
    let plain = |kind: &DataType| cast(column, kind).map_err(|error| error.to_string());
    let or_null = |cell: Option<Cell>| cell.unwrap_or(Cell::Null);
    let cells = match column.data_type() {
        DataType::Timestamp(_, _) => plain(&DataType::Timestamp(TimeUnit::Microsecond, None))?
            .as_primitive::<TimestampMicrosecondType>()
            .iter()
            .map(|time| or_null(time.map(Cell::Int)))
            .collect(),
        DataType::Float64 => column
            .as_primitive::<Float64Type>()
            .iter()
            .map(|value| or_null(value.map(Cell::double)))
            .collect(),
        kind if kind.is_integer() => plain(&DataType::Int64)?
            .as_primitive::<Int64Type>()
            .iter()
            .map(|value| or_null(value.map(Cell::Int)))
            .collect(),
        kind if kind.is_string() => plain(&DataType::Utf8)?
            .as_string::<i32>()
            .iter()
            .map(|text| or_null(text.map(|text| Cell::Text(text.to_owned()))))
            .collect(),
        other => return Err(format!("a result column is {other}")),
    };
    Ok(cells)
}

/// The figures of a record that repeat exactly.
fn figures(record: &EpochProgress) -> Checked<Figures> {
    let count = |value: u64| usize::try_from(value).map_err(|error| error.to_string());
    Ok(Figures {
        epoch: record.epoch,
        input: count(record.input_rows)?,
        late: count(record.late_rows)?,
        null: count(record.null_rows)?,
        rejected: count(record.rejected_rows)?,
        output: count(record.output_rows)?,
        open_windows: count(record.open_windows)?,
        open_rows: count(record.open_rows)?,
        watermark: record.watermark.as_deref().map(micros).transpose()?,
    })
}

/// Microseconds of a time such as `2026-10-01T09:20:00.5`.
fn micros(text: &str) -> Checked<i64> {
    let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f");
    let time = time.map_err(|error| format!("watermark {text}: {error}"))?;
    Ok(time.and_utc().timestamp_micros())
}
