//! One file: header and sections, to bytes and back.

use std::collections::BTreeMap;

use crc32fast::Hasher;
use datafusion::common::{DataFusionError, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Refusal;

/// What a file begins with.
const MAGIC: [u8; 8] = *b"TIDEGATE";

/// The format that this version writes, and the only one it reads.
const VERSION: u32 = 1;

/// Bytes before the header.
const FIXED: usize = 20;

/// What a file says about itself and about the files that it needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// What it belongs to: a query's id.
    pub owner: String,
    /// Its number, which is also its name.
    pub number: u64,
    /// What its owner wrote: positions, watermark, progress.
    pub content: Value,
    /// Length and checksum of each of its sections.
    pub sections: Vec<Sum>,
    /// Where the rows of each piece are, oldest first.
    pub pieces: BTreeMap<String, Vec<Segment>>,
    /// Length and checksum of each earlier file that a segment is in.
    pub files: BTreeMap<u64, Sum>,
}

/// Length and checksum of some bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Number of bytes.
    pub bytes: u64,
    /// Their CRC-32.
    pub crc32: u32,
}

impl Sum {
    /// That of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.len() as u64,
            crc32: crc32fast::hash(bytes),
        }
    }

    /// That of these bytes and others behind them, of which the sum is enough.
    fn then(self, behind: Self) -> Self {
        let hasher = |sum: Self| Hasher::new_with_initial_len(sum.crc32, sum.bytes);
        let mut all = hasher(self);
        all.combine(&hasher(behind));
        Self {
            bytes: self.bytes + behind.bytes,
            crc32: all.finalize(),
        }
    }
}

/// Rows of a piece: a section of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Number of the file.
    pub file: u64,
    /// Place of the section in it.
    pub section: usize,
    /// Number of rows.
    pub rows: u64,
    /// Greatest value of the column by which rows leave; none if some never do.
    pub until: Option<i64>,
}

/// The error for a file that is not what it should be.
pub fn damaged(file: &str, what: impl Into<String>) -> DataFusionError {
    Refusal::new(
        "CHECKPOINT_DAMAGED",
        "58030",
        format!("{file} {}.", what.into()),
    )
    .hint("bring the file back from a copy, remove the newest epoch's file to go back to the one before, or begin anew: REFRESH STREAMING TABLE … FULL")
    .into()
}

/// The bytes of a file with these sections, in the parts that it has one behind the other, and the sum of them all;
/// the header's own sums are made here.
///
/// # Errors
/// - a header of 4 GiB
pub(crate) fn encode(mut header: Header, sections: Vec<Vec<u8>>) -> Result<(Vec<Vec<u8>>, Sum)> {
    header.sections = sections.iter().map(|bytes| Sum::of(bytes)).collect();
    let json =
        serde_json::to_vec(&header).map_err(|error| DataFusionError::External(error.into()))?;
    let length =
        u32::try_from(json.len()).map_err(|error| DataFusionError::External(error.into()))?;
    let mut front = Vec::with_capacity(FIXED + json.len());
    front.extend(MAGIC);
    front.extend(VERSION.to_le_bytes());
    front.extend(length.to_le_bytes());
    front.extend(crc32fast::hash(&json).to_le_bytes());
    front.extend(json);
    // No byte of a section is read again for it.
    let sums = header.sections.into_iter();
    let sum = sums.fold(Sum::of(&front), Sum::then);
    let mut parts = sections;
    parts.insert(0, front);
    Ok((parts, sum))
}

/// The header of a file, and its sections.
///
/// # Errors
/// - it is damaged, another file, or of another version; the error names it
pub(crate) fn decode<'a>(file: &str, bytes: &'a [u8]) -> Result<(Header, Vec<&'a [u8]>)> {
    let cut = || damaged(file, format!("ends after {} bytes", bytes.len()));
    let (fixed, rest) = bytes.split_at_checked(FIXED).ok_or_else(cut)?;
    let (magic, numbers) = fixed.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(damaged(file, "is not a file of Tidegate"));
    }
    let number = |at: usize| {
        let bytes = numbers.get(at..at + 4).unwrap_or_default();
        bytes.try_into().map(u32::from_le_bytes).unwrap_or_default()
    };
    if number(0) != VERSION {
        let found = number(0);
        return Err(Refusal::new(
            "CHECKPOINT_VERSION",
            "0A000",
            format!("{file} has format {found}; this version reads format {VERSION}."),
        )
        .hint("open it with the version that wrote it")
        .into());
    }
    let (json, mut rest) = rest.split_at_checked(number(4) as usize).ok_or_else(cut)?;
    if crc32fast::hash(json) != number(8) {
        return Err(damaged(file, "has a header that was not written so"));
    }
    let header: Header = serde_json::from_slice(json)
        .map_err(|error| damaged(file, format!("has a header that cannot be read: {error}")))?;
    let mut sections = Vec::with_capacity(header.sections.len());
    for (at, sum) in header.sections.iter().enumerate() {
        let length = usize::try_from(sum.bytes).unwrap_or(usize::MAX);
        let (section, behind) = rest.split_at_checked(length).ok_or_else(cut)?;
        if Sum::of(section) != *sum {
            return Err(damaged(
                file,
                format!("has a section, {at}, that was not written so"),
            ));
        }
        sections.push(section);
        rest = behind;
    }
    match rest.len() {
        0 => Ok((header, sections)),
        more => Err(damaged(file, format!("has {more} bytes behind its end"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Vec<u8> {
        let header = Header {
            owner: "q".to_owned(),
            number: 7,
            content: serde_json::json!({"w": "12"}),
            ..Header::default()
        };
        let sections = vec![b"first".to_vec(), Vec::new(), b"third".to_vec()];
        encode(header, sections).unwrap().0.concat()
    }

    #[test]
    fn the_sum_of_the_parts_is_that_of_the_whole() {
        let some = || (0..=255).collect::<Vec<u8>>();
        for sections in [
            vec![],
            vec![Vec::new()],
            vec![some()],
            vec![Vec::new(), vec![7; 100_000], some(), Vec::new(), vec![0; 9]],
        ] {
            let (parts, sum) = encode(Header::default(), sections).unwrap();
            assert_eq!(sum, Sum::of(&parts.concat()));
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = bytes();
        let (header, sections) = decode("f", &bytes).unwrap();
        assert_eq!((header.number, header.owner.as_str()), (7, "q"));
        assert_eq!(sections, [&b"first"[..], b"", b"third"]);
    }

    #[test]
    fn every_bit_and_every_cut_is_found() {
        let whole = bytes();
        for at in 0..whole.len() {
            assert!(decode("f", &whole[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                let error = decode("f", &flipped).unwrap_err().to_string();
                assert!(error.contains("f "), "{error}");
            }
        }
        let longer = [whole, vec![0]].concat();
        assert!(decode("f", &longer).is_err());
    }
}
