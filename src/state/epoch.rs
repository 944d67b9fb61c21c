//! One epoch, as the nodes of a plan see it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use futures::future::BoxFuture;

use super::aside::SetAside;
use super::dedup::DedupState;
use super::gate::{GateState, rows_in, rows_of};
use super::memory::StateMemory;
use super::runs::Part;
use super::sessions::{self, OpenSessions, Session};
use super::times::EventTimes;
use super::watermarks::{Observed, Watermarks};
use crate::time::{Closed, Instant};

/// The rows of one source in one epoch.
#[derive(Debug, Clone, Default)]
pub struct SourceSlice {
    /// The rows, in order of arrival, with the columns in `columns`.
    pub batches: Vec<RecordBatch>,
    /// Gives the rows instead, while they are read: each once.
    pub feed: Option<Arc<dyn RowFeed>>,
    /// Which columns of the table the batches have, as indices into its schema.
    pub columns: Vec<usize>,
    /// Event times that were said of the source without a row, up to the epoch's end.
    pub advanced: Vec<Instant>,
}

/// Gives rows to whoever asks first.
pub trait RowFeed: std::fmt::Debug + Send + Sync {
    /// The next rows; none at the end.
    fn next(&self) -> BoxFuture<'_, Result<Option<RecordBatch>>>;
}

/// State of a query between its epochs.
#[derive(Debug, Default)]
pub struct QueryState {
    /// What the WATERMARK clauses have observed.
    pub watermarks: Watermarks,
    gates: Mutex<HashMap<usize, Arc<GateState>>>,
    dedups: Mutex<HashMap<usize, Arc<DedupState>>>,
    /// Rows of a checkpoint that no operator has taken in yet, by piece.
    saved: Mutex<BTreeMap<String, Vec<RecordBatch>>>,
    /// Moves on when an epoch begins and when one is undone: what an earlier one still writes is not taken.
    turn: Arc<AtomicU64>,
    /// Held by who writes state to disk.
    spilling: Mutex<()>,
}

impl QueryState {
    /// The state of the gate with this number, made by `new` if there is none.
    pub fn gate(&self, id: usize, new: impl FnOnce(Arc<AtomicU64>) -> GateState) -> Arc<GateState> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            gates
                .entry(id)
                .or_insert_with(|| Arc::new(new(Arc::clone(&self.turn)))),
        )
    }

    /// The state of the deduplication with this number, made by `new` if there is none.
    ///
    /// # Errors
    /// - those of `new`
    pub fn dedup(
        &self,
        id: usize,
        new: impl FnOnce(Arc<AtomicU64>) -> Result<DedupState>,
    ) -> Result<Arc<DedupState>> {
        let mut dedups = self.dedups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = dedups.get(&id) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(new(Arc::clone(&self.turn))?);
        dedups.insert(id, Arc::clone(&made));
        Ok(made)
    }

    /// A state whose operators take in the pieces of a checkpoint when the next epoch begins.
    pub fn saved(pieces: BTreeMap<String, Vec<RecordBatch>>) -> Self {
        Self {
            saved: Mutex::new(pieces),
            ..Self::default()
        }
    }

    /// The rows of a piece that has not been taken in.
    pub fn saved_piece(&self, name: &str) -> Option<Vec<RecordBatch>> {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.get(name).cloned()
    }

    /// Takes note that a piece has been taken in.
    pub fn forget_piece(&self, name: &str) {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.remove(name);
    }

    /// Reserves memory for an operator's state. When the pool has no room, runs of the query's gates go to disk:
    /// half of what each holds in memory, and all of it if that is not enough.
    ///
    /// # Errors
    /// - there is no room even so; the error names the operator and the settings
    /// - the disk is full, or the disk manager's limit is reached
    pub(super) fn reserve(
        &self,
        memory: &StateMemory,
        bytes: usize,
        runtime: &RuntimeEnv,
    ) -> Result<()> {
        let pool = &runtime.memory_pool;
        if memory.takes(bytes, pool) {
            return Ok(());
        }
        let _alone = self.spilling.lock().unwrap_or_else(PoisonError::into_inner);
        for share in [1, 2, usize::MAX] {
            // At first nothing: another one may have made room meanwhile.
            if share > 1 {
                for gate in self.all_gates() {
                    gate.spill(gate.memory().bytes() / share, runtime)?;
                }
            }
            if memory.takes(bytes, pool) {
                return Ok(());
            }
        }
        memory.reserve(bytes, pool)
    }

    /// Finds room for state that is there already, of a checkpoint.
    ///
    /// # Errors
    /// - the memory pool has no room, and nothing can be spilled
    pub fn settle(&self, gate: &GateState, runtime: &RuntimeEnv) -> Result<()> {
        self.reserve(gate.memory(), 0, runtime)
    }

    /// Accepted rows by slice in the gate with this number and name, of slices with an open window: also those of a
    /// checkpoint that the gate has not taken in yet, where there may be some whose windows have closed.
    ///
    /// # Errors
    /// - the checkpoint has something else there
    pub fn rows_by_slice(&self, id: usize, name: &str) -> Result<Vec<(i64, u64)>> {
        if let Some(saved) = self.saved_piece(&rows_of(name)) {
            let mut all = BTreeMap::new();
            for (slice, rows) in saved
                .iter()
                .map(rows_in)
                .collect::<Result<Vec<_>>>()?
                .concat()
            {
                *all.entry(slice).or_default() += rows;
            }
            return Ok(all.into_iter().collect());
        }
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(gates
            .get(&id)
            .map(|gate| gate.rows_by_slice())
            .unwrap_or_default())
    }

    /// The open sessions of the gate with this number and name, whose groups have so many keys: also those of a
    /// checkpoint that the gate has not taken in yet. Sessions in `closed` have closed.
    ///
    /// # Errors
    /// - the checkpoint has something else there
    pub fn open_sessions(
        &self,
        id: usize,
        name: &str,
        keys: usize,
        closed: Closed,
    ) -> Result<Vec<Session>> {
        if let Some(saved) = self.saved_piece(name) {
            let open = sessions::replay(&saved, keys, closed)?;
            let open = open.into_iter().map(Part::read).collect();
            return OpenSessions::of(open, keys)?.list();
        }
        let gate = {
            let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
            gates.get(&id).cloned()
        };
        gate.map_or_else(|| Ok(Vec::new()), |gate| gate.open_sessions())
    }

    fn all_gates(&self) -> Vec<Arc<GateState>> {
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.values().cloned().collect()
    }

    /// Undoes what a running epoch did to every operator.
    pub fn abort(&self) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        for gate in self
            .gates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
        {
            gate.abort();
        }
        for dedup in self
            .dedups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
        {
            dedup.abort();
        }
    }
}

