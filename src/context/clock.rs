//! What time of day it is for a context and its queries, and which rows its streaming tables have read: by both old rows
//! go.

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use super::StreamContext;
use crate::catalog::{Database, StreamingTables};
use crate::source::{Clock, Readers, Retention, SystemClock};

/// The clock of a context, which may be given another one.
#[derive(Debug)]
pub(super) struct ContextClock(RwLock<Arc<dyn Clock>>);

impl Default for ContextClock {
    fn default() -> Self {
        Self(RwLock::new(Arc::new(SystemClock)))
    }
}

impl ContextClock {
    fn set(&self, clock: Arc<dyn Clock>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = clock;
    }
}

impl Clock for ContextClock {
    fn now_ms(&self) -> i64 {
        let clock = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clock.now_ms()
    }
}

/// The streaming tables of a context and of its database. It keeps neither.
#[derive(Debug)]
struct StreamingReaders {
    tables: Weak<StreamingTables>,
    /// None where there is no database.
    database: Option<Weak<Database>>,
}

impl StreamingReaders {
    /// None where it is not known: the context has gone, or a streaming table could not be made again.
    fn known(&self, table: &str) -> Option<u64> {
        let tables = self.tables.upgrade()?;
        if let Some(database) = &self.database {
            let made = |name: &str| tables.get(name).is_some();
            database.upgrade()?.are_all_streaming(made).then_some(())?;
        }
        Some(tables.passed(table))
    }
}

impl Readers for StreamingReaders {
    fn passed(&self, table: &str) -> u64 {
        // Of whom nothing is known may read all.
        self.known(table).unwrap_or(0)
    }
}

impl StreamContext {
    /// The context, and all its clones, with another clock: by it rows of tables and results with `retain` are old, rows
    /// are of the future (`max_future`), and inputs idle (`idle_timeout`). The time of rows that have arrived stays.
    /// Without this it is the clock of this machine.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.clock.set(clock);
        self
    }

    /// When rows of a table of this resolved name go, if they are kept for a time.
    pub(super) fn retention(&self, table: &str, retain: Option<Duration>) -> Option<Retention> {
        let readers = StreamingReaders {
            tables: Arc::downgrade(&self.tables),
            database: self.database.as_ref().map(Arc::downgrade),
        };
        Some(Retention {
            table: table.to_owned(),
            retain: retain?,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            readers: Arc::new(readers),
        })
    }
}
