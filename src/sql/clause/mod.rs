//! The streaming clauses of a FROM item, found on tokens and lowered to what sqlparser can parse.
//!
//! ```text
//! FROM STREAM orders WITH (epoch_by = 'batch') WATERMARK ts DELAY OF INTERVAL 1 HOUR AS o
//! FROM TABLE(__tidegate_watermark((SELECT * FROM
//!        TABLE(__tidegate_stream((SELECT * FROM orders), 1, 13, 'epoch_by', 'batch'))), ts, NULL, '3600000000000', 1, 45)) AS o
//! ```
//!
//! sqlparser has no hook behind a table factor, so the words are recognised before it: one pass over
//! the tokens keeps, for every open parenthesis, whether it stands in a FROM clause and whether a
//! relation comes next. `STREAM` counts only where a relation begins, and `WATERMARK` only behind a
//! relation and when `DELAY` follows, so that both stay usable as names. Tokens keep their places,
//! and the places of our words travel as numbers, so that later errors can point at them.
//! [`relation`](super::relation) turns the lowered calls into plan nodes; DataFusion refuses a table
//! function it does not know, so that a lowered clause cannot be lost.

mod call;
mod delay;
mod lowering;
mod names;
mod options;
mod watermark;

use sqlparser::tokenizer::{Token, TokenWithSpan};

use self::lowering::{Lowering, Scope};
use self::options::begins_options;
pub(crate) use self::options::parse_options;
use super::tokens::{is, place};
use crate::error::Refusal;

/// What the names of our table functions begin with: they stand for clauses that no one writes so.
pub(crate) const LOWERED: &str = "__tidegate_";
/// Table function that stands for `STREAM name [WITH (…)]`.
pub(crate) const STREAM_CALL: &str = "__tidegate_stream";
/// Table function that stands for a relation with a WATERMARK clause.
pub(crate) const WATERMARK_CALL: &str = "__tidegate_watermark";

/// Table function that stands for `name WITH (…)`.
pub(crate) const OPTIONS_CALL: &str = "__tidegate_options";

/// Whether a text can hold anything for [`lower`] to do.
pub(crate) fn concerns(tokens: &[TokenWithSpan]) -> bool {
    tokens.iter().enumerate().any(|(at, token)| {
        let words = ["STREAM", "WATERMARK"];
        words.iter().any(|word| is(Some(token), word))
            || is(Some(token), "WITH") && begins_options(&tokens[at + 1..])
    })
}

/// Lowers every streaming clause; tokens of white space are left out of the result.
pub(crate) fn lower(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, Refusal> {
    let input: Vec<TokenWithSpan> = tokens
        .into_iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect();
    Lowering {
        output: Vec::with_capacity(input.len()),
        delays: Vec::new(),
        input,
        at: 0,
        scopes: vec![Scope::default()],
    }
    .run()
}

fn syntax(token: Option<&TokenWithSpan>, message: &str, hint: &str) -> Refusal {
    Refusal::new("PARSE_SYNTAX_ERROR", "42601", message)
        .at(token.and_then(|token| place(token.span.start)))
        .hint(hint)
}

#[cfg(test)]
mod tests;
