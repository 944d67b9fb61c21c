//! The files that a directory had when a query first started, and where their rows are in event time.
//!
//! The files are known by what they were then. All are among those that a position calls done, so that nothing reads
//! them again by arrival; while they are read in the order of event time the position has their extents besides.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::listing::ListingTable;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::super::ReadEnv;
use super::listing::Listing;
use super::whole::WholeFile;
use crate::config::OnBadRecord;
use crate::error::Refusal;
use crate::source::done::DoneFiles;
use crate::source::initial::{EventTime, Extent, Histogram, Place, Snapshot, Stretch, Taken};
use crate::source::position::{FileIdentity, FilePosition, FilesInOrder, Position, ReadUntil};

/// The directory that the files are in.
struct Directory {
    listing: Arc<Listing>,
    on_bad_record: OnBadRecord,
    env: ReadEnv,
}

/// Files, known by what they were.
struct FilesSnapshot {
    directory: Directory,
    by: String,
    /// The table's column that the event time is, if it is one.
    column: Option<usize>,
    /// All files, those without rows included.
    done: DoneFiles,
    /// Files with rows.
    extents: Arc<BTreeMap<String, Extent>>,
    /// Their paths, in the same order.
    paths: Vec<String>,
    current: Option<WholeFile>,
    /// Whether the bad records of the current file are counted.
    counted: bool,
    skipped: u64,
}

/// The snapshot of a position, or the one of the files that are there now.
///
/// # Errors
/// - a file cannot be listed or read
pub(in crate::source) async fn snapshot(
    table: &ListingTable,
    from: Option<Position>,
    time: &EventTime,
    on_bad_record: OnBadRecord,
    env: &ReadEnv,
) -> Result<Taken> {
    let directory = Directory {
        listing: Arc::new(Listing::of(table, env)?),
        on_bad_record,
        env: env.clone(),
    };
    let (done, extents, counts) = match from {
        Some(Position::Files(FilePosition {
            done,
            in_order: Some(in_order),
            ..
        })) => (done, in_order.extents, None),
        _ => {
            let (done, extents, counts) = directory.look(time).await?;
            (done, Arc::new(extents), counts)
        }
    };
    let snapshot = FilesSnapshot {
        directory,
        by: time.by().to_owned(),
        column: time.column(),
        done,
        paths: extents.keys().cloned().collect(),
        extents,
        current: None,
        counted: false,
        skipped: 0,
    };
    Ok(Taken {
        snapshot: Box::new(snapshot),
        counts,
    })
}

/// Files as they are, the extents of those with rows, and all rows if they were counted.
type Looked = (DoneFiles, BTreeMap<String, Extent>, Option<Histogram>);

impl Directory {
    /// Finds the files that there are and where their rows are. The rows are counted on the way if all of them have to
    /// be looked at.
    async fn look(&self, time: &EventTime) -> Result<Looked> {
        let mut files = self.listing.files(&self.env).await?;
        files.sort_by(|one, other| one.location.cmp(&other.location));
        // A file that is listed by two paths is one file.
        files.dedup_by(|one, other| one.location == other.location);
        let mut counts = Some(Histogram::default());
        let (mut extents, mut done) = (BTreeMap::new(), Vec::new());
        for file in files {
            let path = file.location.to_string();
            let identity = FileIdentity::from(&file);
            let known = self.by_statistics(&file, time).await;
            let extent = match known {
                Some(extent) => {
                    counts = None;
                    extent
                }
                None => match self.by_reading(file, time, counts.as_mut()).await? {
                    Some(extent) => extent,
                    // It has gone: it is as if it had not been listed.
                    None => continue,
                },
            };
            if extent.last().is_some() {
                extents.insert(path.clone(), extent);
            }
            done.push((path, identity));
        }
        Ok((done.into_iter().collect(), extents, counts))
    }

    /// Where the rows of a file are by the statistics in it, where it has them of the event time.
    async fn by_statistics(&self, file: &ObjectMeta, time: &EventTime) -> Option<Extent> {
        let column = time.column()?;
        let field = self.listing.file_fields.get(column)?;
        let session = self.env.session.as_ref();
        let schema = Arc::new(Schema::new(self.listing.file_fields.clone()));
        let store = &self.listing.store;
        // A file without statistics, or one that is damaged, is read: that has an error to give.
        let format = &self.listing.format;
        let statistics = format
            .infer_stats(session, store, schema, file)
            .await
            .ok()?;
        let of_column = statistics.column_statistics.get(column)?;
        let rows = *statistics.num_rows.get_value()? as u64;
        let untimed = *of_column.null_count.get_value()? as u64;
        let tick = |value: &Precision<ScalarValue>| {
            let value = value.get_value()?;
            (value.data_type() == *field.data_type())
                .then(|| ticks(value))
                .flatten()
        };
        let (least, greatest) = (tick(&of_column.min_value)?, tick(&of_column.max_value)?);
        (least <= greatest).then_some(Extent {
            times: Some((least, greatest)),
            rows,
            untimed: untimed.min(rows),
        })
    }

