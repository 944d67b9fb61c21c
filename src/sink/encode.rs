//! Rows to the bytes of a file, and rows by partition. No disk.
//!
//! What a file holds are names, types, nullability and values. Dictionaries, runs and views are ways to hold
//! values in memory: their values are written plainly, in nested columns too. Metadata of columns is left out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt32Array};
use datafusion::arrow::compute::{
    CastOptions, cast_with_options, concat_batches, take_record_batch,
};
use datafusion::arrow::csv::{ReaderBuilder as CsvReader, WriterBuilder as CsvBuilder};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::json::{
    LineDelimitedWriter, ReaderBuilder as JsonReader, WriterBuilder as JsonBuilder,
};
use datafusion::arrow::row::{Row, RowConverter, SortField};
use datafusion::common::{DataFusionError, Result};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use object_store::path::PathPart;

use super::FileFormat;

/// The value of a folder for rows where the partition column is null: Hive's word for it.
pub(crate) const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The rows of one partition: its folder, and the rows without the partition columns.
pub(super) type Partition = (String, Vec<RecordBatch>);

/// The bytes of a file with these rows. The rows have the columns of `schema`; without rows the file is one
/// with no rows.
///
/// # Errors
/// - the format has no form for a type, or for a value
pub(super) fn encode(
    format: FileFormat,
    schema: &SchemaRef,
    rows: &[RecordBatch],
) -> Result<Vec<u8>> {
    let schema = plain_schema(schema);
    let rows = rows.iter().map(|batch| plain_rows(&schema, batch));
    let rows = together(&schema, rows.collect::<Result<Vec<_>>>()?);
    match format {
        FileFormat::Parquet => parquet(&schema, &rows),
        FileFormat::Csv => csv(&schema, &rows),
        FileFormat::Json => json(&rows),
    }
}

/// Reads a file of these columns as a table does, to see that it can be read. Parquet gives back what was written.
///
/// # Errors
/// - the format does not read a type, or not what it has written
pub(super) fn read_back(format: FileFormat, schema: &SchemaRef, bytes: &[u8]) -> Result<()> {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| read_field(format, field));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    match format {
        FileFormat::Parquet => {}
        FileFormat::Csv => {
            for batch in CsvReader::new(schema).with_header(true).build(bytes)? {
                batch?;
            }
        }
        FileFormat::Json => {
            for batch in JsonReader::new(schema).build(bytes)? {
                batch?;
            }
        }
    }
    Ok(())
}

/// A column of a file as it is read. CSV and JSON are read as what they have, plain values; Parquet's reader makes
/// of them how the column held them.
pub(super) fn read_field(format: FileFormat, field: &Field) -> Field {
    let data_type = match (format, field.data_type()) {
        (FileFormat::Parquet, data_type) => data_type.clone(),
        // Held otherwise, and read as well as plain ones.
        (_, DataType::Utf8View) => DataType::Utf8View,
        // The reader of CSV knows one type of texts, and views of it.
        (FileFormat::Csv, data_type) => match plain(data_type) {
            DataType::LargeUtf8 => DataType::Utf8,
            plain => plain,
        },
        (FileFormat::Json, data_type) => plain(data_type),
    };
    field.clone().with_data_type(data_type)
}

/// The rows as one batch: rows that are delivered again come in other batches, and their file is to be the same
/// byte for byte, for somebody may be reading it. Texts that do not fit one column stay apart.
fn together(schema: &SchemaRef, rows: Vec<RecordBatch>) -> Vec<RecordBatch> {
    match concat_batches(schema, &rows) {
        Ok(one) if rows.len() > 1 => vec![one],
        _ => rows,
    }
}

fn parquet(schema: &SchemaRef, rows: &[RecordBatch]) -> Result<Vec<u8>> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, Arc::clone(schema), Some(properties))?;
    for batch in rows {
        writer.write(batch)?;
    }
    writer.close()?;
    Ok(bytes)
}

fn csv(schema: &SchemaRef, rows: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = CsvBuilder::new().with_header(true).build(&mut bytes);
    // The header comes with the first batch.
    writer.write(&RecordBatch::new_empty(Arc::clone(schema)))?;
    for batch in rows {
        writer.write(batch)?;
    }
    drop(writer);
    Ok(bytes)
}

fn json(rows: &[RecordBatch]) -> Result<Vec<u8>> {
    let builder = JsonBuilder::new().with_explicit_nulls(true);
    let mut writer: LineDelimitedWriter<Vec<u8>> = builder.build(Vec::new());
    for batch in rows {
        writer.write(batch)?;
    }
    writer.finish()?;
    Ok(writer.into_inner())
}

/// The columns of a file.
fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(plain_field).collect();
    Arc::new(Schema::new(fields))
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let plain = plain(field.data_type());
    Arc::new(Field::new(field.name(), plain, field.is_nullable()))
}

