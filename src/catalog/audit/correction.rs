//! What would have to be written over a result so that its closed windows are the recount.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::row::OwnedRow;
use datafusion::common::Result;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::physical_plan::collect;

use super::counts::groups_of;
use super::groups::{Groups, Keys, Same};
use super::plans::aggregate_of;
use super::sessions::Sessions;
use super::shape::taken;
use super::snapshot::Snapshot;
use crate::catalog::streaming_table::StreamingTable;
use crate::catalog::unbounded::UnboundedTables;
use crate::time::Instant;

/// Column that says what is to be done with a row.
const ACTION: &str = "_action";

/// Rows to write over a result.
#[derive(Debug, Clone)]
pub(crate) struct Correction {
    /// Rows as they must be, of groups that are otherwise or not there.
    pub upserts: RecordBatch,
    /// Rows of groups that are not there in a recount.
    pub deletes: RecordBatch,
    /// Columns that name a group.
    key: Vec<usize>,
    /// Number of late rows that the correction has seen: it has put in those before the one of this number.
    pub late_rows: u64,
    /// Watermark: the windows that it has closed are corrected.
    pub watermark: Option<Instant>,
}

/// The columns of `correct()`: what is to be done, then the result's.
///
/// # Errors
/// - `AUDIT_UNSUPPORTED`: the result has a column of that name
pub(super) fn correct_schema(result: &SchemaRef) -> Result<SchemaRef> {
    if result.fields().find(ACTION).is_some() {
        return Err(taken("correct", ACTION).into());
    }
    let action = Arc::new(Field::new(ACTION, DataType::Utf8, false));
    let fields = std::iter::once(action).chain(result.fields().iter().cloned());
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

impl Correction {
    /// Looks for what is to be written over a table's result.
    ///
    /// # Errors
    /// - the query is of a shape that cannot be corrected; the source does not hold what was read
    pub(crate) async fn find(
        table: &StreamingTable,
        state: &SessionState,
        unbounded: &UnboundedTables,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let snapshot = Snapshot::take(table, state, unbounded, false).await?;
        Self::of(&snapshot, context).await
    }

    /// Compares the published rows with the query over all that was read.
    pub(super) async fn of(snapshot: &Snapshot, context: &Arc<TaskContext>) -> Result<Self> {
        let keys = Keys::new(&snapshot.schema, &snapshot.shape.key)?;
        let input = aggregate_of(&snapshot.read)?.input.as_ref();
        let target = groups_of(snapshot, &keys, input.clone(), true, context).await?;
        let all = groups_of(snapshot, &keys, input.clone(), false, context).await?;
        let published = collect(Arc::clone(&snapshot.published), Arc::clone(context)).await?;
        let published = Groups::new(&keys, &snapshot.schema, &published)?;
        let same = Same::new(&published.rows, &target.rows, &snapshot.shape.stable)?;
        let differs = |row: &usize| {
            let there = target.keys.get(*row).and_then(|key| published.get(key));
            target.is_closed(*row) && !there.is_some_and(|there| same.rows(there, *row))
        };
        let upserts: Vec<usize> = (0..target.keys.len()).filter(differs).collect();
        let gone = |row: &usize, whole: Option<usize>| {
            let key = published.keys.get(*row);
            let in_target = key.is_some_and(|key| target.get(key).is_some());
            !in_target && whole.is_some_and(|whole| all.is_closed(whole))
        };
        // A session goes when one that has closed holds it; another window when its own has closed.
        let whole: Vec<Option<usize>> = match snapshot.shape.bounds {
            Some(bounds) if snapshot.shape.is_session() => {
                Sessions::new(snapshot, &all, bounds)?.holding(&published, bounds)?
            }
            _ => published.keys.iter().map(|key| all.get(key)).collect(),
        };
        let deletes = whole.into_iter().enumerate();
        let deletes = deletes.filter(|(row, whole)| gone(row, *whole));
        let deletes: Vec<usize> = deletes.map(|(row, _)| row).collect();
        let columns: Vec<usize> = (0..snapshot.schema.fields().len()).collect();
        Ok(Self {
            upserts: rows_at(&target.rows.project(&columns)?, &upserts)?,
            deletes: rows_at(&published.rows, &deletes)?,
            key: snapshot.shape.key.clone(),
            late_rows: snapshot.late_rows,
            watermark: snapshot.watermark,
        })
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.upserts.num_rows() + self.deletes.num_rows() == 0
    }

    /// The rows, each with what is to be done with it: those that go first.
    ///
    /// # Errors
    /// - a column of the result has the name of the one that says what is to be done
    pub(crate) fn to_rows(&self) -> Result<RecordBatch> {
        let schema = correct_schema(&self.upserts.schema())?;
        let with = |action: &str, rows: &RecordBatch| {
            let actions = StringArray::from(vec![action; rows.num_rows()]);
            let actions = std::iter::once(Arc::new(actions) as ArrayRef);
            let columns = actions.chain(rows.columns().iter().cloned()).collect();
            RecordBatch::try_new(Arc::clone(&schema), columns)
        };
        let rows = [
            with("delete", &self.deletes)?,
            with("upsert", &self.upserts)?,
        ];
        Ok(concat_batches(&schema, &rows)?)
    }

    /// The groups whose rows are written over or go.
    ///
    /// # Errors
    /// - values that cannot be compared
    pub(crate) fn superseded(&self) -> Result<Superseded> {
        self.groups_of(&[&self.upserts, &self.deletes])
    }

    /// The groups whose rows go.
    ///
    /// # Errors
    /// - values that cannot be compared
    pub(crate) fn gone(&self) -> Result<Superseded> {
        self.groups_of(&[&self.deletes])
    }

    fn groups_of(&self, rows: &[&RecordBatch]) -> Result<Superseded> {
        let keys = Keys::new(&self.upserts.schema(), &self.key)?;
        let groups = rows.iter().map(|rows| keys.of(rows));
        let groups = groups.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        Ok(Superseded {
            groups: groups.collect(),
            keys,
        })
    }
}

/// Groups whose rows are written over, or go.
#[derive(Debug)]
pub(crate) struct Superseded {
    keys: Keys,
    groups: HashSet<OwnedRow>,
}

impl Superseded {
    /// Whether each of these rows, with the result's columns, is one of them.
    ///
    /// # Errors
    /// - values that cannot be compared
    pub(crate) fn of(&self, rows: &RecordBatch) -> Result<Vec<bool>> {
        let keys = self.keys.of(rows)?;
        Ok(keys.iter().map(|key| self.groups.contains(key)).collect())
    }
}

fn rows_at(rows: &RecordBatch, at: &[usize]) -> Result<RecordBatch> {
    let at = UInt64Array::from_iter_values(at.iter().map(|row| *row as u64));
    Ok(take_record_batch(rows, &at)?)
}
