//! The gate between DataFusion's partial and final aggregate.

mod compact;
mod exchange;
mod waiting;
mod windows;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::compute::SortOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::{StreamExt, TryStreamExt};

pub(super) use compact::Reducer;
pub(super) use windows::accumulator;

use self::exchange::Exchange;
use self::waiting::Ripening;
use super::closing::Closing;
use super::stateful::{Added, Stateful, absorb_all};
use super::{epoch, one_child};
use crate::checkpoint::Piece;
use crate::config::{OutputMode, shown_columns};
use crate::state::{
    Epoch, GateShape, GateState, OperatorCounts, Part, Release, coalesced, rows_of,
};
use crate::time::{Closed, Instant, Span};

/// Rows that are taken in together: more make fewer runs.
const TOGETHER: usize = 65_536;

/// Bytes that are: texts of more may not fit one column.
const TOGETHER_BYTES: usize = 256 << 20;

/// The same under a memory limit, of which what is on the way takes a small share.
fn together_bytes(runtime: &RuntimeEnv) -> usize {
    match runtime.memory_pool.memory_limit() {
        MemoryLimit::Finite(limit) => TOGETHER_BYTES.min(limit / 16),
        _ => TOGETHER_BYTES,
    }
}

/// What a gate is, apart from its input.
#[derive(Debug)]
pub struct GateInfo {
    /// Its number in the query.
    pub id: usize,
    /// Its grouping time, as EXPLAIN shows it.
    pub label: String,
    /// What it emits.
    pub mode: OutputMode,
    /// When its groups close.
    pub closing: Closing,
    /// How far a time may be before the moment that the watermark speaks of.
    pub behind: Span,
    /// How slices make windows.
    pub shape: GateShape,
    /// Number of key columns behind the slice, or behind the bounds of a session.
    pub keys: usize,
    /// Whether a grouping set without the time counts late rows: they stay, in a slice of their own.
    pub counts_late: bool,
    /// Whether the slices are begins of windows: those that `open_windows` counts.
    pub windows: bool,
    /// Whether runs come out in the order of their windows. The aggregate above then finishes one window after
    /// the other, and needs memory for one; without a memory limit it is quicker to hash them all.
    pub in_order: bool,
}

impl GateInfo {
    /// Columns before the keys: the slice, or the two bounds of a session.
    pub(super) fn bounds(&self) -> usize {
        if self.shape == GateShape::Sessions {
            2
        } else {
            1
        }
    }

    /// Where the keys are in a run.
    fn key_range(&self) -> std::ops::Range<usize> {
        self.bounds()..self.bounds() + self.keys
    }

    /// Partitions that groups are parted into, of so many: without keys there is nothing to part them by.
    pub(super) fn partitions(&self, most: usize) -> usize {
        if self.keys == 0 { 1 } else { most.max(1) }
    }

    /// Whether there is a group even when there is no row: an aggregate without GROUP BY.
    fn always_emits(&self) -> bool {
        self.mode == OutputMode::Complete && self.shape == GateShape::Timeless && self.keys == 0
    }

    /// Whether partial states tell of a row, in update mode, which emits what rows touch. DataFusion gives the grouping
    /// set `()` a state of no rows as well; of a row there is one with a time, too.
    fn is_touched_by(&self, states: &RecordBatch) -> bool {
        let timeless = self.mode == OutputMode::Update && self.counts_late;
        let without_time = |slices: &ArrayRef| slices.null_count() == slices.len();
        !(timeless && states.columns().first().is_some_and(without_time))
    }

