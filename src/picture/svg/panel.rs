//! Beside the field: how many rows each window holds. Below it: late rows of all epochs.

use std::collections::BTreeMap;

use super::super::axis::{epoch_marks, stretch};
use super::super::model::{Picture, as_f64};
use super::super::words::{counted, grouped};
use super::Layout;
use super::draw::{Canvas, Side};
use super::field::{Field, told};
use super::style::Role;
use crate::time::Instant;

/// A bar: a window, what it holds, what it lost, whether it is open, and what it tells.
struct Bar {
    begin: Instant,
    end: Instant,
    rows: u64,
    late: u64,
    open: bool,
    title: String,
}

/// The windows that the field shows, by begin. What an open one holds is known from its state, with the rows that came
/// before the epochs that are drawn.
fn bars(picture: &Picture, field: &Field<'_>) -> Vec<Bar> {
    let mut bars: BTreeMap<(Instant, Instant), Bar> = BTreeMap::new();
    for window in &picture.windows {
        let bar = Bar {
            begin: window.begin,
            end: window.end,
            rows: window.rows,
            late: window.late,
            open: window.to.is_none(),
            title: told(window),
        };
        bars.insert((window.begin, window.end), bar);
    }
    for fill in &picture.open.fills {
        let rows = counted(fill.rows, "row");
        let bar = Bar {
            begin: fill.begin,
            end: fill.end,
            rows: fill.rows,
            late: 0,
            open: true,
            title: format!("window {}: {rows}, open", stretch(fill.begin, fill.end)),
        };
        bars.insert((fill.begin, fill.end), bar);
    }
    let mut bars: Vec<Bar> = bars.into_values().collect();
    // Of windows that overlap each has its bar where no later one begins.
    let begins: Vec<Instant> = bars.iter().skip(1).map(|bar| bar.begin).collect();
    for (bar, next) in bars.iter_mut().zip(begins) {
        if next > bar.begin {
            bar.end = bar.end.min(next);
        }
    }
    bars.retain(|bar| field.shows(bar.begin, bar.end));
    bars
}

/// Bars of the windows, at the height of their event times.
pub(super) fn draw(picture: &Picture, field: &Field<'_>, layout: &Layout, canvas: &mut Canvas) {
    let Some((left, right)) = layout.panel else {
        return;
    };
    let bars = bars(picture, field);
    let most = bars
        .iter()
        .map(|bar| bar.rows.saturating_add(bar.late))
        .max();
    let most = most.unwrap_or(0).max(1);
    let x = |rows: u64| left + as_f64(rows) / as_f64(most) * (right - left - 8.0);
    let caption = match picture.is_part() {
        true => "rows by window, in these epochs",
        false => "rows by window",
    };
    canvas.text(
        caption,
        (left, layout.top - 18.0),
        Side::Right,
        13.0,
        Role::Soft,
    );
    let marks = epoch_marks(0, most.saturating_add(1), 4);
    for mark in &marks {
        canvas.line(
            &[(x(*mark), layout.top), (x(*mark), layout.bottom)],
            1.0,
            Role::Grid,
        );
        let text = grouped(*mark);
        canvas.text(
            &text,
            (x(*mark), layout.bottom + 17.0),
            Side::Both,
            13.0,
            Role::Soft,
        );
    }
    for bar in &bars {
        let (top, bottom) = field.between(bar.begin, bar.end);
        let role = if bar.open { Role::Open } else { Role::Bar };
        if bar.rows > 0 {
            let title = Some(bar.title.clone());
            canvas.titled_rect((left, top), (x(bar.rows), bottom), role, title);
        }
        if bar.late > 0 {
            let all = x(bar.rows.saturating_add(bar.late));
            canvas.titled_rect(
                (x(bar.rows), top),
                (all, bottom),
                Role::Lost,
                Some(bar.title.clone()),
            );
        }
    }
    canvas.line(
        &[(left, layout.top), (left, layout.bottom)],
        1.0,
        Role::Axis,
    );
}

/// Late rows of all epochs, with those that are drawn marked among them.
pub(super) fn whole(picture: &Picture, layout: &Layout, top: f64, canvas: &mut Canvas) {
    let (first, late) = &picture.overview;
    let Some((from, to)) = picture.extent() else {
        return;
    };
    let (left, right, bottom) = (layout.left, layout.right, top + 44.0);
    let count = as_f64(late.len() as u64).max(1.0);
    let x = |epoch: u64| left + as_f64(epoch.saturating_sub(*first)) / count * (right - left);
    canvas.text(
        "late rows",
        (left - 10.0, top + 14.0),
        Side::Left,
        13.0,
        Role::Soft,
    );
    canvas.text(
        "by epoch",
        (left - 10.0, top + 31.0),
        Side::Left,
        13.0,
        Role::Soft,
    );
    canvas.rect((x(from), top), (x(to), bottom), Role::Drawn);
    // An epoch narrower than a pixel and a half shares its bar with those beside it.
    let group = (1.5 * count / (right - left)).ceil().max(1.0);
    let group = (1..=late.len())
        .find(|size| as_f64(*size as u64) >= group)
        .unwrap_or(1);
    let sums: Vec<u64> = late.chunks(group).map(|chunk| chunk.iter().sum()).collect();
    let most = sums.iter().copied().max().unwrap_or(0).max(1);
    for (at, sum) in sums.iter().enumerate().filter(|(_, sum)| **sum > 0) {
        let begin = first.saturating_add((at * group) as u64);
        let end = begin.saturating_add(group as u64);
        let height = as_f64(*sum) / as_f64(most) * 42.0;
        let title = match group {
            1 => format!("epoch {begin}: {}", counted(*sum, "late row")),
            _ => format!("epochs {begin}–{}: {}", end - 1, counted(*sum, "late row")),
        };
        let corners = ((x(begin), bottom - height), (x(end).min(right), bottom));
        canvas.titled_rect(corners.0, corners.1, Role::Lost, Some(title));
    }
    canvas.line(&[(left, bottom), (right, bottom)], 1.0, Role::Axis);
    for epoch in epoch_marks(*first, first.saturating_add(late.len() as u64), 10) {
        let at = x(epoch);
        canvas.line(&[(at, bottom), (at, bottom + 4.0)], 1.0, Role::Axis);
        canvas.text(
            &epoch.to_string(),
            (at, bottom + 16.0),
            Side::Both,
            12.0,
            Role::Soft,
        );
    }
}
