//! The table functions: what each gives is computed when it is read.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, plan_err};
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::correction::{Correction, correct_schema};
use super::lines::{audit, audit_schema};
use super::plans::finite;
use super::snapshot::{Snapshot, not_again, reads_of_files, redefined};
use crate::catalog::computed::{Computed, ComputedTable, Work, one_batch};
use crate::catalog::functions::{find, unknown};
use crate::catalog::registry::StreamingTables;
use crate::catalog::streaming_table::StreamingTable;
use crate::catalog::unbounded::UnboundedTables;
use crate::config::rebuilt;
use crate::error::Refusal;
use crate::logical::{stream_scan, stream_scans};
use crate::query::Attached;
use crate::source::{ReadEnv, Reads, conform, has_lines, held};

/// `recount('name')`: the same query as a batch, over what the sources hold now.
#[derive(Debug)]
pub struct RecountFunction(pub Arc<StreamingTables>, pub Arc<UnboundedTables>);

/// `audit('name')`: for each group, what the stream emitted against the recount, and why they differ.
#[derive(Debug)]
pub struct AuditFunction(pub Arc<StreamingTables>, pub Arc<UnboundedTables>);

/// `correct('name')`: the rows to write over the result so that its closed windows are the recount.
#[derive(Debug)]
pub struct CorrectFunction(pub Arc<StreamingTables>, pub Arc<UnboundedTables>);

impl TableFunctionImpl for RecountFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let table = named(&self.0, &args, "recount")?;
        let schema = Arc::clone(&table.definition().schema);
        Ok(Answer::table(
            What::Recount,
            table,
            &self.0,
            &self.1,
            schema,
        ))
    }
}

impl TableFunctionImpl for AuditFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let table = named(&self.0, &args, "audit")?;
        let definition = table.definition();
        let schema = audit_schema(&definition.schema, &definition.shape.clone()?)?;
        Ok(Answer::table(What::Audit, table, &self.0, &self.1, schema))
    }
}

impl TableFunctionImpl for CorrectFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let table = named(&self.0, &args, "correct")?;
        table.definition().shape.clone()?;
        let schema = correct_schema(&table.definition().schema)?;
        Ok(Answer::table(
            What::Correction,
            table,
            &self.0,
            &self.1,
            schema,
        ))
    }
}

/// The streaming tables whose recounts are being planned, one inside the other; an extension of the session's
/// configuration.
#[derive(Debug)]
struct Asking(Vec<String>);

/// A session's state for what is asked of a table.
///
/// # Errors
/// - `RECURSIVE_STREAMING_TABLE`: the table's own query asks for it
fn asking(state: &SessionState, table: &str) -> Result<SessionState> {
    let outer = state.config().get_extension::<Asking>();
    let mut names = outer.map_or_else(Vec::new, |outer| outer.0.clone());
    if names.iter().any(|name| name == table) {
        return Err(recursive(table).into());
    }
    names.push(table.to_owned());
    let config = state
        .config()
        .clone()
        .with_extension(Arc::new(Asking(names)));
    Ok(rebuilt(state.clone(), config).build())
}

/// The refusal of a table that is recounted by itself.
fn recursive(table: &str) -> Refusal {
    Refusal::new(
        "RECURSIVE_STREAMING_TABLE",
        "42P20",
        format!("The query of {table} asks for a recount, an audit or corrections of its own."),
    )
    .hint("ask for them in a query of your own")
}

/// The streaming table that a call names.
fn named(
    tables: &StreamingTables,
    args: &TableFunctionArgs,
    function: &str,
) -> Result<Arc<StreamingTable>> {
    match args.exprs() {
        [name] => find(tables, name),
        _ => plan_err!(
            "{function}() takes the name of a streaming table: {function}('hourly_sales')"
        ),
    }
}

/// What is asked of a streaming table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Recount,
    Audit,
    Correction,
}

/// The answer of a function.
#[derive(Debug, Clone)]
struct Answer {
    what: What,
    table: Arc<StreamingTable>,
    tables: Arc<StreamingTables>,
    unbounded: Arc<UnboundedTables>,
    schema: SchemaRef,
}

impl Answer {
    /// The answer to a question about a table.
    fn table(
        what: What,
        table: Arc<StreamingTable>,
        tables: &Arc<StreamingTables>,
        unbounded: &Arc<UnboundedTables>,
        schema: SchemaRef,
    ) -> Arc<dyn TableProvider> {
        Arc::new(ComputedTable(Self {
            what,
            table,
            tables: Arc::clone(tables),
            unbounded: Arc::clone(unbounded),
            schema,
        }))
    }

