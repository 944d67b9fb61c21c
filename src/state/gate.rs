//! The gate: partial states of open windows stay, those of closed windows come out.
//!
//! State is, for each partition and slice, *runs* of partial-state rows: `(slice, keys …, states …)`.
//! An epoch adds its runs as pending ([`GateState::absorb`]), takes what the output mode emits
//! ([`GateState::release`]), and commits: pending runs join the others and closed slices are evicted.
//!
//! ```text
//! tumbling, append, W passes the end of slice 10
//!   before   10: [run run]   20: [run]        pending   10: [run]   20: [run]
//!   release  10: run run run
//!   after    20: [run run]
//! ```
//!
//! Rows of small epochs may wait to be aggregated until more have come (`waiting.rs`).
//!
//! Where windows hop, a run comes out once for each window that emits, its slice replaced by the
//! window's begin; it is evicted when the newest window that holds it has closed.
//!
//! Invariants:
//! - A window is emitted in append mode at most once: only windows not closed at the epoch's start
//!   are released, and rows of closed ones never arrive (the assignment drops them as late).
//! - A run is never changed in place, so a failed epoch is undone by dropping what is pending.

mod release;
mod saved;
mod sessions;
mod spill;
mod waiting;

pub use release::{Released, SharedSlices, WindowOfSlices};
pub(super) use saved::rows_in;
pub use saved::{GateAdded, rows_of};
pub use waiting::{ENOUGH_BATCHES, ENOUGH_ROWS, Ripe, Waiting};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Result, exec_err};
use datafusion::execution::runtime_env::RuntimeEnv;

use super::assign::LATE;
use super::counts::{Fates, Turnover};
use super::epoch::Epoch;
use super::groups::KeyIndex;
use super::memory::StateMemory;
use super::runs::{self, Part, Run, TIMELESS};
use super::sessions::OpenSessions;
use super::spill::SpillFiles;
use crate::config::OutputMode;
use crate::time::{Closed, WindowShape};

/// How slices make windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateShape {
    /// A slice is a window, or another group in time, of its own.
    One,
    /// A slice is in several hopping windows.
    Hopping(WindowShape),
    /// Sessions: runs begin with two bounds, and one slice holds all.
    Sessions,
    /// There is no time: one slice holds all.
    Timeless,
}

impl GateShape {
    /// Begins of the windows that a slice is in, newest first.
    fn windows(&self, slice: i64) -> impl Iterator<Item = i64> + use<> {
        let (itself, several) = match self {
            _ if slice == TIMELESS => (Some(TIMELESS), None),
            GateShape::One => (Some(slice), None),
            GateShape::Hopping(shape) => (None, Some(shape.windows(slice))),
            GateShape::Timeless | GateShape::Sessions => (None, None),
        };
        itself.into_iter().chain(several.into_iter().flatten())
    }

    /// Whether any window that a slice is in has closed: the oldest one then has.
    fn is_reached(&self, slice: i64, closed: Closed) -> bool {
        let oldest = self.windows(slice).last();
        oldest.is_some_and(|oldest| closed.contains(oldest))
    }

    /// Begin of the newest window that a slice is in: when it has closed, all have.
    fn newest(&self, slice: i64) -> i64 {
        if slice == TIMELESS {
            return TIMELESS;
        }
        match self {
            GateShape::Hopping(shape) => shape.newest(slice).unwrap_or(slice),
            GateShape::One | GateShape::Timeless | GateShape::Sessions => slice,
        }
    }
}

/// What one epoch's release depends on.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    /// Output mode.
    pub mode: OutputMode,
    /// Windows closed when the epoch began.
    pub before: Closed,
    /// Windows closed when it ends.
    pub after: Closed,
}

/// Runs of one slice that are to be merged.
#[derive(Debug)]
pub struct Fragments {
    slice: i64,
    /// Place of the first of them among the slice's runs; they are the last.
    first: usize,
    /// Their rows.
    pub runs: Vec<RecordBatch>,
}

/// Runs by slice.
type Slices = BTreeMap<i64, Vec<Run>>;

/// The runs of one partition.
#[derive(Debug, Default)]
struct Partition {
    kept: Slices,
    pending: Slices,
    /// The runs of sessions, which are in no slice.
    open: OpenSessions,
}

