//! How long rows are kept: `retain` of `CREATE TABLE … WITH (retain = INTERVAL '7' DAY)`.
//!
//! DataFusion's planner takes no `WITH` behind `CREATE TABLE`, so the option is taken out on tokens, before its parser;
//! other options are left to it, with its own error. A streaming table's `retain` is one of its options.

use std::time::Duration;

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::clause::parse_options;
use super::interval::{SpanError, parse_span};
use super::tokens::{begins_with, closing, is, place};
use crate::error::{Place, Refusal};

/// Name of the option.
pub(crate) const RETAIN: &str = "retain";

/// What may be written.
const FORM: &str = "write retain = INTERVAL '7' DAY, or retain = '7 days'";

/// Reads how long rows are kept, more than zero.
pub(crate) fn parse_retain(text: &str, place: Option<Place>) -> Result<Duration, Refusal> {
    let invalid = |message: String, hint: &str| {
        Refusal::new("INVALID_STREAM_OPTION", "42616", message)
            .at(place)
            .hint(hint)
    };
    match parse_span(text) {
        Ok(span) => span.positive().ok_or_else(|| {
            invalid(
                format!("The time of retain is not longer than zero: {span}."),
                "rows are kept for a time that is more than zero; leave retain out to keep them for good",
            )
        }),
        Err(SpanError::Months) => Err(invalid(
            format!("The time of retain, '{text}', has months or years, which have no fixed length."),
            "write it in days: INTERVAL '31' DAY",
        )),
        Err(SpanError::Unreadable(reason)) => Err(Refusal::new(
            "CANNOT_PARSE_INTERVAL",
            "22006",
            format!("The time of retain cannot be read: {reason}."),
        )
        .at(place)
        .hint(FORM)),
    }
}

