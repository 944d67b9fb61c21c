//! Tables that are streams without the word STREAM.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Result, TableReference};
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlanProperties;

use crate::logical::option_scan;
use crate::source::AppendTable;
use crate::sql::as_stream;

/// Resolved names of tables that were created UNBOUNDED.
#[derive(Debug, Default)]
pub struct UnboundedTables {
    names: RwLock<HashSet<String>>,
}

impl UnboundedTables {
    /// Declares a table a stream.
    pub fn insert(&self, name: String) {
        self.names
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name);
    }

    /// Forgets a table.
    pub fn remove(&self, name: &str) {
        self.names
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }

    /// A plan that reads as streams the tables that were declared so, and those whose scan never ends.
    /// Options that were given to other tables leave the plan.
    ///
    /// # Errors
    /// - none of its own
    pub async fn as_streams(&self, plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
        let streams = self.found_in(&plan, state).await?;
        let plan = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = &node else {
                return Ok(Transformed::no(node));
            };
            let (scan, options, place) = match option_scan(&scan.source) {
                None => (scan.clone(), Vec::new(), None),
                Some(given) => {
                    let mut table = scan.clone();
                    table.source = Arc::clone(&given.table);
                    (table, given.options.clone(), given.place)
                }
            };
            Ok(match streams.contains(&scan.table_name) {
                true => {
                    Transformed::yes(as_stream(&scan, &options, place, state.config_options())?)
                }
                false => Transformed::yes(LogicalPlan::TableScan(scan)),
            })
        })?;
        Ok(plan.data)
    }

    /// Names of the scans that are unbounded.
    async fn found_in(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<HashSet<TableReference>> {
        let mut found = HashSet::new();
        let catalog = &state.config_options().catalog;
        for (name, provider) in finite_scans(plan)? {
            let resolved = name
                .clone()
                .resolve(&catalog.default_catalog, &catalog.default_schema)
                .to_string();
            let declared = self
                .names
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&resolved);
            if declared || never_ends(&provider, state).await {
                found.insert(name);
            }
        }
        Ok(found)
    }
}

/// The tables that a plan reads and that are not streams yet.
fn finite_scans(plan: &LogicalPlan) -> Result<Vec<(TableReference, Arc<dyn TableProvider>)>> {
    let mut scans = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let source = option_scan(&scan.source).map_or(&scan.source, |given| &given.table)
            && let Ok(provider) = source_as_provider(source)
        {
            scans.push((scan.table_name.clone(), provider));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(scans)
}

/// Whether a table's scan never ends. Tables that are known to be finite are not asked.
async fn never_ends(provider: &Arc<dyn TableProvider>, state: &SessionState) -> bool {
    if provider.is::<AppendTable>() || provider.is::<ListingTable>() || provider.is::<MemTable>() {
        return false;
    }
    match provider.scan(state, Some(&Vec::new()), &[], Some(0)).await {
        Ok(scan) => scan.boundedness().is_unbounded(),
        // The error comes when the query is planned.
        Err(_) => false,
    }
}
