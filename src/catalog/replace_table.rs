//! The result of a streaming table whose rows are replaced: whole in complete mode, by key in update mode.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::error::Refusal;
use crate::source::conform;

/// A table that only its streaming query writes.
#[derive(Debug)]
pub struct ReplaceTable {
    name: String,
    schema: SchemaRef,
    /// Columns by which rows are replaced; none means all rows are.
    key: Option<Vec<usize>>,
    /// A key by which a group may look like another one.
    doubtful: Option<String>,
    rows: RwLock<Vec<RecordBatch>>,
}

impl ReplaceTable {
    /// An empty table. Rows replace those of the same key, or all where there is no key.
    pub fn new(name: impl Into<String>, schema: SchemaRef, key: Option<Vec<usize>>) -> Self {
        Self {
            name: name.into(),
            schema,
            key,
            doubtful: None,
            rows: RwLock::default(),
        }
    }

    /// Takes the rows of an epoch.
    ///
    /// # Errors
    /// - rows of another schema
    pub fn replace(&self, rows: Vec<RecordBatch>) -> Result<()> {
        let rows = rows
            .into_iter()
            .map(|batch| conform(&batch, &self.schema))
            .collect::<Result<Vec<_>>>()?;
        let mut kept = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        *kept = match &self.key {
            Some(key) => upsert(&kept, rows, key)?,
            None => rows,
        };
        Ok(())
    }

    /// The table with a key by which a group may look like another one, if there is one.
    #[must_use]
    pub fn with_doubtful(mut self, key: Option<String>) -> Self {
        self.doubtful = key;
        self
    }

    /// Refuses rows of an epoch of which two have one key: an epoch emits a group once.
    ///
    /// # Errors
    /// - a group where the doubtful key is null was emitted beside one that leaves it out
    pub fn check(&self, rows: &[RecordBatch]) -> Result<()> {
        let (Some(doubtful), Some(key), Some(first)) = (&self.doubtful, &self.key, rows.first())
        else {
            return Ok(());
        };
        let (columns, converter) = (key_columns(key), key_converter(first, key)?);
        let mut keys: HashSet<OwnedRow> = HashSet::new();
        for batch in rows {
            let found = converter.convert_columns(&columns(batch))?;
            if !found.iter().all(|row| keys.insert(row.owned())) {
                return Err(ambiguous(doubtful));
            }
        }
        Ok(())
    }

    /// Whether rows are replaced by a key, and not all together.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// All rows as they would be with those of another epoch.
    ///
    /// # Errors
    /// - rows of another schema
    pub fn replaced(&self, rows: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
        let kept = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        match &self.key {
            Some(key) => upsert(&kept, rows, key),
            None => Ok(rows),
        }
    }

    /// All rows as they would be with others written over those of the same key, and some gone.
    ///
    /// # Errors
    /// - rows of another schema
    pub fn corrected(
        &self,
        rows: Vec<RecordBatch>,
        gone: &dyn Fn(&RecordBatch) -> Result<Vec<bool>>,
    ) -> Result<Vec<RecordBatch>> {
        let all = self.replaced(rows)?;
        let stay = all.iter().map(|batch| {
            let stays: BooleanArray = gone(batch)?.into_iter().map(|gone| Some(!gone)).collect();
            Ok(filter_record_batch(batch, &stays)?)
        });
        stay.collect()
    }

    /// Takes the rows of many epochs, oldest first: of a key the last row counts.
    ///
    /// # Errors
    /// - rows of another schema
    pub fn restore(&self, rows: &[RecordBatch]) -> Result<()> {
        let rows = rows.iter().map(|batch| conform(batch, &self.schema));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let rows = match &self.key {
            Some(key) => last_of_keys(&rows, key)?,
            None => rows,
        };
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = rows;
        Ok(())
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.iter().map(|batch| batch.num_rows() as u64).sum()
    }
}

/// The error of two groups that look alike.
fn ambiguous(key: &str) -> DataFusionError {
    Refusal::new(
        "UPDATE_MODE_AMBIGUOUS_KEY",
        "42KDE",
        format!("In update mode rows are replaced by their group, and a group where {key} is null looks like the one that leaves {key} out."),
    )
    .hint(format!("group by a key that is never null: coalesce({key}, …)"))
    .into()
}

/// Old rows whose key is not among the new ones, and the new rows.
fn upsert(old: &[RecordBatch], new: Vec<RecordBatch>, key: &[usize]) -> Result<Vec<RecordBatch>> {
    let Some(first) = new.first() else {
        return Ok(old.to_vec());
    };
    if key.is_empty() {
        // There is one group, and so one row.
        return Ok(new);
    }
    let (columns, converter) = (key_columns(key), key_converter(first, key)?);
    let mut keys: HashSet<OwnedRow> = HashSet::new();
    for batch in &new {
        keys.extend(
            converter
                .convert_columns(&columns(batch))?
                .iter()
                .map(|row| row.owned()),
        );
    }
    let mut all = Vec::with_capacity(old.len() + new.len());
    for batch in old {
        let rows = converter.convert_columns(&columns(batch))?;
        let stays: BooleanArray = rows
            .iter()
            .map(|row| Some(!keys.contains(&row.owned())))
            .collect();
        let rest = filter_record_batch(batch, &stays)?;
        if rest.num_rows() > 0 {
            all.push(rest);
        }
    }
    all.extend(new);
    Ok(all)
}

/// The columns of a batch's key.
fn key_columns(key: &[usize]) -> impl Fn(&RecordBatch) -> Vec<ArrayRef> {
    |batch| key.iter().map(|at| Arc::clone(batch.column(*at))).collect()
}

/// What makes keys of rows comparable.
fn key_converter(batch: &RecordBatch, key: &[usize]) -> Result<RowConverter> {
    let columns = key_columns(key)(batch);
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()));
    Ok(RowConverter::new(fields.collect())?)
}

/// Of each key the last row.
fn last_of_keys(rows: &[RecordBatch], key: &[usize]) -> Result<Vec<RecordBatch>> {
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    if key.is_empty() {
        let last = rows.last().filter(|batch| batch.num_rows() > 0);
        return Ok(last
            .map(|batch| batch.slice(batch.num_rows() - 1, 1))
            .into_iter()
            .collect());
    }
    let (columns, converter) = (key_columns(key), key_converter(first, key)?);
    let mut seen: HashSet<OwnedRow> = HashSet::new();
    let mut last = Vec::new();
    for batch in rows.iter().rev() {
        let keys = converter.convert_columns(&columns(batch))?;
        let mut stays: Vec<bool> = (0..batch.num_rows())
            .rev()
            .map(|row| seen.insert(keys.row(row).owned()))
            .collect();
        stays.reverse();
        last.push(filter_record_batch(batch, &BooleanArray::from(stays))?);
    }
    last.reverse();
    last.retain(|batch| batch.num_rows() > 0);
    Ok(last)
}

#[async_trait]
impl TableProvider for ReplaceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self
            .rows
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Ok(MemorySourceConfig::try_new_exec(
            &[rows],
            self.schema(),
            projection.cloned(),
        )?)
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        _input: Arc<dyn ExecutionPlan>,
        _insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(Refusal::new(
            "UNSUPPORTED_FEATURE.TABLE_OPERATION",
            "0A000",
            format!(
                "{} is a streaming table: only its query writes to it.",
                self.name
            ),
        )
        .into())
    }
}
