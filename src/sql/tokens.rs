//! Tokens of a text: splitting it into statements, and small questions about tokens.

use datafusion::common::{DataFusionError, Result};
use sqlparser::dialect::{Dialect, GenericDialect};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, TokenizerError, Word};

use crate::error::{Place, Refusal};

/// One statement of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The text of the statement alone, without the closing semicolon.
    pub text: String,
    /// Line of the whole text on which it begins, from 1.
    pub line: u64,
}

/// Splits a text at its semicolons (not those in quotes and comments); empty statements are left out.
///
/// # Errors
/// - a quote or a comment that is not closed
pub fn split(text: &str) -> Result<Vec<Statement>> {
    let tokens = tokenize(text, &GenericDialect {})?;
    let lines = LineIndex::new(text);
    let mut statements = Vec::new();
    let mut first: Option<&TokenWithSpan> = None;
    let mut end = 0;
    for token in &tokens {
        match &token.token {
            Token::SemiColon => {
                if let Some(first) = first.take() {
                    statements.push(lines.statement(first, end));
                }
            }
            Token::Whitespace(_) | Token::EOF => {}
            _ => {
                first.get_or_insert(token);
                end = lines.offset(token.span.end);
            }
        }
    }
    if let Some(first) = first {
        statements.push(lines.statement(first, end));
    }
    Ok(statements)
}

/// Whether a prompt can run a text: it ends in a semicolon outside quotes and comments, or holds
/// nothing but space and comments.
pub fn is_complete(text: &str) -> bool {
    let Ok(tokens) = tokenize(text, &GenericDialect {}) else {
        return false;
    };
    tokens
        .iter()
        .rev()
        .map(|token| &token.token)
        .find(|token| !matches!(token, Token::Whitespace(_) | Token::EOF))
        .is_none_or(|token| *token == Token::SemiColon)
}

/// The tokens of a text, with their places.
pub(crate) fn tokenize(text: &str, dialect: &dyn Dialect) -> Result<Vec<TokenWithSpan>> {
    Tokenizer::new(dialect, text)
        .tokenize_with_location()
        .map_err(unreadable)
}

/// A tokenizer's error, with its place.
fn unreadable(error: TokenizerError) -> DataFusionError {
    Refusal::new("PARSE_SYNTAX_ERROR", "42601", format!("{}.", error.message))
        .at(place(error.location))
        .hint("close the quote or comment that begins here")
        .into()
}

/// The place of a location, if the parser knows it.
pub(crate) fn place(location: Location) -> Option<Place> {
    (location.line > 0).then_some(Place {
        line: location.line,
        column: location.column,
    })
}

/// What a text holds from a place on, without a closing semicolon.
pub(crate) fn text_from(text: &str, start: Location) -> String {
    let rest = text
        .get(LineIndex::new(text).offset(start)..)
        .unwrap_or_default();
    let ends = |letter: char| letter == ';' || letter.is_whitespace();
    rest.trim_end_matches(ends).to_owned()
}

/// Byte offsets of the lines of a text.
struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self { text, starts }
    }

    /// Byte offset of a location; columns count characters.
    fn offset(&self, location: Location) -> usize {
        let line = usize::try_from(location.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(start) = self.starts.get(line).copied() else {
            return self.text.len();
        };
        let column = usize::try_from(location.column.saturating_sub(1)).unwrap_or(usize::MAX);
        self.text[start..]
            .char_indices()
            .nth(column)
            .map_or(self.text.len(), |(at, _)| start + at)
    }

    fn statement(&self, first: &TokenWithSpan, end: usize) -> Statement {
        let start = self.offset(first.span.start);
        Statement {
            text: self.text.get(start..end).unwrap_or_default().to_owned(),
            line: first.span.start.line,
        }
    }
}

/// The word of a token, quoted or not.
pub(crate) fn as_word(token: &Token) -> Option<&Word> {
    match token {
        Token::Word(word) => Some(word),
        _ => None,
    }
}

/// Whether a token is this unquoted word, in any case.
pub(crate) fn is(token: Option<&TokenWithSpan>, text: &str) -> bool {
    token
        .and_then(|token| as_word(&token.token))
        .is_some_and(|word| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// Whether tokens begin with these unquoted words.
pub(crate) fn begins_with(tokens: &[TokenWithSpan], words: &[&str]) -> bool {
    words
        .iter()
        .enumerate()
        .all(|(at, word)| is(tokens.get(at), word))
}

/// Index of the parenthesis that closes the one at `open`.
pub(crate) fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Index of the parenthesis that opens the one at `close`.
pub(crate) fn opening(tokens: &[TokenWithSpan], close: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for at in (0..=close).rev() {
        match tokens.get(at)?.token {
            Token::RParen => depth += 1,
            Token::LParen => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_do_not_split() {
        let text = "SELECT ';' -- not; here\n;\n\n /* nor; here */ SELECT \"a;b\"; ;";
        let statements = split(text).unwrap();
        assert_eq!(
            statements
                .iter()
                .map(|s| (s.text.as_str(), s.line))
                .collect::<Vec<_>>(),
            [("SELECT ';'", 1), ("SELECT \"a;b\"", 4)]
        );
    }

    #[test]
    fn a_text_is_complete_at_its_semicolon() {
        assert!(is_complete("SELECT 1;  -- done"));
        assert!(is_complete("  "));
        assert!(!is_complete("SELECT 1"));
        assert!(!is_complete("SELECT ';"));
    }
}
