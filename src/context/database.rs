//! A session over an embedded database: what is defined is written down, and is there when it is opened again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result, TableReference, internal_err, plan_err};
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Asked, StreamContext, read};
use crate::catalog::{Database, Definition, Entry, KeptRows, Kind, RefusedTable, StreamingTable};
use crate::checkpoint::Checkpoint;
use crate::config::shown_columns;
use crate::disk::{Disk, LocalDisk};
use crate::error::{Refusal, refusal};
use crate::source::{AppendLog, AppendTable, Arrivals};
use crate::sql::{Parsed, StreamingStatement};

/// Something of a database that could not be made again when it was opened: it is still written down, and is
/// tried again by the next who opens it.
#[derive(Debug, Clone)]
pub struct Unopened {
    /// Its resolved name.
    pub name: String,
    /// Why.
    pub error: Refusal,
}

impl StreamContext {
    /// Opens an embedded database in a directory, which is made if it is not there: tables, views, streaming
    /// tables, their results and their state are as they were left.
    ///
    /// # Errors
    /// - another process has it open
    /// - its catalog is damaged or of another version; what belongs to one table only is an error of that table
    /// - those of the disk
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let mut config = SessionConfig::new().with_information_schema(true);
        config.options_mut().sql_parser.collect_spans = true;
        let session = SessionContext::new_with_config(config);
        Self::open_over(session, dir).await
    }

    /// The same over a session of the application: tables that streaming tables read and that are not in the
    /// database have been registered in it.
    ///
    /// # Errors
    /// - those of [`open`](Self::open)
    pub async fn open_over(session: SessionContext, dir: impl AsRef<Path>) -> Result<Self> {
        let disk = LocalDisk::open(dir.as_ref().to_owned()).map_err(|error| {
            let shown = dir.as_ref().display();
            Refusal::new("DISK_FAILED", "58030", format!("{shown}: {error}."))
        })?;
        Self::open_on(session, Arc::new(disk), None).await
    }

    /// The same on a disk of one's own, as a test does that lets it fail. Directories that rows are written to
    /// are on that disk too, and the database's id is given.
    ///
    /// # Errors
    /// - those of [`open`](Self::open)
    pub async fn open_on(
        session: SessionContext,
        disk: Arc<dyn Disk>,
        id: Option<&str>,
    ) -> Result<Self> {
        let mut context = Self::over(session)?;
        let database = Database::open(disk, || id.map_or_else(random_id, str::to_owned))?;
        context.outside = id.is_none();
        context.database = Some(Arc::new(database));
        context.make_again().await?;
        context.find_lost_rows().await?;
        Ok(context)
    }

    /// Closes the database and opens it again, as another process would, under the settings that the session has.
    /// All clones of the context must have gone.
    ///
    /// # Errors
    /// - those of [`open`](Self::open); the database is in use if a clone holds it
    pub fn reopen(self) -> BoxFuture<'static, Result<Self>> {
        async move {
            let Some(database) = &self.database else {
                return plan_err!("only a database can be opened again");
            };
            let (disk, outside) = (database.disk(), self.outside);
            let clock = Arc::clone(&self.clock);
            let state = self.session.state();
            let session = SessionContext::new_with_config_rt(
                state.config().clone(),
                Arc::clone(state.runtime_env()),
            );
            drop((state, self));
            let mut context = Self::over_by(session, clock)?;
            context.outside = outside;
            context.database = Some(Arc::new(Database::open(disk, random_id)?));
            context.make_again().await?;
            context.find_lost_rows().await?;
            Ok(context)
        }
        .boxed()
    }

    /// Tries again what could not be made when the database was opened: tables and sinks of the application have been
    /// registered since.
    ///
    /// # Errors
    /// - none of its own: what still cannot be made is [`unopened`](Self::unopened)
    pub fn open_rest(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let Some(database) = &self.database else {
                return Ok(());
            };
            let waiting = std::mem::take(&mut *self.waiting());
            let waits = |entry: &Entry| waiting.iter().any(|one| one.name == entry.name);
            let mut entries = database.entries();
            entries.retain(waits);
            let mut rest = Vec::new();
            for entry in entries {
                match self.tables.get(&entry.name) {
                    // It is there; only its last rows were not handed on.
                    Some(table) => self.hand_on(&table).await,
                    None => rest.push(entry),
                }
            }
            self.make_all(database, rest).await?;
            self.find_lost_rows().await
        }
        .boxed()
    }

    /// What could not be made again when the database was opened, and since.
    pub fn unopened(&self) -> Vec<Unopened> {
        self.waiting().clone()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Unopened>> {
        self.unopened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands on the last rows of a table. What cannot be handed on now is by the next refresh.
    async fn hand_on(&self, table: &StreamingTable) {
        if let Err(error) = table.hand_on().await {
            self.waiting().push(Unopened {
                name: table.name().to_owned(),
                error: as_refusal(&error),
            });
        }
    }

    /// Makes everything again that the database knows.
    async fn make_again(&self) -> Result<()> {
        match &self.database {
            Some(database) => self.make_all(database, database.entries()).await,
            None => Ok(()),
        }
    }

    /// Makes things again. What needs something else is tried again after it, and with it what came later under its
    /// name.
    async fn make_all(&self, database: &Database, mut waiting: Vec<Entry>) -> Result<()> {
        waiting.sort_by_key(Entry::rank);
        let mut before = usize::MAX;
        loop {
            let mut failed: Vec<(usize, Refusal)> = Vec::new();
            for (at, entry) in waiting.iter().enumerate() {
                if let Err(error) = Box::pin(self.made(database, entry)).await {
                    failed.push((at, as_refusal(&error)));
                }
            }
            if failed.is_empty() || failed.len() >= before {
                let unopened = failed.into_iter().filter_map(|(at, error)| {
                    let entry = waiting.get(at).filter(|entry| entry.gone.is_none())?;
                    let name = entry.name.clone();
                    Some(Unopened { name, error })
                });
                self.waiting().extend(unopened);
                return self.remove_gone(database);
            }
            before = failed.len();
            let again = |(at, entry): (usize, Entry)| {
                let mut failed = failed.iter();
                let behind = failed.any(|(of, _)| {
                    *of == at
                        || *of < at && waiting.get(*of).is_some_and(|one| one.name == entry.name)
                });
                behind.then_some(entry)
            };
            waiting = waiting
                .clone()
                .into_iter()
                .enumerate()
                .filter_map(again)
                .collect();
        }
    }

    /// Removes what was made only for the views over it.
    fn remove_gone(&self, database: &Database) -> Result<()> {
        let entries = database.entries();
        for gone in entries.iter().filter(|entry| entry.gone.is_some()) {
            if database.entry(&gone.name).is_none() && !gone.quoted.is_empty() {
                self.session
                    .deregister_table(TableReference::parse_str(&gone.quoted))?;
            }
        }
        Ok(())
    }

    /// Finds tables that have lost their newest rows: a streaming table has read more of them than there are. They
    /// take no others, which would have the numbers of those and be passed over.
    async fn find_lost_rows(&self) -> Result<()> {
        let Some(database) = &self.database else {
            return Ok(());
        };
        for reader in self.tables.all() {
            for (source, read) in reader.rows_read() {
                let owner = self.tables.owner_of_late(&source);
                let (name, streaming, id) = match (database.entry(&source), &owner) {
                    (Some(entry), _) => (
                        TableReference::parse_str(&entry.quoted),
                        entry.kind == Kind::Streaming,
                        entry.id,
                    ),
                    (None, Some(owner)) => match owner.late_name() {
                        Some(late) => (late.clone(), true, String::new()),
                        None => continue,
                    },
                    (None, None) => continue,
                };
                if !self.session.table_exist(name.clone())? {
                    continue;
                }
                let table = self.session.table_provider(name.clone()).await?;
                let rows = table
                    .downcast_ref::<AppendTable>()
                    .map(|table| table.log().rows());
                let Some(rows) = rows.filter(|rows| *rows < read) else {
                    continue;
                };
                if streaming {
                    // The source went back to an earlier epoch: its rows to come may be others.
                    self.refuse_reader(&reader, &source, rows, read)?;
                } else {
                    let error = Database::lacks_rows(&id, rows, reader.name());
                    let damaged = RefusedTable::new(table.schema(), as_refusal(&error));
                    self.session.deregister_table(name.clone())?;
                    self.session.register_table(name, Arc::new(damaged))?;
                }
            }
        }
        Ok(())
    }

    /// Puts a table that says why in the place of one that has read rows which its source does not have any more.
    fn refuse_reader(
        &self,
        reader: &StreamingTable,
        source: &str,
        rows: u64,
        read: u64,
    ) -> Result<()> {
        let refusal = Refusal::new(
            "SOURCE_ROWS_GONE",
            "KD000",
            format!(
                "{} has read {read} rows of {source}, which has {rows}: it went back to an earlier epoch.",
                reader.bare_name()
            ),
        )
        .hint("begin anew: REFRESH STREAMING TABLE … FULL");
        let table = reader.clone().damaged(refusal);
        if let Some(database) = &self.database
            && let Some(entry) = database.entry(reader.name())
        {
            self.register_anew(&TableReference::parse_str(&entry.quoted), table)?;
        }
        Ok(())
    }

    /// Makes one thing again, in the place of what had its name before.
    async fn made(&self, database: &Database, entry: &Entry) -> Result<()> {
        if !entry.quoted.is_empty() {
            self.session
                .deregister_table(TableReference::parse_str(&entry.quoted))?;
        }
        self.make(database, entry).await
    }

    /// Makes one thing again.
    async fn make(&self, database: &Database, entry: &Entry) -> Result<()> {
        match entry.kind {
            Kind::Table | Kind::TableOfRows => self.make_table(database, entry).await,
            Kind::Streaming => self.make_streaming_table(database, entry).await,
            Kind::Statement => match read(&entry.sql, &self.session.state())? {
                Parsed::DataFusion(statement) => {
                    let asked = Asked {
                        sql: &entry.sql,
                        retain: None,
                    };
                    let plan = self.session.state().statement_to_plan(*statement).await?;
                    let plan = self
                        .unbounded
                        .as_streams(super::as_written(plan, &entry.sql), &self.session.state())
                        .await?;
                    match plan {
                        LogicalPlan::Ddl(ddl) => self.define_here(ddl, asked).await.map(|_| ()),
                        _ => internal_err!("{} is not made by its statement", entry.name),
                    }
                }
                Parsed::Streaming(_) | Parsed::Retaining(..) => {
                    internal_err!("{} is neither a view nor an external table", entry.name)
                }
            },
        }
    }

    async fn make_table(&self, database: &Database, entry: &Entry) -> Result<()> {
        let Some(schema) = entry.schema.clone() else {
            return internal_err!("the table {} has no schema", entry.name);
        };
        let name = TableReference::parse_str(&entry.quoted);
        let (kept, rows) = match database.rows(&entry.id) {
            Ok(found) => found,
            Err(error) => {
                let damaged = RefusedTable::new(schema, as_refusal(&error));
                self.session.register_table(name, Arc::new(damaged))?;
                return Ok(());
            }
        };
        let log = AppendLog::with_base(schema, kept.first()).identified(&entry.id);
        log.append(&rows)?;
        let made = match (entry.kind, read(&entry.sql, &self.session.state())) {
            (_, Ok(made)) => made.into_datafusion(),
            (Kind::Table, Err(error)) => return Err(error),
            // A table that an application made has no statement.
            _ => None,
        };
        let retain = made.as_ref().and_then(|(_, retain)| *retain);
        let log = log
            .retained(self.retention(&entry.name, retain), kept.arrivals())
            .kept_by(Arc::new(kept.retained(retain)));
        let mut table = AppendTable::new(name.table(), Arc::new(log));
        if entry.kind == Kind::Table
            && let Some((statement, _)) = made
            && let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) =
                self.session.state().statement_to_plan(statement).await?
        {
            table = table.with_definition(create.constraints, create.column_defaults);
        }
        self.session.register_table(name, Arc::new(table))?;
        Ok(())
    }

    async fn make_streaming_table(&self, database: &Database, entry: &Entry) -> Result<()> {
        let Parsed::Streaming(statement) = read(&entry.sql, &self.session.state())? else {
            return internal_err!("{} is not made by its statement", entry.name);
        };
        let StreamingStatement::Create(mut create) = *statement else {
            return internal_err!("{} is not made by its statement", entry.name);
        };
        let name = TableReference::parse_str(&entry.quoted);
        // The session may have another schema now than when it was defined.
        create.name = name.clone();
        let mut definition =
            Definition::plan(&create, &self.session.state(), &self.unbounded).await?;
        let outlet = self.outlet(name.table(), &definition, entry.location.as_deref())?;
        let former = self.cleaners(&entry.former, outlet.as_ref())?;
        let kept = self.checkpoints_kept(&definition)?;
        let opened = Checkpoint::open(
            database.disk(),
            database.doubts(),
            Database::QUERIES,
            &entry.id,
            kept,
        );
        let had = opened.as_ref().ok().map(|(_, had)| had);
        let late = had.and_then(StreamingTable::late_columns);
        let changed =
            changed_columns(entry, &definition).or_else(|| definition.keep_late_columns(&late?));
        let retention = self.retentions(&entry.name, &definition);
        let table = StreamingTable::new(
            entry.name.clone(),
            name.table().to_owned(),
            definition,
            &entry.id,
            outlet,
            retention,
            former,
        );
        let table = table.mixed(entry.mixed);
        let table = match opened {
            _ if changed.is_some() => changed.into_iter().fold(table, StreamingTable::damaged),
            Ok((checkpoint, restored)) => match table.restore(&restored) {
                Ok(()) => table.kept_in(checkpoint),
                Err(error) => table.damaged(as_refusal(&error)),
            },
            Err(error) => table.damaged(as_refusal(&error)),
        };
        let table = self.register_anew(&name, table)?;
        self.hand_on(&table).await;
        Ok(())
    }

    /// How many checkpoints a streaming table keeps.
    pub(super) fn checkpoints_kept(&self, definition: &Definition) -> Result<NonZeroUsize> {
        let state = definition.options.apply(&self.session.state())?;
        Ok(crate::config::options(state.config_options()).checkpoints_kept)
    }

    /// The log of a new table: its rows are on disk if the session is over a database.
    pub(super) fn new_log(
        &self,
        name: &str,
        schema: SchemaRef,
        retain: Option<Duration>,
    ) -> Result<(AppendLog, Option<String>)> {
        let retention = self.retention(name, retain);
        let log = AppendLog::new(schema).retained(retention, Arrivals::default());
        let Some(database) = &self.database else {
            return Ok((log, None));
        };
        let id = database.new_id();
        let kept: KeptRows = database.new_rows(&id)?;
        let kept = kept.retained(retain);
        let log = log.identified(&id).kept_by(Arc::new(kept));
        Ok((log, Some(id)))
    }

    /// Writes down what a statement has made or removed.
    pub(super) fn write_down(&self, written: Option<Written>) -> Result<()> {
        let (Some(database), Some(written)) = (&self.database, written) else {
            return Ok(());
        };
        match written {
            Written::Made(entry) => database.put(*entry),
            Written::Removed(name) => database.remove(&name),
            Written::RemovedSchema(schema) => database.remove_schema(&schema),
        }
    }

    /// Where files of a location are: a directory as an absolute path, with `/` at its end.
    pub(super) fn absolute(&self, location: &str) -> Result<String> {
        if location.contains("://") && !location.starts_with("file://") {
            return plan_err!("LOCATION takes a directory of this machine, not {location}");
        }
        let path = PathBuf::from(location.trim_start_matches("file://"));
        if !self.outside {
            return Ok(location.to_owned());
        }
        let path = std::path::absolute(path)?;
        let shown = path.to_string_lossy();
        Ok(format!("{}/", shown.trim_end_matches('/')))
    }

    /// The disk that a location is on, and the folder on it.
    pub(super) fn disk_of(&self, location: &str) -> Result<(Arc<dyn Disk>, String)> {
        match &self.database {
            Some(database) if !self.outside => {
                Ok((database.disk(), location.trim_matches('/').to_owned()))
            }
            _ => {
                let disk = LocalDisk::open(PathBuf::from(location)).map_err(|error| {
                    Refusal::new("DISK_FAILED", "58030", format!("{location}: {error}."))
                })?;
                Ok((Arc::new(disk), String::new()))
            }
        }
    }
}

