//! What helps a person while typing: joins the pure parts to the line editor's traits.

use std::borrow::Cow;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hinter, HistoryHinter};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};

use super::commands::{self, Argument};
use super::complete;
use super::highlight;
use super::names::Names;
use crate::sql::is_complete;

/// The line editor's helper.
pub(crate) struct Assistant {
    /// What can be completed; kept up to date by whoever runs statements.
    pub(crate) names: Names,
    colours: bool,
    history: HistoryHinter,
    files: FilenameCompleter,
}

impl Assistant {
    /// A helper that knows no names yet.
    pub(crate) fn new(colours: bool) -> Self {
        Self {
            names: Names::default(),
            colours,
            history: HistoryHinter::new(),
            files: FilenameCompleter::new(),
        }
    }
}

/// Whether Enter ends the entry: a command is one line, statements end with a semicolon.
fn is_entry(text: &str) -> bool {
    text.trim().is_empty()
        || commands::is_command(text)
        || commands::bare(text).is_some()
        || is_complete(text)
}

/// Whether the cursor is on the file of a command.
fn is_file(before: &str) -> bool {
    commands::is_command(before)
        && before
            .trim_start()
            .split_once(char::is_whitespace)
            .and_then(|(name, _)| commands::find(name))
            .is_some_and(|command| command.argument == Argument::File)
}

impl Helper for Assistant {}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        Ok(match is_entry(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        context: &Context<'_>,
    ) -> Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        if is_file(before) {
            return self.files.complete(line, position, context);
        }
        let (start, offers) = complete::candidates(&self.names, before);
        let offers = offers.into_iter().map(|offer| Pair {
            display: offer.clone(),
            replacement: offer,
        });
        Ok((start, offers.collect()))
    }
}

impl Hinter for Assistant {
    type Hint = String;

    fn hint(&self, line: &str, position: usize, context: &Context<'_>) -> Option<String> {
        self.history.hint(line, position, context)
    }
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _position: usize) -> Cow<'l, str> {
        match self.colours {
            true => Cow::Owned(highlight::coloured(line)),
            false => Cow::Borrowed(line),
        }
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        match self.colours {
            true => Cow::Owned(highlight::faint(hint)),
            false => Cow::Borrowed(hint),
        }
    }

    fn highlight_char(&self, _line: &str, _position: usize, kind: CmdKind) -> bool {
        // Colours do not depend on where the cursor is, but a letter can change all that follow it.
        self.colours && kind != CmdKind::MoveCursor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_ends_commands_and_complete_statements() {
        for text in ["", " ", ".tables", "quit", "SELECT 1;", "SELECT 1; "] {
            assert!(is_entry(text), "{text}");
        }
        assert!(!is_entry("SELECT 1"));
    }

    #[test]
    fn files_are_completed_after_read() {
        assert!(is_file(".read a"));
        assert!(!is_file(".mode a"));
        assert!(!is_file("SELECT .read a"));
    }
}