/// State of one gate.
#[derive(Debug)]
pub struct GateState {
    shape: GateShape,
    /// Key columns behind the slice in a run.
    keys: usize,
    /// Whether groups without a time count rows that come too late for their windows.
    counts_late: bool,
    /// Whether groups are sought in runs, which takes an index.
    indexed: bool,
    partitions: Mutex<Vec<Arc<Mutex<Partition>>>>,
    rows: Mutex<Rows>,
    waiting: Mutex<waiting::Queue>,
    memory: StateMemory,
    files: SpillFiles,
    /// Whether there may be runs on disk.
    on_disk: AtomicBool,
    /// Whether the epoch's rows have come in.
    absorbed: AtomicBool,
    /// Held by who takes them in.
    intake: tokio::sync::Mutex<()>,
    /// Whether rows of the last epochs hardly shared groups.
    sparse: AtomicBool,
    /// Whether the last epoch had few rows.
    small: AtomicBool,
    /// The turn that may write: it moves on when an epoch is undone.
    turn: Arc<AtomicU64>,
}

/// Accepted rows by slice, and the fates of the running epoch.
#[derive(Debug, Default)]
struct Rows {
    kept: BTreeMap<i64, u64>,
    pending: BTreeMap<i64, u64>,
    fates: Fates,
    /// Rows accepted so far, and those of them that left with closed windows.
    accepted: u64,
    evicted: u64,
}

