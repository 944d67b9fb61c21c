//! Which partition of the gate a group is in: by the hash of its keys.
//!
//! The gate does it by itself, where DataFusion would put a `RepartitionExec` under it: that one hands
//! every batch to a task of another partition over a channel, which costs an epoch of one row more than
//! all the rest, and here every partition's rows end in the same place anyway. Rows are put in order of
//! partition and slice at once, so that they are copied once. Slices are few: rows are not sorted but counted,
//! and then each has its place.
//!
//! ```text
//!   rows of       partition 0   partition 1         place of the first   partition 0   partition 1
//!   slice 10:00             3             1         slice 10:00                    0             5
//!   slice 10:05             2             4         slice 10:05                    3             6
//! ```

use std::ops::Range;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{interleave_record_batch, take_record_batch};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{HashMap, Result};

use crate::state::{Part, slices};

/// Seed of the hashes: any, but one.
const SEED: u64 = 0;

/// Slices of all partitions that rows are counted by: where they are more, rows are sorted.
const CELLS: usize = 1 << 16;

/// Parts batches of partial states by their keys. The slice is no key: the slices of a window must meet
/// in one partition.
pub(super) struct Exchange {
    keys: Range<usize>,
    partitions: u64,
    hashes: Vec<u64>,
    /// Whether slices have been too many to count by: they will be again.
    sorts: bool,
}

impl Exchange {
    /// By these columns of a batch, into so many partitions.
    pub(super) fn new(keys: Range<usize>, partitions: usize) -> Self {
        Self {
            keys,
            partitions: partitions as u64,
            hashes: Vec::new(),
            sorts: false,
        }
    }

    /// Hands the rows of batches to their partitions, those of each in order of their first column: a slice's
    /// rows are together then, and in one run.
    pub(super) fn route(
        &mut self,
        batches: &[RecordBatch],
        mut to: impl FnMut(usize, Part) -> Result<()>,
    ) -> Result<()> {
        if self.keys.is_empty() || self.partitions < 2 {
            let mut parts = batches.iter().cloned().map(Part::whole);
            return parts.try_for_each(|part| to(0, part));
        }
        let (ordered, lengths) = match batches {
            [] => return Ok(()),
            [one] => {
                let (rows, lengths) = self.places(batches, |_, row| row as u32)?;
                (take_record_batch(one, &UInt32Array::from(rows))?, lengths)
            }
            many => {
                let (rows, lengths) = self.places(many, |batch, row| (batch, row))?;
                let many: Vec<&RecordBatch> = many.iter().collect();
                (interleave_record_batch(&many, &rows)?, lengths)
            }
        };
        let (bytes, all) = (ordered.get_array_memory_size(), ordered.num_rows().max(1));
        let mut from = 0;
        for (partition, rows) in lengths.into_iter().enumerate() {
            if rows > 0 {
                let batch = ordered.slice(from, rows);
                let bytes = (bytes as u128 * rows as u128 / all as u128) as usize;
                to(partition, Part { batch, bytes })?;
            }
            from += rows;
        }
        Ok(())
    }

    /// Where the rows are, in order of partition and slice and else as they came, and how many each partition has.
    fn places<T: Copy + Default>(
        &mut self,
        batches: &[RecordBatch],
        place: impl Fn(usize, usize) -> T,
    ) -> Result<(Vec<T>, Vec<usize>)> {
        if !self.sorts {
            if let Some(counted) = self.counted(batches)? {
                return Ok(counted.places(batches, place));
            }
            self.sorts = true;
        }
        let of_partition = self.sorted(batches)?;
        let places = of_partition.iter().flatten();
        let places = places.map(|row| place(row.batch, row.row)).collect();
        Ok((places, of_partition.iter().map(Vec::len).collect()))
    }

