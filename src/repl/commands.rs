//! The dot commands.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use datafusion::common::utils::datafusion_strsim::levenshtein;
use futures::future::LocalBoxFuture;

use super::console::{self, note};
use super::names::{self, Column, Table};
use super::print::Format;
use super::script;
use super::session::{self, End, Shell};
use super::source::Input;
use crate::picture::{Depth, View};

/// `.read` within `.read` goes no deeper, so that a file that reads itself ends.
const READ_DEPTH: usize = 16;

/// What a command does with the text after its name.
type Handler = for<'a> fn(&'a mut Shell, &'a str) -> Done<'a>;

type Done<'a> = LocalBoxFuture<'a, Result<(), End>>;

/// What can be completed after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Nothing follows.
    None,
    /// `on` or `off`.
    Switch,
    /// A format of rows.
    Format,
    /// A table.
    Table,
    /// A file.
    File,
}

/// A dot command.
#[derive(Debug)]
pub(crate) struct Command {
    /// Its name, with the dot.
    pub(crate) name: &'static str,
    /// What follows, as help writes it.
    usage: &'static str,
    /// What follows, for completion.
    pub(crate) argument: Argument,
    /// What it does, in a few words.
    help: &'static str,
    handler: Handler,
}

/// All commands, in the order of `.help`: looking, then settings, then the rest.
#[rustfmt::skip]
pub(crate) const COMMANDS: &[Command] = &[
    Command { name: ".tables", usage: "", argument: Argument::None, handler: tables,
        help: "list tables, views and streaming tables" },
    Command { name: ".schema", usage: "[TABLE]", argument: Argument::Table, handler: schema,
        help: "list the columns of a table, or of all" },
    Command { name: ".watermark", usage: "TABLE [FROM [TO]]", argument: Argument::Table, handler: watermark,
        help: "draw event times, the watermark and late rows" },
    Command { name: ".mode", usage: "[table|csv|json|ndjson]", argument: Argument::Format, handler: mode,
        help: "set or tell how rows are printed" },
    Command { name: ".timer", usage: "[on|off]", argument: Argument::Switch, handler: timer,
        help: "set or tell whether statements are timed" },
    Command { name: ".read", usage: "FILE", argument: Argument::File, handler: read,
        help: "run the statements of a file" },
    Command { name: ".help", usage: "", argument: Argument::None, handler: help,
        help: "list these commands" },
    Command { name: ".quit", usage: "", argument: Argument::None, handler: quit,
        help: "end the session" },
    Command { name: ".exit", usage: "", argument: Argument::None, handler: quit,
        help: "end the session" },
];

/// What people type who know other prompts.
const BARE: [(&str, &str); 3] = [("quit", ".quit"), ("exit", ".exit"), ("help", ".help")];

/// Whether a text is a command and no SQL.
pub(crate) fn is_command(text: &str) -> bool {
    text.trim_start().starts_with('.')
}

/// The command that is meant by a word such as `quit`, with or without a semicolon.
pub(crate) fn bare(text: &str) -> Option<&'static str> {
    let word = text.trim().trim_end_matches(';').trim_end();
    BARE.iter()
        .find(|(bare, _)| word.eq_ignore_ascii_case(bare))
        .map(|(_, command)| *command)
}

/// The command of a name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS
        .iter()
        .find(|command| command.name.eq_ignore_ascii_case(name))
}

/// Runs a line that begins with a dot.
///
/// # Errors
/// - [`End::Failed`], when there is no such command, or it takes other arguments
/// - [`End::Quit`], when `.quit`
/// - whatever ended a file
pub(crate) async fn run(shell: &mut Shell, line: &str) -> Result<(), End> {
    let line = line.trim().trim_end_matches(';').trim_end();
    let (name, argument) = line
        .split_once(char::is_whitespace)
        .map_or((line, ""), |(name, argument)| (name, argument.trim()));
    match find(name) {
        Some(command) if command.argument == Argument::None && !argument.is_empty() => {
            refuse(format_args!("{} takes no argument", command.name))
        }
        Some(command) => (command.handler)(shell, argument).await,
        None => refuse(unknown(name)),
    }
}

