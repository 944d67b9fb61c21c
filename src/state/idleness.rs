//! Which inputs have given nothing for so long that they no longer hold the watermark back.
//!
//! ```text
//! clock      0         10        20        30        40
//! orders     r    r    r    r    r    r    r    r    r     idle_timeout 15
//! clicks     r    r                             r
//!                 |-------- 15 --------|
//!                 since                idle     counts again at once
//! ```
//!
//! - An input is what passes one WATERMARK clause. An epoch that brings it no row finds it idle if at least its timeout
//!   has passed when the epoch begins: since the end of the last epoch that brought it one, for while an epoch runs
//!   nobody reads; if there was none, since the query began in this process.
//! - Time is the clock's, in milliseconds since 1970. A clock that goes back makes nobody idle.
//! - Nothing of this is kept on disk: behind a restart every input has its whole timeout again.
//! - Inputs that may never be idle are not here.

use std::collections::{BTreeMap, BTreeSet};

/// The inputs of a query that may become idle, by the number of their clause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Idleness(BTreeMap<usize, Input>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Input {
    timeout_ms: i64,
    /// When it last gave rows, or the query began.
    since_ms: i64,
    /// Whether it was idle at the end of the last epoch.
    idle: bool,
}

impl Input {
    /// Time until it is idle; none or less when it is.
    fn left_ms(&self, now_ms: i64) -> i64 {
        let passed = now_ms.saturating_sub(self.since_ms).max(0);
        self.timeout_ms.saturating_sub(passed)
    }
}

impl Idleness {
    /// Watches these inputs from now on, each with its timeout in milliseconds; those that were watched before go on.
    pub fn watch(&mut self, timeouts_ms: impl IntoIterator<Item = (usize, i64)>, now_ms: i64) {
        let inputs = timeouts_ms.into_iter().map(|(clause, timeout_ms)| {
            let known = self.0.get(&clause);
            let input = Input {
                timeout_ms,
                since_ms: known.map_or(now_ms, |known| known.since_ms),
                idle: known.is_some_and(|known| known.idle),
            };
            (clause, input)
        });
        self.0 = inputs.collect();
    }

    /// The inputs that are idle in an epoch that begins now, where `alive` says which of them it brought rows.
    pub fn idle(&self, now_ms: i64, alive: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        let idle =
            |(clause, input): &(&usize, &Input)| !alive(**clause) && input.left_ms(now_ms) <= 0;
        let idle = self.0.iter().filter(idle);
        idle.map(|(clause, _)| *clause).collect()
    }

    /// Since when an input was idle at the end of the last epoch: when it last gave rows. None if it was not.
    pub fn idle_since_ms(&self, clause: usize) -> Option<i64> {
        let input = self.0.get(&clause).filter(|input| input.idle);
        input.map(|input| input.since_ms)
    }

    /// The inputs behind an epoch that began and ended at these times.
    #[must_use]
    pub fn after(&self, began_ms: i64, ended_ms: i64, alive: impl Fn(usize) -> bool) -> Self {
        let idle = self.idle(began_ms, &alive);
        let inputs = self.0.iter().map(|(clause, input)| {
            let since_ms = match alive(*clause) {
                true => ended_ms,
                false => input.since_ms,
            };
            let idle = idle.contains(clause);
            (
                *clause,
                Input {
                    since_ms,
                    idle,
                    ..*input
                },
            )
        });
        Self(inputs.collect())
    }

    /// Milliseconds until one more input is idle, 0 if one is: an epoch then moves the watermark. None if no other will.
    pub fn next_ms(&self, now_ms: i64) -> Option<u64> {
        let awake = self.0.values().filter(|input| !input.idle);
        let left = awake.map(|input| input.left_ms(now_ms).max(0).unsigned_abs());
        left.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: usize) -> bool {
        false
    }

    fn watched() -> Idleness {
        let mut inputs = Idleness::default();
        inputs.watch([(0, 15), (1, 15)], 100);
        inputs
    }

    #[test]
    fn an_input_is_idle_when_its_timeout_has_passed_and_counts_again_at_once() {
        let inputs = watched().after(110, 110, |clause| clause == 0);
        assert_eq!(inputs.next_ms(110), Some(5));
        assert_eq!(inputs.idle(114, nobody), BTreeSet::new());
        assert_eq!(inputs.idle(115, nobody), BTreeSet::from([1]));
        assert_eq!(inputs.idle(115, |clause| clause == 1), BTreeSet::new());
        let inputs = inputs.after(115, 115, nobody);
        assert_eq!(inputs.idle_since_ms(1), Some(100));
        assert_eq!(inputs.idle_since_ms(0), None);
        // That it is idle is known: the next one is the other.
        assert_eq!(inputs.next_ms(115), Some(10));
        let inputs = inputs.after(130, 130, nobody);
        assert_eq!(inputs.next_ms(130), None);
        let inputs = inputs.after(131, 131, |clause| clause == 1);
        assert_eq!(inputs.idle_since_ms(1), None);
        assert_eq!(inputs.next_ms(131), Some(15));
    }

    #[test]
    fn while_an_epoch_runs_no_time_passes_for_those_it_brought_rows() {
        let inputs = watched().after(100, 200, |clause| clause == 0);
        assert_eq!(inputs.idle(200, nobody), BTreeSet::from([1]));
        assert_eq!(inputs.next_ms(200), Some(0));
        assert_eq!(inputs.after(200, 200, nobody).next_ms(200), Some(15));
    }

    #[test]
    fn a_clock_that_goes_back_makes_nobody_idle() {
        let inputs = watched();
        assert_eq!(inputs.idle(i64::MIN, nobody), BTreeSet::new());
        assert_eq!(inputs.next_ms(i64::MIN), Some(15));
        assert_eq!(inputs.idle(i64::MAX, nobody), BTreeSet::from([0, 1]));
    }

    #[test]
    fn watching_again_goes_on_with_another_timeout_and_leaves_who_may_not_be_idle() {
        let mut inputs = watched();
        inputs.watch([(1, 5)], 104);
        assert_eq!(inputs.idle(105, nobody), BTreeSet::from([1]));
        inputs.watch([], 105);
        assert_eq!(inputs, Idleness::default());
        assert_eq!(inputs.next_ms(105), None);
    }
}
