//! `CREATE STREAMING TABLE`: a name, its options, where its result is stored, and its query.

use datafusion::common::{Result, TableReference};
use datafusion::sql::parser::Statement as DfStatement;
use sqlparser::ast::Statement as SqlStatement;
use sqlparser::tokenizer::TokenWithSpan;

use super::cursor::{Cursor, syntax};
use super::target::{self, Target};
use crate::error::Refusal;
use crate::sql::parse::Reader;
use crate::sql::tokens::{is, place, text_from};

/// What is written where the query is missing or is none.
const FORM: &str = "write CREATE STREAMING TABLE name AS SELECT …";

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
    /// Where its result is written as files, if the statement says so.
    pub target: Option<Target>,
    /// Its query.
    pub query: DfStatement,
    /// The query's text, as it was written.
    pub text: String,
    /// The whole statement's text as it was written, from `CREATE` to the end of the query.
    pub statement: String,
}

/// Reads what follows `CREATE … STREAMING TABLE`.
pub(super) fn create(
    mut cursor: Cursor<'_>,
    existing: Existing,
    reader: &Reader<'_>,
) -> Result<CreateStreamingTable> {
    let existing = if_not_exists(&mut cursor, existing)?;
    let name = cursor.name()?;
    let (options, target) = parts(&mut cursor)?;
    if !cursor.take(&["AS"]) {
        return Err(cursor.wrong("AS and a query must follow.", FORM).into());
    }
    let body = cursor.rest();
    if body.is_empty() {
        return Err(cursor.wrong("The query is missing.", FORM).into());
    }
    Ok(CreateStreamingTable {
        name,
        existing,
        options,
        target,
        query: query(body, reader)?,
        text: text_of(reader, body),
        statement: text_of(reader, cursor.all()),
    })
}

/// Reads `IF NOT EXISTS`, which goes with neither `OR REPLACE` nor `OR REFRESH`.
fn if_not_exists(cursor: &mut Cursor<'_>, existing: Existing) -> Result<Existing, Refusal> {
    let place = cursor.place();
    match (cursor.take(&["IF", "NOT", "EXISTS"]), existing) {
        (true, Existing::Refuse) => Ok(Existing::Keep),
        (true, _) => Err(syntax(
            place,
            "IF NOT EXISTS leaves a table alone, OR REPLACE and OR REFRESH do not.",
            "write one of them",
        )),
        (false, existing) => Ok(existing),
    }
}

/// Options of `WITH (…)`, keys in lower case.
type Options = Vec<(String, String)>;

/// Reads what stands between the name and `AS`: `WITH` and `STORED AS` in either order.
fn parts(cursor: &mut Cursor<'_>) -> Result<(Options, Option<Target>), Refusal> {
    let mut options: Option<Options> = None;
    let mut target: Option<Target> = None;
    loop {
        if is(cursor.peek(), "WITH") {
            if options.is_some() {
                return Err(cursor.wrong("WITH is given twice.", "write all options in one WITH"));
            }
            options = Some(cursor.options()?);
        } else if is(cursor.peek(), "STORED") {
            if target.is_some() {
                return Err(cursor.wrong("STORED AS is given twice.", "keep one"));
            }
            target = Some(target::read(cursor)?);
        } else {
            target::refuse_part(cursor)?;
            return Ok((options.unwrap_or_default(), target));
        }
    }
}

/// The query that these tokens are.
fn query(body: &[TokenWithSpan], reader: &Reader<'_>) -> Result<DfStatement> {
    let query = reader.datafusion(body.to_vec())?;
    if matches!(&query, DfStatement::Statement(inner) if matches!(inner.as_ref(), SqlStatement::Query(_)))
    {
        return Ok(query);
    }
    Err(syntax(
        body.first().and_then(|token| place(token.span.start)),
        "A streaming table is defined by a query.",
        FORM,
    )
    .into())
}

/// What is written from the first of these tokens on.
fn text_of(reader: &Reader<'_>, tokens: &[TokenWithSpan]) -> String {
    let first = tokens.first();
    first.map_or_else(String::new, |first| {
        text_from(reader.text, first.span.start)
    })
}
