//! What a partition emits at an epoch's end, in each output mode.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;

use super::super::groups::Groups;
use super::super::runs::{self, Run, TIMELESS};
use super::super::sessions::{self, Settled};
use super::{GateShape, GateState, Partition, Release, Slices, batches, lock};
use crate::config::OutputMode;
use crate::time::{Closed, WindowShape};

/// A window, and its slices among [`SharedSlices::slices`].
#[derive(Debug, Clone)]
pub struct WindowOfSlices {
    /// Its begin.
    pub begin: i64,
    /// Places of its slices.
    pub slices: Range<usize>,
}

/// Windows that are emitted, and the slices that they share.
#[derive(Debug)]
pub struct SharedSlices {
    /// The windows, the oldest first.
    pub windows: Vec<WindowOfSlices>,
    /// The runs of each slice, the oldest first.
    pub slices: Vec<Vec<RecordBatch>>,
}

impl GateState {
    /// How many rows of partial state are released at the epoch's end, at most.
    pub fn releases(&self, release: Release) -> u64 {
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let rows = partitions.iter().map(|partition| {
            let partition = lock(partition);
            let rows = |slices: &Slices| self.released(slices, release);
            match release.mode {
                OutputMode::Append => rows(&partition.kept) + rows(&partition.pending),
                // The touched groups are in as many runs as there are.
                OutputMode::Update => rows(&partition.pending),
                OutputMode::Complete => rows(&partition.kept) + rows(&partition.pending),
            }
        });
        rows.sum()
    }

    /// Rows of the slices that are released.
    fn released(&self, slices: &Slices, release: Release) -> u64 {
        let append = release.mode == OutputMode::Append;
        let rows = slices.iter().map(|(slice, runs)| match self.shape {
            _ if !append => runs::rows(runs),
            GateShape::Timeless => 0,
            GateShape::Sessions => {
                let ends = runs
                    .iter()
                    .filter_map(|run| sessions::first_end(&run.batch));
                match ends.min().is_some_and(|end| release.after.contains(end)) {
                    true => runs::rows(runs),
                    false => 0,
                }
            }
            GateShape::One | GateShape::Hopping(_) => {
                let oldest = self.shape.windows(*slice).pop();
                match oldest.is_some_and(|oldest| release.after.contains(oldest)) {
                    true => runs::rows(runs),
                    false => 0,
                }
            }
        });
        rows.sum()
    }

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

    /// Windows that close in this epoch in append mode, and the slices that they share or that are in many
    /// runs; none where each run comes out as it is.
    pub fn shared(&self, partition: usize, release: Release) -> Option<SharedSlices> {
        if release.mode != OutputMode::Append {
            return None;
        }
        let partition = self.partition(partition);
        let partition = lock(&partition);
        if partition.kept.contains_key(&TIMELESS) || partition.pending.contains_key(&TIMELESS) {
            return None;
        }
        match self.shape {
            GateShape::Hopping(shape) => Some(hopping(shape, &partition, release)),
            GateShape::One => in_many_runs(&partition, release),
            GateShape::Sessions | GateShape::Timeless => None,
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
        let pending = self.within(&partition.pending, window);
        let touched = pending.iter().flat_map(|(_, runs)| runs.iter());
        let Some(groups) = Groups::of(self.keys, touched.map(|run| &run.batch))? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for (slice, runs) in self.within(&partition.kept, window) {
            let runs = runs
                .iter()
                .map(|run| groups.of_run(run))
                .collect::<Result<Vec<_>>>()?;
            emit(&mut out, runs.into_iter(), slice, window.unwrap_or(slice))?;
        }
        for (slice, runs) in pending {
            emit(&mut out, batches(runs), slice, window.unwrap_or(slice))?;
        }
        Ok(out)
    }

    /// The slices of a window with their runs; all where there is no time.
    fn within<'a>(&self, slices: &'a Slices, window: Option<i64>) -> Vec<(i64, &'a [Run])> {
        let inside = |slice: i64| match (self.shape, window) {
            (_, None) => true,
            (GateShape::One, Some(begin)) => slice == begin,
            (_, Some(begin)) => self.shape.windows(slice).contains(&begin),
        };
        let slices = slices.iter().filter(|(slice, _)| inside(**slice));
        slices
            .map(|(slice, runs)| (*slice, runs.as_slice()))
            .collect()
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

/// Whether a window closes in an epoch.
fn closes(begin: i64, release: Release) -> bool {
    release.after.contains(begin) && !release.before.contains(begin)
}

/// The runs of a partition by slice, those of earlier epochs first.
fn by_slice<'a>(
    slices: impl Iterator<Item = (&'a i64, &'a Vec<Run>)>,
) -> BTreeMap<i64, Vec<RecordBatch>> {
    let mut all: BTreeMap<i64, Vec<RecordBatch>> = BTreeMap::new();
    for (slice, runs) in slices {
        all.entry(*slice).or_default().extend(batches(runs));
    }
    all
}

/// Hopping windows that close, and the slices that they share.
fn hopping(shape: WindowShape, partition: &Partition, release: Release) -> SharedSlices {
    let mut slices = by_slice(partition.kept.iter().chain(&partition.pending));
    let begins = slices.keys().flat_map(|slice| shape.windows(*slice));
    let begins: BTreeSet<i64> = begins.filter(|begin| closes(*begin, release)).collect();
    let held = match (begins.first(), begins.last()) {
        (Some(first), Some(last)) => *first..last.saturating_add(shape.size()),
        _ => 0..0,
    };
    slices.retain(|slice, _| held.contains(slice));
    let first = |from: i64| slices.range(..from).count();
    let windows = begins.into_iter().map(|begin| WindowOfSlices {
        begin,
        slices: first(begin)..first(begin.saturating_add(shape.size())),
    });
    SharedSlices {
        windows: windows.collect(),
        slices: slices.into_values().collect(),
    }
}

/// Runs of a window behind which they are merged before they go on.
const MANY_RUNS: usize = 4;

/// Windows that close and are their own slices, if they are in many runs: many small epochs have left each
/// of their groups in several.
fn in_many_runs(partition: &Partition, release: Release) -> Option<SharedSlices> {
    let held = partition.kept.iter().chain(&partition.pending);
    let slices = by_slice(held.filter(|(slice, _)| closes(**slice, release)));
    if slices.values().map(Vec::len).sum::<usize>() <= slices.len() * MANY_RUNS {
        return None;
    }
    let windows = slices.keys().zip(0..).map(|(begin, at)| WindowOfSlices {
        begin: *begin,
        slices: at..at + 1,
    });
    Some(SharedSlices {
        windows: windows.collect(),
        slices: slices.into_values().collect(),
    })
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
