//! Sources and streaming tables cannot be taken away from under what reads them.

use datafusion::common::{Result, SchemaReference, TableReference};

use super::StreamContext;
use crate::error::Refusal;

impl StreamContext {
    /// Refuses to take a source away from a streaming table that reads it.
    pub(super) fn refuse_if_read(&self, name: &TableReference, what: &str) -> Result<()> {
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
        self.refuse_if_read(name, what)
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
}
