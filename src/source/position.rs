//! How far a source has been read.
//!
//! A position is written down with the state that belongs to it, and a reader is opened at it again. The
//! files that were read to their end are many and only grow: they are written apart, each once
//! ([`FilePosition::done_since`]), and put in again ([`FilePosition::with_done`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::done::DoneFiles;
use super::initial::{Extent, Place};

/// How far a source has been read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// So many rows, from the first on.
    Rows(u64),
    /// Files of a directory.
    Files(FilePosition),
    /// Rows from one number to another, of which those up to an event time were read.
    Ordered(RowsInOrder),
}

impl Position {
    /// Whether what was there first is being read in the order of event time.
    pub fn is_in_order(&self) -> bool {
        match self {
            Position::Rows(_) => false,
            Position::Files(files) => files.in_order.is_some(),
            Position::Ordered(_) => true,
        }
    }
}

/// How far the first rows of a log have been read in the order of event time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsInOrder {
    /// Number of the first of them.
    pub first: u64,
    /// Number of the row behind the last: from it on rows are read by arrival.
    pub end: u64,
    /// How many were read.
    pub read: u64,
    /// How far.
    pub until: ReadUntil,
}

/// How far rows have been read in the order of event time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadUntil {
    /// The event time that they are ordered by, and its type.
    pub by: String,
    /// The first place that was not read.
    pub from: Place,
}

/// How far the files that were there first have been read in the order of event time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesInOrder {
    /// How far.
    pub until: ReadUntil,
    /// Where the rows of each file are. They are not serialized.
    #[serde(skip)]
    pub extents: Arc<BTreeMap<String, Extent>>,
}

/// Rows before a position of a source that counts them.
pub(super) fn rows_before(position: Option<Position>) -> u64 {
    match position {
        Some(Position::Rows(rows)) => rows,
        Some(Position::Ordered(rows)) => rows.first.saturating_add(rows.read),
        _ => 0,
    }
}

/// How far a directory has been read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// Files that were read to their end. They are not serialized.
    #[serde(skip)]
    pub done: DoneFiles,
    /// The file of which some rows were taken and its end was not reached.
    pub begun: Option<Begun>,
    /// While the files that were there first are read in the order of event time: how far. They are all among those
    /// that were read to their end then, each with what it was when the query first started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_order: Option<FilesInOrder>,
}

impl FilePosition {
    /// The same position with these files as those that were read to their end. Of a path that comes
    /// several times the last identity counts.
    #[must_use]
    pub fn with_done(mut self, done: impl Iterator<Item = (String, FileIdentity)>) -> Self {
        self.done = done.collect();
        self
    }

    /// How many files that are read in the order of event time have rows that were not read.
    pub fn unread_in_order(&self) -> u64 {
        let Some(in_order) = &self.in_order else {
            return 0;
        };
        let from = in_order.until.from;
        let extents = in_order.extents.values();
        let unread = extents.filter(|extent| extent.last().is_some_and(|last| last >= from));
        unread.count() as u64
    }

    /// Files that have ended since an earlier position of the same source, and those that were found
    /// changed since, with the identity that they were found with; all without an earlier position.
    pub fn done_since(&self, earlier: Option<&Self>) -> Vec<(String, FileIdentity)> {
        match earlier {
            Some(earlier) => self.done.since(&earlier.done),
            None => self.done.since(&DoneFiles::default()),
        }
    }
}

/// A file of which some rows were taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Its path in the store.
    pub path: String,
    /// Rows that were taken, from its first on.
    pub rows: u64,
    /// What the file was when it was listed.
    pub identity: FileIdentity,
}

/// What tells that a file is the one that was read: a file of another size or time is another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Bytes.
    pub size: u64,
    /// Time of the last change, in milliseconds since 1970-01-01T00:00:00Z.
    pub modified_ms: i64,
}

impl From<&ObjectMeta> for FileIdentity {
    fn from(file: &ObjectMeta) -> Self {
        Self {
            size: file.size,
            modified_ms: file.last_modified.timestamp_millis(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> (String, FileIdentity) {
        let identity = FileIdentity {
            size: number,
            modified_ms: -1,
        };
        (format!("d/{number}.csv"), identity)
    }

    #[test]
    fn a_position_is_written_without_its_done_files_and_takes_them_again() {
        let (path, identity) = file(7);
        let rows = 3;
        let written = FilePosition {
            done: [file(1), file(2)].into_iter().collect(),
            begun: Some(Begun {
                path,
                rows,
                identity,
            }),
            in_order: None,
        };
        let text = serde_json::to_string(&Position::Files(written.clone())).unwrap();
        assert_eq!(
            text,
            r#"{"files":{"begun":{"path":"d/7.csv","rows":3,"identity":{"size":7,"modified_ms":-1}}}}"#
        );
        let read: Position = serde_json::from_str(&text).unwrap();
        let Position::Files(read) = read else {
            panic!("a position of files");
        };
        assert!(read.done.is_empty());
        assert_eq!(read.with_done([file(2), file(1)].into_iter()), written);
        let text = serde_json::to_string(&Position::Rows(5)).unwrap();
        assert_eq!(text, r#"{"rows":5}"#);
    }

    #[test]
    fn what_ended_since_an_earlier_position_is_told_by_its_done_files() {
        let earlier = FilePosition::default().with_done([file(1)].into_iter());
        let mut later = earlier.clone();
        later.done.add([file(2)]);
        assert_eq!(later.done_since(Some(&earlier)), vec![file(2)]);
        assert_eq!(later.done_since(None).len(), 2);
        // A position that was put together again has the same files in other runs.
        let again = FilePosition::default().with_done([file(1)].into_iter());
        assert_eq!(later.done_since(Some(&again)), vec![file(2)]);
    }
}
