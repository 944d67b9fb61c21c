//! A table that takes rows and keeps their order of arrival.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraints, Result, plan_err};
use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::TryStreamExt;
use tokio::sync::watch;

use super::{Arrival, Position, Reader, conform, rows_before};
use crate::error::Refusal;

/// Rows of a batch that is kept: large ones are cut so that partitions share them evenly.
const BATCH_ROWS: usize = 8_192;

/// Rows in order of arrival. Appending is atomic: readers see all rows of one append or none.
#[derive(Debug)]
pub struct AppendLog {
    schema: SchemaRef,
    inner: RwLock<Inner>,
    /// Number of rows, for readers that wait.
    arrived: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    batches: Vec<RecordBatch>,
    /// Number of rows before each batch.
    starts: Vec<u64>,
    rows: u64,
}

impl AppendLog {
    /// An empty log of rows of this schema.
    pub fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            inner: RwLock::default(),
            arrived: watch::Sender::new(0),
        }
    }

    /// Schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.inner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .rows
    }

    /// Adds rows at the end.
    ///
    /// # Errors
    /// - a batch has another schema, or a null where the schema has none
    pub fn append(&self, batches: &[RecordBatch]) -> Result<()> {
        let typed = batches
            .iter()
            .map(|batch| conform(batch, &self.schema))
            .collect::<Result<Vec<_>>>()?;
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        for batch in typed {
            let mut at = 0;
            while at < batch.num_rows() {
                let length = BATCH_ROWS.min(batch.num_rows() - at);
                let start = inner.rows;
                inner.starts.push(start);
                inner.batches.push(batch.slice(at, length));
                inner.rows += length as u64;
                at += length;
            }
        }
        let rows = inner.rows;
        drop(inner);
        self.arrived.send_replace(rows);
        Ok(())
    }

    /// All rows that have arrived.
    pub fn snapshot(&self) -> Vec<RecordBatch> {
        self.inner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .batches
            .clone()
    }

    /// The batch that holds this row, from it on.
    fn rest_from(&self, row: u64) -> Option<RecordBatch> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        if row >= inner.rows {
            return None;
        }
        let at = inner
            .starts
            .partition_point(|start| *start <= row)
            .checked_sub(1)?;
        let batch = inner.batches.get(at)?;
        let offset = usize::try_from(row - inner.starts.get(at)?).ok()?;
        Some(batch.slice(offset, batch.num_rows() - offset))
    }

    /// Reads columns from a position on.
    pub(super) fn read(self: Arc<Self>, columns: &[usize], from: Option<Position>) -> LogReader {
        let from = rows_before(from);
        let arrived = self.arrived.subscribe();
        LogReader {
            log: self,
            columns: columns.to_vec(),
            from,
            at: from,
            arrived,
        }
    }
}

/// Reads a log.
pub(super) struct LogReader {
    log: Arc<AppendLog>,
    columns: Vec<usize>,
    from: u64,
    at: u64,
    arrived: watch::Receiver<u64>,
}

#[async_trait]
impl Reader for LogReader {
    async fn next(&mut self) -> Result<Arrival> {
        match self.log.rest_from(self.at) {
            Some(batch) => {
                self.at += batch.num_rows() as u64;
                Ok(Arrival::Rows(batch.project(&self.columns)?))
            }
            None => Ok(Arrival::Waiting),
        }
    }

    async fn arrived(&mut self) {
        let at = self.at;
        if self.arrived.wait_for(|rows| *rows > at).await.is_err() {
            // The log holds its own sender: it cannot be gone while we read it.
            futures::future::pending::<()>().await;
        }
    }

    fn position(&self, rows: u64) -> Position {
        Position::Rows(self.from + rows)
    }
}

/// The table of a log: `CREATE TABLE`, `INSERT`, `SELECT`, and `STREAM`.
#[derive(Debug)]
pub struct AppendTable {
    name: String,
    log: Arc<AppendLog>,
    constraints: Constraints,
    defaults: Vec<(String, Expr)>,
    /// Partitions of the query that it was made from: a scan has as many at least.
    partitions: usize,
    /// Why users may not insert, if they may not.
    read_only: Option<String>,
}

