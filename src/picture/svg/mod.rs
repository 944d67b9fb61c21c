//! A picture as a file that needs nothing else: SVG, alone or in a page.
//!
//! ```text
//! ┌ heading, legend ───────────────────────────────┐
//! │ event time                     rows by window  │
//! │ ┌───────────────────────────┐  ┌─────────────┐ │   the panel has the field's axis of event time
//! │ │ field                     │  │ panel       │ │
//! │ └───────────────────────────┘  └─────────────┘ │
//! │   arrival, in epochs                           │
//! │   late rows in all epochs                      │   where the epochs of the field are not all
//! │   remarks                                      │
//! └────────────────────────────────────────────────┘
//! ```
//!
//! It is drawn with `plotters`, in one colour for each role, by number; then ([`style`]) the numbers become classes of a
//! style sheet, which has them in light and dark, and what has something to tell gets a `<title>`.

mod draw;
mod field;
mod page;
mod panel;
mod style;

use std::io;

use self::draw::{Canvas, Side};
use self::field::Field;
use self::style::Role;
use super::model::{Picture, Rows, as_f64};
use super::range::TimeRange;
use super::words::{counted, epochs, grouped, remarks, verdict};

/// Width of a picture in pixels.
const WIDTH: f64 = 1200.0;

impl Picture {
    /// The picture as an SVG document of 1,200 pixels' width. It is light or dark as whoever shows it prefers.
    ///
    /// # Errors
    /// - none that is known: it is drawn into memory
    pub fn to_svg(&self) -> io::Result<String> {
        self.drawn(true)
    }

    /// The picture as a page, with tables of the late rows and of the windows that they missed.
    ///
    /// # Errors
    /// - none that is known: it is drawn into memory
    pub fn to_html(&self) -> io::Result<String> {
        Ok(page::page(self, &self.drawn(false)?))
    }

    fn drawn(&self, headed: bool) -> io::Result<String> {
        let range = TimeRange::of(self);
        let (below, above) = range.map_or((0, 0), |range| (range.below, range.above));
        let mut remarks = remarks(self, below, above);
        if self.older_windows > 0 {
            let windows = counted(self.older_windows, "older window");
            remarks.push(format!("{windows} not drawn."));
        }
        let layout = Layout::of(self, headed, range.is_some(), remarks.len());
        let mut canvas = Canvas::new(WIDTH, layout.height);
        canvas.rect((0.0, 0.0), (WIDTH, layout.height), Role::Ground);
        if headed {
            canvas.heading(&self.name, (layout.edge, 34.0), 22.0);
            canvas.text(
                &self.facts(),
                (layout.edge, 60.0),
                Side::Right,
                14.0,
                Role::Ink,
            );
        }
        if let (Some(range), Some(extent)) = (&range, self.extent()) {
            self.key(&mut canvas, &layout);
            let field = Field::new(self, range, extent, &layout);
            field.draw(&mut canvas);
            panel::draw(self, &field, &layout, &mut canvas);
            if let Some(top) = layout.whole {
                panel::whole(self, &layout, top, &mut canvas);
            }
        }
        for (line, remark) in remarks.iter().enumerate() {
            let y = layout.remarks + 20.0 * as_f64(line as u64);
            canvas.text(remark, (layout.edge, y), Side::Right, 13.0, Role::Soft);
        }
        canvas.finish(&self.description())
    }

    /// What is drawn, in a line.
    fn facts(&self) -> String {
        let mut facts = vec![epochs(self)];
        if !self.epochs.is_empty() {
            facts.push(counted(self.rows_read(), "row"));
        }
        facts.push(verdict(self));
        if !self.rule.is_empty() {
            facts.push(self.rule.clone());
        }
        facts.join(" · ")
    }

    /// What is drawn, for who cannot see it.
    fn description(&self) -> String {
        format!(
            "Event time against arrival of {}, with the watermark and the late rows: {}",
            self.name,
            self.facts()
        )
    }

