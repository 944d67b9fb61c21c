//! Our own statements: what defines, refreshes and shows streaming tables.
//!
//! ```text
//! CREATE [OR REPLACE | OR REFRESH] STREAMING TABLE name [WITH (k = v, …)] AS query
//! CREATE STREAMING TABLE [IF NOT EXISTS] name [WITH (k = v, …)] AS query
//! REFRESH STREAMING TABLE name        DROP STREAMING TABLE [IF EXISTS] name
//! SHOW STREAMING TABLES               DESCRIBE [STREAMING TABLE] name
//! EXPLAIN STREAMING TABLE name
//! ```

use datafusion::common::{Result, TableReference};
use datafusion::sql::parser::Statement as DfStatement;
use sqlparser::ast::Statement as SqlStatement;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::clause::parse_options;
use super::parse::Reader;
use super::tokens::{as_word, begins_with, closing, is, place, text_from};
use crate::error::Refusal;

/// A statement about streaming tables.
#[derive(Debug, Clone)]
pub enum StreamingStatement {
    /// Defines one.
    Create(Box<CreateStreamingTable>),
    /// Reads what has arrived, in epochs.
    Refresh(TableReference),
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

/// What happens to a streaming table that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is an error.
    Refuse,
    /// It stays, and nothing happens (`IF NOT EXISTS`).
    Keep,
    /// It goes, with its result and state (`OR REPLACE`).
    Replace,
    /// It is refreshed (`OR REFRESH`).
    Refresh,
}

/// `CREATE STREAMING TABLE`.
#[derive(Debug, Clone)]
pub struct CreateStreamingTable {
    /// Its name.
    pub name: TableReference,
    /// What to do if it exists.
    pub existing: Existing,
    /// Options of `WITH (…)`, keys in lower case.
    pub options: Vec<(String, String)>,
    /// Its query.
    pub query: DfStatement,
    /// The query's text, as it was written.
    pub text: String,
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
    let mut cursor = Cursor {
        tokens: &words,
        at: 0,
    };
    let existing = if cursor.take(&["CREATE", "OR", "REPLACE", "STREAMING", "TABLE"]) {
        Existing::Replace
    } else if cursor.take(&["CREATE", "OR", "REFRESH", "STREAMING", "TABLE"]) {
        Existing::Refresh
    } else if cursor.take(&["CREATE", "STREAMING", "TABLE"]) {
        Existing::Refuse
    } else {
        return simple(cursor);
    };
    create(cursor, existing, reader)
        .map(|create| Some(StreamingStatement::Create(Box::new(create))))
}

/// The statements that are a few words and a name.
fn simple(mut cursor: Cursor<'_>) -> Result<Option<StreamingStatement>> {
    let statement = if cursor.take(&["REFRESH", "STREAMING", "TABLE"]) {
        StreamingStatement::Refresh(cursor.name()?)
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
    cursor.end()?;
    Ok(Some(statement))
}

fn create(
    mut cursor: Cursor<'_>,
    existing: Existing,
    reader: &Reader<'_>,
) -> Result<CreateStreamingTable> {
    let existing = match (
        begins_with(cursor.rest(), &["IF", "NOT", "EXISTS"]),
        existing,
    ) {
        (true, Existing::Refuse) => Existing::Keep,
        (true, _) => {
            let message = "IF NOT EXISTS leaves a table alone, OR REPLACE and OR REFRESH do not.";
            return Err(cursor.wrong(message, "write one of them").into());
        }
        (false, existing) => existing,
    };
    cursor.take(&["IF", "NOT", "EXISTS"]);
    let name = cursor.name()?;
    let options = cursor.options()?;
    if !cursor.take(&["AS"]) {
        return Err(cursor
            .wrong(
                "AS and a query must follow.",
                "write CREATE STREAMING TABLE name AS SELECT …",
            )
            .into());
    }
    let body = cursor.rest();
    if body.is_empty() {
        return Err(cursor
            .wrong(
                "The query is missing.",
                "write CREATE STREAMING TABLE name AS SELECT …",
            )
            .into());
    }
    let text = body.first().map_or_else(String::new, |first| {
        text_from(reader.text, first.span.start)
    });
    let query = reader.datafusion(body.to_vec())?;
    if !matches!(&query, DfStatement::Statement(inner) if matches!(inner.as_ref(), SqlStatement::Query(_)))
    {
        let refusal = Refusal::new(
            "PARSE_SYNTAX_ERROR",
            "42601",
            "A streaming table is defined by a query.",
        )
        .at(body.first().and_then(|token| place(token.span.start)))
        .hint("write CREATE STREAMING TABLE name AS SELECT …");
        return Err(refusal.into());
    }
    Ok(CreateStreamingTable {
        name,
        existing,
        options,
        query,
        text,
    })
}

/// Reads tokens one after the other.
struct Cursor<'a> {
    tokens: &'a [TokenWithSpan],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The tokens not read yet.
    fn rest(&self) -> &'a [TokenWithSpan] {
        self.tokens.get(self.at..).unwrap_or_default()
    }

    /// Reads these words if they come next.
    fn take(&mut self, words: &[&str]) -> bool {
        let found = begins_with(self.rest(), words);
        self.at += if found { words.len() } else { 0 };
        found
    }

    /// Reads a name of one to three parts.
    fn name(&mut self) -> Result<TableReference> {
        let mut parts = Vec::new();
        while let Some(word) = self
            .tokens
            .get(self.at)
            .and_then(|token| as_word(&token.token))
        {
            let exact = word.quote_style.is_some();
            parts.push(if exact {
                word.value.clone()
            } else {
                word.value.to_ascii_lowercase()
            });
            self.at += 1;
            if self
                .tokens
                .get(self.at)
                .is_none_or(|token| token.token != Token::Period)
            {
                break;
            }
            self.at += 1;
        }
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(table), None, ..) => Ok(TableReference::bare(table)),
            (Some(schema), Some(table), None, _) => Ok(TableReference::partial(schema, table)),
            (Some(catalog), Some(schema), Some(table), None) => {
                Ok(TableReference::full(catalog, schema, table))
            }
            _ => Err(self
                .wrong(
                    "The name of a streaming table must follow.",
                    "write STREAMING TABLE name",
                )
                .into()),
        }
    }

    /// Reads `WITH (…)` if it comes next.
    fn options(&mut self) -> Result<Vec<(String, String)>> {
        if !is(self.tokens.get(self.at), "WITH") {
            return Ok(Vec::new());
        }
        let open = self.at + 1;
        let close = closing(self.tokens, open)
            .filter(|_| {
                self.tokens
                    .get(open)
                    .is_some_and(|token| token.token == Token::LParen)
            })
            .ok_or_else(|| {
                self.wrong(
                    "WITH takes options in parentheses.",
                    "write WITH (output_mode = 'append')",
                )
            })?;
        self.at = close + 1;
        Ok(parse_options(&self.tokens[open + 1..close])?)
    }

    fn end(&self) -> Result<()> {
        match self.tokens.get(self.at) {
            None => Ok(()),
            Some(token) => Err(self
                .wrong(
                    &format!("Nothing is expected here: {}.", token.token),
                    "end the statement before it",
                )
                .into()),
        }
    }

    fn wrong(&self, message: &str, hint: &str) -> Refusal {
        let token = self.tokens.get(self.at).or_else(|| self.tokens.last());
        Refusal::new("PARSE_SYNTAX_ERROR", "42601", message)
            .at(token.and_then(|token| place(token.span.start)))
            .hint(hint)
    }
}
