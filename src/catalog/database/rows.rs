//! The rows of a table on disk: Parquet files, each of one or more INSERTs. A table with a column that Parquet has no
//! form for, such as an interval of months and nanoseconds, has Arrow IPC files instead.
//!
//! The name of a file says which rows it has and what its bytes are: `<first>-<end>-<crc32>.parquet` (or `.arrow`),
//! two numbers of rows in 20 digits and a checksum in 8. Where rows go by the time at which they arrived, that of the
//! newest row follows: `<first>-<end>-<crc32>-<arrived>.parquet`, milliseconds since 1970 in 13 digits. A file is
//! published before its rows are visible. When files have become many, the newest are written together as one, and
//! removed after that: of files with the same rows the longest counts. Rows that go by their age are only written
//! together if they arrived in the same eighth of the time for which they are kept.
//!
//! Rows are removed with the files that they are in, from the oldest on. Before that an empty file `<first>.first` is
//! published, which says the number of the first row that is kept: files with none from there on count for nothing,
//! and the numbers of rows go on from there when no file is left.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::arrow::array::{RecordBatch, new_null_array};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;

use crate::checkpoint::{damaged, disk_failed, rows_from_bytes, rows_to_bytes, together};
use crate::disk::{Disk, Doubts, TEMP_PREFIX, publish};
use crate::source::{Arrivals, Keep};

/// A file has rows of no more than this part of the time for which rows are kept, and goes so much later at most.
const SPANS: u128 = 8;

/// What the name of the file ends with that says which row is the first.
const FIRST: &str = ".first";

/// The rows of one table.
pub struct KeptRows {
    disk: Arc<dyn Disk>,
    /// Files of the database that may not be durable.
    doubts: Arc<Doubts>,
    folder: String,
    files: Mutex<Files>,
    /// Where rows go by their age: rows of one file arrived in one span of so many milliseconds, counted from 1970.
    span: Option<i64>,
    /// Names of files that could not be published, and may be in place all the same.
    failed: Mutex<Vec<String>>,
}

/// The files of a table.
#[derive(Debug, Default)]
struct Files {
    /// In the order of their rows, without a gap.
    parts: Vec<Part>,
    /// Number of the first row that is kept, or of the next row if there are no files.
    first: u64,
}

/// Names of files in a folder.
#[derive(Debug, Default)]
struct Found {
    parts: Vec<Part>,
    /// Numbers that were published as that of the first row.
    first: BTreeSet<u64>,
}

/// A file, and which rows it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    first: u64,
    end: u64,
    crc32: u32,
    /// When its newest row arrived, if its name says so.
    arrived: Option<i64>,
    /// Whether it is Parquet; else it is an Arrow IPC stream.
    parquet: bool,
}

impl Part {
    fn name(self) -> String {
        let ending = if self.parquet { "parquet" } else { "arrow" };
        let arrived = self.arrived.map(|arrived| format!("-{arrived:013}"));
        format!(
            "{:020}-{:020}-{:08x}{}.{ending}",
            self.first,
            self.end,
            self.crc32,
            arrived.unwrap_or_default()
        )
    }

    fn named(name: &str) -> Option<Self> {
        let (fields, ending) = name.split_once('.')?;
        let mut fields = fields.split('-');
        let part = Self {
            first: fields.next()?.parse().ok()?,
            end: fields.next()?.parse().ok()?,
            crc32: u32::from_str_radix(fields.next()?, 16).ok()?,
            arrived: match fields.next() {
                Some(arrived) => Some(arrived.parse().ok()?),
                None => None,
            },
            parquet: ending == "parquet",
        };
        (part.name() == name && part.first < part.end).then_some(part)
    }
}

