//! A disk that writes down what it is asked for.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate::disk::sim::Fault;
use tidegate::disk::{Disk, Entry, Lock, SimDisk};

/// The calls of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Read,
    List,
    CreateDir,
    WriteNew,
    SyncFile,
    SyncDir,
    Rename,
    Remove,
    RemoveDir,
    Lock,
}

impl What {
    /// The faults that fit, by the words at [`Fault`].
    pub(crate) fn faults(self) -> &'static [Fault] {
        use Fault::{
            Eacces, Eio, Emfile, Enospc, FailedRename, FailedSync, PartialRead, ShortWrite,
            StaleListing,
        };
        match self {
            Self::Read => &[Eio, Eacces, Emfile, PartialRead],
            Self::List => &[Eio, Eacces, Emfile, StaleListing],
            Self::CreateDir => &[Eio, Eacces, Enospc],
            Self::WriteNew => &[Eio, Eacces, Emfile, Enospc, ShortWrite],
            Self::SyncFile => &[Eio, Eacces, Emfile, Enospc, FailedSync],
            Self::SyncDir => &[Eio, Eacces, Emfile, FailedSync],
            Self::Rename => &[Eio, Eacces, Enospc, FailedRename],
            Self::Remove | Self::RemoveDir => &[Eio, Eacces],
            Self::Lock => &[Eio, Eacces, Emfile],
        }
    }
}

/// A call: what was asked for, and of which path.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    pub(crate) what: What,
    pub(crate) path: String,
}

/// The disk, and its calls since they were last taken.
#[derive(Debug)]
pub(crate) struct Tap {
    disk: SimDisk,
    calls: Mutex<Vec<Called>>,
}

impl Tap {
    pub(crate) fn on(disk: &SimDisk) -> Self {
        Self {
            disk: disk.clone(),
            calls: Mutex::default(),
        }
    }

    /// The calls since the last time.
    pub(crate) fn take(&self) -> Vec<Called> {
        std::mem::take(&mut *self.calls())
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Called>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note<T>(&self, what: What, path: &str, done: io::Result<T>) -> io::Result<T> {
        self.calls().push(Called {
            what,
            path: path.to_owned(),
        });
        done
    }
}

impl Disk for Tap {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.note(What::Read, path, self.disk.read(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        self.note(What::List, dir, self.disk.list(dir))
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.note(What::CreateDir, dir, self.disk.create_dir(dir))
    }

    fn write_new(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.note(What::WriteNew, path, self.disk.write_new(path, bytes))
    }

    fn sync_file(&self, path: &str) -> io::Result<()> {
        self.note(What::SyncFile, path, self.disk.sync_file(path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.note(What::SyncDir, dir, self.disk.sync_dir(dir))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(What::Rename, to, self.disk.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.note(What::Remove, path, self.disk.remove(path))
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.note(What::RemoveDir, dir, self.disk.remove_dir(dir))
    }

    fn lock(&self, path: &str) -> io::Result<Lock> {
        self.note(What::Lock, path, self.disk.lock(path))
    }
}