impl Rows {
    /// Every accepted row is in an open window or has left with a closed one.
    fn conserved(&self) -> bool {
        self.accepted == self.evicted + self.kept.values().sum::<u64>()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // An epoch that panicked is rolled back before the next one begins.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GateState {
    /// An empty gate, named as errors name it.
    pub fn new(
        name: impl Into<String>,
        shape: GateShape,
        keys: usize,
        counts_late: bool,
        mode: OutputMode,
        turn: Arc<AtomicU64>,
    ) -> Self {
        Self {
            shape,
            keys,
            counts_late,
            indexed: mode == OutputMode::Update && keys > 0,
            partitions: Mutex::default(),
            rows: Mutex::default(),
            waiting: Mutex::default(),
            memory: StateMemory::new(
                name,
                "for the open windows; shorten the delay or close windows sooner",
            ),
            files: SpillFiles::default(),
            on_disk: AtomicBool::new(false),
            sparse: AtomicBool::new(false),
            small: AtomicBool::new(false),
            absorbed: AtomicBool::new(false),
            intake: tokio::sync::Mutex::default(),
            turn,
        }
    }

    fn partition(&self, index: usize) -> Arc<Mutex<Partition>> {
        let mut partitions = lock(&self.partitions);
        while partitions.len() <= index {
            partitions.push(Arc::new(Mutex::new(Partition {
                open: OpenSessions::new(self.keys),
                ..Partition::default()
            })));
        }
        Arc::clone(&partitions[index])
    }

    /// How many partitions hold state.
    pub fn partitions(&self) -> usize {
        lock(&self.partitions).len()
    }

    /// Whether the epoch's rows have come in.
    pub fn absorbed(&self) -> bool {
        self.absorbed.load(Ordering::SeqCst)
    }

    /// Whether rows of the last epochs hardly shared groups: what partial aggregation learned.
    pub fn is_sparse(&self) -> bool {
        self.sparse.load(Ordering::Relaxed)
    }

    /// Notes whether rows hardly share groups.
    pub fn set_sparse(&self, sparse: bool) {
        self.sparse.store(sparse, Ordering::Relaxed);
    }

    /// The right to take the epoch's rows in: whoever gets it looks first whether they have come.
    pub async fn intake(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.intake.lock().await
    }

    /// Whether a partition holds nothing.
    pub fn is_empty(&self, partition: usize) -> bool {
        let partition = self.partition(partition);
        let partition = lock(&partition);
        partition.kept.is_empty() && partition.pending.is_empty() && partition.open.is_empty()
    }

    /// Notes that all of the epoch's rows have come in.
    pub fn set_absorbed(&self) {
        self.absorbed.store(true, Ordering::SeqCst);
    }

    /// The runs of a batch, by slice.
    fn cut(&self, part: Part) -> Result<Vec<(i64, Run)>> {
        let mut runs = runs::by_slice(part)?;
        runs.iter_mut().for_each(|(_, run)| self.with_index(run));
        Ok(runs)
    }

    /// Counts the memory of a run's index with that of the run.
    fn with_index(&self, run: &mut Run) {
        if self.indexed {
            run.bytes += run.rows() * KeyIndex::ROW_BYTES;
        }
    }

    /// Adds partial states of the running epoch. Those that the memory pool has no room for go to disk.
    ///
    /// # Errors
    /// - the memory pool has no room for them, and they cannot be on disk
    /// - the epoch was undone
    pub fn absorb(
        &self,
        partition: usize,
        part: Part,
        epoch: &Epoch,
        runtime: &RuntimeEnv,
    ) -> Result<()> {
        if self.shape == GateShape::Sessions {
            return self.absorb_sessions(partition, part, epoch, runtime);
        }
        let mut runs = self.cut(part)?;
        if self.counts_late {
            // Rows that are too late for their windows have counted in the groups without one.
            runs.retain(|(slice, _)| *slice != LATE);
        }
        let bytes = runs.iter().map(|(_, run)| run.bytes).sum();
        if let Err(no_room) = epoch.state.reserve(&self.memory, bytes, runtime)
            && !self.put_on_disk(&mut runs, runtime)?
        {
            return Err(no_room);
        }
        let partition = self.partition(partition);
        let mut partition = lock(&partition);
        self.expects(epoch, runs.iter().map(|(_, run)| run.bytes).sum())?;
        for (slice, run) in runs {
            partition.pending.entry(slice).or_default().push(run);
        }
        Ok(())
    }

    /// Whether an epoch is the one that runs, asked under the lock of what its rows, for which so many bytes were reserved,
    /// are added to: it may have been undone while its last rows were on their way.
    ///
    /// # Errors
    /// - it was; then the bytes are free again
    fn expects(&self, epoch: &Epoch, bytes: usize) -> Result<()> {
        if epoch.turn() == self.turn.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.memory.free(bytes);
        exec_err!("the epoch was given up")
    }

    /// Notes the fates of rows, and the slices of the accepted ones.
    pub fn note(&self, fates: Fates, accepted: BTreeMap<i64, u64>, epoch: u64) {
        let mut rows = lock(&self.rows);
        if epoch != self.turn.load(Ordering::SeqCst) {
            return;
        }
        rows.fates.add(fates);
        let windows = accepted
            .into_iter()
            .filter(|(slice, _)| !self.counts_late || *slice != LATE);
        for (slice, count) in windows {
            *rows.pending.entry(slice).or_default() += count;
        }
    }

    /// Ends the epoch: what came in stays, what closed leaves. Returns what it did.
    ///
    /// # Errors
    /// - sessions that nobody has read cannot be merged
    pub fn commit(&self, mode: OutputMode, after: Closed) -> Result<Turnover> {
        let closed = if mode == OutputMode::Complete || self.shape == GateShape::Timeless {
            Closed::None
        } else {
            after
        };
        if self.shape == GateShape::Sessions {
            return self.commit_sessions(closed);
        }
        self.absorbed.store(false, Ordering::SeqCst);
        let evict = |slice: i64| closed.contains(self.shape.newest(slice));
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let (mut freed, mut added, mut removed) = (0, 0, 0);
        for partition in partitions {
            let mut partition = lock(&partition);
            for (slice, runs) in std::mem::take(&mut partition.pending) {
                added += runs::rows(&runs);
                partition.kept.entry(slice).or_default().extend(runs);
            }
            while let Some(first) = partition
                .kept
                .first_entry()
                .filter(|first| evict(*first.key()))
            {
                let runs = first.remove();
                removed += runs::rows(&runs);
                freed += runs::bytes(&runs);
            }
        }
        let (waited, free) = lock(&self.waiting).commit(evict);
        self.memory.free(freed + free);
        self.settle_disk();
        let mut rows = lock(&self.rows);
        let is_small = rows.fates.rows() <= ENOUGH_ROWS as u64;
        self.small.store(is_small, Ordering::Relaxed);
        for (slice, count) in std::mem::take(&mut rows.pending) {
            rows.accepted += count;
            *rows.kept.entry(slice).or_default() += count;
        }
        let mut gone = 0;
        while let Some(first) = rows.kept.first_entry().filter(|first| evict(*first.key())) {
            gone += first.remove();
        }
        rows.evicted += gone;
        debug_assert!(rows.conserved(), "rows were lost or doubled");
        Ok(Turnover {
            fates: std::mem::take(&mut rows.fates),
            added: added + waited.added,
            removed: removed + waited.removed,
        })
    }

    /// Undoes the running epoch.
    pub fn abort(&self) {
        for partition in lock(&self.partitions).iter() {
            let mut partition = lock(partition);
            let pending = std::mem::take(&mut partition.pending);
            self.memory
                .free(pending.values().map(|runs| runs::bytes(runs)).sum());
        }
        if self.shape == GateShape::Sessions {
            self.abort_sessions();
        }
        self.memory.free(lock(&self.waiting).abort());
        self.absorbed.store(false, Ordering::SeqCst);
        let mut rows = lock(&self.rows);
        rows.pending.clear();
        rows.fates = Fates::default();
    }

    /// Number of windows that hold rows and have not closed; of sessions, each key's for itself.
    pub fn open_windows(&self, closed: Closed) -> u64 {
        if self.shape == GateShape::Sessions {
            return self.count_sessions();
        }
        let rows = lock(&self.rows);
        let windows = rows
            .kept
            .keys()
            .flat_map(|slice| self.shape.windows(*slice));
        let open = windows.filter(|begin| !closed.contains(*begin));
        match self.shape {
            GateShape::One => open.count() as u64,
            // Slices share windows.
            _ => open.collect::<BTreeSet<i64>>().len() as u64,
        }
    }

    /// The oldest window that holds rows and has not closed: its begin, of sessions its end.
    pub fn oldest(&self, closed: Closed) -> Option<i64> {
        match self.shape {
            GateShape::Timeless => None,
            GateShape::Sessions => self.first_end(),
            GateShape::One | GateShape::Hopping(_) => {
                let rows = lock(&self.rows);
                rows.kept.keys().find_map(|slice| {
                    let windows = self.shape.windows(*slice);
                    windows.filter(|begin| !closed.contains(*begin)).min()
                })
            }
        }
    }

    /// Accepted rows that are still in an open window.
    pub fn open_rows(&self) -> u64 {
        match self.shape {
            GateShape::Timeless => 0,
            GateShape::Sessions => self.rows_in_sessions(),
            GateShape::One | GateShape::Hopping(_) => lock(&self.rows).kept.values().sum(),
        }
    }

    /// Accepted rows by slice, of slices with an open window; empty where slices are no windows.
    pub fn rows_by_slice(&self) -> Vec<(i64, u64)> {
        match self.shape {
            GateShape::Timeless | GateShape::Sessions => Vec::new(),
            GateShape::One | GateShape::Hopping(_) => {
                let rows = lock(&self.rows);
                let kept = rows.kept.iter().filter(|(slice, _)| **slice != TIMELESS);
                kept.map(|(slice, rows)| (*slice, *rows)).collect()
            }
        }
    }

    /// Rows of state held: groups, counted once for each run they are in, and rows that wait to be aggregated.
    pub fn held_rows(&self) -> u64 {
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let rows = partitions.iter().map(|partition| {
            let partition = lock(partition);
            let kept = partition.kept.values().map(|runs| runs::rows(runs));
            kept.sum::<u64>() + partition.open.held() as u64
        });
        rows.sum::<u64>() + lock(&self.waiting).rows()
    }

    /// Bytes of state held in memory.
    pub fn held_bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }

    /// What it has reserved.
    pub(super) fn memory(&self) -> &StateMemory {
        &self.memory
    }

    /// Runs of a partition that are to be merged: the newest of a slice that has more than `limit`, and
    /// with them older ones that are no larger than they together. So a row is merged as often as the
    /// number of rows doubles, and a large run is not read for the sake of small ones; one on disk and those
    /// before it neither. All sessions when they are in many rows, each of another epoch.
    ///
    /// # Errors
    /// - sessions cannot be told from each other
    pub fn fragmented(&self, partition: usize, limit: usize) -> Result<Vec<Fragments>> {
        if self.shape == GateShape::Sessions {
            return self.fragmented_sessions(partition, limit);
        }
        let partition = self.partition(partition);
        let partition = lock(&partition);
        let slices = partition.kept.iter().filter_map(|(slice, runs)| {
            let from = self.behind_disk(runs);
            let rest = runs.get(from..).unwrap_or_default();
            let first = (rest.len() > limit).then(|| from + runs::newest(rest, limit))?;
            let rest = runs.get(first..).unwrap_or_default();
            Some(Fragments {
                slice: *slice,
                first,
                runs: rest.iter().filter_map(Run::in_memory).cloned().collect(),
            })
        });
        Ok(slices.collect())
    }

    /// The runs as those of one window, which begins where their slice does. None of sessions, nor of groups
    /// without a time: the first columns of such runs are not one slice.
    pub fn as_window(&self, fragments: &Fragments) -> Option<SharedSlices> {
        match self.shape {
            GateShape::One | GateShape::Hopping(_) if fragments.slice != TIMELESS => {
                Some(SharedSlices {
                    windows: vec![WindowOfSlices {
                        begin: fragments.slice,
                        slices: 0..1,
                    }],
                    slices: vec![fragments.runs.clone()],
                })
            }
            _ => None,
        }
    }

