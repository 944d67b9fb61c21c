//! The one door to the disk.
//!
//! What must survive a crash goes through the [`Disk`] trait and through nothing
//! else. That buys two things: what is durable, and when, can be read in one
//! place; and the same code runs against [`SimDisk`], which can lose power at any
//! call, in any of several ways.
//!
//! Three facts about disks shape the trait:
//!
//! * A write is not durable until the file is synced, and a *name* is not
//!   durable until the directory that holds it is synced. These are two calls
//!   because they are two facts.
//! * A sync that failed says the data may be gone. The kernel has already
//!   marked the pages clean, so a second sync succeeds and proves nothing. The
//!   only cure is to write the file anew.
//! * A rename replaces its target at one stroke, but carries no data with it:
//!   the file must be synced before the rename, the directory after it.
//!
//! [`publish`] is those three facts in order, and the one way a durable file
//! comes to be. [`Doubts`] are about files that an earlier process left in place.
//!
//! # Paths
//!
//! A path is relative to the disk's root and split by `/`; the empty path is
//! the root itself. Every part must be a plain name: an absolute path, `.`,
//! `..`, an empty part or a NUL is refused with
//! [`InvalidInput`](io::ErrorKind::InvalidInput) before the disk is touched.

mod doubts;
mod local;
pub mod sim;

use std::fmt::Debug;
use std::io;
use std::path::{Component, Path};

pub use doubts::Doubts;
pub use local::LocalDisk;
pub use sim::SimDisk;

/// What the name of a file that is not yet published begins with.
///
/// A crash inside [`publish`] can leave such a file behind. It holds nothing
/// anyone was promised, so whoever owns the directory may remove it.
pub const TEMP_PREFIX: &str = ".tmp-";

/// What the name of such a file ends with: nothing that a reader of a directory looks for.
pub const TEMP_SUFFIX: &str = ".part";

/// An exclusive lock, held until it is dropped.
pub type Lock = Box<dyn Debug + Send + Sync>;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name alone, without the directory.
    pub name: String,
    /// The length of the file in bytes; zero for a directory.
    pub len: u64,
    /// Whether this is a directory.
    pub dir: bool,
}

/// The calls a checkpoint store needs of a disk, and no others.
///
/// Every method fails with `InvalidInput` for a path that the
/// [module](self#paths) refuses, and with whatever the disk itself reports.
pub trait Disk: Debug + Send + Sync {
    /// Returns the whole content of a file.
    ///
    /// # Errors
    /// `NotFound` if there is no such file, `IsADirectory` if it is one.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// Returns what a directory holds, sorted by name.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory, `NotADirectory` if it is a
    /// file.
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>>;

    /// Makes a directory and those above it that are missing. One that exists
    /// already is fine.
    ///
    /// The new names are durable only after [`sync_dir`](Disk::sync_dir) of
    /// each directory that received one: of the *parents*, not of `dir`.
    ///
    /// # Errors
    /// `AlreadyExists` if `dir` is a file, `NotADirectory` if something above
    /// it is.
    fn create_dir(&self, dir: &str) -> io::Result<()>;

    /// Creates a file, or empties the one that is there, and writes `bytes`.
    ///
    /// Nothing is durable yet: neither the bytes nor the name. On failure the
    /// file may hold any prefix of `bytes`.
    ///
    /// # Errors
    /// `NotFound` if the directory is missing, `IsADirectory` if `path` is one.
    fn write_new(&self, path: &str, bytes: &[u8]) -> io::Result<()>;

    /// Does what [`write_new`](Disk::write_new) does, with bytes that lie in
    /// several places: the file has them one behind the other.
    ///
    /// A disk that can take them one by one spares itself the copy that joins
    /// them.
    ///
    /// # Errors
    /// Those of [`write_new`](Disk::write_new).
    fn write_parts(&self, path: &str, parts: &[&[u8]]) -> io::Result<()> {
        match parts {
            [one] => self.write_new(path, one),
            _ => self.write_new(path, &parts.concat()),
        }
    }

