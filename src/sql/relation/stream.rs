//! `STREAM t`: the table under the name becomes a stream, with the options of its `WITH` list.

use std::sync::Arc;

use datafusion::common::config::{ConfigOptions, ExtensionOptions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use sqlparser::ast::TableAlias;

use super::LoweredCall;
use crate::config::TidegateOptions;
use crate::error::{Place, Refusal, refusal};
use crate::logical::{OptionScan, StreamScan, stream_scan};
use crate::source::no_epoch_column;

/// The options of a call, checked.
fn options(call: &LoweredCall<'_>, place: Option<Place>) -> Result<Vec<(String, String)>> {
    let mut options = Vec::new();
    let mut at = 2;
    while let (Some(key), Some(value)) = (call.text(at), call.text(at + 1)) {
        if !STREAM_OPTIONS.contains(&key) {
            return Err(Refusal::new(
                "INVALID_STREAM_OPTION",
                "42616",
                format!("A stream has no option '{key}'."),
            )
            .at(place)
            .hint(format!("the options are {}", STREAM_OPTIONS.join(", ")))
            .into());
        }
        TidegateOptions::default()
            .set(key, value)
            .map_err(|error| match refusal(&error) {
                Some(found) => {
                    let refused = Refusal {
                        condition: "INVALID_STREAM_OPTION",
                        sql_state: "42616",
                        ..found.clone()
                    };
                    DataFusionError::from(refused.at(place))
                }
                None => error,
            })?;
        options.push((key.to_owned(), value.to_owned()));
        at += 2;
    }
    Ok(options)
}

/// `t WITH (…)`: the options wait with the table until it is known whether it is a stream.
pub(super) fn plan_options(
    call: &LoweredCall<'_>,
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let place = call.place(0);
    let options = options(call, place)?;
    let plan = call.plan(alias, context)?.transform_up(|node| match node {
        LogicalPlan::TableScan(mut scan) if stream_scan(&scan.source).is_none() => {
            has_epoch_column(&scan, &options, place)?;
            scan.source = Arc::new(OptionScan {
                table: Arc::clone(&scan.source),
                options: options.clone(),
                place,
            });
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(plan.data)
}

/// `STREAM t`: the one table under the name becomes a stream.
pub(super) fn plan_stream(
    call: &LoweredCall<'_>,
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let place = call.place(0);
    let options = options(call, place)?;
    let plan = call.plan(alias, context)?;
    let (mut finite, mut streams) = (0, 0);
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            if crate::logical::is_stream_scan(node) {
                streams += 1
            } else {
                finite += usize::from(source_as_provider(&scan.source).is_ok())
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if finite + streams != 1 {
        return Err(Refusal::new(
            "UNSUPPORTED_STREAM_SOURCE",
            "42KDE",
            "STREAM needs one table: this name reads none or several.",
        )
        .at(place)
        .hint("write STREAM before the table that is meant, inside the view or subquery")
        .into());
    }
    let plan = plan.transform_up(|node| match &node {
        LogicalPlan::TableScan(scan) if !crate::logical::is_stream_scan(&node) => {
            has_epoch_column(scan, &options, place)?;
            Ok(Transformed::yes(as_stream(
                scan,
                &options,
                place,
                context.context_provider().options(),
            )?))
        }
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(plan.data)
}

/// `epoch_by` must name a column of the table.
fn has_epoch_column(
    scan: &TableScan,
    options: &[(String, String)],
    place: Option<Place>,
) -> Result<()> {
    let schema = scan.source.schema();
    let unknown = options
        .iter()
        .find(|(key, column)| key == "epoch_by" && schema.index_of(column).is_err());
    match unknown {
        None => Ok(()),
        Some((_, column)) => Err(no_epoch_column(&scan.table_name.to_string(), column)
            .at(place)
            .into()),
    }
}

/// Options of `WITH (…)` behind a stream's name.
const STREAM_OPTIONS: [&str; 7] = [
    "epoch_by",
    "initial_order",
    "max_rows_per_epoch",
    "max_files_per_epoch",
    "on_bad_record",
    "max_future",
    "idle_timeout",
];

/// A scan whose rows come epoch by epoch.
pub(crate) fn as_stream(
    scan: &TableScan,
    options: &[(String, String)],
    place: Option<Place>,
    config: &ConfigOptions,
) -> Result<LogicalPlan> {
    let catalog = &config.catalog;
    let name = scan
        .table_name
        .clone()
        .resolve(&catalog.default_catalog, &catalog.default_schema);
    let source = StreamScan {
        name: name.to_string(),
        provider: source_as_provider(&scan.source)?,
        options: options.to_vec(),
        event_time: None,
        place,
    };
    let mut stream = scan.clone();
    stream.source = Arc::new(source);
    Ok(LogicalPlan::TableScan(stream))
}
