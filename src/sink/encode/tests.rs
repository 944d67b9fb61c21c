//! What is in the bytes, and what is in which folder.

use bytes::Bytes;
use datafusion::arrow::array::{
    DictionaryArray, Float64Array, Int64Array, StringViewArray, StructArray, TimestampSecondArray,
};
use datafusion::arrow::datatypes::{Int8Type, Int64Type};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::datasource::listing::helpers::parse_partitions_for_path;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use object_store::path::Path;

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Cities with numbers from 0 on.
fn cities(names: &[Option<&str>]) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(0..names.len() as i64);
    let fields = vec![
        Field::new("city", DataType::Utf8, true),
        Field::new("n", DataType::Int64, false),
    ];
    let cities: ArrayRef = Arc::new(StringArray::from(names.to_vec()));
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new(schema, vec![cities, Arc::new(numbers)]).unwrap()
}

fn by(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The numbers of each folder.
fn numbers(parts: &[Partition]) -> Vec<(&str, Vec<i64>)> {
    let of = |batch: &RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    let parts = parts.iter();
    parts
        .map(|(folder, rows)| (folder.as_str(), rows.iter().flat_map(of).collect()))
        .collect()
}

fn text(format: FileFormat, batch: &RecordBatch) -> String {
    let bytes = encode(format, batch.schema_ref(), std::slice::from_ref(batch)).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn rows_go_to_their_folders_in_their_order() {
    let first = cities(&[Some("b"), Some("a"), Some("b"), None]);
    let second = cities(&[Some("a"), Some("a")]);
    let parts = split(&[first.clone(), first.slice(0, 0), second], &by(&["city"])).unwrap();
    let expected = [
        ("city=__HIVE_DEFAULT_PARTITION__", vec![3]),
        ("city=a", vec![1, 0, 1]),
        ("city=b", vec![0, 2]),
    ];
    assert_eq!(numbers(&parts), expected);
    assert_eq!(parts[0].1[0].num_columns(), 1);
    let whole = split(std::slice::from_ref(&first), &[]).unwrap();
    assert_eq!(whole, [(String::new(), vec![first])]);
    assert!(split(&[], &[]).unwrap().is_empty());
}

#[test]
fn folders_are_one_below_the_other_and_types_are_written_as_they_are_read() {
    let days: ArrayRef = Arc::new(Int64Array::from_iter_values([-1, 20_000]));
    let days = cast(&cast(&days, &DataType::Int32).unwrap(), &DataType::Date32).unwrap();
    let texts: DictionaryArray<Int8Type> = [Some("x"), None].into_iter().collect();
    let columns = vec![
        (
            "n",
            Arc::new(Int64Array::from_iter_values([1, 2])) as ArrayRef,
        ),
        ("day", days),
        ("text", Arc::new(texts) as ArrayRef),
    ];
    let rows = RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    );
    let parts = split(&[rows.unwrap()], &by(&["day", "text"])).unwrap();
    let expected = [
        ("day=1969-12-31/text=x", vec![1]),
        ("day=2024-10-04/text=__HIVE_DEFAULT_PARTITION__", vec![2]),
    ];
    assert_eq!(numbers(&parts), expected);
}

#[test]
fn datafusion_reads_every_value_back_from_its_folder() {
    let values = [
        "a/b",
        "50%",
        "%2F",
        "x=y",
        "with space",
        " ",
        "grün",
        "",
        ".",
        "..",
        "a:b",
        "q?#*",
        "[1]",
        "back\\slash",
        "~",
        "line\nend",
        "\u{1}",
        "日本",
        "a,b;c",
        "\"'`",
    ];
    let names: Vec<Option<&str>> = values.iter().map(|value| Some(*value)).collect();
    let parts = split(&[cities(&names)], &by(&["city"])).unwrap();
    assert_eq!(parts.len(), values.len());
    let table = ListingTableUrl::parse("file:///out/").unwrap();
    for (folder, numbers) in numbers(&parts) {
        assert_eq!(folder.split('/').count(), 1, "{folder}");
        let path = Path::parse(format!("out/{folder}/part-q-0000000000.parquet")).unwrap();
        let read = parse_partitions_for_path(&table, &path, ["city"]).unwrap();
        let number = usize::try_from(numbers[0]).unwrap();
        assert_eq!(read, [values[number]], "{folder}");
    }
}

#[test]
fn a_text_that_is_hives_word_for_null_shares_its_folder_and_loses_no_row() {
    let parts = split(&[cities(&[Some(NULL), None, Some(NULL)])], &by(&["city"])).unwrap();
    assert_eq!(
        numbers(&parts),
        [("city=__HIVE_DEFAULT_PARTITION__", vec![0, 1, 2])]
    );
}

#[test]
fn a_partition_column_that_is_missing_is_an_error() {
    assert!(split(&[cities(&[None])], &by(&["day"])).is_err());
}

#[test]
fn csv_has_a_header_and_quotes_what_must_be() {
    let rows = cities(&[Some("a,b"), None, Some("say \"x\"")]);
    let expected = "city,n\n\"a,b\",0\n,1\n\"say \"\"x\"\"\",2\n";
    assert_eq!(text(FileFormat::Csv, &rows), expected);
    assert_eq!(text(FileFormat::Csv, &rows.slice(0, 0)), "city,n\n");
    let two = encode(
        FileFormat::Csv,
        rows.schema_ref(),
        &[rows.slice(0, 1), rows.slice(1, 1)],
    );
    assert_eq!(two.unwrap(), b"city,n\n\"a,b\",0\n,1\n");
}

#[test]
fn json_is_an_object_a_line_with_its_nulls() {
    let start: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, 60]));
    let window = StructArray::try_from(vec![("start", start)]).unwrap();
    let rows = batch(vec![
        ("window", Arc::new(window) as ArrayRef),
        (
            "x",
            Arc::new(Float64Array::from(vec![Some(1.5), None])) as ArrayRef,
        ),
    ]);
    let expected = "{\"window\":{\"start\":\"1970-01-01T00:00:00\"},\"x\":1.5}\n\
                    {\"window\":{\"start\":\"1970-01-01T00:01:00\"},\"x\":null}\n";
    assert_eq!(text(FileFormat::Json, &rows), expected);
    assert_eq!(text(FileFormat::Json, &rows.slice(0, 0)), "");
}

