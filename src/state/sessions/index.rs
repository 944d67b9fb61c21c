//! Which rows of a partition's runs are in which open session, and which session closes next.
//!
//! ```text
//! key's number     its sessions                   their rows
//!            0  →  [10, 40) → [70, 95)            [10, 40): 0 → 2        [70, 95): 5
//!            1  →  [20, 50)                       [20, 50): 1 → 3 → 4
//! ```
//!
//! A row joins the sessions of its key that it touches, which then are one. What an epoch costs follows its rows and
//! the sessions that close in it, not those that are open.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Result, exec_err};

use super::super::keys::{KeyNumbers, with_one_zero};
use super::{bound, key_columns};
use crate::time::Closed;

/// The place of no session and of no row.
const NONE: u32 = u32::MAX;

/// Of so many sessions one is taken from the heap by itself.
const MANY: usize = 32;

/// A session, or a place that is free.
#[derive(Debug, Clone, Copy)]
struct Session {
    start: i64,
    end: i64,
    key: u32,
    /// Of its key.
    next: u32,
    /// Its rows; without one the place is free once the heap no longer names it.
    first: u32,
    last: u32,
}

/// A row of a session, with the session's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InSession {
    /// The row.
    pub row: u32,
    /// Begin of the session, inclusive.
    pub start: i64,
    /// Its end, exclusive.
    pub end: i64,
}

/// The open sessions of rows, which are numbered as they are added.
#[derive(Debug)]
pub(super) struct SessionIndex {
    keys: KeyNumbers,
    /// The first session of each key.
    of_key: Vec<u32>,
    sessions: Vec<Session>,
    free: Vec<u32>,
    /// The next row of the session of each row.
    next_row: Vec<u32>,
    /// Every session that is no free place, once. Its end may be a later one by now.
    ends: BinaryHeap<Reverse<(i64, u32)>>,
    open: usize,
}

