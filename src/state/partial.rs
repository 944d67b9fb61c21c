//! Partial aggregation by slice and keys.
//!
//! DataFusion's aggregate hashes the slice and all keys of every row. But slices are few, and a window's keys
//! come again in the next one. So a row's keys are numbered without the slice, its slice has a number too,
//! and a table of the two gives the group:
//!
//! ```text
//!               key number   0   1   2   3        group   slice  key
//!   slice 10:00 number 1   | 1 | 2 | - | 5 |        1     10:00  a
//!   slice 10:05 number 2   | 3 | - | 4 | - |        2     10:00  b      …
//! ```
//!
//! Late rows that are among the rows go to a group of nobody, number 0, which never comes out: where no
//! aggregate can fail on them, that is cheaper than copying all the others.
//!
//! Without keys a row's group is its slice, and nothing is hashed at all. Keys are numbered by DataFusion's
//! `GroupValues`, integers that lie close together and columns of few values by a table, and groups are aggregated by
//! DataFusion's accumulators.

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{HashMap, Result, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use std::sync::Arc;

use super::assign::Slices;
use super::keys::KeyNumbers;

/// Places that the table may have, all slices together, 32 MiB: where slices and keys are both many, groups are
/// found by hash.
const PLACES: usize = 8 << 20;

/// Arguments of one aggregate for the rows of a batch, and which of the rows it takes.
#[derive(Debug)]
pub struct Arguments {
    /// Argument columns.
    pub values: Vec<ArrayRef>,
    /// Rows that its FILTER lets through; none means all.
    pub filter: Option<BooleanArray>,
}

/// Partial states of the groups of some rows.
pub struct PartialAggregate {
    /// `(slice, keys …, states …)`.
    schema: SchemaRef,
    keys: KeyNumbers,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    groups: Groups,
    added: usize,
    /// Of the batch at hand: numbers of its keys, groups of its rows.
    numbers: Vec<usize>,
    rows: Vec<usize>,
}

impl std::fmt::Debug for PartialAggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartialAggregate")
            .field("groups", &self.groups.len())
            .finish_non_exhaustive()
    }
}

impl PartialAggregate {
    /// States `(slice, keys …, states …)` with so many keys, of these accumulators.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub fn try_new(
        schema: SchemaRef,
        keys: usize,
        accumulators: Vec<Box<dyn GroupsAccumulator>>,
    ) -> Result<Self> {
        let columns: Vec<usize> = (1..=keys).collect();
        let keys = KeyNumbers::try_new(Arc::new(schema.project(&columns)?))?;
        Ok(Self {
            schema,
            keys,
            accumulators,
            groups: Groups::default(),
            added: 0,
            numbers: Vec::new(),
            rows: Vec::new(),
        })
    }

    /// Adds rows: their slices, their keys, and the arguments of each aggregate. Late rows among them are left
    /// out.
    ///
    /// # Errors
    /// - those of the accumulators
    pub fn update(
        &mut self,
        slices: &Slices,
        keys: &[ArrayRef],
        arguments: &[Arguments],
    ) -> Result<()> {
        self.added += slices.len();
        self.groups.slices_of(slices, &mut self.rows);
        if self.keys.is_keyed() {
            self.keys.number(keys, slices.len(), &mut self.numbers)?;
            let count = self.keys.count();
            self.groups.of(&mut self.rows, &self.numbers, count);
        }
        let groups = self.groups.len();
        for (accumulator, arguments) in self.accumulators.iter_mut().zip(arguments) {
            let Arguments { values, filter } = arguments;
            accumulator.update_batch(values, &self.rows, filter.as_ref(), groups)?;
        }
        Ok(())
    }

    /// Rows that were added.
    pub fn rows(&self) -> usize {
        self.added
    }

    /// Groups that they are in.
    pub fn groups(&self) -> usize {
        self.groups.len().saturating_sub(1)
    }

    /// The states of rows, each a group of its own: for rows that hardly share a group.
    ///
    /// # Errors
    /// - those of the accumulators
    pub fn apart(
        &self,
        slices: Slices,
        keys: &[ArrayRef],
        arguments: &[Arguments],
    ) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(slices.into_array())];
        columns.extend(keys.iter().cloned());
        for (accumulator, arguments) in self.accumulators.iter().zip(arguments) {
            let Arguments { values, filter } = arguments;
            columns.extend(accumulator.convert_to_state(values, filter.as_ref())?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    /// Bytes that the states take.
    pub fn size(&self) -> usize {
        let accumulators = self.accumulators.iter().map(|one| one.size());
        accumulators.sum::<usize>() + self.keys.size() + self.groups.size()
    }

    /// The states of all groups, ordered by slice.
    ///
    /// # Errors
    /// - those of the accumulators
    pub fn finish(self) -> Result<RecordBatch> {
        let order = self.groups.order();
        self.states(&order)
    }

    /// The states of all groups, in the order that they were seen in: for whoever puts them in order.
    ///
    /// # Errors
    /// - those of the accumulators
    pub fn finish_as_seen(self) -> Result<RecordBatch> {
        let order = UInt32Array::from_iter_values(1..self.groups.len() as u32);
        self.states(&order)
    }

    /// The states of groups, in this order.
    fn states(mut self, order: &UInt32Array) -> Result<RecordBatch> {
        let groups = std::mem::take(&mut self.groups);
        let slices = order.values().iter().map(|group| groups.slice(*group));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(slices))];
        if self.keys.is_keyed() {
            let numbers = order.values().iter().map(|group| groups.key(*group));
            let numbers = UInt32Array::from_iter_values(numbers);
            for key in self.keys.finish()? {
                columns.push(take(&key, &numbers, None)?);
            }
        }
        let in_order = order.values().iter().zip(1..).all(|(at, row)| *at == row);
        for accumulator in &mut self.accumulators {
            for state in accumulator.state(EmitTo::All)? {
                if state.len() != groups.len() {
                    return internal_err!("an aggregate has {} states", state.len());
                }
                columns.push(match in_order {
                    true => state.slice(1, order.len()),
                    false => take(&state, order, None)?,
                });
            }
        }
        Ok(RecordBatch::try_new(self.schema, columns)?)
    }
}