/// The type that a column is written with.
pub(super) fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain(values),
        DataType::RunEndEncoded(_, values) => plain(values.data_type()),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) => DataType::LargeList(plain_field(item)),
        DataType::ListView(item) => DataType::ListView(plain_field(item)),
        DataType::LargeListView(item) => DataType::LargeListView(plain_field(item)),
        DataType::FixedSizeList(item, length) => {
            DataType::FixedSizeList(plain_field(item), *length)
        }
        DataType::Map(entries, sorted) => DataType::Map(plain_field(entries), *sorted),
        other => other.clone(),
    }
}

fn plain_rows(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let fields = schema.fields().iter();
    let columns = fields
        .zip(batch.columns())
        .map(|(field, column)| cast(column, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The column in another type. A value that has none there is an error, not a null.
pub(super) fn cast(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if column.data_type() == to {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    Ok(cast_with_options(column, to, &options)?)
}

/// Places of the columns that are written to the files: those that no partition column is named as.
pub(super) fn written(schema: &Schema, partitioned_by: &[String]) -> Vec<usize> {
    let fields = schema.fields().iter().enumerate();
    fields
        .filter(|(_, field)| !partitioned_by.contains(field.name()))
        .map(|(at, _)| at)
        .collect()
}

/// Rows by partition, sorted by folder; the rows of a partition in their order. A partition without rows is
/// not there. Without partition columns the folder is empty.
///
/// A folder is `column=value`, one below the other. What object stores do not take in a name is written as
/// `%` and two digits, as DataFusion does: it takes values back from folders, and makes folders of values to
/// find them. A null is [`NULL`]. An empty text is `column=`, which DataFusion reads as an empty text; Hive
/// itself cannot tell it from a null.
///
/// # Errors
/// - a partition column is missing
/// - a value cannot be written as text
pub(super) fn split(rows: &[RecordBatch], partitioned_by: &[String]) -> Result<Vec<Partition>> {
    let mut partitions: BTreeMap<String, Vec<RecordBatch>> = BTreeMap::new();
    for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
        if partitioned_by.is_empty() {
            let all = partitions.entry(String::new()).or_default();
            all.push(batch.clone());
            continue;
        }
        let values = values(batch, partitioned_by)?;
        let rest = batch.project(&written(batch.schema_ref(), partitioned_by))?;
        for (folder, places) in places(&values, partitioned_by)? {
            let part = match places.len() == rest.num_rows() {
                true => rest.clone(),
                false => take_record_batch(&rest, &UInt32Array::from(places))?,
            };
            partitions.entry(folder).or_default().push(part);
        }
    }
    Ok(partitions.into_iter().collect())
}

/// The partition columns of some rows, as texts.
fn values(batch: &RecordBatch, partitioned_by: &[String]) -> Result<Vec<ArrayRef>> {
    let columns = partitioned_by.iter().map(|name| {
        let at = batch.schema_ref().index_of(name)?;
        cast(batch.column(at), &DataType::Utf8)
    });
    columns.collect()
}

/// Which rows are in which folder, in their order. Only the first row of some values makes a folder's name.
fn places(values: &[ArrayRef], partitioned_by: &[String]) -> Result<BTreeMap<String, Vec<u32>>> {
    let fields = values.iter().map(|_| SortField::new(DataType::Utf8));
    let rows = RowConverter::new(fields.collect())?.convert_columns(values)?;
    let texts: Vec<&StringArray> = values.iter().map(|column| column.as_string()).collect();
    let mut numbers: HashMap<Row<'_>, usize> = HashMap::new();
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    let mut places: Vec<Vec<u32>> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let number = *numbers.entry(row).or_insert_with(|| {
            // A null and a text of Hive's word share a folder.
            let next = folders.len();
            *folders
                .entry(folder(partitioned_by, &texts, at))
                .or_insert(next)
        });
        if places.len() <= number {
            places.resize_with(number + 1, Vec::new);
        }
        let at = u32::try_from(at).map_err(|error| DataFusionError::External(error.into()))?;
        if let Some(places) = places.get_mut(number) {
            places.push(at);
        }
    }
    let named = folders.into_iter();
    let placed = named.map(|(folder, number)| {
        let places = places.get_mut(number).map(std::mem::take);
        (folder, places.unwrap_or_default())
    });
    Ok(placed.collect())
}

/// The folder of one row.
fn folder(partitioned_by: &[String], texts: &[&StringArray], at: usize) -> String {
    let segments = partitioned_by.iter().zip(texts).map(|(name, text)| {
        let value = match text.is_null(at) {
            true => NULL,
            false => text.value(at),
        };
        segment(name, value)
    });
    segments.collect::<Vec<_>>().join("/")
}

/// `column=value`, as the name of a folder.
pub(super) fn segment(name: &str, value: &str) -> String {
    let part = PathPart::from(format!("{name}={value}"));
    part.as_ref().to_owned()
}

#[cfg(test)]
mod tests;
