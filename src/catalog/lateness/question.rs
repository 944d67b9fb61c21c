//! A question about a table, and the pass over the table's rows that answers it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, TableReference, internal_datafusion_err};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::TableType;

use super::arguments::given_delays;
use super::measure::measure;
use crate::catalog::computed::{Computed, Work, one_batch};
use crate::config::{InitialOrder, TidegateOptions, options, shown_columns, unit_of};
use crate::error::Refusal;
use crate::physical::ticks;
use crate::source::{Cursor, Limits, ReadEnv, no_epoch_column};
use crate::state::RowFeed;
use crate::time::{Span, Unit};

/// What is asked of which table. The table is looked up when the question is planned, and read when it is run.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) table: String,
    pub(super) column: String,
    pub(super) schema: SchemaRef,
    pub(super) asked: Asked,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    Lateness {
        window: Span,
        epoch_by: Option<String>,
        delays: Option<Vec<Span>>,
    },
    OutOfOrder,
}

#[async_trait]
impl Computed for Question {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn plan(&self, session: &SessionState) -> Result<Work> {
        Ok(self.pass(session).await?.work())
    }
}

impl Question {
    async fn pass(&self, session: &SessionState) -> Result<Pass> {
        let provider = table(session, &self.table).await?;
        let (time, unit) = event_time(&self.table, &self.column, &provider.schema())?;
        // What cannot be measured is said before anything is read.
        measure(&self.asked, unit)?;
        let settings = options(session.config_options());
        let epoch_by = match &self.asked {
            Asked::Lateness { epoch_by, .. } => epoch_by.clone(),
            Asked::OutOfOrder => None,
        };
        if let Some(by) = &epoch_by
            && provider.schema().index_of(by).is_err()
        {
            return Err(no_such_epochs(&self.table, by).into());
        }
        Ok(Pass {
            table: self.table.clone(),
            provider,
            time,
            unit,
            asked: self.asked.clone(),
            limits: limits(&settings, epoch_by),
            session: Arc::new(session.clone()),
            schema: Arc::clone(&self.schema),
        })
    }
}

/// One reading of a table.
#[derive(Debug, Clone)]
struct Pass {
    table: String,
    provider: Arc<dyn TableProvider>,
    /// Place of the event time among the table's columns.
    time: usize,
    unit: Unit,
    asked: Asked,
    limits: Limits,
    session: Arc<SessionState>,
    schema: SchemaRef,
}

impl Pass {
    fn work(self) -> Work {
        Box::new(move |task| one_batch(&self.schema, self.clone().run(task)))
    }

    async fn run(self, task: Arc<TaskContext>) -> Result<RecordBatch> {
        let mut measure = measure(&self.asked, self.unit)?;
        let env = ReadEnv {
            session: Arc::clone(&self.session),
            task,
        };
        let mut cursor = Cursor::try_new(self.table, self.provider, self.limits)?;
        let columns = cursor.columns(&[self.time]);
        let place = columns.iter().position(|column| *column == self.time);
        let place = place.ok_or_else(|| internal_datafusion_err!("the event time is read"))?;
        loop {
            let mut taken = cursor.take(&columns, true, &env).await?;
            for batch in &taken.batches {
                measure.add(&ticks(batch.column(place))?);
            }
            if let Some(feed) = taken.feed.clone() {
                while let Some(batch) = feed.next().await? {
                    measure.add(&ticks(batch.column(place))?);
                }
            }
            cursor.finish(&mut taken).await?;
            if taken.rows > 0 {
                measure.end_epoch();
            }
            cursor.commit(&taken);
            if !taken.more {
                return Ok(RecordBatch::try_new(self.schema, measure.answer())?);
            }
            // A table in memory never makes the reader wait: others must have their turn.
            tokio::task::yield_now().await;
        }
    }
}

/// Where epochs of the pass end.
fn limits(settings: &TidegateOptions, epoch_by: Option<String>) -> Limits {
    Limits {
        // What is asked is how rows arrive.
        initial_order: InitialOrder::Arrival,
        ..Limits::of(settings, epoch_by)
    }
}

/// The table of a name, if its rows have an order of arrival.
async fn table(session: &SessionState, name: &str) -> Result<Arc<dyn TableProvider>> {
    // A name as it is, then as SQL reads it: in small letters unless quoted, with its schema.
    let mut found = None;
    for reference in [TableReference::bare(name), TableReference::parse_str(name)] {
        let schema = session.schema_for_ref(reference.clone()).ok();
        if let (None, Some(schema)) = (&found, schema) {
            found = schema.table(reference.table()).await?;
        }
    }
    let Some(found) = found else {
        return Err(Refusal::new(
            "TABLE_OR_VIEW_NOT_FOUND",
            "42P01",
            format!("There is no table '{name}'."),
        )
        .hint("SHOW TABLES lists them")
        .into());
    };
    if found.table_type() == TableType::View || found.get_logical_plan().is_some() {
        return Err(Refusal::new(
            "UNSUPPORTED_STREAM_SOURCE",
            "42KDE",
            format!("'{name}' is a view: its rows have no order of arrival of their own."),
        )
        .hint("name the table that it reads")
        .into());
    }
    Ok(found)
}

/// Place and unit of a table's event time.
fn event_time(table: &str, column: &str, schema: &Schema) -> Result<(usize, Unit)> {
    let Ok(place) = schema.index_of(column) else {
        return Err(Refusal::new(
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "42703",
            format!("{table} has no column '{column}'."),
        )
        .hint(format!(
            "its columns are {}",
            shown_columns(schema.fields())
        ))
        .into());
    };
    match schema.field(place).data_type() {
        DataType::Timestamp(unit, _) => Ok((place, unit_of(unit))),
        other => Err(Refusal::new(
            "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE",
            "42K09",
            format!("The event time '{column}' is {other}, not a TIMESTAMP."),
        )
        .hint(format!(
            "the columns of {table} are {}",
            shown_columns(schema.fields())
        ))
        .into()),
    }
}

/// The refusal of a column that does not end epochs, where a list of delays may have been meant.
fn no_such_epochs(table: &str, column: &str) -> Refusal {
    let refusal = no_epoch_column(table, column);
    match given_delays(column) {
        Ok(_) => refusal.hint(format!(
            "delays are the fifth argument: lateness('{table}', …, NULL, '{column}')"
        )),
        Err(_) => refusal,
    }
}
