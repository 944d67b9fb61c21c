//! One turn of the loop: a finite query over the epoch's rows, in two passes.
//!
//! 1. *In*: the rows of every source are read through their WATERMARK clauses into the lowest gates;
//!    what no gate asked for is read too. Then the watermark is known, and the gates make ready what it
//!    closes.
//! 2. *Out*: the plan's root is read. Gates release what the watermark has closed; a gate above
//!    another one takes in its rows on the way.
//!
//! Without the first pass two gates under one join would wait for each other: the join reads one
//! side to its end before the other, and neither side's end comes before the watermark is known.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::clock::now_ms;
use super::record::Stopwatch;
use super::saved::MadeOf;
use crate::checkpoint::Piece;
use crate::config::WatermarkPolicy;
use crate::physical::{
    Added, Inputs, Stateful, StreamScanExec, WatermarkExec, absorb_all, as_stateful, is_ours,
};
use crate::state::{Epoch, EventTimes, FEW_ROWS, Idleness, Observed, OperatorCounts};
use crate::time::{Instant, Span, Unit};

/// The parts of a plan that an epoch speaks to.
pub(super) struct Parts {
    plan: Arc<dyn ExecutionPlan>,
    clauses: Vec<Arc<dyn ExecutionPlan>>,
    gates: Vec<Arc<dyn ExecutionPlan>>,
    lowest: Vec<Arc<dyn ExecutionPlan>>,
    /// Whether nothing comes out when no gate lets anything through.
    silent: bool,
}

impl Parts {
    /// Finds the parts of a plan.
    pub(super) fn of(plan: Arc<dyn ExecutionPlan>) -> Self {
        let mut parts = Self {
            plan: Arc::clone(&plan),
            clauses: vec![],
            gates: vec![],
            lowest: vec![],
            silent: is_silent(&plan),
        };
        parts.visit(&plan);
        parts
    }

    /// Whether there is a gate at or below this node.
    fn visit(&mut self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        let mut below = false;
        for child in plan.children() {
            below |= self.visit(child);
        }
        if plan.is::<WatermarkExec>() {
            self.clauses.push(Arc::clone(plan));
        }
        if as_stateful(plan).is_some() {
            self.gates.push(Arc::clone(plan));
            if !below {
                self.lowest.push(Arc::clone(plan));
            }
            return true;
        }
        below
    }

    /// Operators with state by their names, and what it is made of; then the clauses, whose state is the greatest
    /// event time.
    pub(super) fn made_of(&self) -> Vec<(String, MadeOf)> {
        let gates = self.gates().map(|gate| (gate.label(), gate.made_of()));
        let clauses = self.clauses().into_iter().map(|clause| {
            let unit = (
                "unit of the event time".to_owned(),
                clause.unit().to_string(),
            );
            (format!("WATERMARK {}", clause.clause()), vec![unit])
        });
        gates.chain(clauses.collect::<Vec<_>>()).collect()
    }

    /// The clauses that may become idle, with their timeouts in milliseconds: of several, under a policy by which one
    /// holds the others back.
    pub(super) fn timeouts_ms(&self, policy: WatermarkPolicy) -> Vec<(usize, i64)> {
        let clauses = self.clauses();
        if clauses.len() < 2 || policy != WatermarkPolicy::Min {
            return Vec::new();
        }
        let timeouts = clauses.into_iter().filter_map(|clause| {
            let timeout = clause.idle_timeout()?;
            Some((clause.clause(), millis_up(timeout)))
        });
        timeouts.collect()
    }

    fn gates(&self) -> impl Iterator<Item = &dyn Stateful> {
        self.gates.iter().filter_map(as_stateful)
    }

    fn clauses(&self) -> Vec<&WatermarkExec> {
        self.clauses
            .iter()
            .filter_map(|plan| plan.downcast_ref())
            .collect()
    }
}

/// A timeout in whole milliseconds, which is what the clock counts: not less than it is.
fn millis_up(timeout: Span) -> i64 {
    Unit::Millisecond.ceil(Instant::from_nanos(timeout.nanos()))
}

/// Whether a plan gives no row when its gates let none through: above them are only nodes that turn one row
/// into one or none.
fn is_silent(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if as_stateful(plan).is_some() {
        return true;
    }
    let grouped = |aggregate: &AggregateExec| !aggregate.group_expr().expr().is_empty();
    let passes = plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.downcast_ref::<AggregateExec>().is_some_and(grouped);
    passes && plan.children().into_iter().all(is_silent)
}

