//! What a session answers to a statement: rows in an order of their own, or an error.

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::DataFusionError;
use datafusion::dataframe::DataFrame;
use tidegate::context::StreamContext;

/// Columns and rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// Name and type of each column.
    pub(super) columns: Vec<String>,
    /// The rows as text, sorted.
    pub(super) rows: Vec<String>,
}

/// Runs a statement to its end.
pub(super) async fn answer(context: &StreamContext, sql: &str) -> Result<Answer, DataFusionError> {
    read(context.sql(sql).await?).await
}

/// Reads a frame to its end. Every array is checked to be what it says it is.
pub(super) async fn read(frame: DataFrame) -> Result<Answer, DataFusionError> {
    let fields = frame.schema().fields().iter();
    let columns = fields
        .map(|field| format!("{} {}", field.name(), field.data_type()))
        .collect();
    let mut rows = Vec::new();
    for batch in frame.collect().await? {
        add(&batch, &mut rows)?;
    }
    rows.sort();
    Ok(Answer { columns, rows })
}

fn add(batch: &RecordBatch, rows: &mut Vec<String>) -> Result<(), ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let mut columns = Vec::new();
    for column in batch.columns() {
        column.to_data().validate_full()?;
        columns.push(ArrayFormatter::try_new(column.as_ref(), &options)?);
    }
    for row in 0..batch.num_rows() {
        let cells = columns
            .iter()
            .map(|column| column.value(row).try_to_string());
        rows.push(cells.collect::<Result<Vec<_>, _>>()?.join(" | "));
    }
    Ok(())
}