    /// Counts the rows of every partition and slice; none where slices are too many.
    fn counted(&mut self, batches: &[RecordBatch]) -> Result<Option<Counted>> {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let mut counted = Counted::new(self.partitions as usize, rows);
        for batch in batches {
            self.hash(batch)?;
            let hashes = self.hashes.iter();
            let partitions = hashes.map(|hash| partition_of(*hash, self.partitions));
            if !counted.add(slices(batch)?.values(), partitions) {
                return Ok(None);
            }
        }
        Ok(Some(counted))
    }

    /// The rows of every partition, sorted by slice.
    fn sorted(&mut self, batches: &[RecordBatch]) -> Result<Vec<Vec<Row>>> {
        let mut of_partition = vec![Vec::new(); self.partitions as usize];
        for (number, batch) in batches.iter().enumerate() {
            self.hash(batch)?;
            let slices = slices(batch)?.values();
            for (row, (hash, slice)) in self.hashes.iter().zip(slices).enumerate() {
                if let Some(rows) = of_partition.get_mut(partition_of(*hash, self.partitions)) {
                    rows.push(Row {
                        slice: *slice,
                        batch: number,
                        row,
                    });
                }
            }
        }
        for rows in &mut of_partition {
            if !rows.is_sorted_by_key(|row| row.slice) {
                rows.sort_by_key(|row| row.slice);
            }
        }
        Ok(of_partition)
    }

    /// Hashes the keys of a batch's rows.
    fn hash(&mut self, batch: &RecordBatch) -> Result<()> {
        let keys: &[ArrayRef] = batch.columns().get(self.keys.clone()).unwrap_or_default();
        self.hashes.clear();
        self.hashes.resize(batch.num_rows(), 0);
        create_hashes(keys, &RandomState::with_seed(SEED), &mut self.hashes)?;
        Ok(())
    }
}

/// The partition of a group, by the hash of its keys: by the upper bits of the lower half. A hash table of a
/// partition's groups takes the bits at both ends, and the index of a run goes by the highest ones.
fn partition_of(hash: u64, partitions: u64) -> usize {
    ((u64::from(hash as u32) * partitions) >> 32) as usize
}

/// Rows, counted by slice and partition.
struct Counted {
    partitions: usize,
    /// Of each slice, the cell of its first partition; those of the others follow.
    slices: HashMap<i64, usize>,
    /// Rows of each cell.
    counts: Vec<usize>,
    /// Cell of each row.
    of_rows: Vec<u32>,
}

impl Counted {
    /// Of no rows, with room for so many.
    fn new(partitions: usize, rows: usize) -> Self {
        Self {
            partitions,
            slices: HashMap::default(),
            counts: Vec::new(),
            of_rows: Vec::with_capacity(rows),
        }
    }

    /// Adds rows: their slices and their partitions. False where slices are too many.
    fn add(&mut self, slices: &[i64], partitions: impl Iterator<Item = usize>) -> bool {
        let mut last: Option<(i64, usize)> = None;
        for (slice, partition) in slices.iter().zip(partitions) {
            let first = match last {
                Some((held, first)) if held == *slice => first,
                _ => {
                    let next = self.counts.len();
                    let first = *self.slices.entry(*slice).or_insert(next);
                    if first == next {
                        if next + self.partitions > CELLS {
                            return false;
                        }
                        self.counts.resize(next + self.partitions, 0);
                    }
                    last = Some((*slice, first));
                    first
                }
            };
            let cell = first + partition;
            if let Some(count) = self.counts.get_mut(cell) {
                *count += 1;
            }
            self.of_rows.push(cell as u32);
        }
        true
    }

    /// Where the rows are, in order of partition and slice and else as they came, and how many each partition has.
    fn places<T: Copy + Default>(
        self,
        batches: &[RecordBatch],
        place: impl Fn(usize, usize) -> T,
    ) -> (Vec<T>, Vec<usize>) {
        let mut slices: Vec<(i64, usize)> = self.slices.into_iter().collect();
        slices.sort_unstable();
        // Of each cell, the place of its next row.
        let mut next = self.counts;
        let mut lengths = Vec::with_capacity(self.partitions);
        let mut all = 0;
        for partition in 0..self.partitions {
            let before = all;
            for (_, first) in &slices {
                if let Some(cell) = next.get_mut(first + partition) {
                    let rows = std::mem::replace(cell, all);
                    all += rows;
                }
            }
            lengths.push(all - before);
        }
        let mut places = vec![T::default(); all];
        let mut cells = self.of_rows.iter();
        for (number, batch) in batches.iter().enumerate() {
            for (row, cell) in cells.by_ref().take(batch.num_rows()).enumerate() {
                let Some(at) = next.get_mut(*cell as usize) else {
                    continue;
                };
                if let Some(held) = places.get_mut(*at) {
                    *held = place(number, row);
                }
                *at += 1;
            }
        }
        (places, lengths)
    }
}

