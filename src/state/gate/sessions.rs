//! A gate of sessions: their runs are in no slice.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::runtime_env::RuntimeEnv;

use super::super::counts::Turnover;
use super::super::epoch::{Epoch, FEW_ROWS};
use super::super::runs::Part;
use super::super::sessions::{OpenSessions, Session, replay};
use super::{Fragments, GateState, Partition, Release, lock};
use crate::config::OutputMode;
use crate::time::Closed;

/// Runs of the sessions that close in an epoch, or of all sessions in complete mode.
pub(super) fn released_sessions(
    open: &mut OpenSessions,
    release: Release,
) -> Result<Vec<RecordBatch>> {
    match release.mode {
        OutputMode::Complete => open.everything(),
        OutputMode::Append | OutputMode::Update => open.closing(release.after),
    }
}

impl GateState {
    fn all_open<T>(&self, of: impl Fn(&mut OpenSessions) -> T) -> Vec<T> {
        let partitions: Vec<_> = lock(&self.partitions).clone();
        let of = |partition: &Arc<Mutex<Partition>>| of(&mut lock(partition).open);
        partitions.iter().map(of).collect()
    }

    /// Adds rows of the running epoch.
    pub(super) fn absorb_sessions(
        &self,
        partition: usize,
        part: Part,
        epoch: &Epoch,
        runtime: &RuntimeEnv,
    ) -> Result<()> {
        epoch.state.reserve(&self.memory, part.bytes, runtime)?;
        let partition = self.partition(partition);
        let mut partition = lock(&partition);
        self.expects(epoch, part.bytes)?;
        partition.open.add(part);
        Ok(())
    }

    /// How many rows are released at the epoch's end, at most; of few rows that have come exactly.
    pub(super) fn releases_of_sessions(&self, release: Release) -> u64 {
        let of_partition = |open: &mut OpenSessions| {
            let came: usize = open.pending().iter().map(|run| run.batch.num_rows()).sum();
            let counted = match release.mode {
                OutputMode::Complete => None,
                _ if came > FEW_ROWS => None,
                // Who reads the partition gets the error.
                _ => open.count_closing(release.after).ok(),
            };
            counted.unwrap_or(open.held() + came) as u64
        };
        self.all_open(of_partition).into_iter().sum()
    }

    /// Ends the epoch: sessions that have closed leave.
    pub(super) fn commit_sessions(&self, closed: Closed) -> Result<Turnover> {
        self.absorbed.store(false, Ordering::SeqCst);
        let before = self.rows_in_sessions();
        // An error comes before any of them has changed.
        for settled in self.all_open(|open| open.settle(closed)) {
            settled?;
        }
        let settled = self.all_open(|open| open.commit(closed));
        let (mut turnover, mut left, mut bytes) = (Turnover::default(), 0, 0);
        for settled in settled {
            let settled = settled?;
            turnover.added += settled.added;
            turnover.removed += settled.removed;
            left += settled.left;
            bytes += settled.bytes;
        }
        self.memory.change(self.memory.bytes(), bytes);
        turnover.fates = std::mem::take(&mut lock(&self.rows).fates);
        debug_assert_eq!(
            before + turnover.fates.accepted,
            left + self.rows_in_sessions(),
            "rows were lost or doubled"
        );
        Ok(turnover)
    }

    /// Undoes what the running epoch did to the sessions.
    pub(super) fn abort_sessions(&self) {
        let bytes = self.all_open(OpenSessions::abort).into_iter().sum();
        self.memory.change(self.memory.bytes(), bytes);
    }

    /// How many sessions are open; none where they cannot be told from each other, as the next epoch will say.
    pub(super) fn count_sessions(&self) -> u64 {
        let counts = self.all_open(|open| open.count().unwrap_or_default() as u64);
        counts.into_iter().sum()
    }

    /// Where the session ends that ends first.
    pub(super) fn first_end(&self) -> Option<i64> {
        let ends = self.all_open(|open| open.first_end().unwrap_or_default());
        ends.into_iter().flatten().min()
    }

    /// Accepted rows in open sessions.
    pub(super) fn rows_in_sessions(&self) -> u64 {
        self.all_open(|open| open.accepted()).into_iter().sum()
    }

    /// The sessions that are open; none of a gate that has windows of another kind.
    ///
    /// # Errors
    /// - keys of a type that cannot be grouped by
    pub fn open_sessions(&self) -> Result<Vec<Session>> {
        let lists: Result<Vec<_>> = self.all_open(OpenSessions::list).into_iter().collect();
        Ok(lists?.concat())
    }

    /// All rows of a partition, if they are worth merging.
    pub(super) fn fragmented_sessions(
        &self,
        partition: usize,
        limit: usize,
    ) -> Result<Vec<Fragments>> {
        let partition = self.partition(partition);
        let open = &mut lock(&partition).open;
        if !open.is_fragmented(limit)? {
            return Ok(Vec::new());
        }
        Ok(vec![Fragments {
            slice: 0,
            first: 0,
            runs: open.everything()?,
        }])
    }

    /// Puts merged rows in the place of those of all sessions of a partition.
    pub(super) fn merged_sessions(&self, partition: usize, rows: Vec<RecordBatch>) -> Result<()> {
        let rows = rows.into_iter().map(Part::whole).collect();
        let merged = OpenSessions::of(rows, self.keys)?;
        let partition = self.partition(partition);
        let mut partition = lock(&partition);
        self.memory.change(partition.open.bytes(), merged.bytes());
        partition.open = merged;
        Ok(())
    }

    /// Puts the same rows in the place of those there are, in as many partitions as are given.
    pub(super) fn replace_sessions(&self, partitions: Vec<Vec<Part>>) -> Result<()> {
        let (mut new, mut bytes) = (Vec::new(), 0);
        for parts in partitions {
            let open = OpenSessions::of(parts, self.keys)?;
            bytes += open.bytes();
            new.push(Arc::new(Mutex::new(Partition {
                open,
                ..Partition::default()
            })));
        }
        *lock(&self.partitions) = new;
        self.memory.change(self.memory.bytes(), bytes);
        Ok(())
    }

    /// Takes rows of a checkpoint in again; sessions in `closed` have closed.
    pub(super) fn restore_sessions(&self, runs: &[RecordBatch], closed: Closed) -> Result<()> {
        let open = replay(runs, self.keys, closed)?;
        self.replace_sessions(vec![open.into_iter().map(Part::whole).collect()])
    }
}
