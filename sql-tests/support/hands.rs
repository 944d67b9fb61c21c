//! Time that stands still but when a test moves it.

#![allow(
    dead_code,
    reason = "a test program moves time in its own way, and needs a part of this"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tidegate::context::{Clock, Ticker};
use tokio::sync::watch;

/// The clock, and the time that passes for queries that were started.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    ms: AtomicI64,
    now: watch::Sender<Duration>,
}

impl Hands {
    /// A clock that says so many milliseconds after 1970.
    pub(crate) fn at_ms(ms: i64) -> Arc<Self> {
        let hands = Self::default();
        hands.set_ms(ms);
        Arc::new(hands)
    }

    /// A clock that says so many seconds after 1970.
    pub(crate) fn at(seconds: i64) -> Arc<Self> {
        Self::at_ms(seconds * 1_000)
    }

    /// Sets the clock; nothing passes for queries that were started.
    pub(crate) fn set_ms(&self, ms: i64) {
        self.ms.store(ms, Ordering::SeqCst);
    }

    /// Lets seconds pass, for the clock and for queries that were started.
    pub(crate) fn pass(&self, seconds: u64) {
        self.ms
            .fetch_add(i64::try_from(seconds).unwrap() * 1_000, Ordering::SeqCst);
        self.now
            .send_modify(|now| *now += Duration::from_secs(seconds));
    }
}

impl Clock for Hands {
    fn now_ms(&self) -> i64 {
        self.ms.load(Ordering::SeqCst)
    }
}

impl Ticker for Hands {
    fn now(&self) -> Duration {
        *self.now.borrow()
    }

    fn wait(&self, time: Duration) -> BoxFuture<'static, ()> {
        let mut now = self.now.subscribe();
        let due = *now.borrow() + time;
        async move {
            now.wait_for(|now| *now >= due).await.unwrap();
        }
        .boxed()
    }
}
