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

    /// Its rows, and the segments that stay beside them. `earlier` has those of a segment that is written again.
    ///
    /// # Errors
    /// - those of `earlier`
    pub(super) fn rows(
        &mut self,
        mut earlier: impl FnMut(&Segment) -> Result<Vec<RecordBatch>>,
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
    /// The segments of earlier files that it writes again, by their file.
    pub(super) fn again(&self) -> BTreeMap<u64, Vec<Segment>> {
        let mut files: BTreeMap<u64, Vec<Segment>> = BTreeMap::new();
        for segment in self.parts.iter().flat_map(|part| &part.planned.again) {
            files.entry(segment.file).or_default().push(segment.clone());
        }
        files
    }

    /// The bytes of its sections. `earlier` has the rows of a segment that is written again, each asked for once.
    ///
    /// # Errors
    /// - those of `earlier`; rows cannot be encoded
    pub(super) fn sections(
        &mut self,
        mut earlier: impl FnMut(&Segment) -> Result<Vec<RecordBatch>>,
    ) -> Result<Sections> {
        let mut sections = Vec::new();
        let mut pieces = BTreeMap::new();
        for part in &mut self.parts {
            let (rows, mut segments) = part.rows(&mut earlier)?;
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
    let is_large = |rows: &Vec<RecordBatch>| count(rows) >= WORTH_A_THREAD;
    let last = sections.iter().rposition(is_large);
    scope(|scope| {
        let threads = sections.iter().enumerate().map(|(at, rows)| {
            // The last of them is left to this thread, and what finds none.
            let other = is_large(rows) && Some(at) != last;
            let spawn = || {
                Builder::new()
                    .spawn_scoped(scope, move || to_bytes(rows))
                    .ok()
            };
            other.then(spawn).flatten()
        });
        let threads: Vec<_> = threads.collect();
        let own = sections.iter().zip(&threads);
        let own = own.map(|(rows, thread)| thread.is_none().then(|| to_bytes(rows)));
        let own: Vec<_> = own.collect();
        let all = threads.into_iter().zip(own);
        let all = all.map(|(thread, own)| {
            let others = thread.and_then(|thread| thread.join().ok());
            own.or(others)
                .unwrap_or_else(|| internal_err!("rows of a checkpoint could not be encoded"))
        });
        all.collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use datafusion::arrow::array::Int64Array;

    use super::*;
    use crate::checkpoint::Whole;

    fn rows(from: i64, to: i64) -> Vec<RecordBatch> {
        let values = Arc::new(Int64Array::from_iter_values(from..to));
        vec![RecordBatch::try_from_iter([("v", values as _)]).unwrap()]
    }

    #[test]
    fn sections_are_in_their_order_whoever_encodes_them() {
        let large = i64::try_from(WORTH_A_THREAD).unwrap();
        for sizes in [
            vec![1, large, 3, 2 * large, large + 5, 2],
            vec![large],
            vec![large, 1],
            vec![],
        ] {
            let sections: Vec<_> = sizes.iter().map(|size| rows(*size, 2 * size)).collect();
            let alone: Vec<_> = sections
                .iter()
                .map(|rows| to_bytes(rows).unwrap())
                .collect();
            assert!(encoded(&sections).unwrap() == alone, "{sizes:?}");
        }
    }

    #[test]
    fn a_draft_is_of_the_state_that_there_was() {
        let state = Arc::new(AtomicI64::new(5));
        let mut piece = Piece::new("p", rows(0, 1));
        let now = Arc::clone(&state);
        piece.whole = Some(Whole {
            rows: 5,
            all: Box::new(move || Ok(rows(0, now.load(Ordering::SeqCst)))),
        });
        // So many rows of which few still count are written together anew.
        let many = Segment {
            file: 1,
            section: 0,
            rows: 1_000_000,
            until: None,
        };
        let mut draft = Draft {
            number: 2,
            content: Value::Null,
            parts: vec![PieceDraft::of(piece, vec![many]).unwrap()],
        };
        state.store(6, Ordering::SeqCst);
        let made = draft.sections(|_| internal_err!("nothing is read again"));
        let made = made.unwrap();
        let segments = &made.pieces["p"];
        assert_eq!(
            (segments.len(), segments[0].file, segments[0].rows),
            (1, 2, 5)
        );
        assert_eq!(made.bytes.len(), 1);
    }
}
