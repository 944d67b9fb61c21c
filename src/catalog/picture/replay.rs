//! Reads the sources again, in order of arrival, and finds the rows of a picture in them.
//!
//! Which epoch a row arrived in is known by counting: the records say how many rows each source gave in each epoch.
//! Rows are thinned as they come, one in so many, and so are late ones where they are very many; all are counted.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use datafusion::common::{Result, exec_err};
use datafusion::execution::SessionState;

use super::judge::{Bounds, Group, Judge};
use super::rows::Reading;
use super::sessions::Sessions;
use super::tracks::Track;
use super::walk::Walk;
use crate::config::InitialOrder;
use crate::picture::{EpochMark, LateRows, Point, WindowMark};
use crate::query::{EpochProgress, home, short};
use crate::source::{AppendTable, Arrival, Limits, Position, ReadEnv, open};
use crate::time::{Instant, Unit};

/// Rows that are drawn, at most about so many.
const POINTS: u64 = 2_000;

/// Rows that are read again, at most. That is some seconds of reading.
const MOST_ROWS: u64 = 5_000_000;

/// Windows that are drawn, at most: the newest.
const MOST_WINDOWS: usize = 600;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// One in so many rows is among the points.
    pub every: u64,
    pub points: Vec<Point>,
    pub late: LateRows,
    pub windows: Vec<WindowMark>,
    pub older_windows: u64,
}

/// What is read again.
pub(super) struct Replay<'a> {
    /// Records of all epochs that are kept.
    pub history: &'a [EpochProgress],
    /// The same as they are drawn.
    pub marks: &'a [EpochMark],
    /// Places of those that are drawn.
    pub range: Range<usize>,
    pub state: &'a SessionState,
}

/// A window while rows are found: arrival of its first row, rows, late rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub from: f64,
    pub rows: u64,
    pub late: u64,
}

impl Replay<'_> {
    /// Reads the sources of some tracks.
    ///
    /// # Errors
    /// - a source cannot be read from where the epochs begin, or would take too long
    pub(super) async fn all(&self, tracks: &[Track]) -> Result<Found> {
        let shown = self.marks.get(self.range.clone()).unwrap_or_default();
        let rows: u64 = shown.iter().map(|mark| mark.rows).sum();
        let mut found = Found {
            every: rows.div_ceil(POINTS).max(1),
            ..Found::default()
        };
        if tracks.is_empty() {
            return exec_err!("the query reads no stream with a WATERMARK clause");
        }
        let mut drawn = HashSet::new();
        let mut first = true;
        for track in tracks {
            // Two operators may read one source: its rows are drawn once.
            let event = track.event.as_ref().map(ToString::to_string);
            let draws = drawn.insert((track.source.clone(), event));
            let judge = match &track.judge {
                Some(judge) => Some(Judge::new(judge, self.state)?),
                None => None,
            };
            let mut walk = Walk::new(shown, found.every, draws);
            self.read(track, judge.as_ref(), &mut walk).await?;
            found.points.append(&mut walk.points);
            walk.late.finish(&mut found.late);
            if let Some(judge) = judge.as_ref().filter(|_| first) {
                match judge.session_unit().is_some() {
                    true => sessions(judge, walk.unit, walk.sessions, shown, &mut found),
                    false => windows(judge, walk.unit, walk.windows, shown, &mut found),
                }
                first = false;
            }
        }
        found.points.sort_by(|a, b| a.at.total_cmp(&b.at));
        Ok(found)
    }

    /// Reads the source of a track.
    async fn read(&self, track: &Track, judge: Option<&Judge>, walk: &mut Walk<'_>) -> Result<()> {
        let home = home(self.state);
        let name = short(&track.source, &home);
        let counts: Vec<u64> = self
            .history
            .iter()
            .map(|epoch| rows_of(epoch, name))
            .collect();
        let before: u64 = counts.iter().take(self.range.start).sum();
        let shown = counts.get(self.range.clone()).unwrap_or_default();
        let wanted: u64 = shown.iter().sum();
        if wanted == 0 {
            return Ok(());
        }
        if self.history.first().is_some_and(|first| first.epoch > 0) {
            return exec_err!(
                "the records of the first epochs have gone, by which rows are counted"
            );
        }
        let numbered = track.provider.is::<AppendTable>();
        let skipped = if numbered { 0 } else { before };
        if skipped.saturating_add(wanted) > MOST_ROWS {
            return exec_err!("there are more than {MOST_ROWS} to read again");
        }
        let reading = Reading::new(track, judge, self.state)?;
        let env = ReadEnv::of(self.state);
        let from = numbered.then_some(Position::Rows(before));
        if track.settings.initial_order == InitialOrder::EventTime {
            return exec_err!("what was there first was read in the order of event time");
        }
        let limits = Limits::of(&track.settings, None);
        let columns = &reading.columns;
        let mut reader = open(&track.provider, columns, from, &limits, None, &env).await?;
        walk.begin(shown, judge);
        let (mut skip, mut left) = (skipped, wanted);
        while left > 0 {
            let batch = match reader.next().await? {
                Arrival::Rows(batch) | Arrival::Stretch(batch) => batch,
                Arrival::FileEnd | Arrival::StretchEnd => continue,
                Arrival::Waiting | Arrival::Ended => {
                    return exec_err!("{name} has fewer rows than were read before");
                }
            };
            let rows = batch.num_rows() as u64;
            let passed = skip.min(rows);
            skip -= passed;
            let taken = (rows - passed).min(left);
            left -= taken;
            if taken > 0 {
                let (from, length) = (as_usize(passed), as_usize(taken));
                let rows = reading.rows(&batch.slice(from, length))?;
                walk.take(&rows, judge, reading.unit)?;
            }
        }
        Ok(())
    }
}