impl fmt::Debug for KeptRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptRows")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl KeptRows {
    /// Rows of a new table; the folder is there.
    pub(super) fn new(disk: Arc<dyn Disk>, doubts: Arc<Doubts>, folder: String) -> Self {
        Self {
            disk,
            doubts,
            folder,
            files: Mutex::default(),
            span: None,
            failed: Mutex::default(),
        }
    }

    /// The rows of a table that are kept for so long, if not for good.
    #[must_use]
    pub fn retained(mut self, retain: Option<Duration>) -> Self {
        let span = |retain: Duration| retain.as_millis().div_ceil(SPANS).max(1);
        self.span = retain.map(|retain| i64::try_from(span(retain)).unwrap_or(i64::MAX));
        self
    }

    /// Whether rows that arrived then may be in one file.
    fn go_together(&self, one: Option<i64>, other: Option<i64>) -> bool {
        let Some(span) = self.span else {
            return true;
        };
        let spans = one.zip(other);
        spans.is_some_and(|(one, other)| one.div_euclid(span) == other.div_euclid(span))
    }

    /// All rows that a folder has. Nothing goes before what counts is durable: on a full disk everything stays.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        doubts: Arc<Doubts>,
        folder: String,
    ) -> Result<(Self, Vec<RecordBatch>)> {
        let opened = Self::new(disk, doubts, folder);
        let found = opened.found()?;
        let first = found.first.last().copied().unwrap_or_default();
        let (parts, others) = in_order(found.parts, first).map_err(|row| {
            damaged(
                &opened.folder,
                format!("lacks the file that begins with row {row}"),
            )
        })?;
        let mut rows = Vec::new();
        for part in &parts {
            rows.extend(opened.read(*part)?);
        }
        if let Some(first) = found.first.last() {
            opened.make_durable(&name_of_first(*first), &[])?;
        }
        if let Some(last) = parts.last() {
            opened.make_durable(&last.name(), &opened.bytes(*last)?)?;
        }
        if !opened.doubts.are_in(&opened.folder) {
            others.iter().for_each(|other| opened.forget(&other.name()));
            let former = found.first.iter().filter(|row| **row < first);
            former.for_each(|row| opened.forget(&name_of_first(*row)));
        }
        let first = parts.first().map_or(first, |part| part.first);
        *opened.files() = Files { parts, first };
        Ok((opened, rows))
    }

    /// The files that there are. What a crash left half written is removed.
    fn found(&self) -> Result<Found> {
        let _alone = self.doubts.alone();
        let list = self.disk.list(&self.folder);
        let mut found = Found::default();
        for entry in list.map_err(|error| disk_failed(&self.folder, &error))? {
            match Part::named(&entry.name) {
                Some(part) => found.parts.push(part),
                None if entry.name.starts_with(TEMP_PREFIX) => self.forget(&entry.name),
                None => found.first.extend(first_of_name(&entry.name)),
            }
        }
        Ok(found)
    }

    /// Number of the first row that is kept, or of the next row if none is.
    pub fn first(&self) -> u64 {
        self.files().first
    }

    /// When its rows arrived, as far as the names of files say it.
    pub fn arrivals(&self) -> Arrivals {
        let files = self.files();
        let pieces = files.parts.iter().map(|part| (part.end, part.arrived));
        Arrivals::new(pieces.collect())
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, Vec<String>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// Removes a file that counts for nothing. Best effort: what is left is found by the next who opens.
    fn forget(&self, name: &str) {
        self.disk.remove(&self.path(name)).ok();
    }

    /// The bytes of a file that have its checksum.
    fn bytes(&self, part: Part) -> Result<Vec<u8>> {
        let path = self.path(&part.name());
        let bytes = self.disk.read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => damaged(&path, "is missing"),
            _ => disk_failed(&path, &error),
        })?;
        if crc32fast::hash(&bytes) != part.crc32 {
            return Err(damaged(&path, "was not written so"));
        }
        Ok(bytes)
    }

    fn read(&self, part: Part) -> Result<Vec<RecordBatch>> {
        let (path, bytes) = (self.path(&part.name()), self.bytes(part)?);
        let rows = match part.parquet {
            true => from_parquet(bytes)?,
            false => rows_from_bytes(&bytes)?,
        };
        let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
        match count as u64 == part.end - part.first {
            true => Ok(rows),
            false => Err(damaged(
                &path,
                "has another number of rows than its name says",
            )),
        }
    }

    /// Publishes a file again: a process that ended before it was durable has left it in place.
    fn make_durable(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let disk = self.disk.as_ref();
        let put = self.doubts.publish_again(disk, &self.folder, name, bytes);
        put.map_err(|error| disk_failed(&self.path(name), &error))
    }

    /// Makes durable what may not be.
    fn settle(&self) -> Result<()> {
        let settled = self.doubts.settle(self.disk.as_ref());
        settled.map_err(|(path, error)| disk_failed(&path, &error))
    }

    fn write(&self, first: u64, rows: &[RecordBatch], arrived: Option<i64>) -> Result<Part> {
        let parquet = rows.first().is_none_or(|batch| has_form(&batch.schema()));
        let bytes = match parquet {
            true => to_parquet(rows)?,
            false => rows_to_bytes(rows)?,
        };
        let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
        let part = Part {
            first,
            end: first + count as u64,
            crc32: crc32fast::hash(&bytes),
            // Before 1970 a minus would not fit the name.
            arrived: arrived.map(|arrived| arrived.max(0)),
            parquet,
        };
        let put = publish(self.disk.as_ref(), &self.folder, &part.name(), &bytes);
        if let Err(error) = put {
            self.failed().push(part.name());
            // If this fails as well, the next INSERT tries again.
            self.retract().ok();
            return Err(disk_failed(&self.path(&part.name()), &error));
        }
        Ok(part)
    }

    /// Removes files that could not be published: a sync that failed may have left one in place, and the next
    /// INSERT has rows of the same numbers. What is published next makes that durable.
    fn retract(&self) -> Result<()> {
        let mut failed = self.failed();
        while let Some(name) = failed.last() {
            let path = self.path(name);
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(disk_failed(&path, &error));
                }
                _ => drop(failed.pop()),
            }
        }
        Ok(())
    }
}

