//! One file as a stream of batches, with the columns that are asked for.

use std::collections::VecDeque;
use std::io::Cursor;
use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{FileRange, ListingTableUrl};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::{
    RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::super::ReadEnv;
use super::listing::Listing;
use crate::error::Refusal;

/// Columns of a file, in its own order, and where the asked ones are among them.
pub(super) struct Layout {
    /// Fields of the file.
    pub fields: Vec<FieldRef>,
    /// For each asked column its index in the file's columns (partition values behind them), or none
    /// if this file does not have it.
    pub places: Vec<Option<usize>>,
}

impl Layout {
    /// A file whose columns are the table's.
    fn of_table(listing: &Listing, columns: &[usize]) -> Self {
        Self {
            fields: listing.file_fields.clone(),
            places: columns.iter().copied().map(Some).collect(),
        }
    }

    /// A file whose columns are named by its header; `None` if it is empty.
    async fn of_header(
        listing: &Listing,
        csv: &CsvFormat,
        file: &ObjectMeta,
        columns: &[usize],
    ) -> Result<Option<Self>> {
        let Some(line) = header_line(listing, csv, file).await? else {
            return Ok(None);
        };
        let mut format = Format::default()
            .with_header(true)
            .with_delimiter(csv.options().delimiter)
            .with_quote(csv.options().quote);
        if let Some(escape) = csv.options().escape {
            format = format.with_escape(escape);
        }
        let (header, _) = format.infer_schema(Cursor::new(line), Some(0))?;
        let fields: Vec<FieldRef> = header
            .fields()
            .iter()
            .map(|named| field_of(listing, named.name()))
            .collect();
        let known = listing.file_fields.len();
        let places: Vec<Option<usize>> = columns
            .iter()
            .map(|column| match listing.file_fields.get(*column) {
                Some(field) => fields
                    .iter()
                    .position(|of_file| of_file.name() == field.name()),
                None => Some(fields.len() + column.saturating_sub(known)),
            })
            .collect();
        if !fields
            .iter()
            .any(|field| listing.file_fields.contains(field))
        {
            let names: Vec<&str> = listing
                .file_fields
                .iter()
                .map(|field| field.name().as_str())
                .collect();
            return Err(Refusal::new(
                "CSV_HEADER_MISMATCH",
                "KD001",
                format!("FILE {}, line 1: the header names none of the table's columns.", file.location),
            )
            .hint(format!("the columns are {}; a file without a header needs OPTIONS ('format.has_header' 'false')", names.join(", ")))
            .into());
        }
        Ok(Some(Self { fields, places }))
    }
}

/// The table's column that a header names, in any case; a text column if the table has none.
fn field_of(listing: &Listing, name: &str) -> FieldRef {
    let fields = &listing.file_fields;
    fields
        .iter()
        .find(|field| field.name() == name)
        .or_else(|| {
            fields
                .iter()
                .find(|field| field.name().eq_ignore_ascii_case(name.trim()))
        })
        .cloned()
        .unwrap_or_else(|| Arc::new(Field::new(name, DataType::Utf8, true)))
}

/// Schema of the asked columns.
pub(super) fn asked(listing: &Listing, columns: &[usize]) -> Result<SchemaRef> {
    Ok(Arc::new(listing.schema.project(columns)?))
}

/// The layout of a file; `None` if it has no rows.
pub(super) async fn layout(
    listing: &Listing,
    file: &ObjectMeta,
    columns: &[usize],
    env: &ReadEnv,
) -> Result<Option<Layout>> {
    if file.size == 0 {
        return Ok(None);
    }
    match listing.format.downcast_ref::<CsvFormat>() {
        Some(csv) if has_header(csv, env) => Layout::of_header(listing, csv, file, columns).await,
        _ => Ok(Some(Layout::of_table(listing, columns))),
    }
}

/// Whether CSV files of this format begin with a header.
pub(super) fn has_header(csv: &CsvFormat, env: &ReadEnv) -> bool {
    csv.options()
        .has_header
        .unwrap_or(env.session.config_options().catalog.has_header)
}

/// Opens a file. Parts of it that by their statistics have no row that is `wanted` may be passed over, where it has
/// some; an expression over the table's columns.
pub(super) async fn open(
    listing: &Listing,
    file: &ObjectMeta,
    columns: &[usize],
    wanted: Option<Arc<dyn PhysicalExpr>>,
    env: &ReadEnv,
) -> Result<SendableRecordBatchStream> {
    let schema = asked(listing, columns)?;
    let Some(layout) = layout(listing, file, columns, env).await? else {
        return Ok(Box::pin(EmptyRecordBatchStream::new(schema)));
    };
    let format = format_of(listing, file);
    let table_schema = TableSchema::builder(Arc::new(Schema::new(layout.fields.clone())))
        .with_table_partition_cols(listing.partition_fields.clone())
        .build();
    let url = listing.paths.first().map(ListingTableUrl::object_store);
    let url = url.ok_or_else(|| DataFusionError::Plan("the table has no path".to_owned()))?;
    let present: Vec<usize> = layout.places.iter().copied().flatten().collect();
    let mut source = format.file_source(table_schema);
    if let (Some(parquet), Some(wanted)) = (source.downcast_ref::<ParquetSource>(), wanted) {
        // Rows are not left out one by one: who asks looks at each.
        let pruned = parquet.with_predicate(wanted).with_pushdown_filters(false);
        source = Arc::new(pruned);
    }
    let config = FileScanConfigBuilder::new(url, source)
        .with_projection_indices(Some(present))?
        .with_file_compression_type(listing.compression(file));
    let whole = listing.partitioned(file)?;
    let mut configs = Vec::new();
    for range in pieces(listing, file, env) {
        let mut piece = whole.clone();
        piece.range = range;
        configs.push(config.clone().with_file(piece).build());
    }
    let rows = in_order(format, configs, env);
    if layout.places.iter().all(Option::is_some) {
        return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)));
    }
    let places = layout.places;
    let filled = {
        let schema = Arc::clone(&schema);
        rows.map(move |batch| fill(&batch?, &places, &schema))
    };
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, filled)))
}

