//! Table functions over streaming tables: `progress('name')` and `emitted('name', epoch)`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::catalog::{MemTable, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, TableReference, plan_err};
use datafusion::logical_expr::Expr;

use super::registry::StreamingTables;
use super::streaming_table::StreamingTable;
use crate::error::Refusal;
use crate::query::EpochProgress;

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
            .map(|batch| {
                Ok(RecordBatch::try_new(
                    Arc::clone(&schema),
                    batch.columns().to_vec(),
                )?)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(MemTable::try_new(schema, vec![rows])?))
    }
}

/// The streaming table that an argument names: bare, or with its schema and catalog.
fn find(tables: &StreamingTables, name: &Expr) -> Result<Arc<StreamingTable>> {
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

fn counts(records: &[EpochProgress], of: impl Fn(&EpochProgress) -> u64) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(records.iter().map(of)))
}

fn watermarks(records: &[EpochProgress]) -> ArrayRef {
    Arc::new(StringArray::from_iter(
        records.iter().map(|record| record.watermark.as_deref()),
    ))
}

/// The figures of each epoch that repeat exactly, whatever the partitions: `epoch`, `input_rows`,
/// `late_rows`, `null_rows`, `rejected_rows`, `output_rows`, `open_windows`, `open_rows` (numbers) and
/// `watermark` (text, null before the first event).
///
/// # Errors
/// - none of its own: the columns are of one length
pub fn refresh_batch(records: &[EpochProgress]) -> Result<RecordBatch> {
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("epoch", counts(records, |r| r.epoch), false),
        ("input_rows", counts(records, |r| r.input_rows), false),
        ("late_rows", counts(records, |r| r.late_rows), false),
        ("null_rows", counts(records, |r| r.null_rows), false),
        ("rejected_rows", counts(records, |r| r.rejected_rows), false),
        ("output_rows", counts(records, |r| r.output_rows), false),
        ("open_windows", counts(records, |r| r.open_windows), false),
        ("open_rows", counts(records, |r| r.open_rows), false),
        ("watermark", watermarks(records), true),
    ])?)
}

/// All figures of each epoch: those of [`refresh_batch`], and `open_groups`, `skipped_records`,
/// `state_bytes`, `duration_ms`.
///
/// # Errors
/// - none of its own: the columns are of one length
pub fn progress_batch(records: &[EpochProgress]) -> Result<RecordBatch> {
    let durations = records
        .iter()
        .map(|record| record.duration.as_secs_f64() * 1_000.0);
    let exact = refresh_batch(records)?;
    let mut columns: Vec<(String, ArrayRef, bool)> = exact
        .schema()
        .fields()
        .iter()
        .zip(exact.columns())
        .map(|(field, column)| {
            (
                field.name().clone(),
                Arc::clone(column),
                field.is_nullable(),
            )
        })
        .collect();
    columns.push((
        "open_groups".to_owned(),
        counts(records, |r| r.open_groups),
        false,
    ));
    columns.push((
        "skipped_records".to_owned(),
        counts(records, |r| r.skipped_records),
        false,
    ));
    columns.push((
        "state_bytes".to_owned(),
        counts(records, |r| r.state_bytes),
        false,
    ));
    columns.push((
        "duration_ms".to_owned(),
        Arc::new(Float64Array::from_iter_values(durations)),
        false,
    ));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
