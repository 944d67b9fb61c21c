//! Windows from many runs: of the slices that hopping windows share, or of many small epochs.
//!
//! A slice is in `size / slide` windows, and DataFusion's final aggregate would hash each of its rows once for
//! every one of them. Here each key gets a number once, and the states of a window's runs are merged by
//! number, with DataFusion's own accumulators. One row a group and window goes on.
//!
//! Where there is no memory for the states of a window, its runs go on as they are: the aggregate above merges
//! them, and can spill.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::GroupsAccumulatorAdapter;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use crate::state::{KeyNumbers, SharedSlices, WindowOfSlices};

/// The rows of a slice: the numbers of their keys, and their states.
struct Slice {
    runs: Vec<(Vec<u32>, Vec<ArrayRef>)>,
}

/// Slices, ready to be merged into windows.
pub(super) struct Windows {
    schema: SchemaRef,
    aggregates: Vec<Arc<AggregateFunctionExpr>>,
    /// State columns of each aggregate.
    states: Vec<Range<usize>>,
    slices: Vec<Slice>,
    /// The key columns, a row for each number.
    keys: Vec<ArrayRef>,
    groups: usize,
    windows: std::vec::IntoIter<WindowOfSlices>,
    /// Runs that go on as they are, the last one first.
    plain: Vec<Plain>,
    /// Of the numbers, and of one window's states at a time.
    memory: MemoryReservation,
    /// Bytes of the numbers.
    numbered: usize,
}

/// A run that goes on as it is.
struct Plain {
    /// The window that it is for.
    begin: i64,
    slice: usize,
    run: usize,
}

impl Windows {
    /// The windows of slices, whose runs are `(slice, keys …, states …)` with so many keys. None where there is no
    /// memory for the numbers of the keys.
    pub(super) fn try_new(
        schema: SchemaRef,
        keys: usize,
        aggregates: &[Arc<AggregateFunctionExpr>],
        shared: SharedSlices,
        memory: MemoryReservation,
    ) -> Result<Option<Self>> {
        let mut states = Vec::with_capacity(aggregates.len());
        let mut from = 0;
        for aggregate in aggregates {
            let to = from + aggregate.state_fields()?.len();
            states.push(from..to);
            from = to;
        }
        let columns: Vec<usize> = (1..=keys).collect();
        let mut numbers = KeyNumbers::try_new(Arc::new(schema.project(&columns)?))?;
        let mut of_rows = Vec::new();
        let mut slices = Vec::with_capacity(shared.slices.len());
        let mut numbered = 0;
        for runs in shared.slices {
            let mut slice = Slice { runs: Vec::new() };
            for run in runs {
                let (keyed, states) = run.columns().split_at(1 + keys);
                let keyed = keyed.get(1..).unwrap_or_default();
                numbers.number(keyed, run.num_rows(), &mut of_rows)?;
                let of_rows: Vec<u32> = of_rows.iter().map(|number| *number as u32).collect();
                numbered += of_rows.capacity() * size_of::<u32>();
                if memory.try_resize(numbered + numbers.size()).is_err() {
                    memory.free();
                    return Ok(None);
                }
                slice.runs.push((of_rows, states.to_vec()));
            }
            slices.push(slice);
        }
        numbered += numbers.size();
        let (groups, keys) = (numbers.count(), numbers.finish()?);
        Ok(Some(Self {
            schema,
            aggregates: aggregates.to_vec(),
            states,
            slices,
            keys,
            groups,
            windows: shared.windows.into_iter(),
            plain: Vec::new(),
            memory,
            numbered,
        }))
    }

