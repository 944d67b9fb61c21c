//! One statement of text as a syntax tree.

use std::time::Duration;

use datafusion::common::{DataFusionError, Result};
use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use sqlparser::dialect::Dialect;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::clause;
use super::retain::take_retain;
use super::rewrite::{self, rewrite};
use super::statement::{self, StreamingStatement};
use super::tokens::tokenize;
use crate::error::Refusal;

/// A statement that was read.
#[derive(Debug, Clone)]
pub enum Parsed {
    /// One of our own.
    Streaming(Box<StreamingStatement>),
    /// One of DataFusion's, its streaming clauses lowered.
    DataFusion(Box<DfStatement>),
    /// A `CREATE TABLE` whose rows are kept for a time: the statement without that, and the time.
    Retaining(Box<DfStatement>, Duration),
}

/// Reads one statement.
///
/// # Errors
/// - syntax, each error with its place
/// - more than one statement, or none
pub fn parse(text: &str, dialect: &dyn Dialect, recursion_limit: usize) -> Result<Parsed> {
    let mut tokens = tokenize(text, dialect)?;
    while tokens.last().is_some_and(|token| {
        matches!(
            token.token,
            Token::Whitespace(_) | Token::SemiColon | Token::EOF
        )
    }) {
        tokens.pop();
    }
    if !tokens
        .iter()
        .any(|token| !matches!(token.token, Token::Whitespace(_)))
    {
        return Err(Refusal::new(
            "PARSE_EMPTY_STATEMENT",
            "42617",
            "There is no statement in this text.",
        )
        .into());
    }
    let reader = Reader {
        text,
        dialect,
        recursion_limit,
    };
    if let Some(streaming) = statement::read(&tokens, &reader)? {
        return Ok(Parsed::Streaming(Box::new(streaming)));
    }
    let (tokens, retain) = take_retain(tokens)?;
    let statement = Box::new(reader.datafusion(tokens)?);
    Ok(match retain {
        None => Parsed::DataFusion(statement),
        Some(retain) => Parsed::Retaining(statement, retain),
    })
}

/// Reads DataFusion's statements from tokens.
pub(super) struct Reader<'a> {
    /// The text that the tokens are of.
    pub(super) text: &'a str,
    dialect: &'a dyn Dialect,
    recursion_limit: usize,
}

impl Parsed {
    /// DataFusion's statement, if it is one, and how long the rows of its table are kept, if that is said.
    pub fn into_datafusion(self) -> Option<(DfStatement, Option<Duration>)> {
        match self {
            Self::Streaming(_) => None,
            Self::DataFusion(statement) => Some((*statement, None)),
            Self::Retaining(statement, retain) => Some((*statement, Some(retain))),
        }
    }
}

impl Reader<'_> {
    /// The statement that the tokens are.
    pub(super) fn datafusion(&self, tokens: Vec<TokenWithSpan>) -> Result<DfStatement> {
        let rewrites = rewrite::concerns(&tokens);
        let tokens = if clause::concerns(&tokens) {
            clause::lower(tokens)?
        } else {
            tokens
        };
        let mut statements = DFParserBuilder::new(tokens)
            .with_dialect(self.dialect)
            .with_recursion_limit(self.recursion_limit)
            .build()?
            .parse_statements()?;
        let (Some(mut statement), None) = (statements.pop_front(), statements.pop_front()) else {
            return Err(DataFusionError::from(
                Refusal::new(
                    "PARSE_SYNTAX_ERROR",
                    "42601",
                    "This text has more than one statement.",
                )
                .hint("run them one at a time"),
            ));
        };
        // A statement that names no window is left to DataFusion as it is, however deep it is.
        if rewrites {
            rewrite_statement(&mut statement)?;
        }
        Ok(statement)
    }
}

/// Gives `window()` its column in every query of a statement.
fn rewrite_statement(statement: &mut DfStatement) -> Result<()> {
    use datafusion::sql::parser::CopyToSource;
    use sqlparser::ast::Statement as SqlStatement;
    match statement {
        DfStatement::Statement(inner) => rewrite(inner),
        DfStatement::Explain(explain) => rewrite_statement(&mut explain.statement),
        DfStatement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => {
                let mut inner = SqlStatement::Query(query.clone());
                rewrite(&mut inner)?;
                if let SqlStatement::Query(rewritten) = inner {
                    *query = rewritten;
                }
                Ok(())
            }
            CopyToSource::Relation(_) => Ok(()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use sqlparser::dialect::GenericDialect;

    use super::*;

    fn tables(sql: &str) -> Vec<String> {
        let Parsed::DataFusion(statement) = parse(sql, &GenericDialect {}, 50).unwrap() else {
            panic!("not a query: {sql}");
        };
        let state = SessionContext::new().state();
        let found = state.resolve_table_references(&statement).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn datafusion_finds_the_tables_inside_lowered_clauses() {
        for sql in [
            "SELECT * FROM STREAM t",
            "SELECT * FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 HOUR",
            "SELECT count(*) FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 HOUR GROUP BY window(ts, '1 hour')",
            "EXPLAIN SELECT * FROM (SELECT * FROM STREAM t) WATERMARK ts DELAY OF INTERVAL 1 HOUR",
        ] {
            assert_eq!(tables(sql), ["t"], "{sql}");
        }
    }
}
