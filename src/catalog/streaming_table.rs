//! A streaming table: a query, what it keeps, and its result.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, TableReference, internal_err};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt;
use tokio::sync::OwnedMutexGuard;
use tokio::sync::watch;

use super::audit::Correction;
use super::correcting::{Corrected, Correcting};
use super::definition::Definition;
use super::refused_table::RefusedTable;
use super::replace_table::ReplaceTable;
use super::result::{Refreshing, Rows, TableResult, late_columns};
use super::unbounded::UnboundedTables;
use crate::checkpoint::{Checkpoint, Restored};
use crate::config::OutputMode;
use crate::error::Refusal;
use crate::query::{
    Attached, EpochProgress, EpochSink, Lines, LiveSender, Orders, QueryStatus, RunState, Standing,
    home, instant_of_ms, now_ms, short,
};
use crate::sink::Sink;
use crate::source::{
    AppendLog, AppendTable, Arrivals, Awaited, Cursor, ReadEnv, Retention, Unread,
};
use crate::state::QueryState;

/// A named result kept up to date by a streaming query. What a query keeps and its result belong to all clones and to
/// all definitions that the table has had; it runs by the last definition alone.
#[derive(Debug, Clone)]
pub struct StreamingTable {
    name: String,
    bare_name: String,
    id: String,
    location: Option<String>,
    definition: Definition,
    run: Arc<tokio::sync::Mutex<RunState>>,
    /// Held by who looks for corrections, until they are written.
    correcting: Arc<tokio::sync::Mutex<()>>,
    result: Arc<TableResult>,
    checkpoint: Option<Arc<Checkpoint>>,
    /// Why it cannot be used, if its checkpoint is damaged.
    damage: Option<Refusal>,
    /// How many definitions it had before this one.
    generation: u64,
    /// Whether it has read rows as another query.
    mixed: bool,
}

/// Where the rows of a query go that are not kept by the table itself.
#[derive(Debug)]
pub struct Outlet {
    /// Where they go.
    pub sink: Arc<dyn Sink>,
    /// The directory, as an absolute path, if it is one.
    pub location: Option<String>,
    /// What reads them.
    pub provider: Arc<dyn TableProvider>,
}

/// When rows are removed by their age, if they are.
#[derive(Debug, Default)]
pub struct Retentions {
    /// Those of the result.
    pub result: Option<Retention>,
    /// Those that were not counted.
    pub late: Option<Retention>,
}

/// What a query that was started waits for between two runs. It keeps neither tables nor a session.
#[derive(Debug)]
pub struct Awaiting {
    /// Rows of append tables, any of them.
    pub rows: Vec<Awaited>,
    /// Time until the sources that do not tell when something arrives are looked at again; none if all do.
    pub poll: Option<Duration>,
    /// Time until another input is idle, and an epoch moves the watermark past it; none if none will be.
    pub idle: Option<Duration>,
}

impl StreamingTable {
    /// A streaming table that has not run yet. The id tells it from all others, of other databases too. What the
    /// former queries have written goes before its first rows. Rows of its result go by their
    /// age if it says so.
    pub fn new(
        name: String,
        bare_name: String,
        definition: Definition,
        id: &str,
        outlet: Option<Outlet>,
        retention: Retentions,
        former: Vec<(Arc<dyn Sink>, String)>,
    ) -> Self {
        let schema = Arc::clone(&definition.schema);
        let retain_late = retention.late;
        let retention = retention.result;
        let location = outlet.as_ref().and_then(|outlet| outlet.location.clone());
        let replace = |key| {
            let table = ReplaceTable::new(name.clone(), Arc::clone(&schema), key);
            Rows::Replace(Arc::new(
                table.with_doubtful(definition.doubtful_key.clone()),
            ))
        };
        let rows = match (definition.mode, &definition.key, outlet) {
            (_, _, Some(outlet)) => Rows::Sink {
                sink: outlet.sink,
                query: id.to_owned(),
                provider: outlet.provider,
            },
            (OutputMode::Append, ..) | (OutputMode::Update, None, _) => {
                let log = AppendLog::new(Arc::clone(&schema)).identified(id);
                Rows::Append(Arc::new(log.retained(retention, Arrivals::default())))
            }
            (OutputMode::Update, Some(key), _) => replace(Some(key.clone())),
            (OutputMode::Complete, ..) => replace(None),
        };
        let late = definition.late.as_ref().map(|late| {
            let log = AppendLog::new(Arc::clone(&late.schema)).identified(format!("{id}-late"));
            Arc::new(log.retained(retain_late, Arrivals::default()))
        });
        let result = TableResult::new(schema, rows, definition.limit)
            .in_place_of(former)
            .with_late(late);
        Self {
            name,
            bare_name,
            id: id.to_owned(),
            location,
            definition,
            run: Arc::default(),
            correcting: Arc::default(),
            result: Arc::new(result),
            checkpoint: None,
            damage: None,
            generation: 0,
            mixed: false,
        }
    }

