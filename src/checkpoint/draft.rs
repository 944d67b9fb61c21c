//! An epoch's file before it is written: what is in it is settled while the query's state stands still, its bytes are
//! made later, on other threads, while the state goes on.

use std::collections::BTreeMap;
use std::thread::{Builder, scope};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Result, internal_err};
use serde_json::Value;

use super::file::Segment;
use super::rows::{count, to_bytes};
use super::segments::{Piece, Planned};

/// So many rows are worth a thread: it costs tens of microseconds, and they a millisecond.
const WORTH_A_THREAD: u64 = 16_384;

/// What an epoch commits: made by [`draft`](super::Checkpoint::draft), written by
/// [`publish`](super::Checkpoint::publish).
#[derive(Debug)]
pub struct Draft {
    pub(super) number: u64,
    pub(super) content: Value,
    pub(super) parts: Vec<PieceDraft>,
}

/// What is written of a piece.
#[derive(Debug)]
pub(super) struct PieceDraft {
    pub piece: Piece,
    planned: Planned,
    /// The piece as it was when the draft was made, if it is written whole.
    whole: Option<Vec<RecordBatch>>,
}

impl PieceDraft {
    /// Settles what is written of a piece whose rows are in these segments.
    ///
    /// # Errors
    /// - the piece cannot be had whole
    pub(super) fn of(mut piece: Piece, segments: Vec<Segment>) -> Result<Self> {
        let planned = piece.planned(segments);
        // It shows the state as it is when it is asked.
        let whole = piece.whole.take().filter(|_| planned.whole);
        let whole = whole.map(|whole| (whole.all)()).transpose()?;
        Ok(Self {
            piece,
            planned,
            whole,
        })
    }

    /// Its rows, and the segments that stay beside them. `earlier` reads those of a segment that is written again.
    ///
    /// # Errors
    /// - those of `earlier`
    pub(super) fn rows(
        &mut self,
        earlier: impl Fn(&Segment) -> Result<Vec<RecordBatch>>,
    ) -> Result<(Vec<RecordBatch>, Vec<Segment>)> {
        let mut rows = Vec::new();
        match self.whole.take() {
            Some(whole) => rows = whole,
            None => {
                for segment in &self.planned.again {
                    rows.extend(self.piece.living(earlier(segment)?)?);
                }
                rows.append(&mut self.piece.added);
            }
        }
        rows.retain(|batch| batch.num_rows() > 0);
        Ok((rows, std::mem::take(&mut self.planned.stay)))
    }
}

/// A file's sections, and where the rows of each piece are then.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub bytes: Vec<Vec<u8>>,
    pub pieces: BTreeMap<String, Vec<Segment>>,
}

impl Draft {
    /// The bytes of its sections. `earlier` reads the rows of a segment, one after the other.
    ///
    /// # Errors
    /// - those of `earlier`; rows cannot be encoded
    pub(super) fn sections(
        &mut self,
        earlier: impl Fn(&Segment) -> Result<Vec<RecordBatch>>,
    ) -> Result<Sections> {
        let mut sections = Vec::new();
        let mut pieces = BTreeMap::new();
        for part in &mut self.parts {
            let (rows, mut segments) = part.rows(&earlier)?;
            if !rows.is_empty() {
                segments.push(Segment {
                    file: self.number,
                    section: sections.len(),
                    rows: count(&rows),
                    until: part.piece.last(&rows),
                });
                sections.push(rows);
            }
            if !segments.is_empty() {
                pieces.insert(part.piece.name.clone(), segments);
            }
        }
        Ok(Sections {
            bytes: encoded(&sections)?,
            pieces,
        })
    }
}

/// The bytes of sections, large ones beside each other.
fn encoded(sections: &[Vec<RecordBatch>]) -> Result<Vec<Vec<u8>>> {
    let mut large = sections
        .iter()
        .filter(|rows| count(rows) >= WORTH_A_THREAD)
        .count();
    scope(|scope| {
        let mut threads = Vec::with_capacity(sections.len());
        for rows in sections {
            // The last of the large ones is this thread's.
            let own = count(rows) < WORTH_A_THREAD || large <= 1;
            large -= usize::from(count(rows) >= WORTH_A_THREAD);
            let thread = (!own)
                .then(|| Builder::new().spawn_scoped(scope, || to_bytes(rows)))
                .and_then(std::io::Result::ok);
            threads.push((rows, thread));
        }
        // Without a thread it is done here.
        let mine: Vec<_> = threads
            .iter()
            .map(|(rows, thread)| thread.is_none().then(|| to_bytes(rows)))
            .collect();
        let all = threads.into_iter().zip(mine);
        all.map(|((_, thread), mine)| match (thread, mine) {
            (Some(thread), _) => match thread.join() {
                Ok(bytes) => bytes,
                Err(_) => internal_err!("rows of a checkpoint could not be encoded"),
            },
            (None, Some(bytes)) => bytes,
            (None, None) => internal_err!("rows of a checkpoint were not encoded"),
        })
        .collect()
    })
}
