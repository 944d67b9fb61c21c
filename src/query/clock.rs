//! What time of day it is for a query.

use std::sync::Arc;

use datafusion::prelude::SessionConfig;

use crate::source::{Clock, SystemClock};
use crate::time::{Instant, Unit};

/// Tells the queries of a session the time of day; an extension of the session configuration. Without it they ask this
/// machine.
#[derive(Debug)]
pub struct QueryClock(pub Arc<dyn Clock>);

/// Milliseconds since 1970-01-01T00:00:00Z, by the clock of a session.
pub fn now_ms(config: &SessionConfig) -> i64 {
    match config.get_extension::<QueryClock>() {
        Some(clock) => clock.0.now_ms(),
        None => SystemClock.now_ms(),
    }
}

/// A time of day as an instant.
pub fn instant_of_ms(now_ms: i64) -> Instant {
    Unit::Millisecond.instant(now_ms)
}
