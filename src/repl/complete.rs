//! What could come at the cursor.
//!
//! | the text before | offers |
//! |---|---|
//! | `.mo` | dot commands, then their arguments |
//! | `… FROM or`, `… STREAM or` | tables |
//! | `… orders.a` | columns of that table; tables of that schema |
//! | `… window.s` | `start`, `end` |
//! | anything else | phrases, keywords, columns, tables, functions |
//!
//! Nothing is offered within strings and comments, nor before the first letter where everything would be.

use super::commands::{self, Argument};
use super::keywords::{BEFORE_TABLE, KEYWORDS, PHRASES, contains};
use super::lex::{self, Kind};
use super::names::{Names, Table};
use super::print::Format;

/// Fields of the column that `window()` makes.
const WINDOW_FIELDS: [&str; 2] = ["end", "start"];

/// Where the word before the cursor begins, in bytes of `before`, and what could stand there.
pub(crate) fn candidates(names: &Names, before: &str) -> (usize, Vec<String>) {
    if commands::is_command(before) {
        return command(names, before);
    }
    let tokens: Vec<lex::Token<'_>> = lex::tokens(before).collect();
    if tokens.last().is_some_and(lex::Token::is_open) {
        return (before.len(), Vec::new());
    }
    let start = start_of_word(before, |c| lex::is_word(c) || c == '.');
    let word = &before[start..];
    if let Some((qualifier, prefix)) = word.rsplit_once('.') {
        let members = starting(members(names, qualifier), prefix);
        let whole = members.map(|member| format!("{qualifier}.{member}"));
        return (start, sorted(whole));
    }
    let previous = lex::tokens(&before[..start])
        .filter(|token| !matches!(token.kind, Kind::Space | Kind::Comment))
        .last();
    if previous.is_some_and(|token| contains(BEFORE_TABLE, token.text)) {
        return (start, sorted(table_position(names, word)));
    }
    if word.is_empty() {
        return (start, Vec::new());
    }
    (start, sorted(anything(names, before, word)))
}

/// Where the characters at the end begin that are part of a word.
fn start_of_word(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.trim_end_matches(is_part).len()
}

/// A dot command, or the argument of one.
fn command(names: &Names, before: &str) -> (usize, Vec<String>) {
    let start = start_of_word(before, |c| !c.is_whitespace());
    let word = &before[start..];
    let done = before[..start].trim();
    if done.is_empty() {
        let all = commands::COMMANDS.iter().map(|command| command.name);
        return (start, sorted(starting(all.map(str::to_owned), word)));
    }
    let argument = commands::find(done).map_or(Argument::None, |command| command.argument);
    let offers: Vec<String> = match argument {
        Argument::None | Argument::File => Vec::new(),
        Argument::Switch => ["off", "on"].map(str::to_owned).to_vec(),
        Argument::Format => Format::NAMES.map(str::to_owned).to_vec(),
        Argument::Table => table_names(names).collect(),
    };
    (start, sorted(starting(offers.into_iter(), word)))
}

/// What can follow `qualifier` and a dot.
fn members(names: &Names, qualifier: &str) -> impl Iterator<Item = String> {
    let columns = names.table(qualifier).into_iter().flat_map(column_names);
    let tables = names.tables.iter().filter_map(move |table| {
        let (schema, name) = table.name.rsplit_once('.')?;
        schema
            .eq_ignore_ascii_case(qualifier)
            .then(|| name.to_owned())
    });
    let is_window = qualifier.eq_ignore_ascii_case("window");
    let fields = WINDOW_FIELDS.iter().filter(move |_| is_window);
    columns
        .chain(tables)
        .chain(fields.map(|&field| field.to_owned()))
}

/// What can follow `FROM`: a table, or the word that makes it a stream.
fn table_position(names: &Names, word: &str) -> impl Iterator<Item = String> {
    let stream = if word.is_empty() {
        None
    } else {
        Some(in_case_of(word, "STREAM"))
    };
    starting(table_names(names).chain(stream), word)
}

