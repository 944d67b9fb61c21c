//! [`StreamContext`]: the only place that installs rules, planners and functions into DataFusion.

mod advance;
mod clock;
mod database;
mod define;
mod guards;
mod started;
mod streaming;
mod ticker;
mod triggers;

pub use crate::source::Clock;
pub use database::Unopened;
pub use ticker::Ticker;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ExtensionOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{
    DataFusionError, ResolvedTableReference, Result, TableReference, exec_err, plan_err,
};
use datafusion::dataframe::DataFrame;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{
    AggregateUDF, DdlStatement, LogicalPlan, LogicalPlanBuilder, ScalarUDF,
    Statement as LogicalStatement,
};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;
use futures::future::BoxFuture;
use sqlparser::dialect::dialect_from_str;
use tokio::sync::watch;

use self::clock::ContextClock;
use self::started::{Home, Started};
use crate::catalog::{
    AuditFunction, CorrectFunction, Database, EmittedFunction, Entry, Kind, LateRowsFunction,
    LatenessFunction, OutOfOrderFunction, PlotFunction, ProgressFunction, RecountFunction,
    StreamingTable, StreamingTables, UnboundedTables, unknown,
};
use crate::config::{TidegateOptions, rebuilt};
use crate::error::Refusal;
use crate::logical::{KeepStreams, Misplaced, StreamAnalyzer, WindowTime};
use crate::picture::{Picture, View};
use crate::query::{EpochProgress, Lines, Live, LiveSender, QueryClock, QueryPlanner};
use crate::sink::Sink;
use crate::source::AppendTable;
use crate::sql::{CheckedSum, LOWERED, Parsed, StreamRelations, parse};

/// A DataFusion session that knows streams.
///
/// It wraps a [`SessionContext`], yours or a new one: everything that DataFusion does keeps working on
/// either. Clones share the session. Its futures are boxed: what they run is compiled with this crate, once,
/// and not again in every program that awaits them.
///
/// ```
/// # use tidegate::prelude::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::common::Result<()> {
/// let ctx = StreamContext::new()?;
/// ctx.sql("CREATE TABLE orders (amount DOUBLE, event_time TIMESTAMP)").await?;
/// ctx.sql(
///     "CREATE STREAMING TABLE hourly AS
///      SELECT window.start AS hour, sum(amount) AS revenue
///      FROM STREAM orders WATERMARK event_time DELAY OF INTERVAL 10 MINUTES
///      GROUP BY window(event_time, '1 hour')",
/// )
/// .await?;
/// ctx.sql("INSERT INTO orders VALUES (20, '2026-10-01T09:05:00'), (5, '2026-10-01T10:12:00')").await?.collect().await?;
/// let epochs = ctx.refresh("hourly").await?;
/// assert_eq!(epochs[0].watermark.as_deref(), Some("2026-10-01T10:02:00"));
/// assert_eq!(epochs[0].output_rows, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StreamContext {
    session: SessionContext,
    tables: Arc<StreamingTables>,
    /// Tables that are streams without the word STREAM.
    unbounded: Arc<UnboundedTables>,
    live: Arc<LiveSender>,
    /// Where everything is kept, if it is.
    database: Option<Arc<Database>>,
    /// Whether directories that rows are written to are this machine's.
    outside: bool,
    unopened: Arc<Mutex<Vec<Unopened>>>,
    /// Sinks of the application, by name.
    sinks: Arc<RwLock<HashMap<String, Arc<dyn Sink>>>>,
    /// What a query that was started needs while it refreshes.
    home: Arc<Home>,
    /// Those queries.
    started: Arc<Started>,
    /// By which rows are old, of the future, or long in coming.
    clock: Arc<ContextClock>,
}

impl fmt::Debug for StreamContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamContext")
            .field("session", &self.session.session_id())
            .finish_non_exhaustive()
    }
}

impl StreamContext {
    /// A new session, with `information_schema` (SHOW TABLES) and errors that know their place.
    ///
    /// # Errors
    /// - none at present
    pub fn new() -> Result<Self> {
        let mut config = SessionConfig::new().with_information_schema(true);
        config.options_mut().sql_parser.collect_spans = true;
        Self::over(SessionContext::new_with_config(config))
    }

    /// Installs Tidegate into a session; its settings, tables and functions stay.
    ///
    /// # Errors
    /// - none at present
    pub fn over(session: SessionContext) -> Result<Self> {
        Self::over_by(session, Arc::default())
    }

