//! Observes the greatest event time of the rows that pass.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{Stream, StreamExt};

use super::guard::Sight;
use super::inputs::{Inputs, Leftover};
use super::{epoch, one_child};
use crate::config::{OptionalSpan, unit_of};
use crate::state::{Epoch, EventTimes, Observed, Reason, SetAside, Windows};
use crate::time::{Instant, Span, Unit};

/// A WATERMARK clause at run time: rows pass unchanged, the greatest event time is noted. With a guard, rows that are
/// later than now by more than it do not pass.
#[derive(Debug)]
pub struct WatermarkExec {
    input: Arc<dyn ExecutionPlan>,
    clause: usize,
    column: usize,
    event_time: String,
    unit: Unit,
    zoned: bool,
    delay: Span,
    max_future: OptionalSpan,
    idle_timeout: OptionalSpan,
    /// Whether guarded rows are kept.
    keeps_rows: bool,
    properties: Arc<PlanProperties>,
}

impl WatermarkExec {
    /// Observes a TIMESTAMP column of the input, for the clause with this number.
    ///
    /// # Errors
    /// - the column is not a TIMESTAMP
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        clause: usize,
        column: usize,
        delay: Span,
    ) -> Result<Self> {
        let schema = input.schema();
        let DataType::Timestamp(unit, zone) = schema.field(column).data_type() else {
            return plan_err!("the event time must be a TIMESTAMP");
        };
        let properties = Arc::clone(input.properties());
        let zoned = zone.is_some();
        Ok(Self {
            event_time: schema.field(column).name().clone(),
            unit: unit_of(unit),
            zoned,
            input,
            clause,
            column,
            delay,
            max_future: OptionalSpan::default(),
            idle_timeout: OptionalSpan::default(),
            keeps_rows: false,
            properties,
        })
    }

    /// With how much later than now an event time may be, and how long the clause holds the watermark without rows.
    #[must_use]
    pub fn with_limits(mut self, max_future: OptionalSpan, idle_timeout: OptionalSpan) -> Self {
        self.max_future = max_future;
        self.idle_timeout = idle_timeout;
        self
    }

    /// With the rows kept that it leaves out.
    #[must_use]
    pub fn with_rows_kept(mut self, keeps: bool) -> Self {
        self.keeps_rows = keeps;
        self
    }

    fn sight(&self, epoch: &Epoch) -> Sight {
        Sight::new(self.column, self.bound(epoch)).keeping(self.keeps_rows)
    }

    /// How much later than now an event time may be.
    pub fn max_future(&self) -> Option<Span> {
        self.max_future.0
    }

    /// How long the clause holds the watermark without rows.
    pub fn idle_timeout(&self) -> Option<Span> {
        self.idle_timeout.0
    }

    /// Number of the clause.
    pub fn clause(&self) -> usize {
        self.clause
    }

    /// Name of the event time.
    pub fn event_time(&self) -> &str {
        &self.event_time
    }

    /// Number of partitions that are read.
    pub fn partitions(&self) -> usize {
        self.input.output_partitioning().partition_count()
    }

    /// Makes the clause known to a query before it has seen a row, and what was said of its event time without one.
    pub fn declare(&self, epoch: &Epoch, advanced: impl Iterator<Item = Instant>) {
        let bound = self.bound(epoch);
        let advanced = advanced.map(|to| self.unit.floor(to));
        let greatest = advanced
            .filter(|to| bound.is_none_or(|bound| *to <= bound))
            .max();
        let mut times = EventTimes::default();
        times.advanced = greatest > epoch.state.watermarks.greatest(self.clause);
        epoch.observe(self.clause, self.observed(greatest), &times);
    }

    /// The unit of the event time.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Greatest event time that passes in an epoch, in ticks; none where all do.
    fn bound(&self, epoch: &Epoch) -> Option<i64> {
        let guard = self.max_future.0?;
        Some(self.unit.floor(epoch.now.later(guard)))
    }

    fn observed(&self, greatest: Option<i64>) -> Observed {
        Observed {
            greatest,
            unit: self.unit,
            zoned: self.zoned,
            delay: self.delay,
        }
    }

    /// Reads a partition that nobody has asked for, observing it; its rows are kept in the epoch for
    /// whoever asks later.
    ///
    /// # Errors
    /// - those of the input
    pub async fn drain(&self, partition: usize, context: &Arc<TaskContext>) -> Result<()> {
        let epoch = epoch(context)?;
        let mut stream = self.execute(partition, Arc::clone(context))?;
        let mut batches = Vec::new();
        while let Some(batch) = stream.next().await {
            batches.push(batch?);
        }
        epoch.keep_drained(self.clause, partition, batches);
        Ok(())
    }

    /// Reads what readers of this clause have dropped, observing it.
    async fn finish(&self, leftover: Leftover, epoch: &Epoch) -> Result<()> {
        let mut stream = leftover.stream;
        let mut sight = self.sight(epoch);
        while let Some(batch) = stream.next().await {
            sight.pass(batch?)?;
        }
        set_guarded_aside(epoch, self.clause, &mut sight);
        let times = sight.times();
        epoch.observe(self.clause, self.observed(times.greatest), times);
        Ok(())
    }

    /// Reads to their ends the inputs whose readers have stopped.
    ///
    /// # Errors
    /// - those of the inputs
    pub async fn finish_all(
        clauses: &[&WatermarkExec],
        inputs: &Arc<Inputs>,
        epoch: &Epoch,
    ) -> Result<()> {
        for leftover in inputs.leftovers().await {
            match clauses
                .iter()
                .find(|clause| clause.clause == leftover.clause)
            {
                Some(clause) => clause.finish(leftover, epoch).await?,
                None => {
                    return internal_err!("an input is left of a clause that is not in the plan");
                }
            }
        }
        Ok(())
    }
}

