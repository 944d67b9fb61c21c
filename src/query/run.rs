//! The epoch loop.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use tokio::sync::{mpsc, watch};

use super::attach::{Attached, EpochRows, RunState};
use super::clock::{instant_of_ms, now_ms};
use super::epoch::{Committed, Parts, Running, made_anew};
use super::late::late_rows;
use super::metrics::RunMetrics;
use super::progress::{EpochProgress, Live};
use super::record::{Stopwatch, record};
use super::sources::{SourceUse, finish, given, home, open_cursors, take, wait};
use super::trigger::Orders;
use crate::checkpoint::Checkpoint;
use crate::config::{EndOfInput, OutputMode, TidegateOptions, WatermarkPolicy, options};
use crate::error::Refusal;
use crate::physical::Inputs;
use crate::source::{ReadEnv, Taken};
use crate::state::{Epoch, SourceSlice};

/// Tells whoever watches how a query is getting on; an extension of the session configuration.
#[derive(Debug)]
pub struct LiveSender(pub watch::Sender<Live>);

/// Where the rows of a query go.
pub(super) enum Output {
    /// To a reader, as they come.
    Reader(mpsc::Sender<Result<RecordBatch>>),
    /// To a streaming table, epoch by epoch.
    Table(Arc<Attached>),
}

/// A query that is running.
pub(super) struct Run {
    pub plan: Arc<dyn ExecutionPlan>,
    pub mode: OutputMode,
    pub policy: WatermarkPolicy,
    pub session: Arc<SessionState>,
    pub context: Arc<TaskContext>,
    pub output: Output,
    pub metrics: RunMetrics,
}

/// Reports nothing running any more, however the run ends.
struct LiveGuard(Option<Arc<LiveSender>>);

impl Drop for LiveGuard {
    fn drop(&mut self) {
        if let Some(sender) = &self.0 {
            sender.0.send_replace(Live::default());
        }
    }
}

impl Run {
    /// Runs epochs until there is nothing more to read. A streaming table reads what is there and
    /// runs at least one epoch, unless its query was started: then none where nothing has arrived and no input has
    /// become idle. A query
    /// with a reader goes on as long as an endless source may give more, and closes every window when its
    /// input has ended.
    ///
    /// # Errors
    /// - those of the sources and the plan; the epoch that failed is undone
    pub(super) async fn run(&self, state: &mut RunState) -> Result<()> {
        let ran = self.epochs(state).await;
        // Nothing is on its way when a run returns, and the earlier error comes first.
        state.settle().await?;
        ran
    }

    async fn epochs(&self, state: &mut RunState) -> Result<()> {
        let live = LiveGuard(self.context.session_config().get_extension::<LiveSender>());
        let settings = options(self.session.config_options());
        if let Output::Table(table) = &self.output {
            table.make_ready(state).await?;
        }
        let parts = Parts::of(Arc::clone(&self.plan));
        state.check_operators(&parts)?;
        let uses = open_cursors(&self.plan, state, &settings)?;
        self.check_sources(state)?;
        state.undo();
        state
            .idleness
            .watch(parts.timeouts_ms(self.policy), self.now_ms());
        let env = ReadEnv {
            session: Arc::clone(&self.session),
            task: Arc::clone(&self.context),
        };
        let table = matches!(self.output, Output::Table(_));
        let mut rows = 0;
        let mut idle_epoch = table && self.orders().is_none();
        while !self.orders().is_some_and(Orders::is_stopped) {
            let mut watch = Stopwatch::start(state.began);
            // In complete mode it must be known before whether the epoch is the last one.
            let feeds = self.mode != OutputMode::Complete;
            let mut taken = match self.reads() {
                true => take(state, &uses, feeds, &env).await?,
                false => Vec::new(),
            };
            watch.phases.read = watch.lap();
            if idle_epoch
                || taken.iter().any(Taken::is_something)
                || state.idleness.next_ms(self.now_ms()) == Some(0)
            {
                let shown = self.shows(&taken, &settings);
                let Some(progress) = self.turn(state, &uses, &mut taken, watch, shown).await?
                else {
                    return Ok(());
                };
                rows += progress.input_rows;
                self.metrics.add(&progress);
                report(&live, &progress, rows);
            }
            idle_epoch = false;
            let more = taken.iter().any(|taken| taken.more);
            let endless = taken.iter().any(|taken| taken.endless && !taken.ended);
            if !more && (table || !endless) {
                break;
            }
            if !more {
                wait(state).await;
            }
        }
        if !table && settings.end_of_input == EndOfInput::Close {
            self.close(state).await?;
        }
        state.close_readers();
        Ok(())
    }

