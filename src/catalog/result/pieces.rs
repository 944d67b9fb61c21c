//! The pieces of a checkpoint that a result and its records are, and what they say.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};

use crate::checkpoint::{Piece, Until};
use crate::query::{EpochProgress, Totals};
use crate::source::{AppendLog, Arrivals};

/// Records of epochs that are kept to be shown.
pub(super) const HISTORY: usize = 10_000;

/// Names of the pieces of a checkpoint.
pub(super) const RESULT: &str = "result";
pub(super) const EMITTED: &str = "emitted";
pub(super) const EPOCHS: &str = "epochs";
pub(super) const TOTALS: &str = "totals";
/// Of a result that was corrected: numbers of the rows that others were written over, and what was corrected last.
pub(super) const HIDDEN: &str = "hidden";
pub(super) const CORRECTED: &str = "corrected";

/// Names of the pieces of rows that accumulate.
pub(super) struct LogPieces {
    pub(super) rows: &'static str,
    /// Of rows that go by their age: when they arrived.
    pub(super) arrived: &'static str,
    /// Of such rows: the number of the first that is kept.
    pub(super) first: &'static str,
    /// Of such rows: the number of the next one, where nothing else tells it.
    pub(super) end: Option<&'static str>,
}

/// The result in append mode. The totals tell the number of the next row.
pub(super) const KEPT: LogPieces = LogPieces {
    rows: RESULT,
    arrived: "arrived",
    first: "first",
    end: None,
};

/// The rows that were not counted.
pub(super) const LATE: LogPieces = LogPieces {
    rows: "late",
    arrived: "late arrived",
    first: "late first",
    end: Some("late end"),
};
/// The pieces of rows that accumulate. Where they go by their age, parts whose every row has gone are let go with it.
pub(super) fn log_pieces(
    names: &LogPieces,
    log: &AppendLog,
    rows: &[RecordBatch],
) -> Result<Vec<Piece>> {
    if !log.is_retained() {
        return Ok(vec![Piece::new(names.rows, rows.to_vec())]);
    }
    // What may go now is not written down again. What cannot go stays, and nothing is lost.
    log.let_go()?;
    let (base, before) = (log.base(), log.rows());
    let mut result = Piece::new(names.rows, rows.to_vec());
    result.newest = Some(log.len());
    let added: u64 = rows.iter().map(|batch| batch.num_rows() as u64).sum();
    let arrived = log.arriving().filter(|_| added > 0);
    let arrived = arrived.map(|arrived| {
        let end = signed(before.saturating_add(added));
        numbers([("end", end), ("arrived", arrived)])
    });
    let mut arrived = Piece::new(names.arrived, arrived.transpose()?.into_iter().collect());
    let first = signed(base);
    arrived.until = Some(Until {
        column: 0,
        gone: Box::new(move |end| end <= first),
    });
    let first = numbers([("first", first)])?;
    let mut pieces = vec![result, arrived, Piece::replacing(names.first, vec![first])];
    if let Some(end) = names.end {
        let number = numbers([("end", signed(before.saturating_add(added)))])?;
        pieces.push(Piece::replacing(end, vec![number]));
    }
    Ok(pieces)
}

/// What those pieces say: the number of the first row that is kept, and when rows arrived. Without them rows do not go.
pub(super) fn retained_rows(
    first: &[RecordBatch],
    arrived: &[RecordBatch],
) -> Result<(u64, Arrivals)> {
    let first = columns_of::<1>(first)?.first().map_or(0, |[first]| *first);
    let pieces = columns_of::<2>(arrived)?.into_iter();
    let pieces = pieces.map(|[end, arrived]| (end.unsigned_abs(), Some(arrived)));
    Ok((first.unsigned_abs(), Arrivals::new(pieces.collect())))
}

/// Number of the first row that a checkpoint has of a result: all that were emitted are numbered.
pub(super) fn number_of_first(result: &[RecordBatch], totals: Option<&Totals>) -> u64 {
    let stored: u64 = result.iter().map(|batch| batch.num_rows() as u64).sum();
    totals.map_or(0, |totals| totals.output_rows.saturating_sub(stored))
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// One row of numbers, by the names of their columns.
pub(super) fn numbers<const N: usize>(columns: [(&str, i64); N]) -> Result<RecordBatch> {
    let columns =
        columns.map(|(name, value)| (name, Arc::new(Int64Array::from(vec![value])) as ArrayRef));
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// The rows of batches of numbers.
pub(super) fn columns_of<const N: usize>(batches: &[RecordBatch]) -> Result<Vec<[i64; N]>> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Option<Vec<_>> = columns
            .map(|column| column.as_primitive_opt::<Int64Type>())
            .collect();
        let columns = columns.and_then(|columns| <[_; N]>::try_from(columns).ok());
        let columns =
            columns.ok_or_else(|| internal_datafusion_err!("numbers are saved in {N} columns"))?;
        rows.extend((0..batch.num_rows()).map(|row| columns.map(|column| column.value(row))));
    }
    Ok(rows)
}
/// The record of an epoch as a piece: number and JSON. Old ones leave.
pub(super) fn epoch_piece(progress: &EpochProgress) -> Result<Piece> {
    let number = i64::try_from(progress.epoch).unwrap_or(i64::MAX);
    let text = serde_json::to_string(progress);
    let text = text.map_err(|error| DataFusionError::External(error.into()))?;
    let row = RecordBatch::try_from_iter([
        ("epoch", Arc::new(Int64Array::from(vec![number])) as _),
        ("record", Arc::new(StringArray::from(vec![text])) as _),
    ])?;
    let mut piece = Piece::new(EPOCHS, vec![row]);
    let oldest = number.saturating_sub(HISTORY as i64);
    piece.until = Some(Until {
        column: 0,
        gone: Box::new(move |epoch| epoch <= oldest),
    });
    Ok(piece)
}

/// One row with a value as JSON.
pub(super) fn json_row(value: &impl serde::Serialize) -> Result<RecordBatch> {
    let text = serde_json::to_string(value);
    let text = text.map_err(|error| DataFusionError::External(error.into()))?;
    Ok(RecordBatch::try_from_iter([(
        "json",
        Arc::new(StringArray::from(vec![text])) as _,
    )])?)
}

/// The value in a row of JSON.
pub(super) fn from_json<T: serde::de::DeserializeOwned>(
    batch: &RecordBatch,
    row: usize,
) -> Result<T> {
    let column = batch
        .columns()
        .first()
        .and_then(|column| column.as_string_opt::<i32>());
    let column = column.filter(|column| row < datafusion::arrow::array::Array::len(column));
    let text = column.map(|column| column.value(row));
    let text = text.ok_or_else(|| internal_datafusion_err!("a record is saved as text"))?;
    serde_json::from_str(text).map_err(|error| DataFusionError::External(error.into()))
}
