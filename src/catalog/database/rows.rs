//! The rows of a table on disk: Parquet files, each of one or more INSERTs. A table with a column that Parquet has no
//! form for, such as an interval of months and nanoseconds, has Arrow IPC files instead.
//!
//! The name of a file says which rows it has and what its bytes are: `<first>-<end>-<crc32>.parquet` (or `.arrow`),
//! two numbers of rows in 20 digits and a checksum in 8. A file is published before its rows are visible. When files
//! have become many, the newest are written together as one, and removed after that: of files with the same rows
//! the longest counts.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::{RecordBatch, new_null_array};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;

use crate::checkpoint::{damaged, disk_failed, rows_from_bytes, rows_to_bytes, together};
use crate::disk::{Disk, TEMP_PREFIX, publish};
use crate::source::Keep;

/// The rows of one table.
pub struct KeptRows {
    disk: Arc<dyn Disk>,
    folder: String,
    files: Mutex<Vec<Part>>,
    /// Names of files that could not be published, and may be in place all the same.
    failed: Mutex<Vec<String>>,
}

/// A file, and which rows it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    first: u64,
    end: u64,
    crc32: u32,
    /// Whether it is Parquet; else it is an Arrow IPC stream.
    parquet: bool,
}

impl Part {
    fn name(self) -> String {
        let ending = if self.parquet { "parquet" } else { "arrow" };
        format!(
            "{:020}-{:020}-{:08x}.{ending}",
            self.first, self.end, self.crc32
        )
    }

    fn named(name: &str) -> Option<Self> {
        let (fields, ending) = name.split_once('.')?;
        let mut fields = fields.split('-');
        let part = Self {
            first: fields.next()?.parse().ok()?,
            end: fields.next()?.parse().ok()?,
            crc32: u32::from_str_radix(fields.next()?, 16).ok()?,
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
    pub(super) fn new(disk: Arc<dyn Disk>, folder: String) -> Self {
        Self {
            disk,
            folder,
            files: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// All rows that a folder has.
    pub(super) fn open(disk: Arc<dyn Disk>, folder: String) -> Result<(Self, Vec<RecordBatch>)> {
        let opened = Self::new(disk, folder);
        let list = opened.disk.list(&opened.folder);
        let mut found = Vec::new();
        for entry in list.map_err(|error| disk_failed(&opened.folder, &error))? {
            match Part::named(&entry.name) {
                Some(part) => found.push(part),
                None if entry.name.starts_with(TEMP_PREFIX) => opened.forget(&entry.name),
                None => {}
            }
        }
        let (parts, others) = in_order(found).map_err(|row| {
            damaged(
                &opened.folder,
                format!("lacks the file that begins with row {row}"),
            )
        })?;
        let mut rows = Vec::new();
        for part in &parts {
            rows.extend(opened.read(*part)?);
        }
        others.iter().for_each(|other| opened.forget(&other.name()));
        if let Some(last) = parts.last() {
            opened.make_durable(*last)?;
        }
        *opened.files() = parts;
        Ok((opened, rows))
    }

    /// Number of the first row that is kept.
    pub fn first(&self) -> u64 {
        self.files().first().map_or(0, |part| part.first)
    }

    fn files(&self) -> MutexGuard<'_, Vec<Part>> {
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

    fn read(&self, part: Part) -> Result<Vec<RecordBatch>> {
        let path = self.path(&part.name());
        let bytes = self.disk.read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => damaged(&path, "is missing"),
            _ => disk_failed(&path, &error),
        })?;
        if crc32fast::hash(&bytes) != part.crc32 {
            return Err(damaged(&path, "was not written so"));
        }
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

    /// Publishes the newest file again: a process that ended before it was durable has left it in place.
    fn make_durable(&self, part: Part) -> Result<()> {
        let path = self.path(&part.name());
        let bytes = self.disk.read(&path);
        let put =
            bytes.and_then(|bytes| publish(self.disk.as_ref(), &self.folder, &part.name(), &bytes));
        put.map_err(|error| disk_failed(&path, &error))
    }

    fn write(&self, first: u64, rows: &[RecordBatch]) -> Result<Part> {
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
    fn keep(&self, start: u64, batches: &[RecordBatch]) -> Result<()> {
        self.retract()?;
        let parts = self.files().clone();
        let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let sizes: Vec<u64> = parts.iter().map(|part| part.end - part.first).collect();
        let from = together(&sizes, rows);
        let again = parts.get(from..).unwrap_or_default();
        let mut all = Vec::new();
        for part in again {
            all.extend(self.read(*part)?);
        }
        all.extend(batches.iter().cloned());
        let first = again.first().map_or(start, |part| part.first);
        let part = self.write(first, &all)?;
        let mut files = self.files();
        files.truncate(from);
        files.push(part);
        drop(files);
        again.iter().for_each(|part| self.forget(&part.name()));
        Ok(())
    }
}

/// The files that together have all rows, in order, and those that others have the rows of; or the row that is
/// in none.
fn in_order(mut found: Vec<Part>) -> std::result::Result<(Vec<Part>, Vec<Part>), u64> {
    found.sort_by_key(|part| (part.first, std::cmp::Reverse(part.end)));
    let (mut parts, mut others): (Vec<Part>, Vec<Part>) = (Vec::new(), Vec::new());
    for part in found {
        match parts.last() {
            Some(last) if part.end <= last.end => others.push(part),
            Some(last) if part.first != last.end => return Err(last.end),
            _ => parts.push(part),
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
    use crate::disk::sim::Crash;

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
        let kept = KeptRows::new(disk.clone(), "t".to_owned());
        for at in 0..200 {
            kept.keep(at, &rows(at as i64, 1)).unwrap();
        }
        assert!(disk.files().len() < 40, "{:?}", disk.files());
        let (opened, found) = KeptRows::open(disk.clone(), "t".to_owned()).unwrap();
        assert_eq!(values(&found), Vec::from_iter(0..200));
        assert_eq!(opened.first(), 0);
        let named = disk.files().into_iter().nth(1).unwrap();
        disk.remove(&named).unwrap();
        let error = KeptRows::open(disk, "t".to_owned()).unwrap_err();
        assert!(error.to_string().contains("lacks the file"), "{error}");
    }

    #[test]
    fn after_a_crash_at_any_call_the_rows_are_those_of_whole_inserts() {
        for crash in Crash::ALL {
            for at in 1.. {
                let disk = Arc::new(SimDisk::new(at));
                disk.create_dir("t").unwrap();
                disk.sync_dir("").unwrap();
                let kept = KeptRows::new(disk.clone(), "t".to_owned());
                disk.crash_at(disk.calls() + at);
                let mut done = 0;
                while done < 40 && kept.keep(done * 3, &rows(done as i64 * 3, 3)).is_ok() {
                    done += 1;
                }
                let crashed = disk.crashed();
                disk.reopen(crash);
                let (_, found) = KeptRows::open(disk, "t".to_owned()).unwrap();
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
}