    /// Makes the content of a file durable; its name is another matter.
    ///
    /// After a failure the content must be written anew: calling this again may
    /// succeed although the data is lost.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    fn sync_file(&self, path: &str) -> io::Result<()>;

    /// Makes the names in a directory durable: those added, replaced by a
    /// rename, and removed.
    ///
    /// After a failure the changes must be made anew, as with
    /// [`sync_file`](Disk::sync_file).
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// Moves a file or a directory, replacing a file or an empty directory that
    /// holds the new name. A reader sees the old state or the new, never a
    /// third.
    ///
    /// # Errors
    /// `NotFound` if `from` is missing, `DirectoryNotEmpty` if `to` is a
    /// directory with something in it, `IsADirectory` or `NotADirectory` if one
    /// is a file and the other is not.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound` if there is none, `DirectoryNotEmpty` if something is in it.
    fn remove_dir(&self, dir: &str) -> io::Result<()>;

    /// Takes the exclusive lock on a file, creating it empty if it is missing.
    /// Held until the value returned is dropped, or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` if another process, or another handle in this one, holds
    /// it. This never waits.
    fn lock(&self, path: &str) -> io::Result<Lock>;
}

/// Puts `bytes` at `dir/name` so that, whenever power fails, the name holds
/// either all of its old content or all of the new.
///
/// When this returns `Ok` the new content is durable, provided `dir` itself is.
/// The bytes go to a temporary name and are synced there; only then are they
/// renamed into place, and the directory synced. Two publishers of one name
/// would share the temporary file: the caller sees to it that there is one.
///
/// # Errors
/// The first error met, after removing the temporary file if that can be done.
/// If what failed is the last step, the sync of the directory, the new content
/// is in place but a crash may bring the old one back. In every case the way
/// on is to publish again from the bytes: a failed sync is never retried, since
/// its second answer could not be believed.
pub fn publish(disk: &dyn Disk, dir: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    publish_parts(disk, dir, name, &[bytes])
}

/// Does what [`publish`] does, with bytes that lie in several places: the file
/// has them one behind the other.
///
/// # Errors
/// Those of [`publish`].
pub fn publish_parts(disk: &dyn Disk, dir: &str, name: &str, bytes: &[&[u8]]) -> io::Result<()> {
    if parts(name)?.len() != 1 {
        return Err(refused(name));
    }
    let temp = join(dir, &format!("{TEMP_PREFIX}{name}{TEMP_SUFFIX}"));
    let placed = disk
        .write_parts(&temp, bytes)
        .and_then(|()| disk.sync_file(&temp))
        .and_then(|()| disk.rename(&temp, &join(dir, name)));
    if let Err(first) = placed {
        // Best effort: a temporary file left behind is litter, not a fault.
        disk.remove(&temp).ok();
        return Err(first);
    }
    disk.sync_dir(dir)
}

/// The path of `name` in `dir`, where an empty `dir` is the root.
fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

/// Splits a path into its names, or refuses it; the root has none.
fn parts(path: &str) -> io::Result<Vec<&str>> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = path.split('/').collect();
    if names.iter().all(|name| plain(name)) {
        Ok(names)
    } else {
        Err(refused(path))
    }
}

/// Whether a name is just a name on this platform: not a root, a drive, `.` or
/// `..`, and without a separator.
fn plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let first = components.next();
    first == Some(Component::Normal(name.as_ref()))
        && components.next().is_none()
        && !name.contains('\0')
}

