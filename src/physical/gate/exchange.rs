//! Which partition of the gate a group is in: by the hash of its keys.
//!
//! The gate does it by itself, where DataFusion would put a `RepartitionExec` under it: that one hands
//! every batch to a task of another partition over a channel, which costs an epoch of one row more than
//! all the rest, and here every partition's rows end in the same place anyway. Rows are put in order of
//! partition and slice at once, so that they are copied once.

use std::ops::Range;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{interleave_record_batch, take_record_batch};
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};

use crate::state::{Part, slices};

/// Seed of the hashes: any, but one.
const SEED: u64 = 0;

/// Parts batches of partial states by their keys. The slice is no key: the slices of a window must meet
/// in one partition.
pub(super) struct Exchange {
    keys: Range<usize>,
    partitions: u64,
    hashes: Vec<u64>,
}

impl Exchange {
    /// By these columns of a batch, into so many partitions.
    pub(super) fn new(keys: Range<usize>, partitions: usize) -> Self {
        Self {
            keys,
            partitions: partitions as u64,
            hashes: Vec::new(),
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
        let mut of_partition = vec![Vec::new(); self.partitions as usize];
        for (number, batch) in batches.iter().enumerate() {
            self.part(number, batch, &mut of_partition)?;
        }
        for rows in &mut of_partition {
            if !rows.is_sorted_by_key(|row| row.slice) {
                rows.sort_by_key(|row| row.slice);
            }
        }
        let places = of_partition.iter().flatten();
        let ordered = match batches {
            [] => return Ok(()),
            [one] => {
                let rows = UInt32Array::from_iter_values(places.map(|row| row.row as u32));
                take_record_batch(one, &rows)?
            }
            many => {
                let many: Vec<&RecordBatch> = many.iter().collect();
                let rows: Vec<_> = places.map(|row| (row.batch, row.row)).collect();
                interleave_record_batch(&many, &rows)?
            }
        };
        let (bytes, all) = (ordered.get_array_memory_size(), ordered.num_rows().max(1));
        let mut from = 0;
        for (partition, rows) in of_partition.iter().enumerate() {
            if !rows.is_empty() {
                let batch = ordered.slice(from, rows.len());
                let bytes = (bytes as u128 * rows.len() as u128 / all as u128) as usize;
                to(partition, Part { batch, bytes })?;
            }
            from += rows.len();
        }
        Ok(())
    }

    /// Adds the rows of one batch to those of their partitions.
    fn part(
        &mut self,
        number: usize,
        batch: &RecordBatch,
        of_partition: &mut [Vec<Row>],
    ) -> Result<()> {
        let keys: &[ArrayRef] = batch.columns().get(self.keys.clone()).unwrap_or_default();
        self.hashes.clear();
        self.hashes.resize(batch.num_rows(), 0);
        create_hashes(keys, &RandomState::with_seed(SEED), &mut self.hashes)?;
        let slices = slices(batch)?.values();
        for (row, (hash, slice)) in self.hashes.iter().zip(slices).enumerate() {
            // The upper bits: a hash table of the groups takes the lower ones.
            let partition = (hash >> 32) % self.partitions;
            if let Some(rows) = of_partition.get_mut(partition as usize) {
                rows.push(Row {
                    slice: *slice,
                    batch: number,
                    row,
                });
            }
        }
        Ok(())
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
}