/// Bytes of a file that are read as one piece: about a row group of Parquet.
const PIECE: u64 = 8 << 20;

/// The ranges in which a file is read, in order. Only a file that can be read from its middle has several:
/// one that is not compressed as a whole, and whose records are told by their lines or by a footer.
fn pieces(listing: &Listing, file: &ObjectMeta, env: &ReadEnv) -> Vec<Option<FileRange>> {
    let format = listing.format.as_ref();
    let by_range = if let Some(csv) = format.downcast_ref::<CsvFormat>() {
        let default = env.session.config_options().catalog.newlines_in_values;
        !csv.options().newlines_in_values.unwrap_or(default)
    } else if let Some(json) = format.downcast_ref::<JsonFormat>() {
        json.options().newline_delimited
    } else {
        format.is::<ParquetFormat>()
    };
    let plain = listing.compression(file) == FileCompressionType::UNCOMPRESSED;
    let count = file.size.div_ceil(PIECE);
    if count < 2 || !by_range || !plain {
        return vec![None];
    }
    let size = i64::try_from(file.size).unwrap_or(i64::MAX);
    let piece = i64::try_from(PIECE).unwrap_or(i64::MAX);
    let starts = (0..size).step_by(usize::try_from(PIECE).unwrap_or(usize::MAX));
    starts
        .map(|start| {
            Some(FileRange {
                start,
                end: start.saturating_add(piece).min(size),
            })
        })
        .collect()
}

