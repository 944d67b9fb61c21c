//! Gives each row its slice; rows that are late or have no window leave, counted.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{Array, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{Stream, StreamExt};

use super::closing::ticks;
use super::gate::GateInfo;
use super::{epoch, one_child, with_bounds};
use crate::state::{Accepted, Assignment, Epoch, Fates, GateState, Slices};
use crate::time::Closed;

/// Name of the column that is added: the row's slice, an `Int64`.
pub(super) const SLICE: &str = "__slice";

/// An event time from which the grouping time is computed.
#[derive(Debug, Clone)]
pub(super) struct EventColumn {
    /// The event time of a row.
    pub expr: Arc<dyn PhysicalExpr>,
    /// Ticks on which the computation is safe, both ends included.
    pub safe: (i64, i64),
}

/// How rows are assigned.
#[derive(Debug, Clone)]
pub(super) struct AssignInfo {
    /// Time value of a row; none where groups have no time.
    pub time: Option<Arc<dyn PhysicalExpr>>,
    /// Event time that the value is computed from, where the value may not exist.
    pub event: Option<EventColumn>,
    /// How a value becomes a slice.
    pub assignment: Assignment,
    /// Whether rows are judged late here.
    pub judges: bool,
    /// The gate above, which keeps the counts.
    pub gate: Arc<GateInfo>,
}

/// Adds the column of slices, and keeps the rows that are in an open window.
#[derive(Debug)]
pub struct TimeWindowAssignExec {
    input: Arc<dyn ExecutionPlan>,
    info: AssignInfo,
    properties: Arc<PlanProperties>,
}

impl TimeWindowAssignExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, info: AssignInfo) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(with_bounds(&input.schema(), &[SLICE])),
            datafusion::physical_plan::Partitioning::UnknownPartitioning(
                input.output_partitioning().partition_count(),
            ),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            info,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for TimeWindowAssignExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TimeWindowAssignExec: {}", self.info.gate.label)
    }
}

impl ExecutionPlan for TimeWindowAssignExec {
    fn name(&self) -> &str {
        "TimeWindowAssignExec"
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
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        match &self.info.time {
            Some(time) => f(time),
            None => Ok(TreeNodeRecursion::Continue),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(one_child(children)?, self.info.clone())))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let epoch = epoch(&context)?;
        Ok(Box::pin(AssignStream {
            schema: self.schema(),
            input: self.input.execute(partition, context)?,
            assigner: Assigner::new(self.info.clone(), &epoch),
        }))
    }
}

/// Assigns the rows of one partition in one epoch, and counts what becomes of them.
pub(super) struct Assigner {
    info: AssignInfo,
    state: Arc<GateState>,
    turn: u64,
    closed: Closed,
    fates: Fates,
    accepted: Accepted,
    done: bool,
}

impl Assigner {
    pub(super) fn new(info: AssignInfo, epoch: &Epoch) -> Self {
        let closed = if info.judges {
            info.gate.late_in(epoch)
        } else {
            Closed::None
        };
        Self {
            state: info.gate.state(epoch),
            turn: epoch.turn(),
            info,
            closed,
            fates: Fates::default(),
            accepted: Accepted::default(),
            done: false,
        }
    }

    /// The rows that are in an open window, with these columns alone if some are given, and their slices.
    /// With `late` a few late rows may be among them, as [`Slices`] tells.
    pub(super) fn assign(
        &mut self,
        batch: RecordBatch,
        columns: Option<&[usize]>,
        late: bool,
    ) -> Result<(RecordBatch, Slices)> {
        let needed = |batch: RecordBatch| match columns {
            Some(columns) => Ok(batch.project(columns)?),
            None => Ok::<_, DataFusionError>(batch),
        };
        let Some(time) = &self.info.time else {
            self.fates.accepted += batch.num_rows() as u64;
            let slices = Int64Array::from_value(0, batch.num_rows());
            return Ok((needed(batch)?, Slices::Any(slices)));
        };
        let time = Arc::clone(time);
        let (batch, nulls) = self.computable(batch)?;
        let values = time.evaluate(&batch)?.into_array(batch.num_rows())?;
        let mut assigned = self.info.assignment.assign(&ticks(&values)?, self.closed);
        if let Some(nulls) = nulls {
            // An event time that the function has no value for is not a missing one.
            assigned.fates.rejected += assigned.fates.null.saturating_sub(nulls);
            assigned.fates.null = nulls.min(assigned.fates.null);
        }
        if self.info.gate.counts_late {
            assigned.keep_late();
        }
        self.fates.add(assigned.fates);
        let batch = needed(batch)?;
        let few = assigned.fates.late < assigned.fates.accepted;
        let late_stay = matches!(assigned.slices, Slices::Near(_)) && late && few;
        let (slices, batch) = match &assigned.stays {
            None => (assigned.slices, batch),
            Some(_) if late_stay => (assigned.slices, batch),
            Some(stays) => (
                assigned.slices.filter(stays)?,
                filter_record_batch(&batch, stays)?,
            ),
        };
        match &assigned.accepted {
            Some(counted) => self.accepted.add(counted),
            None => self.accepted.count(slices.clone().into_array().values()),
        }
        Ok((batch, slices))
    }

    /// The rows whose event time the computation can take, and how many of them have none. Others are
    /// rejected before it could overflow on them.
    fn computable(&mut self, batch: RecordBatch) -> Result<(RecordBatch, Option<u64>)> {
        let Some(event) = &self.info.event else {
            return Ok((batch, None));
        };
        let (least, greatest) = event.safe;
        let times = event.expr.evaluate(&batch)?.into_array(batch.num_rows())?;
        let times = ticks(&times)?;
        let nulls = times.null_count() as u64;
        let safe = |tick: i64| (least..=greatest).contains(&tick);
        if times.iter().flatten().all(safe) {
            return Ok((batch, Some(nulls)));
        }
        let stays: BooleanArray = times
            .iter()
            .map(|tick| Some(tick.is_none_or(safe)))
            .collect();
        self.fates.rejected += (times.len() - stays.true_count()) as u64;
        Ok((filter_record_batch(&batch, &stays)?, Some(nulls)))
    }

    /// Tells the gate what became of the rows.
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.done, true) {
            let accepted = std::mem::take(&mut self.accepted).finish();
            self.state.note(self.fates, accepted, self.turn);
        }
    }
}

struct AssignStream {
    schema: SchemaRef,
    input: SendableRecordBatchStream,
    assigner: Assigner,
}

impl AssignStream {
    fn assign(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let (batch, slices) = self.assigner.assign(batch, None, false)?;
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(slices.into_array()));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

impl Stream for AssignStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match ready!(self.input.poll_next_unpin(cx)) {
            Some(Ok(batch)) => Poll::Ready(Some(self.assign(batch))),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                self.assigner.finish();
                Poll::Ready(None)
            }
        }
    }
}

impl RecordBatchStream for AssignStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