    /// When state leaves, as EXPLAIN shows it.
    fn eviction(&self) -> &'static str {
        match (self.mode, &self.closing) {
            (OutputMode::Complete, _) | (_, Closing::Never) => "never evicted",
            _ => "evicted when its time closes",
        }
    }

    /// Its state in the epoch's query.
    pub fn state(&self, epoch: &Epoch) -> Arc<GateState> {
        epoch.state.gate(self.id, |turn| {
            GateState::new(
                self.name(),
                self.shape,
                self.keys,
                self.counts_late,
                self.mode,
                turn,
            )
        })
    }

    pub(super) fn name(&self) -> String {
        format!("TimeWindowGate {}", self.id)
    }

    /// The least watermark that closes a group: its begin is given, of a session its end.
    fn due(&self, oldest: i64) -> Option<Instant> {
        let due = self.closing.due(oldest)?;
        Some(due.later(self.behind))
    }

    /// The groups closed by a watermark.
    pub fn closed_by(&self, watermark: Option<Instant>) -> Closed {
        self.closing
            .by(watermark.map(|watermark| watermark.earlier(self.behind)))
    }

    /// The groups whose state has left when the watermark is here.
    fn evicted(&self, watermark: Option<Instant>) -> Closed {
        match (self.mode, self.shape) {
            (OutputMode::Complete, _) | (_, GateShape::Timeless) => Closed::None,
            _ => self.closed_by(watermark),
        }
    }

    /// The groups that are closed when an epoch starts: their rows are late. Complete mode closes none.
    pub(super) fn late_in(&self, epoch: &Epoch) -> Closed {
        match self.mode {
            OutputMode::Complete => Closed::None,
            OutputMode::Append | OutputMode::Update => self.closed_by(epoch.started_at),
        }
    }

    /// What an epoch's release depends on.
    fn release_in(&self, epoch: &Epoch) -> Release {
        Release {
            mode: self.mode,
            before: self.closed_by(epoch.started_at),
            after: self.closed_after(epoch),
        }
    }

    /// The groups closed by the watermark that an epoch has reached.
    pub fn closed_after(&self, epoch: &Epoch) -> Closed {
        if epoch.closing {
            Closed::All
        } else {
            self.closed_by(epoch.reached())
        }
    }
}

/// Keeps partial states `(slice, keys …, states …)` of open windows between epochs, and lets through
/// those that the output mode emits.
#[derive(Debug)]
pub struct TimeWindowGateExec {
    input: Arc<dyn ExecutionPlan>,
    info: Arc<GateInfo>,
    reducer: Arc<Reducer>,
    properties: Arc<PlanProperties>,
}

impl TimeWindowGateExec {
    pub(super) fn new(
        input: Arc<dyn ExecutionPlan>,
        info: Arc<GateInfo>,
        reducer: Arc<Reducer>,
        partitions: usize,
    ) -> Self {
        let partitions = info.partitions(partitions);
        let columns = |range: std::ops::Range<usize>| -> Vec<Arc<dyn PhysicalExpr>> {
            let schema = input.schema();
            range
                .map(|at| Arc::new(Column::new(schema.field(at).name(), at)) as _)
                .collect()
        };
        // A group is in one partition, which is what hash partitioning by the group promises.
        let partitioning = Partitioning::Hash(columns(0..info.keys + info.bounds()), partitions);
        let slice = columns(0..1).into_iter();
        let by_slice =
            slice.map(|slice| PhysicalSortExpr::new(slice, SortOptions::new(false, false)));
        let orderings = info.in_order.then(|| by_slice.collect::<Vec<_>>());
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(input.schema(), orderings),
            partitioning,
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            input,
            info,
            reducer,
            properties: Arc::new(properties),
        }
    }

    /// The same node.
    fn again(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let (info, reducer) = (Arc::clone(&self.info), Arc::clone(&self.reducer));
        Self::new(input, info, reducer, self.partitions())
    }

    /// Number of partitions that groups are parted into.
    fn partitions(&self) -> usize {
        self.properties.partitioning.partition_count()
    }

    fn ripening<'a>(&'a self, context: &'a Arc<TaskContext>) -> Ripening<'a> {
        Ripening {
            input: &self.input,
            info: &self.info,
            partitions: self.partitions(),
            context,
        }
    }

    /// What a partition emits, once its rows are in. The work is done by who reads it.
    fn release(
        &self,
        partition: usize,
        epoch: Arc<Epoch>,
        context: &TaskContext,
    ) -> SendableRecordBatchStream {
        let runtime = context.runtime_env();
        let consumer = MemoryConsumer::new(self.info.name());
        let memory = consumer.register(context.memory_pool());
        let (schema, info) = (self.schema(), Arc::clone(&self.info));
        let reducer = Arc::clone(&self.reducer);
        let released = futures::stream::once(async move {
            let release = info.release_in(&epoch);
            let state = info.state(&epoch);
            state.make_room(release, &runtime)?;
            if let Some(shared) = state.shared(partition, release)
                && let Some(windows) = reducer.windows(info.keys, shared, memory)?
            {
                return Ok::<_, DataFusionError>(windows);
            }
            let mut released = state.release(partition, release)?;
            if info.in_order {
                released.put_in_order();
            }
            if info.in_order || released.is_on_disk() {
                return Ok(futures::stream::iter(released).boxed());
            }
            let runs = coalesced(released.collect::<Result<_>>()?);
            Ok(futures::stream::iter(runs.into_iter().map(Ok)).boxed())
        });
        Box::pin(RecordBatchStreamAdapter::new(
            schema,
            released.try_flatten(),
        ))
    }
}