    /// The same of the table as it is defined now: a view that asks may be older than its definition.
    ///
    /// # Errors
    /// - it is gone, or has other columns
    fn of_now(&self) -> Result<Self> {
        let name = self.table.bare_name();
        let table = self.tables.get(self.table.name());
        let table = table.ok_or_else(|| unknown(name))?;
        if table.definition().schema != self.table.definition().schema {
            return plan_err!("{name} has other columns than when this was planned: plan it again");
        }
        Ok(Self {
            table,
            ..self.clone()
        })
    }

    /// The plan of a recount.
    async fn recount(&self, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
        let (plan, own) = self.table.unanalyzed(state, &self.unbounded).await?;
        let reads = reads_of_files(&self.table, &plan, state, &self.unbounded).await?;
        for stream in stream_scans(&plan)?.iter().filter_map(stream_scan) {
            let scan = stream.provider.scan(&own, None, &[], None).await?;
            if scan.boundedness().is_unbounded() {
                return Err(not_again(&stream.name).into());
            }
        }
        let plan = as_streams_read(plan, &reads, &own).await?;
        own.create_physical_plan(&finite(plan, None)?).await
    }
}

/// A plan over what its streams would read of files that consist of lines: DataFusion's own table finds the columns of
/// CSV by their places, and leaves no bad record out.
async fn as_streams_read(
    plan: LogicalPlan,
    reads: &[Reads],
    state: &SessionState,
) -> Result<LogicalPlan> {
    let mut tables = HashMap::new();
    for stream in stream_scans(&plan)?.iter().filter_map(stream_scan) {
        let files = stream.provider.downcast_ref::<ListingTable>();
        let reads = reads.iter().find(|one| one.source == stream.name);
        if let (Some(files), Some(reads)) = (files.filter(|files| has_lines(files)), reads) {
            let held = held(files, reads, None, &ReadEnv::of(state)).await?;
            tables.insert(stream.name.clone(), held.all);
        }
    }
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = &node else {
            return Ok(Transformed::no(node));
        };
        let table = stream_scan(&scan.source).and_then(|stream| tables.get(&stream.name));
        let Some(table) = table else {
            return Ok(Transformed::no(node));
        };
        let mut scan = scan.clone();
        scan.source = provider_as_source(Arc::clone(table));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(plan.data)
}

#[async_trait]
impl Computed for Answer {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn plan(&self, session: &SessionState) -> Result<Work> {
        let state = asking(session, self.table.name())?;
        let asked = self.of_now()?;
        if self.what == What::Recount {
            return Ok(rows_of(asked.recount(&state).await?, &self.schema));
        }
        Ok(asked.work(state))
    }
}

/// The rows of a plan, in these columns.
fn rows_of(plan: Arc<dyn ExecutionPlan>, schema: &SchemaRef) -> Work {
    let schema = Arc::clone(schema);
    Box::new(move |context| {
        let (plan, shown) = (Arc::clone(&plan), Arc::clone(&schema));
        let rows = futures::stream::once(async move { execute_stream(plan, context) });
        let rows = rows.try_flatten();
        let rows = rows.map(move |batch| conform(&batch?, &shown));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows))
    })
}

impl Answer {
    /// An audit or a correction.
    fn work(self, state: SessionState) -> Work {
        let state = Arc::new(state);
        Box::new(move |context| {
            let (asked, state) = (self.clone(), Arc::clone(&state));
            let schema = Arc::clone(&asked.schema);
            let batch = async move { asked.compute(&state, &context).await };
            one_batch(&schema, batch.boxed())
        })
    }

    async fn compute(
        &self,
        state: &SessionState,
        context: &Arc<TaskContext>,
    ) -> Result<RecordBatch> {
        // An epoch that waits for an audit would wait for its own end.
        let config = context.session_config();
        if config.get_extension::<Attached>().is_some() {
            return Err(recursive("A streaming table").into());
        }
        if self.what == What::Correction {
            let found = Correction::find(&self.table, state, &self.unbounded, context);
            return found.await?.to_rows();
        }
        if self.table.is_mixed() {
            return Err(redefined(self.table.bare_name()).into());
        }
        let snapshot = Snapshot::take(&self.table, state, &self.unbounded, true).await?;
        audit(&snapshot, &self.schema, context).await
    }
}
