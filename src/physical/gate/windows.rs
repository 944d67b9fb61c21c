//! Windows from many runs: of the slices that hopping windows share, or of many small epochs.
//!
//! A slice is in `size / slide` windows, and DataFusion's final aggregate would hash each of its rows once for
//! every one of them. Here each key gets a number once, and the states of a window's runs are merged by
//! number, with DataFusion's own accumulators. One row a group and window goes on.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
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
    /// Of one window's states at a time.
    memory: MemoryReservation,
}

impl Windows {
    /// The windows of slices, whose runs are `(slice, keys …, states …)` with so many keys.
    pub(super) fn try_new(
        schema: SchemaRef,
        keys: usize,
        aggregates: &[Arc<AggregateFunctionExpr>],
        shared: SharedSlices,
        memory: MemoryReservation,
    ) -> Result<Self> {
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
        for runs in shared.slices {
            let runs = runs.iter().map(|run| {
                let (keyed, states) = run.columns().split_at(1 + keys);
                let keyed = keyed.get(1..).unwrap_or_default();
                numbers.number(keyed, run.num_rows(), &mut of_rows)?;
                let of_rows = of_rows.iter().map(|number| *number as u32).collect();
                Ok((of_rows, states.to_vec()))
            });
            let runs = runs.collect::<Result<_>>()?;
            slices.push(Slice { runs });
        }
        let (groups, keys) = (numbers.count(), numbers.finish()?);
        Ok(Self {
            schema,
            aggregates: aggregates.to_vec(),
            states,
            slices,
            keys,
            groups,
            windows: shared.windows.into_iter(),
            memory,
        })
    }

    /// Partial states of a window: `(begin, keys …, states …)`, a row a group.
    fn window(&self, window: &WindowOfSlices) -> Result<RecordBatch> {
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
            let resized = self.memory.try_resize(states + groups.size());
            resized.map_err(|error| error.context("a window's states have no memory"))?;
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
        let window = self.windows.next()?;
        Some(self.window(&window))
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