    /// Partial states of a window: `(begin, keys …, states …)`, a row a group. None where there is no memory.
    fn window(&self, window: &WindowOfSlices) -> Result<Option<RecordBatch>> {
        let accumulators = self.aggregates.iter().map(accumulator);
        let mut accumulators = accumulators.collect::<Result<Vec<_>>>()?;
        let slices = self.slices.get(window.slices.clone()).unwrap_or_default();
        let mut groups = Groups::new(self.groups);
        let mut rows = Vec::new();
        for (numbers, states) in slices.iter().flat_map(|slice| &slice.runs) {
            groups.of(numbers, &mut rows);
            for (accumulator, range) in accumulators.iter_mut().zip(&self.states) {
                let states = states.get(range.clone()).unwrap_or_default();
                accumulator.merge_batch(states, &rows, groups.numbers.len())?;
            }
            let states: usize = accumulators.iter().map(|one| one.size()).sum();
            let size = self.numbered + states + groups.size();
            if self.memory.try_resize(size).is_err() {
                return Ok(None);
            }
        }
        let numbers = UInt32Array::from(groups.numbers);
        let begin = Int64Array::from_value(window.begin, numbers.len());
        let mut columns: Vec<ArrayRef> = vec![Arc::new(begin)];
        for key in &self.keys {
            columns.push(take(key, &numbers, None)?);
        }
        for accumulator in &mut accumulators {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        Ok(Some(RecordBatch::try_new(
            Arc::clone(&self.schema),
            columns,
        )?))
    }

    /// The runs of a window, to go on as they are.
    fn runs_of(&self, window: &WindowOfSlices) -> Vec<Plain> {
        let slices = window.slices.clone().rev();
        let runs = slices.flat_map(|slice| {
            let runs = self.slices.get(slice).map_or(0, |slice| slice.runs.len());
            (0..runs).rev().map(move |run| Plain {
                begin: window.begin,
                slice,
                run,
            })
        });
        runs.collect()
    }

    /// A run as part of a window: `(begin, keys …, states …)`.
    fn as_it_is(&self, plain: &Plain) -> Result<RecordBatch> {
        let runs = self.slices.get(plain.slice).map(|slice| &slice.runs);
        let Some((numbers, states)) = runs.and_then(|runs| runs.get(plain.run)) else {
            return internal_err!("a window has only the runs of its slices");
        };
        let numbers = UInt32Array::from(numbers.clone());
        let begin = Int64Array::from_value(plain.begin, numbers.len());
        let mut columns: Vec<ArrayRef> = vec![Arc::new(begin)];
        for key in &self.keys {
            columns.push(take(key, &numbers, None)?);
        }
        columns.extend(states.iter().cloned());
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// The groups of one window, in the order in which their keys are first seen in it. An accumulator takes a
/// group that is new to it for one that is in the rows at hand: groups of other windows must not be counted.
struct Groups {
    /// Number of the key of each group.
    numbers: Vec<u32>,
    /// Group of each key, plus one; 0 where there is none yet.
    known: Vec<u32>,
}

impl Groups {
    fn new(keys: usize) -> Self {
        Self {
            numbers: Vec::new(),
            known: vec![0; keys],
        }
    }

    fn size(&self) -> usize {
        (self.numbers.capacity() + self.known.capacity()) * size_of::<u32>()
    }

    /// The groups of rows, by the numbers of their keys.
    fn of(&mut self, numbers: &[u32], rows: &mut Vec<usize>) {
        rows.clear();
        for number in numbers {
            let Some(known) = self.known.get_mut(*number as usize) else {
                continue;
            };
            if *known == 0 {
                self.numbers.push(*number);
                *known = self.numbers.len() as u32;
            }
            rows.push(*known as usize - 1);
        }
    }
}

impl Iterator for Windows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(plain) = self.plain.pop() {
                return Some(self.as_it_is(&plain));
            }
            let window = self.windows.next()?;
            match self.window(&window).transpose() {
                Some(states) => return Some(states),
                None => {
                    self.memory.shrink(self.memory.size() - self.numbered);
                    self.plain = self.runs_of(&window);
                }
            }
        }
    }
}

/// As DataFusion's aggregate makes it: of an aggregate that has none for many groups, one for each.
pub(in crate::physical) fn accumulator(
    aggregate: &Arc<AggregateFunctionExpr>,
) -> Result<Box<dyn GroupsAccumulator>> {
    if aggregate.groups_accumulator_supported() {
        return aggregate.create_groups_accumulator();
    }
    let aggregate = Arc::clone(aggregate);
    let one = move || aggregate.create_accumulator();
    Ok(Box::new(GroupsAccumulatorAdapter::new(one)))
}
