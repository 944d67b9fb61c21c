//! Files that are in place, and of which it is not known whether they stay.
//!
//! A process that ended, or a sync that failed, may have left a file in place
//! without making its name durable. Whoever opens it publishes it again. On a
//! full disk that fails, and yet there is nothing wrong with the file: it is
//! read, and stays in doubt. What counts on it is not written, and what it
//! took the place of is not removed, before it has been published.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Disk, join, publish};

/// The files of a disk that are in doubt, by folder and name.
///
/// It is held while one of them is published: two publishers of one name would
/// share the temporary file.
#[derive(Debug, Default)]
pub struct Doubts {
    files: Mutex<BTreeMap<(String, String), Content>>,
}

/// What a file in doubt is to hold.
#[derive(Debug)]
enum Content {
    /// What it was found to hold: bytes of this length and CRC-32.
    Found(usize, u32),
    /// These bytes, whatever is in place.
    Known(Vec<u8>),
}

impl Content {
    fn bytes(&self, disk: &dyn Disk, path: &str) -> io::Result<Vec<u8>> {
        match self {
            Self::Known(bytes) => Ok(bytes.clone()),
            Self::Found(length, crc32) => {
                let bytes = disk.read(path)?;
                match bytes.len() == *length && crc32fast::hash(&bytes) == *crc32 {
                    true => Ok(bytes),
                    false => Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "not what was read before",
                    )),
                }
            }
        }
    }
}

impl Doubts {
    /// Does what [`publish`] does; then there is no doubt about the file.
    ///
    /// # Errors
    /// Those of [`publish`].
    pub fn publish(&self, disk: &dyn Disk, dir: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files();
        publish(disk, dir, name, bytes)?;
        files.remove(&(dir.to_owned(), name.to_owned()));
        Ok(())
    }

    /// Publishes a file again with the bytes that it was found to hold. If the
    /// disk is full, it is in doubt.
    ///
    /// # Errors
    /// Those of [`publish`], but for a full disk.
    pub fn publish_again(
        &self,
        disk: &dyn Disk,
        dir: &str,
        name: &str,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut files = self.files();
        let key = (dir.to_owned(), name.to_owned());
        match publish(disk, dir, name, bytes) {
            Ok(()) => {
                files.remove(&key);
            }
            Err(error) if is_full(&error) => {
                let found = Content::Found(bytes.len(), crc32fast::hash(bytes));
                files.insert(key, found);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Does what [`publish`](Self::publish) does. If that fails it may have put
    /// the file in place all the same: what was there before is published in
    /// its place, and if this fails as well, the file is in doubt. Nobody counts
    /// on the file meanwhile.
    ///
    /// # Errors
    /// Those of [`publish`].
    pub fn publish_or_put_back(
        &self,
        disk: &dyn Disk,
        dir: &str,
        name: &str,
        bytes: &[u8],
        former: Vec<u8>,
    ) -> io::Result<()> {
        let mut files = self.files();
        let key = (dir.to_owned(), name.to_owned());
        let published = publish(disk, dir, name, bytes);
        if published.is_ok() || publish(disk, dir, name, &former).is_ok() {
            files.remove(&key);
        } else {
            files.insert(key, Content::Known(former));
        }
        published
    }

    /// Nobody publishes a file in doubt while this is held: temporary files that
    /// are found then are left over.
    pub fn alone(&self) -> impl Drop + '_ {
        self.files()
    }

    /// Publishes the files that are in doubt.
    ///
    /// # Errors
    /// The path of the first that still is in doubt, and why.
    pub fn settle(&self, disk: &dyn Disk) -> Result<(), (String, io::Error)> {
        let mut files = self.files();
        let mut settled = Vec::new();
        let mut failed = None;
        for ((dir, name), content) in files.iter() {
            let path = join(dir, name);
            let bytes = content.bytes(disk, &path);
            match bytes.and_then(|bytes| publish(disk, dir, name, &bytes)) {
                Ok(()) => settled.push((dir.clone(), name.clone())),
                Err(error) => {
                    failed = Some((path, error));
                    break;
                }
            }
        }
        for key in &settled {
            files.remove(key);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Whether a file of this folder is in doubt.
    pub fn are_in(&self, dir: &str) -> bool {
        self.files().keys().any(|(of, _)| of == dir)
    }

    /// Forgets about the files of a folder that is about to go.
    pub fn forget(&self, dir: &str) {
        self.files().retain(|(of, _), _| of != dir);
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<(String, String), Content>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a disk has no room, or none for this user.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;
    use crate::disk::sim::{Crash, Fault};

    /// A disk with `d/f`, which is in place and not durable.
    fn disk() -> SimDisk {
        let disk = SimDisk::new(1);
        disk.create_dir("d").unwrap();
        disk.sync_dir("").unwrap();
        disk.fail_at(disk.calls() + 3, Fault::Eacces, true);
        publish(&disk, "d", "f", b"1").unwrap_err();
        disk.heal();
        disk
    }

    #[test]
    fn a_file_is_in_doubt_on_a_full_disk_until_there_is_room() {
        let (disk, doubts) = (disk(), Doubts::default());
        disk.fail_at(disk.calls(), Fault::Enospc, true);
        doubts.publish_again(&disk, "d", "f", b"1").unwrap();
        assert!(doubts.are_in("d") && !doubts.are_in(""));
        let (path, error) = doubts.settle(&disk).unwrap_err();
        assert_eq!((path.as_str(), is_full(&error)), ("d/f", true));
        disk.heal();
        doubts.settle(&disk).unwrap();
        assert!(!doubts.are_in("d"));
        disk.reopen(Crash::Lost);
        assert_eq!(disk.read("d/f").unwrap(), b"1");
    }

    #[test]
    fn other_errors_are_errors_and_other_bytes_are_not_published() {
        let (disk, doubts) = (disk(), Doubts::default());
        disk.fail_at(disk.calls(), Fault::Eio, false);
        doubts.publish_again(&disk, "d", "f", b"1").unwrap_err();
        assert!(!doubts.are_in("d"));
        disk.fail_at(disk.calls(), Fault::Enospc, false);
        doubts.publish_again(&disk, "d", "f", b"1").unwrap();
        disk.fail_at(disk.calls(), Fault::PartialRead, false);
        doubts.settle(&disk).unwrap_err();
        assert!(doubts.are_in("d"));
        assert_eq!(disk.read("d/f").unwrap(), b"1");
        doubts.forget("d");
        assert!(!doubts.are_in("d"));
    }

    #[test]
    fn what_was_there_before_is_put_back_when_it_can_be() {
        let (disk, doubts) = (disk(), Doubts::default());
        let put = |bytes: &[u8]| doubts.publish_or_put_back(&disk, "d", "f", bytes, b"0".to_vec());
        disk.fail_at(disk.calls(), Fault::Eio, true);
        put(b"2").unwrap_err();
        disk.heal();
        assert_eq!(disk.read("d/f").unwrap(), b"1");
        doubts.settle(&disk).unwrap();
        assert_eq!(disk.read("d/f").unwrap(), b"0");
        // The sync of the folder fails, when the file is in place.
        disk.fail_at(disk.calls() + 3, Fault::Eio, false);
        put(b"2").unwrap_err();
        assert!(!doubts.are_in("d"));
        assert_eq!(disk.read("d/f").unwrap(), b"0");
        put(b"3").unwrap();
        assert_eq!(disk.read("d/f").unwrap(), b"3");
    }
}