/// Where a row is, and its slice.
#[derive(Debug, Clone, Copy)]
struct Row {
    slice: i64,
    batch: usize,
    row: usize,
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

    use datafusion::arrow::array::{AsArray, Int64Array, StringArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;
    use crate::splitmix::SplitMix;

    #[test]
    fn no_batches_are_no_rows() {
        let taken = Exchange::new(1..2, 3).route(&[], |_, _| panic!("there is no row"));
        taken.unwrap();
    }

    #[test]
    fn a_key_is_in_one_partition_and_each_is_in_order_of_slices() {
        let texts: StringArray = (0..500)
            .map(|row| Some(format!("key {}", row % 50)))
            .collect();
        let slices = Int64Array::from_iter_values((0..500).map(|row| row * 7 % 13));
        let columns: [(&str, ArrayRef); 2] =
            [("slice", Arc::new(slices)), ("key", Arc::new(texts))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut seen: HashMap<String, HashSet<usize>> = HashMap::new();
        let mut rows = 0;
        let one = vec![batch.slice(0, 200)];
        for half in [one, vec![batch.slice(200, 100), batch.slice(300, 200)]] {
            let mut exchange = Exchange::new(1..2, 3);
            let taken = exchange.route(&half, |partition, part| {
                let part = part.batch;
                rows += part.num_rows();
                assert!(
                    part.column(0)
                        .as_primitive::<Int64Type>()
                        .values()
                        .is_sorted()
                );
                for key in part.column(1).as_string::<i32>().iter().flatten() {
                    seen.entry(key.to_owned()).or_default().insert(partition);
                }
                Ok(())
            });
            taken.unwrap();
        }
        assert_eq!(rows, 500);
        assert!(seen.values().all(|partitions| partitions.len() == 1));
        let used: HashSet<_> = seen.values().flatten().collect();
        assert_eq!(used.len(), 3);
    }

    fn column(batch: &RecordBatch, at: usize) -> Vec<i64> {
        let column = batch.column(at).as_primitive::<Int64Type>();
        column.values().to_vec()
    }

    /// Batches of so many rows `(slice, key, number of the row)`, with up to so many slices.
    fn drawn(random: &mut SplitMix, lengths: &[usize], most: u64) -> Vec<RecordBatch> {
        let mut numbers = 0_i64..;
        let mut batch = |rows: usize| {
            let slices = (0..rows).map(|_| match random.next() % (most + 1) {
                0 => [i64::MIN, i64::MAX][(random.next() % 2) as usize],
                at => 10 * at as i64 - 100,
            });
            let slices: Vec<i64> = slices.collect();
            let keys: Vec<i64> = (0..rows).map(|_| (random.next() % 40) as i64).collect();
            let numbers: Vec<i64> = numbers.by_ref().take(rows).collect();
            let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
            let columns = [("slice", slices), ("key", keys), ("number", numbers)];
            let columns = columns.map(|(name, values)| (name, column(values)));
            RecordBatch::try_from_iter(columns).unwrap()
        };
        lengths.iter().map(|rows| batch(*rows)).collect()
    }

    /// Numbers of the rows of each partition that has some: all rows, sorted.
    fn model(batches: &[RecordBatch], partitions: usize) -> Vec<(usize, Vec<i64>)> {
        let mut rows = Vec::new();
        for batch in batches {
            let mut hashes = vec![0_u64; batch.num_rows()];
            let keys = &batch.columns()[1..2];
            create_hashes(keys, &RandomState::with_seed(SEED), &mut hashes).unwrap();
            let (slices, numbers) = (column(batch, 0), column(batch, 2));
            for (row, hash) in hashes.into_iter().enumerate() {
                let partition = partition_of(hash, partitions as u64);
                rows.push((partition, slices[row], numbers[row]));
            }
        }
        rows.sort_unstable();
        let parts = rows.chunk_by(|one, other| one.0 == other.0);
        parts
            .map(|rows| (rows[0].0, rows.iter().map(|row| row.2).collect()))
            .collect()
    }

    fn routed(exchange: &mut Exchange, batches: &[RecordBatch]) -> Vec<(usize, Vec<i64>)> {
        let mut parts = Vec::new();
        let taken = exchange.route(batches, |partition, part| {
            parts.push((partition, column(&part.batch, 2)));
            Ok(())
        });
        taken.unwrap();
        parts
    }

    #[test]
    fn rows_come_as_from_a_sort_whether_they_are_counted_or_sorted() {
        let mut random = SplitMix(7);
        let lengths: [&[usize]; 6] = [&[0], &[1], &[300], &[0, 0], &[0, 50, 0, 200, 1], &[90; 9]];
        for partitions in [2, 3, 8, 61, 1 << 15] {
            for most in [1, 4, 200] {
                // Each by a new one, and by one that has seen the others.
                let mut used = Exchange::new(1..2, partitions);
                for lengths in lengths {
                    let batches = drawn(&mut random, lengths, most);
                    let expected = model(&batches, partitions);
                    let mut new = Exchange::new(1..2, partitions);
                    assert_eq!(routed(&mut new, &batches), expected);
                    assert_eq!(routed(&mut used, &batches), expected);
                    let slices = batches.iter().flat_map(|batch| column(batch, 0));
                    let slices = slices.collect::<HashSet<_>>().len();
                    assert_eq!(new.sorts, slices * partitions > CELLS);
                }
                assert_eq!(used.sorts, partitions == 1 << 15);
            }
        }
    }

    #[test]
    fn many_slices_are_sorted() {
        let slices: Vec<i64> = (0..40_000).map(|row| row * 7_919 % 40_009).collect();
        let numbers = Int64Array::from_iter_values(0..40_000);
        let columns: [(&str, ArrayRef); 3] = [
            ("slice", Arc::new(Int64Array::from(slices))),
            ("key", Arc::new(numbers.clone())),
            ("number", Arc::new(numbers)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let batches = [batch.slice(0, 30_000), batch.slice(30_000, 10_000)];
        let mut exchange = Exchange::new(1..2, 2);
        assert_eq!(routed(&mut exchange, &batches), model(&batches, 2));
        assert!(exchange.sorts);
    }

    #[test]
    fn one_partition_has_the_batches_as_they_are() {
        let batches = drawn(&mut SplitMix(11), &[5, 0, 7], 4);
        let numbers = batches.iter().map(|batch| (0_usize, column(batch, 2)));
        let mut exchange = Exchange::new(1..2, 1);
        assert_eq!(routed(&mut exchange, &batches), numbers.collect::<Vec<_>>());
    }

    #[test]
    fn groups_are_spread_evenly_and_their_upper_bits_too() {
        let keys: [ArrayRef; 1] = [Arc::new(Int64Array::from_iter_values(0..8_000))];
        let mut hashes = vec![0_u64; 8_000];
        create_hashes(&keys, &RandomState::with_seed(SEED), &mut hashes).unwrap();
        let (mut groups, mut upper) = ([0; 8], [0; 8]);
        for hash in hashes {
            let partition = partition_of(hash, 8);
            groups[partition] += 1;
            if partition == 0 {
                upper[(hash >> 61) as usize] += 1;
            }
        }
        assert!(groups.iter().all(|rows| (800..1_200).contains(rows)));
        assert!(upper.iter().all(|rows| (80..170).contains(rows)));
    }
}
