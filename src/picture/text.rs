//! A picture on a terminal.

mod plot;

use super::axis::stretch;
use super::model::{Fill, Picture, Rows, as_f64};
use super::paint::{Ink, Line, wrap, write};
use super::range::TimeRange;
use super::words::{counted, epochs, grouped, missed, remarks, short, verdict};

/// A picture is not narrower: below, its lines would be texts without a picture.
const NARROWEST: usize = 36;

/// Nor wider: a glance should hold it.
const WIDEST: usize = 200;

/// Windows that are listed with what they missed.
const MISSED: usize = 3;

/// Columns of the longest bar.
const BAR: usize = 60;

/// Characters that fill a cell from the left, eighth by eighth.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Characters that fill a cell from below, eighth by eighth.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Picture {
    /// The picture as lines of text, so many columns wide: 36 at least, 200 at most. Colours are escape sequences of a
    /// terminal.
    pub fn to_text(&self, width: usize, colours: bool) -> String {
        let width = width.clamp(NARROWEST, WIDEST);
        let range = TimeRange::of(self);
        let mut lines = self.heading(width);
        if let (Some(range), Some(_)) = (&range, self.extent()) {
            lines.push(Line::default());
            lines.extend(plot::lines(self, range, width));
            lines.extend(self.legend(width));
        }
        let (below, above) = range.map_or((0, 0), |range| (range.below, range.above));
        for remark in remarks(self, below, above) {
            lines.extend(wrap(&remark, width, Ink::Dim));
        }
        lines.extend(self.missed_windows(width));
        lines.extend(self.open_windows(width));
        lines.extend(self.whole(width));
        write(&lines, colours)
    }

    fn heading(&self, width: usize) -> Vec<Line> {
        let mut lines = vec![
            Line::of(&self.name, Ink::Bold)
                .with("  ", Ink::Plain)
                .with(&epochs(self), Ink::Plain),
        ];
        let mut facts = Vec::new();
        if self.zoned {
            facts.push("times are UTC".to_owned());
        }
        if !self.rule.is_empty() {
            facts.push(self.rule.clone());
        }
        if !self.epochs.is_empty() {
            facts.push(counted(self.rows_read(), "row"));
        }
        facts.push(verdict(self));
        let facts = facts.iter().map(|fact| Line::of(fact, Ink::Plain));
        lines.extend(flow(facts, " · ", width));
        lines
    }

    /// What the signs mean, as many in a line as have room.
    fn legend(&self, width: usize) -> Vec<Line> {
        let rows = match &self.rows {
            Rows::Sampled { every, points } => {
                let sign = if points.len() <= plot::FEW {
                    "•"
                } else {
                    "⠶"
                };
                let text = match every {
                    1 => "row".to_owned(),
                    every => format!("row (1 in {})", grouped(*every)),
                };
                (sign, text)
            }
            Rows::Bands { .. } => ("⡇", "least to greatest event time of an epoch".to_owned()),
        };
        let mut entries = vec![
            (rows.0.to_owned(), rows.1, Ink::Row),
            (
                "─┘".to_owned(),
                format!("watermark, {} at the end", plot::NOW),
                Ink::Watermark,
            ),
        ];
        if !self.late.marks.is_empty() {
            entries.push(("×".to_owned(), "late row".to_owned(), Ink::Late));
        }
        if !self.open.fills.is_empty() {
            entries.push((
                "▌".to_owned(),
                "open window, its rows".to_owned(),
                Ink::Open,
            ));
        }
        let entries = entries.into_iter().map(|(sign, text, ink)| {
            let sign = Line::of(&sign, ink).with(" ", Ink::Plain);
            sign.with(&text, Ink::Dim)
        });
        flow(entries, "   ", width)
    }

    /// The windows that lost most rows.
    fn missed_windows(&self, width: usize) -> Vec<Line> {
        let missed = missed(&self.late.marks);
        if missed.is_empty() {
            return Vec::new();
        }
        let all = missed.len() as u64;
        let mut lines = vec![Line::default()];
        let mut heading = format!("{} missed late rows", counted(all, "window"));
        if all > MISSED as u64 {
            heading.push_str(", these the most");
        }
        lines.extend(wrap(&heading, width, Ink::Bold));
        for ((begin, end), rows, by) in missed.into_iter().take(MISSED) {
            let text = format!("{:>5} late, missed by up to {}", grouped(rows), short(by));
            let mut line = Line::of("  ", Ink::Plain).with(&stretch(begin, end), Ink::Plain);
            if line.len() + 1 + text.len() > width {
                lines.push(line);
                line = Line::of("  ", Ink::Plain);
            }
            lines.push(line.with(" ", Ink::Plain).with(&text, Ink::Late));
        }
        lines
    }

    /// A bar for each of the newest open windows.
    fn open_windows(&self, width: usize) -> Vec<Line> {
        let open = &self.open;
        if open.windows == 0 {
            return Vec::new();
        }
        let most = if width < 60 { 5 } else { 8 };
        let shown: Vec<&Fill> = open.fills.iter().rev().take(most).collect();
        let mut heading = format!(
            "{} with {}",
            counted(open.windows, "open window"),
            counted(open.rows, "row")
        );
        if !shown.is_empty() && open.windows > shown.len() as u64 {
            heading.push_str(&format!(", the newest {}", shown.len()));
        }
        let mut lines = vec![Line::default()];
        lines.extend(wrap(&heading, width, Ink::Bold));
        let labels = shown.iter().map(|fill| stretch(fill.begin, fill.end));
        let label = labels.map(|label| label.chars().count()).max().unwrap_or(0);
        let greatest = shown.iter().map(|fill| fill.rows).max().unwrap_or(0).max(1);
        let numbers = grouped(greatest).len();
        let room = width.saturating_sub(2 + label + 2 + numbers + 1).min(BAR);
        for fill in shown {
            let share = as_f64(fill.rows) / as_f64(greatest);
            lines.push(
                Line::of("  ", Ink::Plain)
                    .with(&stretch(fill.begin, fill.end), Ink::Plain)
                    .padded(2 + label)
                    .with(&format!("  {:>numbers$} ", grouped(fill.rows)), Ink::Plain)
                    .with(&bar(share, room), Ink::Open),
            );
        }
        lines
    }

    /// Late rows of all epochs, and where among them the picture lies.
    fn whole(&self, width: usize) -> Vec<Line> {
        let (first, late) = &self.overview;
        let Some((from, to)) = self.extent() else {
            return Vec::new();
        };
        let last = first.saturating_add(late.len() as u64);
        if late.iter().all(|rows| *rows == 0) || (from <= *first && to >= last) {
            return Vec::new();
        }
        let columns = width.min(late.len());
        let column = |epoch: u64| {
            let place = as_f64(epoch.saturating_sub(*first)) / as_f64(late.len() as u64);
            floor(place * as_f64(columns as u64)).min(columns)
        };
        let mut sums = vec![0_u64; columns];
        for (at, rows) in late.iter().enumerate() {
            if let Some(sum) = sums.get_mut(column(first.saturating_add(at as u64))) {
                *sum += rows;
            }
        }
        let most = sums.iter().copied().max().unwrap_or(0).max(1);
        let (mut heights, mut line) = (Line::default(), Line::default());
        let drawn = column(from)..column(to).max(column(from) + 1);
        for (at, sum) in sums.iter().enumerate() {
            let height = floor(as_f64(*sum) / as_f64(most) * 7.99);
            let sign = HEIGHTS.get(height).copied().unwrap_or('█');
            heights.push(if *sum == 0 { ' ' } else { sign }, Ink::Late);
            match drawn.contains(&at) {
                true => line.push('━', Ink::Bold),
                false => line.push('─', Ink::Dim),
            }
        }
        let heading = format!("late rows in epochs {first}–{}", last.saturating_sub(1));
        let mut lines = vec![Line::default()];
        lines.push(Line::of(&heading, Ink::Bold).with("  ━ drawn above", Ink::Dim));
        lines.extend([heights, line]);
        lines
    }
}

/// Pieces one behind the other, as many in a line as have room.
fn flow(pieces: impl Iterator<Item = Line>, gap: &str, width: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if line.len() + gap.chars().count() + piece.len() <= width => {
                *line = std::mem::take(line).with(gap, Ink::Plain);
                line.append(piece);
            }
            _ => lines.push(piece),
        }
    }
    lines
}

/// A bar of a share of some columns, to the eighth; one that is not empty can be seen.
fn bar(share: f64, columns: usize) -> String {
    let eighths = floor(share * as_f64(columns as u64) * 8.0).max(usize::from(share > 0.0));
    let mut bar = "█".repeat(eighths / 8);
    if let Some(rest) = (eighths % 8).checked_sub(1) {
        bar.extend(EIGHTHS.get(rest));
    }
    bar
}

/// The whole number below.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a picture is small and not negative; the conversion saturates"
)]
fn floor(place: f64) -> usize {
    place.max(0.0) as usize
}

#[cfg(test)]
mod tests;
