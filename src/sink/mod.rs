//! Where the rows of a streaming query go, epoch by epoch: exactly once, also after a crash.
//!
//! # How once comes about
//!
//! An epoch's rows are kept by the query's checkpoint before they leave it. They are delivered after the epoch
//! has committed, and delivered again when the query is opened, since nobody can know whether the last delivery
//! was cut short. A [`Sink`] makes *at least once* into *once* by the name of what it is given: query and epoch.
//!
//! ```text
//! epoch 6 commits → deliver 6 → epoch 7 commits → deliver 7 ✗ crash
//! open: begin(next = 8) → deliver 7 again → epoch 8 commits → deliver 8 …
//! ```
//!
//! * The query calls in order: [`begin`](Sink::begin) once, then [`deliver`](Sink::deliver) for rising epochs.
//!   The first of them may be the epoch before `next`.
//! * The query asks for [`check`](Sink::check) before an epoch commits. A row that is refused there undoes the epoch;
//!   one that only `deliver` refuses has committed, and would keep back all that come after it.
//! * The query delivers all rows of an epoch in one call, in order of release, and the same rows each time.
//! * The query stops at an error of the sink. Nothing is lost: the next run begins with that delivery.
//! * The sink holds after a delivery what it would hold had it been the only one of that query and epoch.
//! * The sink holds it durably when the call returns.
//!
//! # What is there
//!
//! | module | what |
//! |---|---|
//! | `directory` | [`DirectorySink`]: a file for each epoch, in folders by partition |
//! | `encode` | rows to the bytes of a file; rows by partition; no disk |
//! | `check` | columns that a directory of files cannot hold |
//! | `values` | rows that it cannot hold |

mod check;
mod directory;
mod encode;
mod values;

use std::fmt;
use std::fmt::Debug;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::common::Result;
use serde::{Deserialize, Serialize};

pub use directory::DirectorySink;

/// Where the rows of a streaming query go, epoch by epoch. Who calls what, and in which order, is said at the
/// [module](self).
#[async_trait]
pub trait Sink: Debug + Send + Sync {
    /// Refuses rows that can never be delivered, before their epoch commits. The rows have the columns of `schema`.
    ///
    /// # Errors
    /// - there is such a row; the epoch is undone, and its rows are read again by the next run
    fn check(&self, _schema: &SchemaRef, _rows: &[RecordBatch]) -> Result<()> {
        Ok(())
    }

    /// The query is opened: its first `next` epochs have committed, and no other. What is held of it from epoch
    /// `next` on never happened and is to be forgotten. With `next` 0 the query begins anew: all of it is.
    ///
    /// Comes before the first delivery of a process and before the next one after a delivery that failed, and may
    /// come again.
    ///
    /// # Errors
    /// - something cannot be forgotten, or not durably; the query does not start
    async fn begin(&self, query: &str, next: u64) -> Result<()>;

    /// Takes all rows of an epoch that has committed; there may be none.
    ///
    /// Comes again after a failure or a crash, with the very same rows: an epoch that is there already is not
    /// doubled.
    ///
    /// # Errors
    /// - the rows cannot be written, or not durably. Some of them may be there. The query stops, and its next
    ///   run delivers the epoch again.
    async fn deliver(
        &self,
        query: &str,
        epoch: u64,
        schema: &SchemaRef,
        rows: &[RecordBatch],
    ) -> Result<()>;
}

/// A format of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFormat {
    /// Apache Parquet, compressed with Zstandard.
    Parquet,
    /// Comma-separated values with a header. A text that is empty and one that is null are written alike.
    Csv,
    /// A JSON object a line, nulls written out. Floats that are no numbers are written as null.
    Json,
}

impl FileFormat {
    pub(super) const ALL: [FileFormat; 3] =
        [FileFormat::Parquet, FileFormat::Csv, FileFormat::Json];

    /// How the names of its files end, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            FileFormat::Parquet => "parquet",
            FileFormat::Csv => "csv",
            FileFormat::Json => "json",
        }
    }

    /// A column as a table that reads the files has it.
    pub fn read_field(self, field: &Field) -> Field {
        encode::read_field(self, field)
    }
}

impl fmt::Display for FileFormat {
    /// Writes `PARQUET`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileFormat::Parquet => "PARQUET",
            FileFormat::Csv => "CSV",
            FileFormat::Json => "JSON",
        })
    }
}
