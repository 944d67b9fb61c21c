//! Our own statements: streaming tables are defined, refreshed, shown and dropped.

use std::sync::{Arc, PoisonError};

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::dataframe::DataFrame;

use serde_json::Value;

use super::StreamContext;
use super::database::random_id;
use crate::catalog::{
    Database, Definition, Entry, Kind, Outlet, StreamingTable, application_outlet,
    directory_outlet, outlook_batch, refresh_batch, unknown,
};
use crate::checkpoint::Checkpoint;
use crate::error::Refusal;
use crate::query::{EpochProgress, QueryStatus};
use crate::sql::{CreateStreamingTable, Existing, StreamingStatement, Target};

impl StreamContext {
    /// Runs one of our statements.
    pub(super) async fn streaming(&self, statement: StreamingStatement) -> Result<DataFrame> {
        match statement {
            StreamingStatement::Create(create) => self.create_streaming_table(*create).await,
            StreamingStatement::Refresh { name, full } => {
                if full {
                    return self.refresh_anew(&name).await;
                }
                self.refreshed(&*self.streaming_table(&name)?).await
            }
            StreamingStatement::Start { name, every } => {
                self.start_query(&name, every).await?;
                self.nothing()
            }
            StreamingStatement::Stop { name } => {
                self.stop_query(&name).await?;
                self.nothing()
            }
            StreamingStatement::Explain(name) => {
                let table = self.streaming_table(&name)?;
                let status = self.started.status(table.name());
                let lines = table.outlook(&self.session.state(), status).await?;
                self.session.read_batch(outlook_batch(&lines)?)
            }
            StreamingStatement::Describe(name) => {
                self.streaming_table(&name)?;
                let sql = format!("DESCRIBE {}", name.to_quoted_string());
                self.session.sql(&sql).await
            }
            StreamingStatement::Show => self.session.read_batch(self.show_tables()?),
            StreamingStatement::Drop { name, if_exists } => {
                self.drop_streaming_table(&name, if_exists).await
            }
        }
    }

    /// Refreshes a table; the records as rows.
    pub(super) async fn refreshed(&self, table: &StreamingTable) -> Result<DataFrame> {
        let records = table
            .refresh(&self.session.state(), &self.unbounded)
            .await?;
        self.session.read_batch(refresh_batch(&records)?)
    }