/// Takes `retain` out of a `CREATE TABLE`; the tokens without it, and its value.
pub(super) fn take_retain(
    tokens: Vec<TokenWithSpan>,
) -> Result<(Vec<TokenWithSpan>, Option<Duration>), Refusal> {
    let Some((open, close)) = options(&tokens) else {
        return Ok((tokens, None));
    };
    let list = tokens.get(open + 1..close).unwrap_or_default();
    let mut others: Vec<TokenWithSpan> = Vec::new();
    let mut retain = None;
    for option in list.split(|token| token.token == Token::Comma) {
        let words: Vec<TokenWithSpan> = without_space(option).cloned().collect();
        if !is(words.first(), RETAIN) {
            if !others.is_empty() {
                others.push(TokenWithSpan::wrap(Token::Comma));
            }
            others.extend(option.iter().cloned());
            continue;
        }
        let at = words.first().and_then(|word| place(word.span.start));
        if retain.is_some() {
            return Err(Refusal::new(
                "PARSE_SYNTAX_ERROR",
                "42601",
                "The option retain is given twice.",
            )
            .at(at)
            .hint("keep one"));
        }
        let value = parse_options(&words)?.into_iter().next();
        let (_, text) = value.unwrap_or_default();
        retain = Some(parse_retain(&text, at)?);
    }
    if retain.is_none() {
        return Ok((tokens, None));
    }
    let (before, behind) = match others.is_empty() {
        // WITH goes too.
        true => (with_of(&tokens, open), close + 1),
        false => (open + 1, close),
    };
    let mut rest = tokens.get(..before).unwrap_or_default().to_vec();
    rest.extend(others);
    rest.extend_from_slice(tokens.get(behind..).unwrap_or_default());
    Ok((rest, retain))
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

fn without_space(tokens: &[TokenWithSpan]) -> impl Iterator<Item = &TokenWithSpan> {
    tokens.iter().filter(|token| !is_space(token))
}

/// The place of the `WITH` before a parenthesis.
fn with_of(tokens: &[TokenWithSpan], open: usize) -> usize {
    let before = tokens.get(..open).unwrap_or_default();
    let with = before.iter().rposition(|token| is(Some(token), "WITH"));
    with.unwrap_or(open)
}

/// The parentheses of the options of a `CREATE TABLE`, if it has some: behind the name, or behind the columns.
fn options(tokens: &[TokenWithSpan]) -> Option<(usize, usize)> {
    let mut at: Vec<usize> = (0..tokens.len())
        .filter(|at| tokens.get(*at).is_some_and(|token| !is_space(token)))
        .collect();
    let words: Vec<TokenWithSpan> = without_space(tokens).take(9).cloned().collect();
    let forms: [&[&str]; 2] = [&["CREATE", "OR", "REPLACE", "TABLE"], &["CREATE", "TABLE"]];
    let form = forms.into_iter().find(|form| begins_with(&words, form))?;
    let exists: &[&str] = &["IF", "NOT", "EXISTS"];
    let named = words.get(form.len()..).unwrap_or_default();
    let skip = form.len() + if begins_with(named, exists) { 3 } else { 0 };
    at.drain(..skip.min(at.len()));
    let mut at = at.into_iter().peekable();
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    while let Some(next) = at.next_if(|next| matches!(token(*next), Some(Token::Word(_)))) {
        if is(tokens.get(next), "WITH") {
            let open = at.next()?;
            return (token(open) == Some(&Token::LParen)).then_some((open, closing(tokens, open)?));
        }
        at.next_if(|next| token(*next) == Some(&Token::Period));
        if let Some(open) = at.next_if(|next| token(*next) == Some(&Token::LParen)) {
            let close = closing(tokens, open)?;
            while at.next_if(|next| *next <= close).is_some() {}
            // Only options may follow the columns.
            at.peek().filter(|next| is(tokens.get(**next), "WITH"))?;
        } else if is(tokens.get(next), "AS") {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::GenericDialect;

    use super::*;
    use crate::sql::tokens::tokenize;

    fn taken(sql: &str) -> (String, Option<u64>) {
        let tokens = tokenize(sql, &GenericDialect {}).unwrap();
        let (rest, retain) = take_retain(tokens).unwrap();
        let text: String = rest.iter().map(|token| token.token.to_string()).collect();
        (
            text.trim().to_owned(),
            retain.map(|retain| retain.as_secs()),
        )
    }

    #[test]
    fn only_retain_of_a_create_table_is_taken() {
        let day = Some(86_400);
        for (sql, rest, retain) in [
            (
                "CREATE TABLE t (a INT) WITH (retain = INTERVAL '1' DAY)",
                "CREATE TABLE t (a INT)",
                day,
            ),
            (
                "CREATE TABLE t (a INT) with (RETAIN='24 hours')",
                "CREATE TABLE t (a INT)",
                day,
            ),
            (
                "CREATE OR REPLACE TABLE a.b.t WITH (retain = INTERVAL 1 DAY) AS SELECT 1",
                "CREATE OR REPLACE TABLE a.b.t  AS SELECT 1",
                day,
            ),
            (
                "CREATE TABLE IF NOT EXISTS \"with\" (a DECIMAL(3, 1)) WITH (x = 1, retain = '1 day', y = 2)",
                "CREATE TABLE IF NOT EXISTS \"with\" (a DECIMAL(3, 1)) WITH (x = 1, y = 2)",
                day,
            ),
            (
                "CREATE TABLE t (a INT) WITH (x = 1)",
                "CREATE TABLE t (a INT) WITH (x = 1)",
                None,
            ),
            (
                "CREATE TABLE t AS SELECT * FROM STREAM s WITH (retain = 1)",
                "CREATE TABLE t AS SELECT * FROM STREAM s WITH (retain = 1)",
                None,
            ),
            (
                "CREATE TABLE t AS WITH x AS (SELECT 1) SELECT * FROM x",
                "CREATE TABLE t AS WITH x AS (SELECT 1) SELECT * FROM x",
                None,
            ),
            ("SELECT 1", "SELECT 1", None),
        ] {
            assert_eq!(taken(sql), (rest.to_owned(), retain));
        }
    }
}
