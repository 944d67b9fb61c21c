//! The table functions: what each gives is computed when it is read.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, internal_datafusion_err, plan_err};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::correction::{Correction, correct_schema};
use super::lines::{audit, audit_schema};
use super::plans::finite;
use super::snapshot::{Snapshot, not_again};
use crate::catalog::functions::find;
use crate::catalog::registry::StreamingTables;
use crate::catalog::streaming_table::StreamingTable;
use crate::catalog::unbounded::UnboundedTables;
use crate::config::rebuilt;
use crate::error::Refusal;
use crate::logical::{stream_scan, stream_scans};
use crate::query::Attached;
use crate::source::conform;

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
        Ok(Answer::table(What::Recount, table, &self.1, schema))
    }
}

impl TableFunctionImpl for AuditFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let table = named(&self.0, &args, "audit")?;
        let definition = table.definition();
        let schema = audit_schema(&definition.schema, &definition.shape.clone()?);
        Ok(Answer::table(What::Audit, table, &self.1, schema))
    }
}

impl TableFunctionImpl for CorrectFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let table = named(&self.0, &args, "correct")?;
        table.definition().shape.clone()?;
        let schema = correct_schema(&table.definition().schema);
        Ok(Answer::table(What::Correction, table, &self.1, schema))
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

/// The answer of a function, as a table.
#[derive(Debug)]
struct Answer {
    what: What,
    table: Arc<StreamingTable>,
    unbounded: Arc<UnboundedTables>,
    schema: SchemaRef,
}

impl Answer {
    /// The answer to a question about a table.
    fn table(
        what: What,
        table: Arc<StreamingTable>,
        unbounded: &Arc<UnboundedTables>,
        schema: SchemaRef,
    ) -> Arc<dyn TableProvider> {
        Arc::new(Self {
            what,
            table,
            unbounded: Arc::clone(unbounded),
            schema,
        })
    }

    /// The plan of a recount.
    async fn recount(&self, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
        let (plan, state) = self.table.unanalyzed(state, &self.unbounded).await?;
        for stream in stream_scans(&plan)?.iter().filter_map(stream_scan) {
            let scan = stream.provider.scan(&state, None, &[], None).await?;
            if scan.boundedness().is_unbounded() {
                return Err(not_again(&stream.name).into());
            }
        }
        state.create_physical_plan(&finite(plan, None)?).await
    }
}

#[async_trait]
impl TableProvider for Answer {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let state = state.as_any().downcast_ref::<SessionState>();
        let state = state.ok_or_else(|| internal_datafusion_err!("a session of another kind"))?;
        let state = asking(state, self.table.name())?;
        let recount = match self.what {
            What::Recount => Some(self.recount(&state).await?),
            What::Audit | What::Correction => None,
        };
        let asked = Asked {
            what: self.what,
            table: Arc::clone(&self.table),
            unbounded: Arc::clone(&self.unbounded),
            state,
            recount,
            schema: self.schema(),
        };
        Ok(Arc::new(StreamingTableExec::try_new(
            self.schema(),
            vec![Arc::new(asked)],
            projection,
            None,
            false,
            limit,
        )?))
    }
}

/// What is computed when the table is read.
struct Asked {
    what: What,
    table: Arc<StreamingTable>,
    unbounded: Arc<UnboundedTables>,
    state: SessionState,
    recount: Option<Arc<dyn ExecutionPlan>>,
    schema: SchemaRef,
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked")
            .field("what", &self.what)
            .field("table", &self.table.name())
            .finish_non_exhaustive()
    }
}

impl PartitionStream for Asked {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        if let Some(plan) = &self.recount {
            let plan = Arc::clone(plan);
            let rows = async move { execute_stream(plan, context) };
            let shown = Arc::clone(&schema);
            let rows = futures::stream::once(rows).try_flatten();
            let rows = rows.map(move |batch| conform(&batch?, &shown));
            return Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        }
        let (what, state) = (self.what, self.state.clone());
        let (table, unbounded) = (Arc::clone(&self.table), Arc::clone(&self.unbounded));
        let shown = Arc::clone(&schema);
        let rows = async move { compute(what, &table, &unbounded, &state, &shown, &context).await };
        let rows = futures::stream::once(rows.boxed());
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

async fn compute(
    what: What,
    table: &StreamingTable,
    unbounded: &UnboundedTables,
    state: &SessionState,
    schema: &SchemaRef,
    context: &Arc<TaskContext>,
) -> Result<RecordBatch> {
    // An epoch that waits for an audit would wait for its own end.
    if context
        .session_config()
        .get_extension::<Attached>()
        .is_some()
    {
        return Err(recursive("A streaming table").into());
    }
    if what == What::Correction {
        let correction = Correction::find(table, state, unbounded, context).await?;
        return correction.to_rows();
    }
    let snapshot = Snapshot::take(table, state, unbounded, true).await?;
    audit(&snapshot, schema, context).await
}
