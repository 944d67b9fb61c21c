//! The table of a log: rows are inserted at its end, and read by queries and streams.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Constraints, DataFusionError, Result, plan_err};
use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::TryStreamExt;

use super::Position;
use super::append_log::{AppendLog, BATCH_ROWS, LogReader};
use crate::error::Refusal;

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

    /// Reads columns from a position on; without one from the first row that is kept.
    pub(super) fn read(&self, columns: &[usize], from: Option<Position>) -> LogReader {
        LogReader::new(self.name.clone(), self.log(), columns, from)
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
        let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        if self.log.is_kept() {
            // Making rows durable waits for a disk, which a thread that polls must not.
            let log = Arc::clone(&self.log);
            let appended = SpawnedTask::spawn_blocking(move || {
                log.append(&batches)?;
                // The rows are in; what could not be removed is by the next who tries.
                log.let_go().ok();
                Ok::<_, DataFusionError>(())
            });
            let appended = appended.join_unwind().await;
            appended.map_err(|error| DataFusionError::External(Box::new(error)))??;
        } else {
            self.log.append(&batches)?;
            self.log.let_go()?;
        }
        Ok(rows)
    }
}