/// Which group a slice and a key are.
#[derive(Debug, Default)]
struct Groups {
    /// Number of each slice.
    numbers: HashMap<i64, u32>,
    /// Slice of each number; that of number 0, of late rows, means nothing.
    slices: Vec<i64>,
    /// With keys: for each slice the group of each key; 0 where there is none.
    table: Vec<Vec<u32>>,
    /// Places of the table, all slices together.
    places: usize,
    /// Instead of the table, where it would be too large: the group of a slice and a key.
    hashed: Option<HashMap<(u32, u32), u32>>,
    /// With keys: number of the slice and of the key of each group; group 0 is of late rows.
    groups: Vec<(u32, u32)>,
    keyed: bool,
}

impl Groups {
    fn len(&self) -> usize {
        if self.keyed {
            self.groups.len()
        } else {
            self.slices.len()
        }
    }

    fn size(&self) -> usize {
        let hashed = self.hashed.as_ref().map_or(0, HashMap::capacity);
        self.places * size_of::<u32>()
            + hashed * size_of::<(u32, u32, u32)>()
            + self.groups.capacity() * size_of::<(u32, u32)>()
            + self.slices.len() * 2 * size_of::<(i64, u32)>()
    }

    fn number(&mut self, slice: i64) -> u32 {
        if self.slices.is_empty() {
            self.slices.push(i64::MIN);
        }
        let next = self.slices.len() as u32;
        let number = *self.numbers.entry(slice).or_insert(next);
        if number == next {
            self.slices.push(slice);
        }
        number
    }

    /// Number of the slice of each row.
    fn slices_of(&mut self, slices: &Slices, into: &mut Vec<usize>) {
        into.clear();
        match slices {
            Slices::Near(near) => {
                let last = near.used.last().map_or(0, |last| *last as usize);
                // Late rows come before the first place that is used, and keep number 0.
                let mut known = vec![0_usize; last + 1];
                for place in &near.used {
                    if let Some(known) = known.get_mut(*place as usize) {
                        *known = self.number(near.slice(*place)) as usize;
                    }
                }
                let number = |place: &u32| known.get(*place as usize).copied();
                into.extend(
                    near.places
                        .iter()
                        .map(|place| number(place).unwrap_or_default()),
                );
            }
            Slices::Any(slices) => {
                let mut last = None;
                into.extend(slices.values().iter().map(|slice| match last {
                    Some((held, number)) if held == *slice => number,
                    _ => {
                        let number = self.number(*slice) as usize;
                        last = Some((*slice, number));
                        number
                    }
                }));
            }
        }
    }

