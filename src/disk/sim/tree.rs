//! The files and directories of the simulated disk, each seen twice.
//!
//! The *current* view is what a running program sees: the page cache. The
//! *durable* view is what the platter holds. A file has both as bytes, a
//! directory both as names. Syncing a file copies its bytes from the first view
//! to the second. Changes of names are kept in a log until their directory is
//! synced, since the crash models differ in which of them they let survive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::mem;

use super::Crash;
use crate::disk::{Entry, join, parts};

/// The number of a file or a directory, which it keeps when it is renamed.
pub(super) type Inode = u64;

type Names = BTreeMap<String, Inode>;

const ROOT: Inode = 0;

/// The whole of the disk's content.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    files: BTreeMap<Inode, File>,
    dirs: BTreeMap<Inode, Dir>,
    /// Every change of a name that is not durable, oldest first.
    pending: Vec<Change>,
    last_inode: Inode,
    last_change: u64,
    random: SplitMix64,
}

#[derive(Debug, Clone, Default)]
struct File {
    current: Vec<u8>,
    durable: Vec<u8>,
    pages: Pages,
}

/// How the two views of a file stand to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pages {
    /// They are the same.
    #[default]
    Clean,
    /// The current bytes wait for a sync.
    Dirty,
    /// A sync failed. The current bytes can still be read, no sync will write
    /// them, and no crash spares them.
    Dropped,
}

#[derive(Debug, Clone, Default)]
struct Dir {
    current: Names,
    durable: Names,
    /// What takes the current names back to before the last change.
    undo: Vec<(String, Option<Inode>)>,
}

/// One name given, moved or taken away.
#[derive(Debug, Clone)]
struct Change {
    /// Shared by the two halves of a rename, so that they live or die together.
    id: u64,
    rename: bool,
    dir: Inode,
    name: String,
    target: Option<Inode>,
}

