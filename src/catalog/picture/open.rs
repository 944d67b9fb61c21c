//! What open windows hold, from the state of their aggregate.

use std::collections::BTreeMap;

use super::judge::{Bounds, Judge};
use crate::picture::Fill;
use crate::state::QueryState;
use crate::time::{Instant, Unit};

/// Windows that are told of: the newest. The picture of more has no room for a bar each.
const MOST: usize = 1_000;

/// What each open window holds, by begin; nothing where groups are no windows, or the state cannot be read.
pub(super) fn fills(judge: &Judge, state: &QueryState, watermark: Option<Instant>) -> Vec<Fill> {
    if let (Some(id), Some(unit)) = (judge.id, judge.session_unit()) {
        return sessions(judge, id, unit, state, watermark);
    }
    let (Some(id), Some(unit)) = (judge.id, judge.unit) else {
        return Vec::new();
    };
    let slices = state.rows_by_slice(id, &format!("TimeWindowGate {id}"));
    let mut windows: BTreeMap<i64, u64> = BTreeMap::new();
    for (slice, rows) in slices.unwrap_or_default().into_iter().rev() {
        if windows.len() > MOST {
            break;
        }
        for begin in judge.windows(slice) {
            *windows.entry(begin).or_default() += rows;
        }
    }
    let closed = judge.closed(watermark);
    let mut bounds = Bounds::new(judge, unit);
    let open = windows
        .into_iter()
        .filter(|(begin, _)| !closed.contains(*begin));
    let fills = open.filter_map(|(begin, rows)| {
        let (begin, end) = bounds.of(begin)?;
        Some(Fill { begin, end, rows })
    });
    newest(fills.collect())
}

/// What each open session holds.
fn sessions(
    judge: &Judge,
    id: usize,
    unit: Unit,
    state: &QueryState,
    watermark: Option<Instant>,
) -> Vec<Fill> {
    let name = format!("TimeWindowGate {id}");
    let open = state.open_sessions(id, &name, judge.keys, judge.closed(watermark));
    let fills = open.unwrap_or_default().into_iter().map(|session| Fill {
        begin: unit.instant(session.begin),
        end: unit.instant(session.end),
        rows: session.rows,
    });
    let mut fills: Vec<Fill> = fills.collect();
    fills.sort_by_key(|fill| (fill.begin, fill.end));
    newest(fills)
}

fn newest(mut fills: Vec<Fill>) -> Vec<Fill> {
    fills.drain(..fills.len().saturating_sub(MOST));
    fills
}
