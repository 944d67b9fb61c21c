//! Our own statements: what defines, refreshes, starts and shows streaming tables.
//!
//! ```text
//! CREATE [OR REPLACE | OR REFRESH] STREAMING TABLE name [part …] AS query
//! CREATE STREAMING TABLE [IF NOT EXISTS] name [part …] AS query
//!
//!   part, each at most once, in either order:
//!     WITH (k = v, …)
//!     STORED AS PARQUET | CSV | JSON LOCATION 'dir/' [PARTITIONED BY (column, …)]
//!
//! REFRESH STREAMING TABLE name [FULL]
//! ALTER STREAMING TABLE name START [EVERY INTERVAL length]
//! ALTER STREAMING TABLE name STOP
//! ALTER STREAMING TABLE name CORRECT
//! DROP STREAMING TABLE [IF EXISTS] name
//! SHOW STREAMING TABLES
//! DESCRIBE [STREAMING TABLE] name
//! EXPLAIN STREAMING TABLE name
//! ```
//!
//! | file | what it reads |
//! |---|---|
//! | `create` | `CREATE STREAMING TABLE` |
//! | `target` | its `STORED AS` |
//! | `alter` | `ALTER STREAMING TABLE` |
//! | `cursor` | words, names and lists, one after the other |

mod alter;
mod create;
mod cursor;
mod target;

use std::time::Duration;

use datafusion::common::{Result, TableReference};
use sqlparser::tokenizer::{Token, TokenWithSpan};

pub use self::create::{CreateStreamingTable, Existing};
use self::cursor::Cursor;
pub use self::target::{Format, Target};
use super::parse::Reader;

/// A statement about streaming tables.
#[derive(Debug, Clone)]
pub enum StreamingStatement {
    /// Defines one.
    Create(Box<CreateStreamingTable>),
    /// Reads what has arrived, in epochs.
    Refresh {
        /// Its name.
        name: TableReference,
        /// Whether it begins anew, without its result and state (`FULL`).
        full: bool,
    },
    /// Refreshes one from now on, until it is stopped.
    Start {
        /// Its name.
        name: TableReference,
        /// Time from one refresh to the next, greater than zero; none if the statement names none.
        every: Option<Duration>,
    },
    /// Refreshes one no longer.
    Stop {
        /// Its name.
        name: TableReference,
    },
    /// Writes over the result of one what has come late since.
    Correct {
        /// Its name.
        name: TableReference,
    },
    /// Lists them.
    Show,
    /// Lists the columns of one.
    Describe(TableReference),
    /// Says why one has no output, and what would bring it.
    Explain(TableReference),
    /// Removes one, with its result.
    Drop {
        /// Its name.
        name: TableReference,
        /// Whether its absence is no error.
        if_exists: bool,
    },
}

/// Reads one of our statements; `None` if the tokens begin otherwise.
pub(super) fn read(
    tokens: &[TokenWithSpan],
    reader: &Reader<'_>,
) -> Result<Option<StreamingStatement>> {
    let words: Vec<TokenWithSpan> = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .cloned()
        .collect();
    let mut cursor = Cursor::new(&words);
    let existing = if cursor.take(&["CREATE", "OR", "REPLACE", "STREAMING", "TABLE"]) {
        Existing::Replace
    } else if cursor.take(&["CREATE", "OR", "REFRESH", "STREAMING", "TABLE"]) {
        Existing::Refresh
    } else if cursor.take(&["CREATE", "STREAMING", "TABLE"]) {
        Existing::Refuse
    } else {
        return simple(cursor);
    };
    create::create(cursor, existing, reader)
        .map(|create| Some(StreamingStatement::Create(Box::new(create))))
}

/// The statements that are a few words and a name.
fn simple(mut cursor: Cursor<'_>) -> Result<Option<StreamingStatement>> {
    let statement = if cursor.take(&["REFRESH", "STREAMING", "TABLE"]) {
        StreamingStatement::Refresh {
            name: cursor.name()?,
            full: cursor.take(&["FULL"]),
        }
    } else if cursor.take(&["ALTER", "STREAMING", "TABLE"]) {
        return Ok(Some(alter::alter(&mut cursor)?));
    } else if cursor.take(&["SHOW", "STREAMING", "TABLES"]) {
        StreamingStatement::Show
    } else if cursor.take(&["DESCRIBE", "STREAMING", "TABLE"]) {
        StreamingStatement::Describe(cursor.name()?)
    } else if cursor.take(&["EXPLAIN", "STREAMING", "TABLE"]) {
        StreamingStatement::Explain(cursor.name()?)
    } else if cursor.take(&["DROP", "STREAMING", "TABLE"]) {
        let if_exists = cursor.take(&["IF", "EXISTS"]);
        StreamingStatement::Drop {
            name: cursor.name()?,
            if_exists,
        }
    } else {
        return Ok(None);
    };
    cursor.end("end the statement before it")?;
    Ok(Some(statement))
}

#[cfg(test)]
mod tests;
