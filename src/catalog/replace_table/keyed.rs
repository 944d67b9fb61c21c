//! Rows of which there is one of each key: a later one takes the place of the one before, and stands at the end.
//!
//! A key has a number for good. The table of keys leads to the number, the number to the row's place, and a slot's row
//! to its number: what is written together gets other places without a look at its keys.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{HashMap, Result};

use super::keys::{Key, Keys};
use super::slots::{Place, Slots, cut, joined, joins};

/// Rows that are ready to be added: no more than a slot has, and their keys.
#[derive(Debug)]
pub(super) struct Ready {
    rows: RecordBatch,
    keys: Keys,
}

impl Ready {
    /// Makes the rows of an epoch ready.
    ///
    /// # Errors
    /// - keys that cannot be compared
    pub(super) fn of(schema: &SchemaRef, rows: &[RecordBatch], key: &Key) -> Result<Vec<Self>> {
        let ready = cut(schema, rows)?.into_iter().map(|rows| {
            let keys = key.of(&rows)?;
            Ok(Self { rows, keys })
        });
        ready.collect()
    }
}

/// Rows by key.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    /// Number of each key.
    numbers: HashMap<Box<[u8]>, usize>,
    /// Where the row of each key is, by the key's number.
    places: Vec<Place>,
    slots: Slots,
}

impl Keyed {
    /// Adds the rows of an epoch. Of two with one key the later one counts.
    ///
    /// # Errors
    /// - none of its own
    pub(super) fn add(&mut self, schema: &SchemaRef, rows: Vec<Ready>) -> Result<()> {
        for Ready { rows, keys } in rows {
            let numbers: Vec<usize> = keys.iter().map(|key| self.number(key)).collect();
            self.put(rows, numbers);
        }
        match self.slots.untidy(joins(schema)) {
            Some(first) => self.write_together(schema, first),
            None => Ok(()),
        }
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.slots.rows()
    }

    /// The rows as they are, to look at without a lock.
    pub(super) fn snapshot(&self) -> Slots {
        self.slots.clone()
    }

    /// The same without the rows of some keys.
    pub(super) fn without(&self, keys: &[Keys]) -> Slots {
        let mut slots = self.slots.clone();
        for key in keys.iter().flat_map(|keys| keys.iter()) {
            let place = self.numbers.get(key).and_then(|at| self.places.get(*at));
            if let Some(place) = place {
                slots.hide(*place);
            }
        }
        slots
    }

    /// The number of a key; a new one gets the next.
    fn number(&mut self, key: &[u8]) -> usize {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = self.places.len();
        self.numbers.insert(Box::from(key), number);
        // It has no row yet.
        self.places.push(Place::default());
        number
    }

    /// Puts rows at the end, and hides those in whose place they are.
    fn put(&mut self, rows: RecordBatch, numbers: Vec<usize>) {
        let numbers: Arc<[usize]> = numbers.into();
        let slot = self.slots.push(rows, Arc::clone(&numbers));
        for (row, number) in numbers.iter().enumerate() {
            if let Some(place) = self.places.get_mut(*number) {
                let before = std::mem::replace(place, Place { slot, row });
                self.slots.hide(before);
            }
        }
    }

    /// Writes the slots from this one on together.
    fn write_together(&mut self, schema: &SchemaRef, first: u64) -> Result<()> {
        let batches = joined(schema, self.slots.batches_from(first)?);
        let mut numbers = self.slots.take_from(first).into_iter();
        for rows in batches {
            let numbers = numbers.by_ref().take(rows.num_rows()).collect();
            self.put(rows, numbers);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