/// What a statement has changed of what there is.
#[derive(Debug)]
pub(super) enum Written {
    /// Something is there now.
    Made(Box<Entry>),
    /// The thing of this name has gone.
    Removed(String),
    /// A schema has gone, with all that was in it.
    RemovedSchema(String),
}

/// The refusal of a streaming table whose query has other columns than its result was made with.
fn changed_columns(entry: &Entry, definition: &Definition) -> Option<Refusal> {
    let was = entry.schema.as_ref()?;
    let was = shown_columns(was.fields());
    let is = shown_columns(definition.schema.fields());
    (was != is).then(|| {
        Refusal::new(
            "STREAMING_QUERY_CHANGED",
            "42K0E",
            format!("The columns of {} were {was}, they are {is}: a table or view that it reads is another one.", entry.name),
        )
        .hint("bring back what it reads, or begin anew: REFRESH STREAMING TABLE … FULL")
    })
}

/// An error as a refusal, to be told again and again.
pub(super) fn as_refusal(error: &DataFusionError) -> Refusal {
    let other = || Refusal::new("NOT_OPENED", "55000", error.strip_backtrace());
    refusal(error).cloned().unwrap_or_else(other)
}

/// An id that no other database is likely to have.
pub(super) fn random_id() -> String {
    let hasher = RandomState::new().build_hasher();
    format!("{:08x}", hasher.finish() >> 32)
}