#[test]
fn parquet_has_plain_texts_without_marks() {
    let texts: DictionaryArray<Int8Type> = ["x", "y", "x"].into_iter().collect();
    let views: ArrayRef = Arc::new(StringViewArray::from(vec![
        "a text longer than a view",
        "",
        "z",
    ]));
    let inner = StructArray::try_from(vec![("view", Arc::clone(&views))]).unwrap();
    let columns = vec![
        ("dictionary", Arc::new(texts) as ArrayRef),
        ("view", views),
        ("inner", Arc::new(inner) as ArrayRef),
    ];
    let rows = batch(columns);
    let bytes = encode(
        FileFormat::Parquet,
        rows.schema_ref(),
        &[rows.slice(0, 1), rows.slice(1, 2)],
    );
    let bytes = Bytes::from(bytes.unwrap());
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    assert!(
        reader
            .schema()
            .fields()
            .iter()
            .all(|field| field.metadata().is_empty())
    );
    let read: Vec<RecordBatch> = reader
        .build()
        .unwrap()
        .map(|batch| batch.unwrap())
        .collect();
    assert_eq!(read.len(), 1);
    let column = |at: usize| -> Vec<&str> {
        read[0]
            .column(at)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect()
    };
    assert_eq!(column(0), ["x", "y", "x"]);
    assert_eq!(column(1), ["a text longer than a view", "", "z"]);
    let inner = read[0].column(2).as_struct().column(0);
    assert_eq!(inner.data_type(), &DataType::Utf8);
}

#[test]
fn a_file_is_the_same_however_its_rows_are_cut() {
    let names: Vec<Option<&str>> = (0..5_000)
        .map(|at| Some(if at % 3 == 0 { "a" } else { "bb" }))
        .collect();
    let whole = cities(&names);
    let cuts = [
        whole.slice(0, 7),
        whole.slice(7, 0),
        whole.slice(7, 4_000),
        whole.slice(4_007, 993),
    ];
    for format in FileFormat::ALL {
        let schema = whole.schema();
        let one = encode(format, &schema, std::slice::from_ref(&whole)).unwrap();
        assert_eq!(encode(format, &schema, &cuts).unwrap(), one, "{format}");
    }
}
