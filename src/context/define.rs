//! DataFusion's statements that define something, where streams have a say.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, SchemaError, TableReference, schema_err};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{CreateExternalTable, CreateMemoryTable, DdlStatement, LogicalPlan};

use super::StreamContext;
use crate::logical::without_places;
use crate::source::{AppendLog, AppendTable};

impl StreamContext {
    /// Runs a statement that defines something.
    pub(super) async fn define(&self, ddl: DdlStatement) -> Result<DataFrame> {
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
        let rows = rows.collect_partitioned().await?;
        let log = AppendLog::new(schema);
        log.append(&rows.concat())?;
        let table = AppendTable::new(create.name.table(), Arc::new(log))
            .with_definition(create.constraints, create.column_defaults)
            .with_partitions(rows.len());
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