/// A plan made ready to run again. Our nodes keep nothing: only DataFusion's are made anew.
pub(super) fn made_anew(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let children = plan.children().into_iter().map(made_anew);
    let children = children.collect::<Result<Vec<_>>>()?;
    let same = plan.children().into_iter().zip(&children);
    let same = same.into_iter().all(|(one, other)| Arc::ptr_eq(one, other));
    let plan = match same {
        true => Arc::clone(plan),
        false => {
            let keep = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
            Arc::clone(plan).replace_children(children, keep)?
        }
    };
    if is_ours(&plan) {
        return Ok(plan);
    }
    plan.reset_state()
}

/// What passed one WATERMARK clause in an epoch, and what it has seen in all.
pub(super) struct ClauseSeen {
    pub column: String,
    /// Names of the tables below it.
    pub sources: Vec<String>,
    pub observed: Observed,
    pub times: EventTimes,
    /// How much later than now an event time might be.
    pub max_future: Option<Span>,
    /// When it last gave a row, in milliseconds since 1970, if it has been idle since.
    pub idle_since_ms: Option<i64>,
}

/// What an epoch left behind.
pub(super) struct Committed {
    /// Watermark at its end.
    pub reached: Option<Instant>,
    /// Which inputs are idle behind it.
    pub idleness: Idleness,
    pub clauses: Vec<ClauseSeen>,
    /// Operators by their names, the lowest first.
    pub operators: Vec<(String, OperatorCounts)>,
}

/// Names of the tables that are read below a node.
fn sources_below(plan: &dyn ExecutionPlan, names: &mut Vec<String>) {
    if let Some(scan) = plan.downcast_ref::<StreamScanExec>() {
        names.push(scan.source_name().to_owned());
    }
    for child in plan.children() {
        sources_below(child.as_ref(), names);
    }
}

/// An epoch that is being run.
pub(super) struct Running {
    pub epoch: Arc<Epoch>,
    pub context: Arc<TaskContext>,
    pub inputs: Arc<Inputs>,
    pub policy: WatermarkPolicy,
    /// What the clock said when it began, in milliseconds since 1970.
    pub began_ms: i64,
    /// The inputs that may be idle, as they were behind the epoch before.
    pub idleness: Idleness,
}

