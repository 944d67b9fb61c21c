//! Rows as the bytes of a section: an Arrow IPC stream, its buffers compressed with LZ4.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use datafusion::common::Result;

/// Rows of a batch that is written as it is: fewer are put together with those beside them.
const LARGE_ROWS: usize = 2_048;

/// Rows that a batch is cut after. A column of numbers has 64 KiB then, the smallest block that LZ4 has buffers for;
/// above 256 KiB it makes room for blocks of 4 MiB.
const BATCH_ROWS: usize = 8_192;

/// Bytes that a value takes, more or less: half of a number.
const VALUE_BYTES: usize = 4;

/// The bytes of some batches of one schema, one at least.
pub(crate) fn to_bytes(batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let Some(first) = batches.first() else {
        return Ok(Vec::new());
    };
    let schema = first.schema();
    let mut types = schema.fields().iter().map(|field| field.data_type());
    let batches = match types.all(can_be_cut) {
        true => cut(batches),
        // Dictionaries become one.
        false => joined(batches.to_vec()),
    };
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut bytes = Vec::with_capacity(rows * schema.fields().len() * VALUE_BYTES);
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

/// The rows in batches that are neither small nor large, in their order. Small ones that lie side by side are copied
/// into one.
fn cut(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let (mut out, mut small, mut rows) = (Vec::new(), Vec::new(), 0);
    for batch in batches {
        for at in (0..batch.num_rows()).step_by(BATCH_ROWS) {
            let length = BATCH_ROWS.min(batch.num_rows() - at);
            let is_large = length >= LARGE_ROWS;
            if is_large || rows + length > BATCH_ROWS {
                out.append(&mut joined(std::mem::take(&mut small)));
                rows = 0;
            }
            match is_large {
                true => out.push(batch.slice(at, length)),
                false => {
                    small.push(batch.slice(at, length));
                    rows += length;
                }
            }
        }
    }
    out.append(&mut joined(small));
    out
}

/// One batch of several; texts that do not fit one column stay as they are.
pub(crate) fn joined(batches: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let schema = batches.first().map(RecordBatch::schema);
    match schema.map(|schema| concat_batches(&schema, &batches)) {
        Some(Ok(one)) if batches.len() > 1 => vec![one],
        _ => batches,
    }
}

/// Whether rows that are cut from a column are written without what it has of the others: else each cut would be as
/// large as the column.
fn can_be_cut(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..)
        | DataType::RunEndEncoded(..)
        | DataType::Union(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => false,
        DataType::List(values)
        | DataType::LargeList(values)
        | DataType::FixedSizeList(values, _)
        | DataType::Map(values, _) => can_be_cut_within(values),
        DataType::Struct(fields) => fields.iter().all(can_be_cut_within),
        _ => true,
    }
}

/// The same of a column in another one. Views are written with all of their buffers there.
fn can_be_cut_within(field: &FieldRef) -> bool {
    let views = matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView);
    !views && can_be_cut(field.data_type())
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

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        BooleanArray, DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray,
    };
    use datafusion::arrow::datatypes::{Field, Int32Type, Int64Type};

    use super::*;

    /// So many rows, of which each differs from the others.
    fn rows(count: i64) -> RecordBatch {
        let numbers = || 0..count;
        let lists = numbers().map(|v| Some((0..v % 4).map(move |at| Some(v + at))));
        let few = numbers().map(|v| (v % 7 > 0).then_some(v));
        RecordBatch::try_from_iter([
            ("v", Arc::new(Int64Array::from_iter_values(numbers())) as _),
            ("few", Arc::new(few.collect::<Int64Array>()) as _),
            (
                "flag",
                Arc::new(
                    numbers()
                        .map(|v| Some(v % 3 == 0))
                        .collect::<BooleanArray>(),
                ) as _,
            ),
            (
                "text",
                Arc::new(StringArray::from_iter_values(
                    numbers().map(|v| v.to_string()),
                )) as _,
            ),
            (
                "view",
                Arc::new(StringViewArray::from_iter_values(
                    numbers().map(|v| format!("too long for a view: {v}")),
                )) as _,
            ),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)) as _,
            ),
        ])
        .unwrap()
    }

    /// The first rows of a batch, in batches of these sizes.
    fn of_sizes(all: &RecordBatch, sizes: &[usize]) -> Vec<RecordBatch> {
        let mut at = 0;
        let batches = sizes.iter().map(|rows| {
            let batch = all.slice(at, *rows);
            at += rows;
            batch
        });
        batches.collect()
    }

    fn sizes_of(batches: &[RecordBatch]) -> Vec<usize> {
        batches.iter().map(RecordBatch::num_rows).collect()
    }

    #[test]
    fn rows_come_back_in_their_order_in_batches_of_some_size() {
        let all = rows(40_000);
        let cases: [(Vec<usize>, Vec<usize>); 7] = [
            (vec![8_192], vec![8_192]),
            (vec![100, 200, 300], vec![600]),
            (vec![2_047; 5], vec![8_188, 2_047]),
            (vec![2_048; 3], vec![2_048; 3]),
            (
                vec![1, 20_000, 1, 0, 5_000],
                vec![1, 8_192, 8_192, 3_616, 1, 5_000],
            ),
            (vec![8_200, 10], vec![8_192, 18]),
            (vec![5, 0, 16_384, 7], vec![5, 8_192, 8_192, 7]),
        ];
        for (given, written) in cases {
            let bytes = to_bytes(&of_sizes(&all, &given)).unwrap();
            let read = from_bytes(&bytes).unwrap();
            assert_eq!(sizes_of(&read), written, "{given:?}");
            let read = concat_batches(&all.schema(), &read).unwrap();
            assert!(read == all.slice(0, given.iter().sum()), "{given:?}");
        }
        let nothing = to_bytes(&[all.slice(0, 0)]).unwrap();
        assert!(from_bytes(&nothing).unwrap().is_empty());
        assert_eq!(schema_from_bytes(&nothing).unwrap(), all.schema());
    }

    #[test]
    fn a_cut_takes_no_bytes_of_other_rows_with_it() {
        let all = rows(32_768);
        let apart = all.slice(8_192, 8_192);
        let (whole, quarter) = (to_bytes(&[all]).unwrap(), to_bytes(&[apart]).unwrap());
        let bounds = whole.len() / 5..whole.len() / 3;
        assert!(bounds.contains(&quarter.len()), "{bounds:?}");
    }

    #[test]
    fn dictionaries_become_one() {
        let texts: DictionaryArray<Int32Type> = (0..6_000).map(|_| "a").collect();
        let all = RecordBatch::try_from_iter([("d", Arc::new(texts) as _)]).unwrap();
        let bytes = to_bytes(&of_sizes(&all, &[3_000, 3_000])).unwrap();
        assert_eq!(sizes_of(&from_bytes(&bytes).unwrap()), [6_000_usize]);
    }

    #[test]
    fn only_columns_whose_cuts_are_small_are_cut() {
        let within = |data_type: DataType| Arc::new(Field::new("item", data_type, true));
        let list = |data_type: DataType| DataType::List(within(data_type));
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let record = |data_type: DataType| DataType::Struct(vec![within(data_type)].into());
        for cut in [DataType::Utf8View, list(record(DataType::Utf8))] {
            assert!(can_be_cut(&cut), "{cut}");
        }
        for whole in [
            dictionary.clone(),
            list(dictionary.clone()),
            record(list(dictionary)),
            list(DataType::Utf8View),
            DataType::ListView(within(DataType::Int64)),
        ] {
            assert!(!can_be_cut(&whole), "{whole}");
        }
    }
}
