//! What a directory holds at one moment, as a table: the files are those that were listed then, and each is read as the
//! stream reads it, the columns that the stream decodes among those that are asked for. A position cuts it in two:
//!
//! ```text
//! files         a  b  c  d
//! position      done: a, b; begun: c, 2 rows
//! read          a  b  c[..2]
//! unread              c[2..]  d
//! ```

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::listing::ListingTable;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use object_store::ObjectMeta;
use object_store::path::Path;

use super::super::ReadEnv;
use super::FilesReader;
use super::listing::Listing;
use super::open::asked;
use super::whole::WholeFile;
use crate::config::OnBadRecord;
use crate::error::Refusal;

/// What a table over files holds at one moment.
#[derive(Debug)]
pub(crate) struct HeldFiles {
    /// All of it.
    pub all: Arc<dyn TableProvider>,
    /// What is before the position.
    pub read: Arc<dyn TableProvider>,
    /// What is behind it, if there is a file.
    pub unread: Option<Arc<dyn TableProvider>>,
    /// A file that was read to its end and is not what it was, as errors name it.
    pub changed: Option<String>,
    /// A file that was read to its end and is not there, as errors name it.
    pub gone: Option<String>,
}

/// Whether the files of a table consist of records that may be bad, or whose columns are found by a header. Of others
/// DataFusion's own table gives the same rows.
pub(crate) fn has_lines(table: &ListingTable) -> bool {
    let format = table.options().format.as_ref();
    format.is::<CsvFormat>() || format.is::<JsonFormat>()
}

impl FilesReader {
    /// What there is now, cut at the position of this reader, which has given nothing yet.
    ///
    /// # Errors
    /// - the directory cannot be listed
    /// - a file of which some rows were taken is not what it was
    pub(in crate::source) async fn held(mut self) -> Result<HeldFiles> {
        let mut files = self.listing.files(&self.env).await?;
        if let Some((begun, lost)) = self.track.lost(&files) {
            return Err(self.lost(&begun.path, begun.rows, &lost));
        }
        let changed = self.track.changed(&files).into_iter().next();
        let gone = self.track.gone(&files);
        let unread = self.track.unread(files.clone());
        let waiting: HashSet<&Path> = unread.iter().map(|file| &file.location).collect();
        files.retain(|file| !waiting.contains(&file.location));
        files.sort_by_cached_key(|file| (file.last_modified, file.location.to_string()));
        // A file that is listed by two paths is one file.
        files.dedup_by(|one, other| one.location == other.location);
        let whole = files.into_iter().map(|file| Part {
            file,
            rows: 0..u64::MAX,
        });
        let (mut read, mut rest): (Vec<Part>, Vec<Part>) = (whole.collect(), Vec::new());
        for file in unread {
            let before = self.track.before(file.location.as_ref());
            if before > 0 {
                let (file, rows) = (file.clone(), 0..before);
                read.push(Part { file, rows });
            }
            let rows = before..u64::MAX;
            rest.push(Part { file, rows });
        }
        let shown = |path: Option<String>| path.map(|path| self.listing.shown_path(&path));
        Ok(HeldFiles {
            changed: shown(changed),
            gone: shown(gone),
            all: self.table_of(read.iter().chain(&rest).cloned()),
            read: self.table_of(read),
            unread: (!rest.is_empty()).then(|| self.table_of(rest)),
        })
    }

    /// A table of these parts of files.
    fn table_of(&self, parts: impl IntoIterator<Item = Part>) -> Arc<dyn TableProvider> {
        Arc::new(FilesTable {
            listing: Arc::clone(&self.listing),
            columns: self.columns.clone(),
            on_bad_record: self.on_bad_record,
            session: Arc::clone(&self.env.session),
            parts: parts.into_iter().collect(),
        })
    }
}

/// The good rows of a file from one number to another.
#[derive(Debug, Clone)]
struct Part {
    file: ObjectMeta,
    rows: Range<u64>,
}

/// Parts of files as a table, which reads them anew whenever it is scanned.
#[derive(Clone)]
struct FilesTable {
    listing: Arc<Listing>,
    /// Columns that are decoded, whatever else is asked for.
    columns: Vec<usize>,
    on_bad_record: OnBadRecord,
    session: Arc<SessionState>,
    parts: Arc<[Part]>,
}

impl fmt::Debug for FilesTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesTable")
            .field("columns", &self.columns)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.listing.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.listing.schema.fields().len()).collect();
        let wanted: Vec<usize> = projection.cloned().unwrap_or_else(all);
        let mut table = self.clone();
        table.columns.extend(&wanted);
        table.columns.sort_unstable();
        table.columns.dedup();
        let place = |column: &usize| table.columns.iter().position(|read| read == column);
        let places: Vec<usize> = wanted.iter().filter_map(place).collect();
        let schema = asked(&self.listing, &table.columns)?;
        let rows = Rows {
            table,
            schema: Arc::clone(&schema),
        };
        Ok(Arc::new(StreamingTableExec::try_new(
            schema,
            vec![Arc::new(rows)],
            Some(&places),
            None,
            false,
            limit,
        )?))
    }
}