impl Keep for KeptRows {
    fn keep(&self, start: u64, batches: &[RecordBatch], arrived: Option<i64>) -> Result<()> {
        // The catalog, which has the table, the rows before these, and what these may have been read from.
        self.settle()?;
        self.retract()?;
        let parts = self.files().parts.clone();
        let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let apart = parts
            .iter()
            .rposition(|part| !self.go_together(part.arrived, arrived));
        let newer = apart.map_or(0, |apart| apart + 1);
        let sizes = parts.iter().skip(newer).map(|part| part.end - part.first);
        let from = newer + together(&sizes.collect::<Vec<u64>>(), rows);
        let again = parts.get(from..).unwrap_or_default();
        let mut all = Vec::new();
        for part in again {
            all.extend(self.read(*part)?);
        }
        all.extend(batches.iter().cloned());
        let first = again.first().map_or(start, |part| part.first);
        let part = self.write(first, &all, arrived)?;
        let mut files = self.files();
        files.parts.truncate(from);
        files.parts.push(part);
        drop(files);
        again.iter().for_each(|part| self.forget(&part.name()));
        Ok(())
    }

    fn let_go(&self, row: u64) -> Result<u64> {
        self.retract()?;
        let mut files = self.files();
        let former = files.first;
        let gone = files.parts.iter().take_while(|part| part.end <= row);
        let gone: Vec<Part> = gone.copied().collect();
        let Some(last) = gone.last() else {
            return Ok(former);
        };
        // Readers have passed the rows, and must not go back to before them.
        self.settle()?;
        let name = name_of_first(last.end);
        publish(self.disk.as_ref(), &self.folder, &name, &[])
            .map_err(|error| disk_failed(&self.path(&name), &error))?;
        files.parts.drain(..gone.len());
        files.first = last.end;
        drop(files);
        self.forget(&name_of_first(former));
        gone.iter().for_each(|part| self.forget(&part.name()));
        Ok(last.end)
    }
}

/// The name of the file that says which row is the first.
fn name_of_first(row: u64) -> String {
    format!("{row:020}{FIRST}")
}

fn first_of_name(name: &str) -> Option<u64> {
    let row = name.strip_suffix(FIRST)?.parse().ok()?;
    (name_of_first(row) == name).then_some(row)
}

/// The files that together have all rows from this one on, in order, and those that others have the rows of or that
/// have no such row; or the row that is in none.
fn in_order(mut found: Vec<Part>, first: u64) -> std::result::Result<(Vec<Part>, Vec<Part>), u64> {
    found.sort_by_key(|part| (part.first, std::cmp::Reverse(part.end)));
    let (mut parts, mut others): (Vec<Part>, Vec<Part>) = (Vec::new(), Vec::new());
    for part in found {
        let next = parts.last().map_or(first, |last| last.end);
        // A file that could not be published may begin before what was removed since.
        let follows = part.first == next || parts.is_empty() && part.first < next;
        if part.end <= next {
            others.push(part);
        } else if follows {
            parts.push(part);
        } else {
            return Err(next);
        }
    }
    Ok((parts, others))
}

fn to_parquet(rows: &[RecordBatch]) -> Result<Vec<u8>> {
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, first.schema(), Some(properties))?;
    rows.iter().try_for_each(|batch| writer.write(batch))?;
    writer.close()?;
    Ok(bytes)
}

fn from_parquet(bytes: Vec<u8>) -> Result<Vec<RecordBatch>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))?.build()?;
    Ok(reader.collect::<std::result::Result<_, _>>()?)
}

