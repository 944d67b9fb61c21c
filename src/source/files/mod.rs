//! A directory of files as a stream: each file once, by modification time, then by name.
//!
//! 1. [`listing`]: which files there are.
//! 2. [`open`]: one file as a stream of batches, read by DataFusion's own readers. Compression is
//!    told by the name; CSV columns are found by the names in the file's header.
//! 3. [`lines`]: when a file cannot be read, which line is at fault, and what is left without it.

mod lines;
mod listing;
mod open;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTable;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use object_store::ObjectMeta;

use self::listing::Listing;
use super::{Arrival, FilePosition, Position, ReadEnv, Reader, Unread};
use crate::config::OnBadRecord;

/// Reads files one after the other.
pub(super) struct FilesReader {
    listing: Arc<Listing>,
    columns: Vec<usize>,
    on_bad_record: OnBadRecord,
    env: ReadEnv,
    /// The file behind the current one, which is being opened while that one is read.
    upcoming: Option<(ObjectMeta, SpawnedTask<Result<SendableRecordBatchStream>>)>,
    /// Where the reader was opened.
    from: FilePosition,
    /// Files to read, in order, of the last look at the directory.
    queue: VecDeque<ObjectMeta>,
    listed: bool,
    current: Option<Reading>,
    /// Files begun since the reader was opened, in order.
    spans: Vec<Span>,
    /// Rows given since the reader was opened.
    given: u64,
    skipped: u64,
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

/// Where a file's rows are among those given.
struct Span {
    path: String,
    start: u64,
    /// Rows of the file before `start`, taken by earlier readers.
    before: u64,
    end: Option<u64>,
}

impl FilesReader {
    pub(super) async fn open(
        table: &ListingTable,
        columns: &[usize],
        from: Option<Position>,
        on_bad_record: OnBadRecord,
        env: ReadEnv,
    ) -> Result<Self> {
        let from = match from {
            Some(Position::Files(position)) => position,
            _ => FilePosition::default(),
        };
        Ok(Self {
            listing: Arc::new(Listing::of(table, &env)?),
            upcoming: None,
            columns: columns.to_vec(),
            on_bad_record,
            env,
            from,
            queue: VecDeque::new(),
            listed: false,
            current: None,
            spans: Vec::new(),
            given: 0,
            skipped: 0,
        })
    }

    /// How many files a position has not passed.
    pub(super) async fn unread(
        table: &ListingTable,
        from: Option<Position>,
        env: &ReadEnv,
    ) -> Result<Unread> {
        let mut reader = Self::open(table, &[], from, OnBadRecord::default(), env.clone()).await?;
        reader.look().await?;
        Ok(Unread::Files(reader.queue.len() as u64))
    }

    /// Finds the files that have not been read. A file that was begun comes first.
    async fn look(&mut self) -> Result<()> {
        let read: BTreeSet<&str> = self.spans.iter().map(|span| span.path.as_str()).collect();
        let mut files = self.listing.files(&self.env).await?;
        files.retain(|file| {
            let path = file.location.as_ref();
            !self.from.done.contains(path) && !read.contains(path)
        });
        let begun = self.from.begun.as_ref().map(|(path, _)| path.as_str());
        files.sort_by_key(|file| {
            let path = file.location.as_ref();
            (Some(path) != begun, file.last_modified, path.to_owned())
        });
        self.queue = files.into();
        Ok(())
    }

    async fn begin(&mut self, meta: ObjectMeta) -> Result<()> {
        let path = meta.location.to_string();
        let before = match &self.from.begun {
            Some((begun, rows)) if *begun == path => *rows,
            _ => 0,
        };
        let opened = self.opened(&meta).await;
        self.open_next();
        let stream = match opened {
            Ok(stream) => stream,
            Err(error) => {
                return Err(
                    lines::explain(&self.listing, &meta, &self.columns, &self.env, error).await,
                );
            }
        };
        self.spans.push(Span {
            path,
            start: self.given,
            before,
            end: None,
        });
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
            _ => open::open(&self.listing, meta, &self.columns, &self.env).await,
        }
    }

    /// Opens the file behind the current one, and reads its first rows, by a task of its own.
    fn open_next(&mut self) {
        self.upcoming = self.queue.front().cloned().map(|meta| {
            let (listing, file) = (Arc::clone(&self.listing), meta.clone());
            let (columns, env) = (self.columns.clone(), self.env.clone());
            let task = SpawnedTask::spawn(async move {
                let rows = open::open(&listing, &file, &columns, &env).await?;
                Ok(open::begun(rows).await)
            });
            (meta, task)
        });
    }

    /// The next rows of the current file; none at its end.
    async fn rows(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(reading) = &mut self.current {
            match reading.stream.next().await {
                Some(Ok(batch)) => {
                    reading.seen += batch.num_rows() as u64;
                    let skip = reading.skip.min(batch.num_rows() as u64);
                    reading.skip -= skip;
                    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
                    if skip < batch.num_rows() {
                        let rest = batch.slice(skip, batch.num_rows() - skip);
                        self.given += rest.num_rows() as u64;
                        return Ok(Some(rest));
                    }
                }
                Some(Err(error)) => self.recover(error).await?,
                None => {
                    self.current = None;
                    if let Some(span) = self.spans.last_mut() {
                        span.end = Some(self.given);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Goes on behind a record that cannot be read, if the table says so; else the error, with the
    /// file and the line.
    async fn recover(&mut self, error: DataFusionError) -> Result<()> {
        let Some(reading) = self.current.take() else {
            return Err(error);
        };
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
        Err(lines::explain(
            &self.listing,
            &reading.meta,
            &self.columns,
            &self.env,
            error,
        )
        .await)
    }
}

#[async_trait]
impl Reader for FilesReader {
    async fn next(&mut self) -> Result<Arrival> {
        loop {
            if self.current.is_some() {
                return Ok(match self.rows().await? {
                    Some(rows) => Arrival::Rows(rows),
                    None => Arrival::FileEnd,
                });
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

    fn position(&self, rows: u64) -> Position {
        let ended: Vec<String> = self
            .spans
            .iter()
            .filter(|span| span.end.is_some_and(|end| end <= rows))
            .map(|span| span.path.clone())
            .collect();
        let begun = self
            .spans
            .iter()
            .find(|span| span.start <= rows && span.end.is_none_or(|end| end > rows))
            .map(|span| (span.path.clone(), span.before + rows - span.start));
        let done = if ended.is_empty() {
            Arc::clone(&self.from.done)
        } else {
            Arc::new(self.from.done.iter().cloned().chain(ended).collect())
        };
        Position::Files(FilePosition { done, begun })
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }
}
