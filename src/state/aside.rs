//! Rows that an operator did not count, for whoever wants to see them.

use datafusion::arrow::array::{ArrayRef, Int64Array};

use crate::time::Unit;

/// Why a row was not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Every window of it had closed before its epoch began.
    Late,
    /// Windows of it had closed before its epoch began, and it counts in newer ones: of hopping windows.
    Missed,
    /// It has no event time.
    Null,
    /// It can have no window: the gap is null or not above zero, or the bounds are outside the type.
    Rejected,
    /// Its event time is further in the future than is believed.
    Guarded,
}

impl Reason {
    /// Its name in the column `_reason`.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Late => "late",
            Reason::Missed => "missed",
            Reason::Null => "null",
            Reason::Rejected => "rejected",
            Reason::Guarded => "guarded",
        }
    }
}

/// Rows that left in an epoch, as they reached their clause.
#[derive(Debug, Clone)]
pub struct SetAside {
    /// The operator that they left at.
    pub operator: String,
    /// The rows: a struct of the clause's columns.
    pub rows: ArrayRef,
    /// Why each of them left.
    pub reasons: Vec<Reason>,
    /// The newest window of each, if it has one.
    pub windows: Windows,
}

/// `[start, end)` of the newest window of each row, in ticks of the unit; null where there is none.
#[derive(Debug, Clone)]
pub struct Windows {
    /// Unit of the ticks.
    pub unit: Unit,
    /// The first tick of each.
    pub starts: Int64Array,
    /// The first tick behind each.
    pub ends: Int64Array,
}
