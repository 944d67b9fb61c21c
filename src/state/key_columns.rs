//! Numbers of keys of several columns that have few values each: every column is numbered by itself, and a table of
//! the columns' numbers gives the key's. Nothing is hashed or compared but single values.
//!
//! ```text
//! columns        their numbers   code    number of the key
//! a  17          0  0            0 00    0
//! b  12          1  1            1 01    1
//! a  12          0  1            0 01    2
//! a  17          0  0            0 00    0
//! ```

use datafusion::arrow::array::{ArrayRef, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;

use super::key_table::places_for;
use super::keys::KeyNumbers;

/// The numbers of keys, from 0 in the order in which they are first seen.
#[derive(Debug)]
pub(super) struct KeyColumns {
    columns: Vec<KeyNumbers>,
    /// Bits that each column's number has in a code, the first column's above the others.
    bits: Vec<u32>,
    /// Number of the key of each code, plus one; 0 where there is none.
    table: Vec<u32>,
    /// Code of each number.
    codes: Vec<u32>,
    /// Of the batch at hand: numbers of each column.
    numbers: Vec<Vec<usize>>,
}

impl KeyColumns {
    /// Of keys in these columns: none where they are not several, or where equal values may have several forms.
    ///
    /// # Errors
    /// - a type that cannot be grouped by
    pub(super) fn try_new(keys: &SchemaRef) -> Result<Option<Self>> {
        let plain = |key: &DataType| key.is_integer() || key.is_string();
        let plain = keys.fields().iter().all(|key| plain(key.data_type()));
        if !plain || keys.fields().len() < 2 {
            return Ok(None);
        }
        let columns = (0..keys.fields().len()).map(|at| {
            let column = keys.project(&[at])?;
            KeyNumbers::try_new(column.into())
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Some(Self {
            bits: vec![0; columns.len()],
            numbers: vec![Vec::new(); columns.len()],
            columns,
            table: Vec::new(),
            codes: Vec::new(),
        }))
    }

    /// How many numbers there are.
    pub(super) fn count(&self) -> usize {
        self.codes.len()
    }

    /// Bytes that the keys take.
    pub(super) fn size(&self) -> usize {
        let columns: usize = self.columns.iter().map(KeyNumbers::size).sum();
        let numbers: usize = self.numbers.iter().map(Vec::capacity).sum();
        columns
            + numbers * size_of::<usize>()
            + (self.table.capacity() + self.codes.capacity()) * size_of::<u32>()
    }

    /// The number of each row's key, in the place of what `into` holds. False where the columns have too many values
    /// for a table: then `into` means nothing, and the known keys still have their numbers.
    ///
    /// # Errors
    /// - the columns are not those of the keys
    pub(super) fn number(
        &mut self,
        keys: &[ArrayRef],
        rows: usize,
        into: &mut Vec<usize>,
    ) -> Result<bool> {
        let mut bits = 0;
        let most = places_for(self.codes.len() + rows).ilog2();
        let columns = self.columns.iter_mut().zip(&mut self.numbers);
        for ((column, numbers), key) in columns.zip(keys) {
            column.number(std::slice::from_ref(key), rows, numbers)?;
            bits += bits_of(column.count());
            if bits > most {
                return Ok(false);
            }
        }
        self.fit();
        self.look_up(rows, into);
        Ok(true)
    }

    /// Makes codes in which every column's numbers have room.
    fn fit(&mut self) {
        let bits: Vec<u32> = self
            .columns
            .iter()
            .map(|one| bits_of(one.count()))
            .collect();
        if bits == self.bits && !self.table.is_empty() {
            return;
        }
        let mut codes = vec![0; self.codes.len()];
        for (column, bits) in bits.iter().enumerate() {
            for (code, number) in codes.iter_mut().zip(self.numbers_of(column)) {
                *code = (*code << bits) | number;
            }
        }
        self.table = vec![0; 1 << bits.iter().sum::<u32>()];
        for (number, code) in (1..).zip(&codes) {
            if let Some(held) = self.table.get_mut(*code as usize) {
                *held = number;
            }
        }
        (self.bits, self.codes) = (bits, codes);
    }

    /// A column's number in each key.
    fn numbers_of(&self, column: usize) -> impl Iterator<Item = u32> + use<'_> {
        let behind: u32 = self.bits.iter().skip(column + 1).sum();
        let mask = self.bits.get(column).map_or(0, |bits| (1 << bits) - 1);
        self.codes.iter().map(move |code| (code >> behind) & mask)
    }

    fn look_up(&mut self, rows: usize, into: &mut Vec<usize>) {
        into.clear();
        into.resize(rows, 0);
        for (numbers, bits) in self.numbers.iter().zip(&self.bits) {
            for (code, number) in into.iter_mut().zip(numbers) {
                *code = (*code << bits) | number;
            }
        }
        for code in into {
            let Some(held) = self.table.get_mut(*code) else {
                continue;
            };
            if *held == 0 {
                // No code is above the greatest number of bits.
                self.codes.push(*code as u32);
                *held = self.codes.len() as u32;
            }
            *code = *held as usize - 1;
        }
    }

    /// Takes the keys out as columns, a row for each number.
    ///
    /// # Errors
    /// - those of DataFusion's groups
    pub(super) fn take(&mut self) -> Result<Vec<ArrayRef>> {
        let numbers = (0..self.columns.len()).map(|column| self.numbers_of(column));
        let numbers: Vec<UInt32Array> = numbers.map(UInt32Array::from_iter_values).collect();
        let mut keys = Vec::new();
        for (column, numbers) in std::mem::take(&mut self.columns).into_iter().zip(numbers) {
            for values in column.finish()? {
                keys.push(take(&values, &numbers, None)?);
            }
        }
        Ok(keys)
    }
}

/// Bits of the numbers of so many values.
fn bits_of(count: usize) -> u32 {
    count.max(1).next_power_of_two().ilog2()
}
