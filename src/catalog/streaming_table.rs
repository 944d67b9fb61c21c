//! A streaming table: a query, what it keeps, and its result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::physical_plan::execute_stream;
use futures::TryStreamExt;

use super::definition::Definition;
use super::replace_table::ReplaceTable;
use super::unbounded::UnboundedTables;
use crate::config::OutputMode;
use crate::error::Refusal;
use crate::query::{
    Attached, EpochProgress, EpochSink, Lines, RunState, Standing, Totals, home, short,
};
use crate::source::{AppendLog, AppendTable, ReadEnv, Unread, conform};

/// Records of epochs that are kept to be shown.
const HISTORY: usize = 10_000;

/// A named result kept up to date by a streaming query.
#[derive(Debug)]
pub struct StreamingTable {
    name: String,
    bare_name: String,
    definition: Definition,
    run: Arc<tokio::sync::Mutex<RunState>>,
    result: Arc<TableResult>,
}

/// The rows of the result, and the records of the epochs that made them.
#[derive(Debug)]
struct TableResult {
    schema: SchemaRef,
    rows: Rows,
    limit: Option<u64>,
    shown: Mutex<Shown>,
}

#[derive(Debug)]
enum Rows {
    /// Append mode: rows accumulate.
    Append(Arc<AppendLog>),
    /// Update and complete mode: rows are replaced.
    Replace(Arc<ReplaceTable>),
}

#[derive(Debug, Default)]
struct Shown {
    /// Number of epochs before the first record kept.
    history: std::collections::VecDeque<EpochProgress>,
    emitted: Option<(u64, Vec<RecordBatch>)>,
    totals: Totals,
}

impl TableResult {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One refresh: epochs go to the result, and their records to whoever asked for it.
#[derive(Debug)]
struct Refreshing {
    result: Arc<TableResult>,
    records: Mutex<Vec<EpochProgress>>,
}

#[async_trait]
impl EpochSink for Refreshing {
    fn prepare(&self, rows: &[RecordBatch]) -> Result<()> {
        self.result.check(rows)
    }

    async fn commit(&self, rows: Vec<RecordBatch>, progress: EpochProgress) -> Result<()> {
        let progress = self.result.commit(rows, progress)?;
        self.records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(progress);
        Ok(())
    }
}

impl TableResult {
    /// Whether rows have the result's columns.
    fn check(&self, rows: &[RecordBatch]) -> Result<()> {
        for batch in rows {
            conform(batch, &self.schema)?;
        }
        Ok(())
    }

    /// Takes an epoch's rows; returns its record with the number of rows that were taken.
    fn commit(&self, rows: Vec<RecordBatch>, mut progress: EpochProgress) -> Result<EpochProgress> {
        let rows = match &self.rows {
            Rows::Append(log) => {
                let rows = within(
                    rows,
                    self.limit.map(|limit| limit.saturating_sub(log.rows())),
                );
                log.append(&rows)?;
                rows
            }
            Rows::Replace(table) => {
                table.replace(rows.clone())?;
                rows
            }
        };
        progress.output_rows = rows.iter().map(|batch| batch.num_rows() as u64).sum();
        let mut shown = self.shown();
        shown.emitted = Some((progress.epoch, rows));
        shown.totals.add(&progress);
        shown.history.push_back(progress.clone());
        if shown.history.len() > HISTORY {
            shown.history.pop_front();
        }
        Ok(progress)
    }
}

/// The first rows, so many as there is room for.
fn within(rows: Vec<RecordBatch>, room: Option<u64>) -> Vec<RecordBatch> {
    let Some(mut room) = room else {
        return rows;
    };
    let mut kept = Vec::new();
    for batch in rows {
        let length = usize::try_from(room)
            .unwrap_or(usize::MAX)
            .min(batch.num_rows());
        if length > 0 {
            kept.push(batch.slice(0, length));
        }
        room -= length as u64;
    }
    kept
}

impl StreamingTable {
    /// A streaming table that has not run yet.
    pub fn new(name: String, bare_name: String, definition: Definition) -> Self {
        let schema = Arc::clone(&definition.schema);
        let replace = |key| {
            Rows::Replace(Arc::new(ReplaceTable::new(
                name.clone(),
                Arc::clone(&schema),
                key,
            )))
        };
        let rows = match (definition.mode, &definition.key) {
            (OutputMode::Append, _) | (OutputMode::Update, None) => {
                Rows::Append(Arc::new(AppendLog::new(Arc::clone(&schema))))
            }
            (OutputMode::Update, Some(key)) => replace(Some(key.clone())),
            (OutputMode::Complete, _) => replace(None),
        };
        let result = TableResult {
            schema,
            rows,
            limit: definition.limit,
            shown: Mutex::default(),
        };
        Self {
            name,
            bare_name,
            definition,
            run: Arc::default(),
            result: Arc::new(result),
        }
    }

