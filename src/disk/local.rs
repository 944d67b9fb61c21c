//! The real disk.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Disk, Entry, Lock, parts};

/// A directory of the local file system.
///
/// Symbolic links below the root are followed, and whoever can write there is
/// trusted not to place one that leads out.
#[derive(Debug)]
pub struct LocalDisk {
    root: PathBuf,
    /// The files written and not yet synced, still open.
    ///
    /// A kernel reports a failed write-back to the descriptors that were open
    /// when it happened. One opened afterwards learns of it only while the
    /// inode stays in memory, so closing a file and opening it again to sync it
    /// can turn lost data into `Ok`. Hence the descriptor that wrote is the one
    /// that syncs. The price is one descriptor for each file not yet synced.
    unsynced: Mutex<BTreeMap<PathBuf, File>>,
}

impl LocalDisk {
    /// Opens the disk at `root`, which is created, durably, if it is missing.
    ///
    /// # Errors
    /// Whatever the file system reports, such as `NotADirectory`.
    pub fn open(root: PathBuf) -> io::Result<Self> {
        create_durably(&root)?;
        let unsynced = Mutex::default();
        Ok(Self { root, unsynced })
    }

    /// The place of `path` below the root.
    fn place(&self, path: &str) -> io::Result<PathBuf> {
        let mut place = self.root.clone();
        place.extend(parts(path)?);
        Ok(place)
    }

    fn unsynced(&self) -> MutexGuard<'_, BTreeMap<PathBuf, File>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what is open at or below a place that no longer holds it.
    fn forget(&self, place: &Path) {
        self.unsynced().retain(|open, _| !open.starts_with(place));
    }
}

impl Disk for LocalDisk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.place(path)?)
    }

    /// A name that is not UTF-8 is left out: no call here could have made it,
    /// and none could name it.
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(self.place(dir)?)? {
            entries.extend(describe(&found?)?);
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        let place = self.place(dir)?;
        // Somebody may have removed the root, and no sync of a directory here is of the one that its name is in.
        create_durably(&self.root)?;
        fs::create_dir_all(place)
    }

    fn write_new(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.write_parts(path, &[bytes])
    }

    fn write_parts(&self, path: &str, parts: &[&[u8]]) -> io::Result<()> {
        let place = self.place(path)?;
        let mut file = File::create(&place)?;
        for part in parts {
            io::Write::write_all(&mut file, part)?;
        }
        self.unsynced().insert(place, file);
        Ok(())
    }

    fn sync_file(&self, path: &str) -> io::Result<()> {
        let place = self.place(path)?;
        let written = self.unsynced().remove(&place);
        match written {
            Some(file) => file.sync_all(),
            // Some platforms sync only what is open for writing.
            None => OpenOptions::new().write(true).open(place)?.sync_all(),
        }
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        sync_names(&self.place(dir)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        fs::rename(&from, &to)?;
        self.forget(&from);
        self.forget(&to);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let place = self.place(path)?;
        fs::remove_file(&place)?;
        self.forget(&place);
        Ok(())
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        fs::remove_dir(self.place(dir)?)
    }

    fn lock(&self, path: &str) -> io::Result<Lock> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.place(path)?)?;
        file.try_lock()?;
        Ok(Box::new(file))
    }
}

/// Describes one name, unless it has gone since it was listed or is not UTF-8.
fn describe(found: &fs::DirEntry) -> io::Result<Option<Entry>> {
    let Ok(name) = found.file_name().into_string() else {
        return Ok(None);
    };
    let meta = match fs::metadata(found.path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let dir = meta.is_dir();
    let len = if dir { 0 } else { meta.len() };
    Ok(Some(Entry { name, len, dir }))
}

/// Makes a directory and those above it, each name synced into its parent.
fn create_durably(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_durably(parent)?;
    fs::create_dir(dir).or_else(|error| if dir.is_dir() { Ok(()) } else { Err(error) })?;
    sync_names(parent)
}

/// Makes the names in a directory durable.
#[cfg(unix)]
fn sync_names(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Where a directory cannot be opened and synced, the file system is trusted
/// to keep its names by itself.
#[cfg(not(unix))]
fn sync_names(_dir: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::contract;
    use super::*;

    /// A fresh directory, removed when the test is done with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Self {
            let name = format!("disk-door-{}-{test}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn the_local_disk_keeps_the_contract() -> io::Result<()> {
        let scratch = Scratch::new("contract");
        contract(&LocalDisk::open(scratch.0.join("made/on/open"))?)
    }

    #[test]
    fn a_second_disk_on_one_root_is_locked_out() -> io::Result<()> {
        let scratch = Scratch::new("lock");
        let (one, two) = (scratch.0.clone(), scratch.0.clone());
        let (one, two) = (LocalDisk::open(one)?, LocalDisk::open(two)?);
        let held = one.lock("lock")?;
        let refused = two.lock("lock").map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(io::ErrorKind::WouldBlock));
        drop(held);
        two.lock("lock").map(drop)
    }

    #[test]
    fn no_descriptor_outlives_the_need_for_it() -> io::Result<()> {
        let scratch = Scratch::new("open");
        let disk = LocalDisk::open(scratch.0.clone())?;
        disk.create_dir("d")?;
        for path in ["synced", "removed", "renamed", "d/moved"] {
            disk.write_new(path, b"x")?;
        }
        assert_eq!(disk.unsynced().len(), 4);
        disk.sync_file("synced")?;
        disk.remove("removed")?;
        disk.rename("renamed", "target")?;
        disk.rename("d", "e")?;
        assert!(disk.unsynced().is_empty());
        disk.sync_file("target")
    }
}