#[async_trait]
impl Stateful for TimeWindowGateExec {
    fn label(&self) -> String {
        self.info.name()
    }

    fn intakes(&self) -> usize {
        self.input.output_partitioning().partition_count()
    }

    fn fit(&self, context: &TaskContext) -> Result<()> {
        let epoch = &*epoch(context)?;
        let state = self.info.state(epoch);
        let name = self.info.name();
        let mut moved = false;
        if let Some(runs) = epoch.state.saved_piece(&name) {
            let rows = epoch.state.saved_piece(&rows_of(&name)).unwrap_or_default();
            state.restore(runs, &rows, self.info.evicted(epoch.started_at))?;
            epoch.state.forget_piece(&name);
            epoch.state.forget_piece(&rows_of(&name));
            moved = true;
        }
        let partitions = self.partitions();
        if state.partitions() != partitions && state.partitions() != 0 {
            let keys = self.info.key_range();
            self.reducer.spread(&state, keys, partitions)?;
            moved = true;
        }
        match moved {
            true => epoch.state.settle(&state, &context.runtime_env()),
            false => Ok(()),
        }
    }

    async fn absorb(&self, intake: usize, context: Arc<TaskContext>) -> Result<()> {
        let epoch = epoch(&context)?;
        let state = self.info.state(&epoch);
        let runtime = context.runtime_env();
        let together = together_bytes(&runtime);
        let mut exchange = Exchange::new(self.info.key_range(), self.partitions());
        let mut input = self.input.execute(intake, Arc::clone(&context))?;
        let mut to = |partition, part| state.absorb(partition, part, &epoch, &runtime);
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0, 0);
        let mut touched = false;
        while let Some(batch) = input.next().await {
            let batch = batch?;
            touched |= self.info.is_touched_by(&batch);
            rows += batch.num_rows();
            bytes += batch.get_array_memory_size();
            batches.push(batch);
            if rows >= TOGETHER || (touched && bytes >= together) {
                touched = true;
                exchange.route(&std::mem::take(&mut batches), &mut to)?;
                (rows, bytes) = (0, 0);
            }
        }
        match touched {
            true => exchange.route(&batches, &mut to),
            false => Ok(()),
        }
    }

    async fn set_absorbed(&self, context: &Arc<TaskContext>) -> Result<()> {
        let epoch = epoch(context)?;
        let state = self.info.state(&epoch);
        if self.info.always_emits() && state.is_empty(0) {
            let nothing = self.reducer.of_nothing(context).await?;
            let nothing = Part::whole(nothing);
            state.absorb(0, nothing, &epoch, &context.runtime_env())?;
        }
        // Above another gate the watermark is known, and whoever sees that the rows are in reads what it closes. For the
        // lowest gates it is not yet, and nothing is ripe.
        self.ripen(context).await?;
        state.set_absorbed();
        Ok(())
    }

    async fn ripen(&self, context: &Arc<TaskContext>) -> Result<()> {
        self.ripening(context).of_closing(&*epoch(context)?).await
    }

    fn added(&self, epoch: &Epoch) -> Result<Added> {
        Ok(Added::Gate(self.info.state(epoch).added()))
    }

    fn pieces(&self, epoch: &Epoch, added: Added) -> Result<Vec<Piece>> {
        let Added::Gate(added) = added else {
            return internal_err!("a gate is given what it has added");
        };
        let before = self.info.evicted(epoch.started_at);
        let after = self.info.evicted(epoch.reached());
        self.info
            .state(epoch)
            .pieces(&self.info.name(), added, before, after)
    }

    fn made_of(&self) -> Vec<(String, String)> {
        let schema = self.input.schema();
        let columns = |range: std::ops::Range<usize>| {
            shown_columns(schema.fields().get(range).unwrap_or_default())
        };
        let keys = self.info.key_range();
        let aggregates = self.reducer.aggregates.iter();
        let aggregates = aggregates.map(|one| one.human_display().unwrap_or_else(|| one.name()));
        [
            ("output mode", self.info.mode.to_string()),
            ("time", self.info.label.clone()),
            ("keys", columns(keys.clone())),
            ("aggregates", aggregates.collect::<Vec<_>>().join(", ")),
            ("state", columns(keys.end..schema.fields().len())),
        ]
        .map(|(aspect, what)| (aspect.to_owned(), what))
        .into()
    }

    fn releases(&self, epoch: &Epoch) -> Option<u64> {
        let state = self.info.state(epoch);
        let release = self.info.release_in(epoch);
        state.absorbed().then(|| state.releases(release))
    }

    fn commit(&self, epoch: &Epoch) -> Result<OperatorCounts> {
        let closed = self.info.closed_after(epoch);
        let state = self.info.state(epoch);
        let turnover = state.commit(self.info.mode, closed)?;
        // In complete mode nothing closes.
        let closed = if self.info.mode == OutputMode::Complete {
            Closed::None
        } else {
            closed
        };
        Ok(OperatorCounts {
            turnover,
            open_windows: if self.info.windows {
                state.open_windows(closed)
            } else {
                0
            },
            open_rows: state.open_rows(),
            groups: state.held_rows(),
            bytes: state.held_bytes(),
            spilled_bytes: state.spilled_bytes(),
            due: match self.info.mode {
                OutputMode::Complete => None,
                _ => state
                    .oldest(closed)
                    .and_then(|oldest| self.info.due(oldest)),
            },
        })
    }

    async fn compact(&self, context: &Arc<TaskContext>) -> Result<()> {
        let state = self.info.state(&*epoch(context)?);
        let partitions = self.partitions();
        self.ripening(context).of_many(&state).await?;
        let merged = self
            .reducer
            .compact(&state, partitions, &self.info, context);
        merged.await
    }
}

impl DisplayAs for TimeWindowGateExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "TimeWindowGateExec: mode={}, {}, state={}",
            self.info.mode,
            self.info.label,
            self.info.eviction()
        )
    }
}

impl ExecutionPlan for TimeWindowGateExec {
    fn name(&self) -> &str {
        "TimeWindowGateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.again(one_child(children)?)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let epoch = epoch(&context)?;
        let state = self.info.state(&epoch);
        if state.absorbed() {
            return Ok(self.release(partition, epoch, &context));
        }
        // A gate above another one: its rows come while it is read, the watermark known.
        let gate = self.again(Arc::clone(&self.input));
        let node: Arc<dyn ExecutionPlan> = Arc::new(self.again(Arc::clone(&self.input)));
        let stream = futures::stream::once(async move {
            let intake = state.intake().await;
            if !state.absorbed() {
                absorb_all(&[node], &context, false).await?;
            }
            drop(intake);
            Ok::<_, DataFusionError>(gate.release(partition, epoch, &context))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream.try_flatten(),
        )))
    }
}