    /// Puts merged runs in the place of those that they were merged from: the same groups.
    ///
    /// # Errors
    /// - they are no runs; then nothing is changed
    pub fn compacted(
        &self,
        partition: usize,
        of: &Fragments,
        merged: Vec<RecordBatch>,
    ) -> Result<()> {
        if self.shape == GateShape::Sessions {
            return self.merged_sessions(partition, merged);
        }
        let mut merged: Vec<Run> = merged.into_iter().map(Run::whole).collect();
        merged.iter_mut().for_each(|run| self.with_index(run));
        let after = runs::bytes(&merged);
        let partition = self.partition(partition);
        let mut partition = lock(&partition);
        let runs = partition.kept.entry(of.slice).or_default();
        let before = runs::bytes(runs.get(of.first..).unwrap_or_default());
        runs.truncate(of.first);
        runs.extend(merged);
        self.memory.change(before, after);
        Ok(())
    }

    /// All runs of earlier epochs, one after the other; what is on disk is read on the way.
    pub fn all_runs(&self) -> impl Iterator<Item = Result<RecordBatch>> + use<> {
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let (mut all, mut open) = (Vec::new(), Vec::new());
        for partition in &partitions {
            let partition = lock(partition);
            all.extend(partition.kept.values().flatten().cloned());
            match partition.open.runs() {
                Ok(runs) => open.extend(runs.into_iter().map(Ok)),
                Err(error) => open.push(Err(error)),
            }
        }
        all.into_iter().map(|run| run.load()).chain(open)
    }

    /// Puts the same runs in the place of those there are, in as many partitions as are given.
    ///
    /// # Errors
    /// - they are no runs; then nothing is changed
    pub fn replace_all(&self, partitions: Vec<Vec<Part>>) -> Result<()> {
        if self.shape == GateShape::Sessions {
            return self.replace_sessions(partitions);
        }
        let (mut new, mut after) = (Vec::new(), 0);
        for parts in partitions {
            let mut partition = Partition::default();
            let runs = parts.into_iter().map(|part| self.cut(part));
            let runs: Vec<_> = runs.collect::<Result<_>>()?;
            for (slice, run) in runs.into_iter().flatten() {
                after += run.bytes;
                partition.kept.entry(slice).or_default().push(run);
            }
            new.push(Arc::new(Mutex::new(partition)));
        }
        let old = std::mem::replace(&mut *lock(&self.partitions), new);
        let before = old.iter().map(|partition| {
            let partition = lock(partition);
            partition
                .kept
                .values()
                .map(|runs| runs::bytes(runs))
                .sum::<usize>()
        });
        self.memory.change(before.sum(), after);
        Ok(())
    }
}