    /// The same by a clock that there is.
    fn over_by(session: SessionContext, clock: Arc<ContextClock>) -> Result<Self> {
        let tables: Arc<StreamingTables> = Arc::default();
        let live = Arc::new(LiveSender(watch::Sender::default()));
        let state = install(session.state(), &live, &clock)?;
        *session.state_ref().write() = state;
        session.register_udf(ScalarUDF::from(WindowTime::default()));
        for name in ["window", "session_window"] {
            session.register_udf(ScalarUDF::from(Misplaced::new(name)));
        }
        session.register_udaf(AggregateUDF::from(CheckedSum::default()));
        session.register_udtf("late_rows", Arc::new(LateRowsFunction(Arc::clone(&tables))));
        session.register_udtf("progress", Arc::new(ProgressFunction(Arc::clone(&tables))));
        session.register_udtf("emitted", Arc::new(EmittedFunction(Arc::clone(&tables))));
        session.register_udtf("lateness", Arc::new(LatenessFunction));
        session.register_udtf("out_of_order", Arc::new(OutOfOrderFunction));
        let unbounded: Arc<UnboundedTables> = Arc::default();
        let plot = PlotFunction {
            tables: Arc::clone(&tables),
            unbounded: Arc::clone(&unbounded),
        };
        session.register_udtf("plot", Arc::new(plot));
        let (of, streams) = (Arc::clone(&tables), Arc::clone(&unbounded));
        let recount = RecountFunction(Arc::clone(&of), Arc::clone(&streams));
        let audit = AuditFunction(Arc::clone(&of), Arc::clone(&streams));
        session.register_udtf("recount", Arc::new(recount));
        session.register_udtf("audit", Arc::new(audit));
        session.register_udtf("correct", Arc::new(CorrectFunction(of, streams)));
        let home = Home {
            session: session.clone(),
            tables: Arc::clone(&tables),
            unbounded: Arc::clone(&unbounded),
        };
        Ok(Self {
            session,
            tables,
            unbounded,
            live,
            database: None,
            outside: true,
            unopened: Arc::default(),
            sinks: Arc::default(),
            home: Arc::new(home),
            started: Arc::default(),
            clock,
        })
    }

    /// The DataFusion session below.
    pub fn session(&self) -> &SessionContext {
        &self.session
    }

    /// Plans one statement. Statements that define something have run when this returns; a query or an
    /// INSERT runs when its [`DataFrame`] is read. REFRESH returns a row for each epoch.
    ///
    /// A query over a stream reads what its sources hold now, in epochs, and ends there; over an
    /// endless source it goes on until the reader stops: read it with
    /// [`execute_stream`](DataFrame::execute_stream).
    ///
    /// # Errors
    /// - syntax and names, each with its place in the text ([`render`](crate::error::render))
    /// - what a stream cannot do, each with its condition name
    pub fn sql<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<DataFrame>> {
        // Some texts make DataFusion's planner panic: that is an error of the statement, not the end of
        // the program. A planner that stops half way leaves nothing behind in the session.
        let planned = AssertUnwindSafe(self.statement(sql)).catch_unwind();
        planned
            .map(|planned| planned.unwrap_or_else(|panic| Err(panicked(&*panic))))
            .boxed()
    }

    /// Plans one statement, and runs it if it defines something.
    async fn statement(&self, sql: &str) -> Result<DataFrame> {
        let state = self.session.state();
        let (statement, retain) = match read(sql, &state)? {
            Parsed::Streaming(statement) => {
                return Box::pin(self.streaming(*statement)).await;
            }
            Parsed::DataFusion(statement) => (statement, None),
            Parsed::Retaining(statement, retain) => (statement, Some(retain)),
        };
        let plan = state.statement_to_plan(*statement).await?;
        let asked = Asked { sql, retain };
        Box::pin(self.run(as_written(plan, sql), asked)).await
    }

    /// Runs a query as a stream of record batches, which come as windows close.
    ///
    /// # Errors
    /// - those of [`sql`](Self::sql)
    pub fn stream<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<SendableRecordBatchStream>> {
        async move { self.sql(sql).await?.execute_stream().await }.boxed()
    }

    /// Creates an append-only table, as `CREATE TABLE` does.
    ///
    /// # Errors
    /// - a table of this name exists
    pub fn create_table(&self, name: &str, schema: SchemaRef) -> Result<()> {
        if self.session.table_exist(name)? {
            return exec_err!("Table '{name}' already exists");
        }
        let resolved = self.resolved(&TableReference::parse_str(name));
        let (log, id) = self.new_log(&resolved.to_string(), Arc::clone(&schema), None)?;
        if let (Some(database), Some(id)) = (&self.database, id) {
            database.put(Entry {
                id,
                schema: Some(schema),
                ..Entry::new(&resolved, Kind::TableOfRows, "")
            })?;
        }
        let table = AppendTable::new(name, Arc::new(log));
        self.session.register_table(name, Arc::new(table))?;
        Ok(())
    }

