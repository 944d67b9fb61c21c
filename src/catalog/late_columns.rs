//! The columns of a table of late rows, when those of the query's rows become others.
//!
//! The rows are kept whole, so a column that a source has gained or lost is one of the table's as well. Rows that are
//! there stay, without a value in the columns that they had not:
//!
//! ```text
//! kept          ts  k  old          _epoch …
//! rows now      ts  k       new     _epoch …
//! the table     ts  k  new  old     _epoch …
//! ```
//!
//! A column that changes its type is another one of the same name: that is refused.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, new_null_array};
use datafusion::arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::Result;

use crate::logical::ASIDE;

/// Whether a table of these columns takes rows of those.
pub(super) fn takes(table: &SchemaRef, rows: &SchemaRef) -> bool {
    let mut fields = rows.fields().iter();
    fields.all(|field| is_like(table, field) == Some(true))
}

/// The columns of a table that has rows of `kept`, and takes rows of `now`; none where a column has another type.
pub(super) fn widened(now: &SchemaRef, kept: &SchemaRef) -> Option<SchemaRef> {
    let (own, aside) = parted(now);
    let (of_kept, _) = parted(kept);
    let own = own.iter().map(|field| match is_like(kept, field) {
        Some(false) => None,
        Some(true) if !may_be_null(kept, field) => Some(Arc::clone(field)),
        Some(true) | None => Some(nullable(field)),
    });
    let own: Option<Vec<FieldRef>> = own.collect();
    let aside_alike = aside.iter().all(|field| is_like(kept, field) == Some(true));
    let gone = of_kept.iter().filter(|field| is_like(now, field).is_none());
    let all = own.filter(|_| aside_alike)?.into_iter();
    let all = all.chain(gone.map(nullable)).chain(aside.iter().cloned());
    Some(Arc::new(Schema::new(all.collect::<Vec<_>>())))
}

/// Rows in the columns of a table, by name: null where they have none.
///
/// # Errors
/// - a column is of another type
pub(super) fn in_columns(rows: &RecordBatch, table: &SchemaRef) -> Result<RecordBatch> {
    let columns = table
        .fields()
        .iter()
        .map(|field| match rows.column_by_name(field.name()) {
            Some(column) => Arc::clone(column),
            None => new_null_array(field.data_type(), rows.num_rows()),
        });
    Ok(RecordBatch::try_new(Arc::clone(table), columns.collect())?)
}

/// The columns of the rows, and those that say what became of them.
fn parted(table: &SchemaRef) -> (&[FieldRef], &[FieldRef]) {
    let own = table.fields().len().saturating_sub(ASIDE.len());
    table.fields().split_at(own)
}

/// Whether a column has the same type in a table; none where the table has not that column.
fn is_like(table: &SchemaRef, field: &Field) -> Option<bool> {
    let found = table.field_with_name(field.name()).ok()?;
    Some(found.data_type() == field.data_type())
}

fn may_be_null(table: &SchemaRef, field: &Field) -> bool {
    let found = table.field_with_name(field.name());
    found.is_ok_and(Field::is_nullable)
}

fn nullable(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_nullable(true))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::DataType;

    use super::*;

    fn table(own: &[(&str, DataType)]) -> SchemaRef {
        let own = own
            .iter()
            .map(|(name, of)| Field::new(*name, of.clone(), false));
        let aside = ASIDE
            .iter()
            .map(|name| Field::new(*name, DataType::Utf8, true));
        Arc::new(Schema::new(own.chain(aside).collect::<Vec<_>>()))
    }

    fn names(table: &SchemaRef) -> Vec<&str> {
        let fields = table.fields().iter();
        fields.map(|field| field.name().as_str()).collect()
    }

    #[test]
    fn columns_that_come_and_go_are_all_there_and_may_be_null() {
        let kept = table(&[("ts", DataType::Int64), ("old", DataType::Utf8)]);
        let now = table(&[("ts", DataType::Int64), ("new", DataType::Utf8)]);
        let both = widened(&now, &kept).unwrap();
        assert_eq!(names(&both)[..3], ["ts", "new", "old"]);
        assert_eq!(names(&both)[3..], ASIDE);
        let nullable: Vec<bool> = both
            .fields()
            .iter()
            .map(|field| field.is_nullable())
            .collect();
        assert_eq!(nullable[..3], [false, true, true]);
        assert!(takes(&both, &kept) && takes(&both, &now) && !takes(&now, &kept));
        assert_eq!(widened(&now, &both), Some(both));
    }

    #[test]
    fn a_column_of_another_type_is_refused() {
        let kept = table(&[("k", DataType::Int64)]);
        let now = table(&[("k", DataType::Utf8)]);
        assert_eq!(widened(&now, &kept), None);
        assert!(!takes(&now, &kept));
    }
}
