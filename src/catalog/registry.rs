//! The streaming tables of a session, by their resolved name.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::streaming_table::StreamingTable;

/// The streaming tables of a session.
#[derive(Debug, Default)]
pub struct StreamingTables {
    tables: RwLock<BTreeMap<String, Arc<StreamingTable>>>,
}

impl StreamingTables {
    /// The table with this resolved name.
    pub fn get(&self, name: &str) -> Option<Arc<StreamingTable>> {
        self.tables
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    /// All tables, by name.
    pub fn all(&self) -> Vec<Arc<StreamingTable>> {
        self.tables
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Adds a table, in the place of one of its name.
    pub fn insert(&self, name: String, table: Arc<StreamingTable>) {
        self.tables
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, table);
    }

    /// Removes a table.
    pub fn remove(&self, name: &str) -> Option<Arc<StreamingTable>> {
        self.tables
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name)
    }

    /// A table that reads the source with this resolved name.
    pub fn reader_of(&self, source: &str) -> Option<Arc<StreamingTable>> {
        self.all()
            .into_iter()
            .find(|table| table.definition().sources.iter().any(|name| name == source))
    }

    /// The table whose late rows go to the one with this resolved name.
    pub fn owner_of_late(&self, name: &str) -> Option<Arc<StreamingTable>> {
        let is_late = |table: &Arc<StreamingTable>| {
            table
                .late_name()
                .is_some_and(|late| late.to_string() == name)
        };
        self.all().into_iter().find(is_late)
    }

    /// Number of the first row of a source that one of the tables may still read; `u64::MAX` if none reads it.
    pub fn passed(&self, source: &str) -> u64 {
        let tables = self.all().into_iter();
        let readers =
            tables.filter(|table| table.definition().sources.iter().any(|name| name == source));
        let passed = readers.map(|table| table.passed(source));
        passed.min().unwrap_or(u64::MAX)
    }
}
