//! The open sessions of a partition between epochs and while one runs.
//!
//! Rows stay in the runs that they came in until their session closes; an index tells which rows those are. What an
//! epoch did to the index cannot be taken back: when it fails, the index is made anew of the rows that were there.

use datafusion::arrow::array::{BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{filter_record_batch, interleave_record_batch};
use datafusion::common::Result;

use super::super::runs::Part;
use super::index::{InSession, SessionIndex};
use super::{Session, counts, with_sessions};
use crate::checkpoint::{rows_joined, together};
use crate::time::Closed;

/// Rows of a batch that comes out.
const BATCH_ROWS: usize = 8_192;

/// Rows that have left which are not worth moving the others for.
const FEW: usize = 8_192;

/// Rows that a session may be in before they are merged: where epochs are small, it has one of each.
const ROWS_OF_SESSION: usize = 4;

/// What an epoch did to the open sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::state) struct Settled {
    /// Rows of state that came.
    pub added: u64,
    /// Rows of state that left.
    pub removed: u64,
    /// Accepted rows that were in those.
    pub left: u64,
    /// Bytes that are held now.
    pub bytes: usize,
}

/// Runs `(start, end, keys …, states …, rows)` and their sessions.
#[derive(Debug, Default)]
pub(in crate::state) struct OpenSessions {
    /// Key columns of a run.
    keys: usize,
    /// Runs of earlier epochs, and those of the running one behind them.
    runs: Vec<Part>,
    /// How many are of earlier epochs.
    kept: usize,
    /// Of each row of those whether its session has closed.
    gone: Vec<bool>,
    /// How many have not.
    held: usize,
    /// Accepted rows in them.
    accepted: u64,
    /// Of the first runs; none where it must be made.
    index: Option<SessionIndex>,
    /// Rows whose session closes in the running epoch, once that is known.
    closing: Option<Vec<InSession>>,
}

impl OpenSessions {
    /// None, with so many key columns.
    pub(in crate::state) fn new(keys: usize) -> Self {
        Self {
            keys,
            ..Self::default()
        }
    }

    /// Those of the rows of earlier epochs.
    ///
    /// # Errors
    /// - they are no such runs
    pub(in crate::state) fn of(runs: Vec<Part>, keys: usize) -> Result<Self> {
        let mut open = Self::new(keys);
        for run in runs {
            open.held += run.batch.num_rows();
            open.accepted += sum(counts(&run.batch)?);
            open.runs.push(run);
        }
        open.gone = vec![false; open.held];
        open.kept = open.runs.len();
        Ok(open)
    }

    /// Adds rows of the running epoch.
    pub(in crate::state) fn add(&mut self, run: Part) {
        self.runs.push(run);
    }

    /// Whether it has no run.
    pub(in crate::state) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs of the running epoch.
    pub(in crate::state) fn pending(&self) -> &[Part] {
        self.runs.get(self.kept..).unwrap_or_default()
    }

    /// Rows of state of earlier epochs.
    pub(in crate::state) fn held(&self) -> usize {
        self.held
    }

    /// Accepted rows in the sessions of earlier epochs.
    pub(in crate::state) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Bytes of the runs and of what tells their sessions.
    pub(in crate::state) fn bytes(&self) -> usize {
        let runs: usize = self.runs.iter().map(|run| run.bytes).sum();
        runs + self.gone.capacity() + self.index.as_ref().map_or(0, SessionIndex::size)
    }

    /// The sessions of all rows there are.
    fn index(&mut self) -> Result<Option<&mut SessionIndex>> {
        let index = self.index.take();
        self.index = self.indexed(index, &self.runs)?;
        Ok(self.index.as_mut())
    }

    /// The sessions of the first runs, when those of some of them are known.
    fn indexed(&self, known: Option<SessionIndex>, runs: &[Part]) -> Result<Option<SessionIndex>> {
        let Some(first) = runs.first() else {
            return Ok(None);
        };
        let mut index = match known {
            Some(index) => index,
            None => SessionIndex::like(&first.batch, self.keys)?,
        };
        let mut from = 0;
        for run in runs {
            let rows = run.batch.num_rows();
            // Runs are added whole.
            if from >= index.rows() {
                let gone = self.gone.get(from..from + rows).unwrap_or_default();
                index.add(&run.batch, self.keys, gone)?;
            }
            from += rows;
        }
        Ok(Some(index))
    }

