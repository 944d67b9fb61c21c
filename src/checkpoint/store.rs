//! A query's folder: written an epoch at a time, read when it is opened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use serde_json::Value;

use super::draft::{Draft, PieceDraft};
use super::file::{Header, Segment, Sum, damaged, decode, encode};
use super::rows::{count, from_bytes, joined};
use super::segments::Piece;
use crate::disk::{Disk, Doubts, TEMP_PREFIX, publish_parts};

/// What the name of an epoch's file ends with.
const SUFFIX: &str = ".epoch";

/// The checkpoint of one query.
pub struct Checkpoint {
    disk: Arc<dyn Disk>,
    /// Files of the database that may not be durable.
    doubts: Arc<Doubts>,
    folder: String,
    owner: String,
    /// How many checkpoints are kept, the newest included.
    kept: NonZeroUsize,
    newest: Mutex<Newest>,
    /// Held by who writes the folder, or reads it from the disk: one that was abandoned may be at it yet.
    writing: Mutex<()>,
}

/// The newest checkpoint, and which files there are.
#[derive(Debug, Default)]
struct Newest {
    number: u64,
    pieces: BTreeMap<String, Vec<Segment>>,
    /// Files that its segments are in, its own included.
    files: BTreeMap<u64, Sum>,
    /// Kept checkpoints, oldest first: the files that each needs.
    kept: VecDeque<BTreeSet<u64>>,
    /// Files that there are.
    there: BTreeSet<u64>,
    /// Whether an older checkpoint could not be read, so that it is not known which files it needs.
    unread: bool,
}

/// What a checkpoint holds.
#[derive(Debug, Default)]
pub struct Restored {
    /// How many epochs had committed.
    pub number: u64,
    /// What the query wrote beside the rows.
    pub content: Value,
    /// Rows of each piece, oldest first.
    pub pieces: BTreeMap<String, Vec<RecordBatch>>,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Makes the folder of a new query, with the checkpoint of no epoch. The folder above is there.
    ///
    /// # Errors
    /// - those of the disk
    pub fn create(
        disk: Arc<dyn Disk>,
        doubts: Arc<Doubts>,
        parent: &str,
        owner: &str,
        kept: NonZeroUsize,
        content: Value,
    ) -> Result<Self> {
        let made = Self {
            folder: format!("{parent}/{owner}"),
            disk,
            doubts,
            owner: owner.to_owned(),
            kept,
            newest: Mutex::default(),
            writing: Mutex::default(),
        };
        let created = made.disk.create_dir(&made.folder);
        created
            .and_then(|()| made.disk.sync_dir(parent))
            .map_err(|error| made.failed(&made.folder, &error))?;
        let header = Header {
            owner: owner.to_owned(),
            content,
            ..Header::default()
        };
        let sum = made.put(0, header, Vec::new())?;
        *made.newest() = Newest {
            files: BTreeMap::from([(0, sum)]),
            kept: VecDeque::from([BTreeSet::from([0])]),
            there: BTreeSet::from([0]),
            ..Newest::default()
        };
        Ok(made)
    }

    /// Opens a query's folder at its newest checkpoint. What counts for nothing is removed, and the checkpoint is made
    /// durable again: a sync that failed may have left it in place without that. On a full disk it stays in doubt, and no
    /// epoch commits before it is durable.
    ///
    /// # Errors
    /// - a file is damaged, missing, of another query or another version; the error names it
    /// - those of the disk
    pub fn open(
        disk: Arc<dyn Disk>,
        doubts: Arc<Doubts>,
        parent: &str,
        owner: &str,
        kept: NonZeroUsize,
    ) -> Result<(Self, Restored)> {
        let opened = Self {
            folder: format!("{parent}/{owner}"),
            disk,
            doubts,
            owner: owner.to_owned(),
            kept,
            newest: Mutex::default(),
            writing: Mutex::default(),
        };
        let restored = opened.reload()?;
        Ok((opened, restored))
    }

