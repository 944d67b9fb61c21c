//! Rows that wait to be aggregated.
//!
//! Of an epoch of a few thousand rows most are a group of their own. Aggregated at once, they would be merged with those
//! of the next epoch, and again with those of the one after. In append mode, where nothing can fail on them and no
//! checkpoint asks what an epoch has added, they wait as they are: until they are many, or until a window closes that
//! they are in. Then the rows of its slices leave, and the others go on waiting.
//!
//! ```text
//!                      rows of the slices
//! waiting              10  20  30
//! epoch 7 adds             20  30  40
//! W closes slice 10    10                which are aggregated, and come out with its runs
//! waiting                  20  30
//!                          20  30  40
//! ```
//!
//! What an epoch changes is beside what is kept, so that a failed one is undone by dropping it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::take_arrays;
use datafusion::common::Result;
use datafusion::execution::runtime_env::RuntimeEnv;

use super::super::assign::Slices;
use super::super::counts::Turnover;
use super::super::dense::Near;
use super::super::epoch::Epoch;
use super::super::runs::Part;
use super::{GateShape, GateState, lock};
use crate::time::Closed;

/// Rows that wait at most: behind an epoch that leaves more all of them are aggregated.
const MANY_ROWS: usize = 262_144;

/// Batches that wait at most.
const MANY_BATCHES: usize = 256;

/// Rows of an epoch that are enough to be aggregated by themselves.
pub const ENOUGH_ROWS: usize = 131_072;

/// Batches of an epoch that are.
pub const ENOUGH_BATCHES: usize = 128;

/// The rows of a batch that wait: those of its slices but the first ones, which have left.
#[derive(Debug, Clone)]
pub struct Waiting {
    batch: RecordBatch,
    near: Near,
    bytes: usize,
    /// Slices that have left.
    left: usize,
    /// Rows of the others.
    rows: usize,
}

impl Waiting {
    /// All rows of a batch that are not late, with the columns that are aggregated.
    pub fn new(batch: RecordBatch, near: Near) -> Self {
        let mut rows = Self {
            bytes: Part::read(batch.clone()).bytes + near.places.len() * size_of::<u32>(),
            rows: 0,
            left: 0,
            batch,
            near,
        };
        rows.rows = rows.count(0..rows.near.used.len());
        rows
    }

    /// Rows that wait.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// All of its rows.
    pub fn into_rows(self) -> (RecordBatch, Near) {
        (self.batch, self.near)
    }

    /// Places of some of its slices: the first one and the last one.
    fn bounds(&self, slices: std::ops::Range<usize>) -> Option<(u32, u32)> {
        let used = self.near.used.get(slices)?;
        Some((*used.first()?, *used.last()?))
    }

    /// Rows of some of its slices.
    fn count(&self, slices: std::ops::Range<usize>) -> usize {
        let Some((first, last)) = self.bounds(slices) else {
            return 0;
        };
        let places = self.near.places.iter();
        places
            .filter(|place| (first..=last).contains(*place))
            .count()
    }

    /// How many of its slices are among the first ones that are so, those that have left too.
    fn slices_while(&self, is: impl Fn(i64) -> bool) -> usize {
        let used = self.near.used.get(self.left..).unwrap_or_default();
        let slices = used.iter().map(|place| self.near.slice(*place));
        self.left + slices.take_while(|slice| is(*slice)).count()
    }

    /// How many of its slices are in a window that has closed then, those that have left too.
    fn slices_reached(&self, shape: GateShape, after: Closed) -> usize {
        self.slices_while(|slice| shape.is_reached(slice, after))
    }

    /// What is left when so many slices have gone.
    fn without(mut self, slices: usize) -> Option<Self> {
        if slices > self.left {
            self.left = slices;
            self.rows = self.count(slices..self.near.used.len());
        }
        (self.rows > 0).then_some(self)
    }