/// Whether Parquet has a form for every column, told by writing a row of nulls.
fn has_form(schema: &SchemaRef) -> bool {
    let nullable = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
    let fields: Vec<FieldRef> = schema.fields().iter().map(nullable).collect();
    let columns = fields
        .iter()
        .map(|field| new_null_array(field.data_type(), 1))
        .collect();
    // A union's children cannot be told from rows of nulls, and Parquet does not take it.
    let union = |field: &FieldRef| matches!(field.data_type(), DataType::Union(..));
    if fields.iter().any(union) {
        return false;
    }
    let row = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns);
    row.is_ok_and(|row| to_parquet(&[row]).is_ok())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;
    use crate::disk::SimDisk;
    use crate::disk::sim::{Crash, Fault};

    fn rows(from: i64, count: i64) -> Vec<RecordBatch> {
        let values = Int64Array::from_iter_values(from..from + count);
        vec![RecordBatch::try_from_iter([("n", Arc::new(values) as _)]).unwrap()]
    }

    fn values(batches: &[RecordBatch]) -> Vec<i64> {
        let columns = batches
            .iter()
            .map(|batch| batch.column(0).as_primitive::<Int64Type>());
        columns
            .flat_map(|column| column.values().to_vec())
            .collect()
    }

    #[test]
    fn many_inserts_are_few_files_and_all_rows() {
        let disk = Arc::new(SimDisk::new(1));
        disk.create_dir("t").unwrap();
        let kept = KeptRows::new(disk.clone(), Arc::default(), "t".to_owned());
        for at in 0..200 {
            kept.keep(at, &rows(at as i64, 1), None).unwrap();
        }
        assert!(disk.files().len() < 40, "{:?}", disk.files());
        let (opened, found) = KeptRows::open(disk.clone(), Arc::default(), "t".to_owned()).unwrap();
        assert_eq!(values(&found), Vec::from_iter(0..200));
        assert_eq!(opened.first(), 0);
        let named = disk.files().into_iter().nth(1).unwrap();
        disk.remove(&named).unwrap();
        let error = KeptRows::open(disk, Arc::default(), "t".to_owned()).unwrap_err();
        assert!(error.to_string().contains("lacks the file"), "{error}");
    }

    #[test]
    fn after_a_crash_at_any_call_the_rows_are_those_of_whole_inserts() {
        for crash in Crash::ALL {
            for at in 1.. {
                let disk = Arc::new(SimDisk::new(at));
                disk.create_dir("t").unwrap();
                disk.sync_dir("").unwrap();
                let kept = KeptRows::new(disk.clone(), Arc::default(), "t".to_owned());
                disk.crash_at(disk.calls() + at);
                let mut done = 0;
                while done < 40 && kept.keep(done * 3, &rows(done as i64 * 3, 3), None).is_ok() {
                    done += 1;
                }
                let crashed = disk.crashed();
                disk.reopen(crash);
                let (_, found) = KeptRows::open(disk, Arc::default(), "t".to_owned()).unwrap();
                let found = values(&found);
                let length = found.len() as u64;
                assert_eq!(found, Vec::from_iter(0..length as i64), "{crash:?} at {at}");
                assert!(
                    length == done * 3 || crashed && length == done * 3 + 3,
                    "{crash:?} at {at}"
                );
                if !crashed {
                    break;
                }
            }
        }
    }

    /// A disk with 16 rows in as many files, and one file with them and another row: it is in place, and its name is
    /// not durable.
    fn with_a_file_in_doubt(seed: u64) -> Arc<SimDisk> {
        let disk = Arc::new(SimDisk::new(seed));
        disk.create_dir("t").unwrap();
        disk.sync_dir("").unwrap();
        let kept = KeptRows::new(disk.clone(), Arc::default(), "t".to_owned());
        for at in 0..16 {
            kept.keep(at, &rows(at as i64, 1), None).unwrap();
        }
        // All are read, then it is written, synced and renamed.
        disk.fail_at(disk.calls() + 16 + 3, Fault::Eacces, true);
        kept.keep(16, &rows(16, 1), None).unwrap_err();
        disk.heal();
        assert_eq!(disk.list("t").unwrap().len(), 17);
        disk
    }

    #[test]
    fn no_row_goes_with_a_crash_while_files_that_others_have_the_rows_of_are_removed() {
        for crash in Crash::ALL {
            for at in 0.. {
                let disk = with_a_file_in_doubt(at);
                disk.crash_at(disk.calls() + at);
                KeptRows::open(disk.clone(), Arc::default(), "t".to_owned()).ok();
                let crashed = disk.crashed();
                disk.reopen(crash);
                let opened = KeptRows::open(disk, Arc::default(), "t".to_owned());
                let found = values(&opened.unwrap().1);
                let length = found.len();
                assert_eq!(found, Vec::from_iter(0..length as i64), "{crash:?} at {at}");
                assert!(
                    length == 17 || crashed && length == 16,
                    "{crash:?} at {at}: {length}"
                );
                if !crashed {
                    break;
                }
            }
        }
    }

    #[test]
    fn on_a_full_disk_rows_are_read_and_no_file_goes() {
        let disk = with_a_file_in_doubt(1);
        // The folder is listed, and the file read twice.
        disk.fail_at(disk.calls() + 3, Fault::Enospc, true);
        let (kept, found) = KeptRows::open(disk.clone(), Arc::default(), "t".to_owned()).unwrap();
        assert_eq!(values(&found), Vec::from_iter(0..17));
        assert_eq!(disk.list("t").unwrap().len(), 17);
        kept.keep(17, &rows(17, 1), None).unwrap_err();
        disk.heal();
        kept.keep(17, &rows(17, 1), None).unwrap();
        disk.reopen(Crash::Lost);
        let (_, found) = KeptRows::open(disk, Arc::default(), "t".to_owned()).unwrap();
        assert_eq!(values(&found), Vec::from_iter(0..18));
    }

    #[test]
    fn rows_go_with_their_files_and_the_numbers_go_on() {
        let disk = Arc::new(SimDisk::new(1));
        disk.create_dir("t").unwrap();
        let kept = KeptRows::new(disk.clone(), Arc::default(), "t".to_owned());
        for at in 0..3 {
            let arrived = Some(1_790_000_000_000 + at);
            kept.keep(at as u64 * 2, &rows(at * 2, 2), arrived).unwrap();
        }
        // A file goes when all of its rows may.
        assert_eq!(kept.let_go(1).unwrap(), 0);
        assert_eq!(kept.let_go(3).unwrap(), 2);
        assert_eq!(disk.list("t").unwrap().len(), 3);
        let (kept, found) = KeptRows::open(disk.clone(), Arc::default(), "t".to_owned()).unwrap();
        assert_eq!((kept.first(), values(&found)), (2, vec![2, 3, 4, 5]));
        let arrivals = vec![(4, Some(1_790_000_000_001)), (6, Some(1_790_000_000_002))];
        assert_eq!(kept.arrivals(), Arrivals::new(arrivals));
        assert_eq!(kept.let_go(6).unwrap(), 6);
        assert_eq!(disk.list("t").unwrap().len(), 1);
        let (kept, found) = KeptRows::open(disk.clone(), Arc::default(), "t".to_owned()).unwrap();
        assert_eq!((kept.first(), values(&found)), (6, vec![]));
        kept.keep(6, &rows(6, 1), None).unwrap();
        let (kept, found) = KeptRows::open(disk, Arc::default(), "t".to_owned()).unwrap();
        assert_eq!((kept.first(), values(&found)), (6, vec![6]));
    }

    #[test]
    fn after_a_crash_at_any_call_of_a_removal_the_rows_are_the_last_ones() {
        for crash in Crash::ALL {
            for at in 1.. {
                let disk = Arc::new(SimDisk::new(at));
                disk.create_dir("t").unwrap();
                disk.sync_dir("").unwrap();
                let kept = KeptRows::new(disk.clone(), Arc::default(), "t".to_owned());
                disk.crash_at(disk.calls() + at);
                let (mut done, mut first) = (0, 0);
                while done < 40 && kept.keep(done, &rows(done as i64, 1), Some(7)).is_ok() {
                    done += 1;
                    if done % 5 == 0 {
                        first = kept.let_go(done - 2).unwrap_or(first);
                    }
                }
                let crashed = disk.crashed();
                disk.reopen(crash);
                let (kept, found) = KeptRows::open(disk, Arc::default(), "t".to_owned()).unwrap();
                let (found, from) = (values(&found), kept.first());
                let next = from + found.len() as u64;
                assert_eq!(
                    found,
                    Vec::from_iter(from as i64..next as i64),
                    "{crash:?} at {at}"
                );
                // What was removed is gone, but for rows that the next file had too.
                assert!(
                    next == done || crashed && next == done + 1,
                    "{crash:?} at {at}"
                );
                if !crashed {
                    assert_eq!(from, first);
                    break;
                }
            }
        }
    }
}
