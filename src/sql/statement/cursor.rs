//! Reads the tokens of a statement one after the other; space and comments are left out before.

use datafusion::common::TableReference;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::error::{Place, Refusal};
use crate::sql::clause::parse_options;
use crate::sql::interval::interval_text;
use crate::sql::tokens::{as_word, begins_with, closing, place};

/// Tokens, and the index of the next one to read.
pub(super) struct Cursor<'a> {
    tokens: &'a [TokenWithSpan],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the first of these tokens.
    pub(super) fn new(tokens: &'a [TokenWithSpan]) -> Self {
        Self { tokens, at: 0 }
    }

    /// All tokens, read or not.
    pub(super) fn all(&self) -> &'a [TokenWithSpan] {
        self.tokens
    }

    /// The tokens not read yet.
    pub(super) fn rest(&self) -> &'a [TokenWithSpan] {
        self.tokens.get(self.at..).unwrap_or_default()
    }

    /// The next token.
    pub(super) fn peek(&self) -> Option<&'a TokenWithSpan> {
        self.tokens.get(self.at)
    }

    /// Reads past the next token.
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Reads these words if they come next.
    pub(super) fn take(&mut self, words: &[&str]) -> bool {
        let found = begins_with(self.rest(), words);
        self.at += if found { words.len() } else { 0 };
        found
    }

    /// Reads a name of one to three parts.
    pub(super) fn name(&mut self) -> Result<TableReference, Refusal> {
        let mut parts = Vec::new();
        while let Some(word) = self.peek().and_then(|token| as_word(&token.token)) {
            parts.push(identifier(word));
            self.advance();
            if self.peek().is_none_or(|token| token.token != Token::Period) {
                break;
            }
            self.advance();
        }
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(table), None, ..) => Ok(TableReference::bare(table)),
            (Some(schema), Some(table), None, _) => Ok(TableReference::partial(schema, table)),
            (Some(catalog), Some(schema), Some(table), None) => {
                Ok(TableReference::full(catalog, schema, table))
            }
            _ => Err(self.wrong(
                "The name of a streaming table must follow.",
                "write STREAMING TABLE name",
            )),
        }
    }

    /// Reads `WITH (…)`; the next token is `WITH`.
    pub(super) fn options(&mut self) -> Result<Vec<(String, String)>, Refusal> {
        let Some(options) = self.list_behind(1) else {
            return Err(self.wrong(
                "WITH takes options in parentheses.",
                "write WITH (output_mode = 'append')",
            ));
        };
        parse_options(options)
    }

    /// Reads this many words and a list in parentheses, and gives what is in it. Reads nothing if
    /// there is no such list.
    pub(super) fn list_behind(&mut self, words: usize) -> Option<&'a [TokenWithSpan]> {
        let open = self.at + words;
        self.tokens
            .get(open)
            .filter(|token| token.token == Token::LParen)?;
        let close = closing(self.tokens, open)?;
        let list = self.tokens.get(open + 1..close)?;
        self.at = close + 1;
        Some(list)
    }

    /// Reads the word `INTERVAL`, which comes next, and the literal behind it, as one text.
    pub(super) fn interval(&mut self) -> String {
        let (text, end) = interval_text(self.tokens, self.at + 1);
        self.at = end;
        text
    }

    /// Refuses what is left of the statement.
    pub(super) fn end(&self, hint: &str) -> Result<(), Refusal> {
        match self.peek() {
            None => Ok(()),
            Some(token) => {
                let message = format!("Nothing is expected here: {}.", token.token);
                Err(self.wrong(&message, hint))
            }
        }
    }

    /// The place of the next token; of the last one at the end.
    pub(super) fn place(&self) -> Option<Place> {
        let token = self.peek().or_else(|| self.tokens.last());
        token.and_then(|token| place(token.span.start))
    }

    /// A refusal of how the statement is written here.
    pub(super) fn wrong(&self, message: &str, hint: &str) -> Refusal {
        syntax(self.place(), message, hint)
    }

    /// A refusal of what the statement asks for here.
    pub(super) fn invalid(&self, message: &str, hint: &str) -> Refusal {
        invalid(self.place(), message, hint)
    }
}

/// A refusal of how something is written.
pub(super) fn syntax(place: Option<Place>, message: &str, hint: &str) -> Refusal {
    Refusal::new("PARSE_SYNTAX_ERROR", "42601", message)
        .at(place)
        .hint(hint)
}

/// A refusal of a value that can be read and cannot be taken.
pub(super) fn invalid(place: Option<Place>, message: &str, hint: &str) -> Refusal {
    Refusal::new("INVALID_STREAM_OPTION", "42616", message)
        .at(place)
        .hint(hint)
}

/// The name that a word spells: in lower case unless it is quoted.
pub(super) fn identifier(word: &Word) -> String {
    if word.quote_style.is_some() {
        word.value.clone()
    } else {
        word.value.to_ascii_lowercase()
    }
}
