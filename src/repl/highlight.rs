//! Colours for what is typed.

use super::commands;
use super::keywords::is_keyword;
use super::lex::{Kind, tokens};

/// Ends a colour.
const PLAIN: &str = "\x1b[0m";
const KEYWORD: &str = "\x1b[1;34m";
const TEXT: &str = "\x1b[32m";
const NUMBER: &str = "\x1b[36m";
const FAINT: &str = "\x1b[2m";

/// The text of a statement or command with ANSI colours.
pub(crate) fn coloured(text: &str) -> String {
    if commands::is_command(text) {
        return format!("{KEYWORD}{text}{PLAIN}");
    }
    let mut coloured = String::with_capacity(text.len() * 2);
    for token in tokens(text) {
        let colour = match token.kind {
            Kind::Word if is_keyword(token.text) => KEYWORD,
            Kind::Text => TEXT,
            Kind::Number => NUMBER,
            Kind::Comment => FAINT,
            Kind::Word | Kind::Quoted | Kind::Space | Kind::Symbol => {
                coloured.push_str(token.text);
                continue;
            }
        };
        coloured.push_str(colour);
        coloured.push_str(token.text);
        coloured.push_str(PLAIN);
    }
    coloured
}

/// The text of a hint, fainter than what is typed.
pub(crate) fn faint(text: &str) -> String {
    format!("{FAINT}{text}{PLAIN}")
}

/// The prompt.
pub(crate) fn prompt(text: &str) -> String {
    format!("{KEYWORD}{text}{PLAIN}")
}

/// Whether colours are wanted: <https://no-color.org>.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_strings_numbers_and_comments_have_colours() {
        assert_eq!(
            coloured("select a, 'b', 1 -- c"),
            "\x1b[1;34mselect\x1b[0m a, \x1b[32m'b'\x1b[0m, \x1b[36m1\x1b[0m \x1b[2m-- c\x1b[0m"
        );
    }

    #[test]
    fn a_command_is_no_sql() {
        assert_eq!(coloured(".mode csv"), "\x1b[1;34m.mode csv\x1b[0m");
    }
}
