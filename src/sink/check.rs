//! What a directory of files cannot hold, refused before the first row.
//!
//! Partition columns are of types that DataFusion reads back from the names of folders, and finds again when a
//! query asks for one value: it makes the folder's name of the value. For timestamps it makes another name than
//! the one that it reads, and the rows would not be found; they are refused with floats, binary and nested
//! types.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue};

use super::FileFormat;
use super::encode::{encode, plain, read_back, segment, written};
use crate::error::Refusal;

/// See [`DirectorySink::check`](super::DirectorySink::check).
pub(super) fn check(
    format: FileFormat,
    schema: &SchemaRef,
    partitioned_by: &[String],
) -> Result<()> {
    for (at, name) in partitioned_by.iter().enumerate() {
        if partitioned_by.iter().take(at).any(|other| other == name) {
            let message = format!("The partition column {name} is given twice.");
            let refusal = Refusal::new("COLUMN_ALREADY_EXISTS", "42711", message);
            return Err(refusal.hint("keep one").into());
        }
        partition(schema, name)?;
    }
    let written = written(schema, partitioned_by);
    if written.is_empty() {
        let message = "Every column is a partition column: the files would have none.";
        let refusal = Refusal::new("ALL_PARTITION_COLUMNS_NOT_ALLOWED", "KD005", message);
        return Err(refusal.hint("leave a column out of PARTITIONED BY").into());
    }
    for at in written {
        column(format, schema.field(at))?;
    }
    Ok(())
}

/// Refuses a partition column that is not there, or whose values or name cannot name a folder.
fn partition(schema: &SchemaRef, name: &str) -> Result<()> {
    let Some((_, field)) = schema.fields().find(name) else {
        let known: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        return Err(Refusal::new(
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "42703",
            format!("PARTITIONED BY: the result has no column {name}."),
        )
        .hint(format!("its columns are {}", known.join(", ")))
        .into());
    };
    if name.is_empty() || name.contains('=') || segment(name, "") != format!("{name}=") {
        return Err(Refusal::new(
            "INVALID_PARTITION_COLUMN_NAME",
            "42602",
            format!("The column {name:?} cannot name a folder."),
        )
        .hint("give it a name of ASCII letters, digits and _: SELECT … AS name")
        .into());
    }
    if names_folders(field.data_type()) {
        return Ok(());
    }
    Err(Refusal::new(
        "INVALID_PARTITION_COLUMN_DATA_TYPE",
        "0A000",
        format!(
            "The column {name} of type {} cannot be a partition column.",
            field.data_type()
        ),
    )
    .hint(partition_hint(field))
    .into())
}

/// Whether values of a type name folders, and are found by them.
fn names_folders(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => names_folders(values),
        DataType::Boolean
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Date32
        | DataType::Decimal32(_, _)
        | DataType::Decimal64(_, _)
        | DataType::Decimal128(_, _)
        | DataType::Decimal256(_, _) => true,
        other => other.is_integer(),
    }
}

fn partition_hint(field: &FieldRef) -> String {
    let name = field.name();
    match field.data_type() {
        DataType::Timestamp(_, _) | DataType::Date64 => {
            format!("partition by its day: CAST({name} AS DATE)")
        }
        DataType::Struct(fields) if is_window(fields) => {
            format!("partition by the day it begins: CAST({name}.start AS DATE)")
        }
        _ => "partition by a text, a whole number, a decimal, a boolean or a date".to_owned(),
    }
}

/// Refuses a column that a format has no form for.
fn column(format: FileFormat, field: &Field) -> Result<()> {
    let refused = |why: String, hint: String| -> Result<()> {
        Err(Refusal::new(
            "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE",
            "0A000",
            format!(
                "The column {} of type {} cannot be stored as {format}{why}.",
                field.name(),
                field.data_type()
            ),
        )
        .hint(hint)
        .into())
    };
    let data_type = plain(field.data_type());
    let parts = parts_of(&data_type);
    // The Parquet writer panics for it.
    if parts
        .iter()
        .any(|part| matches!(part, DataType::Union(_, _)))
    {
        return refused(String::new(), text_hint(field.name(), &data_type));
    }
    if format == FileFormat::Csv && data_type.is_nested() {
        return refused(String::new(), nested_hint(field.name(), &data_type));
    }
    let null = comes_back(format, field.name(), new_null_array(&data_type, 1));
    let judged = null.and_then(|()| {
        // What is nested has values of types that are not.
        let mut values = parts.iter().filter(|part| !part.is_nested());
        values.try_for_each(|part| {
            let value = ScalarValue::new_default(part)?.to_array()?;
            comes_back(format, field.name(), value)
        })
    });
    match judged {
        Ok(()) => Ok(()),
        Err(error) => refused(
            format!(": {}", error.strip_backtrace()),
            text_hint(field.name(), &data_type),
        ),
    }
}