    /// Reads the newest checkpoint again, as after a commit that failed.
    ///
    /// # Errors
    /// - those of [`open`](Self::open)
    pub fn reload(&self) -> Result<Restored> {
        let _alone = self.alone();
        let mut there = self.numbers()?;
        let mut number = there.last().copied();
        // A listing may be older than the folder.
        let next = number.map_or(0, |last| last.saturating_add(1));
        if self.has(next)? {
            there.insert(next);
            number = Some(next);
        }
        let Some(number) = number else {
            return Err(damaged(
                &self.folder,
                "has no checkpoint: its file is missing",
            ));
        };
        let path = self.path(number);
        let bytes = self.read(number)?;
        let (header, sections) = self.checked(number, &bytes)?;
        let name = name_of(number);
        self.doubts
            .publish_again(self.disk.as_ref(), &self.folder, &name, &bytes)
            .map_err(|error| self.failed(&path, &error))?;
        let pieces = self.rows_of(&header, &sections)?;
        let mut files = header.files.clone();
        files.insert(number, Sum::of(&bytes));
        let (mut kept, unread) = self.older(number, &there);
        kept.push_back(needed(number, &header.pieces));
        *self.newest() = Newest {
            number,
            pieces: header.pieces,
            files,
            kept,
            there,
            unread,
        };
        // If this one goes with a crash, an older one counts again.
        if !self.doubts.are_in(&self.folder) {
            self.remove_others();
        }
        Ok(Restored {
            number,
            content: header.content,
            pieces,
        })
    }

    /// Makes durable what may not be: the newest checkpoint, and what other epochs and INSERTs have left that it
    /// counts on. What an epoch has read must not go with a crash when the epoch stays, nor what is handed on.
    ///
    /// # Errors
    /// - those of the disk
    pub fn settle(&self) -> Result<()> {
        let settled = self.doubts.settle(self.disk.as_ref());
        settled.map_err(|(path, error)| self.failed(&path, &error))
    }

    /// What an epoch commits: what it added to each piece, and what else there is to know. Pieces that are not
    /// named are let go. Nothing is written yet, and what the epoch's state is from now on makes no difference to it.
    ///
    /// # Errors
    /// - a piece that is written whole cannot be had
    pub fn draft(&self, content: Value, pieces: Vec<Piece>) -> Result<Draft> {
        let (number, before) = {
            let newest = self.newest();
            (newest.number.saturating_add(1), newest.pieces.clone())
        };
        let parts = pieces.into_iter().map(|piece| {
            let segments = before.get(&piece.name).cloned().unwrap_or_default();
            PieceDraft::of(piece, segments)
        });
        Ok(Draft {
            number,
            content,
            parts: parts.collect::<Result<_>>()?,
        })
    }

    /// Commits an epoch. It encodes the rows and waits for the disk, which a thread that polls must not.
    ///
    /// # Errors
    /// - another epoch has committed since the draft was made
    /// - those of the disk. Whether the epoch is committed is not known then: [`reload`](Self::reload) tells.
    pub fn publish(&self, mut draft: Draft) -> Result<()> {
        let _alone = self.alone();
        let number = draft.number;
        let last = self.newest().number;
        if number != last.saturating_add(1) {
            return internal_err!("epoch {number} was to be written after epoch {last}");
        }
        self.settle()?;
        let mut earlier = self.sections(draft.again())?;
        let made = draft.sections(|segment| {
            let rows = earlier.remove(&(segment.file, segment.section));
            rows.ok_or_else(|| internal_datafusion_err!("a section was not read: {segment:?}"))
        })?;
        let needs = needed(number, &made.pieces);
        let mut files = self.newest().files.clone();
        files.retain(|file, _| needs.contains(file));
        let header = Header {
            owner: self.owner.clone(),
            number,
            content: draft.content,
            pieces: made.pieces.clone(),
            files: files.clone(),
            ..Header::default()
        };
        let sum = self.put(number, header, made.bytes)?;
        files.insert(number, sum);
        let mut newest = self.newest();
        newest.number = number;
        newest.pieces = made.pieces;
        newest.files = files;
        newest.kept.push_back(needs);
        newest.there.insert(number);
        drop(newest);
        self.remove_others();
        Ok(())
    }

