//! The gate between DataFusion's partial and final aggregate.

mod compact;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};

pub(super) use compact::Reducer;

use super::closing::Closing;
use super::stateful::Stateful;
use super::{epoch, one_child};
use crate::config::OutputMode;
use crate::state::{Epoch, GateShape, GateState, OperatorCounts, Release};
use crate::time::{Closed, Instant, Span};

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

    /// Whether there is a group even when there is no row: an aggregate without GROUP BY.
    fn always_emits(&self) -> bool {
        self.mode == OutputMode::Complete && self.shape == GateShape::Timeless && self.keys == 0
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
            GateState::new(self.name(), self.shape, self.keys, self.counts_late, turn)
        })
    }

    fn name(&self) -> String {
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

    /// The groups that are closed when an epoch starts: their rows are late. Complete mode closes none.
    pub(super) fn late_in(&self, epoch: &Epoch) -> Closed {
        match self.mode {
            OutputMode::Complete => Closed::None,
            OutputMode::Append | OutputMode::Update => self.closed_by(epoch.started_at),
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
    ) -> Self {
        let columns = |range: std::ops::Range<usize>| -> Vec<Arc<dyn PhysicalExpr>> {
            let schema = input.schema();
            range
                .map(|at| Arc::new(Column::new(schema.field(at).name(), at)) as _)
                .collect()
        };
        let partitions = input.output_partitioning().partition_count();
        // A group is in one partition, which is what hash partitioning by the group promises.
        let partitioning = Partitioning::Hash(columns(0..info.keys + info.bounds()), partitions);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
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

    /// What a partition emits, once its rows are in.
    fn release(
        &self,
        partition: usize,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let epoch = epoch(context)?;
        let release = Release {
            mode: self.info.mode,
            before: self.info.closed_by(epoch.started_at),
            after: self.info.closed_after(&epoch),
        };
        let batches = self.info.state(&epoch).release(partition, release)?;
        Ok(Box::pin(MemoryStream::try_new(
            batches,
            self.schema(),
            None,
        )?))
    }
}

#[async_trait]
impl Stateful for TimeWindowGateExec {
    fn label(&self) -> String {
        self.info.name()
    }

    fn partitions(&self) -> usize {
        self.input.output_partitioning().partition_count()
    }

    fn fit(&self, epoch: &Epoch) -> Result<()> {
        let state = self.info.state(epoch);
        let partitions = Stateful::partitions(self);
        if state.partitions() == partitions || state.partitions() == 0 {
            return Ok(());
        }
        let keys = self.info.bounds()..self.info.bounds() + self.info.keys;
        self.reducer.spread(&state, keys, partitions)
    }

    async fn absorb(&self, partition: usize, context: Arc<TaskContext>) -> Result<()> {
        let epoch = epoch(&context)?;
        let state = self.info.state(&epoch);
        if state.absorbed(partition) {
            return Ok(());
        }
        let pool = Arc::clone(context.memory_pool());
        let mut input = self.input.execute(partition, Arc::clone(&context))?;
        while let Some(batch) = input.next().await {
            state.absorb(partition, batch?, epoch.turn(), &pool)?;
        }
        if self.info.always_emits() && state.is_empty(partition) {
            let nothing = self.reducer.of_nothing(&context).await?;
            state.absorb(partition, nothing, epoch.turn(), &pool)?;
        }
        state.set_absorbed(partition);
        Ok(())
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
        for partition in 0..Stateful::partitions(self) {
            self.reducer.compact(&state, partition, context).await?;
        }
        Ok(())
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

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let schema = self.input.schema();
        let keys: Vec<Arc<dyn PhysicalExpr>> = (self.info.bounds()
            ..self.info.bounds() + self.info.keys)
            .map(|at| Arc::new(Column::new(schema.field(at).name(), at)) as _)
            .collect();
        // By the keys without the slice: the slices of a window must meet in one partition.
        let distribution = if keys.is_empty() {
            Distribution::SinglePartition
        } else {
            Distribution::KeyPartitioned(keys)
        };
        InputDistributionRequirements::new(vec![distribution])
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
        Ok(Arc::new(Self::new(
            one_child(children)?,
            Arc::clone(&self.info),
            Arc::clone(&self.reducer),
        )))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if self.info.state(&*epoch(&context)?).absorbed(partition) {
            return self.release(partition, &context);
        }
        // A gate above another one: its rows come while it is read, the watermark known.
        let gate = Self::new(
            Arc::clone(&self.input),
            Arc::clone(&self.info),
            Arc::clone(&self.reducer),
        );
        let stream = futures::stream::once(async move {
            gate.absorb(partition, Arc::clone(&context)).await?;
            gate.release(partition, &context)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream.try_flatten(),
        )))
    }
}