    /// The table with a checkpoint that its epochs are written to.
    #[must_use]
    pub fn kept_in(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoint = Some(Arc::new(checkpoint));
        self
    }

    /// The table as it is when its checkpoint cannot be read: it can be begun anew, and nothing else.
    #[must_use]
    pub fn damaged(mut self, damage: Refusal) -> Self {
        self.damage = Some(damage);
        self
    }

    /// Goes back to what a checkpoint holds.
    ///
    /// # Errors
    /// - the checkpoint holds something else
    /// - the query is running
    pub fn restore(&self, restored: &Restored) -> Result<()> {
        self.result.restore(restored)?;
        match self.run.try_lock() {
            Ok(mut run) => {
                *run = RunState::restored(restored)?;
                self.result.reach(run.rows_read());
            }
            Err(_) => return internal_err!("{} runs already", self.name),
        }
        Ok(())
    }

    /// The columns of the rows that were not counted, as a checkpoint has them; none where it has no such row.
    pub fn late_columns(restored: &Restored) -> Option<SchemaRef> {
        late_columns(restored)
    }

    /// Keeps the query from running while the guard is held; nothing of it is on its way to the disk then.
    pub async fn hold(&self) -> OwnedMutexGuard<RunState> {
        let mut run = Arc::clone(&self.run).lock_owned().await;
        run.settle().await.ok();
        run
    }

    /// Keeps the query from running, and its result from being corrected, while both guards are held: what was planned
    /// before runs when they are let go, if it may.
    pub async fn hold_to_redefine(&self) -> (OwnedMutexGuard<()>, OwnedMutexGuard<RunState>) {
        // In the order of a correction, which holds the one while it runs.
        let correcting = Arc::clone(&self.correcting).lock_owned().await;
        (correcting, self.hold().await)
    }

    /// Lets the query run by this definition of the table, and by no other that it has been planned by.
    pub fn take_over(&self, run: &mut RunState) {
        run.generation = self.generation;
    }

    /// Hands on the rows of the last epoch, which may not have arrived where they go before a restart. Of a table
    /// whose checkpoint cannot be read it is not known which that is: what its rows went to is left as it is. So it is
    /// where another query has taken its place. No run delivers meanwhile: a sink forgets what is beyond the epoch that
    /// it is told to begin with.
    ///
    /// # Errors
    /// - they cannot be handed on; the next refresh tries again
    pub async fn hand_on(&self) -> Result<()> {
        if self.damage.is_some() {
            return Ok(());
        }
        let run = self.hold().await;
        if run.is_ended {
            return Ok(());
        }
        if let Some(checkpoint) = self.checkpoint.as_ref().filter(|_| self.result.goes_on()) {
            checkpoint.settle()?;
        }
        self.result.deliver(run.next_epoch).await
    }

    /// The same table under another query whose state is of the same form: it goes on from where it is, once it has
    /// [taken over](Self::take_over).
    #[must_use]
    pub fn redefined(&self, mut definition: Definition) -> Self {
        // Late rows that are there have their columns.
        definition.late = self.definition.late.clone();
        Self {
            definition,
            generation: self.generation.saturating_add(1),
            ..self.clone()
        }
    }

    /// The table as one that has read rows as another query, or not.
    #[must_use]
    pub fn mixed(mut self, mixed: bool) -> Self {
        self.mixed = mixed;
        self
    }

    /// Whether it has read rows as another query; another delay alone makes none.
    pub fn is_mixed(&self) -> bool {
        self.mixed
    }

