//! Rows as the bytes of a section: an Arrow IPC stream, its buffers compressed with LZ4.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use datafusion::common::Result;

/// The bytes of some batches of one schema, one at least.
pub(crate) fn to_bytes(batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let Some(first) = batches.first() else {
        return Ok(Vec::new());
    };
    let schema = first.schema();
    // Dictionaries become one; texts that do not fit one column stay apart.
    let joined = concat_batches(&schema, batches);
    let batches = joined.map_or_else(|_| batches.to_vec(), |one| vec![one]);
    let mut bytes = Vec::new();
    // The disk is slower than LZ4.
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
    let mut writer = StreamWriter::try_new_with_options(&mut bytes, &schema, options?)?;
    for batch in batches {
        let columns = batch.columns().iter().map(alone).collect();
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
    }
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

/// A column without bytes of other rows: views share the buffers of the batch that they were cut from.
fn alone(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => Arc::clone(column),
    }
}

/// The batches of a section whose checksum is right.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Vec<RecordBatch>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let reader = StreamReader::try_new(bytes, None)?;
    Ok(reader.collect::<std::result::Result<_, _>>()?)
}

/// The bytes of a section without rows.
pub(crate) fn schema_to_bytes(schema: &SchemaRef) -> Result<Vec<u8>> {
    to_bytes(&[RecordBatch::new_empty(Arc::clone(schema))])
}

/// The schema of a section.
pub(crate) fn schema_from_bytes(bytes: &[u8]) -> Result<SchemaRef> {
    Ok(StreamReader::try_new(bytes, None)?.schema())
}

/// Number of rows.
pub(super) fn count(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| batch.num_rows() as u64).sum()
}