impl FilesTable {
    async fn open(&self, part: Part, env: &ReadEnv) -> Result<Reading> {
        let (file, columns) = (part.file.clone(), &self.columns);
        let opened =
            WholeFile::open(&self.listing, file, columns, None, self.on_bad_record, env).await?;
        match opened {
            Some(file) => Ok(Reading {
                file,
                rows: part.rows,
                seen: 0,
            }),
            None => Err(went(&self.listing.shown(&part.file)).into()),
        }
    }
}

/// The refusal of a file that was listed and is not there when it is read.
fn went(file: &str) -> Refusal {
    Refusal::new(
        "SOURCE_FILE_GONE",
        "KD000",
        format!("FILE {file}: it went after it was listed, before it was read."),
    )
    .hint("ask again: the files that are there then are read")
}

/// The rows of a table's columns, in order of arrival.
#[derive(Debug)]
struct Rows {
    table: FilesTable,
    schema: SchemaRef,
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let walk = Walk {
            env: ReadEnv {
                session: Arc::clone(&self.table.session),
                task,
            },
            table: self.table.clone(),
            begun: 0,
            current: None,
        };
        let rows = futures::stream::try_unfold(walk, |mut walk| async move {
            let batch = walk.next().await?;
            Ok::<_, DataFusionError>(batch.map(|batch| (batch, walk)))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        ))
    }
}

/// Reads parts of files one after the other.
struct Walk {
    table: FilesTable,
    env: ReadEnv,
    /// Number of parts that were opened.
    begun: usize,
    current: Option<Reading>,
}

impl Walk {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(reading) = &mut self.current
                && let Some(batch) = reading.next().await?
            {
                return Ok(Some(batch));
            }
            self.current = None;
            let Some(part) = self.table.parts.get(self.begun).cloned() else {
                return Ok(None);
            };
            self.begun += 1;
            self.current = Some(self.table.open(part, &self.env).await?);
        }
    }
}

/// A file of which a part is read.
struct Reading {
    file: WholeFile,
    rows: Range<u64>,
    /// Good rows that the file has given.
    seen: u64,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.seen < self.rows.end {
            let Some(batch) = self.file.next().await? else {
                break;
            };
            let rows = batch.num_rows() as u64;
            let within = |row: u64| {
                let at = row.saturating_sub(self.seen).min(rows);
                usize::try_from(at).unwrap_or(usize::MAX)
            };
            let (from, to) = (within(self.rows.start), within(self.rows.end));
            self.seen += rows;
            if from < to {
                return Ok(Some(batch.slice(from, to - from)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::source::{Arrival, Reader};

    /// The values of `a`, in their order.
    async fn values(ctx: &SessionContext, table: Arc<dyn TableProvider>) -> Vec<i64> {
        let rows = ctx.read_table(table).unwrap();
        let rows = rows.select_columns(&["a"]).unwrap().collect().await;
        let mut values: Vec<i64> = rows
            .unwrap()
            .iter()
            .flat_map(|batch| {
                batch
                    .column(0)
                    .as_primitive::<Int64Type>()
                    .values()
                    .to_vec()
            })
            .collect();
        values.sort_unstable();
        values
    }

    #[tokio::test]
    async fn a_position_cuts_what_there_is_in_two() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("1.csv"), "a,b\n1,10\n2,20\n").unwrap();
        fs::write(dir.path().join("2.csv"), "b,a\n30,3\n40,4\n50,5\n").unwrap();
        let ctx = SessionContext::new();
        ctx.sql(&format!(
            "CREATE EXTERNAL TABLE t (a BIGINT, b BIGINT) STORED AS CSV LOCATION '{}/' OPTIONS ('format.has_header' 'true')",
            dir.path().display()
        ))
        .await
        .unwrap();
        let table = ctx.table_provider("t").await.unwrap();
        let table = table.downcast_ref::<ListingTable>().unwrap();
        let env = ReadEnv::of(&ctx.state());
        let open = async |from| {
            FilesReader::open(table, &[1], from, OnBadRecord::Fail, env.clone())
                .await
                .unwrap()
        };
        let mut reader = open(None).await;
        while !matches!(reader.next().await.unwrap(), Arrival::Waiting) {}
        // One row of the second file.
        let position = reader.position(3);
        fs::write(dir.path().join("3.csv"), "a\n6\n").unwrap();
        let held = open(Some(position)).await.held().await.unwrap();
        assert_eq!((held.changed, held.gone), (None, None));
        assert_eq!(values(&ctx, held.all).await, [1, 2, 3, 4, 5, 6]);
        assert_eq!(values(&ctx, held.read).await, [1, 2, 3]);
        assert_eq!(values(&ctx, held.unread.unwrap()).await, [4, 5, 6]);
    }
}
