//! Gives each row its slice; rows that are late or have no window leave, counted.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{Array, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{filter, filter_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{Stream, StreamExt};

use super::aside::{Aside, Left};
use super::closing::{Closing, tick_unit, ticks};
use super::gate::GateInfo;
use super::{epoch, one_child, with_bounds};
use crate::state::{Accepted, Assigned, Assignment, Epoch, Fates, GateState, Reason, Slices};
use crate::time::{Closed, Unit};

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
    /// The row as it reached its clause, if rows that are not counted are kept.
    pub row: Option<Arc<dyn PhysicalExpr>>,
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
    aside: Option<Aside>,
    fates: Fates,
    accepted: Accepted,
    done: bool,
}

impl Assigner {
    pub(super) fn new(info: AssignInfo, epoch: &Arc<Epoch>) -> Self {
        let closed = if info.judges {
            info.gate.late_in(epoch)
        } else {
            Closed::None
        };
        Self {
            state: info.gate.state(epoch),
            turn: epoch.turn(),
            aside: Aside::new(info.row.as_ref(), &info.gate.name(), epoch),
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
        let (batch, timed) = self.computable(batch)?;
        let values = time.evaluate(&batch)?.into_array(batch.num_rows())?;
        let times = ticks(&values)?;
        let mut assigned = self.info.assignment.assign(&times, self.closed);
        if let Some(timed) = &timed {
            // An event time that the function has no value for is not a missing one.
            let nulls = timed.null_count() as u64;
            assigned.fates.rejected += assigned.fates.null.saturating_sub(nulls);
            assigned.fates.null = nulls.min(assigned.fates.null);
        }
        if self.info.gate.counts_late {
            assigned.keep_late();
        }
        self.fates.add(assigned.fates);
        if let Some(aside) = &self.aside {
            let mut left = self.left(&assigned, &times, timed.as_ref().unwrap_or(&times));
            left.extend(self.missed(&assigned, &times));
            aside.put(&batch, &left, tick_unit(values.data_type()))?;
        }
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

    /// The rows that do not stay, and why: `times` are what their windows are found by, `timed` the event times.
    fn left(&self, assigned: &Assigned, times: &Int64Array, timed: &Int64Array) -> Vec<Left> {
        let Some(stays) = &assigned.stays else {
            return Vec::new();
        };
        let left = (0..stays.len()).filter(|row| !stays.value(*row));
        let left = left.map(|row| {
            let tick = times.is_valid(row).then(|| times.value(row));
            match (tick, tick.and_then(|tick| self.window(tick))) {
                _ if timed.is_null(row) => Left::windowless(row, Reason::Null),
                (Some(_), Some(window)) if !self.info.gate.counts_late => Left {
                    row,
                    reason: Reason::Late,
                    window,
                },
                _ => Left::windowless(row, Reason::Rejected),
            }
        });
        left.collect()
    }

    /// The rows that stay and come too late for some of their windows.
    fn missed(&self, assigned: &Assigned, times: &Int64Array) -> Vec<Left> {
        let Assignment::Windows(shape) = self.info.assignment else {
            return Vec::new();
        };
        if !shape.hops() || matches!(self.closed, Closed::None) || self.info.gate.counts_late {
            return Vec::new();
        }
        let stays = |row: usize| assigned.stays.as_ref().is_none_or(|stays| stays.value(row));
        let rows = (0..times.len()).filter(|row| times.is_valid(*row) && stays(*row));
        let missed = rows.filter_map(|row| {
            let windows = shape.windows(shape.slice(times.value(row))?);
            let newest = windows.filter(|begin| self.closed.contains(*begin)).max()?;
            Some(Left {
                row,
                reason: Reason::Missed,
                window: (Some(newest), newest.checked_add(shape.size())),
            })
        });
        missed.collect()
    }

    /// The newest window of a time, as far as its bounds are known; none if it can have none.
    fn window(&self, tick: i64) -> Option<(Option<i64>, Option<i64>)> {
        let begin = match self.info.assignment {
            Assignment::Windows(shape) => shape.slice(tick).and_then(|_| shape.newest(tick))?,
            Assignment::Values => tick,
        };
        Some(match &self.info.gate.closing {
            Closing::Windows(shape) => (Some(begin), begin.checked_add(shape.size())),
            Closing::Bin(_) => (Some(begin), None),
            Closing::Never | Closing::Sessions(_) | Closing::Instant(_) => (None, None),
        })
    }

    /// The rows whose event time the computation can take, and their event times where it is one that may have no
    /// result. Others are rejected before it could overflow on them.
    fn computable(&mut self, batch: RecordBatch) -> Result<(RecordBatch, Option<Int64Array>)> {
        let Some(event) = &self.info.event else {
            return Ok((batch, None));
        };
        let (least, greatest) = event.safe;
        let times = event.expr.evaluate(&batch)?.into_array(batch.num_rows())?;
        let times = ticks(&times)?;
        let safe = |tick: i64| (least..=greatest).contains(&tick);
        if times.iter().flatten().all(safe) {
            return Ok((batch, Some(times)));
        }
        let stays: BooleanArray = times
            .iter()
            .map(|tick| Some(tick.is_none_or(safe)))
            .collect();
        self.fates.rejected += (times.len() - stays.true_count()) as u64;
        if let Some(aside) = &self.aside {
            let left = (0..stays.len()).filter(|row| !stays.value(*row));
            let left: Vec<Left> = left
                .map(|row| Left::windowless(row, Reason::Rejected))
                .collect();
            aside.put(&batch, &left, Unit::Second)?;
        }
        let times = filter(&times, &stays)?.as_primitive().clone();
        Ok((filter_record_batch(&batch, &stays)?, Some(times)))
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
