//! Keys that have been seen, until the watermark forgets them.
//!
//! Of the rows of one key only the first gets through. Within one epoch "first" cannot mean the order of
//! arrival, which partitions do not keep: it is the row with the least event time, and among those the
//! least row. A key is held until the watermark reaches its *expiry*, the event time of the row that got
//! through plus what the query allows; after that the key is new again.
//!
//! Invariants: keys of a failed epoch are never held; every held key has an expiry above the watermark
//! of the last epoch.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt64Array,
};
use datafusion::arrow::compute::{cast, concat_batches, filter_record_batch, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::runtime_env::RuntimeEnv;

use super::counts::{Fates, OperatorCounts, Turnover};
use super::epoch::Epoch;
use super::keys::with_one_zero;
use super::memory::StateMemory;
use crate::checkpoint::{Piece, Until, Whole};
use crate::time::Closed;

/// Rows of one batch that may be first: their keys, event times in ticks, and the columns that get through.
#[derive(Debug)]
pub struct Candidates {
    /// Key columns.
    pub keys: Vec<ArrayRef>,
    /// Event times, none null.
    pub times: Int64Array,
    /// What gets through of a row.
    pub rows: RecordBatch,
}

/// State of one deduplication.
#[derive(Debug)]
pub struct DedupState {
    key_types: Vec<DataType>,
    /// The one that made all the keys: another could not read them.
    converter: RowConverter,
    partitions: Mutex<Vec<Arc<Mutex<Partition>>>>,
    fates: Mutex<Fates>,
    memory: StateMemory,
    turn: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Partition {
    seen: HashSet<OwnedRow>,
    /// Held keys by their expiry.
    expiries: BTreeMap<i64, Vec<OwnedRow>>,
    /// Keys that the running epoch lets through, with their expiry.
    fresh: Vec<(OwnedRow, i64)>,
    /// Rows that it lets through.
    out: Vec<RecordBatch>,
    absorbed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DedupState {
    /// No keys yet, of these types.
    ///
    /// # Errors
    /// - keys of a type that has no order
    pub fn try_new(
        name: impl Into<String>,
        key_types: Vec<DataType>,
        turn: Arc<AtomicU64>,
    ) -> Result<Self> {
        let fields = key_types.iter().cloned().map(SortField::new);
        Ok(Self {
            memory: StateMemory::new(
                name,
                "for its keys, which stay in memory; shorten the delay",
            ),
            converter: RowConverter::new(fields.collect())?,
            key_types,
            partitions: Mutex::default(),
            fates: Mutex::default(),
            turn,
        })
    }

    fn partition(&self, index: usize) -> Arc<Mutex<Partition>> {
        let mut partitions = lock(&self.partitions);
        while partitions.len() <= index {
            partitions.push(Arc::default());
        }
        Arc::clone(&partitions[index])
    }

    /// How many partitions hold state.
    pub fn partitions(&self) -> usize {
        lock(&self.partitions).len()
    }

    /// Whether the epoch's rows of a partition have come in.
    pub fn absorbed(&self, partition: usize) -> bool {
        lock(&self.partition(partition)).absorbed
    }

    /// Takes in all rows of a partition of the running epoch: those that are first of their key come out
    /// of [`release`](Self::release). A key expires `hold` ticks after the event time of its row.
    ///
    /// # Errors
    /// - the memory pool has no room for the keys
    /// - the epoch was undone
    pub fn absorb(
        &self,
        partition: usize,
        schema: &SchemaRef,
        candidates: &[Candidates],
        hold: i64,
        epoch: &Epoch,
        runtime: &RuntimeEnv,
    ) -> Result<()> {
        let held = self.partition(partition);
        let first = first_of_keys(&self.converter, candidates, &lock(&held).seen)?;
        let bytes = first.iter().map(|(key, ..)| key_bytes(key)).sum();
        epoch.state.reserve(&self.memory, bytes, runtime)?;
        let mut held = lock(&held);
        if epoch.turn() != self.turn.load(Ordering::SeqCst) {
            self.memory.free(bytes);
            return exec_err!("the epoch was given up");
        }
        let batches: Vec<&RecordBatch> = candidates
            .iter()
            .map(|candidates| &candidates.rows)
            .collect();
        let all = concat_batches(schema, batches)?;
        let places: UInt64Array = first.iter().map(|(_, _, place)| *place).collect();
        held.out = vec![take_record_batch(&all, &places)?];
        held.fresh = first
            .into_iter()
            .map(|(key, time, _)| (key, time.saturating_add(hold)))
            .collect();
        held.absorbed = true;
        Ok(())
    }

    /// Notes the fates of rows.
    pub fn note(&self, fates: Fates, epoch: u64) {
        if epoch == self.turn.load(Ordering::SeqCst) {
            lock(&self.fates).add(fates);
        }
    }

    /// The rows that a partition lets through.
    pub fn release(&self, partition: usize) -> Vec<RecordBatch> {
        lock(&self.partition(partition)).out.clone()
    }

    /// Ends the epoch: fresh keys are held, expired ones forgotten.
    pub fn commit(&self, closed: Closed) -> OperatorCounts {
        let mut freed = 0;
        let (mut keys, mut added, mut removed) = (0, 0, 0);
        let partitions: Vec<_> = lock(&self.partitions).clone();
        for partition in partitions {
            let mut partition = lock(&partition);
            partition.absorbed = false;
            partition.out.clear();
            for (key, expiry) in std::mem::take(&mut partition.fresh) {
                added += 1;
                partition.seen.insert(key.clone());
                partition.expiries.entry(expiry).or_default().push(key);
            }
            while let Some(first) = partition
                .expiries
                .first_entry()
                .filter(|first| closed.contains(*first.key()))
            {
                for key in first.remove() {
                    removed += 1;
                    freed += key_bytes(&key);
                    partition.seen.remove(&key);
                }
            }
            keys += partition.seen.len() as u64;
        }
        self.memory.free(freed);
        let bytes = self.memory.bytes() as u64;
        OperatorCounts {
            turnover: Turnover {
                fates: std::mem::take(&mut lock(&self.fates)),
                added,
                removed,
            },
            groups: keys,
            bytes,
            ..OperatorCounts::default()
        }
    }

    /// Undoes the running epoch.
    pub fn abort(&self) {
        for partition in lock(&self.partitions).iter() {
            let mut partition = lock(partition);
            partition.out.clear();
            let fresh = std::mem::take(&mut partition.fresh);
            self.memory
                .free(fresh.iter().map(|(key, _)| key_bytes(key)).sum());
            partition.absorbed = false;
        }
        *lock(&self.fates) = Fates::default();
    }

    /// Keys as columns of their types.
    fn columns_of(&self, keys: &[OwnedRow]) -> Result<Vec<ArrayRef>> {
        let columns = self
            .converter
            .convert_rows(keys.iter().map(OwnedRow::row))?;
        // What was a dictionary comes back as its values.
        let columns = columns
            .iter()
            .zip(&self.key_types)
            .map(|(column, wanted)| Ok(cast(column, wanted)?));
        columns.collect()
    }

    /// All held keys with their expiries.
    fn held(&self) -> (Vec<OwnedRow>, Vec<i64>) {
        let mut keys = Vec::new();
        let mut expiries = Vec::new();
        for partition in lock(&self.partitions).iter() {
            for (expiry, held) in &lock(partition).expiries {
                expiries.extend(std::iter::repeat_n(*expiry, held.len()));
                keys.extend(held.iter().cloned());
            }
        }
        (keys, expiries)
    }

    /// Takes all keys out as columns, with their expiries: to be put in again by other partitions.
    ///
    /// # Errors
    /// - none of its own: the keys were made by the same converter
    pub fn take_all(&self) -> Result<(Vec<ArrayRef>, Int64Array)> {
        let (keys, expiries) = self.held();
        let columns = self.columns_of(&keys)?;
        lock(&self.partitions).clear();
        Ok((columns, expiries.into()))
    }

    /// Keys as rows of a checkpoint: the expiry, then the key's columns. None where there are none.
    fn saved(&self, keys: &[OwnedRow], expiries: Vec<i64>) -> Result<Vec<RecordBatch>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut columns = vec![Arc::new(Int64Array::from(expiries)) as ArrayRef];
        columns.extend(self.columns_of(keys)?);
        let fields = columns.iter().enumerate();
        let fields: Vec<Field> = fields
            .map(|(at, column)| Field::new(at.to_string(), column.data_type().clone(), true))
            .collect();
        Ok(vec![RecordBatch::try_new(
            Arc::new(Schema::new(fields)),
            columns,
        )?])
    }

    /// The keys that the running epoch adds, as rows of a checkpoint; asked for before it commits.
    ///
    /// # Errors
    /// - none of its own: the keys were made by the same converter
    pub fn added(&self) -> Result<Vec<RecordBatch>> {
        let (mut keys, mut expiries) = (Vec::new(), Vec::new());
        for partition in lock(&self.partitions).iter() {
            for (key, expiry) in &lock(partition).fresh {
                keys.push(key.clone());
                expiries.push(*expiry);
            }
        }
        self.saved(&keys, expiries)
    }

    /// The piece of a checkpoint, once the epoch has committed: keys leave when `closed` has them.
    pub fn piece(self: &Arc<Self>, name: &str, added: Vec<RecordBatch>, closed: Closed) -> Piece {
        let state = Arc::clone(self);
        let mut piece = Piece::new(name, added);
        piece.until = Some(Until {
            column: 0,
            gone: Box::new(move |expiry| closed.contains(expiry)),
        });
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let rows = partitions
            .iter()
            .map(|partition| lock(partition).seen.len() as u64)
            .sum();
        piece.whole = Some(Whole {
            rows,
            all: Box::new(move || {
                let (keys, expiries) = state.held();
                state.saved(&keys, expiries)
            }),
        });
        piece
    }

    /// Takes the rows of [`piece`](Self::piece) in again, into one partition, but for keys that have expired.
    ///
    /// # Errors
    /// - columns of other types than the keys have
    pub fn restore(&self, rows: &[RecordBatch], closed: Closed) -> Result<()> {
        lock(&self.partitions).clear();
        let mut bytes = 0;
        for batch in rows {
            let (Some(expiries), Some(_)) = (batch.columns().first(), batch.columns().get(1))
            else {
                return internal_err!("a saved key has an expiry and columns");
            };
            let Some(expiries) = expiries.as_primitive_opt::<Int64Type>() else {
                return internal_err!("a saved key begins with its expiry");
            };
            let held: BooleanArray = expiries
                .iter()
                .map(|at| at.map(|at| !closed.contains(at)))
                .collect();
            let batch = filter_record_batch(batch, &held)?;
            let (expiries, keys) = batch.columns().split_at(1);
            if let Some(expiries) = expiries.first() {
                let keys: Vec<ArrayRef> = keys.to_vec();
                bytes += self.put(0, &keys, expiries.as_primitive())?;
            }
        }
        self.memory.change(self.memory.bytes(), bytes);
        Ok(())
    }

    /// Puts keys of earlier epochs into a partition; returns the memory that they take.
    ///
    /// # Errors
    /// - columns of other types than the keys have
    pub fn put(&self, partition: usize, keys: &[ArrayRef], expiries: &Int64Array) -> Result<usize> {
        let rows = self.converter.convert_columns(keys)?;
        let partition = self.partition(partition);
        let mut partition = lock(&partition);
        let mut bytes = 0;
        for (row, expiry) in rows.iter().zip(expiries.values()) {
            bytes += key_bytes(&row.owned());
            partition.seen.insert(row.owned());
            partition
                .expiries
                .entry(*expiry)
                .or_default()
                .push(row.owned());
        }
        Ok(bytes)
    }
}

/// Memory that a held key takes: twice its bytes, and the entries of the two maps.
fn key_bytes(key: &OwnedRow) -> usize {
    2 * (key.row().data().len() + 48)
}

/// For each key that is not held its first row: key, event time, and place among all rows. Sorted by
/// place, so that rows come out in the order in which they came in.
fn first_of_keys(
    converter: &RowConverter,
    candidates: &[Candidates],
    seen: &HashSet<OwnedRow>,
) -> Result<Vec<(OwnedRow, i64, u64)>> {
    let mut first: HashMap<OwnedRow, (i64, OwnedRow, u64)> = HashMap::new();
    let mut place = 0;
    for batch in candidates {
        let keys = converter.convert_columns(&with_one_zero(&batch.keys))?;
        let fields = batch
            .rows
            .schema()
            .fields()
            .iter()
            .map(|field| SortField::new(field.data_type().clone()))
            .collect();
        let rows = RowConverter::new(fields)?.convert_columns(batch.rows.columns())?;
        for row in 0..batch.times.len() {
            let key = keys.row(row).owned();
            if !seen.contains(&key) {
                let this = (batch.times.value(row), rows.row(row).owned(), place);
                first
                    .entry(key)
                    .and_modify(|known| {
                        if (this.0, this.1.row()) < (known.0, known.1.row()) {
                            known.clone_from(&this);
                        }
                    })
                    .or_insert(this);
            }
            place += 1;
        }
    }
    let mut first: Vec<_> = first
        .into_iter()
        .map(|(key, (time, _, place))| (key, time, place))
        .collect();
    first.sort_unstable_by_key(|(.., place)| *place);
    Ok(first)
}
