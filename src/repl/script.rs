//! Text to statements and dot commands, and running them one after the other.
//!
//! A line that begins with a dot where no statement is under way is a dot command:
//!
//! ```text
//! .mode csv            a command
//! SELECT 1             a statement …
//! +                    …
//! .5;                  … that ends here
//! ```

use datafusion::common::DataFusionError;

use super::commands;
use super::console::note;
use super::session::{End, Shell};
use super::source::{Input, Lines};
use crate::sql::{Statement, is_complete, split};

/// Runs inputs in order, up to the first statement that fails.
///
/// # Errors
/// - [`End::Unreadable`]: an input cannot be read
/// - whatever ended a statement or command
pub(crate) async fn run(shell: &mut Shell, inputs: Vec<Input>) -> Result<(), End> {
    for input in &inputs {
        run_input(shell, input).await?;
    }
    Ok(())
}

/// Runs one input, each statement as soon as it is complete.
///
/// # Errors
/// As [`run`].
pub(crate) async fn run_input(shell: &mut Shell, input: &Input) -> Result<(), End> {
    let mut script = Script::default();
    if let Input::Text(text) = input {
        for line in text.split_inclusive('\n') {
            run_items(shell, input, script.push(line)).await?;
        }
    } else {
        let mut lines = Lines::open(input).map_err(|error| unreadable(input, &error))?;
        while let Some(line) = shell.unless_interrupted(lines.next()).await? {
            let line = line.map_err(|error| unreadable(input, &error))?;
            run_items(shell, input, script.push(&line)).await?;
        }
    }
    run_items(shell, input, script.finish()).await
}

async fn run_items(
    shell: &mut Shell,
    input: &Input,
    items: Result<Vec<Item>, Unsplit>,
) -> Result<(), End> {
    let items = items.map_err(|unsplit| {
        note(crate::error::render(&unsplit.text, &unsplit.error));
        tell_place(shell, input, unsplit.line);
        End::Failed
    })?;
    for item in items {
        match item {
            Item::Command(line) => commands::run(shell, &line).await?,
            Item::Statement(statement) => {
                let done = shell.statement(&statement.text).await;
                if matches!(done, Err(End::Failed)) {
                    tell_place(shell, input, statement.line);
                }
                done?;
            }
        }
    }
    Ok(())
}

/// Says in which file a statement begins; the lines in its error are the statement's own.
fn tell_place(shell: &Shell, input: &Input, line: u64) {
    match input {
        Input::Text(_) if shell.is_interactive() || line == 1 => {}
        _ => note(format_args!("in {input}, statement at line {line}")),
    }
}

fn unreadable(input: &Input, error: &std::io::Error) -> End {
    note(format_args!("error: cannot read {input}: {error}"));
    End::Unreadable
}

/// A thing to run.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    /// A statement; its line counts from the start of the script.
    Statement(Statement),
    /// A line that begins with a dot.
    Command(String),
}

/// Text that is not statements.
#[derive(Debug)]
struct Unsplit {
    text: String,
    /// Line of the script on which the text begins.
    line: u64,
    error: DataFusionError,
}

/// Lines of a script that are no complete statement yet.
#[derive(Debug, Default)]
struct Script {
    pending: String,
    /// Lines of the script before `pending`.
    before: u64,
}

impl Script {
    /// Takes a line, with its line feed; returns what has become complete.
    fn push(&mut self, line: &str) -> Result<Vec<Item>, Unsplit> {
        let line = match self.before {
            0 if self.pending.is_empty() => line.trim_start_matches('\u{feff}'),
            _ => line,
        };
        if line.trim_start().starts_with('.') && self.is_between_statements() {
            let pending = std::mem::take(&mut self.pending);
            self.before += count_lines(&pending) + 1;
            return Ok(vec![Item::Command(line.trim().to_owned())]);
        }
        self.pending.push_str(line);
        // Only a semicolon completes anything: the pending text need not be read for every line.
        if line.contains(';') && is_complete(&self.pending) {
            return self.finish();
        }
        Ok(Vec::new())
    }

    /// Takes what is pending as statements, complete or not.
    fn finish(&mut self) -> Result<Vec<Item>, Unsplit> {
        let text = std::mem::take(&mut self.pending);
        let before = self.before;
        self.before += count_lines(&text);
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        match split(&text) {
            Ok(statements) => Ok(statements
                .into_iter()
                .map(|Statement { text, line }| Statement {
                    text,
                    line: line + before,
                })
                .map(Item::Statement)
                .collect()),
            Err(error) => Err(Unsplit {
                text,
                line: before + 1,
                error,
            }),
        }
    }

    /// Whether only space and comments are pending.
    fn is_between_statements(&self) -> bool {
        self.pending.trim().is_empty() || is_complete(&self.pending)
    }
}

fn count_lines(text: &str) -> u64 {
    text.matches('\n').map(|_| 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Vec<Item> {
        let mut script = Script::default();
        let mut items = Vec::new();
        for line in text.split_inclusive('\n') {
            items.extend(script.push(line).unwrap());
        }
        items.extend(script.finish().unwrap());
        items
    }

    fn statement(text: &str, line: u64) -> Item {
        Item::Statement(Statement {
            text: text.to_owned(),
            line,
        })
    }

    #[test]
    fn commands_and_statements_alternate() {
        assert_eq!(
            items(".mode csv\nSELECT 1;\n\n.tables \nSELECT 2"),
            [
                Item::Command(".mode csv".to_owned()),
                statement("SELECT 1", 2),
                Item::Command(".tables".to_owned()),
                statement("SELECT 2", 5),
            ]
        );
    }

    #[test]
    fn a_dot_within_a_statement_is_part_of_it() {
        assert_eq!(items("SELECT 1 +\n.5;\n"), [statement("SELECT 1 +\n.5", 1)]);
    }

    #[test]
    fn a_command_may_follow_a_comment() {
        assert_eq!(
            items("-- what is there\n.tables\n"),
            [Item::Command(".tables".to_owned())]
        );
    }
}
