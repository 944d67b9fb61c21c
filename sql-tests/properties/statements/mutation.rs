//! Texts that are not quite statements: tokens dropped, doubled, swapped, replaced, cut and mixed with odd characters.

use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::Tokenizer;

use crate::scenario::Rng;

/// What a token may be replaced by.
const STOCK: [&str; 56] = [
    "STREAM",
    "WATERMARK",
    "DELAY",
    "OF",
    "INTERVAL",
    "window",
    "session_window",
    "AS",
    "(",
    ")",
    ",",
    ".",
    ";",
    "*",
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "UNION ALL",
    "JOIN",
    "ON",
    "WITH",
    "NULL",
    "0",
    "1",
    "-",
    "'",
    "\"",
    "''",
    "'1 hour'",
    "'0 seconds'",
    "'-1 minute'",
    "ts",
    "k",
    "v",
    "t",
    "u",
    "STREAMING",
    "TABLE",
    "REFRESH",
    "EXPLAIN",
    "DISTINCT",
    "OVER",
    "$1",
    "?",
    "[",
    "]",
    "{",
    "}",
    "::",
    "=>",
    "--",
    "/*",
    "*/",
];

/// Characters of one to four bytes, some without a width or a meaning.
const ODD: [&str; 16] = [
    "é", "ß", "→", "日本", "🌊", "\u{0}", "\u{200b}", "\u{feff}", "\u{301}", "\t", "\r\n",
    "\u{a0}", "İ", "\\", "`", "\u{202e}",
];

/// The tokens of a text, spaces and comments included; the text itself if it has none.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let dialect = GenericDialect {};
    match Tokenizer::new(&dialect, text)
        .with_unescape(false)
        .tokenize()
    {
        Ok(tokens) => tokens.iter().map(ToString::to_string).collect(),
        Err(_) => vec![text.to_owned()],
    }
}

/// The text with one to three changes.
pub(super) fn mutated(rng: &mut Rng, text: &str) -> String {
    let mut all = tokens(text);
    for _ in 0..rng.size(1, 3) {
        if all.is_empty() {
            break;
        }
        let at = rng.size(0, all.len() - 1);
        let other = rng.size(0, all.len() - 1);
        match rng.size(0, 9) {
            0 => drop(all.remove(at)),
            1 => all.insert(at, all[at].clone()),
            2 => all.swap(at, other),
            3 => all[at] = all[other].clone(),
            4 => all[at] = format!(" {} ", rng.pick(&STOCK)),
            5 => all.insert(at, format!(" {} ", rng.pick(&STOCK))),
            6 => cut(rng, &mut all, at),
            7 => odd(rng, &mut all[at]),
            8 => drop(all.drain(at.min(other)..=at.max(other))),
            _ => {
                let part = all[at.min(other)..=at.max(other)].to_vec();
                all.splice(at..at, part);
            }
        }
    }
    all.concat()
}

/// Ends the text somewhere, in the middle of a token too.
fn cut(rng: &mut Rng, all: &mut Vec<String>, at: usize) {
    all.truncate(at + 1);
    let place = place(rng, &all[at]);
    all[at].truncate(place);
}

/// Puts an odd character into a token.
fn odd(rng: &mut Rng, token: &mut String) {
    let place = place(rng, token);
    token.insert_str(place, rng.pick(&ODD));
}

/// A place between two characters.
fn place(rng: &mut Rng, token: &str) -> usize {
    let places: Vec<usize> = token
        .char_indices()
        .map(|(at, _)| at)
        .chain([token.len()])
        .collect();
    rng.pick(&places)
}
