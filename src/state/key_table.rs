//! Numbers of integer keys that lie close together, in a table: a key's distance to the base is its place, and no
//! key is hashed or compared.
//!
//! ```text
//! base 100      key   100  101  102  103  104        keys 103, 100, 104
//!            number  |  1 |  - |  - |  0 |  2 |
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array};

use super::dense::extent;

/// Places that a table may have, 1 MiB.
const MOST: u64 = 1 << 18;

/// Places that it may have for each key or row, so that few keys do not take much memory.
const PLACES_A_KEY: u64 = 16;

/// Places that it may have however few keys there are.
const FEW: u64 = 4_096;

/// Places that a table of so many keys and rows may have.
pub(super) fn places_for(rows: usize) -> u64 {
    MOST.min(FEW.max(PLACES_A_KEY.saturating_mul(rows as u64)))
}

/// The numbers of integer keys, from 0 in the order in which they are first seen.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    /// The key at place 0.
    base: i64,
    /// Number of the key at each place, plus one; 0 where there is none.
    table: Vec<u32>,
    /// Key of each number.
    keys: Vec<i64>,
}

impl KeyTable {
    /// How many numbers there are.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Bytes that the keys take.
    pub(super) fn size(&self) -> usize {
        self.table.capacity() * size_of::<u32>() + self.keys.capacity() * size_of::<i64>()
    }

    /// The number of each key, in the place of what `into` holds. False where there are nulls, or keys too far
    /// apart for a table: then `into` means nothing, and the known keys still have their numbers.
    pub(super) fn number(&mut self, keys: &Int64Array, into: &mut Vec<usize>) -> bool {
        if keys.null_count() > 0 {
            return false;
        }
        let keys = keys.values();
        let found = !self.table.is_empty() && self.look_up(keys, into);
        found || (self.grow(keys) && self.look_up(keys, into))
    }

    /// The number of each key; a new one gets the next. False where a key has no place: new ones behind it wait,
    /// for it has to have its number first.
    fn look_up(&mut self, keys: &[i64], into: &mut Vec<usize>) -> bool {
        let (base, table, known) = (self.base, self.table.as_mut_slice(), &mut self.keys);
        let mut found = true;
        into.clear();
        into.extend(
            keys.iter()
                .map(|key| match table.get_mut(place(base, *key)) {
                    Some(number) if *number > 0 => *number as usize - 1,
                    Some(number) if found => {
                        known.push(*key);
                        *number = known.len() as u32;
                        known.len() - 1
                    }
                    _ => {
                        found = false;
                        0
                    }
                }),
        );
        found
    }

    /// Makes a table with a place for the known keys and these; false where it would be too large.
    fn grow(&mut self, keys: &[i64]) -> bool {
        let Some((mut least, mut greatest)) = extent(keys) else {
            return true;
        };
        if let Some(known) = extent(&self.keys) {
            (least, greatest) = (least.min(known.0), greatest.max(known.1));
        }
        let span = greatest.abs_diff(least).saturating_add(1);
        if span > places_for(self.keys.len() + keys.len()) {
            return false;
        }
        // Keys that have left a table may go on as they do: half as much again on both sides.
        let room = match self.table.is_empty() {
            true => 0,
            false => span.min(MOST - span),
        };
        self.base = least.saturating_sub_unsigned(room / 2);
        // The table ends with the type: where distances wrap, a key below the base would be in it.
        let behind_base = i64::MAX.abs_diff(self.base).saturating_add(1);
        self.table = vec![0; (span + room).min(behind_base) as usize];
        for (number, key) in (1..).zip(&self.keys) {
            if let Some(held) = self.table.get_mut(place(self.base, *key)) {
                *held = number;
            }
        }
        true
    }

    /// Takes the keys out as a column, a row for each number.
    pub(super) fn take(&mut self) -> ArrayRef {
        let Self { keys, .. } = std::mem::take(self);
        Arc::new(Int64Array::from(keys))
    }
}

/// The place of a key in a table of this base; none that a table has where the key is below it.
#[inline]
fn place(base: i64, key: i64) -> usize {
    let distance = key.wrapping_sub(base).cast_unsigned();
    usize::try_from(distance).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    /// The numbers of keys, if the table takes them.
    fn numbers(table: &mut KeyTable, keys: &[i64]) -> Option<Vec<usize>> {
        let mut numbers = vec![7; 3];
        let keys = Int64Array::from(keys.to_vec());
        table.number(&keys, &mut numbers).then_some(numbers)
    }

    fn taken(mut table: KeyTable) -> Vec<i64> {
        table.take().as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn numbers_stay_when_the_table_grows_below_and_above() {
        let mut table = KeyTable::default();
        assert_eq!(numbers(&mut table, &[]), Some(vec![]));
        assert_eq!(numbers(&mut table, &[5, 3, 5]), Some(vec![0, 1, 0]));
        assert_eq!(table.table.len(), 3);
        // The second key has a place already, and comes behind one that has none.
        assert_eq!(numbers(&mut table, &[900, 4, 3]), Some(vec![2, 3, 1]));
        assert_eq!(numbers(&mut table, &[-900, 900]), Some(vec![4, 2]));
        let places = table.table.len();
        assert_eq!(numbers(&mut table, &[1_000, -1_000]), Some(vec![5, 6]));
        assert_eq!(table.table.len(), places);
        assert_eq!(table.count(), 7);
        assert!(table.size() >= 4 * places + 8 * 7);
        assert_eq!(taken(table), [5, 3, 900, 4, -900, 1_000, -1_000]);
    }

    #[test]
    fn keys_too_far_apart_are_not_taken_and_change_no_number() {
        let mut table = KeyTable::default();
        assert_eq!(numbers(&mut table, &[0, 4_096]), None);
        assert_eq!(numbers(&mut table, &[0, 4_095]), Some(vec![0, 1]));
        assert_eq!(numbers(&mut table, &[-1, 4_095]), None);
        assert_eq!(numbers(&mut table, &[i64::MIN, i64::MAX]), None);
        assert_eq!(taken(table), [0, 4_095]);
        // More keys have more places, up to a bound.
        let many: Vec<i64> = (0..MOST as i64).collect();
        let mut table = KeyTable::default();
        assert!(numbers(&mut table, &many).is_some());
        assert_eq!(numbers(&mut table, &[MOST as i64]), None);
        assert_eq!(table.count() as u64, MOST);
        // A null has no place.
        let mut table = KeyTable::default();
        let keys = Int64Array::from(vec![Some(1), None]);
        assert!(!table.number(&keys, &mut Vec::new()));
    }

    #[test]
    fn keys_at_the_limits_of_the_type_have_places() {
        for (first, second, other) in [
            (i64::MAX - 3, i64::MAX, i64::MIN),
            (i64::MIN + 3, i64::MIN, i64::MAX),
        ] {
            let mut table = KeyTable::default();
            assert_eq!(numbers(&mut table, &[first]), Some(vec![0]));
            assert_eq!(numbers(&mut table, &[second, first]), Some(vec![1, 0]));
            let nearer = first.midpoint(second);
            assert_eq!(numbers(&mut table, &[nearer, second]), Some(vec![2, 1]));
            assert_eq!(numbers(&mut table, &[second, other]), None);
            assert_eq!(taken(table), [first, second, nearer]);
        }
    }
}
