//! What sessions over a stream mean, over plain rows and integers.
//!
//! The model keeps the stretch `[ts, ts + gap)` of every row that it holds, and merges all of them anew at
//! the end of every epoch.

use crate::follow::Reference;
use crate::model::{Figures, Outcome};
use crate::query::{Aggregate, Cell, Mode, Row, Rows, count};
use crate::session_windows::SessionQuery;

/// An accepted row and the time it covers.
#[derive(Debug, Clone)]
struct Stretch {
    key: Option<String>,
    start: i64,
    end: i64,
    row: Row,
}

/// Stretches of one key that touch.
#[derive(Debug, Clone)]
struct Merged {
    key: Option<String>,
    start: i64,
    end: i64,
    stretches: Vec<Stretch>,
}

impl Merged {
    fn of(stretch: Stretch) -> Self {
        Self {
            key: stretch.key.clone(),
            start: stretch.start,
            end: stretch.end,
            stretches: vec![stretch],
        }
    }

    fn touches(&self, start: i64, end: i64) -> bool {
        start <= self.end && self.start <= end
    }

    fn take(&mut self, stretch: Stretch) {
        self.end = self.end.max(stretch.end);
        self.stretches.push(stretch);
    }
}

/// A query and the stretches it holds.
#[derive(Debug)]
pub(crate) struct SessionModel<'a> {
    query: &'a SessionQuery,
    epochs: u64,
    /// Greatest event time that the clause has seen.
    seen: Option<i64>,
    watermark: Option<i64>,
    held: Vec<Stretch>,
    /// Sessions that have left.
    left: Vec<Merged>,
    accepted: Vec<Row>,
    table: Rows,
}

/// Why a row is in no session.
#[derive(Debug, Default)]
struct Dropped {
    late: usize,
    null: usize,
    rejected: usize,
}

impl<'a> SessionModel<'a> {
    /// A query that has read nothing.
    pub(crate) fn new(query: &'a SessionQuery) -> Self {
        Self {
            query,
            epochs: 0,
            seen: None,
            watermark: None,
            held: Vec::new(),
            left: Vec::new(),
            accepted: Vec::new(),
            table: Vec::new(),
        }
    }

    /// Whether a session that ends at `end` has closed: never in complete mode.
    pub(crate) fn is_shut(&self, end: i64) -> bool {
        let closes = self.query.mode != Mode::Complete;
        closes && self.watermark.is_some_and(|watermark| end <= watermark)
    }

    /// Every accepted row, if one merge of all of them gives the same sessions: not when a row that came
    /// after its neighbours had left began a session of its own.
    pub(crate) fn merged_at_once(&self) -> Option<Vec<Row>> {
        let open = merge(self.held.clone());
        let all: Vec<&Merged> = self.left.iter().chain(&open).collect();
        let apart = all.iter().enumerate().all(|(place, one)| {
            let mut others = all.iter().skip(place + 1);
            others.all(|other| one.key != other.key || !one.touches(other.start, other.end))
        });
        apart.then(|| self.accepted.clone())
    }

    /// Takes a row in, or counts why not.
    fn place(&mut self, row: &Row, dropped: &mut Dropped) {
        let Some(start) = row.ts else {
            dropped.null += 1;
            return;
        };
        let Some(gap) = self.query.gap.of(row).filter(|gap| *gap > 0) else {
            dropped.rejected += 1;
            return;
        };
        let end = start + gap;
        if self.is_shut(end) {
            dropped.late += 1;
            return;
        }
        self.accepted.push(row.clone());
        self.held.push(Stretch {
            key: row.k.clone().filter(|_| self.query.keyed),
            start,
            end,
            row: row.clone(),
        });
    }

    /// The rows that leave at the end of an epoch, also written to the table, and the sessions that stay.
    fn release(&mut self) -> (Rows, Vec<Merged>) {
        let sessions = merge(std::mem::take(&mut self.held));
        let (closed, open): (Vec<_>, Vec<_>) = sessions
            .into_iter()
            .partition(|session| self.is_shut(session.end));
        let stretches = open.iter().flat_map(|session| session.stretches.clone());
        self.held = stretches.collect();
        let leaving = match self.query.mode {
            Mode::Complete => &open,
            Mode::Append | Mode::Update => &closed,
        };
        let emitted: Rows = leaving.iter().map(|session| self.result(session)).collect();
        match self.query.mode {
            Mode::Complete => self.table.clone_from(&emitted),
            Mode::Append | Mode::Update => self.table.extend(emitted.iter().cloned()),
        }
        self.left.extend(closed);
        (emitted, open)
    }

