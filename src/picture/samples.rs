//! Pictures for tests.

use super::model::{
    EpochMark, Fill, LateMark, LateRows, OpenWindows, Picture, Point, Rows, WindowMark,
};
use crate::time::{Instant, Span};

const HOUR: i128 = 3_600_000_000_000;

/// So many hours after the begin of 1970.
pub(crate) fn hours(count: i128) -> Instant {
    Instant::from_nanos(count * HOUR)
}

/// An epoch of ten rows between two watermarks in hours.
pub(crate) fn epoch(number: u64, before: Option<i128>, after: Option<i128>) -> EpochMark {
    EpochMark {
        number,
        rows: 10,
        late: 0,
        before: before.map(hours),
        after: after.map(hours),
        times: after.map(|after| [after - 2, after, after + 2].map(hours)),
    }
}

/// A row of this hour that came two hours too late.
pub(crate) fn late_at(at: f64, hour: i128) -> LateMark {
    LateMark {
        point: Point {
            at,
            time: Instant::from_nanos(hour * HOUR + HOUR / 2),
        },
        epoch: at as u64,
        watermark: hours(hour + 3),
        window: Some((hours(hour), hours(hour + 1))),
        by: Span::from_nanos(2 * HOUR),
    }
}

/// So many epochs of an hour each, two hours of delay, one row in ten late.
pub(crate) fn steady(epochs: u64) -> Picture {
    let of = |number: u64| i128::from(number);
    let marks = (0..epochs).map(|number| EpochMark {
        late: 1,
        ..epoch(
            number,
            (number > 0).then(|| of(number) - 1),
            Some(of(number)),
        )
    });
    let points = (0..epochs * 10).map(|row| Point {
        at: row as f64 / 10.0 + 0.05,
        time: Instant::from_nanos(
            (i128::from(row) * HOUR) / 10 + HOUR + i128::from(row * 7919 % 60) * HOUR / 60,
        ),
    });
    let late = (1..epochs).map(|number| late_at(number as f64 + 0.5, of(number) - 4));
    let marks: Vec<EpochMark> = marks.collect();
    let late: Vec<LateMark> = late.collect();
    let windows = (0..epochs + 2).map(|number| WindowMark {
        begin: hours(of(number)),
        end: hours(of(number) + 1),
        from: (number as f64 - 2.0).max(0.0),
        to: (number + 2 <= epochs).then_some(number as f64 + 2.0),
        rows: 9,
        late: 1,
    });
    let fills = (epochs.saturating_sub(1)..epochs + 2).map(|number| Fill {
        begin: hours(of(number)),
        end: hours(of(number) + 1),
        rows: 3 + number % 7,
    });
    let fills: Vec<Fill> = fills.collect();
    Picture {
        name: "steady".to_owned(),
        rule: "window 1 hour, delay 2 hours".to_owned(),
        overview: (0, marks.iter().map(|mark| mark.late).collect()),
        epochs: marks,
        rows: Rows::Sampled {
            every: 1,
            points: points.collect(),
        },
        late: LateRows {
            counted: epochs,
            found: epochs,
            marks: late,
            by: Some(Span::from_nanos(2 * HOUR)),
        },
        windows: windows.collect(),
        open: OpenWindows {
            windows: 3,
            rows: fills.iter().map(|fill| fill.rows).sum(),
            fills,
        },
        ..Picture::default()
    }
}
