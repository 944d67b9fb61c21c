//! What a partition emits at an epoch's end, in each output mode.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;

use super::super::groups::Groups;
use super::super::runs::{self, Run, TIMELESS};
use super::sessions::released_sessions;
use super::{GateShape, GateState, Partition, Release, Slices, lock};
use crate::config::OutputMode;
use crate::time::WindowShape;

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

/// Runs that come out, each for a window or for all groups. Those on disk are read one after the other, when they
/// are asked for.
#[derive(Debug, Default)]
pub struct Released {
    out: std::vec::IntoIter<Out>,
    on_disk: bool,
    /// The run that was read last: it may come out for several windows.
    read: Option<(Run, RecordBatch)>,
}

/// A run that comes out.
#[derive(Debug)]
struct Out {
    run: Run,
    slice: i64,
    /// The window that it is for.
    begin: i64,
}

impl Released {
    fn new(out: Vec<Out>) -> Self {
        Self {
            on_disk: out.iter().any(|out| out.run.in_memory().is_none()),
            out: out.into_iter(),
            read: None,
        }
    }

    /// Puts them in the order of their windows.
    pub fn put_in_order(&mut self) {
        let mut out: Vec<Out> = std::mem::take(&mut self.out).collect();
        out.sort_by_key(|out| out.begin);
        self.out = out.into_iter();
    }

    /// Whether any of them is on disk.
    pub fn is_on_disk(&self) -> bool {
        self.on_disk
    }

    fn read(&mut self, run: Run) -> Result<RecordBatch> {
        if let Some(batch) = run.in_memory() {
            return Ok(batch.clone());
        }
        match &self.read {
            Some((known, batch)) if known.is(&run) => Ok(batch.clone()),
            _ => {
                self.read = None;
                let batch = run.load()?;
                self.read = Some((run, batch.clone()));
                Ok(batch)
            }
        }
    }
}

impl Iterator for Released {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let Out { run, slice, begin } = self.out.next()?;
        let batch = self.read(run);
        Some(match slice == begin {
            true => batch,
            false => batch.and_then(|batch| runs::moved(&batch, begin)),
        })
    }
}

impl GateState {
    /// How many rows of partial state are released at the epoch's end, at most: once none that waits is to be among them.
    pub fn releases(&self, release: Release) -> u64 {
        if self.shape == GateShape::Sessions {
            return self.releases_of_sessions(release);
        }
        self.released_in_all(release, runs::rows)
    }

    /// The same in what `of` counts of runs.
    pub(super) fn released_in_all(&self, release: Release, of: impl Fn(&[Run]) -> u64) -> u64 {
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let counts = partitions.iter().map(|partition| {
            let partition = lock(partition);
            let count = |slices: &Slices| self.released(slices, release, &of);
            match release.mode {
                OutputMode::Append => count(&partition.kept) + count(&partition.pending),
                // The touched groups are in as many runs as there are.
                OutputMode::Update => count(&partition.pending),
                OutputMode::Complete => count(&partition.kept) + count(&partition.pending),
            }
        });
        counts.sum()
    }

    /// What is counted of the slices that are released.
    fn released(&self, slices: &Slices, release: Release, of: impl Fn(&[Run]) -> u64) -> u64 {
        let append = release.mode == OutputMode::Append;
        let counts = slices.iter().map(|(slice, runs)| match self.shape {
            _ if !append => of(runs),
            GateShape::Timeless | GateShape::Sessions => 0,
            GateShape::One | GateShape::Hopping(_) => {
                match self.shape.is_reached(*slice, release.after) {
                    true => of(runs),
                    false => 0,
                }
            }
        });
        counts.sum()
    }

    /// The runs that a partition emits at the epoch's end, each with the slice of the group it is for.
    ///
    /// # Errors
    /// - sessions or keys cannot be compared
    /// - a run on disk cannot be read
    pub fn release(&self, partition: usize, release: Release) -> Result<Released> {
        let partition = self.partition(partition);
        let mut partition = lock(&partition);
        if self.shape == GateShape::Sessions {
            let sessions = released_sessions(&mut partition.open, release)?;
            let out = sessions.into_iter().map(|batch| Out::made(batch, 0));
            return Ok(Released::new(out.collect()));
        }
        Ok(Released::new(match release.mode {
            OutputMode::Append => self.closing(&partition, release),
            OutputMode::Update => self.touched(&partition, release)?,
            OutputMode::Complete => self.everything(&partition),
        }))
    }