/// The error for a path that is not relative, plain and below the root.
fn refused(path: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("not a plain path below the root: {path:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::ErrorKind::{self, *};

    /// What both disks must agree on: the answers, and the kinds of error.
    pub(super) fn contract(disk: &dyn Disk) -> io::Result<()> {
        assert_eq!(kind(disk.list("a")), NotFound);
        disk.create_dir("a/b")?;
        disk.create_dir("a/b")?;
        disk.write_new("a/two", b"22")?;
        disk.write_parts("a/one", &[&b"long"[..], b"", b"er"])?;
        assert_eq!(disk.read("a/one")?, b"longer");
        disk.write_parts("a/one", &[])?;
        assert_eq!(disk.read("a/one")?, b"");
        disk.write_new("a/one", b"1")?;
        let names = disk.list("a")?;
        let expected = [("b", 0, true), ("one", 1, false), ("two", 2, false)];
        assert_eq!(names, expected.map(entry));
        assert_eq!(disk.list("")?, [entry(("a", 0, true))]);

        disk.sync_file("a/one")?;
        disk.sync_dir("a")?;
        disk.sync_dir("")?;
        disk.rename("a/one", "a/two")?;
        assert_eq!(disk.read("a/two")?, b"1");
        assert_eq!(kind(disk.read("a/one")), NotFound);
        disk.create_dir("c")?;
        disk.rename("c", "a/b")?;
        disk.write_new("a/b/deep", b"")?;
        disk.rename("a", "z")?;
        assert_eq!(disk.list("z/b")?, [entry(("deep", 0, false))]);
        assert_eq!(kind(disk.sync_file("a/two")), NotFound);

        wrong_kinds(disk)?;
        locks(disk)?;
        disk.remove("z/b/deep")?;
        disk.remove_dir("z/b")?;
        assert_eq!(kind(disk.remove("z/b/deep")), NotFound);
        publish(disk, "z", "two", b"published")?;
        assert_eq!(disk.read("z/two")?, b"published");
        assert_eq!(disk.list("z")?, [entry(("two", 9, false))]);
        Ok(())
    }

    /// With `z/two` a file and `z/b` a directory that holds something.
    fn wrong_kinds(disk: &dyn Disk) -> io::Result<()> {
        assert_eq!(kind(disk.read("z/b")), IsADirectory);
        assert_eq!(kind(disk.write_new("z/b", b"")), IsADirectory);
        assert_eq!(kind(disk.write_new("no/x", b"")), NotFound);
        assert_eq!(kind(disk.write_parts("no/x", &[])), NotFound);
        assert_eq!(kind(disk.write_new("z/two/x", b"")), NotADirectory);
        assert_eq!(kind(disk.list("z/two")), NotADirectory);
        assert_eq!(kind(disk.create_dir("z/two")), AlreadyExists);
        assert_eq!(kind(disk.create_dir("z/two/x")), NotADirectory);
        assert_eq!(kind(disk.remove_dir("z/b")), DirectoryNotEmpty);
        assert_eq!(kind(disk.remove_dir("z/two")), NotADirectory);
        assert_eq!(kind(disk.remove("z/b")), IsADirectory);
        assert_eq!(kind(disk.rename("z/two", "z/b")), IsADirectory);
        assert_eq!(kind(disk.rename("z/b", "z/two")), NotADirectory);
        assert_eq!(kind(disk.rename("z", "z/b/z")), InvalidInput);
        assert_eq!(kind(disk.rename("no", "yes")), NotFound);
        disk.rename("z/two", "z/two")?;
        for path in ["/etc", "../x", "z/../x", "z//b", "z/", ".", "z/\0"] {
            assert_eq!(kind(disk.write_new(path, b"")), InvalidInput, "{path:?}");
            assert_eq!(kind(disk.list(path)), InvalidInput, "{path:?}");
        }
        assert_eq!(kind(publish(disk, "z", "a/b", b"")), InvalidInput);
        assert_eq!(kind(publish(disk, "z", "", b"")), InvalidInput);
        Ok(())
    }

    fn locks(disk: &dyn Disk) -> io::Result<()> {
        let held = disk.lock("lock")?;
        assert_eq!(kind(disk.lock("lock")), WouldBlock);
        drop(disk.lock("other")?);
        drop(held);
        drop(disk.lock("lock")?);
        Ok(())
    }

    fn entry((name, len, dir): (&str, u64, bool)) -> Entry {
        let name = name.to_owned();
        Entry { name, len, dir }
    }

    fn kind<T: Debug>(result: io::Result<T>) -> ErrorKind {
        result.expect_err("the call should fail").kind()
    }

    #[test]
    fn the_simulated_disk_keeps_the_contract() -> io::Result<()> {
        contract(&SimDisk::new(1))
    }
}