    /// Turns the slice's number of each row into its group, with the number of its key.
    fn of(&mut self, rows: &mut [usize], keys: &[usize], count: usize) {
        if !self.keyed {
            self.keyed = true;
            self.groups.push((0, 0));
        }
        if self.hashed.is_none() && self.slices.len().saturating_mul(count) > PLACES {
            let known = self.groups.iter().copied().zip(0..).skip(1);
            self.hashed = Some(known.collect());
            (self.table, self.places) = (Vec::new(), 0);
        }
        // Late rows stay where they are.
        let rows = rows.iter_mut().zip(keys).filter(|(row, _)| **row > 0);
        if let Some(hashed) = &mut self.hashed {
            for (row, key) in rows {
                let place = (*row as u32, *key as u32);
                *row = *hashed.entry(place).or_insert_with(|| {
                    self.groups.push(place);
                    self.groups.len() as u32 - 1
                }) as usize;
            }
            return;
        }
        self.table.resize_with(self.slices.len(), Vec::new);
        for (row, key) in rows {
            let Some(of_slice) = self.table.get_mut(*row) else {
                continue;
            };
            if of_slice.len() <= *key {
                // Room for the keys known now, and as much again for those to come.
                let room = count.max(of_slice.len() * 2);
                self.places += room - of_slice.len();
                of_slice.resize(room, 0);
            }
            if let Some(group) = of_slice.get_mut(*key) {
                if *group == 0 {
                    *group = self.groups.len() as u32;
                    self.groups.push((*row as u32, *key as u32));
                }
                *row = *group as usize;
            }
        }
    }

    fn slice_number(&self, group: u32) -> u32 {
        match self.keyed {
            true => self
                .groups
                .get(group as usize)
                .map_or(0, |(slice, _)| *slice),
            false => group,
        }
    }

    fn slice(&self, group: u32) -> i64 {
        let number = self.slice_number(group) as usize;
        self.slices.get(number).copied().unwrap_or_default()
    }

    fn key(&self, group: u32) -> u32 {
        self.groups.get(group as usize).map_or(0, |(_, key)| *key)
    }

    /// The groups in the order of their slices.
    fn order(&self) -> UInt32Array {
        // By counting: slices are few.
        let mut ranked: Vec<usize> = (0..self.slices.len()).collect();
        ranked.sort_unstable_by_key(|number| self.slices.get(*number));
        let mut of_slice = vec![Vec::new(); self.slices.len()];
        for group in 1..self.len() as u32 {
            if let Some(of_slice) = of_slice.get_mut(self.slice_number(group) as usize) {
                of_slice.push(group);
            }
        }
        let ordered = ranked.iter().filter_map(|number| of_slice.get(*number));
        UInt32Array::from_iter_values(ordered.flatten().copied())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, StringArray};
    use datafusion::arrow::compute::take_record_batch;
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::functions_aggregate::count::count_udaf;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_plan::expressions::Column;

    use super::*;
    use crate::time::{Closed, Unit, WindowShape};

    fn counts(keys: usize) -> PartialAggregate {
        let mut fields = vec![Field::new("slice", DataType::Int64, false)];
        fields.extend((0..keys).map(|_| Field::new("key", DataType::Utf8, true)));
        let rows = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        let count = AggregateExprBuilder::new(count_udaf(), vec![Arc::new(Column::new("v", 0))])
            .schema(rows)
            .alias("n")
            .build()
            .unwrap();
        fields.push(Field::new("n", DataType::Int64, false));
        let accumulator = count.create_groups_accumulator().unwrap();
        PartialAggregate::try_new(Arc::new(Schema::new(fields)), keys, vec![accumulator]).unwrap()
    }

    fn slices(ticks: Vec<i64>) -> Slices {
        let shape = WindowShape::new(Unit::Second, 10, 10, 0).unwrap();
        let ticks = Int64Array::from(ticks);
        crate::state::Assignment::Windows(shape)
            .assign(&ticks, Closed::None)
            .slices
    }

    fn ones(rows: usize) -> [Arguments; 1] {
        [Arguments {
            values: vec![Arc::new(Int64Array::from_value(1, rows))],
            filter: None,
        }]
    }

    fn column(batch: &RecordBatch, at: usize) -> Vec<i64> {
        batch
            .column(at)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    }

