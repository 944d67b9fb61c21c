//! What a streaming windowed aggregate means, over plain rows and integers.
//!
//! The model is slow and plain on purpose: it keeps the rows themselves, not partial states, counts a
//! row once per window, and aggregates a group from its rows when the group leaves. Times are
//! microseconds since 1970-01-01T00:00:00Z; windows are half-open, `[start, end)`.
//!
//! An epoch with windows of 10 and a delay of 2, W = 8 at its start:
//!
//! ```text
//! rows  3, 12, 9    window [0, 10) is open (8 < 10), so 3 and 9 count in it; W moves to 12 - 2 = 10
//! out   [0, 10)     emitted at the end of this epoch, for 10 <= 10
//! next  9           late: its only window has end <= W
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::query::{Cell, Mode, Query, Row, Rows, count};

/// A window and, in a keyed query, a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    start: i64,
    end: i64,
    key: Option<String>,
}

/// What an epoch must have done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The counts that the progress record gives.
    pub(crate) figures: Figures,
    /// Rows the query emitted.
    pub(crate) emitted: Rows,
}

/// The counts of an epoch that repeat exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Number of the epoch, from 0.
    pub(crate) epoch: u64,
    /// Rows read.
    pub(crate) input: usize,
    /// Late rows.
    pub(crate) late: usize,
    /// Rows without an event time that reached the window.
    pub(crate) null: usize,
    /// Rows that can have no window.
    pub(crate) rejected: usize,
    /// Rows emitted.
    pub(crate) output: usize,
    /// Windows that hold rows and have not closed.
    pub(crate) open_windows: usize,
    /// Accepted rows in at least one open window.
    pub(crate) open_rows: usize,
    /// Watermark at the end of the epoch, in microseconds.
    pub(crate) watermark: Option<i64>,
}

/// The rows of an epoch that are in, before its watermark is known.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    input: usize,
    late: usize,
    null: usize,
    touched: BTreeSet<Group>,
}

/// A query and the rows it holds.
#[derive(Debug)]
pub(crate) struct Model<'a> {
    query: &'a Query,
    epochs: u64,
    /// Greatest event time that the clause has seen.
    seen: Option<i64>,
    watermark: Option<i64>,
    held: BTreeMap<Group, Vec<Row>>,
    /// Every accepted row, with the end of its last window.
    accepted: Vec<(Row, i64)>,
    /// Rows that counted in some of their windows only.
    partly_late: usize,
    table: Rows,
    upserted: BTreeMap<Group, Vec<Cell>>,
}

impl<'a> Model<'a> {
    /// A query that has read nothing.
    pub(crate) fn new(query: &'a Query) -> Self {
        Self {
            query,
            epochs: 0,
            seen: None,
            watermark: None,
            held: BTreeMap::new(),
            accepted: Vec::new(),
            partly_late: 0,
            table: Vec::new(),
            upserted: BTreeMap::new(),
        }
    }

    /// Runs one epoch over `rows`.
    pub(crate) fn epoch(&mut self, rows: &[Row]) -> Outcome {
        let admitted = self.admit(rows);
        let watermark = self.own_watermark();
        self.close(watermark, admitted)
    }

    /// First half of an epoch: takes rows in, judged by the watermark of the epoch's start.
    pub(crate) fn admit(&mut self, rows: &[Row]) -> Admitted {
        let mut admitted = Admitted {
            input: rows.len(),
            ..Admitted::default()
        };
        for row in rows.iter().filter(|row| self.query.reaches(row)) {
            self.place(row, &mut admitted);
        }
        let observed = rows.iter().filter(|row| self.query.observes(row));
        self.seen = self.seen.max(observed.filter_map(|row| row.ts).max());
        admitted
    }

    /// What the query's own clause says of the watermark.
    pub(crate) fn own_watermark(&self) -> Option<i64> {
        Some(self.seen? - self.query.delay?)
    }

    /// Second half of an epoch: moves the watermark, emits and evicts.
    pub(crate) fn close(&mut self, watermark: Option<i64>, admitted: Admitted) -> Outcome {
        self.watermark = watermark;
        let emitted = self.emit(&admitted.touched);
        let query = self.query;
        self.held
            .retain(|group, _| !is_shut(query, watermark, group.end));
        let figures = Figures {
            epoch: self.epochs,
            input: admitted.input,
            late: admitted.late,
            null: admitted.null,
            rejected: 0,
            output: emitted.len(),
            open_windows: self.open_windows(),
            open_rows: self.open_rows(),
            watermark,
        };
        self.epochs += 1;
        Outcome { figures, emitted }
    }

    /// What the streaming table holds.
    pub(crate) fn table(&self) -> Rows {
        match self.query.mode {
            Mode::Append | Mode::Complete => self.table.clone(),
            Mode::Update => self.upserted.values().cloned().collect(),
        }
    }

    /// Every accepted row, if each counted in all of its windows.
    pub(crate) fn wholly_accepted(&self) -> Option<Vec<Row>> {
        let rows = || self.accepted.iter().map(|(row, _)| row.clone()).collect();
        (self.partly_late == 0).then(rows)
    }

