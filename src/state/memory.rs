//! Memory that an operator's state takes from the session's pool.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

/// What an operator has reserved, and where.
#[derive(Debug)]
pub(super) struct StateMemory {
    /// Name of the operator, as errors name it.
    name: String,
    /// What a user can do when there is no room.
    advice: &'static str,
    held: Mutex<Option<(Arc<dyn MemoryPool>, MemoryReservation)>>,
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

    /// Reserves memory in a pool. When the session has another pool than before, what is held moves to it.
    ///
    /// # Errors
    /// - the pool has no room
    pub(super) fn reserve(&self, bytes: usize, pool: &Arc<dyn MemoryPool>) -> Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let same = held
            .as_ref()
            .is_some_and(|(known, _)| Arc::ptr_eq(known, pool));
        if !same {
            let size = held.take().map_or(0, |(_, reservation)| reservation.size());
            let reservation = MemoryConsumer::new(self.name.clone()).register(pool);
            reservation.grow(size);
            *held = Some((Arc::clone(pool), reservation));
        }
        let grown = held
            .as_ref()
            .map_or(Ok(()), |(_, reservation)| reservation.try_grow(bytes));
        grown.map_err(|error| error.context(format!("{} has no memory {}", self.name, self.advice)))
    }

    /// Changes what is held by what runs became: no pool is asked, for they are there.
    pub(super) fn change(&self, before: usize, after: usize) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, reservation)) = held.as_ref() {
            reservation.grow(after);
            reservation.shrink(before.min(reservation.size()));
        }
    }

    /// Gives memory back.
    pub(super) fn free(&self, bytes: usize) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, reservation)) = held.as_ref() {
            reservation.shrink(bytes.min(reservation.size()));
        }
    }

    /// Bytes reserved.
    pub(super) fn bytes(&self) -> usize {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref()
            .map_or(0, |(_, reservation)| reservation.size())
    }
}