fn anything(names: &Names, before: &str, word: &str) -> impl Iterator<Item = String> {
    // Columns of the tables the statement names; of all, as long as it names none.
    let words: Vec<&str> = lex::tokens(before).map(|token| token.text).collect();
    let named: Vec<&Table> = names
        .tables
        .iter()
        .filter(|table| {
            words
                .iter()
                .any(|word| table.name.eq_ignore_ascii_case(word))
        })
        .collect();
    let tables = match named.is_empty() {
        true => names.tables.iter().collect(),
        false => named,
    };
    let columns = tables.into_iter().flat_map(column_names);
    let words = PHRASES.iter().chain(KEYWORDS);
    let words: Vec<String> = words.map(|words| in_case_of(word, words)).collect();
    starting(
        words
            .into_iter()
            .chain(columns)
            .chain(table_names(names))
            .chain(names.functions.iter().cloned()),
        word,
    )
}

fn column_names(table: &Table) -> impl Iterator<Item = String> {
    table.columns.iter().map(|column| column.name.clone())
}

fn table_names(names: &Names) -> impl Iterator<Item = String> {
    names.tables.iter().map(|table| table.name.clone())
}

/// Keywords in lower case for somebody who writes them so.
fn in_case_of(word: &str, keyword: &str) -> String {
    match word.chars().any(char::is_uppercase) || word.is_empty() {
        true => keyword.to_owned(),
        false => keyword.to_lowercase(),
    }
}

fn starting(offers: impl Iterator<Item = String>, prefix: &str) -> impl Iterator<Item = String> {
    let prefix = prefix.to_lowercase();
    offers.filter(move |offer| offer.to_lowercase().starts_with(&prefix))
}

fn sorted(offers: impl Iterator<Item = String>) -> Vec<String> {
    let mut offers: Vec<String> = offers.collect();
    offers.sort();
    offers.dedup();
    offers
}

#[cfg(test)]
mod tests {
    use super::super::names::Column;
    use super::*;

    fn names() -> Names {
        let column = |name: &str| Column {
            name: name.to_owned(),
            data_type: "Int64".to_owned(),
            nullable: true,
        };
        let table = |name: &str, columns: &[&str]| Table {
            name: name.to_owned(),
            kind: "table",
            columns: columns.iter().map(|name| column(name)).collect(),
        };
        Names {
            tables: vec![
                table("orders", &["amount", "event_time"]),
                table("other.prices", &["amid"]),
            ],
            functions: vec!["amean".to_owned()],
        }
    }

    fn offered(before: &str) -> Vec<String> {
        candidates(&names(), before).1
    }

    #[test]
    fn a_table_follows_from() {
        assert_eq!(offered("SELECT * FROM o"), ["orders", "other.prices"]);
        assert_eq!(offered("SELECT * FROM STREAM "), ["orders", "other.prices"]);
        assert_eq!(offered("select * from s"), ["stream"]);
    }

    #[test]
    fn a_dot_asks_for_members() {
        assert_eq!(offered("SELECT orders.a"), ["orders.amount"]);
        assert_eq!(offered("SELECT * FROM other."), ["other.prices"]);
        assert_eq!(offered("SELECT window."), ["window.end", "window.start"]);
    }

    #[test]
    fn columns_are_those_of_the_named_tables() {
        assert_eq!(offered("SELECT am"), ["amean", "amid", "amount"]);
        assert_eq!(
            offered("SELECT * FROM orders WHERE am"),
            ["amean", "amount"]
        );
    }

    #[test]
    fn keywords_follow_the_case_that_is_typed() {
        assert_eq!(offered("WAT"), ["WATERMARK"]);
        assert_eq!(offered("del"), ["delay", "delay of interval", "delete"]);
    }

    #[test]
    fn nothing_is_offered_within_strings_and_comments() {
        for before in ["SELECT 'am", "-- am", "/* am", "SELECT \"am", "SELECT "] {
            assert_eq!(offered(before), [""; 0], "{before}");
        }
    }

    #[test]
    fn commands_have_arguments() {
        assert_eq!(offered(".t"), [".tables", ".timer"]);
        assert_eq!(offered(".mode c"), ["csv"]);
        assert_eq!(candidates(&names(), ".schema or").0, 8);
        assert_eq!(candidates(&names(), ".schema\u{a0}or").0, 9);
    }
}
