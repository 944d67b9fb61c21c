//! Table functions over streaming tables: `progress('name')`, `emitted('name', epoch)` and `late_rows('name')`.

use std::sync::Arc;

use datafusion::catalog::{MemTable, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, TableReference, plan_err};
use datafusion::logical_expr::Expr;

use super::records::progress_batch;
use super::registry::StreamingTables;
use super::streaming_table::StreamingTable;
use crate::error::Refusal;
use crate::source::conform;

/// `progress('name')`: a row for each of the last 10,000 epochs, with times and sizes.
#[derive(Debug)]
pub struct ProgressFunction(pub Arc<StreamingTables>);

/// `emitted('name', epoch)`: the rows that the last epoch emitted.
#[derive(Debug)]
pub struct EmittedFunction(pub Arc<StreamingTables>);

/// `late_rows('name')`: the rows that it did not count, as the table of its option `late_rows` has them.
#[derive(Debug)]
pub struct LateRowsFunction(pub Arc<StreamingTables>);

impl TableFunctionImpl for LateRowsFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let [name] = args.exprs() else {
            return plan_err!(
                "late_rows() takes the name of a streaming table: late_rows('hourly_sales')"
            );
        };
        let table = find(&self.0, name)?;
        match table.late_provider() {
            Some(rows) => Ok(rows),
            None => Err(Refusal::new(
                "LATE_ROWS_NOT_KEPT",
                "42704",
                format!(
                    "The late rows of {} are counted, and not kept.",
                    table.name()
                ),
            )
            .hint("define it WITH (late_rows = 'name_of_a_table')")
            .into()),
        }
    }
}

impl TableFunctionImpl for ProgressFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let [name] = args.exprs() else {
            return plan_err!(
                "progress() takes the name of a streaming table: progress('hourly_sales')"
            );
        };
        let batch = progress_batch(&find(&self.0, name)?.history())?;
        Ok(Arc::new(MemTable::try_new(
            batch.schema(),
            vec![vec![batch]],
        )?))
    }
}

impl TableFunctionImpl for EmittedFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let (name, epoch) = match args.exprs() {
            [name] => (name, None),
            [name, epoch] => (name, Some(number(epoch)?)),
            _ => {
                return plan_err!(
                    "emitted() takes a streaming table and an epoch: emitted('hourly_sales', 2)"
                );
            }
        };
        let table = find(&self.0, name)?;
        let (last, rows) = match table.last_emitted() {
            Some((last, rows)) => (Some(last), rows),
            None => (None, Vec::new()),
        };
        if epoch.is_some() && epoch != last {
            let kept = last.map_or_else(
                || "none has run".to_owned(),
                |last| format!("the last is {last}"),
            );
            return Err(Refusal::new(
                "EPOCH_NOT_KEPT",
                "42704",
                format!(
                    "{} keeps the rows of its last epoch only: {kept}.",
                    table.name()
                ),
            )
            .into());
        }
        let schema = Arc::clone(&table.definition().schema);
        let rows = rows
            .into_iter()
            .map(|batch| conform(&batch, &schema))
            .collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(MemTable::try_new(schema, vec![rows])?))
    }
}

/// The text of an argument; none if it is no constant text.
pub(super) fn constant_text(argument: &Expr) -> Option<&str> {
    match argument {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => {
            Some(text)
        }
        _ => None,
    }
}

/// The streaming table that an argument names: bare, or with its schema and catalog.
pub(super) fn find(tables: &StreamingTables, name: &Expr) -> Result<Arc<StreamingTable>> {
    let Some(name) = constant_text(name) else {
        return plan_err!("the name of a streaming table is given as text: 'hourly_sales'");
    };
    let all = tables.all();
    let parsed = TableReference::parse_str(name);
    let found = all.iter().find(|table| {
        [table.name(), table.bare_name()].contains(&name) || table.bare_name() == parsed.table()
    });
    match found {
        Some(table) => Ok(Arc::clone(table)),
        None => Err(unknown(name)),
    }
}

/// The error of a name that is no streaming table.
pub(crate) fn unknown(name: &str) -> datafusion::common::DataFusionError {
    Refusal::new(
        "STREAMING_TABLE_NOT_FOUND",
        "42P01",
        format!("There is no streaming table '{name}'."),
    )
    .hint("SHOW STREAMING TABLES lists them")
    .into()
}

pub(super) fn number(expr: &Expr) -> Result<u64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if *number >= 0 => {
            Ok(number.unsigned_abs())
        }
        Expr::Literal(ScalarValue::UInt64(Some(number)), _) => Ok(*number),
        _ => plan_err!("an epoch is given as a number, from 0"),
    }
}