/// Writes a row with one value, and reads it: writers and readers judge a type when they meet a row, and some
/// readers when they meet a value.
fn comes_back(format: FileFormat, name: &str, value: ArrayRef) -> Result<()> {
    let field = Field::new(name, value.data_type().clone(), true);
    let schema = Arc::new(Schema::new(vec![field]));
    let row = RecordBatch::try_new(Arc::clone(&schema), vec![value])?;
    let bytes = encode(format, &schema, &[row])?;
    read_back(format, &schema, &bytes)
}

/// A plain type and those that it is made of.
fn parts_of(data_type: &DataType) -> Vec<&DataType> {
    let inner: Vec<&DataType> = match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type()],
        _ => Vec::new(),
    };
    let mut parts = vec![data_type];
    parts.extend(inner.into_iter().flat_map(parts_of));
    parts
}

fn text_hint(name: &str, data_type: &DataType) -> String {
    match data_type.is_binary() {
        true => format!("make text of it: encode({name}, 'hex')"),
        false => format!("make text of it: CAST({name} AS VARCHAR)"),
    }
}

fn nested_hint(name: &str, data_type: &DataType) -> String {
    match data_type {
        DataType::Struct(fields) if is_window(fields) => {
            format!("select {name}.start and {name}.end instead, or store as PARQUET or JSON")
        }
        DataType::Struct(fields) => {
            let first = fields
                .first()
                .map_or("field", |field| field.name().as_str());
            format!("select its fields, such as {name}.{first}, or store as PARQUET or JSON")
        }
        _ => "store as PARQUET or JSON, or select what is in it".to_owned(),
    }
}