    #[test]
    fn groups_come_out_by_slice_over_batches() {
        let mut partial = counts(1);
        let keys = |keys: Vec<&str>| vec![Arc::new(StringArray::from(keys)) as ArrayRef];
        let first = keys(vec!["a", "b", "a"]);
        partial
            .update(&slices(vec![25, 13, 21]), &first, &ones(3))
            .unwrap();
        let second = keys(vec!["c", "a"]);
        let any = Slices::Any(Int64Array::from(vec![10, 20]));
        partial.update(&any, &second, &ones(2)).unwrap();
        let states = partial.finish().unwrap();
        assert_eq!(column(&states, 0), [10, 10, 20]);
        let keys: Vec<_> = states
            .column(1)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect();
        assert_eq!(keys, ["b", "c", "a"]);
        assert_eq!(column(&states, 2), [1, 1, 3]);
    }

    #[test]
    fn groups_come_out_as_seen() {
        let seen = || {
            let mut partial = counts(1);
            let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "c", "b"]));
            let slices = slices(vec![25, 13, 21, 35, 17]);
            partial.update(&slices, &[keys], &ones(5)).unwrap();
            partial
        };
        let (states, by_slice) = (seen().finish_as_seen().unwrap(), seen().finish().unwrap());
        assert_eq!(column(&states, 0), [20, 10, 30]);
        assert_eq!(column(&states, 2), [2, 2, 1]);
        let order = UInt32Array::from(vec![1, 0, 2]);
        let ordered = take_record_batch(&states, &order).unwrap();
        assert_eq!(ordered, by_slice);
    }

    #[test]
    fn many_slices_of_many_keys_are_found_by_hash() {
        let mut partial = counts(1);
        let rows = 4_000;
        let keys = |from: usize| -> ArrayRef {
            let keys = (from..from + rows).map(|key| Some(format!("{}", key % 5_000)));
            Arc::new(keys.collect::<StringArray>())
        };
        let first = Slices::Any(Int64Array::from_iter_values(0..2));
        let two: ArrayRef = Arc::new(StringArray::from(vec!["0", "1"]));
        partial.update(&first, &[two], &ones(2)).unwrap();
        for from in [0, 0, 4_000] {
            let slices = (from as i64..).take(rows);
            let slices = Slices::Any(Int64Array::from_iter_values(slices));
            partial.update(&slices, &[keys(from)], &ones(rows)).unwrap();
        }
        assert!(partial.size() < 4 << 20, "{} bytes", partial.size());
        assert_eq!(partial.groups(), 8_000);
        let states = partial.finish().unwrap();
        assert!(column(&states, 0).is_sorted());
        let counts = column(&states, 2);
        assert_eq!(
            (counts[0], counts[1], counts[2], counts[7_999]),
            (3, 3, 2, 1)
        );
    }

    #[test]
    fn without_keys_a_slice_is_a_group() {
        let mut partial = counts(0);
        partial
            .update(&slices(vec![35, 3, 31, 38]), &[], &ones(4))
            .unwrap();
        partial.update(&slices(vec![-5]), &[], &ones(1)).unwrap();
        let states = partial.finish().unwrap();
        assert_eq!(column(&states, 0), [-10, 0, 30]);
        assert_eq!(column(&states, 1), [1, 1, 3]);
    }

    #[test]
    fn late_rows_are_in_no_group() {
        let shape = WindowShape::new(Unit::Second, 10, 10, 0).unwrap();
        let ticks = Int64Array::from(vec![5, 25, 13, 27]);
        let assigned = crate::state::Assignment::Windows(shape).assign(&ticks, Closed::Through(10));
        let mut partial = counts(0);
        partial.update(&assigned.slices, &[], &ones(4)).unwrap();
        let states = partial.finish().unwrap();
        assert_eq!(
            (column(&states, 0), column(&states, 1)),
            (vec![20], vec![2])
        );
        let mut partial = counts(1);
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "a", "b", "c"]));
        partial.update(&assigned.slices, &[keys], &ones(4)).unwrap();
        assert_eq!(partial.groups(), 2);
        let states = partial.finish().unwrap();
        assert_eq!(column(&states, 0), [20, 20]);
        assert_eq!(column(&states, 2), [1, 1]);
    }

    #[test]
    fn a_filter_leaves_rows_out_but_not_their_group() {
        let mut partial = counts(0);
        let mut arguments = ones(2);
        arguments[0].filter = Some(BooleanArray::from(vec![false, true]));
        partial
            .update(&slices(vec![5, 15]), &[], &arguments)
            .unwrap();
        let states = partial.finish().unwrap();
        assert_eq!(column(&states, 1), [0, 1]);
    }
}
