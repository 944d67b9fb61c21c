//! Line by line through a file that cannot be read whole: which line is at fault, and what is good.
//!
//! DataFusion's readers name no file or line in their errors. When one fails, the file is read again
//! here, each line alone, with the same decoders of Arrow. That is slow, and happens only then.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::csv::ReaderBuilder as CsvBuilder;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::ReaderBuilder as JsonBuilder;
use datafusion::common::config::CsvOptions;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::super::ReadEnv;
use super::listing::Listing;
use super::open::{Layout, asked, fill, has_header, layout};
use crate::error::Refusal;

/// Good rows of a file, and the number of records that are not.
pub(super) struct Salvaged {
    pub rows: SendableRecordBatchStream,
    pub bad: u64,
}

/// The error of a file, with its name, the line if there are lines, and the reason.
pub(super) async fn explain(
    listing: &Listing,
    file: &ObjectMeta,
    columns: &[usize],
    env: &ReadEnv,
    error: DataFusionError,
) -> DataFusionError {
    if crate::error::refusal(&error).is_some() {
        return error;
    }
    let found = match Lines::open(listing, file, columns, env).await {
        Ok(Some(mut lines)) => lines.first_bad(),
        Ok(None) | Err(_) => None,
    };
    let reason = error.strip_backtrace();
    let (place, reason) = match found {
        Some((line, reason)) => (format!(", line {line}"), without_line(&reason)),
        None => (String::new(), reason),
    };
    Refusal::new("FAILED_READ_FILE", "KD001", format!("FILE {}{place}: {}", listing.shown(file), one_line(&reason)))
        .hint(match place.is_empty() {
            true => "mend or remove the file and refresh again",
            false => "mend or remove the file, or leave bad records out: WITH (on_bad_record = 'skip') of a streaming table or stream, or SET tidegate.on_bad_record = 'skip'",
        })
        .into()
}

/// A reason without the number of the line: a line that is decoded alone is always the first.
fn without_line(reason: &str) -> String {
    match reason.split_once(" at line ") {
        Some((before, after)) => format!(
            "{before}{}",
            after.trim_start_matches(|c: char| c.is_ascii_digit())
        ),
        None => reason.to_owned(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The good rows of a file; `None` if it does not consist of lines.
pub(super) async fn salvage(
    listing: &Listing,
    file: &ObjectMeta,
    columns: &[usize],
    env: &ReadEnv,
) -> Result<Option<Salvaged>> {
    let schema = asked(listing, columns)?;
    let Some(mut lines) = Lines::open(listing, file, columns, env).await? else {
        return Ok(None);
    };
    // Values that the path tells are not in the lines.
    let in_file = lines.layout.fields.len();
    let places: Vec<Option<usize>> = lines
        .layout
        .places
        .iter()
        .map(|place| place.filter(|at| *at < in_file))
        .collect();
    let nullable: SchemaRef = Arc::new(Schema::new(
        schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect::<Vec<_>>(),
    ));
    let mut batches = Vec::new();
    let mut bad = 0;
    while let Some((_, record)) = lines.next_record() {
        match record {
            Ok(Some(batch)) => batches.push(Ok(with_partitions(
                listing,
                file,
                columns,
                &fill(&batch, &places, &nullable)?,
                &schema,
            )?)),
            Ok(None) => {}
            Err(_) => bad += 1,
        }
    }
    let rows = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches));
    Ok(Some(Salvaged {
        rows: Box::pin(rows),
        bad,
    }))
}

/// A batch with the values that the file's path tells.
fn with_partitions(
    listing: &Listing,
    file: &ObjectMeta,
    columns: &[usize],
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let values = listing.partitioned(file)?.partition_values;
    let known = listing.file_fields.len();
    let filled = columns
        .iter()
        .zip(batch.columns())
        .map(
            |(column, array)| match column.checked_sub(known).and_then(|at| values.get(at)) {
                Some(value) => value.to_array_of_size(batch.num_rows()),
                None => Ok(Arc::clone(array)),
            },
        )
        .collect::<Result<Vec<_>>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        filled,
        &rows,
    )?)
}

/// A file's lines, each decoded alone.
struct Lines {
    text: BufReader<Box<dyn Read + Send>>,
    decoder: LineDecoder,
    layout: Layout,
    line: u64,
    ended: bool,
}

impl Lines {
    async fn open(
        listing: &Listing,
        file: &ObjectMeta,
        columns: &[usize],
        env: &ReadEnv,
    ) -> Result<Option<Self>> {
        let Some(layout) = layout(listing, file, columns, env).await? else {
            return Ok(None);
        };
        let Some(decoder) = LineDecoder::of(listing, &layout, env) else {
            return Ok(None);
        };
        let bytes = listing.store.get(&file.location).await?.bytes().await?;
        let text = listing.compression(file).convert_read(Cursor::new(bytes))?;
        let mut lines = Self {
            text: BufReader::new(text),
            decoder,
            layout,
            line: 0,
            ended: false,
        };
        if lines.decoder.header() {
            lines.skip_header();
        }
        Ok(Some(lines))
    }

