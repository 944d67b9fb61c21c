//! Gives each row its session of the epoch; rows that are late or have no session leave, counted.
//!
//! A partition's rows are held until the epoch's last one has come, for a row may bridge two sessions;
//! then every row gets the bounds of its session, so that DataFusion's partial aggregate makes one group
//! of it. What several partitions find of one session, and what earlier epochs have, the gate merges.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, Int64Array,
    IntervalMonthDayNanoArray, RecordBatch,
};
use datafusion::arrow::compute::{concat_batches, filter, filter_record_batch};
use datafusion::arrow::datatypes::{
    Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Schema,
};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PlanProperties,
};
use futures::StreamExt;

use super::aside::{Aside, Left};
use super::closing::ticks;
use super::gate::GateInfo;
use super::{one_child, with_bounds};
use crate::state::{Epoch, Fates, Reason, merge};
use crate::time::{Closed, Span, Unit};

/// Names of the columns that are added: the bounds of the row's session, `Int64`.
pub(super) const BOUNDS: [&str; 2] = ["__slice", "__end"];

/// How rows are put into sessions.
#[derive(Debug, Clone)]
pub(super) struct SessionInfo {
    /// Event time of a row, in the unit of the bounds.
    pub time: Arc<dyn PhysicalExpr>,
    /// Event time of a row in its own unit, where that of the bounds may not hold it.
    pub event: Option<Arc<dyn PhysicalExpr>>,
    /// Gap behind it: an interval.
    pub gap: Arc<dyn PhysicalExpr>,
    /// Unit of the bounds.
    pub unit: Unit,
    /// Keys: sessions are found for each of them alone.
    pub keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Whether rows are judged late here.
    pub judges: bool,
    /// The row as it reached its clause, if rows that are not counted are kept.
    pub row: Option<Arc<dyn PhysicalExpr>>,
    /// The gate above, which keeps the counts.
    pub gate: Arc<GateInfo>,
    /// Whether the rows are a finite table's. A stream's gate merges what partitions find of a session; here
    /// there is no gate, and a key's rows must meet.
    pub finite: bool,
}

/// Adds the bounds of each row's session, and keeps the rows that have one that is open.
#[derive(Debug)]
pub struct SessionAssignExec {
    input: Arc<dyn ExecutionPlan>,
    info: SessionInfo,
    properties: Arc<PlanProperties>,
}

impl SessionAssignExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, info: SessionInfo) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(with_bounds(&input.schema(), &BOUNDS)),
            if info.finite {
                input.output_partitioning().clone()
            } else {
                Partitioning::UnknownPartitioning(input.output_partitioning().partition_count())
            },
            EmissionType::Final,
            input.boundedness(),
        );
        Self {
            input,
            info,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for SessionAssignExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SessionAssignExec: {}", self.info.gate.label)
    }
}

