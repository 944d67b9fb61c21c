//! Record batches to text, in one of four formats.
//!
//! | format | per statement | null |
//! |---|---|---|
//! | `table` | a table a page; one with a header alone when there are no rows | `NULL` |
//! | `csv` | a header, then a line a row | empty |
//! | `json` | one array of objects, on lines of its own | `null` |
//! | `ndjson` | an object a row | `null` |
//!
//! Text only: writing it is the caller's. A statement without columns (most that define something) prints
//! nothing in any format.

use std::sync::Arc;

use clap::ValueEnum;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::{ArrayWriter, LineDelimitedWriter, WriterBuilder};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches_with_options;
use datafusion::common::Result;
use datafusion::common::config;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people
    Table,
    /// Comma-separated values with a header
    Csv,
    /// An array of objects for each statement
    Json,
    /// An object for each row, one a line
    Ndjson,
}

impl Format {
    /// Names of all formats.
    pub(crate) const NAMES: [&'static str; 4] = ["table", "csv", "json", "ndjson"];

    /// The format of a name, in any case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::from_str(name, true).ok()
    }

    /// Its name, in lower case.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
        }
    }
}

/// Turns the rows of one statement into text.
#[derive(Debug)]
pub(crate) struct Encoder {
    schema: SchemaRef,
    state: State,
    /// Nothing has been encoded yet.
    fresh: bool,
}

/// What a format keeps from one page to the next.
#[derive(Debug)]
enum State {
    Table(config::FormatOptions),
    Csv,
    Json(ArrayWriter<Vec<u8>>),
    Ndjson(LineDelimitedWriter<Vec<u8>>),
}

impl Encoder {
    /// An encoder of rows of `schema`; `options` are the session's, for tables.
    pub(crate) fn new(format: Format, schema: SchemaRef, options: &config::FormatOptions) -> Self {
        let json = WriterBuilder::new().with_explicit_nulls(true);
        let state = match format {
            Format::Table => State::Table(options.clone()),
            Format::Csv => State::Csv,
            Format::Json => State::Json(json.build(Vec::new())),
            Format::Ndjson => State::Ndjson(json.build(Vec::new())),
        };
        Self {
            schema,
            state,
            fresh: true,
        }
    }

    /// The text of some more rows.
    ///
    /// # Errors
    /// - a value cannot be written in the format
    pub(crate) fn encode(&mut self, batches: &[RecordBatch]) -> Result<Vec<u8>> {
        if self.schema.fields().is_empty() || batches.is_empty() {
            return Ok(Vec::new());
        }
        let first = std::mem::replace(&mut self.fresh, false);
        match &mut self.state {
            State::Table(options) => table(batches, options),
            State::Csv => Ok(comma_separated(batches, first)?),
            State::Json(writer) => {
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                Ok(std::mem::take(writer.get_mut()))
            }
            State::Ndjson(writer) => {
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                Ok(std::mem::take(writer.get_mut()))
            }
        }
    }

    /// The text that ends the statement's rows: the header if there were none, the end of an array.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>> {
        if self.schema.fields().is_empty() {
            return Ok(Vec::new());
        }
        let mut text = match self.fresh {
            true => self.encode(&[RecordBatch::new_empty(Arc::clone(&self.schema))])?,
            false => Vec::new(),
        };
        if let State::Json(writer) = &mut self.state {
            writer.finish()?;
            text.append(writer.get_mut());
            text.push(b'\n');
        }
        Ok(text)
    }

    /// The text that follows rows of a statement that failed: an array stays open, so that nobody takes
    /// it for the whole answer, but its line ends.
    pub(crate) fn abandon(&self) -> &'static [u8] {
        match &self.state {
            State::Json(_) if !self.fresh => b"\n",
            _ => b"",
        }
    }
}

fn table(batches: &[RecordBatch], options: &config::FormatOptions) -> Result<Vec<u8>> {
    let options = FormatOptions::try_from(options)?;
    let table = pretty_format_batches_with_options(batches, &options)?;
    Ok(format!("{table}\n").into_bytes())
}

fn comma_separated(batches: &[RecordBatch], header: bool) -> Result<Vec<u8>, ArrowError> {
    let mut text = Vec::new();
    let mut writer = csv::WriterBuilder::new()
        .with_header(header)
        .build(&mut text);
    for batch in batches {
        writer.write(&flat(batch)?)?;
    }
    drop(writer);
    Ok(text)
}

/// The batch with structs, lists and maps as text, for the CSV writer takes none.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = batch
        .schema()
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, column)| {
            if column.data_type().is_nested() {
                let field = Field::new(field.name(), DataType::Utf8, true);
                Ok((field, as_text(column)?))
            } else {
                Ok((field.as_ref().clone(), Arc::clone(column)))
            }
        })
        .collect::<Result<Vec<_>, ArrowError>>()?
        .into_iter()
        .unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn as_text(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = FormatOptions::new().with_display_error(false);
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let texts = (0..column.len())
        .map(|row| match column.is_null(row) {
            true => Ok(None),
            false => formatter.value(row).try_to_string().map(Some),
        })
        .collect::<Result<StringArray, ArrowError>>()?;
    Ok(Arc::new(texts))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, StructArray};

    use super::*;

    fn numbers(values: &[Option<i64>]) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("n", values, true)]).unwrap()
    }

    /// The whole text of pages that hold one batch each.
    fn text(format: Format, pages: &[RecordBatch]) -> String {
        let schema = numbers(&[]).schema();
        let mut encoder = Encoder::new(format, schema, &config::FormatOptions::default());
        let mut text = Vec::new();
        for page in pages {
            text.extend(encoder.encode(std::slice::from_ref(page)).unwrap());
        }
        text.extend(encoder.finish().unwrap());
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_header_or_an_array_spans_pages() {
        let pages = [numbers(&[Some(1)]), numbers(&[None, Some(3)])];
        assert_eq!(text(Format::Csv, &pages), "n\n1\n\"\"\n3\n");
        assert_eq!(
            text(Format::Json, &pages),
            "[{\"n\":1},{\"n\":null},{\"n\":3}]\n"
        );
        assert_eq!(
            text(Format::Ndjson, &pages),
            "{\"n\":1}\n{\"n\":null}\n{\"n\":3}\n"
        );
    }

    #[test]
    fn no_rows_still_have_a_header() {
        assert_eq!(text(Format::Table, &[]), "+---+\n| n |\n+---+\n+---+\n");
        assert_eq!(text(Format::Csv, &[]), "n\n");
        assert_eq!(text(Format::Json, &[]), "[]\n");
        assert_eq!(text(Format::Ndjson, &[]), "");
    }

    #[test]
    fn structs_are_text_in_csv() {
        let inner: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let field = Arc::new(Field::new("start", DataType::Int64, true));
        let window: ArrayRef = Arc::new(StructArray::from(vec![(field, inner)]));
        let batch = RecordBatch::try_from_iter([("window", window)]).unwrap();
        let text = comma_separated(&[batch], true).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "window\n{start: 7}\n");
    }

    #[test]
    fn every_format_has_a_name() {
        for name in Format::NAMES {
            assert_eq!(Format::named(name).map(Format::name), Some(name));
        }
        assert_eq!(Format::named("xml"), None);
    }
}