/// Whether these are the fields of a window.
fn is_window(fields: &Fields) -> bool {
    fields.find("start").is_some() && fields.find("end").is_some()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{IntervalUnit, TimeUnit, UnionFields, UnionMode};

    use super::*;
    use crate::error::refusal;

    /// Condition and hint of the refusal, if there is one.
    fn judged(format: FileFormat, fields: Vec<Field>, by: &[&str]) -> Option<(String, String)> {
        let by: Vec<String> = by.iter().map(|name| (*name).to_owned()).collect();
        let error = check(format, &Arc::new(Schema::new(fields)), &by).err()?;
        let refusal = refusal(&error).unwrap_or_else(|| panic!("{error}"));
        let hint = refusal.hint.clone().unwrap_or_default();
        Some((refusal.condition.to_owned(), hint))
    }

    fn field(name: &str, data_type: DataType) -> Field {
        Field::new(name, data_type, false)
    }

    fn number() -> Field {
        field("n", DataType::Int64)
    }

    fn window() -> Field {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let bounds = [field("start", time.clone()), field("end", time)];
        field("window", DataType::Struct(bounds.into_iter().collect()))
    }

    #[test]
    fn partition_columns_name_folders() {
        let good = [
            DataType::Utf8View,
            DataType::Int32,
            DataType::UInt64,
            DataType::Boolean,
            DataType::Date32,
            DataType::Decimal128(10, 2),
            DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
        ];
        for data_type in good {
            let fields = vec![field("p", data_type.clone()), number()];
            let judged = judged(FileFormat::Parquet, fields, &["p"]);
            assert_eq!(judged, None, "{data_type}");
        }
        let bad = [
            DataType::Float64,
            DataType::Binary,
            DataType::Timestamp(TimeUnit::Second, None),
            window().data_type().clone(),
        ];
        for data_type in bad {
            let fields = vec![field("p", data_type.clone()), number()];
            let (condition, _) = judged(FileFormat::Parquet, fields, &["p"]).unwrap();
            assert_eq!(
                condition, "INVALID_PARTITION_COLUMN_DATA_TYPE",
                "{data_type}"
            );
        }
    }

    #[test]
    fn partition_columns_are_some_of_the_columns() {
        let two = || vec![field("p", DataType::Utf8), number()];
        let condition = |by: &[&str]| judged(FileFormat::Json, two(), by).map(|(name, _)| name);
        assert_eq!(condition(&["p"]), None);
        let twice = Some("COLUMN_ALREADY_EXISTS".to_owned());
        assert_eq!(condition(&["p", "p"]), twice);
        let all = Some("ALL_PARTITION_COLUMNS_NOT_ALLOWED".to_owned());
        assert_eq!(condition(&["n", "p"]), all);
        let (unknown, hint) = judged(FileFormat::Json, two(), &["q"]).unwrap();
        assert_eq!(unknown, "UNRESOLVED_COLUMN.WITH_SUGGESTION");
        assert_eq!(hint, "its columns are p, n");
        for name in ["a=b", "a/b", "50%", "grün", ""] {
            let fields = vec![field(name, DataType::Utf8), number()];
            let (condition, _) = judged(FileFormat::Json, fields, &[name]).unwrap();
            assert_eq!(condition, "INVALID_PARTITION_COLUMN_NAME", "{name}");
        }
    }

    #[test]
    fn a_window_is_not_stored_as_csv() {
        let judge = |format| judged(format, vec![window(), number()], &[]);
        assert_eq!(judge(FileFormat::Parquet), None);
        assert_eq!(judge(FileFormat::Json), None);
        let (condition, hint) = judge(FileFormat::Csv).unwrap();
        assert_eq!(condition, "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE");
        assert!(hint.contains("window.start and window.end"), "{hint}");
    }

    #[test]
    fn what_a_writer_cannot_do_is_refused() {
        let union = UnionFields::from_fields(vec![number()]);
        let interval = DataType::Interval(IntervalUnit::MonthDayNano);
        let cases = [
            (
                FileFormat::Parquet,
                DataType::Union(union, UnionMode::Sparse),
            ),
            (FileFormat::Parquet, interval),
            (FileFormat::Parquet, DataType::Struct(Fields::empty())),
        ];
        for (format, data_type) in cases {
            let fields = vec![field("x", data_type.clone()), number()];
            let (condition, _) = judged(format, fields, &[]).unwrap();
            assert_eq!(
                condition, "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE",
                "{data_type}"
            );
        }
        let duration = vec![
            field("x", DataType::Duration(TimeUnit::Nanosecond)),
            number(),
        ];
        assert_eq!(judged(FileFormat::Parquet, duration, &[]), None);
    }

    #[test]
    fn what_a_reader_cannot_do_is_refused() {
        let duration = DataType::Duration(TimeUnit::Second);
        let list = DataType::List(Arc::new(Field::new("item", duration.clone(), true)));
        let interval = DataType::Interval(IntervalUnit::DayTime);
        let (csv, json) = (FileFormat::Csv, FileFormat::Json);
        let hex = "make text of it: encode(x, 'hex')";
        let text = "make text of it: CAST(x AS VARCHAR)";
        for (format, data_type, hint) in [
            (csv, DataType::Binary, hex),
            (csv, DataType::LargeBinary, hex),
            (csv, duration.clone(), text),
            (csv, interval.clone(), text),
            (json, duration, text),
            (json, interval, text),
            (json, list, text),
        ] {
            let fields = vec![field("x", data_type.clone()), number()];
            let refused = judged(format, fields, &[]);
            let condition = "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE";
            let expected = Some((condition.to_owned(), hint.to_owned()));
            assert_eq!(refused, expected, "{format}: {data_type}");
        }
    }

    #[test]
    fn what_every_format_gives_back_is_stored() {
        let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let numbers = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int64));
        let zone = Some("+02:00".into());
        for data_type in [
            DataType::Utf8,
            DataType::LargeUtf8,
            DataType::Utf8View,
            words,
            numbers,
            DataType::Boolean,
            DataType::Int8,
            DataType::UInt64,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128(10, 2),
            DataType::Date32,
            DataType::Date64,
            DataType::Time64(TimeUnit::Nanosecond),
            DataType::Timestamp(TimeUnit::Second, None),
            DataType::Timestamp(TimeUnit::Nanosecond, zone),
        ] {
            for format in FileFormat::ALL {
                let fields = vec![field("x", data_type.clone()), number()];
                assert_eq!(judged(format, fields, &[]), None, "{format}: {data_type}");
            }
        }
    }
}