impl Running {
    /// Pass 1, then the rows of pass 2 as they come. They must be read to their end, and
    /// [`read_rest`](Self::read_rest) called.
    pub(super) async fn start(
        &self,
        parts: &Parts,
        watch: &mut Stopwatch,
    ) -> Result<BoxStream<'static, Result<datafusion::arrow::array::RecordBatch>>> {
        for clause in parts.clauses() {
            clause.declare(&self.epoch, self.advanced(clause).into_iter());
        }
        for gate in parts.gates() {
            gate.fit(&self.context)?;
        }
        if !parts.gates.is_empty() {
            absorb_all(&parts.lowest, &self.context, self.epoch.has_few_rows()).await?;
            self.drain(parts, true).await?;
            self.fix_watermark();
            for gate in parts.lowest.iter().filter_map(as_stateful) {
                gate.ripen(&self.context).await?;
            }
        }
        watch.phases.absorb = watch.lap();
        let releases = parts.gates().map(|gate| gate.releases(&self.epoch));
        let releases: Option<u64> = releases.sum();
        match releases {
            // A join or an aggregate without GROUP BY may have rows of its own.
            Some(0) if parts.silent => Ok(futures::stream::empty().boxed()),
            Some(rows) if rows <= FEW_ROWS as u64 && self.epoch.has_few_rows() => {
                self.in_one_task(parts)
            }
            _ => Ok(execute_stream(Arc::clone(&parts.plan), Arc::clone(&self.context))?.boxed()),
        }
    }

    /// The rows of all partitions, computed by who reads them: of few rows that is the quickest.
    fn in_one_task(
        &self,
        parts: &Parts,
    ) -> Result<BoxStream<'static, Result<datafusion::arrow::array::RecordBatch>>> {
        let partitions = parts.plan.output_partitioning().partition_count();
        let streams = (0..partitions).map(|at| parts.plan.execute(at, Arc::clone(&self.context)));
        let streams = streams.collect::<Result<Vec<_>>>()?;
        Ok(futures::stream::select_all(streams).boxed())
    }

    /// Reads what no operator has asked for: the rest of inputs whose readers stopped, and inputs that
    /// were not read at all. The rows of the latter are kept if someone may ask for them yet.
    async fn drain(&self, parts: &Parts, keep: bool) -> Result<()> {
        let clauses = parts.clauses();
        WatermarkExec::finish_all(&clauses, &self.inputs, &self.epoch).await?;
        for clause in clauses {
            for partition in 0..clause.partitions() {
                if !self.inputs.was_read(clause.clause(), partition) {
                    clause.drain(partition, &self.context).await?;
                    if !keep {
                        self.epoch.take_drained(clause.clause(), partition);
                    }
                }
            }
        }
        Ok(())
    }

    /// What was said of the event time of a clause's sources without a row.
    fn advanced(&self, clause: &WatermarkExec) -> Vec<Instant> {
        let sources = &self.epoch.sources;
        if sources.values().all(|slice| slice.advanced.is_empty()) {
            return Vec::new();
        }
        let mut names = Vec::new();
        sources_below(clause, &mut names);
        let slices = names.iter().filter_map(|name| sources.get(name));
        slices
            .flat_map(|slice| slice.advanced.iter().copied())
            .collect()
    }

    fn fix_watermark(&self) {
        let idle = self
            .idleness
            .idle(self.began_ms, |clause| self.is_alive(clause));
        let reached = self.epoch.state.watermarks.reached(self.policy, &idle);
        self.epoch.set_reached(reached);
    }

    /// Whether a clause's input gave a sign of life in the epoch.
    fn is_alive(&self, clause: usize) -> bool {
        self.epoch.times(clause).are_alive()
    }

    /// After the last row: reads what was left, and fixes the watermark.
    pub(super) async fn read_rest(&self, parts: &Parts) -> Result<()> {
        self.drain(parts, false).await?;
        self.fix_watermark();
        Ok(())
    }

    /// What the epoch adds to the gates' state.
    pub(super) fn added(&self, parts: &Parts) -> Result<Vec<Added>> {
        parts.gates().map(|gate| gate.added(&self.epoch)).collect()
    }

    /// The gates' pieces of a checkpoint.
    pub(super) fn pieces(&self, parts: &Parts, added: Vec<Added>) -> Result<Vec<Piece>> {
        let pieces = parts
            .gates()
            .zip(added)
            .map(|(gate, added)| gate.pieces(&self.epoch, added));
        let pieces: Vec<_> = pieces.collect::<Result<_>>()?;
        Ok(pieces.into_iter().flatten().collect())
    }

    /// Makes the gates' changes permanent.
    pub(super) fn commit(&self, parts: &Parts) -> Result<Committed> {
        let operators = parts
            .gates()
            .map(|gate| Ok((gate.label(), gate.commit(&self.epoch)?)))
            .collect::<Result<_>>()?;
        let ended_ms = now_ms(self.context.session_config());
        let alive = |clause| self.is_alive(clause);
        let idleness = self.idleness.after(self.began_ms, ended_ms, alive);
        Ok(Committed {
            reached: self.epoch.reached(),
            clauses: self.clauses_seen(parts, &idleness),
            idleness,
            operators,
        })
    }

    /// What passed each clause.
    fn clauses_seen(&self, parts: &Parts, idleness: &Idleness) -> Vec<ClauseSeen> {
        let observed = self.epoch.state.watermarks.snapshot();
        let seen = parts.clauses().into_iter().filter_map(|clause| {
            let mut sources = Vec::new();
            sources_below(clause, &mut sources);
            Some(ClauseSeen {
                column: clause.event_time().to_owned(),
                sources,
                observed: observed.get(clause.clause()).copied().flatten()?,
                times: self.epoch.times(clause.clause()),
                max_future: clause.max_future(),
                idle_since_ms: idleness.idle_since_ms(clause.clause()),
            })
        });
        seen.collect()
    }

    /// Merges state that many epochs have left in pieces.
    pub(super) async fn compact(&self, parts: &Parts) -> Result<()> {
        for gate in parts.gates() {
            gate.compact(&self.context).await?;
        }
        Ok(())
    }

    /// Undoes what the epoch did.
    pub(super) fn abort(&self) {
        self.epoch.state.abort();
    }
}
