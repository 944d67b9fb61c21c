//! Files as another process sees them while the job writes: whole when they have a name, and never changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// What a Parquet file begins and ends with.
const MAGIC: [u8; 4] = *b"PAR1";

/// Bytes of the least Parquet file: magic, length of the footer, magic.
const LEAST: u64 = 12;

/// The Parquet files that have been seen, and how long they were.
#[derive(Debug, Default)]
pub(crate) struct Files {
    lengths: BTreeMap<PathBuf, u64>,
    looks: u64,
}

impl Files {
    /// Looks at the files of some directories. One that is not there yet has none.
    ///
    /// Names that begin with a dot count: what lists a directory by its ending reads them too.
    pub(crate) fn look<'a>(&mut self, folders: impl IntoIterator<Item = &'a PathBuf>) {
        self.looks += 1;
        for folder in folders {
            for path in parquet_files(folder) {
                self.look_at(path);
            }
        }
    }

    fn look_at(&mut self, path: PathBuf) {
        let known = self.lengths.get(&path).copied();
        let found = match known {
            Some(_) => fs::metadata(&path).map(|file| file.len()),
            None => whole(&path),
        };
        let length = match found {
            Ok(length) => length,
            // It went between the two calls. Rows that go with it are missed when rows are compared.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => panic!("{} cannot be read: {error}", path.display()),
        };
        match known {
            Some(known) => assert_eq!(
                known,
                length,
                "{} has changed its length after it was seen",
                path.display()
            ),
            None => {
                self.lengths.insert(path, length);
            }
        }
    }

    /// How often it was looked.
    pub(crate) fn looks(&self) -> u64 {
        self.looks
    }

    /// How many files have been seen.
    pub(crate) fn seen(&self) -> usize {
        self.lengths.len()
    }
}

/// The files of a directory whose names end as those of Parquet files do.
pub(crate) fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("{} cannot be listed: {error}", folder.display()),
    };
    entries
        .map(|entry| entry.expect("an entry is read").path())
        .filter(|path| path.to_string_lossy().ends_with(".parquet"))
        .collect()
}

/// The length in bytes of a file that must be whole.
fn whole(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    assert!(
        length >= LEAST,
        "{} has a name and only {length} bytes",
        path.display()
    );
    let mut ends = [[0_u8; 4]; 2];
    file.read_exact(&mut ends[0])?;
    file.seek(SeekFrom::Start(length - 4))?;
    file.read_exact(&mut ends[1])?;
    assert_eq!(
        ends,
        [MAGIC; 2],
        "{} has a name and is not whole",
        path.display()
    );
    Ok(length)
}
