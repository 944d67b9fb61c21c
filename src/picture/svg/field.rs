//! The field of a picture: windows, rows, the watermark, late rows, and the axes.

use super::super::axis::{epoch_marks, moment, stretch, time_marks};
use super::super::model::{Picture, Rows, WindowMark, as_f64};
use super::super::range::TimeRange;
use super::super::words::{counted, fate};
use super::Layout;
use super::draw::{Canvas, Place, Side};
use super::style::Role;
use crate::time::Instant;

/// The field, and how event times and arrivals become places in it.
pub(super) struct Field<'a> {
    picture: &'a Picture,
    /// From when to when it reaches.
    pub range: &'a TimeRange,
    /// Number of the first epoch and the one behind the last.
    epochs: (u64, u64),
    layout: &'a Layout,
}

impl<'a> Field<'a> {
    pub(super) fn new(
        picture: &'a Picture,
        range: &'a TimeRange,
        epochs: (u64, u64),
        layout: &'a Layout,
    ) -> Self {
        Self {
            picture,
            range,
            epochs,
            layout,
        }
    }

    /// Place of an arrival, from the left.
    fn x(&self, at: f64) -> f64 {
        let (first, end) = (as_f64(self.epochs.0), as_f64(self.epochs.1));
        let share = ((at - first) / (end - first).max(1.0)).clamp(0.0, 1.0);
        self.layout.left + share * (self.layout.right - self.layout.left)
    }

    /// Place of an event time, from the top.
    pub(super) fn y(&self, at: Instant) -> f64 {
        let share = self.range.place(at);
        self.layout.bottom - share * (self.layout.bottom - self.layout.top)
    }

    /// Whether a stretch of event time is inside, at least in part.
    pub(super) fn shows(&self, begin: Instant, end: Instant) -> bool {
        end.nanos() > self.range.least && begin.nanos() < self.range.greatest
    }

    pub(super) fn draw(&self, canvas: &mut Canvas) {
        self.axes(canvas);
        self.past(canvas);
        self.windows(canvas);
        self.rows(canvas);
        let stairs = self.stairs();
        if stairs.len() > 1 {
            canvas.line(&stairs, 2.0, Role::Watermark);
        }
        if let Some(watermark) = self.picture.watermark() {
            // An arrow at the edge points to where it is after the last epoch.
            let (x, y) = (self.layout.right, self.y(watermark));
            let arrow = [(x + 10.0, y - 5.0), (x + 3.0, y), (x + 10.0, y + 5.0)];
            canvas.line(&arrow, 2.0, Role::Watermark);
        }
        let late = &self.picture.late.marks;
        for mark in late {
            let at = (self.x(mark.point.at), self.y(mark.point.time));
            canvas.diamond(at, late.len(), Role::Late, Some(fate(mark)));
        }
    }

    fn axes(&self, canvas: &mut Canvas) {
        let layout = self.layout;
        let (left, right, bottom) = (layout.left, layout.right, layout.bottom);
        let title = if self.picture.zoned {
            "event time, UTC"
        } else {
            "event time"
        };
        canvas.text(
            title,
            (left - 10.0, layout.top - 18.0),
            Side::Left,
            13.0,
            Role::Soft,
        );
        for (instant, label) in time_marks(self.range, 12) {
            let y = self.y(instant);
            canvas.line(&[(left, y), (right, y)], 1.0, Role::Grid);
            canvas.line(&[(left - 5.0, y), (left, y)], 1.0, Role::Axis);
            canvas.text(&label, (left - 10.0, y), Side::Left, 13.0, Role::Soft);
        }
        let (first, end) = self.epochs;
        for epoch in epoch_marks(first, end, 10) {
            let x = self.x(as_f64(epoch));
            canvas.line(&[(x, bottom), (x, bottom + 5.0)], 1.0, Role::Axis);
            let text = epoch.to_string();
            canvas.text(&text, (x, bottom + 17.0), Side::Both, 13.0, Role::Soft);
        }
        let middle = (left + right) / 2.0;
        canvas.text(
            "arrival, in epochs",
            (middle, bottom + 38.0),
            Side::Both,
            13.0,
            Role::Soft,
        );
        let corners = [(left, layout.top), (left, bottom), (right, bottom)];
        canvas.line(&corners, 1.0, Role::Axis);
    }

    /// Corners of the staircase; those that the eye cannot tell apart are one.
    fn stairs(&self) -> Vec<Place> {
        let corners = self.picture.staircase();
        let mut places: Vec<Place> = Vec::new();
        for (at, watermark) in corners {
            let place = (self.x(at), self.y(watermark));
            let same =
                |last: &Place| (last.0 - place.0).abs() < 0.3 && (last.1 - place.1).abs() < 0.3;
            if !places.last().is_some_and(same) {
                places.push(place);
            }
        }
        places
    }

    /// What is before the watermark.
    fn past(&self, canvas: &mut Canvas) {
        let mut corners = self.stairs();
        let (Some(first), Some(last)) = (corners.first().copied(), corners.last().copied()) else {
            return;
        };
        corners.push((last.0, self.layout.bottom));
        corners.push((first.0, self.layout.bottom));
        canvas.field(corners, Role::Past);
    }

    fn windows(&self, canvas: &mut Canvas) {
        for window in &self.picture.windows {
            if !self.shows(window.begin, window.end) || window.rows == 0 {
                continue;
            }
            let (role, right) = match window.to {
                Some(to) => (Role::Closed, self.x(to)),
                None => (Role::Open, self.layout.right),
            };
            let (top, bottom) = self.between(window.begin, window.end);
            let title = Some(told(window));
            canvas.titled_rect((self.x(window.from), top), (right, bottom), role, title);
        }
    }

    /// Upper and lower edge of a stretch of event time, a little apart from the ones beside it.
    pub(super) fn between(&self, begin: Instant, end: Instant) -> (f64, f64) {
        let (top, bottom) = (self.y(end), self.y(begin));
        let gap = if bottom - top > 3.0 { 0.5 } else { 0.0 };
        (top + gap, bottom - gap)
    }

    fn rows(&self, canvas: &mut Canvas) {
        match &self.picture.rows {
            Rows::Sampled { points, .. } => {
                for point in points {
                    canvas.dot((self.x(point.at), self.y(point.time)), Role::Row);
                }
            }
            Rows::Bands { .. } => {
                for epoch in &self.picture.epochs {
                    let Some([least, mean, greatest]) = epoch.times else {
                        continue;
                    };
                    let from = self.x(as_f64(epoch.number));
                    let to = self.x(as_f64(epoch.number.saturating_add(1)));
                    let title = format!(
                        "epoch {}: {}, event times from {} to {}",
                        epoch.number,
                        counted(epoch.rows, "row"),
                        moment(least),
                        moment(greatest)
                    );
                    let corners = ((from, self.y(greatest)), (to, self.y(least)));
                    canvas.titled_rect(corners.0, corners.1, Role::Band, Some(title));
                    let y = self.y(mean);
                    canvas.line(&[(from, y), (to, y)], 1.5, Role::Mean);
                }
            }
        }
    }
}

/// What a window tells.
pub(super) fn told(window: &WindowMark) -> String {
    let mut text = format!(
        "window {}: {}",
        stretch(window.begin, window.end),
        counted(window.rows, "row")
    );
    if window.late > 0 {
        text.push_str(&format!(" and {}", counted(window.late, "late row")));
    }
    match window.to {
        None => text.push_str(", open"),
        Some(to) => text.push_str(&format!(
            ", closed at the end of epoch {}",
            (to - 1.0).max(0.0)
        )),
    }
    text
}
