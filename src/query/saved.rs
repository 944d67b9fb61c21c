//! What of a query is in its checkpoint, and how it comes back.
//!
//! Rows are pieces: the state of each operator under the operator's name, and the files that each source has
//! read to their end. What is small is JSON: the watermark, what the clauses have observed, where each source
//! stands, what each operator's state is made of.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{Int64Type, UInt64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attach::RunState;
use super::epoch::Parts;
use super::exec::StreamQueryExec;
use super::saved_order::{extents, order_of, order_piece};
use crate::checkpoint::{Piece, Restored};
use crate::error::Refusal;
use crate::source::{Cursor, FileIdentity, FilePosition, Position};
use crate::state::{Observed, QueryState};
use crate::time::Instant;

/// Aspects of an operator's state, and what they are.
pub(super) type MadeOf = Vec<(String, String)>;

/// What is written beside the rows.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    watermark: Option<Instant>,
    observed: Vec<Option<Observed>>,
    sources: BTreeMap<String, SourceAt>,
    /// By name, the lowest first.
    operators: Vec<(String, MadeOf)>,
}

/// Where a source stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceAt {
    /// What tells the source from another one of its name.
    pub identity: String,
    /// How far it has been read.
    pub position: Option<Position>,
}

impl SourceAt {
    fn of(cursor: &Cursor) -> Self {
        Self {
            identity: cursor.identity(),
            position: cursor.position().cloned(),
        }
    }
}

/// How far a source has been read, and its table where this process has read it.
#[derive(Debug)]
pub struct SourceStanding {
    /// Its name.
    pub name: String,
    /// Its table.
    pub provider: Option<Arc<dyn TableProvider>>,
    /// How far it has been read.
    pub position: Option<Position>,
}

/// Name of the piece with the files of a source that were read to their end.
fn files_of(source: &str) -> String {
    format!("files of {source}")
}

impl RunState {
    /// The state of a checkpoint. Operators take theirs in when the next epoch begins.
    ///
    /// # Errors
    /// - the checkpoint is not one of a query
    pub fn restored(restored: &Restored) -> Result<Self> {
        let content: Content = match &restored.content {
            Value::Null => Content::default(),
            written => serde_json::from_value(written.clone()).map_err(|error| {
                internal_datafusion_err!("a checkpoint without its query: {error}")
            })?,
        };
        let mut sources = HashMap::new();
        for (name, mut at) in content.sources {
            if let Some(Position::Files(mut files)) = at.position {
                if let (Some(in_order), Some(order)) = (
                    files.in_order.as_mut(),
                    restored.pieces.get(&order_of(&name)),
                ) {
                    in_order.extents = Arc::new(extents(order)?);
                }
                let done = restored
                    .pieces
                    .get(&files_of(&name))
                    .map_or(&[][..], Vec::as_slice);
                at.position = Some(Position::Files(
                    files.with_done(done_files(done)?.into_iter()),
                ));
            }
            sources.insert(name, at);
        }
        let operators = content.operators.iter().map(|(name, _)| name);
        let pieces = operators.flat_map(|name| {
            let names = [name.clone(), crate::state::rows_of(name)];
            names.into_iter().filter_map(|name| {
                let rows = restored.pieces.get(&name)?.clone();
                Some((name, rows))
            })
        });
        let state = QueryState::saved(pieces.collect());
        state.watermarks.restore(content.observed.clone());
        Ok(Self {
            state: Arc::new(state),
            next_epoch: restored.number,
            watermark: content.watermark,
            observed: content.observed,
            saved: sources,
            operators: (restored.number > 0).then_some(content.operators),
            ..Self::default()
        })
    }

    /// Where each source stands, sorted by name; its table where it has been read by this process.
    pub fn positions(&self) -> Vec<SourceStanding> {
        let read = self.cursors.iter().map(|(name, cursor)| {
            let provider = Arc::clone(cursor.provider());
            SourceStanding {
                name: name.clone(),
                provider: Some(provider),
                position: cursor.position().cloned(),
            }
        });
        let unread = self
            .saved
            .iter()
            .filter(|(name, _)| !self.cursors.contains_key(*name));
        let unread = unread.map(|(name, at)| SourceStanding {
            name: name.clone(),
            provider: None,
            position: at.position.clone(),
        });
        let mut all: Vec<SourceStanding> = read.chain(unread).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// What is written beside the rows, once an epoch has committed.
    ///
    /// # Errors
    /// - none of its own
    pub(super) fn content(&self, standing: &HashMap<String, SourceAt>) -> Result<Value> {
        let content = Content {
            watermark: self.watermark,
            observed: self.observed.clone(),
            sources: standing.clone().into_iter().collect(),
            operators: self.operators.clone().unwrap_or_default(),
        };
        serde_json::to_value(content).map_err(|error| DataFusionError::External(error.into()))
    }

    /// Where each source stands, those that the query has left included.
    pub(super) fn standing(&self) -> HashMap<String, SourceAt> {
        let mut all = self.saved.clone();
        let read = self.cursors.iter();
        all.extend(read.map(|(name, cursor)| (name.clone(), SourceAt::of(cursor))));
        all
    }

    /// Leaves a source that the query does not read any more.
    pub(super) fn leave(&mut self, source: &str) {
        if let Some(cursor) = self.cursors.remove(source) {
            self.saved.insert(source.to_owned(), SourceAt::of(&cursor));
        }
    }

    /// The files that have been read to their end since the last checkpoint, and the order of those that are read by
    /// event time, as pieces.
    ///
    /// # Errors
    /// - none of its own
    pub(super) fn file_pieces(&self) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        for (name, cursor) in &self.cursors {
            let Some(Position::Files(files)) = cursor.position() else {
                continue;
            };
            let saved = self.saved.get(name).and_then(|at| at.position.as_ref());
            let earlier = match saved {
                Some(Position::Files(files)) => Some(files),
                _ => None,
            };
            pieces.extend(order_piece(name, cursor.position(), saved)?);
            pieces.push(Piece::new(files_of(name), files_added(files, earlier)?));
        }
        let left = self
            .saved
            .iter()
            .filter(|(name, _)| !self.cursors.contains_key(*name));
        for (name, at) in left {
            let position = at.position.as_ref();
            pieces.push(Piece::new(files_of(name), Vec::new()));
            pieces.extend(order_piece(name, position, position)?);
        }
        Ok(pieces)
    }

