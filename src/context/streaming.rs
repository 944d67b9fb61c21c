//! Our own statements: streaming tables are defined, refreshed, shown and dropped.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::dataframe::DataFrame;

use super::StreamContext;
use crate::catalog::{Definition, StreamingTable, outlook_batch, refresh_batch, unknown};
use crate::error::Refusal;
use crate::query::EpochProgress;
use crate::sql::{CreateStreamingTable, Existing, StreamingStatement};

impl StreamContext {
    /// Runs one of our statements.
    pub(super) async fn streaming(&self, statement: StreamingStatement) -> Result<DataFrame> {
        match statement {
            StreamingStatement::Create(create) => self.create_streaming_table(*create).await,
            StreamingStatement::Refresh(name) => {
                let table = self.streaming_table(&name)?;
                let records = table
                    .refresh(&self.session.state(), &self.unbounded)
                    .await?;
                self.session.read_batch(refresh_batch(&records)?)
            }
            StreamingStatement::Explain(name) => {
                let table = self.streaming_table(&name)?;
                let lines = table.outlook(&self.session.state()).await?;
                self.session.read_batch(outlook_batch(&lines)?)
            }
            StreamingStatement::Describe(name) => {
                self.streaming_table(&name)?;
                let sql = format!("DESCRIBE {}", name.to_quoted_string());
                self.session.sql(&sql).await
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