/// Rows of about one batch: so few that handing them to other tasks costs more than they do.
pub const FEW_ROWS: usize = 8_192;

/// One turn of the loop: what a plan's nodes need to know, and where they leave what they learn.
/// An extension of the task's session configuration; without it the nodes do the batch thing.
#[derive(Debug)]
pub struct Epoch {
    /// Its number, from 0.
    pub number: u64,
    /// Watermark when it began.
    pub started_at: Option<Instant>,
    /// What time it is for all its rows.
    pub now: Instant,
    /// Whether every window closes at its end: the input has ended.
    pub closing: bool,
    /// Whether a checkpoint takes what it adds to the state.
    pub is_checkpointed: bool,
    /// Rows of each source, by its name.
    pub sources: HashMap<String, SourceSlice>,
    /// State of the query.
    pub state: Arc<QueryState>,
    /// Its turn: see [`QueryState`].
    turn: u64,
    reached: OnceLock<Option<Instant>>,
    drained: Mutex<HashMap<(usize, usize), Vec<RecordBatch>>>,
    times: Mutex<BTreeMap<usize, EventTimes>>,
    aside: Mutex<Vec<SetAside>>,
}

impl Epoch {
    /// An epoch whose rows are at hand and whose end is not known yet.
    pub fn new(
        number: u64,
        started_at: Option<Instant>,
        closing: bool,
        sources: HashMap<String, SourceSlice>,
        state: Arc<QueryState>,
    ) -> Self {
        let turn = state.turn.fetch_add(1, Ordering::SeqCst) + 1;
        Self {
            number,
            started_at,
            now: Instant::from_nanos(0),
            closing,
            is_checkpointed: false,
            sources,
            state,
            turn,
            reached: OnceLock::new(),
            drained: Mutex::default(),
            times: Mutex::default(),
            aside: Mutex::default(),
        }
    }

    /// The epoch at this time of day; without it it is 1970.
    #[must_use]
    pub fn at(mut self, now: Instant) -> Self {
        self.now = now;
        self
    }

    /// The epoch with a checkpoint, if one takes what it adds.
    #[must_use]
    pub fn checkpointed(mut self, is_checkpointed: bool) -> Self {
        self.is_checkpointed = is_checkpointed;
        self
    }

    /// Whether it has so few rows that handing them to other tasks costs more than they do.
    pub fn has_few_rows(&self) -> bool {
        if self.sources.values().any(|slice| slice.feed.is_some()) {
            return false;
        }
        let batches = self.sources.values().flat_map(|slice| &slice.batches);
        batches.map(RecordBatch::num_rows).sum::<usize>() <= FEW_ROWS
    }

    /// Its turn, which it shows when it writes.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Takes note of the event times that passed a clause, unless the epoch was undone.
    pub fn observe(&self, clause: usize, seen: Observed, times: &EventTimes) {
        if self.turn == self.state.turn.load(Ordering::SeqCst) {
            self.state.watermarks.observe(clause, seen);
            let mut all = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(clause).or_default().add(times);
        }
    }

    /// The event times that passed a clause in this epoch so far.
    pub fn times(&self, clause: usize) -> EventTimes {
        let all = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&clause).copied().unwrap_or_default()
    }

    /// Keeps rows that were not counted until the epoch ends.
    pub fn set_aside(&self, rows: SetAside) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.push(rows);
    }

    /// The rows that were not counted.
    pub fn take_aside(&self) -> Vec<SetAside> {
        std::mem::take(&mut *self.aside.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The watermark at the epoch's end; none before every source has been drained.
    pub fn reached(&self) -> Option<Instant> {
        self.reached.get().copied().flatten()
    }

    /// Fixes the watermark at the epoch's end. It never goes back behind the one at the start.
    pub fn set_reached(&self, watermark: Option<Instant>) {
        self.reached.get_or_init(|| watermark.max(self.started_at));
    }

    /// Keeps the rows that came through a clause before anyone asked for them.
    pub fn keep_drained(&self, clause: usize, partition: usize, batches: Vec<RecordBatch>) {
        self.drained
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((clause, partition), batches);
    }

    /// The rows kept for a partition of a clause.
    pub fn take_drained(&self, clause: usize, partition: usize) -> Option<Vec<RecordBatch>> {
        self.drained
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(clause, partition))
    }
}