    /// Windows that close in this epoch in append mode, and the slices that they share or that are in many
    /// runs; none where each run comes out as it is, as all do when one of them is on disk: these windows are
    /// made in memory.
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
            GateShape::Hopping(shape) => hopping(shape, &partition, release),
            GateShape::One => in_many_runs(&partition, release),
            GateShape::Sessions | GateShape::Timeless => None,
        }
    }

    /// Runs of the windows that close in this epoch.
    fn closing(&self, partition: &Partition, release: Release) -> Vec<Out> {
        let mut out = Vec::new();
        let reached = |slice: &i64| self.shape.is_reached(*slice, release.after);
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
            let windows: Vec<i64> = windows.filter(|begin| closes(*begin, release)).collect();
            emit(&mut out, runs, *slice, &windows);
        }
        out
    }

    /// Runs of the groups that this epoch touched, in the windows that were open when it began.
    fn touched(&self, partition: &Partition, release: Release) -> Result<Vec<Out>> {
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
    fn touched_window(&self, partition: &Partition, window: Option<i64>) -> Result<Vec<Out>> {
        let pending = self.within(&partition.pending, window);
        let touched = pending.iter().flat_map(|(_, runs)| runs.iter());
        let Some(groups) = Groups::of(self.keys, touched.map(Run::load))? else {
            return Ok(Vec::new());
        };
        let mut out = Vec::new();
        for (slice, runs) in self.within(&partition.kept, window) {
            let begin = window.unwrap_or(slice);
            for run in runs {
                let found = groups.of_run(run)?;
                if found.num_rows() > 0 {
                    out.push(Out {
                        begin,
                        ..Out::made(found, slice)
                    });
                }
            }
        }
        for (slice, runs) in pending {
            emit(&mut out, runs, slice, &[window.unwrap_or(slice)]);
        }
        Ok(out)
    }

    /// The slices of a window with their runs; all where there is no time.
    fn within<'a>(&self, slices: &'a Slices, window: Option<i64>) -> Vec<(i64, &'a [Run])> {
        let inside = |slice: i64| match (self.shape, window) {
            (_, None) => true,
            (GateShape::One, Some(begin)) => slice == begin,
            (_, Some(begin)) => self.shape.windows(slice).any(|one| one == begin),
        };
        let slices = slices.iter().filter(|(slice, _)| inside(**slice));
        slices
            .map(|(slice, runs)| (*slice, runs.as_slice()))
            .collect()
    }

    /// Runs of all groups.
    fn everything(&self, partition: &Partition) -> Vec<Out> {
        let mut out = Vec::new();
        for (slice, runs) in partition.kept.iter().chain(&partition.pending) {
            let windows = match self.shape {
                GateShape::Timeless => vec![*slice],
                _ => self.shape.windows(*slice).collect(),
            };
            emit(&mut out, runs, *slice, &windows);
        }
        out
    }
}

impl Out {
    /// A run that was made to come out.
    fn made(batch: RecordBatch, slice: i64) -> Self {
        Self {
            run: Run::part(batch, 0),
            slice,
            begin: slice,
        }
    }
}

/// Whether a window closes in an epoch.
fn closes(begin: i64, release: Release) -> bool {
    release.after.contains(begin) && !release.before.contains(begin)
}

/// The runs of a partition by slice, those of earlier epochs first; none if one is on disk.
fn by_slice<'a>(
    slices: impl Iterator<Item = (&'a i64, &'a Vec<Run>)>,
) -> Option<BTreeMap<i64, Vec<RecordBatch>>> {
    let mut all: BTreeMap<i64, Vec<RecordBatch>> = BTreeMap::new();
    for (slice, runs) in slices {
        let of_slice = all.entry(*slice).or_default();
        for run in runs {
            of_slice.push(run.in_memory()?.clone());
        }
    }
    Some(all)
}

/// Hopping windows that close, and the slices that they share.
fn hopping(shape: WindowShape, partition: &Partition, release: Release) -> Option<SharedSlices> {
    let all = partition.kept.keys().chain(partition.pending.keys());
    let begins = all.flat_map(|slice| shape.windows(*slice));
    let begins: BTreeSet<i64> = begins.filter(|begin| closes(*begin, release)).collect();
    let held = match (begins.first(), begins.last()) {
        (Some(first), Some(last)) => *first..last.saturating_add(shape.size()),
        _ => 0..0,
    };
    let all = partition.kept.iter().chain(&partition.pending);
    let slices = by_slice(all.filter(|(slice, _)| held.contains(slice)))?;
    let first = |from: i64| slices.range(..from).count();
    let windows = begins.into_iter().map(|begin| WindowOfSlices {
        begin,
        slices: first(begin)..first(begin.saturating_add(shape.size())),
    });
    Some(SharedSlices {
        windows: windows.collect(),
        slices: slices.into_values().collect(),
    })
}

/// Runs of a window behind which they are merged before they go on.
const MANY_RUNS: usize = 4;

/// Windows that close and are their own slices, if they are in many runs: many small epochs have left each
/// of their groups in several.
fn in_many_runs(partition: &Partition, release: Release) -> Option<SharedSlices> {
    let kept = || that_close(&partition.kept, release);
    let pending = || that_close(&partition.pending, release);
    // They are counted before their rows are asked for: few runs are what most epochs have.
    let runs: usize = kept().chain(pending()).map(|(_, runs)| runs.len()).sum();
    let new = pending().filter(|(slice, _)| !partition.kept.contains_key(*slice));
    if runs <= (kept().count() + new.count()) * MANY_RUNS {
        return None;
    }
    let slices = by_slice(kept().chain(pending()))?;
    let windows = slices.keys().zip(0..).map(|(begin, at)| WindowOfSlices {
        begin: *begin,
        slices: at..at + 1,
    });
    Some(SharedSlices {
        windows: windows.collect(),
        slices: slices.into_values().collect(),
    })
}

/// The slices that are windows that close in an epoch, with their runs.
fn that_close(slices: &Slices, release: Release) -> impl Iterator<Item = (&i64, &Vec<Run>)> {
    let reached = slices
        .iter()
        .take_while(move |(slice, _)| release.after.contains(**slice));
    reached.filter(move |(slice, _)| closes(**slice, release))
}

/// Adds runs to the output, for windows that begin there; empty ones are left out.
fn emit(out: &mut Vec<Out>, runs: &[Run], slice: i64, windows: &[i64]) {
    for run in runs.iter().filter(|run| run.rows() > 0) {
        out.extend(windows.iter().map(|begin| Out {
            run: run.clone(),
            slice,
            begin: *begin,
        }));
    }
}