impl SessionIndex {
    /// Of no rows, with keys as those of a run.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(super) fn like(run: &RecordBatch, keys: usize) -> Result<Self> {
        Ok(Self {
            keys: KeyNumbers::of(key_columns(run, keys))?,
            of_key: Vec::new(),
            sessions: Vec::new(),
            free: Vec::new(),
            next_row: Vec::new(),
            ends: BinaryHeap::new(),
            open: 0,
        })
    }

    /// Puts the rows of a run `(start, end, keys …)` into sessions, but those that are `gone`: they have a number alone.
    ///
    /// # Errors
    /// - it is no such run
    /// - more than four billion rows
    pub(super) fn add(&mut self, run: &RecordBatch, keys: usize, gone: &[bool]) -> Result<()> {
        let first = self.next_row.len();
        let rows = run.num_rows();
        if first + rows >= NONE as usize {
            return exec_err!("a partition has more than {NONE} rows of open sessions");
        }
        let (starts, ends) = (bound(run, 0)?.values(), bound(run, 1)?.values());
        let mut numbers = Vec::with_capacity(rows);
        let keys = with_one_zero(key_columns(run, keys));
        self.keys.number(&keys, rows, &mut numbers)?;
        self.of_key.resize(self.keys.count(), NONE);
        self.next_row.resize(first + rows, NONE);
        let stretches = starts.iter().zip(ends).zip(numbers);
        for (at, ((start, end), key)) in stretches.enumerate() {
            if !gone.get(at).is_some_and(|gone| *gone) {
                // Rows and keys have been counted above.
                self.join(key as u32, (*start, *end), (first + at) as u32);
            }
        }
        Ok(())
    }

    /// Puts a row into the sessions of its key that its stretch touches, or into a new one.
    fn join(&mut self, key: u32, (start, end): (i64, i64), row: u32) {
        let (mut at, mut before, mut joined) = (self.of_key[key as usize], NONE, NONE);
        while at != NONE {
            let session = self.sessions[at as usize];
            let touches = session.start <= end && start <= session.end;
            match (touches, joined) {
                (false, _) => before = at,
                (true, NONE) => {
                    self.extend(at, (start, end), (row, row));
                    (before, joined) = (at, at);
                }
                (true, joined) => {
                    // It joins two: the other one's rows go into the first.
                    let rows = (session.first, session.last);
                    self.extend(joined, (session.start, session.end), rows);
                    self.sessions[before as usize].next = session.next;
                    self.clear(at);
                }
            }
            at = session.next;
        }
        if joined == NONE {
            self.begin(key, (start, end), row);
        }
    }

    /// Adds a stretch and a chain of rows to a session.
    fn extend(&mut self, session: u32, (start, end): (i64, i64), (first, last): (u32, u32)) {
        let session = &mut self.sessions[session as usize];
        session.start = session.start.min(start);
        session.end = session.end.max(end);
        self.next_row[session.last as usize] = first;
        session.last = last;
    }

    /// Makes a session's place one that is free.
    fn clear(&mut self, place: u32) {
        let session = &mut self.sessions[place as usize];
        (session.first, session.last) = (NONE, NONE);
        self.open -= 1;
    }

    fn begin(&mut self, key: u32, (start, end): (i64, i64), row: u32) {
        let session = Session {
            start,
            end,
            key,
            next: self.of_key[key as usize],
            first: row,
            last: row,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.sessions[place as usize] = session;
                place
            }
            None => {
                self.sessions.push(session);
                // There are no more of them than rows.
                self.sessions.len() as u32 - 1
            }
        };
        self.of_key[key as usize] = place;
        self.ends.push(Reverse((end, place)));
        self.open += 1;
    }

    /// Sessions that are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// How many keys are known, those without a session too.
    pub(super) fn keys(&self) -> usize {
        self.keys.count()
    }

    /// Gives the rows the numbers that they have when some have `gone`, which are in no session.
    pub(super) fn renumber(&mut self, gone: &[bool]) {
        let mut behind = 0;
        let numbers = gone.iter().map(|gone| {
            let number = behind;
            behind += u32::from(!gone);
            number
        });
        let numbers: Vec<u32> = numbers.collect();
        let new = |row: u32| match row {
            NONE => NONE,
            row => numbers[row as usize],
        };
        let held = self.next_row.iter().zip(gone).filter(|(_, gone)| !**gone);
        self.next_row = held.map(|(next, _)| new(*next)).collect();
        for session in &mut self.sessions {
            (session.first, session.last) = (new(session.first), new(session.last));
        }
    }

    /// How many rows have a number.
    pub(super) fn rows(&self) -> usize {
        self.next_row.len()
    }

    /// Where the session ends that ends first.
    pub(super) fn first_end(&mut self) -> Option<i64> {
        self.ends_first().map(|(end, _)| end)
    }

    /// The session that ends first, named by its end as it is now.
    fn ends_first(&mut self) -> Option<(i64, u32)> {
        loop {
            let Reverse((end, place)) = *self.ends.peek()?;
            let session = self.sessions[place as usize];
            if session.first != NONE && session.end == end {
                return Some((end, place));
            }
            self.ends.pop();
            match session.first {
                NONE => self.free.push(place),
                _ => self.ends.push(Reverse((session.end, place))),
            }
        }
    }

    /// Takes the sessions out that close, and adds their rows to `rows`.
    pub(super) fn close(&mut self, closed: Closed, rows: &mut Vec<InSession>) {
        // Many are found sooner by looking at all.
        let few = self.open / MANY;
        for _ in 0..few {
            match self.ends_first() {
                Some((end, place)) if closed.contains(end) => {
                    self.ends.pop();
                    self.take(place, rows);
                }
                _ => return,
            }
        }
        let all = std::mem::take(&mut self.ends).into_vec();
        let mut stay = Vec::with_capacity(all.len());
        for Reverse((_, place)) in all {
            let session = self.sessions[place as usize];
            match session.first {
                NONE => self.free.push(place),
                _ if closed.contains(session.end) => self.take(place, rows),
                _ => stay.push(Reverse((session.end, place))),
            }
        }
        self.ends = stay.into();
    }

    /// Takes a session out that the heap does not name any more.
    fn take(&mut self, place: u32, rows: &mut Vec<InSession>) {
        let session = self.sessions[place as usize];
        self.unlink(place, session);
        rows.extend(self.rows_of(session));
        self.clear(place);
        self.free.push(place);
    }

    /// Takes a session out of those of its key.
    fn unlink(&mut self, place: u32, session: Session) {
        let (mut at, mut before) = (self.of_key[session.key as usize], NONE);
        while at != place && at != NONE {
            (before, at) = (at, self.sessions[at as usize].next);
        }
        match before {
            NONE => self.of_key[session.key as usize] = session.next,
            before => self.sessions[before as usize].next = session.next,
        }
    }

    fn rows_of(&self, session: Session) -> impl Iterator<Item = InSession> + use<'_> {
        let rows = std::iter::successors(Some(session.first), |row| {
            Some(self.next_row[*row as usize]).filter(|next| *next != NONE)
        });
        rows.map(move |row| InSession {
            row,
            start: session.start,
            end: session.end,
        })
    }

    /// All open sessions, each with its rows, those of a key beside each other.
    pub(super) fn sessions(&self) -> impl Iterator<Item = Vec<InSession>> + use<'_> {
        self.of_key.iter().flat_map(|first| {
            let of_key = std::iter::successors(Some(*first).filter(|at| *at != NONE), |at| {
                Some(self.sessions[*at as usize].next).filter(|next| *next != NONE)
            });
            let of_key = of_key.map(|at| self.sessions[at as usize]);
            let mut of_key: Vec<Session> = of_key.collect();
            of_key.sort_unstable_by_key(|session| session.start);
            of_key
                .into_iter()
                .map(|session| self.rows_of(session).collect())
        })
    }

    /// Bytes that it takes.
    pub(super) fn size(&self) -> usize {
        let numbers = self.of_key.capacity() + self.free.capacity() + self.next_row.capacity();
        self.keys.size()
            + numbers * size_of::<u32>()
            + self.sessions.capacity() * size_of::<Session>()
            + self.ends.capacity() * size_of::<Reverse<(i64, u32)>>()
    }
}
