//! A directory of files as a stream: each file once, by modification time, then by name.
//!
//! 1. [`listing`]: which files there are.
//! 2. [`track`]: which of them were read, how far, and which are not what they were.
//! 3. [`open`]: one file as a stream of batches, read by DataFusion's own readers. Compression is
//!    told by the name; CSV columns are found by the names in the file's header.
//! 4. [`lines`]: when a file cannot be read, which line is at fault, and what is left without it.
//! 5. [`mod@snapshot`]: the files that are there first, where they are read in the order of event time; [`whole`]: one
//!    of them.
//! 6. [`held`]: all that there is at one moment, as a table.
//!
//! # What a writer must do
//!
//! A file is whole when it has its name. A writer writes under another ending, or in another directory of
//! the same disk, closes the file, and renames it. The ending is what tells: a name that ends in another
//! way than the table's files is not listed, a leading dot alone hides nothing. What happens otherwise:
//!
//! | the writer | the reader |
//! |---|---|
//! | adds to a file after it was read, or empties or replaces it | does not read it again, and reports it once for each change ([`Reader::changed`]); an empty file that was listed is one that was read |
//! | adds to a file between its listing and its end | gives the rows that DataFusion's readers find: of a file read in pieces those in the size that was listed, of any other those up to its end when it is read. The file is reported as changed |
//! | is in the middle of a CSV or JSON line | gives the half line as a record if it can be parsed: half a number is a number. Else it is a record that cannot be read: an error that names the line, or left out by `on_bad_record = 'skip'`. The other half is not read |
//! | changes or removes a file of which a committed epoch has taken some rows, and no epoch the rest | goes on in the file while it is open; a reader that is opened anew refuses: `SOURCE_FILE_CHANGED`, `SOURCE_FILE_GONE` |
//! | renames or removes a file between its listing and its first row | passes it over, and finds it under its new name |
//! | renames or removes a file of which the running epoch has rows | fails if it must open the file once more; the epoch is undone |
//! | changes or removes a file that is read in the order of event time (`initial_order`), of which an epoch to come has rows | refuses, whether or not rows were taken: `SOURCE_FILE_CHANGED`, `SOURCE_FILE_GONE` |
//! | renames a file that was read | reads it once more: a file is known by its path |

mod held;
mod lines;
mod listing;
mod open;
mod snapshot;
mod track;
mod whole;

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTable;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use object_store::ObjectMeta;

pub(crate) use self::held::{HeldFiles, has_lines};
use self::listing::Listing;
pub(super) use self::snapshot::snapshot;
use self::track::{Lost, Track};
use super::{Arrival, FilePosition, Position, ReadEnv, Reader, Unread};
use crate::config::OnBadRecord;
use crate::error::Refusal;

/// Reads files one after the other.
pub(super) struct FilesReader {
    listing: Arc<Listing>,
    columns: Vec<usize>,
    on_bad_record: OnBadRecord,
    env: ReadEnv,
    /// The file behind the current one, which is being opened while that one is read.
    upcoming: Option<(ObjectMeta, SpawnedTask<Result<SendableRecordBatchStream>>)>,
    /// Files that were read, and the one that is.
    track: Track,
    /// Files to read, in order, of the last look at the directory.
    queue: VecDeque<ObjectMeta>,
    listed: bool,
    current: Option<Reading>,
    /// Rows given since the reader was opened.
    given: u64,
    skipped: u64,
    /// Files found changed, not yet asked for.
    changed: Vec<String>,
}

/// The file that is being read.
struct Reading {
    meta: ObjectMeta,
    stream: SendableRecordBatchStream,
    /// Rows still to pass over, given before the reader was opened.
    skip: u64,
    /// Good rows seen in the file, those passed over included.
    seen: u64,
}

/// The files before a position.
fn track_of(from: Option<Position>) -> Track {
    Track::new(match from {
        Some(Position::Files(position)) => position,
        _ => FilePosition::default(),
    })
}

impl FilesReader {
    pub(super) async fn open(
        table: &ListingTable,
        columns: &[usize],
        from: Option<Position>,
        on_bad_record: OnBadRecord,
        env: ReadEnv,
    ) -> Result<Self> {
        Ok(Self {
            listing: Arc::new(Listing::of(table, &env)?),
            upcoming: None,
            columns: columns.to_vec(),
            on_bad_record,
            env,
            track: track_of(from),
            queue: VecDeque::new(),
            listed: false,
            current: None,
            given: 0,
            skipped: 0,
            changed: Vec::new(),
        })
    }

    /// How many files a position has not passed.
    pub(super) async fn unread(
        table: &ListingTable,
        from: Option<Position>,
        env: &ReadEnv,
    ) -> Result<Unread> {
        let files = Listing::of(table, env)?.files(env).await?;
        let in_order = match &from {
            Some(Position::Files(position)) => position.unread_in_order(),
            _ => 0,
        };
        let unread = track_of(from).unread(files);
        Ok(Unread::Files(in_order + unread.len() as u64))
    }

    /// Finds the files that have not been read, and those that are not what they were.
    async fn look(&mut self) -> Result<()> {
        let files = self.listing.files(&self.env).await?;
        if let Some((begun, lost)) = self.track.lost(&files) {
            return Err(self.lost(&begun.path, begun.rows, &lost));
        }
        for path in self.track.changed(&files) {
            self.changed.push(self.listing.shown_path(&path));
        }
        self.queue = self.track.unread(files);
        Ok(())
    }