fn unknown(name: &str) -> String {
    let known = COMMANDS.iter().map(|command| command.name);
    let nearest = nearest(&name.to_lowercase(), known);
    let nearest = nearest.map_or(String::new(), |nearest| format!("did you mean {nearest}? "));
    format!("there is no command {name}; {nearest}.help lists them")
}

/// The name that differs least, if it differs in less than half of what was written.
fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|known| (levenshtein(written, known), known))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| distance * 2 < written.chars().count().max(2))
        .map(|(_, known)| known)
}

fn refuse(message: impl std::fmt::Display) -> Result<(), End> {
    note(format_args!("error: {message}"));
    Err(End::Failed)
}

fn tables<'a>(shell: &'a mut Shell, _: &'a str) -> Done<'a> {
    Box::pin(async move {
        let tables = names::tables(&shell.context).await;
        let names = tables.iter().map(|table| table.name.as_str());
        let kinds = tables.iter().map(|table| table.kind);
        show(shell, vec![("table", texts(names)), ("kind", texts(kinds))])
    })
}

fn schema<'a>(shell: &'a mut Shell, name: &'a str) -> Done<'a> {
    Box::pin(async move {
        let name = name.trim_matches('"');
        let all = names::tables(&shell.context).await;
        let known = all.iter().map(|table| table.name.as_str());
        let wanted: Vec<&Table> = all
            .iter()
            .filter(|table| {
                name.is_empty() || table.name.trim_matches('"').eq_ignore_ascii_case(name)
            })
            .collect();
        if wanted.is_empty() && !name.is_empty() {
            let hint = nearest(name, known).map_or_else(
                || ".tables lists them".to_owned(),
                |nearest| format!("did you mean {nearest}?"),
            );
            return refuse(format_args!("there is no table {name}; {hint}"));
        }
        columns(shell, &wanted)
    })
}

/// Prints a row for each column of some tables.
fn columns(shell: &Shell, tables: &[&Table]) -> Result<(), End> {
    let rows: Vec<(&str, &Column)> = tables
        .iter()
        .flat_map(|table| {
            table
                .columns
                .iter()
                .map(|column| (table.name.as_str(), column))
        })
        .collect();
    let nullable: Vec<bool> = rows.iter().map(|(_, column)| column.nullable).collect();
    show(
        shell,
        vec![
            ("table", texts(rows.iter().map(|(table, _)| *table))),
            (
                "column",
                texts(rows.iter().map(|(_, column)| &*column.name)),
            ),
            (
                "type",
                texts(rows.iter().map(|(_, column)| &*column.data_type)),
            ),
            ("nullable", Arc::new(BooleanArray::from(nullable))),
        ],
    )
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(texts))
}

fn show(shell: &Shell, columns: Vec<(&str, ArrayRef)>) -> Result<(), End> {
    match RecordBatch::try_from_iter(columns) {
        Ok(rows) => shell.show(&rows),
        Err(error) => refuse(error),
    }
}

/// Draws the picture of a streaming table as wide as the terminal is.
fn watermark<'a>(shell: &'a mut Shell, text: &'a str) -> Done<'a> {
    Box::pin(async move {
        let (name, view) = match drawn(text) {
            Ok(drawn) => drawn,
            Err(usage) => return refuse(usage),
        };
        let picture = shell.context.picture(name, view);
        match shell.unless_interrupted(picture).await? {
            Ok(picture) => {
                let text = picture.to_text(console::columns(), console::colours());
                session::print(&text)
            }
            Err(error) => {
                note(crate::error::render("", &error));
                Err(End::Failed)
            }
        }
    })
}

