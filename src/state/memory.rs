//! Memory that an operator's state takes from the session's pool.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

/// The settings of the pool's size, as errors name them.
pub const MEMORY_LIMIT: &str = "--memory-limit or datafusion.runtime.memory_limit";

/// What an operator has reserved, and where.
#[derive(Debug)]
pub(super) struct StateMemory {
    /// Name of the operator, as errors name it.
    name: String,
    /// What a user can do when there is no room.
    advice: &'static str,
    held: Mutex<Held>,
}

/// What is reserved.
#[derive(Debug, Default)]
struct Held {
    /// In which pool; none before an epoch has asked for memory.
    pool: Option<(Arc<dyn MemoryPool>, MemoryReservation)>,
    /// Bytes that are there without a pool: those of a checkpoint that was taken in.
    before: usize,
}

impl Held {
    fn bytes(&self) -> usize {
        let reserved = self.pool.as_ref();
        reserved.map_or(self.before, |(_, reservation)| reservation.size())
    }
}

impl StateMemory {
    /// Nothing reserved.
    pub(super) fn new(name: impl Into<String>, advice: &'static str) -> Self {
        Self {
            name: name.into(),
            advice,
            held: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory in a pool. When the session has another pool than before, what is held moves to it.
    ///
    /// # Errors
    /// - the pool has no room
    pub(super) fn reserve(&self, bytes: usize, pool: &Arc<dyn MemoryPool>) -> Result<()> {
        let mut held = self.lock();
        let known = held.pool.as_ref();
        if !known.is_some_and(|(known, _)| Arc::ptr_eq(known, pool)) {
            let size = held.bytes();
            let reservation = MemoryConsumer::new(self.name.clone()).register(pool);
            reservation.grow(size);
            *held = Held {
                pool: Some((Arc::clone(pool), reservation)),
                before: 0,
            };
        }
        let reserved = held.pool.as_ref();
        let grown = reserved.map_or(Ok(()), |(_, reservation)| reservation.try_grow(bytes));
        grown.map_err(|error| {
            let (name, advice) = (&self.name, self.advice);
            error.context(format!(
                "{name} has no memory {advice}; {MEMORY_LIMIT} raises the limit"
            ))
        })
    }

    /// Name of the operator.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reserves memory in a pool, if it has room.
    pub(super) fn takes(&self, bytes: usize, pool: &Arc<dyn MemoryPool>) -> bool {
        self.reserve(bytes, pool).is_ok()
    }

    /// Changes what is held by what runs became: no pool is asked, for they are there.
    pub(super) fn change(&self, before: usize, after: usize) {
        let mut held = self.lock();
        match &held.pool {
            Some((_, reservation)) => {
                reservation.grow(after);
                reservation.shrink(before.min(reservation.size()));
            }
            None => held.before = held.before.saturating_sub(before).saturating_add(after),
        }
    }

    /// Gives memory back.
    pub(super) fn free(&self, bytes: usize) {
        self.change(bytes, 0);
    }

    /// Bytes reserved.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes()
    }
}