    /// What the signs mean, in one line.
    fn key(&self, canvas: &mut Canvas, layout: &Layout) {
        let (mut x, y) = (layout.edge, layout.legend);
        let mut entry = |canvas: &mut Canvas, text: &str| {
            let at = x;
            canvas.text(text, (at + 24.0, y), Side::Right, 13.0, Role::Soft);
            // Letters of this size are some 6.5 pixels wide.
            x = at + 24.0 + as_f64(text.chars().count() as u64) * 6.5 + 24.0;
            at
        };
        match &self.rows {
            Rows::Sampled { every, .. } => {
                let text = match every {
                    1 => "row".to_owned(),
                    every => format!("row, one in {}", grouped(*every)),
                };
                let at = entry(canvas, &text);
                for (right, down) in [(2.0, 3.0), (9.0, -2.0), (15.0, 2.0)] {
                    canvas.dot((at + right, y + down), Role::Row);
                }
            }
            Rows::Bands { .. } => {
                let at = entry(
                    canvas,
                    "least to greatest event time of an epoch, and its mean",
                );
                canvas.rect((at, y - 6.0), (at + 16.0, y + 6.0), Role::Band);
                canvas.line(&[(at, y), (at + 16.0, y)], 1.5, Role::Mean);
            }
        }
        let at = entry(canvas, "watermark");
        let (low, high, middle) = (y + 5.0, y - 4.0, at + 8.0);
        let stairs = [(at, low), (middle, low), (middle, high), (at + 16.0, high)];
        canvas.line(&stairs, 2.0, Role::Watermark);
        if !self.late.marks.is_empty() {
            let at = entry(canvas, "late row");
            canvas.diamond((at + 8.0, y), 1, Role::Late, None);
        }
        if self.windows.iter().any(|window| window.to.is_some()) {
            let at = entry(canvas, "window, from its first row until it closed");
            canvas.rect((at, y - 6.0), (at + 16.0, y + 6.0), Role::Closed);
        }
        if self.windows.iter().any(|window| window.to.is_none()) || !self.open.fills.is_empty() {
            let at = entry(canvas, "open window");
            canvas.rect((at, y - 6.0), (at + 16.0, y + 6.0), Role::Open);
        }
    }

    /// Whether there are epochs that are not drawn.
    fn is_part(&self) -> bool {
        let (first, late) = &self.overview;
        self.extent()
            .is_some_and(|(from, to)| from > *first || to < first.saturating_add(late.len() as u64))
    }
}

/// Where the parts of a picture are, in pixels from the left and from the top.
#[derive(Debug, Clone)]
struct Layout {
    height: f64,
    /// Left edge of the texts: in a page that of the page's own.
    edge: f64,
    legend: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// Left and right edge of the panel.
    panel: Option<(f64, f64)>,
    /// Upper edge of the strip with all epochs.
    whole: Option<f64>,
    /// The first line of the remarks.
    remarks: f64,
}

impl Layout {
    fn of(picture: &Picture, headed: bool, has_field: bool, remarks: usize) -> Self {
        let begin = if headed { 64.0 } else { 0.0 };
        let has_panel = !(picture.windows.is_empty() && picture.open.fills.is_empty());
        let has_late = picture.overview.1.iter().any(|late| *late > 0);
        let top = begin + if has_field { 74.0 } else { 12.0 };
        let bottom = top + if has_field { 500.0 } else { 0.0 };
        let below = bottom + if has_field { 52.0 } else { 0.0 };
        let whole = (has_field && has_late && picture.is_part()).then_some(below + 14.0);
        let end = whole.map_or(below, |top| top + 66.0);
        Self {
            height: end + 20.0 * as_f64(remarks as u64) + if remarks > 0 { 22.0 } else { 8.0 },
            edge: if headed { 24.0 } else { 0.0 },
            legend: begin + 24.0,
            left: 124.0,
            right: if has_panel { 916.0 } else { 1176.0 },
            top,
            bottom,
            panel: has_panel.then_some((948.0, 1184.0)),
            whole,
            remarks: end + 18.0,
        }
    }
}

#[cfg(test)]
mod tests;
