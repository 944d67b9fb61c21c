//! Rows that a directory can never hold, found before their epoch commits: what has committed is delivered until it
//! arrives, and one such row would keep all others from it.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayData, ArrayRef, AsArray, RecordBatch, make_array};
use datafusion::arrow::compute::{max, min};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type, Schema};
use datafusion::common::{DataFusionError, Result};

use super::FileFormat;
use super::encode::{cast, encode, read_back, segment, written};
use crate::config::unit_of;
use crate::error::Refusal;
use crate::time::Unit;

/// Bytes of the longest name that a file system takes.
const NAME: usize = 255;

/// Characters of a value that a refusal shows, and that are short enough.
const SHOWN: usize = 16;

const DAY: i64 = 86_400;

/// The first second of the year 1, and the last day of the year 9999: years between are four digits in any zone.
const LEAST: i64 = -62_135_596_800;
const GREATEST: i64 = 253_402_214_400;

/// Refuses rows with a value that cannot name a folder, or that a file of the format would not give back.
pub(super) fn check_rows(
    format: FileFormat,
    rows: &[RecordBatch],
    partitioned_by: &[String],
) -> Result<()> {
    for batch in rows {
        for name in partitioned_by {
            let at = batch.schema_ref().index_of(name)?;
            names_folders(name, batch.column(at))?;
        }
        let in_files = batch.project(&written(batch.schema_ref(), partitioned_by))?;
        check_times(format, &in_files)?;
    }
    Ok(())
}

/// Refuses a value of a partition column that cannot name a folder.
fn names_folders(name: &str, column: &ArrayRef) -> Result<()> {
    let texts = cast(column, &DataType::Utf8)
        .map_err(|error| out_of_range(name, column.data_type(), &error.strip_backtrace()))?;
    if texts.null_count() > 0 {
        return Err(null(name));
    }
    for text in texts.as_string::<i32>().iter().flatten() {
        // A byte is written as three at most.
        let longest = text.len().saturating_mul(3).saturating_add(name.len() + 1);
        if longest > NAME && segment(name, text).len() > NAME {
            return Err(too_long(name, text));
        }
    }
    Ok(())
}

/// Refuses a time that a file of the format would not give back. Parquet has times as numbers; CSV and JSON have
/// them as texts, and not every time has one that is read again.
pub(super) fn check_times(format: FileFormat, batch: &RecordBatch) -> Result<()> {
    if format == FileFormat::Parquet {
        return Ok(());
    }
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if !has_usual_times(&column.to_data())?
            && let Err(error) = written_and_read(format, field, column)
        {
            let why = format!("{format}: {}", error.strip_backtrace());
            return Err(out_of_range(field.name(), field.data_type(), &why));
        }
    }
    Ok(())
}

/// Whether every time in a column, and in what it is made of, is one that every format gives back.
fn has_usual_times(column: &ArrayData) -> Result<bool> {
    for inner in column.child_data() {
        if !has_usual_times(inner)? {
            return Ok(false);
        }
    }
    let Some((least, greatest)) = usual(column.data_type()) else {
        return Ok(true);
    };
    let ticks = cast(&make_array(column.clone()), &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    Ok(min(ticks).is_none_or(|first| first >= least)
        && max(ticks).is_none_or(|last| last <= greatest))
}

/// The least and the greatest value of a type of times that every format gives back.
fn usual(data_type: &DataType) -> Option<(i64, i64)> {
    let in_second = |unit: Unit| Unit::Second.nanos() / unit.nanos();
    let from_to = |ticks: i64| (LEAST.saturating_mul(ticks), GREATEST.saturating_mul(ticks));
    match data_type {
        DataType::Timestamp(unit, _) => Some(from_to(in_second(unit_of(unit)))),
        DataType::Date64 => Some(from_to(in_second(Unit::Millisecond))),
        DataType::Date32 => Some((LEAST / DAY, GREATEST / DAY)),
        DataType::Time32(unit) | DataType::Time64(unit) => {
            Some((0, DAY.saturating_mul(in_second(unit_of(unit))) - 1))
        }
        _ => None,
    }
}

/// Writes a column as a file of the format, and reads it.
fn written_and_read(format: FileFormat, field: &FieldRef, column: &ArrayRef) -> Result<()> {
    let schema = Arc::new(Schema::new(vec![Arc::clone(field)]));
    let rows = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(column)])?;
    let bytes = encode(format, &schema, &[rows])?;
    read_back(format, &schema, &bytes)
}

