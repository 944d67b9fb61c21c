//! DataFusion's statements that define something, where streams have a say.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, SchemaError, TableReference, schema_err};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{CreateExternalTable, CreateMemoryTable, DdlStatement, LogicalPlan};
use futures::FutureExt;

use super::database::Written;
use super::{Asked, StreamContext};
use crate::catalog::{Entry, Kind};
use crate::error::Refusal;
use crate::logical::without_places;
use crate::source::AppendTable;

impl StreamContext {
    /// Runs a statement that defines something, and writes down what it did. What cannot be written down is
    /// taken back.
    pub(super) async fn define(&self, ddl: DdlStatement, asked: Asked<'_>) -> Result<DataFrame> {
        self.refuse_unopened(&ddl)?;
        let before = self.made_by(&ddl);
        let (done, written) = self.define_here(ddl, asked).await?;
        if let Err(error) = self.write_down(written) {
            if let Some((name, former)) = before {
                self.session.deregister_table(name.clone())?;
                if let Some(former) = former {
                    self.session.register_table(name, former)?;
                }
            }
            return Err(error);
        }
        Ok(done)
    }

    /// The table that a statement makes or removes, and what has its name now.
    fn made_by(
        &self,
        ddl: &DdlStatement,
    ) -> Option<(TableReference, Option<Arc<dyn TableProvider>>)> {
        let name = match ddl {
            DdlStatement::CreateMemoryTable(create) => create.name.clone(),
            DdlStatement::CreateExternalTable(create) => create.name.clone(),
            DdlStatement::CreateView(create) => create.name.clone(),
            DdlStatement::DropTable(drop) => drop.name.clone(),
            DdlStatement::DropView(drop) => drop.name.clone(),
            _ => return None,
        };
        let found = self.session.table_provider(name.clone()).now_or_never();
        Some((name, found.and_then(std::result::Result::ok)))
    }

    /// Runs a statement that defines something; tells what is to be written down.
    pub(super) async fn define_here(
        &self,
        ddl: DdlStatement,
        asked: Asked<'_>,
    ) -> Result<(DataFrame, Option<Written>)> {
        let written = self.to_be_written(&ddl, asked.sql)?;
        let dropped = match &ddl {
            DdlStatement::DropTable(drop) => Some(drop.name.clone()),
            DdlStatement::DropView(drop) => Some(drop.name.clone()),
            _ => None,
        };
        let there = |name: &Option<TableReference>| match name {
            Some(name) => self.session.table_exist(name.clone()),
            None => Ok(false),
        };
        let before = there(&dropped)?;
        let (done, mut written) = match ddl {
            DdlStatement::CreateMemoryTable(create) => {
                self.create_append_table(create, asked).await?
            }
            ddl => (self.define_other(ddl).await?, written),
        };
        // IF EXISTS drops nothing where the name is that of another kind.
        if dropped.is_some() && (!before || there(&dropped)?) {
            written = None;
        }
        Ok((done, written))
    }

    /// Refuses to take the name of something that is kept and could not be opened: it would be removed.
    fn refuse_unopened(&self, ddl: &DdlStatement) -> Result<()> {
        let (name, replaces) = match ddl {
            DdlStatement::CreateMemoryTable(create) => (&create.name, create.or_replace),
            DdlStatement::CreateExternalTable(create) => (&create.name, false),
            DdlStatement::CreateView(create) => (&create.name, false),
            _ => return Ok(()),
        };
        let database = self.database.as_ref();
        let Some(entry) = database.and_then(|database| database.entry(&self.resolve(name))) else {
            return Ok(());
        };
        let table = matches!(entry.kind, Kind::Table | Kind::TableOfRows);
        if !entry.keeps_rows() || replaces && table || self.session.table_exist(name.clone())? {
            return Ok(());
        }
        Err(unopened(name).into())
    }