    async fn begin(&mut self, meta: ObjectMeta) -> Result<()> {
        let before = self.track.before(meta.location.as_ref());
        let opened = self.opened(&meta).await;
        self.open_next();
        let gone = opened.is_err() && self.listing.is_gone(&meta).await;
        let stream = match opened {
            Ok(stream) => stream,
            Err(_) if gone => return self.passed_over(&meta, before),
            Err(error) => return Err(self.explained(&meta, error).await),
        };
        self.track.begin(&meta, self.given);
        self.current = Some(Reading {
            meta,
            stream,
            skip: before,
            seen: 0,
        });
        Ok(())
    }

    /// A file, opened before if it was foreseen.
    async fn opened(&mut self, meta: &ObjectMeta) -> Result<SendableRecordBatchStream> {
        match self.upcoming.take() {
            Some((foreseen, task)) if foreseen == *meta => task
                .join_unwind()
                .await
                .map_err(|error| DataFusionError::External(Box::new(error)))?,
            _ => open::open(&self.listing, meta, &self.columns, None, &self.env).await,
        }
    }

    /// Opens the file behind the current one, and reads its first rows, by a task of its own.
    fn open_next(&mut self) {
        self.upcoming = self.queue.front().cloned().map(|meta| {
            let (listing, file) = (Arc::clone(&self.listing), meta.clone());
            let (columns, env) = (self.columns.clone(), self.env.clone());
            let task = SpawnedTask::spawn(async move {
                let rows = open::open(&listing, &file, &columns, None, &env).await?;
                Ok(open::begun(rows).await)
            });
            (meta, task)
        });
    }

    /// What comes next of the current file; none if it is passed over.
    async fn of_current(&mut self) -> Result<Option<Arrival>> {
        while let Some(reading) = &mut self.current {
            match reading.stream.next().await {
                Some(Ok(batch)) => {
                    if let Some(rest) = reading.fresh(&batch) {
                        self.given += rest.num_rows() as u64;
                        return Ok(Some(Arrival::Rows(rest)));
                    }
                }
                Some(Err(error)) => self.recover(error).await?,
                None => {
                    self.current = None;
                    self.track.end(self.given);
                    return Ok(Some(Arrival::FileEnd));
                }
            }
        }
        Ok(None)
    }

    /// Goes on behind a record that cannot be read, if the table says so, or behind a file that has gone
    /// before a row of it was given; else the error, with the file and the line.
    async fn recover(&mut self, error: DataFusionError) -> Result<()> {
        let Some(reading) = self.current.take() else {
            return Err(error);
        };
        if let Some(before) = self.track.untouched(self.given)
            && self.listing.is_gone(&reading.meta).await
        {
            self.track.pass_over();
            return self.passed_over(&reading.meta, before);
        }
        if self.on_bad_record == OnBadRecord::Skip
            && let Some(salvaged) =
                lines::salvage(&self.listing, &reading.meta, &self.columns, &self.env).await?
        {
            self.skipped += salvaged.bad;
            // Good rows come in the same order: those that were seen are passed over.
            let skip = reading.seen + reading.skip;
            self.current = Some(Reading {
                meta: reading.meta,
                stream: salvaged.rows,
                skip,
                seen: 0,
            });
            return Ok(());
        }
        Err(self.explained(&reading.meta, error).await)
    }

    /// The error of a file, with the line.
    async fn explained(&mut self, meta: &ObjectMeta, error: DataFusionError) -> DataFusionError {
        lines::explain(&self.listing, meta, &self.columns, &self.env, error).await
    }

    /// A file that has gone before a row of it was given: no error, unless earlier readers gave some.
    fn passed_over(&self, meta: &ObjectMeta, before: u64) -> Result<()> {
        match before {
            0 => Ok(()),
            rows => Err(self.lost(meta.location.as_ref(), rows, &Lost::Gone)),
        }
    }

    /// The refusal to go on in a file of which so many rows were taken.
    fn lost(&self, path: &str, rows: u64, lost: &Lost) -> DataFusionError {
        let (condition, became, again) = match lost {
            Lost::Changed => ("SOURCE_FILE_CHANGED", "it has changed", "as it was"),
            Lost::Gone => ("SOURCE_FILE_GONE", "it is gone", "under its name"),
        };
        let counted = if rows == 1 { "row was" } else { "rows were" };
        Refusal::new(
            condition,
            "KD000",
            format!(
                "FILE {}: {rows} {counted} taken of it, and {became} before the rest was read.",
                self.listing.shown_path(path)
            ),
        )
        .hint(format!(
            "bring the file back {again}, or begin anew: REFRESH STREAMING TABLE … FULL"
        ))
        .into()
    }
}

impl Reading {
    /// What of a batch no earlier reader has given.
    fn fresh(&mut self, batch: &RecordBatch) -> Option<RecordBatch> {
        let rows = batch.num_rows() as u64;
        let skip = self.skip.min(rows);
        self.seen += rows;
        self.skip -= skip;
        let at = usize::try_from(skip).unwrap_or(usize::MAX);
        (skip < rows).then(|| batch.slice(at, batch.num_rows() - at))
    }
}

#[async_trait]
impl Reader for FilesReader {
    async fn next(&mut self) -> Result<Arrival> {
        loop {
            if let Some(arrival) = self.of_current().await? {
                return Ok(arrival);
            }
            match self.queue.pop_front() {
                Some(file) => self.begin(file).await?,
                None if self.listed => {
                    self.listed = false;
                    return Ok(Arrival::Waiting);
                }
                None => {
                    self.look().await?;
                    self.listed = true;
                }
            }
        }
    }

    fn decodes(&self) -> bool {
        true
    }

    fn position(&mut self, rows: u64) -> Position {
        Position::Files(self.track.position(rows))
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn changed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.changed)
    }
}