/// The error of a time that has no text which is read again.
fn out_of_range(name: &str, data_type: &DataType, why: &str) -> DataFusionError {
    let message =
        format!("A value of {name}, of type {data_type}, cannot be written and read again: {why}.");
    Refusal::new("DATETIME_OVERFLOW", "22008", message)
        .hint("leave such rows out with WHERE, of groups that are open already with HAVING, or store as PARQUET and do not partition by it")
        .into()
}

/// The error of a row in no partition.
fn null(name: &str) -> DataFusionError {
    let message = format!("The partition column {name} is null: no folder is named by that.");
    Refusal::new("NULL_PARTITION_VALUE", "22004", message)
        .hint(format!(
            "give it a value in the query, coalesce({name}, …) AS {name}, or leave such rows out with WHERE, of groups that are open already with HAVING"
        ))
        .into()
}

/// The error of a value that is too long for the name of a folder.
fn too_long(name: &str, text: &str) -> DataFusionError {
    let shown: String = text.chars().take(SHOWN).collect();
    let length = segment(name, text).len();
    let message = format!(
        "The folder of the partition {name} = '{shown}…' would have a name of {length} bytes, and file systems take {NAME}: a byte that is not ASCII is written as three."
    );
    Refusal::new("PARTITION_VALUE_TOO_LONG", "22001", message)
        .hint(format!(
            "partition by a shorter value: substr({name}, 1, {SHOWN}) AS {name}"
        ))
        .into()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        Date32Array, Int64Array, StringArray, StructArray, Time64MicrosecondArray,
        TimestampMillisecondArray, TimestampSecondArray,
    };

    use super::*;
    use crate::error::refusal;

    /// The condition of the refusal of a column `x` beside another one, if there is one.
    fn judged(format: FileFormat, x: ArrayRef, by: &[&str]) -> Option<&'static str> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![0; x.len()]));
        let columns = [("x", x, true), ("n", numbers, false)];
        let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let by: Vec<String> = by.iter().map(|name| (*name).to_owned()).collect();
        let error = check_rows(format, &[rows], &by).err()?;
        Some(refusal(&error).unwrap().condition)
    }

    fn seconds(times: &[i64]) -> ArrayRef {
        Arc::new(TimestampSecondArray::from(times.to_vec()))
    }

    const TEXTS: [FileFormat; 2] = [FileFormat::Csv, FileFormat::Json];

    #[test]
    fn a_time_without_a_text_is_refused_where_times_are_texts() {
        let far: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![
            Some(0),
            None,
            Some(9_000_000_000_000_000_000),
        ]));
        let inner = StructArray::try_from(vec![("start", Arc::clone(&far))]).unwrap();
        let inner: ArrayRef = Arc::new(inner);
        let clock: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![86_400_000_000]));
        let day: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX]));
        for format in TEXTS {
            for column in [&far, &clock, &day] {
                let judged = judged(format, Arc::clone(column), &[]);
                assert_eq!(judged, Some("DATETIME_OVERFLOW"), "{format}: {column:?}");
            }
        }
        let refused = Some("DATETIME_OVERFLOW");
        assert_eq!(judged(FileFormat::Json, Arc::clone(&inner), &[]), refused);
        for column in [far, inner, clock, Arc::clone(&day)] {
            assert_eq!(judged(FileFormat::Parquet, column, &[]), None);
        }
        assert_eq!(judged(FileFormat::Parquet, day, &["x"]), refused);
    }

    #[test]
    fn times_of_four_digits_are_given_back_and_others_are_not() {
        // The first second of the year 0, the last of the year 9999.
        let (first, last) = (-62_167_219_200, 253_402_300_799);
        for format in TEXTS {
            assert_eq!(judged(format, seconds(&[first, 0, last]), &[]), None);
            for outside in [first - 1, last + 1] {
                let judged = judged(format, seconds(&[0, outside]), &[]);
                assert_eq!(judged, Some("DATETIME_OVERFLOW"), "{format}: {outside}");
            }
            // Dates are read with more digits, too: the 1st of January 10000.
            let days: ArrayRef = Arc::new(Date32Array::from(vec![2_932_897]));
            assert_eq!(judged(format, days, &[]), None);
        }
    }

    #[test]
    fn a_null_is_in_no_partition() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        for column in [texts, numbers] {
            assert_eq!(judged(FileFormat::Csv, Arc::clone(&column), &[]), None);
            let refused = judged(FileFormat::Csv, column, &["x"]);
            assert_eq!(refused, Some("NULL_PARTITION_VALUE"));
        }
    }
}
