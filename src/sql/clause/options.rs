//! The options of a WITH list: `k = v, …`.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::lowering::Lowering;
use super::syntax;
use crate::error::Refusal;
use crate::sql::interval::interval_text;
use crate::sql::tokens::{closing, is};

impl Lowering {
    /// `WITH (k = v, …)` behind a stream's name.
    pub(super) fn options(&mut self) -> Result<Vec<(String, String)>, Refusal> {
        let open = self.at + 1;
        let opens = |token: &TokenWithSpan| token.token == Token::LParen;
        if !(is(self.input.get(self.at), "WITH") && self.input.get(open).is_some_and(opens)) {
            return Ok(Vec::new());
        }
        let close = closing(&self.input, open).ok_or_else(|| {
            syntax(
                self.input.get(open),
                "This parenthesis is not closed.",
                "close the options",
            )
        })?;
        let options = parse_options(&self.input[open + 1..close])?;
        self.at = close + 1;
        Ok(options)
    }
}

/// Whether what follows a `WITH` is a list of options: `(k =`.
pub(super) fn begins_options(tokens: &[TokenWithSpan]) -> bool {
    let mut words = tokens
        .iter()
        .map(|token| &token.token)
        .filter(|token| !matches!(token, Token::Whitespace(_)));
    words.next() == Some(&Token::LParen)
        && matches!(words.next(), Some(Token::Word(_)))
        && words.next() == Some(&Token::Eq)
}

/// `k = v, k = v` of a WITH list: keys are words or strings, values words, strings, numbers
/// or INTERVAL literals.
pub(crate) fn parse_options(tokens: &[TokenWithSpan]) -> Result<Vec<(String, String)>, Refusal> {
    let mut options = Vec::new();
    for option in tokens.split(|token| token.token == Token::Comma) {
        let wrong = || {
            syntax(
                option.first(),
                "An option is written key = value.",
                "write WITH (output_mode = 'append')",
            )
        };
        let equals = option
            .iter()
            .position(|token| token.token == Token::Eq)
            .ok_or_else(wrong)?;
        let (key, value) = (&option[..equals], &option[equals + 1..]);
        if key.is_empty() || value.is_empty() {
            return Err(wrong());
        }
        let key = flat(key).to_ascii_lowercase();
        if options.iter().any(|(known, _)| *known == key) {
            return Err(syntax(
                option.first(),
                &format!("The option {key} is given twice."),
                "keep one",
            ));
        }
        options.push((key, value_text(value)));
    }
    Ok(options)
}

/// A value as plain text: that of an INTERVAL literal is its length alone.
fn value_text(tokens: &[TokenWithSpan]) -> String {
    if is(tokens.first(), "INTERVAL") {
        let (text, end) = interval_text(tokens, 1);
        if end == tokens.len() && !text.is_empty() {
            return text;
        }
    }
    flat(tokens)
}

/// Tokens as plain text: strings without their quotes.
fn flat(tokens: &[TokenWithSpan]) -> String {
    let words: Vec<String> = tokens
        .iter()
        .map(|token| match &token.token {
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text.clone(),
            Token::Word(word) => word.value.clone(),
            other => other.to_string(),
        })
        .collect();
    words.join(if tokens.iter().any(|token| token.token == Token::Period) {
        ""
    } else {
        " "
    })
}