    /// Whether it will have, once another definition has taken the place of its own, which reads rows alike or not.
    pub fn mixes(&self, alike: bool, run: &RunState) -> bool {
        // An epoch that is ahead may turn out to have committed.
        let has_read = || run.is_ahead || self.result.shown().totals.input_rows > 0;
        self.mixed || !alike && has_read()
    }

    /// Refuses to look at it by a definition that another one has taken the place of.
    pub(super) fn check_current(&self, run: &RunState) -> Result<()> {
        run.check_generation(self.generation)
    }

    /// Its resolved name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Id of its query.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The directory that its rows go to, as an absolute path, if they do.
    pub fn location(&self) -> Option<String> {
        self.location.clone()
    }

    /// Its name without catalog and schema.
    pub fn bare_name(&self) -> &str {
        &self.bare_name
    }

    /// Its query and options.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Why it cannot be used, if its checkpoint is damaged.
    pub(super) fn damage(&self) -> Option<&Refusal> {
        self.damage.as_ref()
    }

    /// State of its query between epochs; none while a refresh runs.
    pub(super) fn query_state(&self) -> Option<Arc<QueryState>> {
        let run = self.run.try_lock().ok()?;
        Some(Arc::clone(&run.state))
    }

    /// Its result as a table.
    pub fn provider(&self) -> Arc<dyn TableProvider> {
        if let Some(damage) = &self.damage {
            let schema = Arc::clone(&self.definition.schema);
            return Arc::new(RefusedTable::new(schema, damage.clone()));
        }
        match &self.result.rows {
            Rows::Sink { provider, .. } => Arc::clone(provider),
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

    /// Name of the table of the rows that it does not count; none where they are not kept.
    pub fn late_name(&self) -> Option<&TableReference> {
        self.definition.late.as_ref().map(|late| &late.name)
    }

    /// The rows that it did not count, with the name of their table; none where they are not kept.
    pub fn late_log(&self) -> Option<(&TableReference, Arc<AppendLog>)> {
        self.late_name().zip(self.result.late.clone())
    }

    /// The rows that it did not count, as a table; none where they are not kept.
    pub fn late_provider(&self) -> Option<Arc<dyn TableProvider>> {
        let name = self.late_name()?;
        let log = self.result.late.as_ref()?;
        Some(match &self.damage {
            Some(damage) => {
                let schema = Arc::clone(log.schema());
                Arc::new(RefusedTable::new(schema, damage.clone()))
            }
            None => {
                let reason = format!(
                    "{name} has the late rows of {}: only its query writes to it.",
                    self.bare_name
                );
                Arc::new(AppendTable::new(name.table(), Arc::clone(log)).read_only(reason))
            }
        })
    }

    /// Number of rows of its result; of rows that leave for a sink, how many have.
    pub fn rows(&self) -> u64 {
        self.result.count()
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
    pub async fn outlook(&self, state: &SessionState, status: QueryStatus) -> Result<Lines> {
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
            status,
            now: instant_of_ms(now_ms(options.config())),
        };
        Ok(standing.lines())
    }

    /// What has arrived and was not read, by source; none while a refresh reads it.
    async fn unread(&self, state: &SessionState) -> Result<Option<Vec<(String, Unread)>>> {
        let env = ReadEnv::of(state);
        let positions = match self.run.try_lock() {
            Ok(run) => run.positions(),
            Err(_) => return Ok(None),
        };
        let home = home(state);
        let mut unread = Vec::new();
        for source in positions {
            let provider = match source.provider {
                Some(provider) => Some(provider),
                None => provider_of(state, &source.name).await,
            };
            if let Some(provider) = provider {
                let answer = crate::source::unread(&provider, source.position, &env).await?;
                unread.push((short(&source.name, &home).to_owned(), answer));
            }
        }
        Ok(Some(unread))
    }

    /// The plan of its query, for [`RunState::check_plan`]. Nothing is held meanwhile: what is planned may look at the
    /// table itself.
    ///
    /// # Errors
    /// - the query cannot be planned
    pub async fn physical_plan(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (plan, state) = self.definition.replan(state, unbounded).await?;
        state.create_physical_plan(&plan).await
    }

    /// How many rows of each source it has read, where a source's rows are numbered.
    pub fn rows_read(&self) -> Vec<(String, u64)> {
        self.run
            .try_lock()
            .map_or_else(|_| Vec::new(), |run| run.rows_read())
    }

    /// Number of the first row of a source that it may still read: its last committed epoch has read those before.
    pub fn passed(&self, source: &str) -> u64 {
        self.result.reached(source)
    }

    /// Removes rows that are old from its sources and from its result, as far as they go by their age. What cannot be
    /// removed is by a later run.
    async fn let_go(&self, state: &SessionState) {
        let mut logs = Vec::new();
        for source in &self.definition.sources {
            let table = provider_of(state, source).await;
            let table = table
                .as_deref()
                .and_then(|table| table.downcast_ref::<AppendTable>());
            logs.extend(table.map(AppendTable::log));
        }
        if let Rows::Append(log) = &self.result.rows {
            logs.push(Arc::clone(log));
        }
        logs.extend(self.result.late.clone());
        logs.retain(|log| log.is_retained());
        if logs.is_empty() {
            return;
        }
        // Removing rows waits for a disk, which a thread that polls must not.
        let removing = SpawnedTask::spawn_blocking(move || {
            for log in logs {
                log.let_go().ok();
            }
        });
        removing.join_unwind().await.ok();
    }

    /// Refuses to read a table whose rows cannot be read, with the reason.
    async fn refuse_damaged_sources(&self, state: &SessionState) -> Result<()> {
        for source in &self.definition.sources {
            let table = provider_of(state, source).await;
            let damaged = table
                .as_deref()
                .and_then(|table| table.downcast_ref::<RefusedTable>());
            if let Some(damaged) = damaged {
                return Err(damaged.damage().clone().into());
            }
        }
        Ok(())
    }

    /// Reads what has arrived, in epochs; returns their records.
    ///
    /// # Errors
    /// - the query cannot be planned any more
    /// - the table has another definition by now ([`is_redefined`](crate::query::is_redefined)): that one is to be
    ///   refreshed
    /// - those of the sources and the plan; epochs before the one that failed stay
    pub async fn refresh(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<Vec<EpochProgress>> {
        self.run(state, unbounded, None, None).await
    }

    /// Reads what has arrived, in epochs, until the query is told to stop; where nothing has arrived no epoch
    /// runs, unless an input has become idle. Whoever looks at the session's running query does not see it.
    ///
    /// # Errors
    /// - those of [`refresh`](Self::refresh)
    pub async fn refresh_as_started(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
        orders: Orders,
    ) -> Result<()> {
        let run = self.run(state, unbounded, Some(orders), None);
        run.await.map(|_| ())
    }

    /// Refuses to start a query that could not run.
    ///
    /// # Errors
    /// - its checkpoint is damaged; it cannot be planned any more
    pub async fn try_plan(&self, state: &SessionState, unbounded: &UnboundedTables) -> Result<()> {
        self.planned(state, unbounded).await.map(|_| ())
    }

    /// What to wait for until it should be refreshed.
    ///
    /// # Errors
    /// - a setting cannot be what it is
    pub async fn awaited(&self, state: &SessionState) -> Result<Awaiting> {
        let state = self.definition.options.apply(state)?;
        let poll = crate::config::options(state.config_options()).poll_interval;
        let run = self.run.lock().await;
        let rows: Vec<Awaited> = run.cursors.values().filter_map(Cursor::awaited).collect();
        let all_tell = !rows.is_empty() && rows.len() == run.cursors.len();
        let idle = run.idleness.next_ms(now_ms(state.config()));
        Ok(Awaiting {
            rows,
            idle: idle.map(Duration::from_millis),
            poll: (!all_tell).then(|| Duration::from_millis(poll.get() as u64)),
        })
    }

    /// Waits until no run is under way, nor an epoch that one has left on its way to the disk.
    pub async fn settled(&self) {
        drop(self.hold().await);
    }

    /// The plan of its query as the session is now, and the session's state with the table's options.
    pub(super) async fn planned(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<(LogicalPlan, SessionState)> {
        if let Some(damage) = &self.damage {
            return Err(damage.clone().into());
        }
        self.refuse_damaged_sources(state).await?;
        let planned = self.definition.replan(state, unbounded).await;
        planned.map_err(without_place)
    }

    /// Its query before it is analyzed, for a batch of the same text.
    ///
    /// # Errors
    /// - those of [`refresh`](Self::refresh) before the first epoch
    pub(super) async fn unanalyzed(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<(LogicalPlan, SessionState)> {
        self.planned(state, unbounded).await?;
        self.definition.unanalyzed(state, unbounded).await
    }

    /// Writes over its result what `correct()` says, in an epoch of its own that reads nothing; returns what was
    /// written. Refreshes may run meanwhile: they do not change what has closed.
    ///
    /// # Errors
    /// - `CORRECTION_UNSUPPORTED`: its rows are replaced as a whole, or have left for where they are final
    /// - the table has another definition by now ([`is_redefined`](crate::query::is_redefined)): that one is to be
    ///   corrected
    /// - those of `correct()`, and of an epoch; then nothing was written
    pub async fn correct(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<RecordBatch> {
        self.may_be_corrected()?;
        let _correcting = self.correcting.lock().await;
        // It stays the definition from here on.
        self.check_current(&*self.hold().await)?;
        let context = Arc::new(TaskContext::from(state));
        let correction = Correction::find(self, state, unbounded, &context).await?;
        let written = correction.to_rows()?;
        let seen = self.corrected().map_or(0, |seen| seen.late_rows);
        if !correction.is_empty() || correction.late_rows > seen {
            let correcting = Correcting::new(correction, &self.result)?;
            self.run(state, unbounded, None, Some(correcting)).await?;
        }
        Ok(written)
    }

    /// Refuses to correct what is not kept by the table, or needs no correction.
    fn may_be_corrected(&self) -> Result<()> {
        let (reason, hint) = match (&self.result.rows, self.definition.mode) {
            (Rows::Sink { .. }, _) => (
                "its rows have left for a sink or for files, which are final",
                "SELECT * FROM correct('name') gives the rows to write over where they are",
            ),
            (_, OutputMode::Complete) => (
                "in complete mode every epoch replaces all rows, and none is late",
                "leave it as it is",
            ),
            _ => return Ok(()),
        };
        let message = format!("{} cannot be corrected: {reason}.", self.bare_name);
        let refusal = Refusal::new("CORRECTION_UNSUPPORTED", "0A000", message);
        Err(refusal.hint(hint.replace("name", &self.bare_name)).into())
    }

    /// Number of the first row of its result that is kept; none where rows are replaced, or have left.
    pub(super) fn first_row(&self) -> Option<u64> {
        match &self.result.rows {
            Rows::Append(log) => Some(log.base()),
            Rows::Replace(_) | Rows::Sink { .. } => None,
        }
    }

    /// What the last correction of its result had seen; none if there was no correction.
    pub(super) fn corrected(&self) -> Option<Corrected> {
        self.result.corrected()
    }

    async fn run(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
        orders: Option<Orders>,
        correcting: Option<Correcting>,
    ) -> Result<Vec<EpochProgress>> {
        let (plan, state) = self.planned(state, unbounded).await?;
        let settings = crate::config::options(state.config_options());
        let plan = state.create_physical_plan(&plan).await?;
        let reads = correcting.is_none();
        let sink = Refreshing::new(Arc::clone(&self.result)).correcting(correcting);
        let sink = Arc::new(sink);
        let attached = Attached {
            run: Arc::clone(&self.run),
            sink: Arc::clone(&sink) as Arc<dyn EpochSink>,
            late: self
                .definition
                .late
                .as_ref()
                .map(|late| Arc::clone(&late.schema)),
            checkpoint: self.checkpoint.clone(),
            may_lose: settings.accept_loss,
            orders,
            reads,
            generation: self.generation,
        };
        let mut config = state.config().clone();
        if attached.orders.is_some() {
            // Figures of the statement that a person waits for are not mixed with it.
            config = config.with_extension(Arc::new(LiveSender(watch::Sender::default())));
        }
        let config = config.with_extension(Arc::new(attached));
        let context = TaskContext::from(&state).with_session_config(config);
        let mut rows = execute_stream(plan, Arc::new(context))?;
        while rows.try_next().await?.is_some() {}
        self.let_go(&state).await;
        Ok(sink.take_records())
    }
}

/// The table of a resolved name.
pub(super) async fn provider_of(
    state: &SessionState,
    name: &str,
) -> Option<Arc<dyn TableProvider>> {
    let name = TableReference::parse_str(name);
    let schema = state.schema_for_ref(name.clone()).ok()?;
    schema.table(name.table()).await.ok().flatten()
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
