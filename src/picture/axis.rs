//! Where an axis has marks, and what is written beside them.

use chrono::{DateTime, Datelike, NaiveDate};

use super::range::TimeRange;
use crate::time::Instant;

const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

/// How far marks are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// So many nanoseconds, counted from 1970.
    Nanos(i128),
    /// So many months, counted from January of the year 0.
    Months(i32),
}

/// Steps that a clock or a calendar has names for, shortest first, with their lengths.
const STEPS: [(Step, i128); 31] = [
    (Step::Nanos(SECOND), SECOND),
    (Step::Nanos(2 * SECOND), 2 * SECOND),
    (Step::Nanos(5 * SECOND), 5 * SECOND),
    (Step::Nanos(10 * SECOND), 10 * SECOND),
    (Step::Nanos(30 * SECOND), 30 * SECOND),
    (Step::Nanos(MINUTE), MINUTE),
    (Step::Nanos(2 * MINUTE), 2 * MINUTE),
    (Step::Nanos(5 * MINUTE), 5 * MINUTE),
    (Step::Nanos(10 * MINUTE), 10 * MINUTE),
    (Step::Nanos(30 * MINUTE), 30 * MINUTE),
    (Step::Nanos(HOUR), HOUR),
    (Step::Nanos(2 * HOUR), 2 * HOUR),
    (Step::Nanos(3 * HOUR), 3 * HOUR),
    (Step::Nanos(6 * HOUR), 6 * HOUR),
    (Step::Nanos(12 * HOUR), 12 * HOUR),
    (Step::Nanos(DAY), DAY),
    (Step::Nanos(2 * DAY), 2 * DAY),
    (Step::Nanos(7 * DAY), 7 * DAY),
    (Step::Nanos(14 * DAY), 14 * DAY),
    (Step::Months(1), 30 * DAY),
    (Step::Months(3), 91 * DAY),
    (Step::Months(6), 182 * DAY),
    (Step::Months(12), 365 * DAY),
    (Step::Months(24), 730 * DAY),
    (Step::Months(60), 1826 * DAY),
    (Step::Months(120), 3652 * DAY),
    (Step::Months(240), 7305 * DAY),
    (Step::Months(600), 18262 * DAY),
    (Step::Months(1200), 36524 * DAY),
    (Step::Months(6000), 182_621 * DAY),
    (Step::Months(12000), 365_242 * DAY),
];

/// Marks of an axis of event time: instants, earliest first, and their texts.
pub(super) fn time_marks(range: &TimeRange, most: usize) -> Vec<(Instant, String)> {
    let extent = range.greatest.saturating_sub(range.least);
    let step = step(extent, most.max(1));
    instants(range, step)
        .into_iter()
        .take(most.saturating_mul(2))
        .map(|at| (at, label(at, step)))
        .collect()
}

/// The shortest step of which so many at most are in an extent.
fn step(extent: i128, most: usize) -> Step {
    let least = extent / i128::try_from(most).unwrap_or(1);
    if least < SECOND {
        return Step::Nanos(round(least));
    }
    let named = STEPS.iter().find(|(_, length)| *length >= least);
    // Beyond the calendar it is the number of seconds that is written.
    named.map_or(Step::Nanos(round(least)), |(step, _)| *step)
}

/// The least of 1, 2, 5, 10, 20, 50 … that is not less.
fn round(least: i128) -> i128 {
    let mut power: i128 = 1;
    while power.saturating_mul(10) <= least {
        power = power.saturating_mul(10);
    }
    let times = [1, 2, 5, 10].map(|times| power.saturating_mul(times));
    times
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(i128::MAX)
}

fn instants(range: &TimeRange, step: Step) -> Vec<Instant> {
    match step {
        Step::Nanos(nanos) => {
            let first = range.least.div_euclid(nanos).saturating_add(1);
            let last = range.greatest.div_euclid(nanos);
            let ends = (first..=last).take(200);
            ends.map(|at| Instant::from_nanos(at.saturating_mul(nanos)))
                .collect()
        }
        Step::Months(months) => {
            let begin = calendar(Instant::from_nanos(range.least));
            let Some(begin) = begin else {
                return Vec::new();
            };
            let month = begin
                .year()
                .saturating_mul(12)
                .saturating_add(begin.month0().cast_signed());
            let first = month.div_euclid(months).saturating_mul(months);
            (0..200)
                .map_while(|at| month_begin(first.checked_add(months.checked_mul(at)?)?))
                .skip_while(|at| at.nanos() < range.least)
                .take_while(|at| at.nanos() <= range.greatest)
                .collect()
        }
    }
}

