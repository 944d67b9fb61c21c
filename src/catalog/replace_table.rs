//! The result of a streaming table whose rows are replaced: whole in complete mode, by key in update mode.

mod keyed;
mod keys;
mod slots;

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use self::keyed::{Keyed, Ready};
use self::keys::Key;
use crate::error::Refusal;
use crate::source::conform;

/// A table that only its streaming query writes.
#[derive(Debug)]
pub struct ReplaceTable {
    name: String,
    schema: SchemaRef,
    /// A key by which a group may look like another one.
    doubtful: Option<String>,
    kept: Kept,
}

/// The rows of a table. The lock is held for no longer than it takes to put rows in, or to see where they are.
#[derive(Debug)]
enum Kept {
    /// All are replaced together.
    Together(RwLock<Vec<RecordBatch>>),
    /// Each is replaced by one of the same key.
    ByKey(Key, RwLock<Keyed>),
}

impl ReplaceTable {
    /// An empty table. Rows replace those of the same key, or all where there is no key.
    pub fn new(name: impl Into<String>, schema: SchemaRef, key: Option<Vec<usize>>) -> Self {
        let kept = match key {
            Some(columns) => Kept::ByKey(Key::new(columns), RwLock::default()),
            None => Kept::Together(RwLock::default()),
        };
        Self {
            name: name.into(),
            schema,
            doubtful: None,
            kept,
        }
    }

    /// Takes the rows of an epoch.
    ///
    /// # Errors
    /// - rows of another schema
    pub fn replace(&self, rows: Vec<RecordBatch>) -> Result<()> {
        let rows = self.conformed(&rows)?;
        match &self.kept {
            Kept::Together(kept) => *written(kept) = rows,
            Kept::ByKey(key, kept) => {
                let rows = Ready::of(&self.schema, &rows, key)?;
                written(kept).add(&self.schema, rows)?;
            }
        }
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
        let (Some(doubtful), Kept::ByKey(key, _)) = (&self.doubtful, &self.kept) else {
            return Ok(());
        };
        let keys = rows.iter().map(|batch| key.of(batch));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut all = keys.iter().flat_map(|keys| keys.iter());
        match all.all(|key| seen.insert(key)) {
            true => Ok(()),
            false => Err(ambiguous(doubtful)),
        }
    }

    /// Whether rows are replaced by a key, and not all together.
    pub fn has_key(&self) -> bool {
        matches!(self.kept, Kept::ByKey(..))
    }

    /// All rows as they would be with those of another epoch.
    ///
    /// # Errors
    /// - rows of another schema
    pub fn replaced(&self, rows: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
        let Kept::ByKey(key, kept) = &self.kept else {
            return Ok(rows);
        };
        let keys = rows.iter().map(|batch| key.of(batch));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let others = read(kept).without(&keys);
        let mut all = others.batches()?;
        all.extend(rows);
        Ok(all)
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

    /// Takes the rows of many epochs, oldest first, in the place of all: of a key the last row counts.
    ///
    /// # Errors
    /// - rows of another schema
    pub fn restore(&self, rows: &[RecordBatch]) -> Result<()> {
        let rows = self.conformed(rows)?;
        match &self.kept {
            Kept::Together(kept) => *written(kept) = rows,
            Kept::ByKey(key, kept) => {
                let mut restored = Keyed::default();
                for batch in rows {
                    let rows = Ready::of(&self.schema, &[batch], key)?;
                    restored.add(&self.schema, rows)?;
                }
                *written(kept) = restored;
            }
        }
        Ok(())
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        match &self.kept {
            Kept::Together(kept) => {
                let rows = read(kept);
                rows.iter().map(|batch| batch.num_rows() as u64).sum()
            }
            Kept::ByKey(_, kept) => read(kept).rows() as u64,
        }
    }

    /// All rows: those of an epoch, or none of them.
    fn all(&self) -> Result<Vec<RecordBatch>> {
        match &self.kept {
            Kept::Together(kept) => Ok(read(kept).clone()),
            Kept::ByKey(_, kept) => {
                let rows = read(kept).snapshot();
                rows.batches()
            }
        }
    }

    fn conformed(&self, rows: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
        let rows = rows.iter().map(|batch| conform(batch, &self.schema));
        rows.collect()
    }
}

fn read<T>(kept: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    kept.read().unwrap_or_else(PoisonError::into_inner)
}

fn written<T>(kept: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    kept.write().unwrap_or_else(PoisonError::into_inner)
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
        Ok(MemorySourceConfig::try_new_exec(
            &[self.all()?],
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

#[cfg(test)]
mod tests;