    /// Its resolved name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name without catalog and schema.
    pub fn bare_name(&self) -> &str {
        &self.bare_name
    }

    /// Its query and options.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Its result as a table.
    pub fn provider(&self) -> Arc<dyn TableProvider> {
        match &self.result.rows {
            Rows::Append(log) => {
                let reason = format!(
                    "{} is a streaming table: only its query writes to it.",
                    self.name
                );
                Arc::new(AppendTable::new(self.name.clone(), Arc::clone(log)).read_only(reason))
            }
            Rows::Replace(table) => Arc::clone(table) as Arc<dyn TableProvider>,
        }
    }

    /// Number of rows of its result.
    pub fn rows(&self) -> u64 {
        match &self.result.rows {
            Rows::Append(log) => log.rows(),
            Rows::Replace(table) => table.rows(),
        }
    }

    /// Records of its epochs, oldest first: the last 10,000.
    pub fn history(&self) -> Vec<EpochProgress> {
        self.result.shown().history.iter().cloned().collect()
    }

    /// Record of the last epoch.
    pub fn last_epoch(&self) -> Option<EpochProgress> {
        self.result.shown().history.back().cloned()
    }

    /// The last epoch, and the rows that it emitted.
    pub fn last_emitted(&self) -> Option<(u64, Vec<RecordBatch>)> {
        self.result.shown().emitted.clone()
    }

    /// Why there is no output yet, and what would bring it. While a refresh runs it is not waited for:
    /// the answer is that of its last epoch.
    ///
    /// # Errors
    /// - a source cannot be listed
    pub async fn outlook(&self, state: &SessionState) -> Result<Lines> {
        let unread = self.unread(state).await?;
        let options = self.definition.options.apply(state)?;
        let settings = crate::config::options(options.config_options());
        let full = self
            .definition
            .limit
            .is_some_and(|limit| self.rows() >= limit);
        let shown = self.result.shown();
        let standing = Standing {
            name: &self.bare_name,
            mode: self.definition.mode,
            policy: settings.multiple_watermark_policy,
            full,
            history: &shown.history,
            totals: shown.totals,
            unread,
        };
        Ok(standing.lines())
    }

    /// What has arrived and was not read, by source; none while a refresh reads it.
    async fn unread(&self, state: &SessionState) -> Result<Option<Vec<(String, Unread)>>> {
        let env = ReadEnv {
            session: Arc::new(state.clone()),
            task: Arc::new(TaskContext::from(state)),
        };
        let mut asked: Vec<_> = match self.run.try_lock() {
            Ok(run) => run
                .cursors
                .iter()
                .map(|(name, cursor)| (name.clone(), cursor.unread(env.clone())))
                .collect(),
            Err(_) => return Ok(None),
        };
        asked.sort_by(|a, b| a.0.cmp(&b.0));
        let home = home(state);
        let mut unread = Vec::new();
        for (name, answer) in asked {
            unread.push((short(&name, &home).to_owned(), answer.await?));
        }
        Ok(Some(unread))
    }

    /// Reads what has arrived, in epochs; returns their records.
    ///
    /// # Errors
    /// - the query cannot be planned any more
    /// - those of the sources and the plan; epochs before the one that failed stay
    pub async fn refresh(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<Vec<EpochProgress>> {
        let (plan, state) = self
            .definition
            .replan(state, unbounded)
            .await
            .map_err(without_place)?;
        let plan = state.create_physical_plan(&plan).await?;
        let sink = Arc::new(Refreshing {
            result: Arc::clone(&self.result),
            records: Mutex::default(),
        });
        let attached = Attached {
            run: Arc::clone(&self.run),
            sink: Arc::clone(&sink) as Arc<dyn EpochSink>,
        };
        let config = state.config().clone().with_extension(Arc::new(attached));
        let context = TaskContext::from(&state).with_session_config(config);
        let mut rows = execute_stream(plan, Arc::new(context))?;
        while rows.try_next().await?.is_some() {}
        let records =
            std::mem::take(&mut *sink.records.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(records)
    }
}

/// A place in the definition's text says nothing under the text of a REFRESH.
fn without_place(error: DataFusionError) -> DataFusionError {
    match crate::error::refusal(&error) {
        Some(refusal) => Refusal {
            place: None,
            ..refusal.clone()
        }
        .into(),
        None => DataFusionError::Plan(error.strip_backtrace()),
    }
}
