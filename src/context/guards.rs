//! Sources and streaming tables cannot be taken away from under what reads them.

use datafusion::common::{Result, SchemaReference, TableReference};

use super::StreamContext;
use crate::catalog::{Definition, StreamingTable};
use crate::error::Refusal;

impl StreamContext {
    /// Refuses to take a source away from a streaming table that reads it. The late rows of a streaming table go with
    /// it, and may be a source as well.
    pub(super) fn refuse_if_read(&self, name: &TableReference, what: &str) -> Result<()> {
        let resolved = self.resolve(name);
        let table = self.tables.get(&resolved);
        let late = table.as_deref().and_then(StreamingTable::late_name);
        for source in std::iter::once(name).chain(late) {
            let reader = self.tables.reader_of(&self.resolve(source));
            if let Some(reader) = reader.filter(|reader| reader.name() != resolved) {
                return Err(in_use(source, &reader, what).into());
            }
        }
        Ok(())
    }

    /// Refuses to put something else in the place of a streaming table or of a source that is read.
    pub(super) fn refuse_if_taken(&self, name: &TableReference, what: &str) -> Result<()> {
        if self.tables.get(&self.resolve(name)).is_some() {
            return Err(Refusal::new(
                "WRONG_COMMAND_FOR_OBJECT_TYPE",
                "42809",
                format!("Cannot {what} {name}: it is a streaming table."),
            )
            .hint(format!("write DROP STREAMING TABLE {name}"))
            .into());
        }
        self.refuse_if_late(name, what)?;
        self.refuse_if_read(name, what)
    }

    /// Refuses to put something else in the place of the late rows of a streaming table.
    pub(super) fn refuse_if_late(&self, name: &TableReference, what: &str) -> Result<()> {
        match self.tables.owner_of_late(&self.resolve(name)) {
            None => Ok(()),
            Some(owner) => Err(Refusal::new(
                "WRONG_COMMAND_FOR_OBJECT_TYPE",
                "42809",
                format!(
                    "Cannot {what} {name}: the late rows of the streaming table {} are there.",
                    owner.bare_name()
                ),
            )
            .hint(format!(
                "they go with it: DROP STREAMING TABLE {}",
                owner.bare_name()
            ))
            .into()),
        }
    }

    /// Refuses a table of late rows whose name is taken; the table that it belongs to may have had it before.
    pub(super) fn refuse_taken_late(&self, table: &str, definition: &Definition) -> Result<()> {
        let Some(late) = &definition.late else {
            return Ok(());
        };
        let state = self.session.state();
        if late.name.schema() == Some("information_schema") {
            return Err(Refusal::new(
                "INVALID_STREAM_OPTION",
                "42616",
                "late_rows: information_schema takes no tables.",
            )
            .hint("give late rows a table in a schema of yours")
            .into());
        }
        state.schema_for_ref(late.name.clone())?;
        let owner = self.tables.owner_of_late(&late.name.to_string());
        if owner.is_some_and(|owner| owner.name() == table) {
            return Ok(());
        }
        let database = self.database.as_ref();
        let written = database.and_then(|database| database.entry(&late.name.to_string()));
        if written.is_none() && !self.session.table_exist(late.name.clone())? {
            return Ok(());
        }
        Err(Refusal::new(
            "TABLE_OR_VIEW_ALREADY_EXISTS",
            "42P07",
            format!("late_rows: there is a table '{}' already.", late.name),
        )
        .hint("late rows have a table of their own: give it another name")
        .into())
    }

    /// Refuses to drop a schema with streaming tables, or with sources of some.
    pub(super) fn refuse_schema_in_use(&self, schema: &SchemaReference) -> Result<()> {
        let state = self.session.state();
        let catalog = match schema {
            SchemaReference::Full { catalog, .. } => catalog.to_string(),
            SchemaReference::Bare { .. } => state.config_options().catalog.default_catalog.clone(),
        };
        let prefix = format!("{catalog}.{}.", schema.schema_name());
        let tables = self.tables.all();
        let user = tables.iter().find(|table| {
            let sources = table.definition().sources.iter().map(String::as_str);
            let late = table.late_name().map(ToString::to_string);
            sources
                .chain([table.name()])
                .chain(late.as_deref())
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
}

/// The refusal to take away what a streaming table reads.
fn in_use(source: &TableReference, reader: &StreamingTable, what: &str) -> Refusal {
    let reader = reader.bare_name();
    Refusal::new(
        "SOURCE_IN_USE",
        "2BP01",
        format!("Cannot {what} {source}: the streaming table {reader} reads it."),
    )
    .hint(format!("first write DROP STREAMING TABLE {reader}"))
}