    /// Where the rows of a file are by its event times; none if it has gone.
    async fn by_reading(
        &self,
        file: ObjectMeta,
        time: &EventTime,
        mut counts: Option<&mut Histogram>,
    ) -> Result<Option<Extent>> {
        let ticks = time.of(&self.listing.schema, time.columns())?;
        let (bad, env) = (self.on_bad_record, &self.env);
        let opened = WholeFile::open(&self.listing, file, time.columns(), None, bad, env);
        let Some(mut rows) = opened.await? else {
            return Ok(None);
        };
        let mut extent = Extent::default();
        while let Some(batch) = rows.next().await? {
            let places = ticks.of(&batch)?;
            extent.add(places.iter());
            if let Some(counts) = counts.as_deref_mut() {
                counts.add(places.iter().flatten());
            }
        }
        if extent.rows == 0 && rows.bad > 0 {
            // It is read once more, last: its records are counted then.
            extent.untimed = 1;
        }
        Ok(Some(extent))
    }

    /// A file, if it is what it was.
    async fn file(&self, path: &str, was: Option<FileIdentity>) -> Result<ObjectMeta> {
        let found = self.listing.store.head(&Path::parse(path)?).await;
        match found {
            Ok(meta) if was == Some(FileIdentity::from(&meta)) => Ok(meta),
            Ok(_) => Err(self.lost(path, "SOURCE_FILE_CHANGED")),
            Err(object_store::Error::NotFound { .. }) => Err(self.lost(path, "SOURCE_FILE_GONE")),
            Err(error) => Err(error.into()),
        }
    }

    /// What tells rows of a stretch that are in a file, if the event time is a column of it; none if all rows are.
    fn wanted(
        &self,
        column: Option<usize>,
        extent: &Extent,
        stretch: &Stretch,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let field = column.and_then(|at| Some((at, self.listing.file_fields.get(at)?)));
        let (Some((at, field)), Some((from, to))) = (field, stretch.bounds(extent)) else {
            return Ok(None);
        };
        let compared = |operator, ticks: i64| -> Result<Arc<dyn PhysicalExpr>> {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
            let ticks = ScalarValue::Int64(Some(ticks)).cast_to(field.data_type())?;
            let ticks = Arc::new(Literal::new(ticks));
            Ok(Arc::new(BinaryExpr::new(column, operator, ticks)))
        };
        let from = from
            .map(|ticks| compared(Operator::GtEq, ticks))
            .transpose()?;
        let to = to.map(|ticks| compared(Operator::Lt, ticks)).transpose()?;
        Ok(match (from, to) {
            (Some(from), Some(to)) => Some(Arc::new(BinaryExpr::new(from, Operator::And, to))),
            (from, to) => from.or(to),
        })
    }

    /// Opens a file that is what it was.
    async fn open(
        &self,
        path: &str,
        was: Option<FileIdentity>,
        columns: &[usize],
        wanted: Option<Arc<dyn PhysicalExpr>>,
    ) -> Result<WholeFile> {
        let meta = self.file(path, was).await?;
        let (bad, env) = (self.on_bad_record, &self.env);
        let opened = WholeFile::open(&self.listing, meta, columns, wanted, bad, env).await?;
        opened.ok_or_else(|| self.lost(path, "SOURCE_FILE_GONE"))
    }

    /// The refusal to read a file that is not what it was.
    fn lost(&self, path: &str, condition: &'static str) -> DataFusionError {
        let (became, again) = match condition {
            "SOURCE_FILE_GONE" => ("it is gone", "under its name"),
            _ => ("it has changed", "as it was"),
        };
        Refusal::new(
            condition,
            "KD000",
            format!(
                "FILE {}: it was there when the query first started and is read in the order of event time, and {became} before all of it was read.",
                self.listing.shown_path(path)
            ),
        )
        .hint(format!(
            "bring the file back {again}, or begin anew: REFRESH STREAMING TABLE … FULL"
        ))
        .into()
    }
}

/// A timestamp in ticks.
fn ticks(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampSecond(ticks, _)
        | ScalarValue::TimestampMillisecond(ticks, _)
        | ScalarValue::TimestampMicrosecond(ticks, _)
        | ScalarValue::TimestampNanosecond(ticks, _) => *ticks,
        _ => None,
    }
}

#[async_trait]
impl Snapshot for FilesSnapshot {
    fn extents(&self) -> Vec<Extent> {
        self.extents.values().copied().collect()
    }

    async fn begin(
        &mut self,
        part: usize,
        columns: &[usize],
        stretch: &Stretch,
        counted: bool,
    ) -> Result<()> {
        let Some(path) = self.paths.get(part) else {
            return Ok(());
        };
        self.current = None;
        let was = self.done.get(path);
        let extent = self.extents.get(path).copied().unwrap_or_default();
        let wanted = self.directory.wanted(self.column, &extent, stretch)?;
        let opened = self.directory.open(path, was, columns, wanted);
        self.current = Some(opened.await?);
        self.counted = counted;
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(file) = &mut self.current else {
            return Ok(None);
        };
        if let Some(batch) = file.next().await? {
            return Ok(Some(batch));
        }
        if self.counted {
            self.skipped += file.bad;
        }
        self.current = None;
        Ok(None)
    }

    fn position(&self, _read: u64, from: Option<Place>) -> Position {
        let in_order = from.map(|from| FilesInOrder {
            until: ReadUntil {
                by: self.by.clone(),
                from,
            },
            extents: Arc::clone(&self.extents),
        });
        Position::Files(FilePosition {
            done: self.done.clone(),
            begun: None,
            in_order,
        })
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }
}
