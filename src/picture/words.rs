//! Sentences and numbers that both drawings have.

use std::collections::BTreeMap;

use super::axis::{moment, stretch};
use super::model::{LateMark, Picture, Rows};
use crate::time::{Instant, Span};

/// `1,234`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `1,234 rows`.
pub(super) fn counted(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(count))
}

/// A length of time with its two greatest units: `2 h 10 min`.
pub(super) fn short(span: Span) -> String {
    const UNITS: [(i128, &str); 7] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "µs"),
        (1, "ns"),
    ];
    let mut rest = span.nanos().saturating_abs();
    let mut parts = Vec::new();
    for (nanos, name) in UNITS {
        let count = rest.div_euclid(nanos);
        if count > 0 {
            parts.push(format!("{count} {name}"));
        } else if !parts.is_empty() {
            break;
        }
        rest = rest.rem_euclid(nanos);
        if parts.len() == 2 {
            break;
        }
    }
    match parts.is_empty() {
        true => "0 s".to_owned(),
        false => parts.join(" "),
    }
}

/// What is drawn, in the words of a heading: `epochs 632–679 of 680`.
pub(super) fn epochs(picture: &Picture) -> String {
    let Some((first, end)) = picture.extent() else {
        return "no epoch".to_owned();
    };
    let last = end.saturating_sub(1);
    let (begin, kept) = &picture.overview;
    let newest = begin.saturating_add(kept.len() as u64).max(end);
    match (first == last, first == 0 && end == newest) {
        (true, true) => "its only epoch".to_owned(),
        (false, true) => format!("all {} epochs", grouped(end)),
        (true, false) => format!("epoch {first} of {newest}"),
        (false, false) => format!("epochs {first}–{last} of {newest}"),
    }
}

/// How many rows were late in the stretch, and what would have been enough.
pub(super) fn verdict(picture: &Picture) -> String {
    let late = &picture.late;
    if late.counted == 0 {
        return match picture.epochs.is_empty() {
            true => "nothing has been read".to_owned(),
            false => "no row came too late".to_owned(),
        };
    }
    let rows = counted(late.counted, "late row");
    match late.by {
        Some(by) => format!("{rows}, missed by up to {}", short(by)),
        None => rows,
    }
}

/// The windows that late rows missed, the ones that lost most first: window, rows, the greatest delay.
pub(super) fn missed(marks: &[LateMark]) -> Vec<((Instant, Instant), u64, Span)> {
    let mut windows: BTreeMap<(Instant, Instant), (u64, Span)> = BTreeMap::new();
    for mark in marks {
        if let Some(window) = mark.window {
            let (rows, by) = windows.entry(window).or_default();
            *rows += 1;
            *by = (*by).max(mark.by);
        }
    }
    let mut missed: Vec<_> = windows
        .into_iter()
        .map(|(window, (rows, by))| (window, rows, by))
        .collect();
    missed.sort_by_key(|(window, rows, _)| (std::cmp::Reverse(*rows), *window));
    missed
}

/// What a late row tells when it is pointed at.
pub(super) fn fate(mark: &LateMark) -> String {
    let row = format!(
        "event time {}, arrived in epoch {}",
        moment(mark.point.time),
        mark.epoch
    );
    match mark.window {
        Some((begin, end)) => format!(
            "{row}: its window {} was closed, the watermark was {}, {} behind its end",
            stretch(begin, end),
            moment(mark.watermark),
            short(mark.by)
        ),
        None => format!(
            "{row}: the watermark was {}, {} behind it",
            moment(mark.watermark),
            short(mark.by)
        ),
    }
}

/// What must be said beside a picture, a sentence each.
pub(super) fn remarks(picture: &Picture, below: u64, above: u64) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Rows::Bands { because } = &picture.rows {
        remarks.push(format!("Rows are not drawn: {because}."));
    }
    let late = &picture.late;
    if late.found != late.counted && matches!(picture.rows, Rows::Sampled { .. }) {
        remarks.push(format!(
            "{} counted when they arrived, {} found again in the sources.",
            counted(late.counted, "late row"),
            grouped(late.found)
        ));
    } else if (late.marks.len() as u64) < late.found {
        remarks.push(format!(
            "{} of the {} late rows are drawn, evenly chosen.",
            grouped(late.marks.len() as u64),
            grouped(late.found)
        ));
    }
    for (count, edge) in [(below, "earlier"), (above, "later")] {
        if count > 0 {
            let rows = counted(count, "row");
            remarks.push(format!("{rows} far {edge} drawn at the edge."));
        }
    }
    remarks.extend(before(picture));
    remarks.extend(picture.notes.iter().cloned());
    remarks
}

/// Where late rows are, if none is in the stretch.
fn before(picture: &Picture) -> Option<String> {
    let (first, late) = &picture.overview;
    let last = late.iter().rposition(|rows| *rows > 0)?;
    let all: u64 = late.iter().sum();
    (picture.late.counted == 0).then(|| {
        let epoch = first.saturating_add(last as u64);
        format!(
            "{} in other epochs, the last in epoch {epoch}.",
            counted(all, "late row")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{hours, late_at};
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(counted(1_234_567, "row"), "1,234,567 rows");
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(grouped(999), "999");
    }

    #[test]
    fn a_length_of_time_has_two_units() {
        let minutes = |count: i128| Span::from_nanos(count * 60_000_000_000);
        assert_eq!(short(minutes(130)), "2 h 10 min");
        assert_eq!(short(minutes(1440)), "1 d");
        assert_eq!(short(Span::from_nanos(86_400_000_000_001)), "1 d");
        assert_eq!(short(Span::ZERO), "0 s");
    }

    #[test]
    fn windows_that_lost_most_come_first() {
        let marks = [late_at(0.5, 1), late_at(1.5, 3), late_at(2.5, 3)];
        let missed = missed(&marks);
        assert_eq!(missed[0].0, (hours(3), hours(4)));
        assert_eq!((missed[0].1, missed[1].1), (2, 1));
    }

    #[test]
    fn late_rows_elsewhere_are_named() {
        let picture = Picture {
            overview: (5, vec![0, 3, 0]),
            ..Picture::default()
        };
        assert_eq!(
            remarks(&picture, 0, 0),
            ["3 late rows in other epochs, the last in epoch 6."]
        );
    }
}
