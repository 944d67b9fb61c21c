//! What a partition emits at an epoch's end, in each output mode.

use std::collections::BTreeSet;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;

use super::super::groups::Groups;
use super::super::runs;
use super::super::sessions::{self, Settled};
use super::{GateShape, GateState, Partition, Release, Slices, batches, lock};
use crate::config::OutputMode;
use crate::time::Closed;

impl GateState {
    /// The runs that a partition emits at the epoch's end, each with the slice of the group it is for.
    pub fn release(&self, partition: usize, release: Release) -> Result<Vec<RecordBatch>> {
        let partition = self.partition(partition);
        let mut partition = lock(&partition);
        if self.shape == GateShape::Sessions {
            return self.sessions(&mut partition, release);
        }
        match release.mode {
            OutputMode::Append => self.closing(&partition, release),
            OutputMode::Update => self.touched(&partition, release),
            OutputMode::Complete => self.everything(&partition),
        }
    }

    /// Runs of the sessions that close in this epoch, or of all sessions in complete mode.
    fn sessions(&self, partition: &mut Partition, release: Release) -> Result<Vec<RecordBatch>> {
        let closed = match release.mode {
            OutputMode::Complete => Closed::None,
            OutputMode::Append | OutputMode::Update => release.after,
        };
        let settled = self.settle(partition, closed)?;
        let out = match release.mode {
            OutputMode::Complete => settled.open.clone(),
            OutputMode::Append | OutputMode::Update => settled.closed.clone(),
        };
        partition.settled = Some(settled);
        Ok(out.into_iter().collect())
    }

    /// Merges the sessions of a partition. When nothing has come and nothing can close, they stay as
    /// they are.
    pub(super) fn settle(&self, partition: &Partition, closed: Closed) -> Result<Settled> {
        let held = partition.kept.values().chain(partition.pending.values());
        let runs: Vec<RecordBatch> = held.flat_map(|runs| batches(runs)).collect();
        sessions::settle(&runs, self.keys, closed)
    }

    /// Runs of the windows that close in this epoch.
    fn closing(&self, partition: &Partition, release: Release) -> Result<Vec<RecordBatch>> {
        let mut out = Vec::new();
        let reached = |slice: &i64| {
            self.shape
                .windows(*slice)
                .last()
                .is_some_and(|oldest| release.after.contains(*oldest))
        };
        let kept = partition
            .kept
            .iter()
            .take_while(|(slice, _)| reached(slice));
        let pending = partition
            .pending
            .iter()
            .take_while(|(slice, _)| reached(slice));
        for (slice, runs) in kept.chain(pending) {
            let windows = self.shape.windows(*slice);
            let closing = windows.iter().filter(|begin| {
                release.after.contains(**begin) && !release.before.contains(**begin)
            });
            for begin in closing {
                emit(&mut out, batches(runs), *slice, *begin)?;
            }
        }
        Ok(out)
    }

    /// Runs of the groups that this epoch touched, in the windows that were open when it began.
    fn touched(&self, partition: &Partition, release: Release) -> Result<Vec<RecordBatch>> {
        if self.shape == GateShape::Timeless {
            return self.touched_window(partition, None);
        }
        let windows: BTreeSet<i64> = partition
            .pending
            .keys()
            .flat_map(|slice| self.shape.windows(*slice))
            .filter(|begin| !release.before.contains(*begin))
            .collect();
        let mut out = Vec::new();
        for begin in windows {
            out.extend(self.touched_window(partition, Some(begin))?);
        }
        Ok(out)
    }

    /// Runs of the touched groups of one window, or of all groups where there is no time.
    fn touched_window(
        &self,
        partition: &Partition,
        window: Option<i64>,
    ) -> Result<Vec<RecordBatch>> {
        let within = |slices: &Slices| -> Vec<(i64, Vec<RecordBatch>)> {
            slices
                .iter()
                .filter(|(slice, _)| {
                    window.is_none_or(|begin| self.shape.windows(**slice).contains(&begin))
                })
                .map(|(slice, runs)| (*slice, batches(runs).collect()))
                .collect()
        };
        let pending = within(&partition.pending);
        let Some(groups) = Groups::of(self.keys, pending.iter().flat_map(|(_, runs)| runs))? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for (slice, runs) in within(&partition.kept) {
            let runs = runs
                .iter()
                .map(|run| groups.of_run(run))
                .collect::<Result<Vec<_>>>()?;
            emit(&mut out, runs.into_iter(), slice, window.unwrap_or(slice))?;
        }
        for (slice, runs) in pending {
            emit(&mut out, runs.into_iter(), slice, window.unwrap_or(slice))?;
        }
        Ok(out)
    }

    /// Runs of all groups.
    fn everything(&self, partition: &Partition) -> Result<Vec<RecordBatch>> {
        let mut out = Vec::new();
        for (slice, runs) in partition.kept.iter().chain(&partition.pending) {
            let windows = match self.shape {
                GateShape::Timeless => vec![*slice],
                _ => self.shape.windows(*slice),
            };
            for begin in windows {
                emit(&mut out, batches(runs), *slice, begin)?;
            }
        }
        Ok(out)
    }
}

/// Adds runs to the output, for the window that begins at `begin`; empty ones are left out.
fn emit(
    out: &mut Vec<RecordBatch>,
    runs: impl Iterator<Item = RecordBatch>,
    slice: i64,
    begin: i64,
) -> Result<()> {
    for run in runs.filter(|run| run.num_rows() > 0) {
        out.push(if slice == begin {
            run
        } else {
            runs::moved(&run, begin)?
        });
    }
    Ok(())
}
