//! When the rows of a log may go: by the time at which they arrived, and by how far their readers are.
//!
//! ```text
//!             base       passed           rows
//! arrived     |--a--|--b--|--c--|----d-----|     pieces: what one append brought
//!             <-- old ------->                   arrived more than `retain` ago
//!             <- go ->
//! ```
//!
//! Here `a` and `b` go: they are old, and every reader is behind them with its last committed epoch. `c` is old too, and
//! waits for its reader.
//!
//! - Times of arrival never fall from one piece to the next ([`Arrivals::next`]): if the clock goes back, rows are kept
//!   longer.
//! - A piece goes whole or stays; before the pieces that stay none is left out.
//! - Which rows a reader has passed is known by who can go back to no earlier row ([`Readers`]).

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tells the time of day. A test passes its own.
pub trait Clock: Debug + Send + Sync {
    /// Milliseconds since 1970-01-01T00:00:00Z. It may go back.
    fn now_ms(&self) -> i64;
}

/// The clock of this machine.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // Before 1970 all is as old as if it had arrived then.
        i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
    }
}

/// Those who read a table as a stream.
pub trait Readers: Debug + Send + Sync {
    /// Number of the first row of a table that one of them may still read; all have passed the rows before it.
    /// `u64::MAX` if nobody reads it.
    fn passed(&self, table: &str) -> u64;
}

/// When rows of a table are removed.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Resolved name of the table.
    pub table: String,
    /// A piece goes when more time than this has passed since it arrived.
    pub retain: Duration,
    /// Tells when a piece arrives, and what time it is.
    pub clock: Arc<dyn Clock>,
    /// Those who read the table.
    pub readers: Arc<dyn Readers>,
}

/// When rows arrived: numbers behind the last row of pieces, rising, and times in milliseconds, which do not fall.
/// Pieces of one time are one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arrivals(Vec<(u64, Option<i64>)>);

impl Arrivals {
    /// Pieces by the number behind the last row of each, rising, and the time at which they arrived. A piece whose
    /// time is not known is no younger than those behind it; if none is known behind it, it counts as arrived when
    /// it is first asked for.
    pub fn new(pieces: Vec<(u64, Option<i64>)>) -> Self {
        let mut known = Vec::with_capacity(pieces.len());
        let mut behind = None;
        for (end, arrived) in pieces.into_iter().rev() {
            behind = arrived.or(behind);
            known.push((end, behind));
        }
        known.reverse();
        let mut arrivals = Self::default();
        for (end, arrived) in known {
            arrivals.push(end, arrived.map(|arrived| arrivals.next(arrived)));
        }
        arrivals
    }

    /// The time of a piece that arrives now.
    pub(super) fn next(&self, now: i64) -> i64 {
        let last = self.0.iter().rev().find_map(|(_, arrived)| *arrived);
        last.map_or(now, |last| last.max(now))
    }

    /// Adds a piece that ends before the row of this number.
    pub(super) fn push(&mut self, end: u64, arrived: Option<i64>) {
        match self.0.last_mut() {
            Some((last, time)) if *time == arrived => *last = end,
            _ => self.0.push((end, arrived)),
        }
    }

    /// Number behind the last row that arrived more than so much time ago; 0 if none did.
    pub(super) fn old(&mut self, now: i64, retain: Duration) -> u64 {
        let retain = i64::try_from(retain.as_millis()).unwrap_or(i64::MAX);
        let times = self.0.iter_mut();
        let old = times
            .map(|(end, arrived)| (*end, *arrived.get_or_insert(now)))
            .take_while(|(_, arrived)| now.saturating_sub(*arrived) > retain);
        old.last().map_or(0, |(end, _)| end)
    }

    /// Number behind the last row of the last piece that ends before this row; 0 if there is none.
    pub(super) fn whole(&self, row: u64) -> u64 {
        let ends = self.0.iter().map(|(end, _)| *end);
        ends.take_while(|end| *end <= row).last().unwrap_or(0)
    }

    /// Forgets the pieces before the row of this number.
    pub(super) fn forget(&mut self, row: u64) {
        self.0.retain(|(end, _)| *end > row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETAIN: Duration = Duration::from_millis(10);

    #[test]
    fn what_is_older_goes_and_only_whole_pieces() {
        let mut arrivals = Arrivals::default();
        for (end, now) in [(3, 100), (5, 100), (9, 105), (10, 90)] {
            let arrived = arrivals.next(now);
            arrivals.push(end, Some(arrived));
        }
        // The clock went back: the last piece counts as arrived with the one before.
        assert_eq!(arrivals.0, [(5, Some(100)), (10, Some(105))]);
        assert_eq!(arrivals.old(110, RETAIN), 0);
        assert_eq!(arrivals.old(111, RETAIN), 5);
        assert_eq!(arrivals.old(i64::MIN, RETAIN), 0);
        assert_eq!(arrivals.old(116, RETAIN), 10);
        assert_eq!([4, 5, 9, 10].map(|row| arrivals.whole(row)), [0, 5, 5, 10]);
        arrivals.forget(5);
        assert_eq!(arrivals.0, [(10, Some(105))]);
    }

    #[test]
    fn a_time_that_is_not_known_is_that_of_the_next_piece_or_the_first_look() {
        let mut arrivals = Arrivals::new(vec![(1, None), (2, Some(50)), (3, None), (4, None)]);
        assert_eq!(arrivals.0, [(2, Some(50)), (4, None)]);
        assert_eq!(arrivals.old(200, RETAIN), 2);
        // Looking ends at the first piece that stays; the next look begins behind what went.
        arrivals.forget(2);
        assert_eq!(arrivals.old(200, RETAIN), 0);
        assert_eq!(arrivals.old(211, RETAIN), 4);
    }
}