    /// What a streaming table's query was told that was started.
    fn orders(&self) -> Option<&Orders> {
        match &self.output {
            Output::Table(table) => table.orders.as_ref(),
            Output::Reader(_) => None,
        }
    }

    /// What the clock says, in milliseconds since 1970.
    fn now_ms(&self) -> i64 {
        now_ms(self.context.session_config())
    }

    /// Whether sources are read.
    fn reads(&self) -> bool {
        match &self.output {
            Output::Table(table) => table.reads,
            Output::Reader(_) => true,
        }
    }

    /// Refuses a source that cannot give rows again where a checkpoint counts on it.
    fn check_sources(&self, state: &RunState) -> Result<()> {
        let Output::Table(table) = &self.output else {
            return Ok(());
        };
        if table.checkpoint.is_none() || table.may_lose {
            return Ok(());
        }
        match state.cursors.values().find(|cursor| !cursor.replays()) {
            Some(cursor) => Err(no_replay(cursor.name())),
            None => Ok(()),
        }
    }

    /// Whether the rows of an epoch are shown. In complete mode an epoch's rows replace those before: a
    /// reader gets them when nothing more is at hand, and at the end.
    fn shows(&self, taken: &[Taken], settings: &TidegateOptions) -> bool {
        let more = taken.iter().any(|taken| taken.more);
        let endless = taken.iter().any(|taken| taken.endless && !taken.ended);
        let closes = settings.end_of_input == EndOfInput::Close;
        self.mode != OutputMode::Complete || !more && (endless || !closes)
    }