    /// Makes a sink known: `CREATE STREAMING TABLE … WITH (sink = 'name')` sends the rows of its epochs there.
    pub fn register_sink(&self, name: impl Into<String>, sink: Arc<dyn Sink>) {
        let mut sinks = self.sinks.write().unwrap_or_else(PoisonError::into_inner);
        sinks.insert(name.into(), sink);
    }

    /// Adds rows to an append-only table, in order of arrival; the batch has the table's columns.
    ///
    /// # Errors
    /// - there is no such table, or it is not append-only
    /// - the batch's columns are not the table's
    pub fn append<'a>(&'a self, table: &'a str, batch: RecordBatch) -> BoxFuture<'a, Result<()>> {
        async move {
            let provider = self.session.table_provider(table).await?;
            match provider.downcast_ref::<AppendTable>() {
                Some(table) => {
                    table.log().append(&[batch])?;
                    // The rows are in; what could not be removed is by the next who tries.
                    table.log().let_go().ok();
                    Ok(())
                }
                None => exec_err!("'{table}' is not an append-only table: CREATE TABLE makes one"),
            }
        }
        .boxed()
    }

    /// Reads what has arrived into a streaming table, in epochs; returns their records. At least one
    /// epoch runs. Refreshes of one table run one after the other, also where its query was started.
    ///
    /// # Errors
    /// - there is no such streaming table
    /// - those of the sources and the query; the epoch that failed is undone and is tried again by the
    ///   next refresh
    pub fn refresh<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<EpochProgress>>> {
        async move { self.refresh_table(&TableReference::parse_str(name)).await }.boxed()
    }

    /// Records of a streaming table's epochs, oldest first: the last 10,000.
    ///
    /// # Errors
    /// - there is no such streaming table
    pub fn progress(&self, name: &str) -> Result<Vec<EpochProgress>> {
        Ok(self
            .streaming_table(&TableReference::parse_str(name))?
            .history())
    }

    /// Why a streaming table has no output yet, and what would bring it, as `EXPLAIN STREAMING TABLE`
    /// says it: questions and answers, each a line. A refresh that is running is not waited for.
    ///
    /// # Errors
    /// - there is no such streaming table
    /// - a source cannot be listed
    pub fn outlook<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Lines>> {
        async move {
            let table = self.streaming_table(&TableReference::parse_str(name))?;
            let status = self.started.status(table.name());
            table.outlook(&self.session.state(), status).await
        }
        .boxed()
    }

    /// A picture of a streaming table's epochs, by which one sees why a row was late. Its sources are read again for
    /// it; a refresh that is running is not waited for.
    ///
    /// # Errors
    /// - there is no such streaming table, or its checkpoint is damaged
    pub fn picture<'a>(&'a self, name: &'a str, view: View) -> BoxFuture<'a, Result<Picture>> {
        async move {
            let table = self.streaming_table(&TableReference::parse_str(name))?;
            table
                .picture(&self.session.state(), &self.unbounded, view)
                .await
        }
        .boxed()
    }

    /// Figures of the query that is running now for whoever waits for it: of a statement or a refresh, not
    /// of one that was started ([`start`](Self::start)).
    pub fn live(&self) -> watch::Receiver<Live> {
        self.live.0.subscribe()
    }

    /// Names of the streaming tables, sorted.
    pub fn streaming_tables(&self) -> Vec<String> {
        self.tables
            .all()
            .iter()
            .map(|table| table.bare_name().to_owned())
            .collect()
    }

    /// The full name of a table.
    fn resolve(&self, name: &TableReference) -> String {
        self.resolved(name).to_string()
    }

    fn resolved(&self, name: &TableReference) -> ResolvedTableReference {
        let state = self.session.state();
        let catalog = &state.config_options().catalog;
        name.clone()
            .resolve(&catalog.default_catalog, &catalog.default_schema)
    }

    fn streaming_table(&self, name: &TableReference) -> Result<Arc<StreamingTable>> {
        self.tables
            .get(&self.resolve(name))
            .ok_or_else(|| unknown(name.table()))
    }

