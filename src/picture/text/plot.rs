//! The field of a picture: axes, rows, the watermark's staircase, late rows, and the fill of open windows at its edge.

use super::super::axis::{epoch_marks, time_marks};
use super::super::braille::Raster;
use super::super::model::{Picture, Rows, as_f64};
use super::super::paint::{Ink, Line};
use super::super::range::TimeRange;
use super::{EIGHTHS, floor};
use crate::time::Instant;

/// Rows that are few.
pub(super) const FEW: usize = 60;

/// Where the watermark is after the last epoch.
pub(super) const NOW: char = '◂';

/// The field, without its axes.
struct Field<'a> {
    picture: &'a Picture,
    range: &'a TimeRange,
    /// Number of the first epoch and the one behind the last.
    epochs: (f64, f64),
    columns: usize,
    lines: usize,
}

/// The field with its axes, in lines.
pub(super) fn lines(picture: &Picture, range: &TimeRange, width: usize) -> Vec<Line> {
    let height = (width / 4).clamp(10, 30);
    let marks = time_marks(range, (height * 2 / 5).max(3));
    let labels = marks.iter().map(|(_, text)| text.chars().count()).max();
    let gutter = labels.unwrap_or(0).max(5);
    let (first, end) = picture.extent().unwrap_or((0, 1));
    let field = Field {
        picture,
        range,
        epochs: (as_f64(first), as_f64(end)),
        // Behind the field: a gap, and the column of the open windows.
        columns: width.saturating_sub(gutter + 2 + 2).max(8),
        lines: height,
    };
    let mut lines = field.drawn();
    for (line, text) in lines.iter_mut().enumerate() {
        let here = marks.iter().find(|(at, _)| field.line(*at) == line);
        let label = here.map_or("", |(_, label)| label.as_str());
        let axis = if label.is_empty() { "│" } else { "┤" };
        let drawn = std::mem::take(text);
        *text = Line::of(&format!("{label:>gutter$} "), Ink::Dim).with(axis, Ink::Dim);
        text.append(drawn);
    }
    lines.extend(field.epoch_axis(first, end, gutter));
    lines
}