/// Rows that a source gave in an epoch.
fn rows_of(epoch: &EpochProgress, name: &str) -> u64 {
    let given = epoch.sources.iter().filter(|source| source.name == name);
    given.map(|source| source.rows).sum()
}

/// A number of rows of a batch.
fn as_usize(rows: u64) -> usize {
    usize::try_from(rows).unwrap_or(usize::MAX)
}

/// Windows as they are drawn: each to the end of the epoch that closed it.
fn windows(
    judge: &Judge,
    unit: Unit,
    seen: BTreeMap<i64, Seen>,
    shown: &[EpochMark],
    found: &mut Found,
) {
    let more = seen.len().saturating_sub(MOST_WINDOWS);
    found.older_windows = more as u64;
    let mut bounds = Bounds::new(judge, unit);
    for (begin, seen) in seen.into_iter().skip(more) {
        let (Some((from, end)), Some(due)) = (bounds.of(begin), bounds.due(begin)) else {
            continue;
        };
        found.windows.push(mark((from, end), due, seen, shown));
    }
}

/// Sessions as they are drawn, as windows are.
fn sessions(judge: &Judge, unit: Unit, seen: Sessions, shown: &[EpochMark], found: &mut Found) {
    let (seen, left_out) = seen.finish();
    let more = seen.len().saturating_sub(MOST_WINDOWS);
    found.older_windows = left_out.saturating_add(more as u64);
    let mut bounds = Bounds::new(judge, unit);
    for session in seen.into_iter().skip(more) {
        let group = Group::Session(session.begin, session.end);
        if let Some((Some(window), due)) = bounds.window(group) {
            found.windows.push(mark(window, due, session.seen, shown));
        }
    }
}

/// A window that is closed by the watermark `due`.
fn mark(
    (begin, end): (Instant, Instant),
    due: Instant,
    seen: Seen,
    shown: &[EpochMark],
) -> WindowMark {
    let closing = shown.partition_point(|mark| mark.after.is_none_or(|after| after < due));
    WindowMark {
        begin,
        end,
        from: seen.from,
        to: shown.get(closing).map(|mark| behind(mark.number)),
        rows: seen.rows,
        late: seen.late,
    }
}

/// The end of an epoch.
#[expect(
    clippy::cast_precision_loss,
    reason = "a place in a picture is not exact to the row"
)]
fn behind(epoch: u64) -> f64 {
    epoch as f64 + 1.0
}
