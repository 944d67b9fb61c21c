//! Keeps DataFusion's optimizer from changing what a watermark sees, and from plans that were not analyzed.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::scan::is_stream_scan;

/// Optimizer rules that could remove a stream, or move a filter below a WATERMARK clause.
const CHANGES_STREAMS: [&str; 4] = [
    // `WHERE false` would become an empty relation: the stream would not be read.
    "eliminate_filter",
    // … and so would whatever stands above an empty relation.
    "propagate_empty_relation",
    // A conjunct without columns would move through any extension node.
    "push_down_filter",
    // A LIMIT 0 would do what `WHERE false` does.
    "eliminate_limit",
];

/// A rule of DataFusion's that leaves alone the nodes whose change a watermark would notice.
///
/// It leaves alone all of a statement that is being prepared: DataFusion optimizes one without analyzing
/// it, when windows are not in their aggregates yet and `DISTINCT ON` lacks the functions it needs. What
/// is executed later is analyzed and optimized then.
#[derive(Debug)]
pub struct KeepStreams {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
    changes_streams: bool,
}

impl KeepStreams {
    /// Puts a rule behind this guard.
    pub fn guard(
        rule: Arc<dyn OptimizerRule + Send + Sync>,
    ) -> Arc<dyn OptimizerRule + Send + Sync> {
        let changes_streams = CHANGES_STREAMS.contains(&rule.name());
        Arc::new(Self {
            rule,
            changes_streams,
        })
    }

    /// Whether the rule must leave this node alone.
    fn keeps(&self, plan: &LogicalPlan) -> Result<bool> {
        if self.rule.name() == "push_down_filter" {
            return Ok(matches!(
                plan,
                LogicalPlan::Filter(filter) if matches!(filter.input.as_ref(), LogicalPlan::Extension(_))
            ) && plan.exists(|node| Ok(is_stream_scan(node)))?);
        }
        plan.exists(|node| Ok(is_stream_scan(node)))
    }
}

impl OptimizerRule for KeepStreams {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        // Only the context of a PREPARE knows no functions.
        let prepared = config.function_registry().is_none();
        if prepared || self.changes_streams && self.keeps(&plan)? {
            return Ok(Transformed::no(plan));
        }
        self.rule.rewrite(plan, config)
    }
}
