//! What a WATERMARK clause is told by the options of its streams and by the session.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::common::config::ExtensionOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;

use super::StreamScanExec;
use crate::config::{OptionalSpan, TidegateOptions, options};

/// `max_future` and `idle_timeout` of a clause over this input. A stream's own options go before the session's; where a
/// clause is over several streams the longest holds, for a row's stream is not known to it.
pub(super) fn clause_limits(
    input: &Arc<dyn ExecutionPlan>,
    session: &dyn Session,
) -> Result<[OptionalSpan; 2]> {
    let settings = options(session.config_options());
    let mut streams = Vec::new();
    input.apply(|node| {
        if let Some(scan) = node.downcast_ref::<StreamScanExec>() {
            let mut own = settings.clone();
            for (key, value) in scan.options() {
                own.set(key, value)?;
            }
            streams.push(own);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let longest =
        |of: fn(&TidegateOptions) -> OptionalSpan| OptionalSpan::longest(streams.iter().map(of));
    Ok([
        longest(|own| own.max_future),
        longest(|own| own.idle_timeout),
    ])
}
