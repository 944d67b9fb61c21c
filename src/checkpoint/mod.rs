//! What survives a restart: a streaming query's state, positions and result, one file an epoch.
//!
//! # What a checkpoint is
//!
//! A query's folder holds files `00000000000000000007.epoch`. The number is how many epochs had committed with
//! it; the file with the greatest number is the checkpoint. An epoch is committed when its file has been
//! [published](crate::disk::publish): written under another name, synced, renamed, the folder synced. There is
//! no second file to agree with it, so there is nothing between "committed" and "not committed".
//!
//! A file holds what its epoch *added*, in pieces (the partial states of a gate, the keys of a deduplication,
//! the files that were read, rows of the result), and names the parts of earlier files that still count. What
//! has been evicted is not named any more. Parts that have become many are written together anew
//! (`segments.rs`), so that the number of files stays near the logarithm of the state; only of a result that is kept
//! for good, parts of a million rows stay as they are. A file that no kept
//! checkpoint names is removed after the commit that no longer needs it.
//!
//! What is in a file is settled when its epoch has committed in memory ([`Draft`]); the rows are encoded and written
//! while the next epoch reads, one file at a time.
//!
//! Offsets are not written ahead of an epoch: an epoch's rows leave for a sink only after its commit, and they
//! are in its file. An epoch that did not commit has left nothing, so it need not be repeated with the same
//! rows; one that did is delivered again from its file until its successor commits.
//!
//! # Format, version 1
//!
//! Numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `TIDEGATE` |
//! | 8..12 | version of the format, a `u32` |
//! | 12..16 | length of the header in bytes, a `u32` |
//! | 16..20 | CRC-32 (IEEE) of the header, a `u32` |
//! | 20.. | the header: JSON, see [`Header`] |
//! | then | the sections, one behind the other, each as long as the header says and with the CRC-32 that it says |
//!
//! A section is an Arrow IPC stream: rows of one piece, in any number of batches. The end of the last section is the
//! end of the file.
//! Of each earlier file that it names, the header has length and CRC-32, so that one file cannot stand in for
//! another. Every error names the file.

mod draft;
mod file;
mod rows;
mod segments;
mod store;

pub use draft::Draft;
pub use file::{Header, Segment, Sum, damaged};
pub use segments::{Piece, Until, Whole};
pub use store::{Checkpoint, Restored};

pub(crate) use file::{decode, encode};
pub(crate) use rows::{
    from_bytes as rows_from_bytes, joined as rows_joined, schema_from_bytes, schema_to_bytes,
    to_bytes as rows_to_bytes,
};
pub(crate) use segments::together;
pub(crate) use store::disk_failed;