    /// The rows of segments of earlier files, by file and section. Pieces are written again in the same epochs, and
    /// have segments in the same files: each file is read once.
    fn sections(
        &self,
        files: BTreeMap<u64, Vec<Segment>>,
    ) -> Result<BTreeMap<(u64, usize), Vec<RecordBatch>>> {
        let mut rows = BTreeMap::new();
        for (file, segments) in files {
            let sum = self.newest().files.get(&file).copied();
            let bytes = self.earlier(file, sum)?;
            let (_, sections) = self.checked(file, &bytes)?;
            for segment in segments {
                let of_segment = self.rows_at(&segment, &sections)?;
                rows.insert((file, segment.section), of_segment);
            }
        }
        Ok(rows)
    }

    /// All rows that a checkpoint names, those of a section in one batch: state of several would be in as many runs.
    fn rows_of(
        &self,
        header: &Header,
        own: &[&[u8]],
    ) -> Result<BTreeMap<String, Vec<RecordBatch>>> {
        let named: BTreeSet<u64> = needed(header.number, &header.pieces);
        let mut rows: BTreeMap<(&str, usize), Vec<RecordBatch>> = BTreeMap::new();
        for file in named {
            let of_file = |segment: &&Segment| segment.file == file;
            let bytes = match file == header.number {
                true => Vec::new(),
                false => self.earlier(file, header.files.get(&file).copied())?,
            };
            let sections = match file == header.number {
                true => own.to_vec(),
                false => self.checked(file, &bytes)?.1,
            };
            for (name, segments) in &header.pieces {
                for (at, segment) in segments.iter().enumerate().filter(|(_, one)| of_file(one)) {
                    let of_segment = joined(self.rows_at(segment, &sections)?);
                    rows.insert((name, at), of_segment);
                }
            }
        }
        let mut pieces: BTreeMap<String, Vec<RecordBatch>> = BTreeMap::new();
        for ((name, _), batches) in rows {
            pieces.entry(name.to_owned()).or_default().extend(batches);
        }
        Ok(pieces)
    }

    fn rows_at(&self, segment: &Segment, sections: &[&[u8]]) -> Result<Vec<RecordBatch>> {
        let path = self.path(segment.file);
        let section = sections.get(segment.section);
        let section = section.ok_or_else(|| damaged(&path, "has fewer sections than are named"))?;
        let rows = from_bytes(section)?;
        match count(&rows) == segment.rows {
            true => Ok(rows),
            false => Err(damaged(&path, "has another number of rows than is named")),
        }
    }

    /// The bytes of a file that a later one names, with the length and checksum that it says.
    fn earlier(&self, number: u64, sum: Option<Sum>) -> Result<Vec<u8>> {
        let bytes = self.read(number)?;
        match sum == Some(Sum::of(&bytes)) {
            true => Ok(bytes),
            false => Err(damaged(
                &self.path(number),
                "is not the file that a later epoch names",
            )),
        }
    }

