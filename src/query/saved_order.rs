//! The extents of files that are read in the order of event time, as a piece of a checkpoint: written with the first
//! epoch that has read some of them, and named as long as some are left.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{Int64Type, UInt64Type};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};

use crate::checkpoint::Piece;
use crate::source::{Extent, FilesInOrder, Position};

/// Name of the piece of a source.
pub(super) fn order_of(source: &str) -> String {
    format!("order of {source}")
}

/// What of a position is read in the order of event time, if files are.
pub(super) fn in_order(position: Option<&Position>) -> Option<&FilesInOrder> {
    match position {
        Some(Position::Files(files)) => files.in_order.as_ref(),
        _ => None,
    }
}

/// The piece of a source that stands here, and stood there in the last checkpoint; none where rows are read by arrival.
///
/// # Errors
/// - none of its own
pub(super) fn order_piece(
    source: &str,
    now: Option<&Position>,
    earlier: Option<&Position>,
) -> Result<Option<Piece>> {
    let Some(now) = in_order(now) else {
        return Ok(None);
    };
    let piece = match in_order(earlier) {
        Some(earlier) if earlier.extents == now.extents => Piece::new(order_of(source), Vec::new()),
        _ => Piece::replacing(order_of(source), vec![rows(&now.extents)?]),
    };
    Ok(Some(piece))
}

/// Extents as rows.
fn rows(extents: &BTreeMap<String, Extent>) -> Result<RecordBatch> {
    let paths = StringArray::from_iter_values(extents.keys());
    let times = |pick: fn((i64, i64)) -> i64| {
        let times = extents.values().map(|extent| extent.times.map(pick));
        times.collect::<Int64Array>()
    };
    let rows = extents.values().map(|extent| extent.rows);
    let untimed = extents.values().map(|extent| extent.untimed);
    Ok(RecordBatch::try_from_iter([
        ("path", Arc::new(paths) as _),
        ("least", Arc::new(times(|(least, _)| least)) as _),
        ("greatest", Arc::new(times(|(_, greatest)| greatest)) as _),
        ("rows", Arc::new(UInt64Array::from_iter_values(rows)) as _),
        (
            "untimed",
            Arc::new(UInt64Array::from_iter_values(untimed)) as _,
        ),
    ])?)
}

/// Extents of rows that were made of them.
///
/// # Errors
/// - the rows are not such
pub(super) fn extents(batches: &[RecordBatch]) -> Result<BTreeMap<String, Extent>> {
    let mut extents = BTreeMap::new();
    for batch in batches {
        let [paths, least, greatest, rows, untimed] = batch.columns() else {
            return Err(foreign());
        };
        let paths = paths.as_string_opt::<i32>().ok_or_else(foreign)?;
        let [least, greatest] =
            [least, greatest].map(|column| column.as_primitive_opt::<Int64Type>());
        let [rows, untimed] = [rows, untimed].map(|column| column.as_primitive_opt::<UInt64Type>());
        let (Some(least), Some(greatest)) = (least, greatest) else {
            return Err(foreign());
        };
        let (Some(rows), Some(untimed)) = (rows, untimed) else {
            return Err(foreign());
        };
        for row in 0..batch.num_rows() {
            let timed = least.is_valid(row) && greatest.is_valid(row);
            let extent = Extent {
                times: timed.then(|| (least.value(row), greatest.value(row))),
                rows: rows.value(row),
                untimed: untimed.value(row),
            };
            extents.insert(paths.value(row).to_owned(), extent);
        }
    }
    Ok(extents)
}

fn foreign() -> DataFusionError {
    internal_datafusion_err!(
        "the order of files is saved as path, least and greatest time, rows, rows without a time"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_come_back_from_their_rows() {
        let extent = |times, untimed| Extent {
            times,
            rows: 7,
            untimed,
        };
        let written = BTreeMap::from([
            ("d/a".to_owned(), extent(Some((i64::MIN, i64::MAX)), 0)),
            ("d/b".to_owned(), extent(None, 7)),
            ("d/c".to_owned(), extent(Some((-3, -3)), 1)),
        ]);
        let read = extents(&[rows(&written).unwrap()]).unwrap();
        assert_eq!(read, written);
        let other =
            RecordBatch::try_from_iter([("path", Arc::new(StringArray::from(vec!["a"])) as _)]);
        assert!(extents(&[other.unwrap()]).is_err());
    }
}