impl AppendTable {
    /// The table of a log, named as errors name it.
    pub fn new(name: impl Into<String>, log: Arc<AppendLog>) -> Self {
        Self {
            name: name.into(),
            log,
            constraints: Constraints::default(),
            defaults: Vec::new(),
            partitions: 1,
            read_only: None,
        }
    }

    /// With constraints and column defaults, as CREATE TABLE gives them.
    #[must_use]
    pub fn with_definition(
        mut self,
        constraints: Constraints,
        defaults: Vec<(String, Expr)>,
    ) -> Self {
        self.constraints = constraints;
        self.defaults = defaults;
        self
    }

    /// Made from a query with so many partitions.
    #[must_use]
    pub fn with_partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions.max(1);
        self
    }

    /// Refuses INSERT, with the reason.
    #[must_use]
    pub fn read_only(mut self, reason: impl Into<String>) -> Self {
        self.read_only = Some(reason.into());
        self
    }

    /// The rows.
    pub fn log(&self) -> Arc<AppendLog> {
        Arc::clone(&self.log)
    }

    /// Refuses users who may not change anything.
    fn may_be_written(&self) -> Result<()> {
        match &self.read_only {
            None => Ok(()),
            Some(reason) => Err(Refusal::new(
                "UNSUPPORTED_FEATURE.TABLE_OPERATION",
                "0A000",
                reason.clone(),
            )
            .into()),
        }
    }

    fn refuse<T>(&self, statement: &str, hint: &str) -> Result<T> {
        self.may_be_written()?;
        Err(Refusal::new(
            "UNSUPPORTED_FEATURE.TABLE_OPERATION",
            "0A000",
            format!(
                "{statement} is not possible on {}: it only takes new rows.",
                self.name
            ),
        )
        .hint(hint)
        .into())
    }
}

#[async_trait]
impl TableProvider for AppendTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.log.schema())
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults
            .iter()
            .find(|(name, _)| name == column)
            .map(|(_, value)| value)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batches = self.log.snapshot();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        // Few rows are not worth an exchange: they have the partitions that DataFusion's own table has.
        let count = rows
            .div_ceil(BATCH_ROWS)
            .min(state.config().target_partitions())
            .max(self.partitions);
        let mut partitions = vec![Vec::new(); count];
        for (at, batch) in batches.into_iter().enumerate() {
            partitions[at % count].push(batch);
        }
        let source = MemorySourceConfig::try_new(&partitions, self.schema(), projection.cloned())?;
        let show_sizes = state.config_options().explain.show_sizes;
        Ok(DataSourceExec::from_data_source(
            source.with_show_sizes(show_sizes),
        ))
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.may_be_written()?;
        if insert_op != InsertOp::Append {
            return self.refuse(
                match insert_op {
                    InsertOp::Overwrite => "INSERT OVERWRITE",
                    _ => "REPLACE INTO",
                },
                "write INSERT INTO, or drop and create the table",
            );
        }
        if input.schema().fields().len() != self.log.schema().fields().len() {
            return plan_err!("INSERT into {} has another number of columns", self.name);
        }
        let sink = LogSink {
            name: self.name.clone(),
            log: self.log(),
        };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }

    async fn delete_from(
        &self,
        _state: &dyn Session,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.refuse("DELETE", "insert a correcting row, or filter when you read")
    }

    async fn update(
        &self,
        _state: &dyn Session,
        _assignments: Vec<(String, Expr)>,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.refuse("UPDATE", "insert a correcting row")
    }

    async fn truncate(&self, _state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        self.refuse("TRUNCATE", "drop and create the table")
    }
}

/// Appends what an INSERT selects, all of it at its end.
#[derive(Debug)]
struct LogSink {
    name: String,
    log: Arc<AppendLog>,
}

impl DisplayAs for LogSink {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "AppendTable ({})", self.name)
    }
}

#[async_trait]
impl DataSink for LogSink {
    fn schema(&self) -> &SchemaRef {
        self.log.schema()
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        _context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let batches: Vec<RecordBatch> = data.try_collect().await?;
        self.log.append(&batches)?;
        Ok(batches.iter().map(|batch| batch.num_rows() as u64).sum())
    }
}
