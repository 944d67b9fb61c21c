//! The part of a statement that runs on a worker: plan, execute, print.
//!
//! Rows are printed page by page. In the formats for programs a page is a batch. In a table it is what
//! has come when the stream ends, pauses, or has filled the page: an ordinary query gives one table, an
//! endless one shows its rows as windows close.

use std::io;
use std::time::Duration;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema, UInt64Type};
use datafusion::common::DataFusionError;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use indicatif::ProgressBar;

use super::console;
use super::lex;
use super::print::{Encoder, Format};
use crate::context::StreamContext;

/// A stream that gives nothing for so long is taken to pause.
const PAUSE: Duration = Duration::from_millis(100);

/// Rows that fill a page of a table: the widths of its columns are computed over the page, which is held.
const TABLE_PAGE_ROWS: usize = 10_000;

/// What a statement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// It has no result.
    Nothing,
    /// It printed so many rows.
    Printed(u64),
    /// It wrote so many rows into a table or a file.
    Written(u64),
}

/// Why a statement ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The statement cannot be carried out.
    Statement(DataFusionError),
    /// Stdout does not take its rows.
    Output(io::Error),
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Self::Statement(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs a statement; `line` is taken off the screen while rows are printed.
///
/// # Errors
/// - the statement cannot be planned or fails; the rows before are printed
/// - stdout does not take the rows
pub(crate) async fn run(
    context: StreamContext,
    sql: String,
    format: Format,
    line: ProgressBar,
) -> Result<Report, Failure> {
    let frame = context.sql(&sql).await?;
    let writes = writes(&sql, &frame);
    let options = context.session().copied_config().options().format.clone();
    let stream = frame.execute_stream().await?;
    let schema = stream.schema();
    if writes && is_count(&schema) {
        return Ok(Report::Written(count(stream).await?));
    }
    let has_columns = !schema.fields().is_empty();
    let mut page = Page {
        encoder: Encoder::new(format, schema, &options),
        line,
        held: Vec::new(),
        held_rows: 0,
        limit: match format {
            Format::Table => TABLE_PAGE_ROWS,
            Format::Csv | Format::Json | Format::Ndjson => 0,
        },
        printed: 0,
    };
    print(stream, &mut page).await?;
    Ok(match has_columns {
        true => Report::Printed(page.printed),
        false => Report::Nothing,
    })
}

/// Whether a statement writes rows and answers with their number.
fn writes(sql: &str, frame: &DataFrame) -> bool {
    // A plan says so, unless the statement has already run and left only its answer.
    matches!(
        frame.logical_plan(),
        LogicalPlan::Dml(_) | LogicalPlan::Copy(_)
    ) || lex::first_word(sql).is_some_and(|word| {
        ["INSERT", "COPY"]
            .iter()
            .any(|write| word.eq_ignore_ascii_case(write))
    })
}

fn is_count(schema: &Schema) -> bool {
    match schema.fields().as_ref() {
        [field] => field.name() == "count" && field.data_type() == &DataType::UInt64,
        _ => false,
    }
}

/// Adds up the answer of a statement that writes.
async fn count(mut stream: SendableRecordBatchStream) -> Result<u64, DataFusionError> {
    let mut count = 0_u64;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let counts = batch.column(0).as_primitive::<UInt64Type>();
        count = counts.iter().flatten().fold(count, u64::saturating_add);
    }
    Ok(count)
}

async fn print(mut stream: SendableRecordBatchStream, page: &mut Page) -> Result<(), Failure> {
    loop {
        let next = if page.held.is_empty() {
            stream.next().await
        } else {
            match tokio::time::timeout(PAUSE, stream.next()).await {
                Ok(next) => next,
                Err(_) => {
                    page.turn()?;
                    continue;
                }
            }
        };
        match next {
            Some(Ok(batch)) => page.push(batch)?,
            Some(Err(error)) => {
                page.abandon()?;
                return Err(error.into());
            }
            None => return page.finish(),
        }
    }
}

/// Rows that have come and are not printed.
struct Page {
    encoder: Encoder,
    line: ProgressBar,
    held: Vec<RecordBatch>,
    held_rows: usize,
    /// Rows that fill the page.
    limit: usize,
    printed: u64,
}

impl Page {
    fn push(&mut self, batch: RecordBatch) -> Result<(), Failure> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.held_rows += batch.num_rows();
        self.held.push(batch);
        if self.held_rows >= self.limit {
            self.turn()?;
        }
        Ok(())
    }

    /// Prints what is held.
    fn turn(&mut self) -> Result<(), Failure> {
        let held = std::mem::take(&mut self.held);
        let rows = std::mem::take(&mut self.held_rows);
        let text = self.encoder.encode(&held)?;
        self.write(&text)?;
        self.printed += rows as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.turn()?;
        let text = self.encoder.finish()?;
        self.write(&text)
    }

    fn abandon(&mut self) -> Result<(), Failure> {
        self.turn()?;
        self.write(self.encoder.abandon())
    }

    fn write(&self, text: &[u8]) -> Result<(), Failure> {
        if !text.is_empty() {
            self.line.suspend(|| console::data(text))?;
        }
        Ok(())
    }
}
