//! SELECTs that a stream takes in append mode, and whose batch answer is the same.

use super::groups::TimeGroup;
use super::relations::{Column, Draft, Kind, Relation, Select};

impl Draft<'_> {
    /// A SELECT with at most so many SELECTs below it.
    pub(super) fn select(&mut self, depth: usize) -> Select {
        let relation = if depth == 0 {
            self.source()
        } else {
            let below = self.select(depth - 1);
            self.relation(below)
        };
        let relation = self.beside(relation);
        match self.rng.size(0, 11) {
            0 | 1 => self.plain(&relation),
            2 => self.distinct(&relation),
            3 => self.distinct_on(&relation),
            4 if depth > 0 => self.two_sides(),
            5 => self.twice(&relation),
            _ => self.aggregate(&relation),
        }
    }

    /// Columns as they are, filtered, and some made of them.
    pub(super) fn plain(&mut self, relation: &Relation) -> Select {
        let mut filter = self.filter(relation);
        if self.rng.one_in(4) {
            let text = format!("SELECT * FROM {}{}", relation.text, conditions(&filter));
            return Select {
                text,
                columns: relation.columns.clone(),
            };
        }
        let mut items = Vec::new();
        let mut columns = Vec::new();
        for column in &relation.columns {
            let marked = matches!(column.kind, Kind::Time | Kind::Window | Kind::Bin);
            if !marked && self.rng.one_in(6) {
                continue;
            }
            items.push(self.written(relation, &column.name));
            columns.push(column.clone());
        }
        for _ in 0..self.rng.size(0, 2) {
            if let Some((item, column)) = self.made(relation) {
                items.push(format!("{item} AS {}", column.name));
                columns.push(column);
            }
        }
        if items.is_empty() {
            items.push("1 AS one".to_owned());
            columns.push(Column::new("one", Kind::Int));
        }
        if self.rng.one_in(8) {
            filter.push("true".to_owned());
        }
        let text = format!(
            "SELECT {} FROM {}{}",
            items.join(", "),
            relation.text,
            conditions(&filter)
        );
        Select { text, columns }
    }

    /// An expression over the relation's columns.
    fn made(&mut self, relation: &Relation) -> Option<(String, Column)> {
        let kinds = [Kind::Time, Kind::Window, Kind::Key, Kind::Int];
        let kind = self.rng.pick(&kinds);
        let name = self.column(relation, &[kind])?;
        let nulls = relation
            .columns
            .iter()
            .any(|column| column.name == name && column.nulls);
        let written = self.written(relation, &name);
        let (item, kind) = match kind {
            Kind::Time if self.rng.one_in(2) => {
                let ticks = self.rng.between(1, 12);
                (
                    format!("date_bin(INTERVAL '{}', {written})", self.ticks(ticks)),
                    Kind::Bin,
                )
            }
            Kind::Time => (format!("{written} + INTERVAL '1 hour'"), Kind::Other),
            Kind::Window if self.rng.one_in(2) => (format!("window_time({written})"), Kind::Time),
            Kind::Window => (format!("{written}['start']"), Kind::Other),
            Kind::Key => (format!("upper({written})"), Kind::Key),
            _ => (
                format!("CASE WHEN {written} > 2 THEN 1 ELSE {written} END"),
                Kind::Int,
            ),
        };
        Some((item, Column::new(self.fresh("m"), kind).nullable(nulls)))
    }

    /// Conditions of WHERE.
    pub(super) fn filter(&mut self, relation: &Relation) -> Vec<String> {
        let mut all = Vec::new();
        if !self.rng.one_in(3) {
            return all;
        }
        let kind = self
            .rng
            .pick(&[Kind::Time, Kind::Key, Kind::Key, Kind::Int]);
        if let Some(name) = self.column(relation, &[kind]) {
            let written = self.written(relation, &name);
            all.push(match (kind, self.rng.size(0, 3)) {
                (Kind::Time, _) => format!("{written} >= {}", self.tables.moment(self.rng)),
                (Kind::Key, 0) => format!("{written} IN (SELECT code FROM names)"),
                (Kind::Key, 1) => {
                    format!("{written} NOT IN (SELECT code FROM names WHERE code IS NOT NULL)")
                }
                (Kind::Key, 2) => format!("{written} LIKE 'k%' OR {written} IS NULL"),
                (Kind::Key, _) => format!("{written} <> 'k2'"),
                (_, 0) => format!("{written} IS NOT NULL"),
                (_, 1) => format!("{written} < (SELECT max(weight) FROM names)"),
                _ => format!("{written} >= {}", self.rng.between(-4, 3)),
            });
        }
        all
    }

    /// GROUP BY a time, with keys and aggregates.
    pub(super) fn aggregate(&mut self, relation: &Relation) -> Select {
        let Some(time) = self.time_group(relation) else {
            return self.plain(relation);
        };
        let keys: Vec<String> = (0..self.rng.size(0, 2))
            .filter_map(|_| self.column(relation, &[Kind::Key]))
            .collect();
        let mut filter = self.filter(relation);
        filter.extend(time.filter.clone());
        let (mut items, mut columns) = self.time_items(&time);
        let mut written_keys: Vec<String> = Vec::new();
        for key in keys {
            let written = self.written(relation, &key);
            if columns.iter().any(|column| column.name == key) {
                continue;
            }
            items.push(written.clone());
            columns.push(Column::new(key, Kind::Key));
            written_keys.push(written);
        }
        for _ in 0..self.rng.size(1, 4) {
            let (call, kind) = self.call(relation);
            let name = self.fresh("a");
            items.push(format!("{call} AS {name}"));
            columns.push(Column::new(name, kind));
        }
        let having = match self.rng.size(0, 7) {
            0 => format!(" HAVING count(*) > {}", self.rng.between(0, 2)),
            1 => format!(" HAVING {} IS NOT NULL", self.call(relation).0),
            _ => String::new(),
        };
        let text = format!(
            "SELECT {} FROM {}{} GROUP BY {}{having}",
            items.join(", "),
            relation.text,
            conditions(&filter),
            self.group_by(&time, &written_keys),
        );
        Select { text, columns }
    }

    /// One or two columns of the time that is grouped by.
    fn time_items(&mut self, time: &TimeGroup) -> (Vec<String>, Vec<Column>) {
        let mut left = time.outputs.clone();
        let mut items = Vec::new();
        let mut columns = Vec::new();
        for _ in 0..self.rng.size(1, 2).min(left.len()) {
            let place = if self.rng.one_in(2) {
                0
            } else {
                self.rng.size(0, left.len() - 1)
            };
            let (text, kind) = left.remove(place);
            let plain = matches!(text.as_str(), "window" | "session_window");
            if plain && self.rng.one_in(2) {
                columns.push(Column::new(text.clone(), kind));
                items.push(text);
            } else {
                let name = self.fresh("w");
                items.push(format!("{text} AS {name}"));
                columns.push(Column::new(name, kind));
            }
        }
        (items, columns)
    }

    /// The list of GROUP BY, now and then as sets.
    fn group_by(&mut self, time: &TimeGroup, keys: &[String]) -> String {
        let key = &time.key;
        if let [first, ..] = keys
            && !time.session
            && self.rng.one_in(6)
        {
            let all = keys.join(", ");
            return match self.rng.size(0, 2) {
                0 => format!("GROUPING SETS (({key}, {all}), ({key}))"),
                1 => format!("{key}, ROLLUP ({all})"),
                _ if keys.len() == 1 => format!("{key}, CUBE ({first})"),
                _ => format!("GROUPING SETS (({all}, {key}), ({first}, {key}))"),
            };
        }
        // A bin is the first item, and can be grouped by its number.
        let by_number = time.outputs.len() == 1 && self.rng.one_in(4);
        let key = if by_number { "1" } else { key };
        let mut list = keys.to_vec();
        let place = self.rng.size(0, list.len());
        list.insert(place, key.to_owned());
        list.join(", ")
    }

    /// What a reader of the whole may write behind it, its order left open.
    pub(super) fn tail(&mut self, select: &Select) -> String {
        match self.rng.size(0, 7) {
            0 => {
                let plain = |column: &&Column| !matches!(column.kind, Kind::Window | Kind::Other);
                match select.columns.iter().find(plain) {
                    Some(column) => format!(" ORDER BY {}", column.name),
                    None => String::new(),
                }
            }
            1 => " LIMIT 100000".to_owned(),
            _ => String::new(),
        }
    }
}

/// WHERE and the conditions, or nothing.
pub(super) fn conditions(all: &[String]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let all: Vec<String> = all
        .iter()
        .map(|condition| format!("({condition})"))
        .collect();
    format!(" WHERE {}", all.join(" AND "))
}