    /// Whether a group whose window begins at `start` has left the query for good.
    pub(crate) fn has_closed(&self, start: i64) -> bool {
        let end = self.query.grouping.end(start);
        is_shut(self.query, self.watermark, end)
    }

    /// Puts a row into its open windows, or counts why it is in none.
    fn place(&mut self, row: &Row, admitted: &mut Admitted) {
        let Some(ts) = row.ts else {
            admitted.null += 1;
            return;
        };
        let starts = self.query.grouping.starts(ts);
        let open: Vec<i64> = starts
            .iter()
            .copied()
            .filter(|start| !self.has_closed(*start))
            .collect();
        let Some(latest) = open.first() else {
            admitted.late += 1;
            return;
        };
        self.partly_late += usize::from(open.len() < starts.len());
        self.accepted
            .push((row.clone(), self.query.grouping.end(*latest)));
        for start in open {
            let group = self.group(start, row);
            admitted.touched.insert(group.clone());
            self.held.entry(group).or_default().push(row.clone());
        }
    }

    fn group(&self, start: i64, row: &Row) -> Group {
        Group {
            start,
            end: self.query.grouping.end(start),
            key: row.k.clone().filter(|_| self.query.keyed),
        }
    }

    /// The rows that leave at the end of an epoch, also written to the table.
    fn emit(&mut self, touched: &BTreeSet<Group>) -> Rows {
        let leaving: Vec<(Group, Vec<Cell>)> = self
            .held
            .iter()
            .filter(|(group, _)| match self.query.mode {
                Mode::Append => is_shut(self.query, self.watermark, group.end),
                Mode::Update => touched.contains(*group),
                Mode::Complete => true,
            })
            .filter(|(_, rows)| self.query.having.is_none_or(|bound| rows.len() >= bound))
            .map(|(group, rows)| (group.clone(), self.result(group, rows)))
            .collect();
        let emitted: Rows = leaving.iter().map(|(_, cells)| cells.clone()).collect();
        match self.query.mode {
            Mode::Append => self.table.extend(emitted.iter().cloned()),
            Mode::Complete => self.table.clone_from(&emitted),
            Mode::Update => self.upserted.extend(leaving),
        }
        emitted
    }

    /// The output row of a group.
    fn result(&self, group: &Group, rows: &[Row]) -> Vec<Cell> {
        let mut cells = vec![Cell::Int(group.start)];
        if self.query.selects_end() {
            cells.push(Cell::Int(group.end));
        }
        if self.query.keyed {
            cells.push(group.key.clone().map_or(Cell::Null, Cell::Text));
        }
        cells.push(count(rows.len()));
        cells.extend(self.query.aggregates.iter().map(|a| a.over(rows)));
        cells
    }

    fn open_windows(&self) -> usize {
        let starts: BTreeSet<i64> = self.held.keys().map(|group| group.start).collect();
        starts.len()
    }

    fn open_rows(&self) -> usize {
        let in_open = |end: i64| !is_shut(self.query, self.watermark, end);
        self.accepted
            .iter()
            .filter(|(_, end)| in_open(*end))
            .count()
    }
}

/// `end <= W`, in modes that close windows, once there is a watermark.
fn is_shut(query: &Query, watermark: Option<i64>, end: i64) -> bool {
    query.closes() && watermark.is_some_and(|watermark| end <= watermark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Grouping;

    fn at(ts: i64) -> Row {
        Row {
            ts: Some(ts),
            k: None,
            v: Some(1),
            x: None,
        }
    }

    fn query(size: i64, slide: i64, start: i64) -> Query {
        Query {
            grouping: Grouping::Window { size, slide, start },
            keyed: false,
            key_first: false,
            delay: Some(2),
            filter: None,
            having: None,
            mode: Mode::Append,
            aggregates: Vec::new(),
        }
    }

    #[test]
    fn a_window_closes_when_its_end_equals_the_watermark() {
        let query = query(10, 10, 0);
        let mut model = Model::new(&query);
        assert_eq!(model.epoch(&[at(10)]).figures.watermark, Some(8));
        let outcome = model.epoch(&[at(3), at(12), at(9)]);
        assert_eq!(outcome.emitted, [[0, 10, 2].map(Cell::Int)]);
        assert_eq!(outcome.figures.open_rows, 2);
        assert_eq!(model.epoch(&[at(9)]).figures.late, 1);
    }

    #[test]
    fn windows_begin_below_zero_and_need_not_divide() {
        let starts = |ts| query(10, 4, -1).grouping.starts(ts);
        assert_eq!(starts(0), [-1, -5, -9]);
        assert_eq!(starts(-1), [-1, -5, -9]);
        assert_eq!(starts(-2), [-5, -9]);
    }

    #[test]
    fn a_hopping_row_is_late_only_without_an_open_window() {
        let query = query(10, 5, 0);
        let mut model = Model::new(&query);
        model.epoch(&[at(12)]);
        assert_eq!(model.epoch(&[at(7), at(4)]).figures.late, 1);
        assert_eq!(model.partly_late, 1);
    }
}