    /// The rows of some of its slices. Others may be among them, as late ones may: their slice is no slice that is used.
    fn rows_of(&self, slices: std::ops::Range<usize>) -> Result<Option<(RecordBatch, Slices)>> {
        let Some((first, last)) = self.bounds(slices.clone()) else {
            return Ok(None);
        };
        let mut near = self.near.clone();
        near.used.truncate(slices.end);
        near.used.drain(..slices.start);
        let wanted = self.count(slices);
        if wanted > self.batch.num_rows() / 2 {
            return Ok(Some((self.batch.clone(), Slices::Near(near))));
        }
        let (mut rows, mut places) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
        for (row, place) in (0_u32..).zip(self.near.places.iter()) {
            if (first..=last).contains(place) {
                rows.push(row);
                places.push(*place);
            }
        }
        near.places = Arc::new(places);
        // A batch without columns cannot be cut by itself.
        let columns = take_arrays(self.batch.columns(), &UInt32Array::from(rows), None)?;
        let options = RecordBatchOptions::new().with_row_count(Some(wanted));
        let batch = RecordBatch::try_new_with_options(self.batch.schema(), columns, &options)?;
        Ok(Some((batch, Slices::Near(near))))
    }
}

/// The rows of a gate that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    kept: Vec<Waiting>,
    /// Those of the running epoch.
    pending: Vec<Waiting>,
    /// What will be kept of both, once rows have left in the running epoch.
    next: Option<Vec<Waiting>>,
}

impl Queue {
    fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.kept.iter().chain(&self.pending)
    }

    /// Rows that are kept.
    pub(super) fn rows(&self) -> u64 {
        rows(&self.kept)
    }

    /// Whether any rows leave when these windows close: none when they have left already.
    fn has_ripe(&self, shape: GateShape, after: Closed) -> bool {
        let is_ripe = |one: &Waiting| one.slices_reached(shape, after) > one.left;
        self.next.is_none() && self.all().any(is_ripe)
    }

    /// Ends the epoch. Rows of slices that no window needs any more are not kept. Also the bytes that are free now.
    pub(super) fn commit(&mut self, is_evicted: impl Fn(i64) -> bool) -> (Turnover, usize) {
        let (before, pending) = (rows(&self.kept), rows(&self.pending));
        let held = self.all().map(|one| one.bytes).sum::<usize>();
        let mut next = std::mem::take(&mut self.kept);
        next.append(&mut self.pending);
        let next = self.next.take().unwrap_or(next);
        let kept = next.into_iter().filter_map(|one| {
            let gone = one.slices_while(&is_evicted);
            one.without(gone)
        });
        self.kept = kept.collect();
        let turnover = Turnover {
            added: pending,
            removed: before + pending - rows(&self.kept),
            ..Turnover::default()
        };
        (turnover, held - bytes(&self.kept))
    }

    /// Undoes the epoch. Returns the bytes that are free now.
    pub(super) fn abort(&mut self) -> usize {
        self.next = None;
        bytes(&std::mem::take(&mut self.pending))
    }
}

fn rows(waiting: &[Waiting]) -> u64 {
    waiting.iter().map(|one| one.rows as u64).sum()
}

fn bytes(waiting: &[Waiting]) -> usize {
    waiting.iter().map(|one| one.bytes).sum()
}

/// Rows that leave.
#[derive(Debug)]
pub struct Ripe {
    /// Rows and their slices.
    pub rows: Vec<(RecordBatch, Slices)>,
    /// What goes on waiting.
    rest: Vec<Waiting>,
}

impl GateState {
    /// Whether the epochs are so small that their rows wait.
    pub fn has_small_epochs(&self) -> bool {
        self.small.load(Ordering::Relaxed)
    }

    /// Keeps rows of the running epoch until they are aggregated.
    ///
    /// # Errors
    /// - the memory pool has no room for them
    /// - the epoch was undone
    pub fn wait(&self, rows: Vec<Waiting>, epoch: &Epoch, runtime: &RuntimeEnv) -> Result<()> {
        let bytes = bytes(&rows);
        epoch.state.reserve(&self.memory, bytes, runtime)?;
        let mut queue = lock(&self.waiting);
        self.expects(epoch, bytes)?;
        queue.pending.extend(rows);
        Ok(())
    }

