//! A directory of files: one for each epoch, in folders by partition.
//!
//! ```text
//! out/part-q7-0000000004.parquet                   without partition columns
//! out/day=2026-01-31/city=Oslo/part-q7-0000000005.parquet
//! out/day=2026-01-31/city=__HIVE_DEFAULT_PARTITION__/part-q7-0000000005.parquet
//! ```
//!
//! The name is the query and the epoch, so a delivery that is repeated replaces its own files, each at one
//! stroke. A reader of the directory sees a file whole or not at all: until it is whole its name does not end in
//! the extension. It may see some partitions of an epoch before others.
//!
//! # What holds
//!
//! * A file that is named as another's is never touched: not read, replaced or removed. Queries share a
//!   directory as long as their ids differ.
//! * A folder's name is durable before something is put in it; a file's name before the delivery returns.
//! * A step that a failed sync left in doubt is undone, so that the next run takes it anew. A sync alone,
//!   repeated, would prove nothing.
//! * Folders stay when their last file is removed.
//!
//! # What it is not
//!
//! * A null in a partition column is Hive's `__HIVE_DEFAULT_PARTITION__`, as other readers know it. DataFusion reads
//!   that as a text, and cannot read it in a column of numbers or dates: [`check`](Sink::check) refuses nulls.
//! * An empty text is the folder `column=`, which DataFusion reads as an empty text. Spark refuses such a folder.
//! * On a file system that does not tell upper from lower case, values that differ in case only share a folder,
//!   and one of their files replaces the other.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};

use super::check::check;
use super::encode::{encode, split, written};
use super::values::{check_rows, check_times};
use super::{FileFormat, Sink};
use crate::disk::{Disk, TEMP_PREFIX, TEMP_SUFFIX, publish};
use crate::error::Refusal;

/// Writes the rows of an epoch as files below a folder of a disk.
#[derive(Debug)]
pub struct DirectorySink {
    directory: Arc<Directory>,
}

/// The folder, and what is known of those below.
#[derive(Debug)]
struct Directory {
    disk: Arc<dyn Disk>,
    folder: String,
    format: FileFormat,
    partitioned_by: Vec<String>,
    /// Held while something is written: a run that was dropped may not have ended when the next one begins.
    writing: Mutex<()>,
    /// Folders whose names are durable.
    made: Mutex<BTreeSet<String>>,
    /// Folders whose names could not be made durable, and not be taken back: they are to be given anew.
    doubtful: Mutex<BTreeSet<String>>,
}

impl DirectorySink {
    /// A sink below `folder`, a path on the disk; empty for the disk's root. The folder is made with the first
    /// rows. What the files cannot hold is judged by [`check`](Self::check), not here.
    pub fn new(
        disk: Arc<dyn Disk>,
        folder: impl Into<String>,
        format: FileFormat,
        partitioned_by: Vec<String>,
    ) -> Self {
        let folder: String = folder.into();
        let directory = Directory {
            disk,
            folder: folder.trim_end_matches('/').to_owned(),
            format,
            partitioned_by,
            writing: Mutex::default(),
            made: Mutex::default(),
            doubtful: Mutex::default(),
        };
        Self {
            directory: Arc::new(directory),
        }
    }

    /// Refuses what a directory cannot hold, before there are rows.
    ///
    /// # Errors
    /// - `UNRESOLVED_COLUMN.WITH_SUGGESTION`: a partition column is not in the schema
    /// - `COLUMN_ALREADY_EXISTS`: a partition column is given twice
    /// - `INVALID_PARTITION_COLUMN_NAME`: DataFusion would not find folders of that name
    /// - `INVALID_PARTITION_COLUMN_DATA_TYPE`: it is not text, a whole number, a decimal, a boolean or a date
    /// - `ALL_PARTITION_COLUMNS_NOT_ALLOWED`: no column is left for the files
    /// - `UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE`: the format has no form for a column, such as a nested one in CSV, or
    ///   none that is read again
    pub fn check(format: FileFormat, schema: &SchemaRef, partitioned_by: &[String]) -> Result<()> {
        check(format, schema, partitioned_by)
    }

