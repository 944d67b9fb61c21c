//! Answers as lines of text, and when two of them are the same.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use sqllogictest::{ColumnType, Normalizer, default_validator};

/// What stands for NULL.
const NULL: &str = "NULL";
/// What stands for a text without characters, which would be no cell at all.
const EMPTY: &str = "(empty)";
/// What a suite writes where anything may stand.
const IGNORE: &str = "<slt:ignore>";

/// The letter of a column after `query`. Any letter may stand in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Letter(char);

impl ColumnType for Letter {
    fn from_char(value: char) -> Option<Self> {
        Some(Self(value))
    }

    fn to_char(&self) -> char {
        self.0
    }
}

/// The letter that is written for a column of type `data_type`.
pub(super) fn letter(data_type: &DataType) -> Letter {
    let letter = match data_type {
        DataType::Boolean => 'B',
        integer if integer.is_integer() => 'I',
        number if number.is_floating() => 'R',
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => 'R',
        DataType::Timestamp(..) => 'P',
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 'T',
        DataType::Dictionary(_, values) => return letter(values),
        _ => '?',
    };
    Letter(letter)
}

/// The rows of `batches`, a text a cell.
///
/// # Errors
/// - a value that Arrow cannot print, such as a time outside the calendar
pub(super) fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::default()
        .with_null(NULL)
        .with_display_error(false);
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cells = columns
                .iter()
                .map(|column| column.value(row).try_to_string().map(cell))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            rows.extend(lines(cells));
        }
    }
    Ok(rows)
}

/// A cell that is never empty and ends where its last line ends.
fn cell(text: String) -> String {
    if text.is_empty() {
        EMPTY.to_owned()
    } else {
        text.trim_end_matches('\n').replace('\0', "\\0")
    }
}

/// A row whose last cell has several lines (a plan) becomes a row of the other cells, then a numbered row a line.
/// Line breaks elsewhere are written `\n`, for a line is a row.
fn lines(mut cells: Vec<String>) -> Vec<Vec<String>> {
    let text = cells.pop_if(|last| last.contains('\n'));
    for cell in &mut cells {
        if cell.contains('\n') {
            *cell = cell.replace('\n', "\\n");
        }
    }
    let Some(text) = text else {
        return vec![cells];
    };
    let mut rows = Vec::new();
    if !cells.is_empty() {
        rows.push(cells);
    }
    rows.extend(text.lines().enumerate().map(|(index, line)| {
        let rest = line.trim_start();
        let indent = "-".repeat(line.len() - rest.len());
        vec![format!("{:02}){indent}{rest}", index + 1)]
    }));
    rows
}

/// Whether the rows are the expected lines, with any run of spaces and tabs taken as one space.
pub(super) fn same(normalizer: Normalizer, actual: &[Vec<String>], expected: &[String]) -> bool {
    if expected.iter().any(|line| line.contains(IGNORE)) {
        return default_validator(normalizer, actual, expected);
    }
    actual.len() == expected.len()
        && actual
            .iter()
            .zip(expected)
            .all(|(cells, line)| normalizer(&cells.join(" ")) == normalizer(line))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        ArrayRef, Float64Array, StringArray, TimestampMicrosecondArray,
    };
    use sqllogictest::default_normalizer;

    use super::*;

    fn texts(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn null_empty_number_and_time_have_one_text_each() {
        let batch = RecordBatch::try_from_iter([
            (
                "t",
                Arc::new(StringArray::from(vec![Some(""), None, Some("a b")])) as ArrayRef,
            ),
            (
                "r",
                Arc::new(Float64Array::from(vec![2.0, 0.1, f64::NAN])) as ArrayRef,
            ),
            (
                "p",
                Arc::new(TimestampMicrosecondArray::from(vec![0, 300_000, -1])) as ArrayRef,
            ),
        ])
        .unwrap();
        assert_eq!(
            rows(&[batch]).unwrap(),
            vec![
                texts(&["(empty)", "2.0", "1970-01-01T00:00:00"]),
                texts(&["NULL", "0.1", "1970-01-01T00:00:00.300"]),
                texts(&["a b", "NaN", "1969-12-31T23:59:59.999999"]),
            ]
        );
    }

    #[test]
    fn a_plan_keeps_its_indentation() {
        assert_eq!(
            lines(texts(&["plan", "Sort\n  Scan\n"])),
            vec![texts(&["plan"]), texts(&["01)Sort"]), texts(&["02)--Scan"])]
        );
        assert_eq!(lines(texts(&["a\nb", "c"])), vec![texts(&["a\\nb", "c"])]);
    }

    #[test]
    fn tabs_and_runs_of_spaces_are_one_space() {
        let actual = [texts(&["1", "a  b", "NULL"])];
        assert!(same(
            default_normalizer,
            &actual,
            &texts(&["1\ta b   NULL"])
        ));
        assert!(!same(default_normalizer, &actual, &texts(&["1 ab NULL"])));
        assert!(!same(default_normalizer, &actual, &[]));
        assert!(same(
            default_normalizer,
            &actual,
            &texts(&["1 <slt:ignore>"])
        ));
    }
}