    /// The waiting rows of windows that close in the running epoch; none when they have left already. They leave when
    /// they have been [taken in](Self::leave).
    ///
    /// # Errors
    /// - a batch cannot be cut
    pub fn ripe(&self, after: Closed) -> Result<Option<Ripe>> {
        let queue = lock(&self.waiting);
        if !queue.has_ripe(self.shape, after) {
            return Ok(None);
        }
        let mut ripe = Ripe {
            rows: Vec::new(),
            rest: Vec::new(),
        };
        for one in queue.all() {
            let to = one.slices_reached(self.shape, after);
            ripe.rows.extend(one.rows_of(one.left..to)?);
            ripe.rest.extend(one.clone().without(to));
        }
        Ok(Some(ripe))
    }

    /// Takes note that ripe rows are among the runs of the running epoch.
    ///
    /// # Errors
    /// - the epoch was undone
    pub fn leave(&self, ripe: Ripe, epoch: &Epoch) -> Result<()> {
        let mut queue = lock(&self.waiting);
        self.expects(epoch, 0)?;
        queue.next = Some(ripe.rest);
        Ok(())
    }

    /// All rows that wait, when they are many or when there are any and `all` is set. To be asked between epochs.
    ///
    /// # Errors
    /// - a batch cannot be cut
    pub fn many_waiting(&self, all: bool) -> Result<Vec<(RecordBatch, Slices)>> {
        let queue = lock(&self.waiting);
        let many = queue.rows() >= MANY_ROWS as u64 || queue.kept.len() >= MANY_BATCHES;
        if !(many || all) {
            return Ok(Vec::new());
        }
        let rows = queue
            .kept
            .iter()
            .map(|one| one.rows_of(one.left..one.near.used.len()));
        Ok(rows
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    /// Puts partial states, each in its partition, in the place of all rows that wait.
    ///
    /// # Errors
    /// - they are no states; then nothing is changed
    pub fn aggregated(&self, states: Vec<(usize, Part)>) -> Result<()> {
        let cut = states
            .into_iter()
            .map(|(partition, part)| Ok((partition, self.cut(part)?)));
        let cut = cut.collect::<Result<Vec<_>>>()?;
        let waited = std::mem::take(&mut lock(&self.waiting).kept);
        let mut after = 0;
        for (partition, runs) in cut {
            let partition = self.partition(partition);
            let mut partition = lock(&partition);
            for (slice, run) in runs {
                after += run.bytes;
                partition.kept.entry(slice).or_default().push(run);
            }
        }
        self.memory.change(bytes(&waited), after);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;

    use super::super::super::epoch::QueryState;
    use super::*;
    use crate::config::OutputMode;
    use crate::time::{Unit, WindowShape};

    /// A gate of windows of 20 that begin at every 10, and an epoch of its query.
    fn gate(query: &Arc<QueryState>) -> (Arc<GateState>, Epoch) {
        let shape = WindowShape::new(Unit::Second, 20, 10, 0).unwrap();
        let epoch = Epoch::new(0, None, false, HashMap::new(), Arc::clone(query));
        let gate = query.gate(0, |turn| {
            GateState::new(
                "gate",
                GateShape::Hopping(shape),
                0,
                false,
                OutputMode::Append,
                turn,
            )
        });
        (gate, epoch)
    }

    /// A row of each of these slices, which has it as its value.
    fn rows(slices: &[i64]) -> Vec<Waiting> {
        let values: ArrayRef = Arc::new(Int64Array::from(slices.to_vec()));
        let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
        vec![Waiting::new(batch, Near::of(slices).unwrap())]
    }

    fn wait(gate: &GateState, epoch: &Epoch, slices: &[i64]) {
        gate.wait(rows(slices), epoch, &RuntimeEnv::default())
            .unwrap();
    }

    /// The values of rows whose slice is one that is used.
    fn values(rows: &[(RecordBatch, Slices)]) -> Vec<i64> {
        let mut all = Vec::new();
        for (batch, slices) in rows {
            let Slices::Near(near) = slices else {
                panic!("rows that wait have places");
            };
            let values = batch.column(0).as_primitive::<Int64Type>().values();
            let used = values.iter().zip(near.places.iter());
            let used = used.filter(|(_, place)| near.used.contains(place));
            all.extend(used.map(|(value, _)| *value));
        }
        all
    }

    fn left(gate: &GateState) -> Vec<i64> {
        values(&gate.many_waiting(true).unwrap())
    }

    #[test]
    fn rows_leave_when_the_first_of_their_windows_closes() {
        let query = Arc::new(QueryState::default());
        let (state, epoch) = gate(&query);
        wait(&state, &epoch, &[10, 20, 10, 30, 40, 50, 40]);
        state.commit(OutputMode::Append, Closed::None).unwrap();
        assert_eq!(state.held_rows(), 7);
        let (state, epoch) = gate(&query);
        wait(&state, &epoch, &[20, 60]);
        assert!(state.ripe(Closed::Through(-10)).unwrap().is_none());
        // The windows that begin at 0 and 10: slices 10 and 20 are in them.
        let through = Closed::Through(10);
        let is_ripe = |after| lock(&state.waiting).has_ripe(state.shape, after);
        assert!(is_ripe(through) && !is_ripe(Closed::Through(-10)));
        let ripe = state.ripe(through).unwrap().unwrap();
        assert_eq!(values(&ripe.rows), [10, 20, 10, 20]);
        state.leave(ripe, &epoch).unwrap();
        assert!(state.ripe(through).unwrap().is_none());
        let turnover = state.commit(OutputMode::Append, through).unwrap();
        assert_eq!((turnover.added, turnover.removed), (2, 4));
        assert_eq!(left(&state), [30, 40, 50, 40, 60]);
        assert_eq!(state.held_rows(), 5);
        let bytes = state.held_bytes();
        state.aggregated(Vec::new()).unwrap();
        assert!(left(&state).is_empty() && bytes > 0);
        assert_eq!((state.held_rows(), state.held_bytes()), (0, 0));
    }

    #[test]
    fn what_an_epoch_has_taken_waits_again_when_it_is_undone() {
        let query = Arc::new(QueryState::default());
        let (state, epoch) = gate(&query);
        wait(&state, &epoch, &[10, 20]);
        state.commit(OutputMode::Append, Closed::None).unwrap();
        let bytes = state.held_bytes();
        let (state, epoch) = gate(&query);
        wait(&state, &epoch, &[10, 30]);
        let ripe = |state: &GateState| state.ripe(Closed::Through(0)).unwrap().unwrap();
        state.leave(ripe(&state), &epoch).unwrap();
        query.abort();
        assert_eq!((left(&state), state.held_bytes()), (vec![10, 20], bytes));
        // What is still on its way comes too late.
        let late = ripe(&state);
        assert_eq!(values(&late.rows), [10]);
        assert!(state.leave(late, &epoch).is_err());
        let wait = state.wait(rows(&[10]), &epoch, &RuntimeEnv::default());
        assert!(wait.is_err() && state.held_bytes() == bytes);
        assert_eq!(left(&state), [10, 20]);
    }

    #[test]
    fn rows_that_nobody_has_read_go_with_their_last_window() {
        let query = Arc::new(QueryState::default());
        let (state, epoch) = gate(&query);
        wait(&state, &epoch, &[10, 20, 30]);
        let turnover = state
            .commit(OutputMode::Append, Closed::Through(10))
            .unwrap();
        assert_eq!((turnover.added, turnover.removed), (3, 1));
        assert_eq!(left(&state), [20, 30]);
        state.commit(OutputMode::Append, Closed::All).unwrap();
        assert_eq!((state.held_rows(), state.held_bytes()), (0, 0));
    }
}
