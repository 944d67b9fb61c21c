//! Sets of group keys: which groups an epoch touched, and where they are in the runs of earlier epochs.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{filter_record_batch, take_record_batch};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};

use super::keys::with_one_zero;
use super::runs::Run;

/// A run with more than so many times the touched groups is searched, not read.
const SEARCH: usize = 4;

/// Where the groups of a run are, by the hash of their keys. Hashes are spread evenly: the upper bits of one
/// tell where it is among all, give or take a few. 13 bytes a row.
#[derive(Debug)]
pub(super) struct KeyIndex {
    /// Ascending.
    hashes: Vec<u64>,
    /// Row of each hash.
    rows: Vec<u32>,
    /// Place of the first hash with these upper bits or greater ones.
    first: Vec<u32>,
    /// Bits below the upper ones.
    lower: u32,
}

impl KeyIndex {
    /// Bytes that the index of a row takes.
    pub(super) const ROW_BYTES: usize = 13;

    fn of(run: &RecordBatch, keys: usize) -> Result<Self> {
        let hashes = hashes(run, keys)?;
        let mut order: Vec<(u64, u32)> = hashes.into_iter().zip(0..).collect();
        order.sort_unstable();
        // A place for every four hashes.
        let upper = (order.len() / 4).max(2).ilog2();
        let lower = u64::BITS - upper;
        let mut first = Vec::with_capacity(1 << upper);
        for (place, (hash, _)) in (0_u32..).zip(&order) {
            while first.len() as u64 <= hash >> lower {
                first.push(place);
            }
        }
        let (hashes, rows) = order.into_iter().unzip();
        Ok(Self {
            hashes,
            rows,
            first,
            lower,
        })
    }

    /// Rows whose hash is one of these, in order.
    fn find(&self, hashes: &HashSet<u64>) -> UInt32Array {
        let mut found = Vec::new();
        for hash in hashes {
            // Behind the last upper bits there is nothing.
            let Some(from) = self.first.get((hash >> self.lower) as usize) else {
                continue;
            };
            let held = self.hashes.iter().zip(&self.rows).skip(*from as usize);
            let held = held.skip_while(|(held, _)| *held < hash);
            found.extend(
                held.take_while(|(held, _)| *held == hash)
                    .map(|(_, row)| *row),
            );
        }
        found.sort_unstable();
        UInt32Array::from(found)
    }
}

/// The groups of some runs, by their key columns: those behind the slice.
pub(super) struct Groups {
    keys: usize,
    converter: RowConverter,
    rows: HashSet<OwnedRow>,
    hashes: HashSet<u64>,
}

impl Groups {
    /// The groups of `runs`, whose key columns are the `keys` columns behind the first.
    ///
    /// # Errors
    /// - one of them cannot be read
    pub(super) fn of(
        keys: usize,
        mut runs: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<Option<Self>> {
        let Some(first) = runs.next().transpose()? else {
            return Ok(None);
        };
        let fields = key_columns(&first, keys)
            .into_iter()
            .map(|column| SortField::new(column.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        let (mut rows, mut all) = (HashSet::new(), HashSet::new());
        for run in std::iter::once(Ok(first)).chain(runs) {
            let run = run?;
            let converted = converter.convert_columns(&key_columns(&run, keys))?;
            rows.extend(converted.iter().map(|row| row.owned()));
            all.extend(hashes(&run, keys)?);
        }
        Ok(Some(Self {
            keys,
            converter,
            rows,
            hashes: all,
        }))
    }

    /// The rows of a run whose group is one of these. Its cost follows the groups sought, not those held; a run
    /// on disk is read.
    ///
    /// # Errors
    /// - it cannot be read
    pub(super) fn of_run(&self, run: &Run) -> Result<RecordBatch> {
        if self.keys == 0 {
            return run.load();
        }
        let Some(batch) = run.in_memory() else {
            return self.exactly(&run.load()?);
        };
        if batch.num_rows() / SEARCH < self.rows.len() {
            return self.exactly(batch);
        }
        let index = match run.index.get() {
            Some(index) => index,
            None => {
                let made = KeyIndex::of(batch, self.keys)?;
                run.index.get_or_init(|| made)
            }
        };
        // Groups of one hash need not be one group.
        self.exactly(&take_record_batch(batch, &index.find(&self.hashes))?)
    }

    fn exactly(&self, run: &RecordBatch) -> Result<RecordBatch> {
        let converted = self
            .converter
            .convert_columns(&key_columns(run, self.keys))?;
        let mask: BooleanArray = converted
            .iter()
            .map(|row| Some(self.rows.contains(&row.owned())))
            .collect();
        Ok(filter_record_batch(run, &mask)?)
    }
}

fn key_columns(run: &RecordBatch, keys: usize) -> Vec<ArrayRef> {
    let keys = run.columns().iter().skip(1).take(keys).map(Arc::clone);
    with_one_zero(&keys.collect::<Vec<_>>())
}

fn hashes(run: &RecordBatch, keys: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0; run.num_rows()];
    create_hashes(
        key_columns(run, keys),
        &RandomState::with_seed(0),
        &mut hashes,
    )?;
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Float64Array, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn run(keys: Vec<f64>) -> Run {
        let rows = keys.len() as i64;
        let columns: [(&str, ArrayRef); 3] = [
            ("slice", Arc::new(Int64Array::from_value(0, keys.len()))),
            ("key", Arc::new(Float64Array::from(keys))),
            ("row", Arc::new(Int64Array::from_iter_values(0..rows))),
        ];
        Run::whole(RecordBatch::try_from_iter(columns).unwrap())
    }

    fn found(groups: &Groups, run: &Run) -> Vec<i64> {
        let rows = groups.of_run(run).unwrap();
        rows.column(2).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn groups_are_found_by_search_and_by_reading() {
        let touched = run(vec![3.0, 700.0, 5_000.0, 0.0]);
        let groups = Groups::of(1, [touched.load()].into_iter())
            .unwrap()
            .unwrap();
        let large = run((0..1_000).map(f64::from).collect());
        assert_eq!(found(&groups, &large), [0, 3, 700]);
        assert_eq!(found(&groups, &large), [0, 3, 700]);
        let small = run(vec![3.0, 4.0, 3.0]);
        assert_eq!(found(&groups, &small), [0, 2]);
    }

    #[test]
    fn both_zeros_are_one_group() {
        let touched = run(vec![-0.0]);
        let groups = Groups::of(1, [touched.load()].into_iter())
            .unwrap()
            .unwrap();
        assert_eq!(found(&groups, &run(vec![1.0, 0.0])), [1]);
        assert_eq!(found(&groups, &run((0..100).map(f64::from).collect())), [0]);
    }
}