/// The begin of a month, counted from January of the year 0.
fn month_begin(month: i32) -> Option<Instant> {
    let number = month.rem_euclid(12).cast_unsigned().checked_add(1)?;
    let date = NaiveDate::from_ymd_opt(month.div_euclid(12), number, 1)?;
    let seconds = date.and_hms_opt(0, 0, 0)?.and_utc().timestamp();
    Some(Instant::from_nanos(
        i128::from(seconds).saturating_mul(SECOND),
    ))
}

/// What a calendar says of an instant, if one reaches so far.
fn calendar(at: Instant) -> Option<DateTime<chrono::Utc>> {
    let seconds = i64::try_from(at.nanos().div_euclid(SECOND)).ok()?;
    let fraction = u32::try_from(at.nanos().rem_euclid(SECOND)).ok()?;
    DateTime::from_timestamp(seconds, fraction)
}

fn label(at: Instant, step: Step) -> String {
    let (format, places) = match step {
        Step::Months(12..) => ("%Y", 0),
        Step::Months(_) => ("%Y-%m", 0),
        Step::Nanos(nanos) if nanos >= DAY => ("%Y-%m-%d", 0),
        Step::Nanos(nanos) if nanos >= MINUTE => ("%m-%d %H:%M", 0),
        Step::Nanos(nanos) if nanos >= SECOND => ("%H:%M:%S", 0),
        Step::Nanos(nanos) => ("%H:%M:%S", fraction(nanos)),
    };
    let Some(time) = calendar(at) else {
        return seconds_since_1970(at);
    };
    let mut text = time.format(format).to_string();
    if places > 0 {
        let digits = format!("{:09}", time.timestamp_subsec_nanos());
        text.push('.');
        text.extend(digits.chars().take(places));
    }
    text
}

/// Decimal places of a second that a step needs: three, six or nine.
fn fraction(nanos: i128) -> usize {
    match nanos {
        _ if nanos % 1_000_000 == 0 => 3,
        _ if nanos % 1_000 == 0 => 6,
        _ => 9,
    }
}

fn seconds_since_1970(at: Instant) -> String {
    format!("{} s", at.nanos().div_euclid(SECOND))
}

/// A time as it stands in a sentence: `2013-01-31 09:00`, with what is behind the minute where there is something.
pub(super) fn moment(at: Instant) -> String {
    match calendar(at) {
        None => seconds_since_1970(at),
        Some(time) => {
            let format = match (at.nanos().rem_euclid(MINUTE), at.nanos().rem_euclid(SECOND)) {
                (0, _) => "%Y-%m-%d %H:%M",
                (_, 0) => "%Y-%m-%d %H:%M:%S",
                _ => "%Y-%m-%d %H:%M:%S%.f",
            };
            time.format(format).to_string()
        }
    }
}

/// The second that a time is in: `2013-01-31 09:00:00`.
pub(super) fn second(at: Instant) -> String {
    match calendar(at) {
        None => seconds_since_1970(at),
        Some(time) => time.format("%Y-%m-%d %H:%M:%S").to_string(),
    }
}

/// A stretch of time in a sentence: the date of its end is left out where it is that of its begin.
pub(super) fn stretch(begin: Instant, end: Instant) -> String {
    let (from, to) = (moment(begin), moment(end));
    let day = |at: Instant| at.nanos().div_euclid(DAY);
    let midnight = end.nanos().rem_euclid(DAY) == 0 && day(end) == day(begin).saturating_add(1);
    match to.split_once(' ') {
        _ if calendar(end).is_none() || calendar(begin).is_none() => format!("{from} – {to}"),
        _ if midnight => format!("{from}–24:00"),
        Some((_, time)) if day(begin) == day(end) => format!("{from}–{time}"),
        _ => format!("{from} – {to}"),
    }
}