impl Field<'_> {
    /// The line of an instant, from the top.
    fn line(&self, at: Instant) -> usize {
        self.part(at, self.lines)
    }

    /// Which of so many parts of the height an instant is in, from the top.
    fn part(&self, at: Instant, parts: usize) -> usize {
        let place = (1.0 - self.range.place(at)) * as_f64(parts as u64);
        floor(place).min(parts.saturating_sub(1))
    }

    /// Which of so many parts of the width an arrival is in.
    fn column(&self, at: f64, parts: usize) -> usize {
        let (first, end) = self.epochs;
        let place = (at - first) / (end - first).max(1.0) * as_f64(parts as u64);
        floor(place).min(parts.saturating_sub(1))
    }

    fn drawn(&self) -> Vec<Line> {
        let raster = self.rows();
        let stairs = self.stairs();
        let late = self.late();
        let fills = self.fills();
        let now = self.picture.watermark().map(|at| self.line(at));
        (0..self.lines)
            .map(|line| {
                let mut text = Line::default();
                for column in 0..self.columns {
                    let at = line * self.columns + column;
                    let stair = stairs.get(at).copied().flatten();
                    if late.get(at).copied().unwrap_or(false) {
                        text.push('×', Ink::Late);
                    } else if let Some(stair) = stair {
                        text.push(stair, Ink::Watermark);
                    } else {
                        text.push(self.dots(raster.cell(column, line)), Ink::Row);
                    }
                }
                let is_now = now == Some(line);
                text.push(if is_now { NOW } else { ' ' }, Ink::Watermark);
                text.push(fills.get(line).copied().flatten().unwrap_or(' '), Ink::Open);
                text
            })
            .collect()
    }

    /// What a cell of rows looks like: one of few rows would be lost as a dot.
    fn dots(&self, cell: Option<char>) -> char {
        match (cell, &self.picture.rows) {
            (Some(_), Rows::Sampled { points, .. }) if points.len() <= FEW => '•',
            (cell, _) => cell.unwrap_or(' '),
        }
    }

    fn rows(&self) -> Raster {
        let mut raster = Raster::new(self.columns, self.lines);
        let (wide, high) = (self.columns * 2, self.lines * 4);
        match &self.picture.rows {
            Rows::Sampled { points, .. } => {
                for point in points {
                    raster.set(self.column(point.at, wide), self.part(point.time, high));
                }
            }
            Rows::Bands { .. } => {
                for epoch in &self.picture.epochs {
                    let Some([least, _, greatest]) = epoch.times else {
                        continue;
                    };
                    let x = self.column(as_f64(epoch.number) + 0.5, wide);
                    (self.part(greatest, high)..=self.part(least, high))
                        .for_each(|y| raster.set(x, y));
                }
            }
        }
        raster
    }

    /// The staircase, a character a cell: that of the column's middle, and what joins it to the column before.
    fn stairs(&self) -> Vec<Option<char>> {
        let mut cells = vec![None; self.columns * self.lines];
        let mut put = |column: usize, line: usize, char: char| {
            if let Some(cell) = cells.get_mut(line * self.columns + column) {
                *cell = Some(char);
            }
        };
        let mut former: Option<usize> = None;
        for (column, line) in self.heights().into_iter().enumerate() {
            let Some(line) = line else { continue };
            match former {
                Some(former) if line < former => {
                    put(column, former, '┘');
                    (line + 1..former).for_each(|between| put(column, between, '│'));
                    put(column, line, '┌');
                }
                _ => put(column, line, '─'),
            }
            former = Some(line);
        }
        cells
    }

    /// The line of the watermark in the middle of each column.
    fn heights(&self) -> Vec<Option<usize>> {
        let (first, end) = self.epochs;
        let wide = (end - first) / as_f64(self.columns as u64);
        let corners = self.picture.staircase();
        (0..self.columns)
            .map(|column| {
                let middle = first + (as_f64(column as u64) + 0.5) * wide;
                let behind = corners.partition_point(|(at, _)| *at <= middle);
                let (at, watermark) = corners.get(behind.checked_sub(1)?)?;
                (*at <= middle).then(|| self.line(*watermark))
            })
            .collect()
    }

    fn late(&self) -> Vec<bool> {
        let mut cells = vec![false; self.columns * self.lines];
        for mark in &self.picture.late.marks {
            let column = self.column(mark.point.at, self.columns);
            if let Some(cell) = cells.get_mut(self.line(mark.point.time) * self.columns + column) {
                *cell = true;
            }
        }
        cells
    }

    /// For each line how full its fullest open window is, to the eighth.
    fn fills(&self) -> Vec<Option<char>> {
        let fills = &self.picture.open.fills;
        let greatest = fills.iter().map(|fill| fill.rows).max().unwrap_or(0).max(1);
        let mut most = vec![0_u64; self.lines];
        for fill in fills {
            // The end belongs to the window behind it.
            let last = Instant::from_nanos(fill.end.nanos().saturating_sub(1)).max(fill.begin);
            if !self.range.contains(fill.begin) && !self.range.contains(last) {
                continue;
            }
            for line in self.line(last)..=self.line(fill.begin) {
                if let Some(most) = most.get_mut(line) {
                    *most = (*most).max(fill.rows);
                }
            }
        }
        most.into_iter()
            .map(|rows| {
                let eighth = floor(as_f64(rows) / as_f64(greatest) * 7.99);
                EIGHTHS.get(eighth).copied().filter(|_| rows > 0)
            })
            .collect()
    }

    /// The axis below the field, and the numbers of epochs below it.
    fn epoch_axis(&self, first: u64, end: u64, gutter: usize) -> [Line; 2] {
        let widest = end.to_string().len();
        let marks = epoch_marks(first, end, (self.columns / (widest + 6)).max(1));
        let mut axis = Line::of(&" ".repeat(gutter + 1), Ink::Dim).with("└", Ink::Dim);
        axis = axis.with(&"─".repeat(self.columns), Ink::Dim);
        let mut numbers = Line::of(&format!("{:>gutter$}", "epoch"), Ink::Dim);
        numbers = numbers.padded(gutter + 2 + self.columns + 2);
        let mut free = gutter + 1;
        for mark in marks {
            let at = gutter + 2 + self.column(as_f64(mark), self.columns);
            let text = mark.to_string();
            let from = at.saturating_sub(text.len() / 2);
            if from < free {
                continue;
            }
            axis.put(at, "┬", Ink::Dim);
            numbers.put(from, &text, Ink::Dim);
            free = from + text.len() + 1;
        }
        [axis, numbers]
    }
}