    /// Settles which sessions close in the running epoch, whose rows are all there: once.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn settle(&mut self, closed: Closed) -> Result<()> {
        if self.closing.is_some() {
            return Ok(());
        }
        self.tidy()?;
        let mut rows = Vec::new();
        if let Some(index) = self.index()? {
            index.close(closed, &mut rows);
        }
        rows.sort_unstable_by_key(|in_session| in_session.row);
        self.closing = Some(rows);
        Ok(())
    }

    /// How many rows the sessions have that close in the running epoch, whose rows are all there.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn count_closing(&mut self, closed: Closed) -> Result<usize> {
        self.settle(closed)?;
        Ok(self.closing.as_ref().map_or(0, Vec::len))
    }

    /// The rows of the sessions that close in the running epoch, whose rows are all there, with the sessions' bounds.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn closing(&mut self, closed: Closed) -> Result<Vec<RecordBatch>> {
        self.settle(closed)?;
        self.rows(self.closing.as_deref().unwrap_or_default())
    }

    /// All rows, those of the running epoch too, with the bounds of their sessions.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn everything(&mut self) -> Result<Vec<RecordBatch>> {
        let Some(index) = self.index()? else {
            return Ok(Vec::new());
        };
        let mut rows: Vec<InSession> = index.sessions().flatten().collect();
        rows.sort_unstable_by_key(|in_session| in_session.row);
        self.rows(&rows)
    }

    /// Rows, in order, with the bounds of their sessions.
    fn rows(&self, rows: &[InSession]) -> Result<Vec<RecordBatch>> {
        let batches = rows.chunks(BATCH_ROWS).map(|chunk| {
            let numbers = chunk.iter().map(|in_session| in_session.row as usize);
            let starts = chunk.iter().map(|in_session| in_session.start);
            let ends = chunk.iter().map(|in_session| in_session.end);
            with_sessions(
                &self.gathered(numbers)?,
                Int64Array::from_iter_values(starts),
                Int64Array::from_iter_values(ends),
            )
        });
        batches.collect()
    }

    /// The run of each of the rows with these numbers, and the row in it.
    fn places(&self, numbers: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
        let mut behind = 0;
        let begins = self.runs.iter().map(|run| {
            let begin = behind;
            behind += run.batch.num_rows();
            begin
        });
        let begins: Vec<usize> = begins.collect();
        let places = numbers.map(|number| {
            let run = begins.partition_point(|begin| *begin <= number) - 1;
            (run, number - begins[run])
        });
        places.collect()
    }

    /// The rows with these numbers, as they are in the runs.
    fn gathered(&self, numbers: impl Iterator<Item = usize>) -> Result<RecordBatch> {
        let places = self.places(numbers);
        let runs: Vec<&RecordBatch> = self.runs.iter().map(|run| &run.batch).collect();
        Ok(interleave_record_batch(&runs, &places)?)
    }

    /// Ends the epoch: sessions that close then leave, also those that nobody has asked for.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by; then nothing is changed
    pub(in crate::state) fn commit(&mut self, closed: Closed) -> Result<Settled> {
        self.settle(closed)?;
        let counts = self.runs.iter().map(|run| counts(&run.batch));
        let counts: Vec<&Int64Array> = counts.collect::<Result<_>>()?;
        let (mut added, mut came) = (0, 0);
        for counts in &counts[self.kept..] {
            added += counts.len();
            came += sum(counts);
        }
        let closing = self.closing.take().unwrap_or_default();
        self.gone.resize(self.gone.len() + added, false);
        let rows = closing.iter().map(|in_session| in_session.row as usize);
        let left = self.places(rows.clone()).into_iter();
        let left = left.map(|(run, row)| counts[run].value(row).unsigned_abs());
        let left = left.sum();
        rows.for_each(|row| self.gone[row] = true);
        self.kept = self.runs.len();
        self.held = self.held + added - closing.len();
        self.accepted = self.accepted + came - left;
        Ok(Settled {
            added: added as u64,
            removed: closing.len() as u64,
            left,
            bytes: self.bytes(),
        })
    }

    /// Whether an epoch has done something that is neither committed nor undone.
    fn is_in_epoch(&self) -> bool {
        self.runs.len() > self.kept || self.closing.is_some()
    }

    /// Undoes the epoch. Returns the bytes that are held now.
    pub(in crate::state) fn abort(&mut self) -> usize {
        if self.is_in_epoch() {
            self.runs.truncate(self.kept);
            (self.index, self.closing) = (None, None);
        }
        self.bytes()
    }

    /// Where the session ends that ends first.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn first_end(&mut self) -> Result<Option<i64>> {
        Ok(self.index()?.and_then(SessionIndex::first_end))
    }

    /// How many there are.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn count(&mut self) -> Result<usize> {
        Ok(self.index()?.map_or(0, |index| index.open()))
    }

    /// Those of earlier epochs, each with its bounds and the accepted rows in it, in the order of their keys' first rows.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn list(&mut self) -> Result<Vec<Session>> {
        let before;
        let index = match self.is_in_epoch() {
            true => {
                before = self.indexed(None, &self.runs[..self.kept])?;
                before.as_ref()
            }
            false => {
                self.index()?;
                self.index.as_ref()
            }
        };
        let kept = &self.runs[..self.kept];
        let counts = kept.iter().map(|run| counts(&run.batch));
        let counts: Vec<&Int64Array> = counts.collect::<Result<_>>()?;
        let counts: Vec<i64> = counts
            .iter()
            .flat_map(|run| run.values())
            .copied()
            .collect();
        let sessions = index.into_iter().flat_map(SessionIndex::sessions);
        let sessions = sessions.filter_map(|rows| {
            let first = rows.first()?;
            let accepted = rows.iter().map(|of| counts[of.row as usize].unsigned_abs());
            Some(Session {
                begin: first.start,
                end: first.end,
                rows: accepted.sum(),
            })
        });
        Ok(sessions.collect())
    }

    /// Of each run of earlier epochs the rows that have not gone, if there are any.
    ///
    /// # Errors
    /// - those of Arrow's kernels
    pub(in crate::state) fn runs(&self) -> Result<Vec<RecordBatch>> {
        let (mut runs, mut from) = (Vec::new(), 0);
        for run in &self.runs[..self.kept] {
            let gone = &self.gone[from..from + run.batch.num_rows()];
            from += gone.len();
            let held: BooleanArray = gone.iter().map(|gone| Some(!gone)).collect();
            match held.true_count() {
                0 => {}
                all if all == gone.len() => runs.push(run.batch.clone()),
                _ => runs.push(filter_record_batch(&run.batch, &held)?),
            }
        }
        Ok(runs)
    }

    /// Keeps the runs few, and the rows that have gone no more than those that have not.
    fn tidy(&mut self) -> Result<()> {
        match self.gone.len() > 2 * self.held + FEW {
            true => self.drop_gone(),
            false => {
                self.join_small();
                Ok(())
            }
        }
    }

    /// Makes one run of the newest ones, by the rule for the parts of a checkpoint. Their rows keep their numbers.
    fn join_small(&mut self) {
        let kept = &self.runs[..self.kept];
        let rows = kept.iter().map(|run| run.batch.num_rows() as u64);
        let rows: Vec<u64> = rows.collect();
        let Some((last, before)) = rows.split_last() else {
            return;
        };
        let first = together(before, *last);
        if first == before.len() {
            return;
        }
        let small = kept[first..].iter().map(|run| run.batch.clone());
        // Texts that do not fit one column stay as they are.
        let joined = rows_joined(small.collect()).into_iter().map(Part::whole);
        let joined: Vec<Part> = joined.collect();
        let behind = first + joined.len();
        self.runs.splice(first..self.kept, joined);
        self.kept = behind;
    }

    /// Copies the rows that have not gone. With the others go keys that have none any more, once they are many.
    fn drop_gone(&mut self) -> Result<()> {
        let mut runs: Vec<Part> = self.runs()?.into_iter().map(Part::whole).collect();
        let worn = |index: &SessionIndex| index.keys() > 2 * self.held + FEW;
        self.index = self.index.take().filter(|index| !worn(index));
        if let Some(index) = &mut self.index {
            index.renumber(&self.gone);
        }
        self.gone = vec![false; self.held];
        let kept = runs.len();
        runs.extend(self.runs.drain(self.kept..));
        (self.runs, self.kept) = (runs, kept);
        Ok(())
    }

    /// Whether its sessions are in so many rows that they are worth merging.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn is_fragmented(&mut self, limit: usize) -> Result<bool> {
        Ok(self.held > ROWS_OF_SESSION * self.count()? + limit)
    }
}

fn sum(counts: &Int64Array) -> u64 {
    counts.values().iter().map(|rows| rows.unsigned_abs()).sum()
}

#[cfg(test)]
mod tests;