impl DisplayAs for WatermarkExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let schema = self.input.schema();
        write!(
            f,
            "WatermarkExec: {}, delay={}",
            schema.field(self.column).name(),
            self.delay
        )?;
        for (name, span) in [
            ("max_future", self.max_future),
            ("idle_timeout", self.idle_timeout),
        ] {
            if let Some(span) = span.0 {
                write!(f, ", {name}={span}")?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for WatermarkExec {
    fn name(&self) -> &str {
        "WatermarkExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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
        let exec = Self::try_new(one_child(children)?, self.clause, self.column, self.delay)?;
        Ok(Arc::new(
            exec.with_limits(self.max_future, self.idle_timeout)
                .with_rows_kept(self.keeps_rows),
        ))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let epoch = epoch(&context)?;
        if let Some(batches) = epoch.take_drained(self.clause, partition) {
            return Ok(Box::pin(MemoryStream::try_new(
                batches,
                self.schema(),
                None,
            )?));
        }
        let inputs = context
            .session_config()
            .get_extension::<Inputs>()
            .unwrap_or_default();
        inputs.begin(self.clause, partition);
        Ok(Box::pin(Observer {
            schema: self.schema(),
            input: Some(self.input.execute(partition, context)?),
            clause: self.clause,
            seen: self.observed(None),
            sight: self.sight(&epoch),
            epoch,
            inputs,
        }))
    }
}

/// Sets the guarded rows of a clause aside, where they are kept.
fn set_guarded_aside(epoch: &Epoch, clause: usize, sight: &mut Sight) {
    for rows in sight.take_kept() {
        let none = || Int64Array::new_null(rows.len());
        let windows = Windows {
            unit: Unit::Second,
            starts: none(),
            ends: none(),
        };
        epoch.set_aside(SetAside {
            operator: format!("WATERMARK {clause}"),
            reasons: vec![Reason::Guarded; rows.len()],
            rows: Arc::new(rows),
            windows,
        });
    }
}

/// Rows of one partition on their way past the clause.
struct Observer {
    schema: SchemaRef,
    /// None once it has ended.
    input: Option<SendableRecordBatchStream>,
    clause: usize,
    /// The clause's, with no event time seen yet.
    seen: Observed,
    sight: Sight,
    epoch: Arc<Epoch>,
    inputs: Arc<Inputs>,
}

impl Observer {
    /// Tells the query what was seen, and the epoch what is left to read.
    fn end(&mut self, leftover: Option<SendableRecordBatchStream>) {
        let seen = Observed {
            greatest: self.sight.times().greatest,
            ..self.seen
        };
        self.epoch.observe(self.clause, seen, self.sight.times());
        set_guarded_aside(&self.epoch, self.clause, &mut self.sight);
        let clause = self.clause;
        self.inputs
            .end(leftover.map(|stream| Leftover { clause, stream }));
    }
}

impl Stream for Observer {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(input) = &mut self.input else {
            return Poll::Ready(None);
        };
        match ready!(input.poll_next_unpin(cx)) {
            Some(Ok(batch)) => Poll::Ready(Some(self.sight.pass(batch))),
            end => {
                self.input = None;
                self.end(None);
                Poll::Ready(end)
            }
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Some(input) = self.input.take() {
            self.end(Some(input));
        }
    }
}

impl RecordBatchStream for Observer {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