impl Tree {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(ROOT, Dir::default())]),
            pending: Vec::new(),
            last_inode: ROOT,
            last_change: 0,
            random: SplitMix64(seed),
        }
    }

    pub(super) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let inode = self.find(path)?;
        let file = self.files.get(&inode).ok_or(ErrorKind::IsADirectory)?;
        Ok(file.current.clone())
    }

    pub(super) fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let dir = self.dir(self.find(path)?)?;
        Ok(self.entries(&dir.current))
    }

    /// Lists a directory as it was before the last change of its names.
    pub(super) fn list_stale(&self, path: &str) -> io::Result<Vec<Entry>> {
        let dir = self.dir(self.find(path)?)?;
        let mut names = dir.current.clone();
        for (name, before) in dir.undo.iter().rev() {
            set(&mut names, name, *before);
        }
        Ok(self.entries(&names))
    }

    pub(super) fn create_dir(&mut self, path: &str) -> io::Result<()> {
        let names = parts(path)?;
        let mut at = ROOT;
        for (depth, name) in names.iter().enumerate() {
            let known = self.dir(at)?.current.get(*name).copied();
            at = match known {
                Some(inode) if self.dirs.contains_key(&inode) => inode,
                Some(_) if depth + 1 == names.len() => return Err(ErrorKind::AlreadyExists.into()),
                Some(_) => return Err(ErrorKind::NotADirectory.into()),
                None => self.add_dir(at, name),
            };
        }
        Ok(())
    }

    pub(super) fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let inode = self.open_or_create(path)?;
        let file = self.file_mut(inode)?;
        file.current = bytes.to_vec();
        file.pages = Pages::Dirty;
        Ok(())
    }

    /// The file at `path`, made empty if it is missing.
    pub(super) fn open_or_create(&mut self, path: &str) -> io::Result<Inode> {
        let (dir, name) = self.slot(path)?;
        match self.dir(dir)?.current.get(name).copied() {
            Some(inode) if self.files.contains_key(&inode) => Ok(inode),
            Some(_) => Err(ErrorKind::IsADirectory.into()),
            None => {
                let inode = self.next_inode();
                self.files.insert(inode, File::default());
                self.change(false, &[(dir, name, Some(inode))]);
                Ok(inode)
            }
        }
    }

    pub(super) fn sync_file(&mut self, path: &str) -> io::Result<()> {
        let file = self.find(path).and_then(|inode| self.file_mut(inode))?;
        if file.pages == Pages::Dirty {
            file.durable.clone_from(&file.current);
            file.pages = Pages::Clean;
        }
        Ok(())
    }

    /// What a failed sync does to a file: its unsynced bytes are given up.
    pub(super) fn drop_data(&mut self, path: &str) -> io::Result<()> {
        let file = self.find(path).and_then(|inode| self.file_mut(inode))?;
        if file.pages == Pages::Dirty {
            file.pages = Pages::Dropped;
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        for change in self.take_changes(path)? {
            self.make_durable(&change);
        }
        Ok(())
    }

    /// What a failed sync does to a directory: its unsynced changes are given
    /// up, and still seen until the crash.
    pub(super) fn drop_names(&mut self, path: &str) -> io::Result<()> {
        self.take_changes(path).map(drop)
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (from_dir, from_name) = self.slot(from)?;
        let (to_dir, to_name) = self.slot(to)?;
        let source = self.dir(from_dir)?.current.get(from_name).copied();
        let source = source.ok_or(ErrorKind::NotFound)?;
        let target = self.dir(to_dir)?.current.get(to_name).copied();
        if target == Some(source) {
            return Ok(());
        }
        if parts(to)?.starts_with(&parts(from)?) {
            return Err(ErrorKind::InvalidInput.into());
        }
        if let Some(target) = target {
            self.may_replace(source, target)?;
        }
        let moved = [(from_dir, from_name, None), (to_dir, to_name, Some(source))];
        self.change(true, &moved);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        let (dir, name) = self.slot(path)?;
        if self.dirs.contains_key(&self.find(path)?) {
            return Err(ErrorKind::IsADirectory.into());
        }
        self.change(false, &[(dir, name, None)]);
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        let (dir, name) = self.slot(path)?;
        if !self.dir(self.find(path)?)?.current.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        self.change(false, &[(dir, name, None)]);
        Ok(())
    }

    /// Replaces the bytes of a file behind its owner's back; if they were
    /// durable they still are.
    pub(super) fn replace(&mut self, path: &str, bytes: Vec<u8>) -> io::Result<()> {
        let file = self.find(path).and_then(|inode| self.file_mut(inode))?;
        if file.pages == Pages::Clean {
            file.durable.clone_from(&bytes);
        }
        file.current = bytes;
        Ok(())
    }

    /// The path of every file, sorted.
    pub(super) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![(String::new(), ROOT)];
        while let Some((path, inode)) = left.pop() {
            let names = self.dirs.get(&inode).map(|dir| &dir.current);
            for (name, child) in names.into_iter().flatten() {
                let path = join(&path, name);
                if self.dirs.contains_key(child) {
                    left.push((path, *child));
                } else {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Loses power: what the model lets survive becomes both views.
    pub(super) fn crash(&mut self, model: Crash) {
        self.settle_names(model);
        self.settle_files(model);
        self.discard_unreachable();
    }

    fn settle_names(&mut self, model: Crash) {
        let mut tossed = None;
        for change in mem::take(&mut self.pending) {
            let survives = match model {
                Crash::Lost => false,
                Crash::Kept => true,
                Crash::RenameFirst => change.rename,
                Crash::Torn => match tossed {
                    Some((id, side)) if id == change.id => side,
                    _ => self.random.coin(),
                },
            };
            tossed = Some((change.id, survives));
            if survives {
                self.make_durable(&change);
            }
        }
        for dir in self.dirs.values_mut() {
            dir.current.clone_from(&dir.durable);
            dir.undo.clear();
        }
    }

    fn settle_files(&mut self, model: Crash) {
        for file in self.files.values_mut() {
            match (mem::take(&mut file.pages), model) {
                (Pages::Clean, _) => {}
                (Pages::Dirty, Crash::Kept) => file.durable.clone_from(&file.current),
                (Pages::Dirty, Crash::Torn) => {
                    let kept = self.random.up_to(file.current.len());
                    file.durable.clone_from(&file.current);
                    file.durable.truncate(kept);
                }
                (_, Crash::RenameFirst) => file.durable.clear(),
                (Pages::Dirty, Crash::Lost) | (Pages::Dropped, _) => {}
            }
            file.current.clone_from(&file.durable);
        }
    }

    /// Drops what no path leads to, as a file system check would, and all but
    /// one of the names of a directory that a half-durable move left with
    /// several.
    fn discard_unreachable(&mut self) {
        let mut seen = BTreeSet::from([ROOT]);
        let mut left = vec![ROOT];
        while let Some(inode) = left.pop() {
            let mut names = match self.dirs.get_mut(&inode) {
                Some(dir) => mem::take(&mut dir.current),
                None => continue,
            };
            names.retain(|_, child| {
                let first = seen.insert(*child);
                let is_dir = self.dirs.contains_key(child);
                if first && is_dir {
                    left.push(*child);
                }
                first || !is_dir
            });
            if let Some(dir) = self.dirs.get_mut(&inode) {
                dir.durable.clone_from(&names);
                dir.current = names;
            }
        }
        self.dirs.retain(|inode, _| seen.contains(inode));
        self.files.retain(|inode, _| seen.contains(inode));
    }

    /// Follows a path from the root.
    fn find(&self, path: &str) -> io::Result<Inode> {
        self.walk(&parts(path)?)
    }

    fn walk(&self, names: &[&str]) -> io::Result<Inode> {
        names.iter().try_fold(ROOT, |at, name| {
            let child = self.dir(at)?.current.get(*name).copied();
            child.ok_or_else(|| ErrorKind::NotFound.into())
        })
    }

    /// Splits a path into its directory, which must exist, and its last name.
    fn slot<'path>(&self, path: &'path str) -> io::Result<(Inode, &'path str)> {
        let names = parts(path)?;
        let (name, above) = names.split_last().ok_or(ErrorKind::InvalidInput)?;
        let dir = self.walk(above)?;
        self.dir(dir)?;
        Ok((dir, name))
    }

    fn dir(&self, inode: Inode) -> io::Result<&Dir> {
        let dir = self.dirs.get(&inode);
        dir.ok_or_else(|| ErrorKind::NotADirectory.into())
    }

    fn file_mut(&mut self, inode: Inode) -> io::Result<&mut File> {
        let file = self.files.get_mut(&inode);
        file.ok_or_else(|| ErrorKind::IsADirectory.into())
    }

    fn entries(&self, names: &Names) -> Vec<Entry> {
        let describe = |(name, inode): (&String, &Inode)| Entry {
            name: name.clone(),
            len: self.files.get(inode).map_or(0, |f| f.current.len() as u64),
            dir: self.dirs.contains_key(inode),
        };
        names.iter().map(describe).collect()
    }

    fn may_replace(&self, source: Inode, target: Inode) -> io::Result<()> {
        match (self.dirs.get(&source), self.dirs.get(&target)) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(ErrorKind::NotADirectory.into()),
            (None, Some(_)) => Err(ErrorKind::IsADirectory.into()),
            (Some(_), Some(dir)) if dir.current.is_empty() => Ok(()),
            (Some(_), Some(_)) => Err(ErrorKind::DirectoryNotEmpty.into()),
        }
    }

    fn next_inode(&mut self) -> Inode {
        self.last_inode += 1;
        self.last_inode
    }

    fn add_dir(&mut self, parent: Inode, name: &str) -> Inode {
        let inode = self.next_inode();
        self.dirs.insert(inode, Dir::default());
        self.change(false, &[(parent, name, Some(inode))]);
        inode
    }

    /// Changes names in the current view, and logs it for the durable one.
    fn change(&mut self, rename: bool, edits: &[(Inode, &str, Option<Inode>)]) {
        self.last_change += 1;
        for (dir, ..) in edits {
            if let Some(dir) = self.dirs.get_mut(dir) {
                dir.undo.clear();
            }
        }
        for (inode, name, target) in edits {
            if let Some(dir) = self.dirs.get_mut(inode) {
                let before = set(&mut dir.current, name, *target);
                dir.undo.push(((*name).to_owned(), before));
            }
            self.pending.push(Change {
                id: self.last_change,
                rename,
                dir: *inode,
                name: (*name).to_owned(),
                target: *target,
            });
        }
    }

    /// Takes the changes of one directory out of the log.
    fn take_changes(&mut self, path: &str) -> io::Result<Vec<Change>> {
        let inode = self.find(path)?;
        self.dir(inode)?;
        let all = mem::take(&mut self.pending);
        let (taken, left) = all.into_iter().partition(|change| change.dir == inode);
        self.pending = left;
        Ok(taken)
    }

    fn make_durable(&mut self, change: &Change) {
        if let Some(dir) = self.dirs.get_mut(&change.dir) {
            set(&mut dir.durable, &change.name, change.target);
        }
    }
}

/// Points a name at an inode or at nothing, and returns what it had.
fn set(names: &mut Names, name: &str, target: Option<Inode>) -> Option<Inode> {
    match target {
        Some(inode) => names.insert(name.to_owned(), inode),
        None => names.remove(name),
    }
}

/// Sebastiano Vigna's generator: small, and the same on every machine.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// A number from zero to `most`, both included; the bias is of no account
    /// at these sizes.
    fn up_to(&mut self, most: usize) -> usize {
        let drawn = self.next() % (most as u64).saturating_add(1);
        usize::try_from(drawn).unwrap_or(most)
    }
}
