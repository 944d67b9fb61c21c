//! Every source is read to its end in every epoch.
//!
//! An operator may stop asking: a LIMIT that is reached, a join whose other side is empty. The rows
//! it never asked for still move the watermark. A [`WatermarkExec`](super::WatermarkExec) stream
//! that is dropped before its end leaves its input here, and the epoch drains it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::execution::SendableRecordBatchStream;
use tokio::sync::Notify;

/// What is left of a clause's input that its reader dropped.
pub(super) struct Leftover {
    pub clause: usize,
    pub stream: SendableRecordBatchStream,
}

/// The inputs of one epoch; an extension of the task's session configuration.
#[derive(Default)]
pub struct Inputs {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    running: usize,
    executed: HashSet<(usize, usize)>,
    leftovers: Vec<Leftover>,
}

impl std::fmt::Debug for Inputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs").finish_non_exhaustive()
    }
}

impl Inputs {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a partition of a clause is being read.
    pub(super) fn begin(&self, clause: usize, partition: usize) {
        let mut inner = self.lock();
        inner.running += 1;
        inner.executed.insert((clause, partition));
    }

    /// Notes that it is not read any more, with what is left of it.
    pub(super) fn end(&self, leftover: Option<Leftover>) {
        let mut inner = self.lock();
        inner.running = inner.running.saturating_sub(1);
        inner.leftovers.extend(leftover);
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Whether a partition of a clause has been read, to its end or not.
    pub fn was_read(&self, clause: usize, partition: usize) -> bool {
        self.lock().executed.contains(&(clause, partition))
    }

    /// Waits until nothing is being read, and takes what is left.
    pub(super) async fn leftovers(self: &Arc<Self>) -> Vec<Leftover> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut inner = self.lock();
                if inner.running == 0 {
                    return std::mem::take(&mut inner.leftovers);
                }
            }
            changed.await;
        }
    }
}
