//! Text to tokens, for colours and completion.
//!
//! Never fails: an open quote or comment reaches to the end, and the tokens put together are the text.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A keyword or a name.
    Word,
    /// A name in double quotes or backticks.
    Quoted,
    /// A string.
    Text,
    /// A number.
    Number,
    /// A comment of either kind.
    Comment,
    /// White space.
    Space,
    /// Any other character.
    Symbol,
}

/// A piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// What it is.
    pub(crate) kind: Kind,
    /// The piece.
    pub(crate) text: &'a str,
}

impl Token<'_> {
    /// Whether something may follow that is part of the token: it has been opened and not closed.
    pub(crate) fn is_open(&self) -> bool {
        match self.kind {
            Kind::Text => !is_closed(self.text, '\''),
            Kind::Quoted => !is_closed(self.text, '"') && !is_closed(self.text, '`'),
            Kind::Comment if self.text.starts_with("--") => !self.text.ends_with('\n'),
            Kind::Comment => block_comment(self.text).is_none(),
            Kind::Word | Kind::Number | Kind::Space | Kind::Symbol => false,
        }
    }
}

/// The tokens of a text.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (kind, length) = next(rest)?;
        let (text, after) = rest.split_at(length);
        rest = after;
        Some(Token { kind, text })
    })
}

/// The first word of a text, past space and comments.
pub(crate) fn first_word(text: &str) -> Option<&str> {
    tokens(text)
        .find(|token| !matches!(token.kind, Kind::Space | Kind::Comment))
        .filter(|token| token.kind == Kind::Word)
        .map(|token| token.text)
}

/// Whether a character can be in a name without quotes.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Kind and bytes of the first token.
fn next(text: &str) -> Option<(Kind, usize)> {
    let first = text.chars().next()?;
    let second = text[first.len_utf8()..].chars().next();
    let token = match (first, second) {
        ('-', Some('-')) => (Kind::Comment, text.find('\n').map(|at| at + 1)),
        ('/', Some('*')) => (Kind::Comment, block_comment(text)),
        ('\'', _) => (Kind::Text, quote(text, first)),
        ('"' | '`', _) => (Kind::Quoted, quote(text, first)),
        ('.', Some(digit)) if digit.is_ascii_digit() => (Kind::Number, number(text)),
        (digit, _) if digit.is_ascii_digit() => (Kind::Number, number(text)),
        (space, _) if space.is_whitespace() => {
            (Kind::Space, text.find(|c: char| !c.is_whitespace()))
        }
        (letter, _) if is_word(letter) => (Kind::Word, text.find(|c| !is_word(c))),
        _ => (Kind::Symbol, Some(first.len_utf8())),
    };
    Some((token.0, token.1.unwrap_or(text.len())))
}

fn number(text: &str) -> Option<usize> {
    text.find(|c| !is_word(c) && c != '.')
}

/// Bytes up to the end of the quoted text at the start, if it ends. A doubled quote does not end it.
fn quote(text: &str, mark: char) -> Option<usize> {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if c == mark && characters.next_if(|(_, next)| *next == mark).is_none() {
            return Some(at + mark.len_utf8());
        }
    }
    None
}

fn is_closed(text: &str, mark: char) -> bool {
    text.starts_with(mark) && quote(text, mark).is_some()
}

/// Bytes up to the end of the block comment at the start, if it ends. Block comments nest.
fn block_comment(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(mark) = text.get(at..).and_then(|rest| rest.find(['/', '*'])) {
        at += mark;
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth = depth.saturating_sub(1);
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        tokens(text)
            .filter(|token| token.kind != Kind::Space)
            .map(|token| (token.kind, token.text))
            .collect()
    }

    #[test]
    fn quotes_comments_and_numbers_are_whole() {
        assert_eq!(
            kinds("x1 'it''s' \"a b\" .5 1e3 /* a /* b */ c */-- d;\n;"),
            [
                (Kind::Word, "x1"),
                (Kind::Text, "'it''s'"),
                (Kind::Quoted, "\"a b\""),
                (Kind::Number, ".5"),
                (Kind::Number, "1e3"),
                (Kind::Comment, "/* a /* b */ c */"),
                (Kind::Comment, "-- d;\n"),
                (Kind::Symbol, ";"),
            ]
        );
    }

    #[test]
    fn what_is_open_reaches_to_the_end() {
        for text in ["'é ; ", "\"a", "`a", "/* a /* b */", "-- é"] {
            let token = tokens(text).next().unwrap();
            assert_eq!(token.text, text);
            assert!(token.is_open(), "{text}");
        }
    }

    #[test]
    fn the_first_word_is_past_comments() {
        assert_eq!(first_word(" -- a\n/* b */ insert INTO t"), Some("insert"));
        assert_eq!(first_word("(SELECT 1)"), None);
    }
}
