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
    fn settle(&mut self, closed: Closed) -> Result<()> {
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

    /// Where the rows of each run begin among all.
    fn begins(&self) -> Vec<usize> {
        let mut behind = 0;
        let begins = self.runs.iter().map(|run| {
            let begin = behind;
            behind += run.batch.num_rows();
            begin
        });
        begins.collect()
    }

    /// The rows with these numbers, as they are in the runs.
    fn gathered(&self, numbers: impl Iterator<Item = usize>) -> Result<RecordBatch> {
        let begins = self.begins();
        let places = numbers.map(|number| {
            let run = begins.partition_point(|begin| *begin <= number) - 1;
            (run, number - begins[run])
        });
        let places: Vec<(usize, usize)> = places.collect();
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
        let begins = self.begins();
        let mut left = 0;
        for in_session in &closing {
            let row = in_session.row as usize;
            let run = begins.partition_point(|begin| *begin <= row) - 1;
            left += counts[run].value(row - begins[run]).unsigned_abs();
            self.gone[row] = true;
        }
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

    /// Undoes the epoch. Returns the bytes that are held now.
    pub(in crate::state) fn abort(&mut self) -> usize {
        if self.runs.len() > self.kept || self.closing.is_some() {
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

    /// Each with its bounds and the accepted rows in it, in the order of their keys' first rows.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub(in crate::state) fn list(&mut self) -> Result<Vec<Session>> {
        let kept = &self.runs[..self.kept];
        // What an epoch has done that runs is not to be seen.
        let before = match self.runs.len() > self.kept || self.closing.is_some() {
            true => self.indexed(None, kept)?,
            false => None,
        };
        if before.is_none() {
            self.index()?;
        }
        let kept = &self.runs[..self.kept];
        let counts = kept.iter().map(|run| counts(&run.batch));
        let counts: Vec<&Int64Array> = counts.collect::<Result<_>>()?;
        let counts: Vec<i64> = counts
            .iter()
            .flat_map(|run| run.values())
            .copied()
            .collect();
        let sessions = before.iter().chain(&self.index).take(1);
        let sessions = sessions.flat_map(SessionIndex::sessions);
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

    /// The rows of earlier epochs, in batches.
    ///
    /// # Errors
    /// - those of Arrow's kernels
    pub(in crate::state) fn runs(&self) -> Result<Vec<RecordBatch>> {
        Ok(self.held_runs()?.into_iter().flatten().collect())
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
        let runs = self.held_runs()?.into_iter().flatten();
        let mut runs: Vec<Part> = runs.map(Part::whole).collect();
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

    /// Of each run of earlier epochs the rows that have not gone, if there are any.
    fn held_runs(&self) -> Result<Vec<Option<RecordBatch>>> {
        let mut from = 0;
        let runs = self.runs[..self.kept].iter().map(|run| {
            let gone = &self.gone[from..from + run.batch.num_rows()];
            from += gone.len();
            let held: BooleanArray = gone.iter().map(|gone| Some(!gone)).collect();
            Ok(match held.true_count() {
                0 => None,
                all if all == gone.len() => Some(run.batch.clone()),
                _ => Some(filter_record_batch(&run.batch, &held)?),
            })
        });
        runs.collect()
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
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Array, AsArray, StringArray};
    use datafusion::arrow::compute::concat_batches;
    use datafusion::arrow::datatypes::Int64Type;

    use super::super::{key_columns, merge};
    use super::*;
    use crate::splitmix::SplitMix;

    /// A key, the bounds of a stretch or of its session, and rows in it.
    type Line = (String, i64, i64, i64);

    fn run(lines: &[Line]) -> Part {
        let keys = StringArray::from_iter_values(lines.iter().map(|line| &line.0));
        let numbers = |of: fn(&Line) -> i64| -> Arc<dyn Array> {
            Arc::new(Int64Array::from_iter_values(lines.iter().map(of)))
        };
        let columns = [
            ("start", numbers(|line| line.1)),
            ("end", numbers(|line| line.2)),
            ("key", Arc::new(keys) as _),
            ("rows", numbers(|line| line.3)),
        ];
        Part::whole(RecordBatch::try_from_iter(columns).unwrap())
    }

    fn lines(runs: &[RecordBatch]) -> Vec<Line> {
        let lines = runs.iter().flat_map(|run| {
            let keys = run.column(2).as_string::<i32>();
            let number = |at: usize, row| run.column(at).as_primitive::<Int64Type>().value(row);
            let rows = (0..run.num_rows()).map(move |row| {
                let key = keys.value(row).to_owned();
                (key, number(0, row), number(1, row), number(3, row))
            });
            rows.collect::<Vec<_>>()
        });
        let mut lines: Vec<Line> = lines.collect();
        lines.sort();
        lines
    }

    /// The same lines with the bounds of their sessions, found by looking at all of them.
    fn merged(lines: &[Line]) -> Vec<Line> {
        let run = run(lines).batch;
        let bound = |at| super::super::bound(&run, at).unwrap();
        let merged = merge(key_columns(&run, 1), bound(0), bound(1)).unwrap();
        let bounds = merged.starts.values().iter().zip(merged.ends.values());
        let lines = lines.iter().zip(bounds);
        lines
            .map(|(line, (start, end))| (line.0.clone(), *start, *end, line.3))
            .collect()
    }

    /// Some rows whose stretches have not closed at `after`.
    fn some(random: &mut SplitMix, after: i64, rows: u64) -> Vec<Line> {
        let mut below = |most: u64| (random.next() % most) as i64;
        let rows = (0..rows).map(|_| {
            let start = after - 20 + below(80);
            let end = (start + 1 + below(30)).max(after + 1);
            (format!("user {}", below(300)), start, end, 1 + below(5))
        });
        rows.collect()
    }

    fn sum_of(lines: &[Line]) -> u64 {
        lines.iter().map(|line| line.3.unsigned_abs()).sum()
    }

    /// What is open, against the lines that are.
    fn check(open: &mut OpenSessions, held: &[Line]) {
        let expected = merged(held);
        let mut sessions: Vec<(String, i64, i64)> = Vec::new();
        sessions.extend(expected.iter().map(|line| (line.0.clone(), line.1, line.2)));
        sessions.sort();
        sessions.dedup();
        assert_eq!(open.count().unwrap(), sessions.len());
        let first = sessions.iter().map(|session| session.2).min();
        assert_eq!(open.first_end().unwrap(), first);
        assert_eq!((open.held(), open.accepted()), (held.len(), sum_of(held)));
        let mut list: Vec<(i64, i64)> = Vec::new();
        let of_list = open.list().unwrap();
        list.extend(of_list.iter().map(|session| (session.begin, session.end)));
        list.sort_unstable();
        let mut bounds: Vec<(i64, i64)> = Vec::new();
        bounds.extend(sessions.iter().map(|session| (session.1, session.2)));
        bounds.sort_unstable();
        assert_eq!(list, bounds);
        let accepted: u64 = of_list.iter().map(|session| session.rows).sum();
        assert_eq!(accepted, sum_of(held));
        let mut runs = held.to_vec();
        runs.sort();
        let rows = lines(&open.runs().unwrap());
        // Rows may have the bounds of their sessions by now.
        assert_eq!(lines(&merged_rows(&rows)), lines(&merged_rows(&runs)));
    }

    fn merged_rows(lines: &[Line]) -> Vec<RecordBatch> {
        vec![run(&merged(lines)).batch]
    }

    /// Epochs of so many rows, against the sessions of all rows that are open.
    fn epochs(seed: u64, rows: u64, epochs: i64) {
        println!("seed {seed}, {rows} rows");
        let mut random = SplitMix(seed);
        let (mut open, mut held) = (OpenSessions::new(1), Vec::new());
        let mut after = 0;
        for _ in 0..epochs {
            let new = some(&mut random, after, rows);
            let (first, second) = new.split_at(new.len() / 2);
            let next = after + (random.next() % 12) as i64;
            let closed = Closed::Through(next);
            for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
                open.add(run(part));
            }
            let all: Vec<Line> = held.iter().cloned().chain(new).collect();
            let expected = merged(&all);
            let (mut gone, mut stay) = (Vec::new(), Vec::new());
            for (row, whole) in all.iter().zip(expected) {
                match closed.contains(whole.2) {
                    true => gone.push(whole),
                    false => stay.push(row.clone()),
                }
            }
            gone.sort();
            let reads = random.next() % 3;
            if reads > 0 {
                assert_eq!(open.count_closing(closed).unwrap(), gone.len());
                assert_eq!(lines(&open.closing(closed).unwrap()), gone);
            }
            if random.next() % 4 == 0 {
                open.abort();
                check(&mut open, &held);
                continue;
            }
            let settled = open.commit(closed).unwrap();
            assert_eq!(settled.removed, gone.len() as u64);
            assert_eq!(settled.left, sum_of(&gone));
            (held, after) = (stay, next);
            check(&mut open, &held);
            if open.is_fragmented(8).unwrap() {
                let whole = open.everything().unwrap();
                assert_eq!(lines(&whole), {
                    let mut all = merged(&held);
                    all.sort();
                    all
                });
                open = OpenSessions::of(whole.into_iter().map(Part::whole).collect(), 1).unwrap();
                check(&mut open, &held);
            }
        }
        let left = open.closing(Closed::All).unwrap();
        let mut all = merged(&held);
        all.sort();
        assert_eq!(lines(&left), all);
        open.commit(Closed::All).unwrap();
        check(&mut open, &[]);
    }

    #[test]
    fn epochs_close_the_sessions_of_all_rows_that_are_open() {
        for seed in 0..8 {
            epochs(seed, 12, 40);
        }
        // So many rows leave that the others are moved.
        epochs(8, 400, 60);
        // Runs of one row are joined.
        epochs(9, 1, 300);
    }

    #[test]
    fn rows_without_a_key_are_one_list_of_sessions() {
        let run = run(&[("".to_owned(), 0, 10, 1), ("".to_owned(), 30, 40, 1)]);
        let run = run.batch.project(&[0, 1, 3]).unwrap();
        let bridge = run.slice(0, 1);
        let mut open = OpenSessions::of(vec![Part::whole(run)], 0).unwrap();
        assert_eq!(open.count().unwrap(), 2);
        let schema = bridge.schema();
        let long = with_sessions(&bridge, vec![10].into(), vec![30].into()).unwrap();
        open.add(Part::whole(long));
        let rows = open.closing(Closed::Through(39)).unwrap();
        assert!(rows.is_empty());
        open.commit(Closed::Through(39)).unwrap();
        assert_eq!(
            (open.count().unwrap(), open.first_end().unwrap()),
            (1, Some(40))
        );
        let rows = open.closing(Closed::Through(40)).unwrap();
        let rows = concat_batches(&schema, &rows).unwrap();
        let ends = rows.column(1).as_primitive::<Int64Type>();
        assert_eq!(ends.values().to_vec(), [40, 40, 40]);
    }

    #[test]
    fn keys_that_have_gone_are_forgotten() {
        let mut open = OpenSessions::new(1);
        let mut most = 0;
        for epoch in 0..60_i64 {
            let lines = (0..1_000).map(|key| (format!("{epoch} {key}"), epoch, epoch + 1, 1));
            open.add(run(&lines.collect::<Vec<_>>()));
            let settled = open.commit(Closed::Through(epoch)).unwrap();
            most = most.max(settled.bytes);
        }
        assert_eq!((open.held(), open.count().unwrap()), (1_000, 1_000));
        let alone = run(&[("0 0".to_owned(), 0, 1, 1)]).bytes;
        assert!(most < 30_000 * alone, "{most} bytes");
        assert!(open.index.as_ref().unwrap().keys() < 20_000);
    }
}
