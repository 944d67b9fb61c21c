//! From when to when a picture reaches: what matters is in it, and a single row of another century does not press
//! everything else into a line.

use super::model::{Picture, Rows, nanos_f64};
use crate::time::Instant;

/// A stretch of event time, and how many rows lie outside of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeRange {
    /// Begin, in nanoseconds since 1970.
    pub least: i128,
    /// End, in nanoseconds since 1970: behind the begin.
    pub greatest: i128,
    /// Rows and late rows drawn at the lower edge, which are further down.
    pub below: u64,
    /// Those at the upper edge.
    pub above: u64,
}

/// Outside of the middle of the rows, a row is shown where it is up to so many times their extent away.
const REACH: i128 = 1;

impl TimeRange {
    /// The range of a picture; none if it has no time at all.
    pub(super) fn of(picture: &Picture) -> Option<Self> {
        let mut sure: Vec<i128> = picture
            .epochs
            .iter()
            .flat_map(|epoch| [epoch.before, epoch.after])
            .flatten()
            .map(Instant::nanos)
            .collect();
        let times = times(picture);
        sure.extend(middle(&times));
        let (low, high) = (*sure.iter().min()?, *sure.iter().max()?);
        let reach = high.saturating_sub(low).saturating_mul(REACH);
        let (lowest, highest) = (low.saturating_sub(reach), high.saturating_add(reach));
        let seen = |time: &&i128| (lowest..=highest).contains(*time);
        let least = times
            .iter()
            .filter(seen)
            .min()
            .map_or(low, |at| low.min(*at));
        let greatest = times
            .iter()
            .filter(seen)
            .max()
            .map_or(high, |at| high.max(*at));
        let count = |outside: &dyn Fn(i128) -> bool| {
            times.iter().filter(|time| outside(**time)).count() as u64
        };
        let (below, above) = (count(&|at| at < least), count(&|at| at > greatest));
        // A single moment gets some room on both sides.
        let room = (greatest.saturating_sub(least) / 40).max(1);
        Some(Self {
            least: least.saturating_sub(room),
            greatest: greatest.saturating_add(room),
            below,
            above,
        })
    }

    /// Where an instant is, from 0 at the begin to 1 at the end; outside of them at the edge.
    pub(super) fn place(&self, at: Instant) -> f64 {
        let extent = nanos_f64(self.greatest.saturating_sub(self.least)).max(1.0);
        (nanos_f64(at.nanos().saturating_sub(self.least)) / extent).clamp(0.0, 1.0)
    }

    /// Whether an instant is inside.
    pub(super) fn contains(&self, at: Instant) -> bool {
        (self.least..=self.greatest).contains(&at.nanos())
    }
}

/// Event times that are drawn, sorted.
fn times(picture: &Picture) -> Vec<i128> {
    let late = picture.late.marks.iter().map(|mark| mark.point.time);
    let mut times: Vec<i128> = match &picture.rows {
        Rows::Sampled { points, .. } => {
            let points = points.iter().map(|point| point.time);
            points.chain(late).map(Instant::nanos).collect()
        }
        Rows::Bands { .. } => {
            let bands = picture.epochs.iter().filter_map(|epoch| epoch.times);
            bands.flatten().chain(late).map(Instant::nanos).collect()
        }
    };
    times.sort_unstable();
    times
}

/// The times that 49 of 50 reach at both ends: all of few.
fn middle(sorted: &[i128]) -> Vec<i128> {
    let cut = sorted.len() / 50;
    let inside = sorted.get(cut..sorted.len().saturating_sub(cut));
    inside.unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::model::Point;
    use super::super::samples::{epoch, hours};
    use super::*;

    fn picture(times: impl IntoIterator<Item = i128>) -> Picture {
        let points = times.into_iter().map(|hour| Point {
            at: 0.5,
            time: hours(hour),
        });
        Picture {
            rows: Rows::Sampled {
                every: 1,
                points: points.collect(),
            },
            ..Picture::default()
        }
    }

    #[test]
    fn a_row_of_another_century_is_at_the_edge() {
        let range = TimeRange::of(&picture((0..100).chain([1_000_000, -1_000_000]))).unwrap();
        assert_eq!((range.below, range.above), (1, 1));
        assert!(range.place(hours(0)) < 0.1 && range.place(hours(99)) > 0.9);
        assert_eq!(range.place(hours(1_000_000)), 1.0);
        assert_eq!(range.place(hours(-1_000_000)), 0.0);
    }

    #[test]
    fn few_rows_are_all_inside() {
        let range = TimeRange::of(&picture([0, 1, 500])).unwrap();
        assert_eq!((range.below, range.above), (0, 0));
        assert!(range.contains(hours(0)) && range.contains(hours(500)));
    }

    #[test]
    fn a_watermark_is_always_inside() {
        let mut picture = picture([0, 1, 2]);
        picture.epochs = vec![epoch(0, None, Some(-400))];
        let range = TimeRange::of(&picture).unwrap();
        assert!(range.contains(hours(-400)));
    }

    #[test]
    fn one_moment_has_room_and_nothing_has_no_range() {
        let range = TimeRange::of(&picture([7])).unwrap();
        assert!((range.place(hours(7)) - 0.5).abs() < 0.01);
        assert_eq!(TimeRange::of(&Picture::default()), None);
    }

    #[test]
    fn the_ends_of_the_calendar_do_not_overflow() {
        let far = [i128::MIN, 0, i128::MAX].map(Instant::from_nanos);
        let mut picture = picture([]);
        picture.rows = Rows::Sampled {
            every: 1,
            points: far.map(|time| Point { at: 0.0, time }).to_vec(),
        };
        let range = TimeRange::of(&picture).unwrap();
        assert!(far.iter().all(|at| (0.0..=1.0).contains(&range.place(*at))));
    }
}