    /// Header and sections of a file that has its own number and owner.
    fn checked<'a>(&self, number: u64, bytes: &'a [u8]) -> Result<(Header, Vec<&'a [u8]>)> {
        let path = self.path(number);
        let (header, sections) = decode(&path, bytes)?;
        if header.owner != self.owner {
            return Err(damaged(
                &path,
                format!("belongs to another query, {}", header.owner),
            ));
        }
        if header.number != number {
            return Err(damaged(
                &path,
                format!("is the file of epoch {}", header.number),
            ));
        }
        Ok((header, sections))
    }

    /// What the kept checkpoints before the newest need, oldest first, and whether one could not be read: it and
    /// those before it are left out then. An error may pass, and does not say that a file is not there.
    fn older(&self, newest: u64, there: &BTreeSet<u64>) -> (VecDeque<BTreeSet<u64>>, bool) {
        let first = newest.saturating_sub(self.kept.get() as u64 - 1);
        let mut needs = VecDeque::new();
        for number in there.range(first..newest).rev() {
            let bytes = match self.disk.read(&self.path(*number)) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => return (needs, true),
            };
            match self.checked(*number, &bytes) {
                Ok((header, _)) => needs.push_front(needed(*number, &header.pieces)),
                Err(_) => return (needs, true),
            }
        }
        (needs, false)
    }

    /// Removes files that no kept checkpoint needs. What cannot be removed is litter, and tried again.
    fn remove_others(&self) {
        let mut newest = self.newest();
        while newest.kept.len() > self.kept.get() {
            newest.kept.pop_front();
        }
        if newest.unread && newest.kept.len() < self.kept.get() {
            return;
        }
        newest.unread = false;
        let needed: BTreeSet<u64> = newest.kept.iter().flatten().copied().collect();
        let others: Vec<u64> = newest.there.difference(&needed).copied().collect();
        for number in others {
            if self.disk.remove(&self.path(number)).is_ok() {
                newest.there.remove(&number);
            }
        }
    }

    /// Numbers of the files that there are. What a crash left half written is removed.
    fn numbers(&self) -> Result<BTreeSet<u64>> {
        let _alone = self.doubts.alone();
        let entries = self
            .disk
            .list(&self.folder)
            .map_err(|error| self.failed(&self.folder, &error))?;
        let mut numbers = BTreeSet::new();
        for entry in entries.iter().filter(|entry| !entry.dir) {
            if entry.name.starts_with(TEMP_PREFIX) {
                // Best effort: it counts for nothing.
                self.disk
                    .remove(&format!("{}/{}", self.folder, entry.name))
                    .ok();
            } else if let Some(number) = number_of(&entry.name) {
                numbers.insert(number);
            }
        }
        Ok(numbers)
    }

    fn put(&self, number: u64, header: Header, sections: Vec<Vec<u8>>) -> Result<Sum> {
        let (parts, sum) = encode(header, sections)?;
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let name = name_of(number);
        let put = publish_parts(self.disk.as_ref(), &self.folder, &name, &parts);
        put.map_err(|error| self.failed(&self.path(number), &error))?;
        Ok(sum)
    }

    /// Whether there is a file of this number.
    fn has(&self, number: u64) -> Result<bool> {
        let path = self.path(number);
        match self.disk.read(&path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // Taken for missing, a committed epoch would be written over.
            Err(error) => Err(self.failed(&path, &error)),
        }
    }

    fn read(&self, number: u64) -> Result<Vec<u8>> {
        let path = self.path(number);
        self.disk.read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => damaged(&path, "is missing"),
            _ => self.failed(&path, &error),
        })
    }

    fn path(&self, number: u64) -> String {
        format!("{}/{}", self.folder, name_of(number))
    }

    fn failed(&self, path: &str, error: &io::Error) -> DataFusionError {
        disk_failed(path, error)
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        // It is changed only when all that can fail is done.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a call of the disk that failed.
pub(crate) fn disk_failed(path: &str, error: &io::Error) -> DataFusionError {
    crate::error::Refusal::new("DISK_FAILED", "58030", format!("{path}: {error}."))
        .hint("what was committed before is kept; mend the disk and try again")
        .into()
}

/// The files that a checkpoint's segments are in, its own included.
fn needed(number: u64, pieces: &BTreeMap<String, Vec<Segment>>) -> BTreeSet<u64> {
    let named = pieces.values().flatten().map(|segment| segment.file);
    named.chain([number]).collect()
}

fn name_of(number: u64) -> String {
    format!("{number:020}{SUFFIX}")
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (name_of(number) == name).then_some(number)
}