    /// Passes the header, and blank lines and comments before it.
    fn skip_header(&mut self) {
        while let Some(Ok(line)) = self.next_line() {
            let blank = line.iter().all(u8::is_ascii_whitespace);
            if !blank && !self.decoder.is_comment(&line) {
                break;
            }
        }
    }

    /// The next line with its end; an error where the file is damaged.
    fn next_line(&mut self) -> Option<std::io::Result<Vec<u8>>> {
        if self.ended {
            return None;
        }
        self.line += 1;
        let mut line = Vec::new();
        match self.text.read_until(self.decoder.terminator(), &mut line) {
            Ok(0) => None,
            Ok(_) => Some(Ok(line)),
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }

    /// The next record and its line.
    fn next_record(&mut self) -> Option<(u64, Result<Option<RecordBatch>, String>)> {
        let line = self.next_line()?;
        let record = match line {
            Ok(line) if line.iter().all(u8::is_ascii_whitespace) => Ok(None),
            Ok(line) if self.decoder.is_comment(&line) => Ok(None),
            Ok(line) => self
                .decoder
                .decode(&line)
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        Some((self.line, record))
    }

    /// The first line that cannot be read, with the reason.
    fn first_bad(&mut self) -> Option<(u64, String)> {
        while let Some((line, record)) = self.next_record() {
            if let Err(reason) = record {
                return Some((line, reason));
            }
        }
        None
    }
}

/// Decodes single lines.
enum LineDecoder {
    Csv {
        schema: SchemaRef,
        present: Vec<usize>,
        options: Box<CsvOptions>,
        header: bool,
    },
    Json(SchemaRef),
}

impl LineDecoder {
    /// A decoder for the columns that the layout asks for.
    fn of(listing: &Listing, layout: &Layout, env: &ReadEnv) -> Option<Self> {
        let schema = Arc::new(Schema::new(layout.fields.clone()));
        let present: Vec<usize> = layout
            .places
            .iter()
            .copied()
            .flatten()
            .filter(|at| *at < layout.fields.len())
            .collect();
        if let Some(csv) = listing.format.downcast_ref::<CsvFormat>() {
            if csv.options().newlines_in_values == Some(true) {
                // A record may be several lines: a line alone says nothing.
                return None;
            }
            let options = Box::new(csv.options().clone());
            return Some(Self::Csv {
                schema,
                present,
                options,
                header: has_header(csv, env),
            });
        }
        let json = listing.format.downcast_ref::<JsonFormat>()?;
        json.is_newline_delimited().then(|| {
            schema
                .project(&present)
                .ok()
                .map(|schema| Self::Json(Arc::new(schema)))
        })?
    }

    fn header(&self) -> bool {
        matches!(self, Self::Csv { header: true, .. })
    }

    /// Whether a line is for the reader of the file only.
    fn is_comment(&self, line: &[u8]) -> bool {
        match self {
            Self::Csv { options, .. } => {
                options.comment.is_some() && line.first() == options.comment.as_ref()
            }
            Self::Json(_) => false,
        }
    }

    /// What a line ends with.
    fn terminator(&self) -> u8 {
        match self {
            Self::Csv { options, .. } => options.terminator.unwrap_or(b'\n'),
            Self::Json(_) => b'\n',
        }
    }

    fn decode(&self, line: &[u8]) -> Result<Option<RecordBatch>, ArrowError> {
        match self {
            Self::Csv {
                schema,
                present,
                options,
                ..
            } => {
                let mut builder = CsvBuilder::new(Arc::clone(schema))
                    .with_delimiter(options.delimiter)
                    .with_quote(options.quote)
                    .with_projection(present.clone())
                    .with_batch_size(1);
                if let Some(escape) = options.escape {
                    builder = builder.with_escape(escape);
                }
                if let Some(terminator) = options.terminator {
                    builder = builder.with_terminator(terminator);
                }
                builder = builder.with_truncated_rows(options.truncated_rows.unwrap_or(false));
                let mut decoder = builder.build_decoder();
                decoder.decode(line)?;
                let end = [self.terminator()];
                if !line.ends_with(&end) {
                    decoder.decode(&end)?;
                }
                decoder.flush()
            }
            Self::Json(schema) => {
                let mut decoder = JsonBuilder::new(Arc::clone(schema)).build_decoder()?;
                let mut rest = line;
                while !rest.is_empty() {
                    let read = decoder.decode(rest)?;
                    if read == 0 {
                        break;
                    }
                    rest = rest.get(read..).unwrap_or_default();
                }
                decoder.flush()
            }
        }
    }
}
