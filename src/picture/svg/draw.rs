//! A canvas in pixels, on which roles are drawn.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::io;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::{self, Role, escaped};

/// `plotters` counts in whole pixels: it is given four for one.
const FINE: f64 = 4.0;

/// Half the height of a late row's diamond, in pixels: they are smaller where there are many.
const HALVES: [(usize, f64); 3] = [(200, 4.5), (800, 3.5), (usize::MAX, 2.75)];

/// What `plotters` divides the size of a font by.
const FONT: f64 = 1.24;

/// A place in pixels: from the left, from the top.
pub(super) type Place = (f64, f64);

/// Which side of its place a text is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// It begins there.
    Right,
    /// It ends there.
    Left,
    /// It is in the middle of it.
    Both,
}

/// What is drawn.
#[derive(Debug, Clone)]
enum Mark {
    /// A rectangle, from corner to corner.
    Rect(Place, Place),
    /// A line, and its width.
    Line(Vec<Place>, f64),
    /// A field with these corners.
    Field(Vec<Place>),
    /// A disc, and its radius.
    Dot(Place, f64),
    /// A text, its middle's height, its size, and whether it is bold.
    Text(String, Place, Side, f64, bool),
}

/// A canvas.
#[derive(Debug)]
pub(super) struct Canvas {
    size: Place,
    marks: Vec<(Mark, Role)>,
    titles: BTreeMap<Role, VecDeque<Option<String>>>,
}

impl Canvas {
    /// An empty canvas.
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            size: (width, height),
            marks: Vec::new(),
            titles: BTreeMap::new(),
        }
    }

    /// A rectangle.
    pub(super) fn rect(&mut self, from: Place, to: Place, role: Role) {
        self.titled_rect(from, to, role, None);
    }

    /// A rectangle that tells something.
    pub(super) fn titled_rect(
        &mut self,
        from: Place,
        to: Place,
        role: Role,
        title: Option<String>,
    ) {
        self.titles.entry(role).or_default().push_back(title);
        self.marks.push((Mark::Rect(from, to), role));
    }

    /// A line through these places.
    pub(super) fn line(&mut self, through: &[Place], width: f64, role: Role) {
        self.marks.push((Mark::Line(through.to_vec(), width), role));
    }

    /// A field with these corners.
    pub(super) fn field(&mut self, corners: Vec<Place>, role: Role) {
        self.marks.push((Mark::Field(corners), role));
    }

    /// A row.
    pub(super) fn dot(&mut self, at: Place, role: Role) {
        self.marks.push((Mark::Dot(at, 2.25), role));
    }

    /// A late row, one of so many, which tells something.
    pub(super) fn diamond(&mut self, at: Place, of: usize, role: Role, title: Option<String>) {
        self.titles.entry(role).or_default().push_back(title);
        let (x, y) = at;
        let half = HALVES.iter().find(|(most, _)| of <= *most);
        let half = half.map_or(4.5, |(_, half)| *half);
        let corners = vec![(x, y - half), (x + half, y), (x, y + half), (x - half, y)];
        self.marks.push((Mark::Field(corners), role));
    }

    /// A text.
    pub(super) fn text(&mut self, text: &str, at: Place, side: Side, size: f64, role: Role) {
        self.marks
            .push((Mark::Text(text.to_owned(), at, side, size, false), role));
    }

    /// A heading.
    pub(super) fn heading(&mut self, text: &str, at: Place, size: f64) {
        let mark = Mark::Text(text.to_owned(), at, Side::Right, size, true);
        self.marks.push((mark, Role::Ink));
    }

    /// The document, with what it shows in words.
    ///
    /// # Errors
    /// - none that is known: it is drawn into memory
    pub(super) fn finish(self, description: &str) -> io::Result<String> {
        let mut drawn = String::new();
        let size = (
            fine(self.size.0).unsigned_abs(),
            fine(self.size.1).unsigned_abs(),
        );
        {
            let area = SVGBackend::with_string(&mut drawn, size).into_drawing_area();
            for (mark, role) in &self.marks {
                mark.draw(&area, *role)?;
            }
            area.present().map_err(failed)?;
        }
        let elements = drawn.split_once('\n').map_or("", |(_, elements)| elements);
        let (width, height) = self.size;
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"{}\">\n<style>{}</style>\n{HATCH}\n{}",
            size.0,
            size.1,
            escaped(description),
            style::sheet(),
            style::classes(elements, self.titles)
        ))
    }
}

/// The hatching of open windows.
const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"28\" height=\"28\" patternUnits=\"userSpaceOnUse\" \
patternTransform=\"rotate(45)\"><rect class=\"hatched\" width=\"28\" height=\"28\"/>\
<line class=\"hatch\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"28\"/></pattern></defs>";

impl Mark {
    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, role: Role) -> io::Result<()> {
        let colour = role.colour();
        let drawn = match self {
            Mark::Rect(from, to) => {
                // Less than a pixel cannot be seen.
                let least = |from: f64, to: f64| to.max(from + 1.0);
                let to = (least(from.0, to.0), least(from.1, to.1));
                area.draw(&Rectangle::new([at(*from), at(to)], colour.filled()))
            }
            Mark::Line(through, width) => {
                let through: Vec<(i32, i32)> = through.iter().copied().map(at).collect();
                let width = fine(*width).unsigned_abs();
                area.draw(&PathElement::new(through, colour.stroke_width(width)))
            }
            Mark::Field(corners) => {
                let corners: Vec<(i32, i32)> = corners.iter().copied().map(at).collect();
                area.draw(&Polygon::new(corners, colour.filled()))
            }
            Mark::Dot(place, radius) => {
                area.draw(&Circle::new(at(*place), fine(*radius), colour.filled()))
            }
            Mark::Text(text, place, side, size, bold) => {
                let style = if *bold {
                    FontStyle::Bold
                } else {
                    FontStyle::Normal
                };
                let anchor = match side {
                    Side::Right => HPos::Left,
                    Side::Left => HPos::Right,
                    Side::Both => HPos::Center,
                };
                let font = ("sans-serif", size * FINE * FONT, style).into_font();
                let style = font.color(&colour).pos(Pos::new(anchor, VPos::Center));
                area.draw(&Text::new(text.as_str(), at(*place), style))
            }
        };
        drawn.map_err(failed)
    }
}

fn at(place: Place) -> (i32, i32) {
    (fine(place.0), fine(place.1))
}

/// Pixels as `plotters` counts them.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a picture is some thousands of pixels wide; the conversion saturates"
)]
fn fine(pixels: f64) -> i32 {
    (pixels * FINE).round() as i32
}

fn failed(error: impl Display) -> io::Error {
    io::Error::other(error.to_string())
}
