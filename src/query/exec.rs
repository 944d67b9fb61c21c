//! The root of the streaming part of a physical plan.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use super::attach::{Attached, RunState};
use super::metrics::RunMetrics;
use super::run::{Output, Run};
use crate::config::{OutputMode, WatermarkPolicy, rebuilt};
use crate::logical::{StreamQuery, is_stream_scan};
use crate::physical::one_child;
use crate::physical::planner::StreamPlanner;
use crate::state::MEMORY_LIMIT;

/// Runs the plan below in epochs, and gives the rows that the epochs emit as one stream.
///
/// With an [`Attached`] in the task's session configuration the rows go to its streaming table
/// instead, and the stream is empty.
pub struct StreamQueryExec {
    input: Arc<dyn ExecutionPlan>,
    mode: OutputMode,
    policy: WatermarkPolicy,
    session: Arc<SessionState>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for StreamQueryExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamQueryExec")
            .field("mode", &self.mode)
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

impl StreamQueryExec {
    fn new(
        input: Arc<dyn ExecutionPlan>,
        mode: OutputMode,
        policy: WatermarkPolicy,
        session: Arc<SessionState>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            input,
            mode,
            policy,
            session,
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for StreamQueryExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "StreamQueryExec: mode={}", self.mode)
    }
}

impl ExecutionPlan for StreamQueryExec {
    fn name(&self) -> &str {
        "StreamQueryExec"
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
        Ok(Arc::new(Self::new(
            one_child(children)?,
            self.mode,
            self.policy,
            Arc::clone(&self.session),
        )))
    }

    /// Those of all epochs. The nodes below are made anew for each epoch and tell nothing here.
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("a streaming query has one partition");
        }
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema(), 2);
        let attached = context.session_config().get_extension::<Attached>();
        let output = match &attached {
            Some(attached) => Output::Table(Arc::clone(attached)),
            None => Output::Reader(builder.tx()),
        };
        let run = Run {
            plan: Arc::clone(&self.input),
            mode: self.mode,
            policy: self.policy,
            session: Arc::clone(&self.session),
            context,
            output,
            metrics: RunMetrics::new(&self.metrics),
        };
        builder.spawn(async move {
            let done = match attached {
                Some(attached) => match attached.turn().await {
                    Some(mut state) => run.run(&mut state).await,
                    None => Ok(()),
                },
                None => run.run(&mut RunState::default()).await,
            };
            done.map_err(with_memory_limit)
        });
        Ok(builder.build())
    }
}

/// Names the settings where an operator of DataFusion's has no memory: ours do.
fn with_memory_limit(error: DataFusionError) -> DataFusionError {
    let exhausted = matches!(error.find_root(), DataFusionError::ResourcesExhausted(_));
    if !exhausted || error.to_string().contains(MEMORY_LIMIT) {
        return error;
    }
    error.context(format!(
        "an operator above the state has no memory; {MEMORY_LIMIT} raises the limit"
    ))
}

/// DataFusion's planner with our nodes.
#[derive(Debug, Default)]
pub struct QueryPlanner;

#[async_trait]
impl datafusion::execution::context::QueryPlanner for QueryPlanner {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![
            Arc::new(RootPlanner),
            Arc::new(StreamPlanner),
        ]);
        let streams = logical_plan.exists(|node| Ok(is_stream_scan(node)))?;
        match session.as_any().downcast_ref::<SessionState>() {
            Some(state) if streams => {
                planner
                    .create_physical_plan(logical_plan, &for_streams(state)?)
                    .await
            }
            _ => planner.create_physical_plan(logical_plan, session).await,
        }
    }
}

/// A session's state for planning streams. Dynamic filters are off: one that a join or a sort has
/// filled in an epoch would drop rows of the next.
fn for_streams(state: &SessionState) -> Result<SessionState> {
    let mut config = state.config().clone();
    config.options_mut().set(
        "datafusion.optimizer.enable_dynamic_filter_pushdown",
        "false",
    )?;
    Ok(rebuilt(state.clone(), config).build())
}

/// Plans the root.
struct RootPlanner;

#[async_trait]
impl ExtensionPlanner for RootPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(query), Some(input)) = (
            node.as_any().downcast_ref::<StreamQuery>(),
            physical_inputs.first(),
        ) else {
            return Ok(None);
        };
        let state = session
            .as_any()
            .downcast_ref::<SessionState>()
            .ok_or_else(|| {
                internal_datafusion_err!("streaming queries are planned by a SessionState")
            })?;
        let exec = StreamQueryExec::new(
            Arc::clone(input),
            query.mode,
            query.policy,
            Arc::new(state.clone()),
        );
        Ok(Some(Arc::new(exec)))
    }
}