/// The rows of pieces one after the other, while as many pieces are read as the session has partitions.
fn in_order(
    format: Arc<dyn FileFormat>,
    pieces: Vec<FileScanConfig>,
    env: &ReadEnv,
) -> BoxStream<'static, Result<RecordBatch>> {
    let at_once = env.task.session_config().target_partitions().max(1);
    let env = env.clone();
    let mut pieces = pieces.into_iter().map(move |piece| {
        let (format, env) = (Arc::clone(&format), env.clone());
        SpawnedTask::spawn(async move {
            let session = env.session.as_ref();
            let plan = format.create_physical_plan(session, piece).await?;
            Ok::<_, DataFusionError>(ahead(execute_stream(plan, env.task)?))
        })
    });
    // A task for each piece that is read: a future in a queue would not begin before it is asked.
    let mut reading = VecDeque::new();
    let opened = futures::stream::poll_fn(move |_| {
        while reading.len() < at_once {
            let Some(task) = pieces.next() else { break };
            reading.push_back(task);
        }
        Poll::Ready(reading.pop_front())
    });
    let opened = opened.then(|task| async {
        let opened = task.join_unwind().await;
        opened.map_err(|error| DataFusionError::External(Box::new(error)))?
    });
    opened.try_flatten().boxed()
}

/// Batches of a piece that are read before they are asked for: enough that a later piece is not waited for,
/// few enough that they are still in the processor's cache.
const AHEAD: usize = 16;

/// Reads a stream in a task of its own, some batches ahead of who asks. Dropping the stream ends the task.
fn ahead(mut stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let mut builder = RecordBatchReceiverStreamBuilder::new(stream.schema(), AHEAD);
    let sender = builder.tx();
    builder.spawn(async move {
        while let Some(batch) = stream.next().await {
            if sender.send(batch).await.is_err() {
                // Nobody reads on.
                break;
            }
        }
        Ok(())
    });
    builder.build()
}

/// A stream whose first batch is there: the tasks that read its pieces are running.
pub(super) async fn begun(mut stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = stream.schema();
    let first = futures::stream::iter(stream.next().await);
    Box::pin(RecordBatchStreamAdapter::new(schema, first.chain(stream)))
}

/// Adds columns of nulls for those that a file does not have.
pub(super) fn fill(
    batch: &RecordBatch,
    places: &[Option<usize>],
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let mut present = batch.columns().iter();
    let columns = places
        .iter()
        .zip(schema.fields())
        .map(|(place, field)| match place.and_then(|_| present.next()) {
            Some(column) => Arc::clone(column),
            None => new_null_array(field.data_type(), batch.num_rows()),
        })
        .collect();
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &rows,
    )?)
}

/// The table's format, with the compression that the file's name tells.
fn format_of(listing: &Listing, file: &ObjectMeta) -> Arc<dyn FileFormat> {
    let compression = listing.compression(file);
    if let Some(csv) = listing.format.downcast_ref::<CsvFormat>() {
        let format = CsvFormat::default().with_options(csv.options().clone());
        return Arc::new(format.with_file_compression_type(compression));
    }
    if let Some(json) = listing.format.downcast_ref::<JsonFormat>() {
        let format = JsonFormat::default().with_options(json.options().clone());
        return Arc::new(format.with_file_compression_type(compression));
    }
    Arc::clone(&listing.format)
}

/// The header of a file, without its end: the first line that is neither blank nor a comment; `None` if there is none.
async fn header_line(
    listing: &Listing,
    csv: &CsvFormat,
    file: &ObjectMeta,
) -> Result<Option<Vec<u8>>> {
    let bytes = listing
        .store
        .get(&file.location)
        .await?
        .into_stream()
        .map_err(DataFusionError::from)
        .boxed();
    let mut bytes = listing.compression(file).convert_stream(bytes)?;
    let terminator = csv.options().terminator.unwrap_or(b'\n');
    let comment = csv.options().comment;
    let is_header = |line: &[u8]| {
        let blank = line.iter().all(u8::is_ascii_whitespace);
        !blank && (comment.is_none() || line.first() != comment.as_ref())
    };
    let mut read = Vec::new();
    while let Some(chunk) = bytes.try_next().await? {
        read.extend_from_slice(&chunk);
        while let Some(end) = read.iter().position(|byte| *byte == terminator) {
            let rest = read.split_off(end + 1);
            let mut line = std::mem::replace(&mut read, rest);
            line.truncate(end);
            if is_header(&line) {
                return Ok(Some(line));
            }
        }
    }
    Ok(is_header(&read).then_some(read))
}
