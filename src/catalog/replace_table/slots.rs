//! Rows in the order in which they came, of which some are hidden: others have taken their place.
//!
//! Rows lie in slots of no more than [`FULL`] rows. Hiding a row touches its slot alone, and a slot goes with its last
//! row. Two rules keep the slots few, and the hidden rows no more than those that are shown:
//!
//! * When there are many small slots at the end, the newest are written together, by the rule for the parts of a
//!   checkpoint: a row is written again each time the rows double, until its slot is not small any more.
//! * When there are more than twice the rows that are shown, all are written anew. As many rows must be hidden before
//!   that happens again.
//!
//! A clone costs no more than the slots are many, and shows what was shown when it was made.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{BooleanArray, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{BatchCoalescer, filter_record_batch, take_record_batch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;

use crate::checkpoint::together;

/// Rows of a slot at most. One that shows less than half of them is small.
pub(super) const FULL: usize = 8_192;

/// Where a row is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of its slot. Slots are numbered from 1: of number 0 there is none.
    pub slot: u64,
    /// Which of the slot's rows it is.
    pub row: usize,
}

/// Rows, and which of them are shown.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots {
    /// The slots by number: the rows of a later one came later.
    by_number: BTreeMap<u64, Arc<Slot>>,
    /// Number of the last slot that there was.
    last: u64,
    /// Rows in the slots.
    stored: usize,
    /// Those that are shown.
    live: usize,
}

#[derive(Debug, Clone)]
struct Slot {
    rows: RecordBatch,
    /// Number of each row's key.
    keys: Arc<[usize]>,
    /// Whether each row is shown.
    stays: Vec<bool>,
    /// How many are.
    live: usize,
    /// The rows that are shown, once they have been asked for.
    shown: OnceLock<RecordBatch>,
}

impl Slot {
    fn shown(&self) -> Result<RecordBatch> {
        if self.live == self.rows.num_rows() {
            return Ok(self.rows.clone());
        }
        if let Some(shown) = self.shown.get() {
            return Ok(shown.clone());
        }
        let stays = BooleanArray::from(self.stays.clone());
        let shown = filter_record_batch(&self.rows, &stays)?;
        Ok(self.shown.get_or_init(|| shown).clone())
    }
}

impl Slots {
    /// Number of rows that are shown.
    pub(super) fn rows(&self) -> usize {
        self.live
    }

    /// The rows that are shown.
    pub(super) fn batches(&self) -> Result<Vec<RecordBatch>> {
        self.batches_from(0)
    }

    /// Those of the slots from this one on.
    pub(super) fn batches_from(&self, first: u64) -> Result<Vec<RecordBatch>> {
        let slots = self.by_number.range(first..);
        slots.map(|(_, slot)| slot.shown()).collect()
    }

    /// Adds a slot of these rows, given the number of each one's key; returns its number.
    pub(super) fn push(&mut self, rows: RecordBatch, keys: Arc<[usize]>) -> u64 {
        let live = rows.num_rows();
        self.last += 1;
        self.stored += live;
        self.live += live;
        let slot = Slot {
            rows,
            keys,
            stays: vec![true; live],
            live,
            shown: OnceLock::new(),
        };
        self.by_number.insert(self.last, Arc::new(slot));
        self.last
    }

    /// Hides the row at a place, if there is one.
    pub(super) fn hide(&mut self, place: Place) {
        let Some(slot) = self.by_number.get_mut(&place.slot) else {
            return;
        };
        if slot.stays.get(place.row) != Some(&true) {
            return;
        }
        // Who has a clone goes on to see the row.
        let slot = Arc::make_mut(slot);
        if let Some(stays) = slot.stays.get_mut(place.row) {
            *stays = false;
        }
        slot.live -= 1;
        slot.shown = OnceLock::new();
        self.live -= 1;
        if slot.live == 0 {
            self.stored -= slot.rows.num_rows();
            self.by_number.remove(&place.slot);
        }
    }

