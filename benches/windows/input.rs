//! The events as tables: in memory, or as files in one of the formats.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::csv::Writer as CsvWriter;
use datafusion::arrow::datatypes::{Schema, SchemaRef, TimestampMicrosecondType};
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::datasource::MemTable;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::prelude::SessionContext;
use tidegate::context::StreamContext;

use crate::workload::{Expected, Generator, Workload};

/// Where the rows are when the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    Memory,
    Parquet,
    Csv,
    Json,
}

impl Input {
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "memory" => Some(Self::Memory),
            "parquet" => Some(Self::Parquet),
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Row groups of a file: a million rows.
const FILE_GROUPS: usize = 8;
const ROW_GROUP_ROWS: usize = 131_072;
const BATCH_ROWS: usize = 8_192;
const COLUMNS: &str =
    "ts TIMESTAMP(6), \"key\" BIGINT, \"user\" VARCHAR, price DOUBLE, kind VARCHAR";

/// Makes the table `events` in both sessions, and tells the rows to who counts them.
pub(crate) async fn make(
    input: Input,
    workload: &Workload,
    folder: &Path,
    expected: &mut [Expected],
    stream: &StreamContext,
    batch: &SessionContext,
) -> Result<()> {
    if input == Input::Memory {
        return in_memory(workload, expected, stream, batch).await;
    }
    let mut generator = Generator::new(workload);
    let mut next = generator.batch(ROW_GROUP_ROWS)?;
    let mut number = 0;
    while next.is_some() {
        let path = folder.join(format!("events-{number:06}.{}", extension(input)));
        // One row group after the other: the rows of a file are never in memory at once.
        let file = std::iter::from_fn(|| {
            let rows = next.take()?;
            count(&rows, expected);
            next = generator.batch(ROW_GROUP_ROWS).ok().flatten();
            Some(rows)
        });
        write(input, &path, file.take(FILE_GROUPS))?;
        number += 1;
    }
    let path = folder.display();
    let statement = match input {
        Input::Parquet => {
            format!("CREATE EXTERNAL TABLE events STORED AS PARQUET LOCATION '{path}/'")
        }
        Input::Csv => format!(
            "CREATE EXTERNAL TABLE events ({COLUMNS}) STORED AS CSV LOCATION '{path}/' \
             OPTIONS ('format.has_header' 'true')"
        ),
        _ => format!("CREATE EXTERNAL TABLE events ({COLUMNS}) STORED AS JSON LOCATION '{path}/'"),
    };
    stream.sql(&statement).await?.collect().await?;
    batch.sql(&statement).await?.collect().await?;
    Ok(())
}

fn extension(input: Input) -> &'static str {
    match input {
        Input::Memory | Input::Parquet => "parquet",
        Input::Csv => "csv",
        Input::Json => "json",
    }
}

fn count(rows: &RecordBatch, expected: &mut [Expected]) {
    let times = rows.column(0).as_primitive::<TimestampMicrosecondType>();
    for one in expected {
        one.add(times.values());
    }
}

fn write(input: Input, path: &Path, rows: impl Iterator<Item = RecordBatch>) -> Result<()> {
    let file = BufWriter::new(File::create(path)?);
    let mut rows = rows.peekable();
    match input {
        Input::Memory | Input::Parquet => {
            let schema = rows
                .peek()
                .map(RecordBatch::schema)
                .unwrap_or_else(|| Arc::new(Schema::empty()));
            let mut writer = ArrowWriter::try_new(file, schema, None)?;
            for rows in rows {
                writer.write(&rows)?;
                writer.flush()?;
            }
            writer.close()?;
        }
        Input::Csv => {
            let mut writer = CsvWriter::new(file);
            rows.try_for_each(|rows| writer.write(&rows))?;
        }
        Input::Json => {
            let mut writer = LineDelimitedWriter::new(file);
            rows.try_for_each(|rows| writer.write(&rows))?;
            writer.finish()?;
        }
    }
    Ok(())
}

/// A table that takes rows on our side, DataFusion's table in memory on the other.
async fn in_memory(
    workload: &Workload,
    expected: &mut [Expected],
    stream: &StreamContext,
    batch: &SessionContext,
) -> Result<()> {
    let mut generator = Generator::new(workload);
    let partitions = batch.state().config().target_partitions();
    let mut parts = vec![Vec::new(); partitions];
    let mut schema: Option<SchemaRef> = None;
    let mut number = 0;
    while let Some(rows) = generator.batch(BATCH_ROWS)? {
        count(&rows, expected);
        if schema.is_none() {
            stream.create_table("events", rows.schema())?;
            schema = Some(rows.schema());
        }
        stream.append("events", rows.clone()).await?;
        parts[number % partitions].push(rows);
        number += 1;
    }
    let schema = schema.ok_or_else(|| exec_datafusion_err!("there are no rows"))?;
    batch.register_table("events", Arc::new(MemTable::try_new(schema, parts)?))?;
    Ok(())
}