    /// Runs one of DataFusion's statements.
    async fn run(&self, plan: LogicalPlan, asked: Asked<'_>) -> Result<DataFrame> {
        let plan = self
            .unbounded
            .as_streams(plan, &self.session.state())
            .await?;
        match plan {
            LogicalPlan::Ddl(ddl) => self.define(ddl, asked).await,
            LogicalPlan::Statement(LogicalStatement::ResetVariable(reset))
                if reset.variable.starts_with("tidegate.") =>
            {
                self.reset(&reset.variable)
            }
            plan => {
                let state = self.session.state();
                if plan.exists(|node| Ok(crate::logical::is_stream_scan(node)))? {
                    // What a stream cannot do is said now, not when the rows are read.
                    state.analyzer().execute_and_check(
                        plan.clone(),
                        state.config_options(),
                        |_, _| {},
                    )?;
                }
                self.session.execute_logical_plan(plan).await
            }
        }
    }

    /// `RESET tidegate.…`, which DataFusion does for its own settings only.
    fn reset(&self, variable: &str) -> Result<DataFrame> {
        let defaults = TidegateOptions::default().entries();
        let default = defaults
            .iter()
            .find(|entry| entry.key == variable)
            .and_then(|entry| entry.value.clone());
        let Some(default) = default else {
            return plan_err!("there is no setting {variable}");
        };
        self.session
            .state_ref()
            .write()
            .config_mut()
            .options_mut()
            .set(variable, &default)?;
        self.nothing()
    }

    /// What a statement without rows returns.
    fn nothing(&self) -> Result<DataFrame> {
        Ok(DataFrame::new(
            self.session.state(),
            LogicalPlanBuilder::empty(false).build()?,
        ))
    }
}

/// What a statement says that its plan does not.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    /// Its text.
    sql: &'a str,
    /// How long the rows of the table that it creates are kept, if not for good.
    retain: Option<Duration>,
}

/// The error of a statement whose planning panicked.
fn panicked(panic: &(dyn Any + Send)) -> DataFusionError {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Refusal::new(
        "PLANNER_PANIC",
        "XX000",
        format!(
            "The planner stopped at this statement: {}.",
            text.unwrap_or_default()
        ),
    )
    .hint("write it in another way; without STREAM it is DataFusion's own fault")
    .into()
}

/// A view is shown as it was written, not as its clauses were lowered.
fn as_written(mut plan: LogicalPlan, sql: &str) -> LogicalPlan {
    if let LogicalPlan::Ddl(DdlStatement::CreateView(view)) = &mut plan
        && let Some(definition) = &mut view.definition
        && definition.contains(LOWERED)
    {
        sql.trim().trim_end_matches(';').clone_into(definition);
    }
    plan
}

/// Reads one statement in the session's dialect.
fn read(sql: &str, state: &SessionState) -> Result<Parsed> {
    let options = &state.config_options().sql_parser;
    match dialect_from_str(options.dialect) {
        Some(dialect) => parse(sql, dialect.as_ref(), options.recursion_limit.get()),
        None => plan_err!("there is no SQL dialect {}", options.dialect),
    }
}

/// A session's state with our rules, planners and settings.
fn install(
    state: SessionState,
    live: &Arc<LiveSender>,
    clock: &Arc<ContextClock>,
) -> Result<SessionState> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let config = state.config().clone().with_extension(Arc::clone(live));
    let mut config = config.with_extension(Arc::new(QueryClock(clock)));
    if config
        .options()
        .extensions
        .get::<TidegateOptions>()
        .is_none()
    {
        config
            .options_mut()
            .extensions
            .insert(TidegateOptions::default());
    }
    let rules = state
        .optimizers()
        .iter()
        .map(|rule| KeepStreams::guard(Arc::clone(rule)))
        .collect();
    let mut relations: Vec<_> = state.relation_planners().to_vec();
    relations.insert(0, Arc::new(StreamRelations));
    // DataFusion keeps listings of folders: files that come later would not be seen.
    let runtime = RuntimeEnvBuilder::from_runtime_env(state.runtime_env())
        .with_object_list_cache_limit(0)
        .build_arc()?;
    let shown = config.options().catalog.create_default_catalog_and_schema;
    let mut state = rebuilt(state, config)
        .with_runtime_env(runtime)
        .with_analyzer_rule(Arc::new(StreamAnalyzer))
        .with_optimizer_rules(rules)
        .with_relation_planners(relations)
        .with_query_planner(Arc::new(QueryPlanner))
        .build();
    // It was off only while the state was built; SHOW ALL tells what was asked for.
    let catalog = &mut state.config_mut().options_mut().catalog;
    catalog.create_default_catalog_and_schema = shown;
    Ok(state)
}