    async fn create_streaming_table(&self, create: CreateStreamingTable) -> Result<DataFrame> {
        let name = self.resolve(&create.name);
        match (self.tables.get(&name), create.existing) {
            (Some(_), Existing::Keep) => return self.nothing(),
            (Some(table), Existing::Refresh) => {
                let table = match table.definition().is_same(&create) {
                    true => table,
                    false => self.redefine(&table, &create).await?,
                };
                return self.refreshed(&table).await;
            }
            (Some(_), Existing::Refuse) => return Err(exists(&create.name)),
            (None, _) if self.session.table_exist(create.name.clone())? => {
                return Err(exists(&create.name));
            }
            (None, Existing::Keep | Existing::Refresh | Existing::Refuse)
                if self.is_unopened(&name) =>
            {
                return Err(unopened(&create.name));
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
            self.started.forget(&name).await;
        }
        let table = self.make_anew(&create.name, definition, None).await?;
        if create.existing == Existing::Refresh {
            return self.refreshed(&table).await;
        }
        self.nothing()
    }

    /// Whether a streaming table is written down that could not be made again when the database was opened.
    fn is_unopened(&self, name: &str) -> bool {
        let database = self.database.as_ref();
        let entry = database.and_then(|database| database.entry(name));
        entry.is_some_and(|entry| entry.kind == Kind::Streaming)
    }

    /// Puts a new streaming table in the place of the one of its name, if there is one. It writes to the
    /// location that is given, or to the one that its definition names.
    async fn make_anew(
        &self,
        name: &TableReference,
        definition: Definition,
        location: Option<String>,
    ) -> Result<Arc<StreamingTable>> {
        let resolved = self.resolve(name);
        let known = self
            .database
            .as_ref()
            .and_then(|database| database.entry(&resolved));
        let location = match (&location, &definition.target) {
            (None, Some(target)) => Some(self.absolute(&target.location)?),
            _ => location,
        };
        let mut former = known
            .as_ref()
            .map_or_else(Vec::new, |known| known.former.clone());
        let there = self.tables.get(&resolved);
        let there = there.map(|table| table.id().to_owned());
        former.extend(known.map(|known| known.id).or(there));
        let outlet = self.outlet(name.table(), &definition, location.as_deref())?;
        if let Some(location) = &location {
            self.refuse_foreign_files(location, &former)?;
        }
        let id = match &self.database {
            Some(database) => database.new_id(),
            None => random_id(),
        };
        let sink = outlet.as_ref().map(|outlet| Arc::clone(&outlet.sink));
        let (kept, statement) = (
            self.checkpoints_kept(&definition)?,
            definition.statement.clone(),
        );
        let retention = self.retention(&resolved, definition.retain);
        let mut table = StreamingTable::new(
            resolved.clone(),
            name.table().to_owned(),
            definition,
            &id,
            outlet,
            retention,
        );
        let entry = Entry {
            id: id.clone(),
            location,
            former: former.clone(),
            ..Entry::new(&self.resolved(name), Kind::Streaming, statement)
        };
        if let Some(database) = &self.database {
            let made =
                Checkpoint::create(database.disk(), Database::QUERIES, &id, kept, Value::Null);
            table = table.kept_in(made?);
            database.put(entry.clone())?;
        }
        // What the former query has written goes when it is written down that it will.
        if let Some(sink) = sink {
            for former in &former {
                sink.begin(former, 0).await?;
            }
        }
        if let (Some(database), false) = (&self.database, former.is_empty()) {
            database.put(Entry {
                former: Vec::new(),
                ..entry
            })?;
        }
        if self.tables.remove(&resolved).is_some() {
            self.session.deregister_table(name.clone())?;
        }
        self.session
            .register_table(name.clone(), table.provider())?;
        let table = Arc::new(table);
        self.tables.insert(resolved, Arc::clone(&table));
        Ok(table)
    }

    /// The table as it was defined, without anything that it has read. Its query does not run.
    pub(super) async fn begin_anew(&self, name: &TableReference) -> Result<Arc<StreamingTable>> {
        let table = self.streaming_table(name)?;
        let database = self.database.as_ref();
        let location = database.and_then(|database| database.entry(table.name())?.location);
        let location = location.or_else(|| table.location());
        self.make_anew(name, table.definition().clone(), location)
            .await
    }

    /// `OR REFRESH` with another query: it goes on with the state that there is, if that is of the same form.
    /// Whether it is shows when the query runs; what can be told now is.
    async fn redefine(
        &self,
        table: &StreamingTable,
        create: &CreateStreamingTable,
    ) -> Result<Arc<StreamingTable>> {
        let definition = Definition::plan(create, &self.session.state(), &self.unbounded).await?;
        table.definition().refuse_other(&definition)?;
        let table = Arc::new(table.redefined(definition));
        table
            .try_state(&self.session.state(), &self.unbounded)
            .await?;
        if let Some(database) = &self.database
            && let Some(entry) = database.entry(table.name())
        {
            database.put(Entry {
                sql: create.statement.clone(),
                ..entry
            })?;
        }
        self.tables
            .insert(table.name().to_owned(), Arc::clone(&table));
        Ok(table)
    }

    /// Where a query's rows go, if they leave the table.
    pub(super) fn outlet(
        &self,
        table: &str,
        definition: &Definition,
        location: Option<&str>,
    ) -> Result<Option<Outlet>> {
        if let Some(sink) = definition.options.sink() {
            if let Some(target) = &definition.target {
                return Err(both_targets(target).into());
            }
            let known = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
            let Some(known) = known.get(sink) else {
                return Err(no_sink(sink).into());
            };
            return Ok(Some(application_outlet(
                table,
                definition,
                sink,
                Arc::clone(known),
            )));
        }
        let (Some(target), Some(location)) = (&definition.target, location) else {
            return Ok(None);
        };
        let (disk, folder) = self.disk_of(location)?;
        let outlet = directory_outlet(definition, target, location, disk, folder)?;
        Ok(Some(outlet))
    }

    /// Refuses to write among files that are not of this table: its readers would read them too.
    fn refuse_foreign_files(&self, location: &str, former: &[String]) -> Result<()> {
        let (disk, folder) = self.disk_of(location)?;
        let found = disk.list(&folder).unwrap_or_default();
        let own = |name: &str| former.iter().any(|id| name.contains(id.as_str()));
        let foreign = found.iter().find(|entry| {
            let hidden = entry.name.starts_with('.');
            !hidden && !own(&entry.name) && (!entry.dir || former.is_empty())
        });
        match foreign {
            None => Ok(()),
            Some(file) => Err(Refusal::new(
                "LOCATION_NOT_EMPTY",
                "42P07",
                format!(
                    "{location} has something in it that is not of this table: {}.",
                    file.name
                ),
            )
            .hint("name a directory that is empty or not there")
            .into()),
        }
    }

    async fn drop_streaming_table(
        &self,
        name: &TableReference,
        if_exists: bool,
    ) -> Result<DataFrame> {
        let resolved = self.resolve(name);
        if self.tables.get(&resolved).is_none() {
            return if if_exists {
                self.nothing()
            } else {
                Err(unknown(name.table()))
            };
        }
        self.refuse_if_read(name, "drop")?;
        self.started.forget(&resolved).await;
        if let Some(database) = &self.database {
            database.remove(&resolved)?;
        }
        self.tables.remove(&resolved);
        self.session.deregister_table(name.clone())?;
        self.nothing()
    }

    /// The tables with what they hold: SHOW STREAMING TABLES.
    fn show_tables(&self) -> Result<RecordBatch> {
        let tables = self.tables.all();
        let last: Vec<Option<EpochProgress>> =
            tables.iter().map(|table| table.last_epoch()).collect();
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
        let statuses: Vec<QueryStatus> = tables
            .iter()
            .map(|table| self.started.status(table.name()))
            .collect();
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
            (
                "status",
                Arc::new(StringArray::from_iter_values(
                    statuses.iter().map(ToString::to_string),
                )),
                false,
            ),
            (
                "error",
                Arc::new(StringArray::from_iter(
                    statuses.iter().map(QueryStatus::error),
                )),
                true,
            ),
        ])?)
    }
}

/// The error of a sink that the application has not registered.
fn no_sink(name: &str) -> Refusal {
    Refusal::new(
        "SINK_NOT_FOUND",
        "42704",
        format!("There is no sink '{name}'."),
    )
    .hint("the application registers it: StreamContext::register_sink")
}

/// The error of a table whose rows would go to two places.
fn both_targets(target: &Target) -> Refusal {
    Refusal::new(
        "INVALID_STREAM_OPTION",
        "42616",
        "The rows go to one place: a sink, or a LOCATION.",
    )
    .at(target.place)
    .hint("leave one of them out")
}

/// The error for a name whose streaming table is there and could not be opened.
fn unopened(name: &TableReference) -> DataFusionError {
    Refusal::new(
        "STREAMING_TABLE_NOT_OPENED",
        "55000",
        format!("The streaming table '{name}' is kept in this database, and could not be opened."),
    )
    .hint("open the database again when the reason has gone, or write CREATE OR REPLACE STREAMING TABLE to begin anew")
    .into()
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