/// Marks of an axis of epochs, at round numbers; from `first` to before `end`.
pub(super) fn epoch_marks(first: u64, end: u64, most: usize) -> Vec<u64> {
    let count = end.saturating_sub(first).max(1);
    let least = count.div_ceil(most.max(1) as u64);
    let step = u64::try_from(round(i128::from(least)))
        .unwrap_or(u64::MAX)
        .max(1);
    let mut at = first.div_ceil(step).saturating_mul(step);
    let mut marks = Vec::new();
    while at < end && marks.len() <= most {
        marks.push(at);
        let Some(next) = at.checked_add(step) else {
            break;
        };
        at = next;
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(from: &str, to: &str, most: usize) -> Vec<String> {
        let nanos = |text: &str| {
            let time: chrono::NaiveDateTime = text.parse().unwrap();
            let time = time.and_utc();
            i128::from(time.timestamp()) * SECOND + i128::from(time.timestamp_subsec_nanos())
        };
        let range = TimeRange {
            least: nanos(from),
            greatest: nanos(to),
            below: 0,
            above: 0,
        };
        time_marks(&range, most)
            .into_iter()
            .map(|(_, text)| text)
            .collect()
    }

    #[test]
    fn marks_are_where_a_clock_has_names() {
        assert_eq!(
            marks("2013-01-30T11:07:00", "2013-01-31T17:14:00", 5),
            ["01-30 12:00", "01-31 00:00", "01-31 12:00"]
        );
        assert_eq!(
            marks("2026-10-01T09:05:00", "2026-10-01T12:40:00", 8),
            [
                "10-01 09:30",
                "10-01 10:00",
                "10-01 10:30",
                "10-01 11:00",
                "10-01 11:30",
                "10-01 12:00",
                "10-01 12:30"
            ]
        );
        assert_eq!(
            marks("2026-10-01T09:05:00.000", "2026-10-01T09:05:00.900", 4),
            ["09:05:00.500"]
        );
        assert_eq!(
            marks(
                "2026-10-01T09:05:00.000001",
                "2026-10-01T09:05:00.000003",
                4
            )
            .first()
            .unwrap(),
            "09:05:00.000001500"
        );
    }

    #[test]
    fn long_times_have_marks_of_the_calendar() {
        assert_eq!(
            marks("2012-11-20T00:00:00", "2013-02-20T00:00:00", 4),
            ["2012-12", "2013-01", "2013-02"]
        );
        assert_eq!(
            marks("1900-01-01T00:00:00", "2262-04-11T00:00:00", 8),
            [
                "1900", "1950", "2000", "2050", "2100", "2150", "2200", "2250"
            ]
        );
        assert_eq!(
            marks("-0044-03-15T00:00:00", "0476-09-04T00:00:00", 3),
            ["0000"]
        );
    }

    #[test]
    fn beyond_the_calendar_there_are_seconds() {
        let range = TimeRange {
            least: i128::MIN,
            greatest: i128::MAX,
            below: 0,
            above: 0,
        };
        let marks = time_marks(&range, 6);
        assert!(!marks.is_empty() && marks.len() <= 12);
        assert!(moment(Instant::from_nanos(i128::MAX)).ends_with(" s"));
    }

    #[test]
    fn marks_never_come_in_crowds() {
        for most in 1..12 {
            for power in 0..38 {
                let range = TimeRange {
                    least: -(10_i128.pow(power)),
                    greatest: 10_i128.pow(power) + 3,
                    below: 0,
                    above: 0,
                };
                assert!(time_marks(&range, most).len() <= 2 * most, "{most} {power}");
            }
        }
    }

    #[test]
    fn a_window_is_written_as_one_would_say_it() {
        let at = |hour: i128| Instant::from_nanos(hour * HOUR);
        assert_eq!(stretch(at(9), at(10)), "1970-01-01 09:00–10:00");
        assert_eq!(stretch(at(23), at(24)), "1970-01-01 23:00–24:00");
        assert_eq!(
            stretch(at(23), at(25)),
            "1970-01-01 23:00 – 1970-01-02 01:00"
        );
        assert_eq!(
            moment(Instant::from_nanos(1_500_000_000)),
            "1970-01-01 00:00:01.500"
        );
    }

    #[test]
    fn epochs_are_marked_at_round_numbers() {
        assert_eq!(epoch_marks(632, 680, 5), [640, 650, 660, 670]);
        assert_eq!(epoch_marks(0, 3, 8), [0, 1, 2]);
        assert_eq!(epoch_marks(0, 0, 8), Vec::<u64>::new());
        assert_eq!(epoch_marks(u64::MAX - 1, u64::MAX, 3), [u64::MAX - 1]);
        assert!(epoch_marks(0, u64::MAX, 4).len() <= 5);
    }
}