    /// What a statement makes or removes of what is written down; nothing where it is there already.
    fn to_be_written(&self, ddl: &DdlStatement, sql: &str) -> Result<Option<Written>> {
        let table = |name: &TableReference| {
            let entry = Entry::new(&self.resolved(name), Kind::Statement, sql);
            Written::Made(Box::new(entry))
        };
        let other =
            |name: String| Written::Made(Box::new(Entry::named(name, Kind::Statement, sql)));
        Ok(match ddl {
            DdlStatement::CreateExternalTable(create) => {
                let there = self.session.table_exist(create.name.clone())?;
                (!there || create.or_replace).then(|| table(&create.name))
            }
            DdlStatement::CreateView(create) if !create.temporary => Some(table(&create.name)),
            DdlStatement::CreateCatalogSchema(create) => Some(other(format!(
                "schema {}",
                self.resolved_schema(&create.schema_name)
            ))),
            DdlStatement::CreateCatalog(create) => {
                Some(other(format!("catalog {}", create.catalog_name)))
            }
            DdlStatement::DropTable(drop) => Some(Written::Removed(self.resolve(&drop.name))),
            DdlStatement::DropView(drop) => Some(Written::Removed(self.resolve(&drop.name))),
            DdlStatement::DropCatalogSchema(drop) => Some(Written::RemovedSchema(
                self.resolved_schema(&drop.name.to_string()),
            )),
            _ => None,
        })
    }

    /// A schema's name with its catalog.
    fn resolved_schema(&self, name: &str) -> String {
        let state = self.session.state();
        match name.contains('.') {
            true => name.to_owned(),
            false => format!("{}.{name}", state.config_options().catalog.default_catalog),
        }
    }

    async fn define_other(&self, ddl: DdlStatement) -> Result<DataFrame> {
        match ddl {
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
    async fn create_append_table(
        &self,
        create: CreateMemoryTable,
        asked: Asked<'_>,
    ) -> Result<(DataFrame, Option<Written>)> {
        let exists = self.session.table_exist(create.name.clone())?;
        if exists && create.if_not_exists && !create.or_replace {
            return Ok((self.nothing()?, None));
        }
        if create.temporary || exists && (!create.or_replace || create.if_not_exists) {
            // DataFusion's own words for what cannot be.
            let plan = LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create));
            return Ok((self.session.execute_logical_plan(plan).await?, None));
        }
        if exists {
            self.refuse_if_taken(&create.name, "replace")?;
        }
        let kind = match has_rows(&create.input) {
            true => Kind::TableOfRows,
            false => Kind::Table,
        };
        let rows = DataFrame::new(self.session.state(), Arc::unwrap_or_clone(create.input));
        let schema = Arc::clone(rows.schema().inner());
        unique_names(&schema)?;
        let rows = rows.collect_partitioned().await?;
        let name = self.resolve(&create.name);
        let (log, id) = self.new_log(&name, Arc::clone(&schema), asked.retain)?;
        log.append(&rows.concat())?;
        let entry = id.map(|id| Entry {
            id,
            schema: Some(schema),
            ..Entry::new(&self.resolved(&create.name), kind, asked.sql)
        });
        let table = AppendTable::new(create.name.table(), Arc::new(log))
            .with_definition(create.constraints, create.column_defaults)
            .with_partitions(rows.len());
        if exists {
            self.session.deregister_table(create.name.clone())?;
        }
        self.forget_unbounded(&create.name);
        self.session.register_table(create.name, Arc::new(table))?;
        Ok((
            self.nothing()?,
            entry.map(|entry| Written::Made(Box::new(entry))),
        ))
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
}

/// The refusal of a name whose table is kept and could not be opened.
pub(super) fn unopened(name: &TableReference) -> Refusal {
    Refusal::new(
        "TABLE_NOT_OPENED",
        "55000",
        format!("'{name}' is kept in this database, and could not be opened."),
    )
    .hint("open the database again when the reason has gone, or begin anew with CREATE OR REPLACE")
}

/// Whether a table is made from rows: without a query its input is an empty relation, under a projection at most.
fn has_rows(input: &LogicalPlan) -> bool {
    match input {
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Projection(projection) => has_rows(&projection.input),
        _ => true,
    }
}

/// Two columns of one name could not be told apart.
fn unique_names(schema: &SchemaRef) -> Result<()> {
    let mut names = HashSet::new();
    match schema
        .fields()
        .iter()
        .find(|field| !names.insert(field.name()))
    {
        Some(field) => schema_err!(SchemaError::DuplicateUnqualifiedField {
            name: field.name().clone()
        }),
        None => Ok(()),
    }
}
