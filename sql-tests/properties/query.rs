//! Rows, queries and results as plain data, and what their parts mean for one row or one group.

use std::collections::BTreeSet;
use std::fmt;

/// One row of the table `t (ts TIMESTAMP(6), k VARCHAR, v BIGINT, x DOUBLE)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Event time in microseconds.
    pub(crate) ts: Option<i64>,
    /// Group key.
    pub(crate) k: Option<String>,
    /// A small integer.
    pub(crate) v: Option<i64>,
    /// A small integer, stored as a double: sums are exact in every order.
    pub(crate) x: Option<i32>,
}

/// One value of a result. Times are [`Cell::Int`], in microseconds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    /// NULL.
    Null,
    /// An integer or a time.
    Int(i64),
    /// The bits of a double, so that results compare and sort exactly.
    Double(u64),
    /// A text.
    Text(String),
}

impl Cell {
    /// A double.
    pub(crate) fn double(value: f64) -> Self {
        Self::Double(value.to_bits())
    }

    /// The integer or time in it.
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Double(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Self::Text(text) => write!(f, "'{text}'"),
        }
    }
}

/// Rows of a result, in any order.
pub(crate) type Rows = Vec<Vec<Cell>>;

/// How event times are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// `window(ts, size, slide, start)`, all in microseconds.
    Window { size: i64, slide: i64, start: i64 },
    /// `date_bin(size, ts)`.
    DateBin { size: i64 },
    /// `date_trunc('minute', ts)`.
    TruncMinute,
}

const MINUTE: i64 = 60_000_000;

impl Grouping {
    /// Size, slide and start, in microseconds: bins are tumbling windows.
    fn shape(self) -> (i64, i64, i64) {
        match self {
            Self::Window { size, slide, start } => (size, slide, start),
            Self::DateBin { size } => (size, size, 0),
            Self::TruncMinute => (MINUTE, MINUTE, 0),
        }
    }

    /// Whether every event time is in exactly one window.
    pub(crate) fn is_tumbling(self) -> bool {
        let (size, slide, _) = self.shape();
        size == slide
    }

    /// How far apart windows begin, in microseconds.
    pub(crate) fn slide(self) -> i64 {
        self.shape().1
    }

    /// End of the window that begins at `start`.
    pub(crate) fn end(self, start: i64) -> i64 {
        start + self.shape().0
    }

    /// Starts of the windows that hold `ts`, latest first.
    pub(crate) fn starts(self, ts: i64) -> Vec<i64> {
        let (size, slide, start) = self.shape();
        let latest = start + (ts - start).div_euclid(slide) * slide;
        (0..)
            .map(|steps| latest - steps * slide)
            .take_while(|begin| begin + size > ts)
            .collect()
    }
}

/// An aggregate of the select list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregate {
    /// `count(v)`.
    CountV,
    /// `sum(v)`.
    SumV,
    /// `min(v)`.
    MinV,
    /// `max(v)`.
    MaxV,
    /// `avg(x)`.
    AvgX,
    /// `count(DISTINCT v)`.
    DistinctV,
    /// `max(ts)`.
    MaxTs,
    /// `count(*) FILTER (WHERE v > bound)`.
    CountAbove(i64),
    /// `sum(v) FILTER (WHERE v > bound)`.
    SumAbove(i64),
}

impl Aggregate {
    /// Its value over the rows of one group.
    pub(crate) fn over(self, rows: &[Row]) -> Cell {
        let values = || rows.iter().filter_map(|row| row.v);
        match self {
            Self::CountV => count(values().count()),
            Self::SumV => sum(values()),
            Self::MinV => optional(values().min()),
            Self::MaxV => optional(values().max()),
            Self::AvgX => average(rows),
            Self::DistinctV => count(values().collect::<BTreeSet<_>>().len()),
            Self::MaxTs => optional(rows.iter().filter_map(|row| row.ts).max()),
            Self::CountAbove(bound) => count(values().filter(|v| *v > bound).count()),
            Self::SumAbove(bound) => sum(values().filter(|v| *v > bound)),
        }
    }
}

fn optional(value: Option<i64>) -> Cell {
    value.map_or(Cell::Null, Cell::Int)
}

/// A count as a value of a result.
pub(crate) fn count(rows: usize) -> Cell {
    Cell::Int(i64::try_from(rows).expect("a count fits 64 bits"))
}

/// The sum of no value is NULL.
fn sum(values: impl Iterator<Item = i64>) -> Cell {
    optional(values.reduce(|left, right| left + right))
}

fn average(rows: &[Row]) -> Cell {
    let values: Vec<f64> = rows.iter().filter_map(|row| row.x.map(f64::from)).collect();
    if values.is_empty() {
        return Cell::Null;
    }
    Cell::double(values.iter().sum::<f64>() / values.len() as f64)
}

/// A condition on a row; a NULL does not meet it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Predicate {
    /// `v >= bound`.
    ValueAtLeast(i64),
    /// `k <> key`.
    KeyIsNot(String),
    /// `ts >= bound`.
    TimeAtLeast(i64),
}

impl Predicate {
    /// Moves the times in it.
    pub(crate) fn shift(&mut self, by: i64) {
        if let Self::TimeAtLeast(bound) = self {
            *bound += by;
        }
    }

    fn holds(&self, row: &Row) -> bool {
        match self {
            Self::ValueAtLeast(bound) => row.v.is_some_and(|v| v >= *bound),
            Self::KeyIsNot(key) => row.k.as_ref().is_some_and(|k| k != key),
            Self::TimeAtLeast(bound) => row.ts.is_some_and(|ts| ts >= *bound),
        }
    }
}

/// A `WHERE`, above the clause (the watermark sees every row) or in a subquery below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    /// What rows must meet.
    pub(crate) predicate: Predicate,
    /// Whether it stands in a subquery below the clause.
    pub(crate) below: bool,
}

/// What a streaming table does with results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A group once, when its window has closed.
    Append,
    /// The groups that the epoch touched.
    Update,
    /// Every group.
    Complete,
}

/// A windowed aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    /// Windows or bins.
    pub(crate) grouping: Grouping,
    /// Whether `k` is a group key too.
    pub(crate) keyed: bool,
    /// Whether `k` stands before the window in `GROUP BY`.
    pub(crate) key_first: bool,
    /// The delay in microseconds; no clause if there is none.
    pub(crate) delay: Option<i64>,
    /// A condition on rows.
    pub(crate) filter: Option<Filter>,
    /// `HAVING count(*) >= bound`.
    pub(crate) having: Option<usize>,
    /// Output mode.
    pub(crate) mode: Mode,
    /// Aggregates after `count(*) AS n`.
    pub(crate) aggregates: Vec<Aggregate>,
}

impl Query {
    /// Whether `row` reaches the aggregate.
    pub(crate) fn reaches(&self, row: &Row) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| filter.predicate.holds(row))
    }

    /// Whether the clause sees `row`.
    pub(crate) fn observes(&self, row: &Row) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| !filter.below || filter.predicate.holds(row))
    }

    /// Whether the end of a window is among the columns, after its start.
    pub(crate) fn selects_end(&self) -> bool {
        matches!(self.grouping, Grouping::Window { .. })
    }

    /// Position of `count(*) AS n` among the columns.
    pub(crate) fn count_column(&self) -> usize {
        1 + usize::from(self.selects_end()) + usize::from(self.keyed)
    }

    /// Whether windows close at all: in complete mode nothing is late and nothing is evicted.
    pub(crate) fn closes(&self) -> bool {
        self.mode != Mode::Complete
    }
}
