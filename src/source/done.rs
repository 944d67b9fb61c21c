//! Files that were read to their end, as a map that is cheap to copy and to add to.
//!
//! The map is a few sorted runs, the oldest first, each at least twice as long as the next. Files are
//! added as a run of their own, merged with the runs before it that are not twice as long:
//!
//! ```text
//! runs of 8 4 1, one file is added  ->  8 4 2
//! runs of 8 4 2, one file is added  ->  8 4 2 1
//! runs of 8 4 2 1, one file is added  ->  16
//! ```
//!
//! - A copy shares the runs: it costs as much as there are runs, the logarithm of the number of files.
//! - A file is moved by as many merges as there are runs, so that files added one by one cost
//!   `n log n` together.
//! - What was added since an earlier copy is in the runs that the copy does not share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::position::FileIdentity;

/// One file of a run.
type Entry = (Arc<str>, FileIdentity);

/// Files sorted by their paths, each path once.
type Run = Arc<[Entry]>;

/// Files that were read to their end: the path of each, and the identity that it was last seen with.
#[derive(Clone, Default)]
pub struct DoneFiles {
    /// The oldest first; of a path that is in several runs the newest counts.
    runs: Vec<Run>,
}

impl DoneFiles {
    /// The identity that a file was last seen with; none if it was not read to its end.
    pub fn get(&self, path: &str) -> Option<FileIdentity> {
        self.runs.iter().rev().find_map(|run| find(run, path))
    }

    /// Whether no file was read to its end.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Every file, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&str, FileIdentity)> {
        self.entries(0)
    }

    /// Adds files. One that is there takes the identity that is given now.
    pub fn add(&mut self, files: impl IntoIterator<Item = (String, FileIdentity)>) {
        let added: Vec<Entry> = files
            .into_iter()
            .map(|(path, identity)| (Arc::from(path), identity))
            .collect();
        if added.is_empty() {
            return;
        }
        let mut total = added.len();
        let mut parts: Vec<Run> = vec![added.into()];
        while let Some(run) = self.runs.pop_if(|run| run.len() < 2 * total) {
            total += run.len();
            parts.push(run);
        }
        let older_first = parts.iter().rev();
        let mut merged: Vec<Entry> = older_first.flat_map(|run| run.iter().cloned()).collect();
        // Equal paths stay in the order in which they came.
        merged.sort_by(|one, other| one.0.cmp(&other.0));
        merged.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = later.1;
            }
            same
        });
        self.runs.push(merged.into());
    }

    /// Files that an earlier copy does not have, or has with another identity.
    pub fn since(&self, earlier: &Self) -> Vec<(String, FileIdentity)> {
        let pairs = self.runs.iter().zip(&earlier.runs);
        let shared = pairs
            .take_while(|(run, other)| Arc::ptr_eq(run, other))
            .count();
        self.entries(shared)
            .filter(|(path, identity)| earlier.get(path) != Some(*identity))
            .map(|(path, identity)| (path.to_owned(), identity))
            .collect()
    }

    /// Files of this run and of the newer ones.
    fn entries(&self, first: usize) -> impl Iterator<Item = (&str, FileIdentity)> {
        let runs = self.runs.iter().enumerate().skip(first);
        runs.flat_map(move |(at, run)| {
            let newer = self.runs.get(at + 1..).unwrap_or_default();
            run.iter()
                .filter(move |(path, _)| newer.iter().all(|run| find(run, path).is_none()))
                .map(|(path, identity)| (&**path, *identity))
        })
    }
}

/// A file of a run.
fn find(run: &[Entry], path: &str) -> Option<FileIdentity> {
    let at = run
        .binary_search_by(|(known, _)| (**known).cmp(path))
        .ok()?;
    run.get(at).map(|(_, identity)| *identity)
}

impl fmt::Debug for DoneFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl PartialEq for DoneFiles {
    fn eq(&self, other: &Self) -> bool {
        let sorted = |files: &Self| -> BTreeMap<String, FileIdentity> {
            let all = files.iter();
            all.map(|(path, identity)| (path.to_owned(), identity))
                .collect()
        };
        sorted(self) == sorted(other)
    }
}

impl Eq for DoneFiles {}

impl FromIterator<(String, FileIdentity)> for DoneFiles {
    fn from_iter<I: IntoIterator<Item = (String, FileIdentity)>>(files: I) -> Self {
        let mut done = Self::default();
        done.add(files);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(size: u64) -> FileIdentity {
        FileIdentity {
            size,
            modified_ms: 0,
        }
    }

    fn file(number: u64) -> (String, FileIdentity) {
        (format!("f{number:05}"), identity(number))
    }

    #[test]
    fn files_added_one_by_one_are_all_there_in_few_runs() {
        let mut done = DoneFiles::default();
        for number in 0..1_000 {
            done.add([file(number)]);
            let lengths: Vec<usize> = done.runs.iter().map(|run| run.len()).collect();
            assert!(lengths.is_sorted_by(|longer, shorter| *longer >= 2 * shorter));
        }
        assert!(done.runs.len() <= 10);
        assert!((0..1_000).all(|number| done.get(&file(number).0) == Some(identity(number))));
        assert_eq!(done.get("f01000"), None);
        assert_eq!(done, (0..1_000).rev().map(file).collect::<DoneFiles>());
        assert_ne!(done, (0..999).map(file).collect::<DoneFiles>());
    }

    #[test]
    fn a_copy_does_not_see_what_is_added_after_it() {
        let mut done: DoneFiles = (0..4).map(file).collect();
        let copy = done.clone();
        done.add([file(4)]);
        assert_eq!(copy.get(&file(4).0), None);
        assert_eq!(copy.iter().count(), 4);
    }

    #[test]
    fn what_is_new_is_found_whatever_was_merged() {
        for before in 0..20 {
            for after in before..20 {
                let mut done = DoneFiles::default();
                (0..before).for_each(|number| done.add([file(number)]));
                let earlier = done.clone();
                (before..after).for_each(|number| done.add([file(number)]));
                let mut new = done.since(&earlier);
                new.sort_by(|one, other| one.0.cmp(&other.0));
                assert_eq!(new, (before..after).map(file).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_last_identity_of_a_file_counts() {
        let mut done: DoneFiles = (0..8).map(file).collect();
        let earlier = done.clone();
        done.add([(file(3).0, identity(33))]);
        assert_eq!(done.get(&file(3).0), Some(identity(33)));
        assert_eq!(done.iter().count(), 8);
        assert_eq!(done.since(&earlier), vec![(file(3).0, identity(33))]);
        done.add((8..20).map(file));
        assert_eq!(done.get(&file(3).0), Some(identity(33)));
        assert_eq!(done.iter().count(), 20);
    }
}
