//! The event time by which rows are ordered: an expression of a table's columns.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, Schema};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};

/// An event time, of a table's columns.
#[derive(Debug, Clone)]
pub struct EventTime {
    expr: Arc<dyn PhysicalExpr>,
    /// The expression and its type: what tells it from another.
    by: String,
    /// The table's columns that it is made of, in order.
    columns: Vec<usize>,
}

impl EventTime {
    /// An expression over batches of a table's schema, with its text.
    ///
    /// # Errors
    /// - it is no TIMESTAMP
    pub fn try_new(expr: Arc<dyn PhysicalExpr>, text: &str, schema: &Schema) -> Result<Self> {
        let kind = expr.data_type(schema)?;
        if !matches!(kind, DataType::Timestamp(..)) {
            return internal_err!("the event time {text} is {kind}");
        }
        let mut columns: Vec<usize> = collect_columns(&expr).iter().map(Column::index).collect();
        columns.sort_unstable();
        Ok(Self {
            expr,
            by: format!("{text} {kind}"),
            columns,
        })
    }

    /// What tells it from another event time.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// The table's columns that it is made of.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The column that it is, if it is one as it stands in the table.
    pub(in crate::source) fn column(&self) -> Option<usize> {
        let column = self.expr.downcast_ref::<Column>();
        column.map(Column::index)
    }

    /// The event times of batches that have these columns of the table.
    pub(in crate::source) fn of(&self, table: &Schema, columns: &[usize]) -> Result<Ticks> {
        let schema = table.project(columns)?;
        let expr = reassign_expr_columns(Arc::clone(&self.expr), &schema)?;
        Ok(Ticks { expr })
    }
}

/// Computes event times in ticks.
#[derive(Debug)]
pub(in crate::source) struct Ticks {
    expr: Arc<dyn PhysicalExpr>,
}

impl Ticks {
    /// The event time of each row. A row of which it cannot be computed has none here: it may be one that the query
    /// leaves out before its clause, and if it is not the query fails when the row reaches it.
    pub(in crate::source) fn of(&self, batch: &RecordBatch) -> Result<Int64Array> {
        if let Ok(ticks) = self.computed(batch) {
            return Ok(ticks);
        }
        let rows = (0..batch.num_rows()).map(|row| {
            let computed = self.computed(&batch.slice(row, 1)).ok()?;
            computed.iter().next().flatten()
        });
        Ok(rows.collect())
    }

    fn computed(&self, batch: &RecordBatch) -> Result<Int64Array> {
        let values = self.expr.evaluate(batch)?;
        let values = cast(&values.into_array(batch.num_rows())?, &DataType::Int64)?;
        if values.len() != batch.num_rows() {
            return internal_err!("an event time for each row");
        }
        Ok(values.as_primitive::<Int64Type>().clone())
    }
}
