//! Table functions over streaming tables: `progress('name')` and `emitted('name', epoch)`.

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

/// The streaming table that an argument names: bare, or with its schema and catalog.
pub(super) fn find(tables: &StreamingTables, name: &Expr) -> Result<Arc<StreamingTable>> {
    let Expr::Literal(ScalarValue::Utf8(Some(name)) | ScalarValue::Utf8View(Some(name)), _) = name
    else {
        return plan_err!("the name of a streaming table is given as text: 'hourly_sales'");
    };
    let all = tables.all();
    let parsed = TableReference::parse_str(name);
    let found = all.iter().find(|table| {
        [table.name(), table.bare_name()].contains(&name.as_str())
            || table.bare_name() == parsed.table()
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

fn number(expr: &Expr) -> Result<u64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if *number >= 0 => {
            Ok(number.unsigned_abs())
        }
        Expr::Literal(ScalarValue::UInt64(Some(number)), _) => Ok(*number),
        _ => plan_err!("an epoch is given as a number, from 0"),
    }
}
