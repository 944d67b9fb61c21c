//! Our own statements: streaming tables are defined, refreshed, shown and dropped.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::dataframe::DataFrame;

use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use super::StreamContext;
use super::database::random_id;
use super::define::unopened;
use crate::catalog::{
    Database, Definition, Entry, Former, Kind, Outlet, Retentions, StreamingTable,
    application_outlet, cleaner, directory_outlet, outlook_batch, refresh_batch, unknown,
};
use crate::checkpoint::Checkpoint;
use crate::error::Refusal;
use crate::query::{EpochProgress, QueryStatus, RunState, is_redefined};
use crate::sink::Sink;
use crate::sql::{CreateStreamingTable, Existing, StreamingStatement, Target};

/// A table whose place another one is to take, or none: its query does not run as long as this is held.
struct Held {
    table: Arc<StreamingTable>,
    run: OwnedMutexGuard<RunState>,
}

impl StreamContext {
    /// Runs one of our statements.
    pub(super) async fn streaming(&self, statement: StreamingStatement) -> Result<DataFrame> {
        match statement {
            StreamingStatement::Create(create) => self.create_streaming_table(*create).await,
            StreamingStatement::Refresh { name, full } => {
                if full {
                    return self.refresh_anew(&name).await;
                }
                self.refreshed(&name).await
            }
            StreamingStatement::Start { name, every } => {
                self.start_query(&name, every).await?;
                self.nothing()
            }
            StreamingStatement::Stop { name } => {
                self.stop_query(&name).await?;
                self.nothing()
            }
            StreamingStatement::Correct { name } => {
                let corrected = self.corrected(&name).await?;
                self.session.read_batch(corrected)
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
    pub(super) async fn refreshed(&self, name: &TableReference) -> Result<DataFrame> {
        let records = self.refresh_table(name).await?;
        self.session.read_batch(refresh_batch(&records)?)
    }

    /// Refreshes a table by the definition that it has when the run begins: where that is another one than when it was
    /// planned, it is planned again.
    pub(super) async fn refresh_table(&self, name: &TableReference) -> Result<Vec<EpochProgress>> {
        loop {
            let table = self.streaming_table(name)?;
            match table.refresh(&self.session.state(), &self.unbounded).await {
                Err(error) if is_redefined(&error) => {}
                done => return done,
            }
        }
    }

    /// Corrects a table by the definition that it has then; returns what was written.
    async fn corrected(&self, name: &TableReference) -> Result<RecordBatch> {
        loop {
            let table = self.streaming_table(name)?;
            match table.correct(&self.session.state(), &self.unbounded).await {
                Err(error) if is_redefined(&error) => {}
                done => return done,
            }
        }
    }

    async fn create_streaming_table(&self, create: CreateStreamingTable) -> Result<DataFrame> {
        let name = self.resolve(&create.name);
        let mut found = self.tables.get(&name);
        while create.existing == Existing::Refresh
            && let Some(table) = &found
        {
            if table.definition().is_same(&create) || self.redefine(table, &create).await? {
                return self.refreshed(&create.name).await;
            }
            found = self.tables.get(&name);
        }
        match (found, create.existing) {
            (Some(_), Existing::Keep) => return self.nothing(),
            (Some(_), Existing::Refuse) => return Err(exists(&create.name)),
            (None, _) if self.session.table_exist(create.name.clone())? => {
                self.refuse_if_late(&create.name, "replace")?;
                return Err(exists(&create.name));
            }
            (None, Existing::Keep | Existing::Refresh | Existing::Refuse)
                if self.is_unopened(&name) =>
            {
                return Err(unopened(&create.name).into());
            }
            (Some(_) | None, _) => {}
        }
        let definition = Definition::plan(&create, &self.session.state(), &self.unbounded).await?;
        self.refuse_taken_late(&name, &definition)?;
        let paused = match self.tables.get(&name) {
            Some(table) => {
                self.refuse_if_read(&create.name, "replace")?;
                Some(self.pause(&table).await)
            }
            None => None,
        };
        let old = self.held(&name).await;
        if old.is_some() && create.existing != Existing::Replace {
            // Another statement has made it meanwhile.
            return Err(exists(&create.name));
        }
        self.make_anew(&create.name, definition, None, old).await?;
        drop(paused);
        if create.existing == Existing::Refresh {
            return self.refreshed(&create.name).await;
        }
        self.nothing()
    }

    /// The table of a name, if there is one, its query kept from running. It keeps its place and its definition as long
    /// as it is held: whoever takes those away holds it too.
    async fn held(&self, name: &str) -> Option<Held> {
        loop {
            let table = self.tables.get(name)?;
            let run = table.hold().await;
            if self.is_there(&table) {
                return Some(Held { table, run });
            }
        }
    }

    /// Whether a table is the one of its name, by the definition that it has.
    fn is_there(&self, table: &Arc<StreamingTable>) -> bool {
        let there = self.tables.get(table.name());
        there.is_some_and(|there| Arc::ptr_eq(&there, table))
    }

    /// Whether a streaming table is written down that could not be made again when the database was opened.
    fn is_unopened(&self, name: &str) -> bool {
        let database = self.database.as_ref();
        let entry = database.and_then(|database| database.entry(name));
        entry.is_some_and(|entry| entry.kind == Kind::Streaming)
    }

    /// Puts a new streaming table in the place of the one of its name, which is held if there is one. It writes to the
    /// location that is given, or to the one that its definition names.
    async fn make_anew(
        &self,
        name: &TableReference,
        definition: Definition,
        location: Option<String>,
        mut old: Option<Held>,
    ) -> Result<()> {
        let resolved = self.resolve(name);
        let known = self
            .database
            .as_ref()
            .and_then(|database| database.entry(&resolved));
        let location = match (&location, &definition.target) {
            (None, Some(target)) => Some(self.absolute(&target.location)?),
            _ => location,
        };
        let former = former_of(known, old.as_ref().map(|old| &*old.table));
        let outlet = self.outlet(name.table(), &definition, location.as_deref())?;
        if let Some(location) = &location {
            self.refuse_foreign_files(&resolved, location, &former)?;
        }
        let id = match &self.database {
            Some(database) => database.new_id(),
            None => random_id(),
        };
        let entry = Entry {
            id: id.clone(),
            location,
            former,
            schema: Some(Arc::clone(&definition.schema)),
            ..Entry::new(
                &self.resolved(name),
                Kind::Streaming,
                definition.statement.clone(),
            )
        };
        let kept = self.checkpoints_kept(&definition)?;
        let cleaners = self.cleaners(&entry.former, outlet.as_ref())?;
        let retention = self.retentions(&resolved, &definition);
        let mut table = StreamingTable::new(
            resolved.clone(),
            name.table().to_owned(),
            definition,
            &id,
            outlet,
            retention,
            cleaners,
        );
        if let Some(database) = &self.database {
            let made = Checkpoint::create(
                database.disk(),
                database.doubts(),
                Database::QUERIES,
                &id,
                kept,
                Value::Null,
            );
            table = table.kept_in(made?);
            database.put(entry)?;
        }
        if let Some(old) = &mut old {
            old.run.is_ended = true;
        }
        let table = self.register_anew(name, table)?;
        drop(old);
        self.forget_former(&table).await
    }

    /// Puts a table where the one of its name was.
    pub(super) fn register_anew(
        &self,
        name: &TableReference,
        table: StreamingTable,
    ) -> Result<Arc<StreamingTable>> {
        if let Some(old) = self.tables.remove(table.name()) {
            self.deregister(name, &old)?;
        }
        if let (Some(name), Some(late)) = (table.late_name(), table.late_provider()) {
            self.session.register_table(name.clone(), late)?;
        }
        let registered = self.session.register_table(name.clone(), table.provider());
        if let (Err(_), Some(late)) = (&registered, table.late_name()) {
            self.session.deregister_table(late.clone())?;
        }
        registered?;
        let table = Arc::new(table);
        self.tables
            .insert(table.name().to_owned(), Arc::clone(&table));
        Ok(table)
    }

    /// Takes a table, and that of its late rows, out of the session.
    fn deregister(&self, name: &TableReference, table: &StreamingTable) -> Result<()> {
        self.session.deregister_table(name.clone())?;
        if let Some(late) = table.late_name() {
            self.session.deregister_table(late.clone())?;
        }
        Ok(())
    }

    /// When rows of a table are removed by their age.
    pub(super) fn retentions(&self, table: &str, definition: &Definition) -> Retentions {
        let late = definition.late.as_ref();
        Retentions {
            result: self.retention(table, definition.retain),
            late: late.and_then(|late| self.retention(&late.name.to_string(), definition.retain)),
        }
    }

    /// Who takes away the rows of former queries: where they went to a directory, and else the sink of the query
    /// that took their place.
    pub(super) fn cleaners(
        &self,
        former: &[Former],
        outlet: Option<&Outlet>,
    ) -> Result<Vec<(Arc<dyn Sink>, String)>> {
        let mut cleaners = Vec::new();
        for former in former {
            let sink = match (&former.location, outlet) {
                (Some(location), _) => {
                    let (disk, folder) = self.disk_of(location)?;
                    Some(cleaner(disk, folder))
                }
                (None, Some(outlet)) => Some(Arc::clone(&outlet.sink)),
                (None, None) => None,
            };
            cleaners.extend(sink.map(|sink| (sink, former.id.clone())));
        }
        Ok(cleaners)
    }

    /// Removes what former queries have written, now that it is written down that it goes. If that fails it is
    /// tried again before the new query's first rows.
    async fn forget_former(&self, table: &StreamingTable) -> Result<()> {
        table.hand_on().await?;
        let Some(database) = &self.database else {
            return Ok(());
        };
        let with_former = || {
            let entry = database.entry(table.name());
            entry.filter(|entry| entry.id == table.id() && !entry.former.is_empty())
        };
        if with_former().is_none() {
            return Ok(());
        }
        // What another definition writes down meanwhile is not to be lost.
        let _run = table.hold().await;
        match with_former() {
            Some(entry) => database.put(Entry {
                former: Vec::new(),
                ..entry
            }),
            None => Ok(()),
        }
    }

    /// The table as it was defined, without anything that it has read. Its query does not run.
    pub(super) async fn begin_anew(&self, name: &TableReference) -> Result<()> {
        let Some(old) = self.held(&self.resolve(name)).await else {
            return Err(unknown(name.table()));
        };
        let database = self.database.as_ref();
        let location = database.and_then(|database| database.entry(old.table.name())?.location);
        let location = location.or_else(|| old.table.location());
        let definition = old.table.definition().clone();
        self.make_anew(name, definition, location, Some(old)).await
    }

    /// `OR REFRESH` with another query: it goes on with the state that there is, if that is of the same form.
    /// Whether it is shows when the query runs; what can be told now is. From then on it runs by no other query, also
    /// where that was planned before. False if the table has gone meanwhile, or is another one: nothing has changed.
    async fn redefine(
        &self,
        table: &Arc<StreamingTable>,
        create: &CreateStreamingTable,
    ) -> Result<bool> {
        let (state, unbounded) = (self.session.state(), &self.unbounded);
        let definition = Definition::plan(create, &state, unbounded).await?;
        table.definition().refuse_other(&definition)?;
        let alike = table.definition().is_like(&definition, &state, unbounded);
        // What cannot be planned any more is not known to be the same.
        let alike = alike.await.unwrap_or(false);
        let other = table.redefined(definition);
        let plan = other.physical_plan(&state, unbounded).await?;
        let (_correcting, mut run) = table.hold_to_redefine().await;
        if !self.is_there(table) {
            return Ok(false);
        }
        run.check_plan(&plan)?;
        let mixed = table.mixes(alike, &run);
        let other = Arc::new(other.mixed(mixed));
        if let Some(database) = &self.database
            && let Some(entry) = database.entry(table.name())
        {
            database.put(Entry {
                sql: create.statement.clone(),
                mixed,
                ..entry
            })?;
        }
        other.take_over(&mut run);
        self.tables.insert(table.name().to_owned(), other);
        self.started.look_again(table.name());
        Ok(true)
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

    /// Refuses to write among files that are not of this table, or where another table writes: readers would read
    /// those too.
    fn refuse_foreign_files(&self, table: &str, location: &str, former: &[Former]) -> Result<()> {
        let tables = self.tables.all();
        let other = tables.iter().find(|other| {
            let theirs = other.location();
            other.name() != table && theirs.is_some_and(|theirs| share_files(&theirs, location))
        });
        if let Some(other) = other {
            return Err(not_empty(
                location,
                &format!("the streaming table {}", other.bare_name()),
            ));
        }
        let (disk, folder) = self.disk_of(location)?;
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in disk.list(&folder).unwrap_or_default() {
                let own = |former: &Former| entry.name.starts_with(&format!("part-{}-", former.id));
                if entry.dir && entry.name.contains('=') {
                    let within = if folder.is_empty() { "" } else { "/" };
                    folders.push(format!("{folder}{within}{}", entry.name));
                } else if !entry.name.starts_with('.') && !former.iter().any(own) {
                    return Err(not_empty(location, &entry.name));
                }
            }
        }
        Ok(())
    }

    async fn drop_streaming_table(
        &self,
        name: &TableReference,
        if_exists: bool,
    ) -> Result<DataFrame> {
        let resolved = self.resolve(name);
        let Some(table) = self.tables.get(&resolved) else {
            return match &self.database {
                // It is written down, and could not be made again.
                Some(database) if self.is_unopened(&resolved) => {
                    database.remove(&resolved)?;
                    self.nothing()
                }
                _ if if_exists => self.nothing(),
                _ => Err(unknown(name.table())),
            };
        };
        self.refuse_if_read(name, "drop")?;
        let _paused = self.pause(&table).await;
        if let Some(mut held) = self.held(&resolved).await {
            if let Some(database) = &self.database {
                database.remove(&resolved)?;
            }
            held.run.is_ended = true;
            self.tables.remove(&resolved);
            self.deregister(name, &held.table)?;
        }
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

/// Whether who reads one of two directories reads files of the other: they are the same one, by whatever names, or
/// one lies in folders of the other that partitions may be in.
fn share_files(one: &str, other: &str) -> bool {
    let (one, other) = (true_path(one), true_path(other));
    let lies_in = |inner: &Path, outer: &Path| {
        let rest = inner.strip_prefix(outer);
        rest.is_ok_and(|rest| rest.iter().all(|name| name.to_string_lossy().contains('=')))
    };
    lies_in(&one, &other) || lies_in(&other, &one)
}

/// The path of a directory without links and ways up; as it is written where there is none.
fn true_path(location: &str) -> PathBuf {
    let path = Path::new(location);
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// The error of a directory that something else is in.
fn not_empty(location: &str, found: &str) -> DataFusionError {
    Refusal::new(
        "LOCATION_NOT_EMPTY",
        "42P07",
        format!("{location} has something in it that is not of this table: {found}."),
    )
    .hint("name a directory that is empty or not there")
    .into()
}

/// The queries whose rows go when another takes the place of a table: those that are written down, and the last.
fn former_of(known: Option<Entry>, old: Option<&StreamingTable>) -> Vec<Former> {
    let last = match (&known, old) {
        (Some(known), _) => Some((known.id.clone(), known.location.clone())),
        (None, Some(old)) => Some((old.id().to_owned(), old.location())),
        (None, None) => None,
    };
    let mut former = known.map_or_else(Vec::new, |known| known.former);
    former.extend(last.map(|(id, location)| Former { id, location }));
    former
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

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;

    use super::super::read;
    use super::*;
    use crate::sql::Parsed;

    async fn run(ctx: &StreamContext, sql: &str) -> Vec<RecordBatch> {
        ctx.sql(sql).await.unwrap().collect().await.unwrap()
    }

    #[tokio::test]
    async fn what_was_planned_by_an_earlier_query_neither_runs_nor_changes_the_table() {
        let ctx = StreamContext::new().unwrap();
        let other = "CREATE OR REFRESH STREAMING TABLE q AS SELECT v * 10 AS v FROM STREAM t";
        for sql in [
            "CREATE TABLE t (v BIGINT)",
            "INSERT INTO t VALUES (1)",
            "CREATE OR REFRESH STREAMING TABLE q AS SELECT v FROM STREAM t",
        ] {
            run(&ctx, sql).await;
        }
        let old = ctx.streaming_table(&TableReference::bare("q")).unwrap();
        run(&ctx, other).await;
        run(&ctx, "INSERT INTO t VALUES (2)").await;
        let state = ctx.session.state();
        let refreshed = old.refresh(&state, &ctx.unbounded).await;
        assert!(is_redefined(&refreshed.unwrap_err()));
        let corrected = old.correct(&state, &ctx.unbounded).await;
        assert!(is_redefined(&corrected.unwrap_err()));
        let Parsed::Streaming(statement) = read(other, &state).unwrap() else {
            panic!("{other}");
        };
        let StreamingStatement::Create(create) = *statement else {
            panic!("{other}");
        };
        assert!(!ctx.redefine(&old, &create).await.unwrap());
        assert_eq!(ctx.refresh("q").await.unwrap().len(), 1);
        let sum = run(&ctx, "SELECT sum(v) FROM q").await;
        let sum = sum[0].column(0).as_primitive::<Int64Type>().value(0);
        assert_eq!(sum, 1 + 20);
    }
}
