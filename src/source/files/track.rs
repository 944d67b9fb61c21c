//! Which files a reader has passed, and where its rows are among them.
//!
//! ```text
//! rows given   0        4   4          9 . .
//! files        |-- a ---|-b-|--- c ----|- d
//! position(4)  done: a, b
//! position(6)  done: a, b; begun: c, 2 rows
//! ```
//!
//! - A file is known by its path. It is read once, whatever becomes of it.
//! - A file that is not what it was when it was read is told once for each change: the identity that was
//!   told takes the place of the one before.
//! - Positions are asked for in the order of rows; what is behind one is kept as done, and not as a span.

use std::collections::{BTreeMap, HashSet, VecDeque};

use object_store::ObjectMeta;

use crate::source::done::DoneFiles;
use crate::source::position::{Begun, FileIdentity, FilePosition};

/// The files that a reader has passed.
#[derive(Debug)]
pub(super) struct Track {
    /// Files that had ended at the last position that was asked for.
    done: DoneFiles,
    /// The file that was begun before the reader was opened, until it is opened again.
    begun: Option<Begun>,
    /// Files begun since and not yet done, in order.
    spans: VecDeque<Span>,
}

/// Where a file's rows are among those given.
#[derive(Debug)]
struct Span {
    path: String,
    identity: FileIdentity,
    start: u64,
    /// Rows of the file before `start`, taken by earlier readers.
    before: u64,
    /// None while the file is being read.
    end: Option<u64>,
}

/// What has become of a file of which some rows were taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It is not the file that it was.
    Changed,
    /// It is not there.
    Gone,
}

impl Track {
    /// A reader that begins at a position.
    pub(super) fn new(from: FilePosition) -> Self {
        Self {
            done: from.done,
            begun: from.begun,
            spans: VecDeque::new(),
        }
    }

    /// Files of a listing that have not been read, in the order in which they are read: one that was begun
    /// first, then by time and name.
    pub(super) fn unread(&self, mut files: Vec<ObjectMeta>) -> VecDeque<ObjectMeta> {
        let read = self.in_spans();
        files.retain(|file| {
            let path: &str = file.location.as_ref();
            !read.contains_key(path) && self.done.get(path).is_none()
        });
        let begun = self.begun.as_ref().map(|begun| begun.path.as_str());
        files.sort_by_cached_key(|file| {
            let path: &str = file.location.as_ref();
            (Some(path) != begun, file.last_modified, path.to_owned())
        });
        // A file that is listed by two paths is one file.
        files.dedup_by(|one, other| one.location == other.location);
        files.into()
    }

    /// Paths of files in a listing that were read to their end and have changed since, each change once.
    pub(super) fn changed(&mut self, files: &[ObjectMeta]) -> Vec<String> {
        let read = self.in_spans();
        let mut changed = BTreeMap::new();
        for file in files {
            let (path, now): (&str, _) = (file.location.as_ref(), FileIdentity::from(file));
            let before = read.get(path).copied().or_else(|| self.done.get(path));
            if before.is_some_and(|before| before != now) {
                changed.insert(path.to_owned(), now);
            }
        }
        let paths = changed.keys().cloned().collect();
        for span in &mut self.spans {
            if let Some(now) = changed.remove(&span.path) {
                span.identity = now;
            }
        }
        self.done.add(changed);
        paths
    }

    /// The path of a file that was read to its end, had something in it, and is not in a listing.
    pub(super) fn gone(&self, files: &[ObjectMeta]) -> Option<String> {
        let listed: HashSet<&str> = files.iter().map(|file| file.location.as_ref()).collect();
        let mut done = self.done.iter();
        let gone = done.find(|(path, was)| was.size > 0 && !listed.contains(path));
        gone.map(|(path, _)| path.to_owned())
    }

    /// The file that was begun before the reader was opened, if a listing does not have it as it was.
    pub(super) fn lost(&self, files: &[ObjectMeta]) -> Option<(&Begun, Lost)> {
        let begun = self.begun.as_ref().filter(|begun| begun.rows > 0)?;
        let mut listed = files.iter();
        let found = listed.find(|file| {
            let path: &str = file.location.as_ref();
            path == begun.path
        });
        match found {
            None => Some((begun, Lost::Gone)),
            Some(file) if FileIdentity::from(file) != begun.identity => {
                Some((begun, Lost::Changed))
            }
            Some(_) => None,
        }
    }

    /// Rows of a file that earlier readers have given.
    pub(super) fn before(&self, path: &str) -> u64 {
        let begun = self.begun.as_ref().filter(|begun| begun.path == path);
        begun.map_or(0, |begun| begun.rows)
    }

    /// A file was opened, after so many rows.
    pub(super) fn begin(&mut self, file: &ObjectMeta, given: u64) {
        let path = file.location.to_string();
        let before = self.before(&path);
        self.begun.take_if(|begun| begun.path == path);
        self.spans.push_back(Span {
            path,
            identity: FileIdentity::from(file),
            start: given,
            before,
            end: None,
        });
    }

    /// The file that was opened last has ended, after so many rows.
    pub(super) fn end(&mut self, given: u64) {
        if let Some(span) = self.spans.back_mut() {
            span.end = Some(given);
        }
    }

    /// Rows of the file that was opened last that earlier readers have given, if this one gave none.
    pub(super) fn untouched(&self, given: u64) -> Option<u64> {
        let span = self.spans.back()?;
        (span.start == given).then_some(span.before)
    }

    /// The file that was opened last is passed over: it is as if it had not been listed.
    pub(super) fn pass_over(&mut self) {
        self.spans.pop_back();
    }

    /// The position after so many rows, at least as many as when it was asked for last.
    pub(super) fn position(&mut self, rows: u64) -> FilePosition {
        let mut ended = Vec::new();
        while self.spans.front().is_some_and(|span| span.ended_by(rows)) {
            let span = self.spans.pop_front();
            ended.extend(span.map(|span| (span.path, span.identity)));
        }
        self.done.add(ended);
        let begun = match self.spans.front() {
            Some(span) => span.begun(rows),
            None => self.begun.clone(),
        };
        FilePosition {
            done: self.done.clone(),
            begun,
            in_order: None,
        }
    }

    /// Files begun since the last position.
    fn in_spans(&self) -> BTreeMap<&str, FileIdentity> {
        let spans = self.spans.iter();
        spans
            .map(|span| (span.path.as_str(), span.identity))
            .collect()
    }
}

impl Span {
    fn ended_by(&self, rows: u64) -> bool {
        self.end.is_some_and(|end| end <= rows)
    }

    /// The file as one that was begun; none if no row of it was taken.
    fn begun(&self, rows: u64) -> Option<Begun> {
        let taken = self.before + rows.saturating_sub(self.start);
        (taken > 0).then(|| Begun {
            path: self.path.clone(),
            rows: taken,
            identity: self.identity,
        })
    }
}

#[cfg(test)]
mod tests;
