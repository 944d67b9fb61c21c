//! A gate's state in a checkpoint: the partial states that each epoch adds, and the rows they stand for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::{Result, internal_datafusion_err};

use super::{GateShape, GateState, Partition, Rows, lock};
use crate::checkpoint::{Piece, Until, Whole};
use crate::state::runs::{Part, Run};
use crate::state::sessions;
use crate::time::Closed;

/// What an epoch adds to a gate.
#[derive(Debug, Default)]
pub struct GateAdded {
    /// By slice; those that are on disk are read when they are written again.
    runs: Vec<(i64, Run)>,
    rows: Vec<(i64, u64)>,
}

impl GateState {
    /// What the running epoch adds; asked for before it commits.
    pub fn added(&self) -> GateAdded {
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let mut runs = Vec::new();
        for partition in &partitions {
            let partition = lock(partition);
            let pending = partition.pending.iter();
            runs.extend(
                pending.flat_map(|(slice, runs)| runs.iter().map(|run| (*slice, run.clone()))),
            );
            let pending = partition.open.pending().iter();
            runs.extend(pending.map(|run| (0, Run::part(run.batch.clone(), run.bytes))));
        }
        let rows = lock(&self.rows);
        GateAdded {
            runs,
            rows: rows
                .pending
                .iter()
                .map(|(slice, rows)| (*slice, *rows))
                .collect(),
        }
    }

    /// The pieces of a checkpoint, once the epoch has committed: partial states, and accepted rows by slice.
    /// Windows in `before` had closed when the epoch began, those in `after` when it ended.
    ///
    /// # Errors
    /// - a run on disk cannot be read
    pub fn pieces(
        self: &Arc<Self>,
        name: &str,
        added: GateAdded,
        before: Closed,
        after: Closed,
    ) -> Result<Vec<Piece>> {
        let GateAdded { mut runs, mut rows } = added;
        if self.shape != GateShape::Sessions {
            // What has left in the same epoch need not be written.
            let shape = self.shape;
            runs.retain(|(slice, _)| !after.contains(shape.newest(*slice)));
            rows.retain(|(slice, _)| !after.contains(shape.newest(*slice)));
        }
        let runs = runs.iter().map(|(_, run)| run.load());
        let runs = runs.collect::<Result<Vec<_>>>()?;
        if self.shape == GateShape::Sessions {
            let added = runs.iter().map(|run| sessions::since(run, before));
            let mut piece = Piece::new(name, added.collect::<Result<_>>()?);
            piece.whole = Some(self.whole(|state| {
                let mut runs = state.all_runs();
                runs.try_fold(Vec::new(), |mut all, run| {
                    all.push(sessions::since(&run?, Closed::None)?);
                    Ok(all)
                })
            }));
            return Ok(vec![piece]);
        }
        let until = || {
            let shape = self.shape;
            Until {
                column: 0,
                gone: Box::new(move |slice| after.contains(shape.newest(slice))),
            }
        };
        let mut states = Piece::new(name, runs);
        states.until = Some(until());
        // What is not in memory is not written anew: all of it would be.
        let in_memory = self.spilled_bytes() == 0;
        states.whole = in_memory.then(|| self.whole(|state| state.all_runs().collect()));
        let mut rows = Piece::new(rows_of(name), counted(&rows)?.into_iter().collect());
        rows.until = Some(until());
        let slices = lock(&self.rows).kept.len() as u64;
        rows.whole = Some(Whole {
            rows: slices,
            ..self.whole(|state| {
                let kept = lock(&state.rows).kept.clone();
                Ok(counted(&Vec::from_iter(kept))?.into_iter().collect())
            })
        });
        Ok(vec![states, rows])
    }

    /// The state as it is, when it is asked for.
    fn whole(
        self: &Arc<Self>,
        all: impl Fn(&Self) -> Result<Vec<RecordBatch>> + Send + Sync + 'static,
    ) -> Whole {
        let state = Arc::clone(self);
        Whole {
            rows: self.held_rows(),
            all: Box::new(move || all(&state)),
        }
    }

    /// Takes the rows of [`pieces`](Self::pieces) in again, into one partition; `closed` are the windows that
    /// had closed.
    ///
    /// # Errors
    /// - they are no runs
    pub fn restore(
        &self,
        runs: Vec<RecordBatch>,
        rows: &[RecordBatch],
        closed: Closed,
    ) -> Result<()> {
        if self.shape == GateShape::Sessions {
            return self.restore_sessions(&runs, closed);
        }
        let mut partition = Partition::default();
        let mut bytes = 0;
        for run in runs {
            for (slice, run) in self.cut(Part::read(run))? {
                if !closed.contains(self.shape.newest(slice)) {
                    bytes += run.bytes;
                    partition.kept.entry(slice).or_default().push(run);
                }
            }
        }
        let mut kept = BTreeMap::new();
        for batch in rows {
            for (slice, rows) in rows_in(batch)? {
                if !closed.contains(self.shape.newest(slice)) {
                    *kept.entry(slice).or_default() += rows;
                }
            }
        }
        let accepted = kept.values().sum();
        *lock(&self.rows) = Rows {
            kept,
            accepted,
            ..Rows::default()
        };
        self.put_back(partition, bytes);
        Ok(())
    }

    /// The state of all partitions in one.
    fn put_back(&self, partition: Partition, bytes: usize) {
        *lock(&self.partitions) = vec![Arc::new(Mutex::new(partition))];
        self.memory.change(self.memory.bytes(), bytes);
    }
}

/// Name of the piece with the accepted rows of a gate's slices.
pub fn rows_of(name: &str) -> String {
    format!("{name}: rows")
}

/// Rows by slice as a batch `(slice, rows)`; none where there are none.
fn counted(rows: &[(i64, u64)]) -> Result<Option<RecordBatch>> {
    if rows.is_empty() {
        return Ok(None);
    }
    let slices = Int64Array::from_iter_values(rows.iter().map(|(slice, _)| *slice));
    let counts = rows
        .iter()
        .map(|(_, rows)| i64::try_from(*rows).unwrap_or(i64::MAX));
    let schema = Schema::new(vec![
        Field::new("slice", DataType::Int64, false),
        Field::new("rows", DataType::Int64, false),
    ]);
    let columns = vec![
        Arc::new(slices) as _,
        Arc::new(Int64Array::from_iter_values(counts)) as _,
    ];
    Ok(Some(RecordBatch::try_new(Arc::new(schema), columns)?))
}

/// Rows by slice of a batch `(slice, rows)`.
pub(in crate::state) fn rows_in(batch: &RecordBatch) -> Result<Vec<(i64, u64)>> {
    let column = |at: usize| {
        let column = batch.columns().get(at);
        let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
        column.ok_or_else(|| internal_datafusion_err!("rows of slices are two columns of numbers"))
    };
    let (slices, counts) = (column(0)?, column(1)?);
    let counts = counts.values().iter().map(|rows| rows.unsigned_abs());
    Ok(slices.values().iter().copied().zip(counts).collect())
}
