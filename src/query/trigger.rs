//! When the next epoch of a query that was started begins, and how such a query is.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;

/// When a query that was started refreshes its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// As soon as something has arrived.
    Arrival,
    /// Once every interval, greater than zero, counted from the start.
    Every(Duration),
}

/// How a streaming table's query is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum QueryStatus {
    /// Nothing refreshes it but a REFRESH.
    #[default]
    Stopped,
    /// It was started, and refreshes its table.
    Running,
    /// It was started, and an error, in words, has stopped it.
    Failed(String),
}

impl QueryStatus {
    /// The error that has stopped it.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Stopped | Self::Running => None,
        }
    }
}

impl fmt::Display for QueryStatus {
    /// Writes `stopped`, `running` or `failed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Failed(_) => "failed",
        })
    }
}

/// What a query that was started is told to do from now on: refresh when, or nothing any more.
#[derive(Debug, Clone)]
pub struct Orders(watch::Receiver<Option<Trigger>>);

impl Orders {
    /// Orders, and who gives them. When that one is gone the query is stopped.
    pub fn new(trigger: Trigger) -> (watch::Sender<Option<Trigger>>, Self) {
        let (sender, receiver) = watch::channel(Some(trigger));
        (sender, Self(receiver))
    }

    /// What to do now; none means to stop. [`changed`](Self::changed) waits for what follows it.
    pub fn now(&mut self) -> Option<Trigger> {
        *self.0.borrow_and_update()
    }

    /// Waits until something was ordered after the last [`now`](Self::now).
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Whoever gives orders stops the query before going, or aborts it.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the query is to stop.
    pub fn is_stopped(&self) -> bool {
        self.0.borrow().is_none()
    }

    /// Waits until the query is to stop.
    pub async fn stopped(&self) {
        let mut orders = self.0.clone();
        if orders.wait_for(Option::is_none).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