    /// Number of the slot from which on all are to be written together, if any are. Rows that cannot be
    /// [joined](joins) would only be written in the slots that they are in.
    pub(super) fn untidy(&self, joins: bool) -> Option<u64> {
        if self.stored > 2 * self.live + FULL {
            return self.by_number.keys().next().copied();
        }
        if !joins {
            return None;
        }
        let small = self.by_number.iter().rev();
        let small = small.take_while(|(_, slot)| slot.live < FULL / 2);
        let (mut numbers, mut rows): (Vec<u64>, Vec<u64>) = small
            .map(|(number, slot)| (*number, slot.live as u64))
            .unzip();
        numbers.reverse();
        rows.reverse();
        let (added, rows) = rows.split_last()?;
        let first = together(rows, *added);
        numbers.get(first).copied().filter(|_| first < rows.len())
    }

    /// Takes the slots from this one on away; returns the keys of the rows that they showed.
    pub(super) fn take_from(&mut self, first: u64) -> Vec<usize> {
        let taken = self.by_number.split_off(&first);
        let mut keys = Vec::new();
        for slot in taken.values() {
            self.stored -= slot.rows.num_rows();
            self.live -= slot.live;
            let shown = slot.keys.iter().zip(&slot.stays);
            keys.extend(shown.filter(|(_, stays)| **stays).map(|(key, _)| *key));
        }
        keys
    }
}

/// Rows in batches of no more than a slot has. Batches that are cut are copied: what they are cut from would stay in
/// memory with the last of its rows.
pub(super) fn cut(schema: &SchemaRef, rows: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
    let rows: Vec<&RecordBatch> = rows.iter().filter(|batch| batch.num_rows() > 0).collect();
    if rows.iter().map(|batch| batch.num_rows()).sum::<usize>() <= FULL {
        return Ok(rows.into_iter().cloned().collect());
    }
    let mut copies = Vec::new();
    for batch in rows {
        for first in (0..batch.num_rows()).step_by(FULL) {
            let end = batch.num_rows().min(first + FULL);
            let rows = UInt64Array::from_iter_values(first as u64..end as u64);
            copies.push(take_record_batch(batch, &rows)?);
        }
    }
    Ok(joined(schema, copies))
}

/// The same rows in batches as large as a slot, the last one what is left. Values that do not fit one column stay
/// apart.
pub(super) fn joined(schema: &SchemaRef, batches: Vec<RecordBatch>) -> Vec<RecordBatch> {
    match joins(schema) {
        true => coalesced(schema, &batches).unwrap_or(batches),
        false => batches,
    }
}

/// Whether rows of this schema can be put into one batch.
pub(super) fn joins(schema: &SchemaRef) -> bool {
    let mut types = schema.fields().iter().map(|field| field.data_type());
    types.all(can_be_joined)
}

/// Dictionaries with short keys have no room for the values of others.
fn can_be_joined(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(keys, values) => {
            keys.primitive_width().is_some_and(|width| width >= 4) && can_be_joined(values)
        }
        DataType::RunEndEncoded(_, values)
        | DataType::List(values)
        | DataType::LargeList(values)
        | DataType::ListView(values)
        | DataType::LargeListView(values)
        | DataType::FixedSizeList(values, _)
        | DataType::Map(values, _) => can_be_joined(values.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| can_be_joined(field.data_type())),
        DataType::Union(fields, _) => fields
            .iter()
            .all(|(_, field)| can_be_joined(field.data_type())),
        _ => true,
    }
}

fn coalesced(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    // It makes room for as many rows as a batch may have.
    let mut coalescer = BatchCoalescer::new(Arc::clone(schema), rows.clamp(1, FULL));
    for batch in batches {
        coalescer.push_batch(batch.clone())?;
    }
    coalescer.finish_buffered_batch()?;
    Ok(std::iter::from_fn(|| coalescer.next_completed_batch()).collect())
}

#[cfg(test)]
impl Slots {
    /// Number of the last slot that there was.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// How many slots there are.
    pub(super) fn count(&self) -> usize {
        self.by_number.len()
    }

    /// Rows in all slots, and in those behind this one.
    pub(super) fn stored_behind(&self, slot: u64) -> (usize, usize) {
        let behind = self.by_number.range(slot + 1..);
        let behind = behind.map(|(_, slot)| slot.rows.num_rows()).sum();
        (self.stored, behind)
    }
}