impl ExecutionPlan for SessionAssignExec {
    fn name(&self) -> &str {
        "SessionAssignExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let keys = self.info.keys.clone();
        let distribution = match (self.info.finite, keys.is_empty()) {
            (false, _) => Distribution::UnspecifiedDistribution,
            (true, true) => Distribution::SinglePartition,
            (true, false) => Distribution::KeyPartitioned(keys),
        };
        InputDistributionRequirements::new(vec![distribution])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // DataFusion may split a finite table under this node, and only here parts its rows by key again.
        vec![self.info.finite && !self.info.keys.is_empty()]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        f(&self.info.time)?;
        f(&self.info.gap)
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
        // Without an epoch this is a query over a finite table: nothing is late, nothing is counted.
        let epoch = context.session_config().get_extension::<Epoch>();
        let closed = match &epoch {
            Some(epoch) if self.info.judges => self.info.gate.late_in(epoch),
            _ => Closed::None,
        };
        let (info, schema) = (self.info.clone(), self.schema());
        let aside = epoch
            .as_ref()
            .and_then(|epoch| Aside::new(info.row.as_ref(), &info.gate.name(), epoch));
        let mut input = self.input.execute(partition, context)?;
        let assigned = async move {
            let mut rows = Vec::new();
            let mut fates = Fates::default();
            while let Some(batch) = input.next().await {
                rows.extend(info.stretch(&batch?, closed, &mut fates, aside.as_ref())?);
            }
            if let Some(epoch) = &epoch {
                info.gate
                    .state(epoch)
                    .note(fates, std::collections::BTreeMap::new(), epoch.turn());
            }
            info.sessions(&rows, &schema)
        };
        let stream = futures::stream::once(assigned)
            .filter_map(|batch| futures::future::ready(batch.transpose()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}

/// Rows that stay, and the stretch of each.
struct Stretched {
    batch: RecordBatch,
    starts: ArrayRef,
    ends: ArrayRef,
}

/// Gaps behind the event times of a batch, in ticks. An event time is a whole number of ticks: what the gap
/// has of a broken one does not reach the next. None is above zero where the row has no session.
enum Gaps {
    /// The same for all rows.
    Constant(Option<i64>),
    /// One for each row.
    Each(IntervalMonthDayNanoArray, Unit),
}

impl Gaps {
    fn of(gaps: ColumnarValue, unit: Unit) -> Result<Self> {
        match gaps {
            ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(gap)) => {
                Ok(Gaps::Constant(gap.and_then(|gap| ticks_of(gap, unit))))
            }
            ColumnarValue::Array(gaps) => {
                let gaps = gaps.as_primitive_opt::<IntervalMonthDayNanoType>().cloned();
                let gaps = gaps.ok_or_else(|| internal_datafusion_err!("a gap is an interval"))?;
                Ok(Gaps::Each(gaps, unit))
            }
            ColumnarValue::Scalar(other) => internal_err!("a gap is an interval, not {other}"),
        }
    }

    #[inline]
    fn of_row(&self, row: usize) -> Option<i64> {
        match self {
            Gaps::Constant(gap) => *gap,
            Gaps::Each(gaps, unit) => {
                let gap = gaps.is_valid(row).then(|| gaps.value(row))?;
                ticks_of(gap, *unit)
            }
        }
    }
}

/// Whole ticks of a gap that is longer than none.
pub(crate) fn ticks_of(gap: IntervalMonthDayNano, unit: Unit) -> Option<i64> {
    if gap.months != 0 {
        return None;
    }
    let gap = Span::from_days_and_nanos(gap.days, gap.nanoseconds);
    let ticks = gap.nanos().div_euclid(i128::from(unit.nanos()));
    i64::try_from(ticks).ok().filter(|ticks| *ticks > 0)
}

impl SessionInfo {
    /// The stretch `[ts, ts + gap)` of each row; rows without one, or whose own is closed, leave.
    fn stretch(
        &self,
        batch: &RecordBatch,
        closed: Closed,
        fates: &mut Fates,
        aside: Option<&Aside>,
    ) -> Result<Option<Stretched>> {
        let rows = batch.num_rows();
        let starts = ticks(&self.time.evaluate(batch)?.into_array(rows)?)?;
        let timed = match &self.event {
            Some(event) => event.evaluate(batch)?.into_array(rows)?.logical_nulls(),
            None => starts.nulls().cloned(),
        };
        let gaps = Gaps::of(self.gap.evaluate(batch)?, self.unit)?;
        let mut stays = BooleanBufferBuilder::new(rows);
        let mut ends = Vec::with_capacity(rows);
        let mut stay = 0;
        let mut left = Vec::new();
        for row in 0..rows {
            let start = starts.is_valid(row).then(|| starts.value(row));
            let end = start.and_then(|start| start.checked_add(gaps.of_row(row)?));
            let has_time = timed.as_ref().is_none_or(|timed| timed.is_valid(row));
            let reason = match end {
                _ if !has_time => Some(Reason::Null),
                None => Some(Reason::Rejected),
                Some(end) if closed.contains(end) => Some(Reason::Late),
                Some(_) => None,
            };
            match reason {
                None => fates.accepted += 1,
                Some(Reason::Late) => fates.late += 1,
                Some(Reason::Null) => fates.null += 1,
                // Guarded rows have left at their clause, and a row has one session.
                Some(Reason::Rejected | Reason::Guarded | Reason::Missed) => fates.rejected += 1,
            }
            stay += usize::from(reason.is_none());
            stays.append(reason.is_none());
            if let (Some(reason), Some(_)) = (reason, aside) {
                left.push(Left {
                    row,
                    reason,
                    window: (start.filter(|_| end.is_some()), end),
                });
            }
            ends.push(end.unwrap_or_default());
        }
        if let Some(aside) = aside {
            aside.put(batch, &left, self.unit)?;
        }
        let starts = Int64Array::new(starts.values().clone(), None);
        let ends = Int64Array::from(ends);
        if stay == rows {
            let batch = batch.clone();
            let (starts, ends) = (Arc::new(starts), Arc::new(ends));
            return Ok(Some(Stretched {
                batch,
                starts,
                ends,
            }));
        }
        let stays = BooleanArray::from(stays.finish());
        Ok((stay > 0).then_some(Stretched {
            batch: filter_record_batch(batch, &stays)?,
            starts: filter(&starts, &stays)?,
            ends: filter(&ends, &stays)?,
        }))
    }

    /// All rows of the partition with the bounds of their sessions.
    fn sessions(&self, rows: &[Stretched], schema: &Arc<Schema>) -> Result<Option<RecordBatch>> {
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let batch = concat_batches(&first.batch.schema(), rows.iter().map(|rows| &rows.batch))?;
        let keys = self
            .keys
            .iter()
            .map(|key| key.evaluate(&batch)?.into_array(batch.num_rows()));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let all = |bounds: Vec<&dyn Array>| -> Result<Int64Array> {
            Ok(datafusion::arrow::compute::concat(&bounds)?
                .as_primitive::<Int64Type>()
                .clone())
        };
        let starts = all(rows.iter().map(|rows| rows.starts.as_ref()).collect())?;
        let ends = all(rows.iter().map(|rows| rows.ends.as_ref()).collect())?;
        let merged = merge(&keys, &starts, &ends)?;
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(merged.starts));
        columns.push(Arc::new(merged.ends));
        Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns)?))
    }
}