    /// One epoch. `None` if the reader has gone.
    async fn turn(
        &self,
        state: &mut RunState,
        uses: &[SourceUse],
        taken: &mut [Taken],
        mut watch: Stopwatch,
        shown: bool,
    ) -> Result<Option<EpochProgress>> {
        let slices = uses.iter().zip(&*taken).map(|(one, taken)| {
            let slice = SourceSlice {
                batches: taken.batches.clone(),
                feed: taken.feed.clone().map(|feed| feed as _),
                columns: one.columns.clone(),
                advanced: taken.passed.times.clone(),
            };
            (one.name.clone(), slice)
        });
        let epoch = self.epoch(state, false, slices.collect());
        let parts = Parts::of(made_anew(&self.plan)?);
        let mut done = self.attempt(&parts, &epoch, &mut watch, shown).await;
        if matches!(done, Ok(Some(_)))
            && let Err(error) = finish(state, uses, taken).await
        {
            done = Err(error);
        }
        let emitted = watch.lap();
        // What this epoch commits depends on the rows of the one before, whose error is the earlier one.
        if let Err(error) = state.settle().await {
            done = Err(error);
        }
        watch.lap();
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                epoch.abort();
                state.undo();
                return Err(error);
            }
        };
        let Some((rows, output_rows)) = done else {
            return Ok(None);
        };
        let prepared = self.prepare(&epoch.epoch, rows);
        // Only a checkpoint asks what the epoch has added.
        let added = match self.checkpoint() {
            Some(_) => epoch.added(&parts),
            None => Ok(Vec::new()),
        };
        let (rows, added) = match prepared.and_then(|rows| Ok((rows, added?))) {
            Ok(prepared) => prepared,
            Err(error) => {
                epoch.abort();
                state.undo();
                return Err(error);
            }
        };
        watch.phases.emit = emitted + watch.lap();
        // Until the epoch is written and its rows are where they go, memory is ahead.
        state.is_ahead = self.checkpoint().is_some();
        let committed = epoch.commit(&parts)?;
        watch.phases.commit = watch.lap();
        let progress = self.advance(state, uses, taken, committed, output_rows, &watch);
        if let Output::Table(table) = &self.output {
            let pieces = epoch.pieces(&parts, added)?;
            let record = progress.clone();
            table.take(state, pieces, rows, record, watch).await?;
        }
        epoch.compact(&parts).await?;
        Ok(Some(progress))
    }

    /// An epoch's rows as they go on: those that it emitted, and those that it did not count.
    fn prepare(&self, epoch: &Epoch, emitted: Vec<RecordBatch>) -> Result<EpochRows> {
        let Output::Table(table) = &self.output else {
            return Ok(EpochRows::default());
        };
        let late = match &table.late {
            Some(schema) => late_rows(&epoch.take_aside(), epoch.number, epoch.started_at, schema)?,
            None => Vec::new(),
        };
        table.sink.prepare(EpochRows { emitted, late })
    }

    /// Where the epochs are written, if they are.
    fn checkpoint(&self) -> Option<&Checkpoint> {
        match &self.output {
            Output::Table(table) => table.checkpoint.as_deref(),
            Output::Reader(_) => None,
        }
    }

    /// Moves the query behind an epoch that has committed; returns the epoch's record.
    fn advance(
        &self,
        state: &mut RunState,
        uses: &[SourceUse],
        taken: &[Taken],
        committed: Committed,
        output_rows: u64,
        watch: &Stopwatch,
    ) -> EpochProgress {
        let reached = committed.reached;
        state.idleness = committed.idleness.clone();
        let home = home(&self.session);
        let sources = given(uses, taken, &home);
        let progress = record(state, committed, &home, sources, output_rows, watch);
        state.watermark = reached;
        state.began = Some(watch.began());
        for (one, taken) in uses.iter().zip(taken) {
            if let Some(cursor) = state.cursors.get_mut(&one.name) {
                cursor.commit(taken);
            }
        }
        state.next_epoch += 1;
        state.observed = state.state.watermarks.snapshot();
        progress
    }

    /// The epoch that ends the query: no rows, and every window closes.
    async fn close(&self, state: &mut RunState) -> Result<()> {
        let epoch = self.epoch(state, true, HashMap::new());
        let parts = Parts::of(made_anew(&self.plan)?);
        let mut watch = Stopwatch::start(state.began);
        if self
            .attempt(&parts, &epoch, &mut watch, true)
            .await?
            .is_some()
        {
            epoch.commit(&parts)?;
        }
        Ok(())
    }

    fn epoch(
        &self,
        state: &RunState,
        closing: bool,
        sources: HashMap<String, SourceSlice>,
    ) -> Running {
        let began_ms = self.now_ms();
        let epoch = Epoch::new(
            state.next_epoch,
            state.watermark,
            closing,
            sources,
            Arc::clone(&state.state),
        );
        let epoch = epoch.at(instant_of_ms(began_ms));
        let epoch = Arc::new(epoch.checkpointed(self.checkpoint().is_some()));
        let inputs = Arc::new(Inputs::default());
        let config = self
            .context
            .session_config()
            .clone()
            .with_extension(Arc::clone(&epoch))
            .with_extension(Arc::clone(&inputs));
        // The plan has its functions in it.
        let context = TaskContext::new(
            self.context.task_id(),
            self.context.session_id(),
            config,
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            self.context.runtime_env(),
        );
        Running {
            epoch,
            inputs,
            context: Arc::new(context),
            policy: self.policy,
            began_ms,
            idleness: state.idleness.clone(),
        }
    }

    /// Both passes, the rows handed on or collected. `None` if the reader has gone.
    async fn attempt(
        &self,
        parts: &Parts,
        running: &Running,
        watch: &mut Stopwatch,
        shown: bool,
    ) -> Result<Option<(Vec<RecordBatch>, u64)>> {
        let mut stream = running.start(parts, watch).await?;
        let mut collected = Vec::new();
        let mut count = 0;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            count += batch.num_rows() as u64;
            self.metrics.output_rows.add(batch.num_rows());
            match &self.output {
                Output::Table(_) => collected.push(batch),
                Output::Reader(_) if !shown => {}
                Output::Reader(reader) => {
                    if reader.send(Ok(batch)).await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
        drop(stream);
        running.read_rest(parts).await?;
        Ok(Some((collected, count)))
    }
}

/// The error of a source whose rows are lost when they have been given.
fn no_replay(source: &str) -> DataFusionError {
    Refusal::new(
        "SOURCE_CANNOT_REPLAY",
        "0A000",
        format!("{source} gives its rows once: those of an epoch that fails are lost, whatever is kept on disk."),
    )
    .hint("say that you accept it, WITH (accept_loss = 'true'), or keep the rows first: INSERT INTO a table")
    .into()
}

fn report(live: &LiveGuard, progress: &EpochProgress, rows: u64) {
    if let Some(sender) = &live.0 {
        sender.0.send_replace(Live {
            running: true,
            rows,
            epochs: progress.epoch + 1,
            watermark: progress.watermark.clone(),
            open_windows: progress.open_windows,
        });
    }
}
