//! `plot('name', 'file.html')`: a table function that writes the picture of a streaming table, and tells in a row what
//! it has written.
//!
//! It writes when its row is read: planning it, or EXPLAIN, writes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;

use super::computed::{Computed, ComputedTable, Work, one_batch};
use super::functions::{constant_text, find, number};
use super::registry::StreamingTables;
use super::streaming_table::StreamingTable;
use super::unbounded::UnboundedTables;
use crate::disk::{LocalDisk, publish};
use crate::error::Refusal;
use crate::picture::{Depth, Picture, View};

/// `plot('name', 'file.html' [, first epoch [, last epoch]])`, or `'file.svg'`.
#[derive(Debug)]
pub struct PlotFunction {
    /// The streaming tables.
    pub tables: Arc<StreamingTables>,
    /// Tables that are streams without the word STREAM.
    pub unbounded: Arc<UnboundedTables>,
}

/// What kind of file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Html,
    Svg,
}

/// A picture that is to be written.
#[derive(Debug, Clone)]
struct Plot {
    table: Arc<StreamingTable>,
    unbounded: Arc<UnboundedTables>,
    path: PathBuf,
    kind: Kind,
    view: View,
    schema: SchemaRef,
}

impl TableFunctionImpl for PlotFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let (name, file, epochs) = match args.exprs() {
            [name, file, epochs @ ..] if epochs.len() <= 2 => (name, file, epochs),
            _ => {
                return Err(wrong(
                    "plot() takes a streaming table, a file, and the first and the last epoch if not the newest are meant.",
                ));
            }
        };
        let epochs = epochs.iter().map(number).collect::<Result<Vec<u64>>>()?;
        let view = match epochs.as_slice() {
            [] => View::Last(Depth::File),
            [from, to @ ..] => View::Epochs {
                from: *from,
                to: to.first().copied(),
            },
        };
        let path = text(file)?;
        Ok(Arc::new(ComputedTable(Plot {
            table: find(&self.tables, name)?,
            unbounded: Arc::clone(&self.unbounded),
            kind: kind(&path)?,
            path,
            view,
            schema: schema(),
        })))
    }
}

fn schema() -> SchemaRef {
    let count = |name| Field::new(name, DataType::UInt64, false);
    Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        count("bytes"),
        count("epochs"),
        count("rows"),
        count("late_rows"),
        count("open_windows"),
    ]))
}

/// The path of a file, as it was written.
fn text(file: &Expr) -> Result<PathBuf> {
    let path = constant_text(file).map(PathBuf::from);
    path.ok_or_else(|| wrong("The file is given as text."))
}

fn wrong(message: &str) -> DataFusionError {
    Refusal::new("INVALID_PARAMETER_VALUE.PLOT", "22023", message)
        .hint("write plot('hourly', 'hourly.html'), or plot('hourly', 'hourly.svg', 100, 200)")
        .into()
}

/// The kind of a file, by its extension.
fn kind(path: &Path) -> Result<Kind> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let has_name = path.file_stem().is_some_and(|stem| !stem.is_empty());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("html" | "htm") if has_name => Ok(Kind::Html),
        Some("svg") if has_name => Ok(Kind::Svg),
        _ => Err(wrong(&format!(
            "{} is not the name of a picture: it ends with neither .html nor .svg.",
            path.display()
        ))),
    }
}

#[async_trait]
impl Computed for Plot {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn plan(&self, session: &SessionState) -> Result<Work> {
        Ok(self.clone().work(session.clone()))
    }
}

impl Plot {
    fn work(self, session: SessionState) -> Work {
        Box::new(move |_| {
            let (plot, session) = (self.clone(), session.clone());
            let schema = Arc::clone(&plot.schema);
            one_batch(&schema, async move { plot.write(&session).await })
        })
    }

    /// Writes the picture; returns what was written.
    async fn write(self, session: &SessionState) -> Result<RecordBatch> {
        let picture = self
            .table
            .picture(session, &self.unbounded, self.view)
            .await?;
        let document = match self.kind {
            Kind::Html => picture.to_html(),
            Kind::Svg => picture.to_svg(),
        };
        let document = document.map_err(|error| exec_datafusion_err!("{error}"))?;
        let bytes = document.len() as u64;
        let path = self.path.clone();
        // Writing waits for a disk, which a thread that polls must not.
        SpawnedTask::spawn_blocking(move || put(&path, document.as_bytes()))
            .join_unwind()
            .await
            .map_err(|broken| DataFusionError::ExecutionJoin(Box::new(broken)))??;
        self.row(&picture, bytes)
    }

    fn row(&self, picture: &Picture, bytes: u64) -> Result<RecordBatch> {
        let count = |count: u64| Arc::new(UInt64Array::from(vec![count])) as _;
        let path = self.path.display().to_string();
        let rows = picture.epochs.iter().map(|epoch| epoch.rows).sum();
        Ok(RecordBatch::try_new(
            Arc::clone(&self.schema),
            vec![
                Arc::new(StringArray::from(vec![path])),
                count(bytes),
                count(picture.epochs.len() as u64),
                count(rows),
                count(picture.late.counted),
                count(picture.open.windows),
            ],
        )?)
    }
}

/// Puts a file in place at one stroke; its folder must be there.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |reason: String| -> DataFusionError {
        let message = format!("{} cannot be written: {reason}.", path.display());
        Refusal::new("CANNOT_WRITE_PICTURE", "58030", message)
            .hint("write it to a folder that is there")
            .into()
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() {
        return Err(failed(format!("there is no folder {}", folder.display())));
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(failed("it has no name".to_owned()));
    };
    let disk = LocalDisk::open(folder).map_err(|error| failed(error.to_string()))?;
    publish(&disk, "", name, bytes).map_err(|error| failed(error.to_string()))
}
