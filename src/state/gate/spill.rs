//! Runs of a gate that go to disk, and those that stay.
//!
//! Which go first: those of earlier epochs before those of the running one, which a checkpoint still reads; among
//! them those of the greatest slice, which are needed last.
//!
//! A run on disk is the same run: its place among the others of its slice stays, so an epoch that fails while it
//! spills is undone as any other.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::runtime_env::RuntimeEnv;

use super::{GateShape, GateState, Partition, Release, Slices, lock};
use crate::state::groups::KeyIndex;
use crate::state::runs::{self, Run};
use crate::state::spill::{OnDisk, copied};

/// A run that goes to disk.
struct Leaving {
    partition: Arc<Mutex<Partition>>,
    /// Whether it is of the running epoch.
    pending: bool,
    slice: i64,
    run: Run,
    batch: RecordBatch,
}

impl GateState {
    /// Whether runs can go to disk. Sessions are merged with one another in memory.
    fn can_spill(&self) -> bool {
        self.shape != GateShape::Sessions
    }

    /// Writes runs to disk until no more than `goal` bytes are in memory. Where there is no disk for that,
    /// nothing changes.
    ///
    /// # Errors
    /// - the disk is full, or the disk manager's limit is reached; then nothing changes
    pub(in crate::state) fn spill(&self, goal: usize, runtime: &RuntimeEnv) -> Result<()> {
        let held = self.memory.bytes();
        if !self.can_spill() || held <= goal {
            return Ok(());
        }
        let leaving = self.leaving(held - goal);
        let batches: Vec<RecordBatch> = leaving.iter().map(|one| one.batch.clone()).collect();
        let Some(written) = self.write(&batches, runtime)? else {
            return Ok(());
        };
        drop(batches);
        for (one, at) in leaving.into_iter().zip(written) {
            let mut partition = lock(&one.partition);
            let Partition { kept, pending, .. } = &mut *partition;
            let slices = [pending, kept].into_iter();
            let mut runs = slices.filter_map(|slices| slices.get_mut(&one.slice));
            // An epoch that has been undone meanwhile has taken its runs along.
            let run = runs.find_map(|runs| runs.iter_mut().find(|run| run.is(&one.run)));
            if let Some(run) = run {
                let bytes = run.bytes;
                run.put_on_disk(at);
                self.memory.free(bytes);
            }
        }
        self.part_from_others()
    }

    /// Runs in memory of so many bytes, in the order in which they go; all where there are not so many.
    fn leaving(&self, bytes: usize) -> Vec<Leaving> {
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let mut all = Vec::new();
        for partition in partitions {
            let held = lock(&partition);
            let mut take = |slices: &Slices, pending| {
                let runs = slices
                    .iter()
                    .flat_map(|(slice, runs)| runs.iter().map(move |run| (*slice, run)));
                all.extend(runs.filter_map(|(slice, run)| {
                    Some(Leaving {
                        partition: Arc::clone(&partition),
                        pending,
                        slice,
                        run: run.clone(),
                        batch: run.in_memory()?.clone(),
                    })
                }));
            };
            take(&held.kept, false);
            take(&held.pending, true);
        }
        all.sort_by_key(|one| (one.pending, Reverse(one.slice)));
        let mut chosen = 0;
        let last = all.iter().position(|one| {
            chosen += one.run.bytes;
            chosen >= bytes
        });
        all.truncate(last.map_or(all.len(), |last| last + 1));
        all
    }