    /// How many rows of each source committed epochs have read, where a source's rows are numbered.
    pub fn rows_read(&self) -> Vec<(String, u64)> {
        let rows = self.positions().into_iter();
        let rows = rows.filter_map(|at| match at.position {
            Some(Position::Rows(rows)) => Some((at.name, rows)),
            // Of those that are read in the order of event time each is read again, to see whether it is next.
            Some(Position::Ordered(rows)) => Some((at.name, rows.first)),
            _ => None,
        });
        rows.collect()
    }

    /// Refuses a plan whose operators cannot take in the state that there is.
    ///
    /// # Errors
    /// - an operator is missing, new, or made of something else; the error names the difference
    pub fn check_plan(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
        let root = plan.downcast_ref::<StreamQueryExec>();
        let input = root.and_then(|root| root.children().into_iter().next());
        match (&self.operators, input) {
            (Some(saved), Some(input)) => {
                same_operators(saved, &Parts::of(Arc::clone(input)).made_of())
            }
            _ => Ok(()),
        }
    }

    /// Refuses state of a checkpoint that the plan's operators cannot take in.
    ///
    /// # Errors
    /// - an operator is missing, new, or made of something else; the error names the difference
    pub(super) fn check_operators(&mut self, parts: &Parts) -> Result<()> {
        let now = parts.made_of();
        if let Some(saved) = &self.operators {
            same_operators(saved, &now)?;
        }
        self.operators = Some(now);
        Ok(())
    }
}

/// Refuses operators whose state is made otherwise than it was.
fn same_operators(saved: &[(String, MadeOf)], now: &[(String, MadeOf)]) -> Result<()> {
    for (at, (name, made_of)) in saved.iter().enumerate() {
        let Some((of_now, made_now)) = now.get(at) else {
            return Err(changed(&format!("{name} is not in the query any more")));
        };
        if name != of_now {
            return Err(changed(&format!("{name} was where {of_now} is now")));
        }
        let other = made_of
            .iter()
            .zip(made_now)
            .find(|(one, other)| one != other);
        if let Some(((aspect, was), (_, is))) = other {
            return Err(changed(&format!(
                "{name}, {aspect}: it was {}, it is {}",
                shown(was),
                shown(is)
            )));
        }
    }
    match now.get(saved.len()) {
        Some((name, _)) => Err(changed(&format!("{name} is new"))),
        None => Ok(()),
    }
}

fn shown(what: &str) -> &str {
    if what.is_empty() { "none" } else { what }
}

/// The error of a query that is not the one of its checkpoint.
pub(super) fn changed(difference: &str) -> DataFusionError {
    Refusal::new(
        "STREAMING_QUERY_CHANGED",
        "42K0E",
        format!("The query is not the one that the kept state is of: {difference}."),
    )
    .hint("write the query as it was, or begin anew: REFRESH STREAMING TABLE … FULL")
    .into()
}

/// Files that were read to their end since an earlier position, as rows.
fn files_added(files: &FilePosition, earlier: Option<&FilePosition>) -> Result<Vec<RecordBatch>> {
    let added = files.done_since(earlier);
    if added.is_empty() {
        return Ok(Vec::new());
    }
    let paths = StringArray::from_iter_values(added.iter().map(|(path, _)| path));
    let sizes = UInt64Array::from_iter_values(added.iter().map(|(_, identity)| identity.size));
    let times = added.iter().map(|(_, identity)| identity.modified_ms);
    let batch = RecordBatch::try_from_iter([
        ("path", Arc::new(paths) as _),
        ("size", Arc::new(sizes) as _),
        (
            "modified_ms",
            Arc::new(Int64Array::from_iter_values(times)) as _,
        ),
    ])?;
    Ok(vec![batch])
}

/// Files of rows that [`files_added`] made.
fn done_files(batches: &[RecordBatch]) -> Result<Vec<(String, FileIdentity)>> {
    let mut files = Vec::new();
    for batch in batches {
        let [paths, sizes, times] = batch.columns() else {
            return Err(internal_datafusion_err!("files are saved in three columns"));
        };
        let columns = (
            paths.as_string_opt::<i32>(),
            sizes.as_primitive_opt::<UInt64Type>(),
            times.as_primitive_opt::<Int64Type>(),
        );
        let (Some(paths), Some(sizes), Some(times)) = columns else {
            return Err(internal_datafusion_err!(
                "files are saved as path, size and time"
            ));
        };
        files.extend((0..paths.len()).map(|row| {
            let identity = FileIdentity {
                size: sizes.value(row),
                modified_ms: times.value(row),
            };
            (paths.value(row).to_owned(), identity)
        }));
    }
    Ok(files)
}