/// The table and the epochs that are to be drawn: `hourly`, `hourly 100`, `hourly 100 200`.
fn drawn(text: &str) -> Result<(&str, View), String> {
    let mut words = text.split_whitespace();
    let usage = || {
        ".watermark takes a streaming table, and the first and last epoch: .watermark hourly 100 200".to_owned()
    };
    let name = words.next().ok_or_else(usage)?;
    let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
    let view = match numbers.as_deref() {
        Ok([]) => View::Last(Depth::Text),
        Ok([from]) => View::Epochs {
            from: *from,
            to: None,
        },
        Ok([from, to]) => View::Epochs {
            from: *from,
            to: Some(*to),
        },
        _ => return Err(usage()),
    };
    Ok((name, view))
}

fn mode<'a>(shell: &'a mut Shell, name: &'a str) -> Done<'a> {
    Box::pin(async move {
        match Format::named(name) {
            Some(format) => shell.format = format,
            None if name.is_empty() => note(shell.format.name()),
            None => {
                return refuse(format_args!(
                    "there is no mode {name}; there are {}",
                    Format::NAMES.join(", ")
                ));
            }
        }
        Ok(())
    })
}

fn timer<'a>(shell: &'a mut Shell, switch: &'a str) -> Done<'a> {
    Box::pin(async move {
        match switch.to_lowercase().as_str() {
            "on" => shell.timer = true,
            "off" => shell.timer = false,
            "" => note(if shell.timer { "on" } else { "off" }),
            _ => return refuse(".timer takes on or off"),
        }
        Ok(())
    })
}

fn read<'a>(shell: &'a mut Shell, path: &'a str) -> Done<'a> {
    Box::pin(async move {
        let path = path.trim_matches(['\'', '"']);
        if path.is_empty() {
            return refuse(".read takes a file");
        }
        if shell.depth == READ_DEPTH {
            return refuse(format_args!(
                "{path} is not read: {READ_DEPTH} files are being read within each other"
            ));
        }
        shell.depth += 1;
        let done = script::run_input(shell, &Input::File(path.into())).await;
        shell.depth -= 1;
        done
    })
}

fn help<'a>(_: &'a mut Shell, _: &'a str) -> Done<'a> {
    Box::pin(async move {
        for command in COMMANDS {
            let call = format!("{} {}", command.name, command.usage);
            note(format_args!("{call:<32}{}", command.help));
        }
        note("Anything else is SQL and ends with a semicolon. Ctrl-C cancels, Ctrl-D ends.");
        Ok(())
    })
}

fn quit<'a>(_: &'a mut Shell, _: &'a str) -> Done<'a> {
    Box::pin(async move { Err(End::Quit) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_names_the_nearest() {
        assert_eq!(
            unknown(".tabels"),
            "there is no command .tabels; did you mean .tables? .help lists them"
        );
        assert_eq!(
            unknown(".import"),
            "there is no command .import; .help lists them"
        );
    }

    #[test]
    fn a_picture_is_of_a_table_and_of_epochs() {
        let of = |from, to| View::Epochs { from, to };
        assert_eq!(drawn("hourly"), Ok(("hourly", View::Last(Depth::Text))));
        assert_eq!(drawn("a.b 3"), Ok(("a.b", of(3, None))));
        assert_eq!(drawn("hourly  3 7"), Ok(("hourly", of(3, Some(7)))));
        assert!(drawn("").is_err() && drawn("hourly x").is_err() && drawn("hourly 1 2 3").is_err());
    }

    #[test]
    fn bare_words_are_commands() {
        assert_eq!(bare(" Quit; "), Some(".quit"));
        assert_eq!(bare("quite"), None);
    }

    #[test]
    fn every_name_finds_its_command() {
        for command in COMMANDS {
            let found = find(&command.name.to_uppercase()).map(|found| found.name);
            assert_eq!(found, Some(command.name));
        }
    }
}
