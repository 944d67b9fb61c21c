//! Names of columns that a relation does not have: refused at the place of the clause.

use datafusion::common::{DFSchema, DataFusionError, Result, SchemaError};
use datafusion::logical_expr::Expr;

use crate::error::{Place, Refusal};

/// An error of planning an expression, with its place; an unknown column with the known ones.
pub(super) fn placed(
    error: DataFusionError,
    schema: &DFSchema,
    place: Option<Place>,
) -> DataFusionError {
    let mut inner = &error;
    loop {
        inner = match inner {
            DataFusionError::Diagnostic(_, below) | DataFusionError::Context(_, below) => below,
            DataFusionError::Collection(errors) => match errors.first() {
                Some(first) => first,
                None => return error,
            },
            DataFusionError::SchemaError(cause, _)
                if matches!(cause.as_ref(), SchemaError::FieldNotFound { .. }) =>
            {
                let SchemaError::FieldNotFound { field, .. } = cause.as_ref() else {
                    return error;
                };
                return no_column(&field.flat_name(), schema, place);
            }
            _ => return error,
        };
    }
}

/// The error of a column that the relation does not have.
fn no_column(name: &str, schema: &DFSchema, place: Option<Place>) -> DataFusionError {
    let names: Vec<String> = schema
        .columns()
        .iter()
        .map(|column| column.name.clone())
        .collect();
    Refusal::new(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "42703",
        format!("The relation has no column '{name}'."),
    )
    .at(place)
    .hint(format!("its columns are {}", names.join(", ")))
    .into()
}

/// Refuses names that the relation does not have.
pub(super) fn known_columns(expr: &Expr, schema: &DFSchema, place: Option<Place>) -> Result<()> {
    for column in expr.column_refs() {
        if schema.has_column(column) {
            continue;
        }
        return Err(no_column(&column.flat_name(), schema, place));
    }
    Ok(())
}
