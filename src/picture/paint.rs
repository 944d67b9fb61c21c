//! Lines of characters with colours, for a terminal.

/// What a character is part of, which says its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// Text.
    Plain,
    /// A heading.
    Bold,
    /// Axes and their texts.
    Dim,
    /// Rows.
    Row,
    /// The watermark.
    Watermark,
    /// Late rows.
    Late,
    /// Open windows.
    Open,
}

impl Ink {
    /// The parameters of the terminal's "select graphic rendition". Colours are of the terminal's own palette, which
    /// suits its background.
    fn code(self) -> &'static str {
        match self {
            Ink::Plain => "0",
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Row => "36",
            Ink::Watermark => "1;33",
            Ink::Late => "1;31",
            Ink::Open => "32",
        }
    }
}

/// A line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(char, Ink)>);

impl Line {
    /// A line of one colour.
    pub(super) fn of(text: &str, ink: Ink) -> Self {
        Self::default().with(text, ink)
    }

    /// The line with a text behind it.
    #[must_use]
    pub(super) fn with(mut self, text: &str, ink: Ink) -> Self {
        self.0.extend(text.chars().map(|char| (char, ink)));
        self
    }

    /// The line with spaces behind it, up to a width.
    #[must_use]
    pub(super) fn padded(mut self, width: usize) -> Self {
        let length = self.0.len().max(width);
        self.0.resize(length, (' ', Ink::Plain));
        self
    }

    /// Writes a text over what is there from a place on; what has no room is left out.
    pub(super) fn put(&mut self, at: usize, text: &str, ink: Ink) {
        for (cell, char) in self.0.iter_mut().skip(at).zip(text.chars()) {
            *cell = (char, ink);
        }
    }

    /// Number of characters.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the characters of another line.
    pub(super) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds a character.
    pub(super) fn push(&mut self, char: char, ink: Ink) {
        self.0.push((char, ink));
    }

    /// The line as text, without spaces at its end.
    fn write(&self, colours: bool, into: &mut String) {
        let last = self.0.iter().rposition(|(char, _)| *char != ' ');
        let cells = self.0.iter().take(last.map_or(0, |last| last + 1));
        let mut ink = Ink::Plain;
        for (char, of) in cells {
            // A space looks the same in all colours.
            if colours && *of != ink && *char != ' ' {
                into.push_str("\u{1b}[0");
                if *of != Ink::Plain {
                    into.push(';');
                    into.push_str(of.code());
                }
                into.push('m');
                ink = *of;
            }
            into.push(*char);
        }
        if ink != Ink::Plain {
            into.push_str("\u{1b}[0m");
        }
        into.push('\n');
    }
}

/// Lines as text, each ended.
pub(super) fn write(lines: &[Line], colours: bool) -> String {
    let mut text = String::new();
    lines.iter().for_each(|line| line.write(colours, &mut text));
    text
}

/// Breaks a sentence into lines of a width, those behind the first indented.
pub(super) fn wrap(text: &str, width: usize, ink: Ink) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    for word in text.split(' ') {
        let fits = |line: &Line| line.len() == 0 || line.len() + 1 + word.chars().count() <= width;
        if !lines.last().is_some_and(fits) {
            lines.push(Line::of("  ", ink));
        }
        if let Some(line) = lines.last_mut() {
            let gap = if line.len() == 0 || line.0.iter().all(|(char, _)| *char == ' ') {
                ""
            } else {
                " "
            };
            *line = std::mem::take(line).with(gap, ink).with(word, ink);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_written_where_they_change_and_only_if_they_are_wanted() {
        let line = Line::of("a", Ink::Plain)
            .with("bc", Ink::Late)
            .with("d ", Ink::Row);
        assert_eq!(write(std::slice::from_ref(&line), false), "abcd\n");
        assert_eq!(
            write(&[line], true),
            "a\u{1b}[0;1;31mbc\u{1b}[0;36md\u{1b}[0m\n"
        );
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let lines = wrap("one two three four", 9, Ink::Plain);
        assert_eq!(write(&lines, false), "one two\n  three\n  four\n");
        assert_eq!(write(&wrap("", 9, Ink::Plain), false), "\n");
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let mut line = Line::default().padded(4);
        line.put(2, "abc", Ink::Dim);
        line.put(9, "x", Ink::Dim);
        assert_eq!(write(&[line], false), "  ab\n");
    }
}