    /// Copies runs that share their memory with others which have left: it would not be free otherwise.
    fn part_from_others(&self) -> Result<()> {
        let partitions: Vec<_> = lock(&self.partitions).clone();
        for partition in partitions {
            let mut partition = lock(&partition);
            let Partition { kept, pending, .. } = &mut *partition;
            for run in kept.values_mut().chain(pending.values_mut()).flatten() {
                let Some(batch) = run.in_memory() else {
                    continue;
                };
                if batch.get_array_memory_size() <= run.bytes.saturating_mul(2) {
                    continue;
                }
                let copy = copied(batch)?;
                let index = match self.indexed {
                    true => copy.num_rows() * KeyIndex::ROW_BYTES,
                    false => 0,
                };
                let (before, after) = (run.bytes, copy.get_array_memory_size() + index);
                run.put_alone(copy, after);
                self.memory.change(before, after);
            }
        }
        Ok(())
    }

    /// Writes runs that have no room in memory before they are taken in. Whether it could be done.
    ///
    /// # Errors
    /// - the disk is full, or the disk manager's limit is reached
    pub(super) fn put_on_disk(
        &self,
        runs: &mut [(i64, Run)],
        runtime: &RuntimeEnv,
    ) -> Result<bool> {
        if !self.can_spill() {
            return Ok(false);
        }
        let batches = runs.iter().map(|(_, run)| run.load());
        let batches = batches.collect::<Result<Vec<_>>>()?;
        let Some(written) = self.write(&batches, runtime)? else {
            return Ok(false);
        };
        for ((_, run), at) in runs.iter_mut().zip(written) {
            run.put_on_disk(at);
        }
        Ok(true)
    }

    fn write(&self, runs: &[RecordBatch], runtime: &RuntimeEnv) -> Result<Option<Vec<OnDisk>>> {
        let name = self.memory.name();
        let written = self.files.write(name, &runtime.disk_manager, runs);
        let written = written.map_err(|error| {
            error.context(format!(
                "{name} has no memory, and its state cannot be written to disk"
            ))
        })?;
        if written.is_some() {
            self.on_disk.store(true, Ordering::SeqCst);
        }
        Ok(written)
    }

    /// Makes room in the pool for who takes in what is released: an aggregate that finds the pool full of the
    /// state it reads could not even begin to spill.
    ///
    /// # Errors
    /// - the state cannot be written to disk
    pub fn make_room(&self, release: Release, runtime: &RuntimeEnv) -> Result<()> {
        if !self.can_spill() {
            return Ok(());
        }
        let pool = &runtime.memory_pool;
        let MemoryLimit::Finite(limit) = pool.memory_limit() else {
            return Ok(());
        };
        let free = limit.saturating_sub(pool.reserved());
        let bytes = |runs: &[Run]| runs.iter().map(Run::size).sum();
        let released = self.released_in_all(release, bytes);
        // A table of groups takes about twice as much as the runs that it is made of.
        let wanted = usize::try_from(released).unwrap_or(usize::MAX);
        let wanted = wanted.saturating_mul(2).clamp(limit / 8, limit);
        if released == 0 || wanted <= free {
            return Ok(());
        }
        self.spill(self.memory.bytes().saturating_sub(wanted - free), runtime)
    }

    /// Whether runs have gone to disk since there was none there.
    pub(super) fn is_on_disk(&self) -> bool {
        self.on_disk.load(Ordering::SeqCst)
    }

    /// Bytes of state of earlier epochs that are on disk.
    pub fn spilled_bytes(&self) -> u64 {
        if !self.is_on_disk() {
            return 0;
        }
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let bytes = partitions.iter().map(|partition| {
            let partition = lock(partition);
            let runs = partition.kept.values().flatten();
            runs.map(Run::disk_bytes).sum::<u64>()
        });
        bytes.sum()
    }

    /// Takes note at an epoch's end that nothing is on disk any more.
    pub(super) fn settle_disk(&self) {
        if self.is_on_disk() && self.spilled_bytes() == 0 {
            self.on_disk.store(false, Ordering::SeqCst);
            self.files.close();
        }
    }

    /// Of the runs of a slice, where those begin that are all in memory.
    pub(super) fn behind_disk(&self, runs: &[Run]) -> usize {
        match self.is_on_disk() {
            true => runs::behind_disk(runs),
            false => 0,
        }
    }
}
