//! [`StreamContext`]: the only place that installs rules, planners and functions into DataFusion.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ExtensionOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{
    DataFusionError, Result, SchemaReference, TableReference, exec_err, plan_err,
};
use datafusion::dataframe::DataFrame;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{
    AggregateUDF, CreateExternalTable, CreateMemoryTable, DdlStatement, LogicalPlan,
    LogicalPlanBuilder, ScalarUDF, Statement as LogicalStatement,
};
use datafusion::prelude::{SessionConfig, SessionContext};
use sqlparser::dialect::dialect_from_str;
use tokio::sync::watch;

use crate::catalog::{
    Definition, EmittedFunction, ProgressFunction, StreamingTable, StreamingTables,
    UnboundedTables, refresh_batch, unknown,
};
use crate::config::{TidegateOptions, rebuilt};
use crate::error::Refusal;
use crate::logical::{KeepStreams, Misplaced, StreamAnalyzer, WindowTime, without_places};
use crate::query::{EpochProgress, Live, LiveSender, QueryPlanner};
use crate::source::{AppendLog, AppendTable};
use crate::sql::{
    CheckedSum, CreateStreamingTable, Existing, Parsed, StreamRelations, StreamingStatement, parse,
};

/// A DataFusion session that knows streams.
///
/// It wraps a [`SessionContext`], yours or a new one: everything that DataFusion does keeps working on
/// either. Clones share the session.
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
        let tables: Arc<StreamingTables> = Arc::default();
        let live = Arc::new(LiveSender(watch::Sender::default()));
        let state = install(session.state(), &live)?;
        *session.state_ref().write() = state;
        session.register_udf(ScalarUDF::from(WindowTime::default()));
        for name in ["window", "session_window"] {
            session.register_udf(ScalarUDF::from(Misplaced::new(name)));
        }
        session.register_udaf(AggregateUDF::from(CheckedSum::default()));
        session.register_udtf("progress", Arc::new(ProgressFunction(Arc::clone(&tables))));
        session.register_udtf("emitted", Arc::new(EmittedFunction(Arc::clone(&tables))));
        Ok(Self {
            session,
            tables,
            unbounded: Arc::default(),
            live,
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
    pub async fn sql(&self, sql: &str) -> Result<DataFrame> {
        let state = self.session.state();
        match read(sql, &state)? {
            Parsed::Streaming(statement) => Box::pin(self.streaming(*statement)).await,
            Parsed::DataFusion(statement) => {
                let plan = state.statement_to_plan(*statement).await?;
                Box::pin(self.run(plan)).await
            }
        }
    }

    /// Runs a query as a stream of record batches, which come as windows close.
    ///
    /// # Errors
    /// - those of [`sql`](Self::sql)
    pub async fn stream(&self, sql: &str) -> Result<SendableRecordBatchStream> {
        self.sql(sql).await?.execute_stream().await
    }

    /// Creates an append-only table, as `CREATE TABLE` does.
    ///
    /// # Errors
    /// - a table of this name exists
    pub fn create_table(&self, name: &str, schema: SchemaRef) -> Result<()> {
        if self.session.table_exist(name)? {
            return exec_err!("Table '{name}' already exists");
        }
        let table = AppendTable::new(name, Arc::new(AppendLog::new(schema)));
        self.session.register_table(name, Arc::new(table))?;
        Ok(())
    }

    /// Adds rows to an append-only table, in order of arrival; the batch has the table's columns.
    ///
    /// # Errors
    /// - there is no such table, or it is not append-only
    /// - the batch's columns are not the table's
    pub async fn append(&self, table: &str, batch: RecordBatch) -> Result<()> {
        let provider = self.session.table_provider(table).await?;
        match provider.downcast_ref::<AppendTable>() {
            Some(table) => table.log().append(&[batch]),
            None => exec_err!("'{table}' is not an append-only table: CREATE TABLE makes one"),
        }
    }

    /// Reads what has arrived into a streaming table, in epochs; returns their records. At least one
    /// epoch runs.
    ///
    /// # Errors
    /// - there is no such streaming table
    /// - those of the sources and the query; the epoch that failed is undone and is tried again by the
    ///   next refresh
    pub async fn refresh(&self, name: &str) -> Result<Vec<EpochProgress>> {
        let table = self.streaming_table(&TableReference::parse_str(name))?;
        table.refresh(&self.session.state(), &self.unbounded).await
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

    /// Figures of the query that is running now.
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
        let state = self.session.state();
        let catalog = &state.config_options().catalog;
        name.clone()
            .resolve(&catalog.default_catalog, &catalog.default_schema)
            .to_string()
    }

    fn streaming_table(&self, name: &TableReference) -> Result<Arc<StreamingTable>> {
        self.tables
            .get(&self.resolve(name))
            .ok_or_else(|| unknown(name.table()))
    }

    /// Runs one of our statements.
    async fn streaming(&self, statement: StreamingStatement) -> Result<DataFrame> {
        match statement {
            StreamingStatement::Create(create) => self.create_streaming_table(*create).await,
            StreamingStatement::Refresh(name) => {
                let table = self.streaming_table(&name)?;
                let records = table
                    .refresh(&self.session.state(), &self.unbounded)
                    .await?;
                self.session.read_batch(refresh_batch(&records)?)
            }
            StreamingStatement::Show => self.session.read_batch(self.show_tables()?),
            StreamingStatement::Drop { name, if_exists } => {
                self.drop_streaming_table(&name, if_exists)
            }
        }
    }

    async fn create_streaming_table(&self, create: CreateStreamingTable) -> Result<DataFrame> {
        let name = self.resolve(&create.name);
        match (self.tables.get(&name), create.existing) {
            (Some(_), Existing::Keep) => return self.nothing(),
            (Some(table), Existing::Refresh) => {
                self.refuse_other_query(&table, &create)?;
                let records = table
                    .refresh(&self.session.state(), &self.unbounded)
                    .await?;
                return self.session.read_batch(refresh_batch(&records)?);
            }
            (Some(_), Existing::Refuse) => return Err(exists(&create.name)),
            (None, _) if self.session.table_exist(create.name.clone())? => {
                return Err(exists(&create.name));
            }
            (Some(_) | None, _) => {}
        }
        let definition = Definition::plan(&create, &self.session.state(), &self.unbounded).await?;
        if definition.sources.contains(&name) {
            return Err(Refusal::new(
                "RECURSIVE_STREAMING_TABLE",
                "42P20",
                "A streaming table cannot read itself.",
            )
            .into());
        }
        if self.tables.get(&name).is_some() {
            self.refuse_if_read(&create.name, "replace")?;
        }
        if self.tables.remove(&name).is_some() {
            self.session.deregister_table(create.name.clone())?;
        }
        let table = Arc::new(StreamingTable::new(
            name.clone(),
            create.name.table().to_owned(),
            definition,
        ));
        self.session
            .register_table(create.name.clone(), table.provider())?;
        self.tables.insert(name, Arc::clone(&table));
        if create.existing == Existing::Refresh {
            let records = table
                .refresh(&self.session.state(), &self.unbounded)
                .await?;
            return self.session.read_batch(refresh_batch(&records)?);
        }
        self.nothing()
    }

    /// OR REFRESH says what the table is: it must be what it says.
    fn refuse_other_query(
        &self,
        table: &StreamingTable,
        create: &CreateStreamingTable,
    ) -> Result<()> {
        if table.definition().is_same(create) {
            return Ok(());
        }
        Err(Refusal::new(
            "STREAMING_QUERY_CHANGED",
            "42K0E",
            format!(
                "{} exists with another query or other options.",
                create.name
            ),
        )
        .hint("write CREATE OR REPLACE STREAMING TABLE to begin anew, or REFRESH STREAMING TABLE")
        .into())
    }

    fn drop_streaming_table(&self, name: &TableReference, if_exists: bool) -> Result<DataFrame> {
        let resolved = self.resolve(name);
        if self.tables.get(&resolved).is_none() {
            return if if_exists {
                self.nothing()
            } else {
                Err(unknown(name.table()))
            };
        }
        self.refuse_if_read(name, "drop")?;
        self.tables.remove(&resolved);
        self.session.deregister_table(name.clone())?;
        self.nothing()
    }

    /// The tables with what they hold: SHOW STREAMING TABLES.
    fn show_tables(&self) -> Result<RecordBatch> {
        let tables = self.tables.all();
        let last: Vec<Option<EpochProgress>> =
            tables.iter().map(|table| table.history().pop()).collect();
        let text = |of: &dyn Fn(&StreamingTable) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(
                tables.iter().map(|table| of(table)),
            ))
        };
        let number = |of: &dyn Fn(&EpochProgress) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(
                last.iter().map(|last| last.as_ref().map_or(0, of)),
            ))
        };
        let rows = UInt64Array::from_iter_values(tables.iter().map(|table| table.rows()));
        let watermarks = StringArray::from_iter(
            last.iter()
                .map(|last| last.as_ref().and_then(|last| last.watermark.clone())),
        );
        Ok(RecordBatch::try_from_iter_with_nullable([
            ("name", text(&|table| table.bare_name().to_owned()), false),
            (
                "output_mode",
                text(&|table| table.definition().mode.to_string()),
                false,
            ),
            ("epochs", number(&|last| last.epoch + 1), false),
            ("rows", Arc::new(rows) as ArrayRef, false),
            ("watermark", Arc::new(watermarks) as ArrayRef, true),
            ("open_windows", number(&|last| last.open_windows), false),
            ("open_rows", number(&|last| last.open_rows), false),
            (
                "state",
                text(&|table| table.definition().eviction.to_owned()),
                false,
            ),
            (
                "query",
                text(&|table| table.definition().text.clone()),
                false,
            ),
        ])?)
    }

    /// Runs one of DataFusion's statements.
    async fn run(&self, plan: LogicalPlan) -> Result<DataFrame> {
        let plan = self
            .unbounded
            .as_streams(plan, &self.session.state())
            .await?;
        match plan {
            LogicalPlan::Ddl(ddl) => self.define(ddl).await,
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

    async fn define(&self, ddl: DdlStatement) -> Result<DataFrame> {
        match ddl {
            DdlStatement::CreateMemoryTable(create) => self.create_append_table(create).await,
            DdlStatement::CreateExternalTable(create) => self.create_external_table(*create).await,
            DdlStatement::DropTable(drop) => {
                self.refuse_if_taken(&drop.name, "drop")?;
                self.forget_unbounded(&drop.name);
                self.session
                    .execute_logical_plan(LogicalPlan::Ddl(DdlStatement::DropTable(drop)))
                    .await
            }
            DdlStatement::CreateView(mut create) => {
                create.input = Arc::new(without_places(Arc::unwrap_or_clone(create.input))?);
                if create.or_replace {
                    self.refuse_if_taken(&create.name, "replace")?;
                }
                self.session
                    .execute_logical_plan(LogicalPlan::Ddl(DdlStatement::CreateView(create)))
                    .await
            }
            DdlStatement::DropView(drop) => {
                self.refuse_if_taken(&drop.name, "drop")?;
                self.session
                    .execute_logical_plan(LogicalPlan::Ddl(DdlStatement::DropView(drop)))
                    .await
            }
            DdlStatement::DropCatalogSchema(drop) => {
                self.refuse_schema_in_use(&drop.name)?;
                self.session
                    .execute_logical_plan(LogicalPlan::Ddl(DdlStatement::DropCatalogSchema(drop)))
                    .await
            }
            ddl => {
                self.session
                    .execute_logical_plan(LogicalPlan::Ddl(ddl))
                    .await
            }
        }
    }

    /// `CREATE TABLE [AS]`: an append-only table.
    async fn create_append_table(&self, create: CreateMemoryTable) -> Result<DataFrame> {
        let exists = self.session.table_exist(create.name.clone())?;
        if exists && create.if_not_exists && !create.or_replace {
            return self.nothing();
        }
        if create.temporary || exists && (!create.or_replace || create.if_not_exists) {
            // DataFusion's own words for what cannot be.
            let plan = LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create));
            return self.session.execute_logical_plan(plan).await;
        }
        if exists {
            self.refuse_if_taken(&create.name, "replace")?;
        }
        let rows = DataFrame::new(self.session.state(), Arc::unwrap_or_clone(create.input));
        let schema = Arc::clone(rows.schema().inner());
        unique_names(&schema)?;
        let rows = rows.collect().await?;
        let log = AppendLog::new(schema);
        log.append(&rows)?;
        let table = AppendTable::new(create.name.table(), Arc::new(log))
            .with_definition(create.constraints, create.column_defaults);
        if exists {
            self.session.deregister_table(create.name.clone())?;
        }
        self.forget_unbounded(&create.name);
        self.session.register_table(create.name, Arc::new(table))?;
        self.nothing()
    }

    /// `CREATE [UNBOUNDED] EXTERNAL TABLE`: an unbounded one is a stream without the word STREAM.
    async fn create_external_table(&self, mut create: CreateExternalTable) -> Result<DataFrame> {
        if self.session.table_exist(create.name.clone())? && create.or_replace {
            self.refuse_if_taken(&create.name, "replace")?;
        }
        let (name, unbounded) = (create.name.clone(), std::mem::take(&mut create.unbounded));
        let plan = LogicalPlan::Ddl(DdlStatement::CreateExternalTable(Box::new(create)));
        let done = self.session.execute_logical_plan(plan).await?;
        self.forget_unbounded(&name);
        if unbounded {
            let resolved = self.resolve(&name);
            self.unbounded.insert(resolved);
        }
        Ok(done)
    }

    fn forget_unbounded(&self, name: &TableReference) {
        let resolved = self.resolve(name);
        self.unbounded.remove(&resolved);
    }

    /// Refuses to take a source away from a streaming table that reads it.
    fn refuse_if_read(&self, name: &TableReference, what: &str) -> Result<()> {
        let resolved = self.resolve(name);
        match self.tables.reader_of(&resolved) {
            Some(reader) if reader.name() != resolved => Err(Refusal::new(
                "SOURCE_IN_USE",
                "2BP01",
                format!(
                    "Cannot {what} {name}: the streaming table {} reads it.",
                    reader.bare_name()
                ),
            )
            .hint(format!(
                "first write DROP STREAMING TABLE {}",
                reader.bare_name()
            ))
            .into()),
            _ => Ok(()),
        }
    }

    /// Refuses to put something else in the place of a streaming table or of a source that is read.
    fn refuse_if_taken(&self, name: &TableReference, what: &str) -> Result<()> {
        if self.tables.get(&self.resolve(name)).is_some() {
            return Err(Refusal::new(
                "WRONG_COMMAND_FOR_OBJECT_TYPE",
                "42809",
                format!("Cannot {what} {name}: it is a streaming table."),
            )
            .hint(format!("write DROP STREAMING TABLE {name}"))
            .into());
        }
        self.refuse_if_read(name, what)
    }

    /// Refuses to drop a schema with streaming tables, or with sources of some.
    fn refuse_schema_in_use(&self, schema: &SchemaReference) -> Result<()> {
        let state = self.session.state();
        let catalog = match schema {
            SchemaReference::Full { catalog, .. } => catalog.to_string(),
            SchemaReference::Bare { .. } => state.config_options().catalog.default_catalog.clone(),
        };
        let prefix = format!("{catalog}.{}.", schema.schema_name());
        let tables = self.tables.all();
        let user = tables.iter().find(|table| {
            let sources = table.definition().sources.iter().map(String::as_str);
            sources
                .chain([table.name()])
                .any(|name| name.starts_with(&prefix))
        });
        match user {
            None => Ok(()),
            Some(table) => Err(Refusal::new(
                "SOURCE_IN_USE",
                "2BP01",
                format!(
                    "Cannot drop schema {}: the streaming table {} needs it.",
                    schema.schema_name(),
                    table.bare_name()
                ),
            )
            .hint(format!(
                "first write DROP STREAMING TABLE {}",
                table.bare_name()
            ))
            .into()),
        }
    }

    /// What a statement without rows returns.
    fn nothing(&self) -> Result<DataFrame> {
        Ok(DataFrame::new(
            self.session.state(),
            LogicalPlanBuilder::empty(false).build()?,
        ))
    }
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
fn install(state: SessionState, live: &Arc<LiveSender>) -> Result<SessionState> {
    let mut config = state.config().clone().with_extension(Arc::clone(live));
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
    Ok(rebuilt(state, config)
        .with_runtime_env(runtime)
        .with_analyzer_rule(Arc::new(StreamAnalyzer))
        .with_optimizer_rules(rules)
        .with_relation_planners(relations)
        .with_query_planner(Arc::new(QueryPlanner))
        .build())
}

fn exists(name: &TableReference) -> DataFusionError {
    Refusal::new(
        "TABLE_OR_VIEW_ALREADY_EXISTS",
        "42P07",
        format!("There is a table '{name}' already."),
    )
    .hint("write CREATE OR REPLACE STREAMING TABLE, or take another name")
    .into()
}

/// Two columns of one name could not be told apart.
fn unique_names(schema: &SchemaRef) -> Result<()> {
    let mut names = HashSet::new();
    match schema
        .fields()
        .iter()
        .find(|field| !names.insert(field.name()))
    {
        Some(field) => exec_err!("the table would have two columns '{}'", field.name()),
        None => Ok(()),
    }
}