    /// The output row of a session.
    fn result(&self, session: &Merged) -> Vec<Cell> {
        let rows = session.stretches.iter().map(|stretch| stretch.row.clone());
        let rows: Vec<Row> = rows.collect();
        let mut cells = vec![Cell::Int(session.start), Cell::Int(session.end)];
        if self.query.keyed {
            cells.push(session.key.clone().map_or(Cell::Null, Cell::Text));
        }
        cells.extend([count(rows.len()), Aggregate::SumV.over(&rows)]);
        cells
    }
}

impl Reference for SessionModel<'_> {
    fn epoch(&mut self, rows: &[Row]) -> Outcome {
        let mut dropped = Dropped::default();
        for row in rows {
            self.place(row, &mut dropped);
        }
        self.seen = self.seen.max(rows.iter().filter_map(|row| row.ts).max());
        self.watermark = self.seen.map(|seen| seen - self.query.delay);
        let (emitted, open) = self.release();
        let figures = Figures {
            epoch: self.epochs,
            input: rows.len(),
            late: dropped.late,
            null: dropped.null,
            rejected: dropped.rejected,
            output: emitted.len(),
            open_windows: open.len(),
            open_rows: self.held.len(),
            watermark: self.watermark,
        };
        self.epochs += 1;
        Outcome { figures, emitted }
    }

    fn table(&self) -> Rows {
        self.table.clone()
    }
}

/// Merges stretches of equal keys that overlap or touch.
fn merge(mut stretches: Vec<Stretch>) -> Vec<Merged> {
    stretches.sort_by(|a, b| (&a.key, a.start).cmp(&(&b.key, b.start)));
    let mut sessions: Vec<Merged> = Vec::new();
    for stretch in stretches {
        match sessions.last_mut() {
            Some(last) if last.key == stretch.key && last.touches(stretch.start, stretch.end) => {
                last.take(stretch);
            }
            _ => sessions.push(Merged::of(stretch)),
        }
    }
    sessions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_windows::Gap;

    fn at(ts: i64, v: i64) -> Row {
        Row {
            ts: Some(ts),
            k: None,
            v: Some(v),
            x: None,
        }
    }

    fn query(gap: Gap) -> SessionQuery {
        SessionQuery {
            gap,
            keyed: false,
            delay: 2,
            mode: Mode::Append,
        }
    }

    #[test]
    fn a_row_is_late_by_its_own_stretch_even_if_it_touches_an_open_session() {
        let query = query(Gap::Constant(5));
        let mut model = SessionModel::new(&query);
        assert_eq!(
            model.epoch(&[at(0, 1), at(5, 1), at(8, 1)]).emitted,
            Rows::new()
        );
        model.epoch(&[at(12, 1)]);
        // W = 10: the session is [0, 17).
        let figures = model.epoch(&[at(5, 1), at(6, 1)]).figures;
        assert_eq!(
            (figures.late, figures.open_windows, figures.open_rows),
            (1, 1, 5)
        );
        assert_eq!(
            model.epoch(&[at(19, 1)]).emitted,
            [[0, 17, 5, 5].map(Cell::Int)]
        );
    }

    #[test]
    fn a_gap_of_nothing_is_rejected_and_a_long_one_holds_what_begins_within_it() {
        let query = query(Gap::PerRow {
            above: 2,
            more: 10,
            others: 1,
            unusable: Some((-1, Some(0))),
        });
        let mut model = SessionModel::new(&query);
        let figures = model
            .epoch(&[at(0, 3), at(9, 1), at(4, -2), at(20, 1)])
            .figures;
        assert_eq!((figures.rejected, figures.open_rows), (1, 1));
        assert_eq!(model.table(), [[0, 10, 2, 4].map(Cell::Int)]);
    }

    #[test]
    fn a_row_beside_a_session_that_left_is_one_of_its_own() {
        let query = query(Gap::Constant(5));
        let mut model = SessionModel::new(&query);
        model.epoch(&[at(0, 1), at(7, 1)]);
        assert!(model.merged_at_once().is_some());
        model.epoch(&[at(4, 1)]);
        assert!(model.merged_at_once().is_none());
    }
}
