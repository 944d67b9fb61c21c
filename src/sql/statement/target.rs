//! Where the result of a streaming table is written:
//! `STORED AS PARQUET LOCATION 'dir/' PARTITIONED BY (day, city)`.

use std::fmt;

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::cursor::{Cursor, identifier, invalid, syntax};
use crate::error::{Place, Refusal};
use crate::sql::tokens::{as_word, begins_with, is, place};

/// What is written where a part is missing or stands elsewhere.
const FORM: &str = "write STORED AS PARQUET LOCATION 'dir/' PARTITIONED BY (column)";
/// What is written where the columns are not a list of names.
const COLUMNS: &str = "write PARTITIONED BY (column), or leave it out";

/// Where a streaming table's result is written, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Format of the files.
    pub format: Format,
    /// The directory, as it was written; it ends in `/`.
    pub location: String,
    /// Columns whose values name the directories below, none of them twice; empty without
    /// `PARTITIONED BY`. Names are in lower case unless they were quoted.
    pub partitioned_by: Vec<String>,
    /// Place of the word `STORED`.
    pub place: Option<Place>,
}

impl Target {
    /// Whether it is the same directory, written in the same way.
    pub fn is_same(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.format, one.location.clone(), one.partitioned_by.clone());
        of(self) == of(other)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.format, self.location)?;
        match self.partitioned_by.is_empty() {
            true => Ok(()),
            false => write!(f, " by {}", self.partitioned_by.join(", ")),
        }
    }
}

/// A format of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values.
    Csv,
    /// A JSON object a line.
    Json,
}

impl Format {
    const ALL: [Format; 3] = [Format::Parquet, Format::Csv, Format::Json];

    /// How the names of its files end, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
            Format::Json => "json",
        }
    }

    /// How a statement spells it.
    fn keyword(self) -> &'static str {
        match self {
            Format::Parquet => "PARQUET",
            Format::Csv => "CSV",
            Format::Json => "JSON",
        }
    }
}

impl fmt::Display for Format {
    /// Writes `PARQUET`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.keyword())
    }
}

/// Reads `STORED AS …`; the next token is `STORED`.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Target, Refusal> {
    let place = cursor.place();
    if !cursor.take(&["STORED", "AS"]) {
        return Err(cursor.wrong("AS and a format must follow STORED.", FORM));
    }
    let format = format(cursor)?;
    if !cursor.take(&["LOCATION"]) {
        let hint = format!("write STORED AS {format} LOCATION 'dir/'");
        return Err(cursor.wrong("A LOCATION must follow the format of STORED AS.", &hint));
    }
    Ok(Target {
        format,
        location: location(cursor)?,
        partitioned_by: partitions(cursor)?,
        place,
    })
}

/// Refuses a part of `STORED AS …` that stands by itself.
pub(super) fn refuse_part(cursor: &Cursor<'_>) -> Result<(), Refusal> {
    if is(cursor.peek(), "LOCATION") {
        let message = "LOCATION stands once, behind STORED AS and a format.";
        return Err(cursor.wrong(message, FORM));
    }
    if is(cursor.peek(), "PARTITIONED") {
        let message = "PARTITIONED BY stands once, behind the LOCATION of STORED AS.";
        return Err(cursor.wrong(message, FORM));
    }
    Ok(())
}

/// Reads the word behind `STORED AS`.
fn format(cursor: &mut Cursor<'_>) -> Result<Format, Refusal> {
    let next = cursor.peek();
    let left_out = is(next, "LOCATION") || is(next, "AS");
    let word = next.and_then(|token| as_word(&token.token));
    let Some(word) = word.filter(|_| !left_out) else {
        return Err(cursor.wrong("A format must follow STORED AS.", FORM));
    };
    let known = Format::ALL
        .into_iter()
        .find(|format| word.value.eq_ignore_ascii_case(format.keyword()));
    let Some(format) = known else {
        let message = format!("A streaming table cannot be stored as {}.", word.value);
        return Err(cursor.invalid(&message, "write STORED AS PARQUET, CSV or JSON"));
    };
    cursor.advance();
    Ok(format)
}

/// Reads the text behind `LOCATION`.
fn location(cursor: &mut Cursor<'_>) -> Result<String, Refusal> {
    let text = match cursor.peek().map(|token| &token.token) {
        Some(Token::SingleQuotedString(text) | Token::DoubleQuotedString(text)) => text,
        _ => return Err(cursor.wrong("LOCATION takes a directory in quotes.", FORM)),
    };
    if text.trim().is_empty() {
        return Err(cursor.invalid("The location is empty.", "write LOCATION 'dir/'"));
    }
    if !text.ends_with('/') {
        let message = format!("The location '{text}' does not end in /.");
        let directory = text.trim_end().trim_end_matches('/');
        let hint = format!("a location is a directory, write it with a final /: '{directory}/'");
        return Err(cursor.invalid(&message, &hint));
    }
    cursor.advance();
    Ok(text.clone())
}

/// Reads `PARTITIONED BY (column, …)` if it comes next.
fn partitions(cursor: &mut Cursor<'_>) -> Result<Vec<String>, Refusal> {
    let start = cursor.place();
    if !is(cursor.peek(), "PARTITIONED") {
        return Ok(Vec::new());
    }
    if !begins_with(cursor.rest(), &["PARTITIONED", "BY"]) {
        return Err(cursor.wrong("BY and columns must follow PARTITIONED.", COLUMNS));
    }
    let Some(list) = cursor.list_behind(2) else {
        return Err(cursor.wrong("PARTITIONED BY takes columns in parentheses.", COLUMNS));
    };
    let mut columns: Vec<String> = Vec::new();
    for item in list.split(|token| token.token == Token::Comma) {
        let here = item.first().map_or(start, |token| place(token.span.start));
        let column = column(item, here)?;
        if columns.contains(&column) {
            let message = format!("The partition column {column} is given twice.");
            return Err(invalid(here, &message, "keep one"));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// The name that one item of the list is.
fn column(item: &[TokenWithSpan], here: Option<Place>) -> Result<String, Refusal> {
    let word = item.first().and_then(|token| as_word(&token.token));
    match (item, word) {
        ([_], Some(word)) if !word.value.is_empty() => Ok(identifier(word)),
        ([], _) | ([_], Some(_)) => Err(syntax(
            here,
            "A column of PARTITIONED BY is empty.",
            COLUMNS,
        )),
        _ => Err(syntax(
            here,
            "A column of PARTITIONED BY is written as its name alone.",
            COLUMNS,
        )),
    }
}
