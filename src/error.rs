//! What a user is told when something cannot be done: what, where in the text, and what to write instead.
//!
//! Every refusal of this crate is a [`Refusal`] inside a [`DataFusionError`], so that an application
//! handles one error type. [`render`] turns any [`DataFusionError`] into the text a person reads:
//! message, the line of SQL with a caret under the place, and a hint.
//!
//! Condition names and SQLSTATEs are Spark's where Spark has one for the same mistake.

use std::fmt;

use datafusion::common::DataFusionError;
use datafusion::common::diagnostic::Diagnostic;

/// A place in the text of a statement, both counted from 1; columns are characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// Column, from 1, in characters.
    pub column: u64,
}

/// A request that cannot be carried out, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Stable name of the condition, such as `EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE`.
    pub condition: &'static str,
    /// Five characters of SQLSTATE.
    pub sql_state: &'static str,
    /// What cannot be, in a sentence.
    pub message: String,
    /// Where in the text of the statement, if known.
    pub place: Option<Place>,
    /// What to write instead.
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal without place and hint.
    pub fn new(
        condition: &'static str,
        sql_state: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            condition,
            sql_state,
            message: message.into(),
            place: None,
            hint: None,
        }
    }

    /// Adds the place in the text.
    #[must_use]
    pub fn at(mut self, place: impl Into<Option<Place>>) -> Self {
        self.place = place.into();
        self
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.condition, self.message)?;
        if let Some(place) = self.place {
            write!(f, " (line {}, column {})", place.line, place.column)?;
        }
        if let Some(hint) = &self.hint {
            write!(f, " Hint: {hint}")?;
        }
        write!(f, " SQLSTATE: {}", self.sql_state)
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for DataFusionError {
    fn from(refusal: Refusal) -> Self {
        DataFusionError::External(Box::new(refusal))
    }
}

/// The [`Refusal`] inside an error, whatever DataFusion has wrapped around it.
pub fn refusal(error: &DataFusionError) -> Option<&Refusal> {
    match error {
        DataFusionError::External(inner) => inner
            .downcast_ref::<Refusal>()
            .or_else(|| inner.downcast_ref::<DataFusionError>().and_then(refusal)),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            refusal(inner)
        }
        DataFusionError::Shared(inner) => refusal(inner),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            datafusion::arrow::error::ArrowError::ExternalError(inner) => inner
                .downcast_ref::<DataFusionError>()
                .and_then(refusal)
                .or_else(|| inner.downcast_ref::<Refusal>()),
            _ => None,
        },
        DataFusionError::Collection(errors) => errors.iter().find_map(refusal),
        _ => None,
    }
}

/// The text a person reads for `error`, raised by the statement `sql`: the message, the line of
/// `sql` with a caret where the place is known, and the hint, each on a line of its own.
pub fn render(sql: &str, error: &DataFusionError) -> String {
    let (message, place, hint) = match refusal(error) {
        Some(refusal) => (
            format!(
                "[{}] {} SQLSTATE: {}",
                refusal.condition, refusal.message, refusal.sql_state
            ),
            refusal.place,
            refusal.hint.clone(),
        ),
        None => plain(error),
    };
    let mut text = format!("error: {message}");
    if let Some(excerpt) = place.and_then(|place| excerpt(sql, place)) {
        text.push('\n');
        text.push_str(&excerpt);
    }
    if let Some(hint) = hint {
        text.push_str("\nhint: ");
        text.push_str(&hint);
    }
    text
}

/// Message, place and hint of an error that is DataFusion's own.
fn plain(error: &DataFusionError) -> (String, Option<Place>, Option<String>) {
    let message = error.strip_backtrace();
    let diagnostic: Option<&Diagnostic> = match error {
        DataFusionError::Diagnostic(diagnostic, _) => Some(diagnostic),
        _ => error.diagnostic(),
    };
    let place = diagnostic
        .and_then(|diagnostic| diagnostic.span)
        .map(|span| Place {
            line: span.start.line,
            column: span.start.column,
        })
        .or_else(|| place_in_message(&message));
    let hint = diagnostic
        .and_then(|diagnostic| diagnostic.helps.first())
        .map(|help| help.message.clone());
    (message, place, hint)
}

/// sqlparser writes its places into its messages: `… at Line: 1, Column: 17`.
fn place_in_message(message: &str) -> Option<Place> {
    let (_, rest) = message.rsplit_once("Line: ")?;
    let (line, rest) = rest.split_once(", Column: ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(Place {
        line: line.trim().parse().ok()?,
        column: digits.parse().ok()?,
    })
}

/// The line of `sql` at `place`, and a caret below the column.
fn excerpt(sql: &str, place: Place) -> Option<String> {
    let index = usize::try_from(place.line.checked_sub(1)?).ok()?;
    let line = sql.lines().nth(index)?;
    let column = usize::try_from(place.column.checked_sub(1)?).ok()?;
    let indent: String = line
        .chars()
        .take(column)
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    Some(format!("{number} | {line}\n{margin} | {indent}^"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_points_at_its_place_and_gives_its_hint() {
        let error: DataFusionError = Refusal::new("SOME_CONDITION", "42000", "This cannot be.")
            .at(Place { line: 2, column: 6 })
            .hint("write that")
            .into();
        assert_eq!(
            render("SELECT 1\nFROM nowhere", &error),
            "error: [SOME_CONDITION] This cannot be. SQLSTATE: 42000\n2 | FROM nowhere\n  |      ^\nhint: write that"
        );
    }

    #[test]
    fn a_refusal_is_found_inside_datafusions_wrappings() {
        let error = DataFusionError::from(Refusal::new("X", "42000", "x")).context("planning");
        assert_eq!(refusal(&error).map(|r| r.condition), Some("X"));
    }

    #[test]
    fn the_place_of_a_parser_error_is_read_from_its_message() {
        assert_eq!(
            place_in_message("Expected: (, found: x at Line: 3, Column: 14"),
            Some(Place {
                line: 3,
                column: 14
            })
        );
    }
}
