//! How rows are grouped by time: windows, sessions, bins, the event time.

use super::relations::{Column, Draft, Kind, Relation};

/// A grouping by time.
#[derive(Debug, Clone)]
pub(super) struct TimeGroup {
    /// What stands in GROUP BY.
    pub(super) key: String,
    /// What it can be selected as, each with the kind that the column then has.
    pub(super) outputs: Vec<(String, Kind)>,
    /// A condition that leaves out what a stream drops and a batch query does not.
    pub(super) filter: Option<String>,
    /// Whether sessions are found.
    pub(super) session: bool,
}

impl Draft<'_> {
    /// A grouping by a column of the relation that carries the event time, if there is one.
    pub(super) fn time_group(&mut self, relation: &Relation) -> Option<TimeGroup> {
        let kinds = [Kind::Time, Kind::Window, Kind::Bin];
        let marked: Vec<&Column> = relation
            .columns
            .iter()
            .filter(|column| kinds.contains(&column.kind))
            .collect();
        if marked.is_empty() {
            return None;
        }
        let column = marked[self.rng.size(0, marked.len() - 1)].clone();
        let written = self.written(relation, &column.name);
        Some(match column.kind {
            Kind::Time => match self.rng.size(0, 9) {
                0 | 1 => self.session(relation, &written),
                2 => self.date_bin(&column, &written),
                3 => self.date_trunc(&column, &written),
                4 => itself(&column, &written, Kind::Time),
                5 => {
                    let inner = self.window(&written).key;
                    self.window(&inner)
                }
                _ => self.window(&written),
            },
            Kind::Window => match self.rng.size(0, 5) {
                0 => self.session(relation, &format!("window_time({written})")),
                1 => self.window(&format!("window_time({written})")),
                2 | 3 => self.window(&written),
                _ => itself(&column, &written, Kind::Window),
            },
            _ => itself(&column, &written, Kind::Bin),
        })
    }

    /// A column's name, now and then with its relation's before it.
    pub(super) fn written(&mut self, relation: &Relation, column: &str) -> String {
        match &relation.name {
            Some(name) if self.rng.one_in(3) => {
                // A column of a table beside it has a name of its own.
                let own = relation.own(column);
                if own {
                    format!("{name}.{column}")
                } else {
                    column.to_owned()
                }
            }
            _ => column.to_owned(),
        }
    }

    fn window(&mut self, time: &str) -> TimeGroup {
        let size = self.rng.between(1, 12);
        let mut arguments = vec![self.length(size)];
        if self.rng.one_in(3) {
            let slide = self.rng.between((size + 3) / 4, size);
            arguments.push(self.length(slide));
            if self.rng.one_in(2) {
                let start = self.rng.between(1 - slide, slide - 1);
                arguments.push(self.length(start));
            }
        }
        let call = format!("window({time}, {})", arguments.join(", "));
        windowed("window", call, false)
    }

    /// A session with a gap that is the same for all rows, or is said by one of their values.
    fn session(&mut self, relation: &Relation, time: &str) -> TimeGroup {
        let (short, long) = (self.rng.between(1, 4), self.rng.between(1, 9));
        let gap = match self.column(relation, &[Kind::Int]) {
            Some(value) if self.rng.one_in(3) => {
                let none = self
                    .rng
                    .pick(&["", "WHEN 0 THEN NULL ", "WHEN 0 THEN '0 seconds' "]);
                let (short, long) = (self.ticks(short), self.ticks(long));
                format!("CASE {value} {none}WHEN 1 THEN '{long}' ELSE '{short}' END")
            }
            _ => self.length(short),
        };
        windowed(
            "session_window",
            format!("session_window({time}, {gap})"),
            true,
        )
    }

    /// A length of time as text or as an interval.
    fn length(&mut self, ticks: i64) -> String {
        let interval = self.rng.pick(&["", "", "INTERVAL "]);
        format!("{interval}'{}'", self.ticks(ticks))
    }

    fn date_bin(&mut self, column: &Column, written: &str) -> TimeGroup {
        let ticks = self.rng.between(1, 12);
        let origin = if self.rng.one_in(3) {
            format!(", {}", self.tables.moment(self.rng))
        } else {
            String::new()
        };
        let call = format!(
            "date_bin(INTERVAL '{}', {written}{origin})",
            self.ticks(ticks)
        );
        bin(column, written, call)
    }

    fn date_trunc(&mut self, column: &Column, written: &str) -> TimeGroup {
        let unit = self.rng.pick(&["minute", "hour", "day", "week", "month"]);
        bin(column, written, format!("date_trunc('{unit}', {written})"))
    }
}

impl Relation {
    /// Whether the relation's name may stand before a column: the first columns are its own.
    fn own(&self, column: &str) -> bool {
        let added = ["code", "label", "weight", "copy"];
        !added.iter().any(|prefix| column.starts_with(prefix))
    }
}

/// A call of a window function, and what can be selected of it.
fn windowed(name: &str, call: String, session: bool) -> TimeGroup {
    let outputs = vec![
        (name.to_owned(), Kind::Window),
        (call.clone(), Kind::Window),
        (format!("{name}.start"), Kind::Other),
        (format!("{name}.end"), Kind::Other),
        (format!("window_time({name})"), Kind::Time),
        (format!("{call}.start"), Kind::Other),
    ];
    TimeGroup {
        key: call,
        outputs,
        filter: None,
        session,
    }
}

fn itself(column: &Column, written: &str, kind: Kind) -> TimeGroup {
    TimeGroup {
        key: written.to_owned(),
        outputs: vec![(written.to_owned(), kind)],
        filter: column.nulls.then(|| format!("{written} IS NOT NULL")),
        session: false,
    }
}

fn bin(column: &Column, written: &str, call: String) -> TimeGroup {
    TimeGroup {
        outputs: vec![(call.clone(), Kind::Bin)],
        key: call,
        ..itself(column, written, Kind::Bin)
    }
}