    /// Does something that waits for the disk, which a thread that polls must not.
    async fn apart<F>(&self, work: F) -> Result<()>
    where
        F: FnOnce(&Directory) -> Result<()> + Send + 'static,
    {
        let directory = Arc::clone(&self.directory);
        let working = SpawnedTask::spawn_blocking(move || {
            let writing = directory.writing.lock();
            let _writing = writing.unwrap_or_else(PoisonError::into_inner);
            work(&directory)
        });
        let worked = working.join_unwind().await;
        worked.map_err(|broken| DataFusionError::ExecutionJoin(Box::new(broken)))?
    }
}

impl Directory {
    fn begin(&self, query: &str, next: u64) -> Result<()> {
        // Between two runs anybody may have changed the directory.
        self.made().clear();
        if self.folder.is_empty() {
            let root = self.disk.create_dir("");
            root.map_err(|error| failed("", &error))?;
        }
        // The query may have written by other columns, in another format.
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            folders.extend(self.forget(&folder, query, next)?);
        }
        Ok(())
    }

    fn deliver(
        &self,
        query: &str,
        epoch: u64,
        schema: &SchemaRef,
        rows: &[RecordBatch],
    ) -> Result<()> {
        let schema: SchemaRef = schema
            .project(&written(schema, &self.partitioned_by))?
            .into();
        let name = name_of(query, epoch, self.format);
        for (partition, rows) in split(rows, &self.partitioned_by)? {
            let folder = join(&self.folder, &partition);
            // JSON would have the text of an error in the place of the value.
            for batch in &rows {
                check_times(self.format, batch)?;
            }
            let bytes = encode(self.format, &schema, &rows)?;
            self.make(&folder)?;
            let put = publish(self.disk.as_ref(), &folder, &name, &bytes);
            put.map_err(|error| failed(&join(&folder, &name), &error))?;
        }
        Ok(())
    }

    /// Makes a folder and those above it, each durable before there is something in it.
    fn make(&self, folder: &str) -> Result<()> {
        let slashes = folder.match_indices('/').map(|(at, _)| at);
        let ends = slashes.chain([folder.len()]);
        for path in ends.filter_map(|end| folder.get(..end)) {
            if !path.is_empty() && !self.made().contains(path) {
                self.make_one(path)?;
                self.made().insert(path.to_owned());
            }
        }
        Ok(())
    }

    /// Makes a folder whose parent is there. One that is there is made durable: a crash may have come between.
    fn make_one(&self, path: &str) -> Result<()> {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let list = self.disk.list(path);
        let new = list.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.take_back(path)?;
        let created = self.disk.create_dir(path);
        let made = created.and_then(|()| self.disk.sync_dir(parent));
        made.map_err(|error| {
            if new {
                // The name may be lost whatever a later sync says: it is to be given anew.
                self.doubtful().insert(path.to_owned());
                // If this fails as well, the next delivery tries again.
                self.take_back(path).ok();
            }
            failed(path, &error)
        })
    }

    /// Removes a folder whose name could not be made durable. Nothing of ours is in it.
    fn take_back(&self, path: &str) -> Result<()> {
        let mut doubtful = self.doubtful();
        if !doubtful.contains(path) {
            return Ok(());
        }
        match self.disk.remove_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, &error)),
            _ => {
                doubtful.remove(path);
                Ok(())
            }
        }
    }

    /// Removes from one folder what is held of a query from an epoch on. Returns the folders of partitions in it.
    fn forget(&self, folder: &str, query: &str, next: u64) -> Result<Vec<String>> {
        let entries = match self.disk.list(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(folder, &error)),
        };
        let (mut folders, mut gone, mut litter) = (Vec::new(), Vec::new(), BTreeSet::new());
        for entry in entries {
            let name = entry.name;
            if entry.dir {
                if name.contains('=') {
                    folders.push(join(folder, &name));
                }
            } else if let Some(epoch) = epoch_of(query, &name) {
                if epoch >= next {
                    litter.insert(temp(&name));
                    gone.push(name);
                }
            } else if is_litter(query, &name) {
                litter.insert(name);
            }
        }
        self.retire(folder, &gone)?;
        for name in litter {
            // Best effort: it counts for nothing, and no reader looks for it.
            self.disk.remove(&join(folder, &name)).ok();
        }
        Ok(folders)
    }

    /// Takes the names of some files away for good: they become litter. Their names come back if that cannot be
    /// made durable, so that the next run finds them.
    fn retire(&self, folder: &str, gone: &[String]) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut moved = 0;
        let renamed = gone.iter().try_for_each(|name| {
            let done = self
                .disk
                .rename(&join(folder, name), &join(folder, &temp(name)));
            done.map(|()| moved += 1)
        });
        let Err(error) = renamed.and_then(|()| self.disk.sync_dir(folder)) else {
            return Ok(());
        };
        for name in gone.iter().take(moved) {
            // If this fails as well, the disk is beyond what can be undone; the first error says so.
            self.disk
                .rename(&join(folder, &temp(name)), &join(folder, name))
                .ok();
        }
        Err(failed(folder, &error))
    }

    fn doubtful(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn made(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sink for DirectorySink {
    fn check(&self, _schema: &SchemaRef, rows: &[RecordBatch]) -> Result<()> {
        let directory = &self.directory;
        check_rows(directory.format, rows, &directory.partitioned_by)
    }

    async fn begin(&self, query: &str, next: u64) -> Result<()> {
        let query = query.to_owned();
        let begin = move |directory: &Directory| directory.begin(&query, next);
        self.apart(begin).await
    }

    async fn deliver(
        &self,
        query: &str,
        epoch: u64,
        schema: &SchemaRef,
        rows: &[RecordBatch],
    ) -> Result<()> {
        let (query, schema, rows) = (query.to_owned(), Arc::clone(schema), rows.to_vec());
        let deliver = move |directory: &Directory| directory.deliver(&query, epoch, &schema, &rows);
        self.apart(deliver).await
    }
}

/// The error for a call of the disk that failed.
fn failed(path: &str, error: &io::Error) -> DataFusionError {
    let path = if path.is_empty() {
        "the directory"
    } else {
        path
    };
    Refusal::new("SINK_FAILED", "58030", format!("{path}: {error}."))
        .hint("what was committed before is kept; mend the disk and refresh again")
        .into()
}

/// The path of `name` in `folder`; either may be empty.
fn join(folder: &str, name: &str) -> String {
    match (folder.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => folder.to_owned(),
        _ => format!("{folder}/{name}"),
    }
}

/// The name of an epoch's files.
fn name_of(query: &str, epoch: u64, format: FileFormat) -> String {
    format!("part-{query}-{epoch:010}.{}", format.extension())
}

/// The epoch that a name is of, if it is of this query.
fn epoch_of(query: &str, name: &str) -> Option<u64> {
    let rest = name
        .strip_prefix("part-")?
        .strip_prefix(query)?
        .strip_prefix('-')?;
    let (digits, extension) = rest.split_once('.')?;
    let epoch = digits.parse().ok()?;
    let format = FileFormat::ALL
        .into_iter()
        .find(|format| format.extension() == extension)?;
    (name_of(query, epoch, format) == name).then_some(epoch)
}

/// The name of a file before it is published, and when it is about to be removed.
fn temp(name: &str) -> String {
    format!("{TEMP_PREFIX}{name}{TEMP_SUFFIX}")
}

/// Whether a name is one that a crash left behind, of this query.
fn is_litter(query: &str, name: &str) -> bool {
    let inner = name
        .strip_prefix(TEMP_PREFIX)
        .and_then(|name| name.strip_suffix(TEMP_SUFFIX));
    inner.is_some_and(|inner| epoch_of(query, inner).is_some())
}

#[cfg(test)]
mod tests;
