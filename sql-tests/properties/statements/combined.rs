//! Aggregates of values, and SELECTs of other kinds: DISTINCT, joins of two streams, unions.

use super::relations::{Column, Draft, Kind, Relation, Select};
use super::selects::conditions;

impl Draft<'_> {
    /// An aggregate whose value does not depend on the order of rows.
    pub(super) fn call(&mut self, relation: &Relation) -> (String, Kind) {
        let kind = self
            .rng
            .pick(&[Kind::Int, Kind::Int, Kind::Decimal, Kind::Key, Kind::Other]);
        let Some(name) = self.column(relation, &[kind]) else {
            return ("count(*)".to_owned(), Kind::Int);
        };
        let name = self.written(relation, &name);
        let (call, result) = match (kind, self.rng.size(0, 9)) {
            (Kind::Other, _) | (_, 0) => (format!("count({name})"), Kind::Int),
            (_, 1) => (format!("count(DISTINCT {name})"), Kind::Int),
            (_, 2) => (format!("min({name})"), kind),
            (_, 3) => (format!("max({name})"), kind),
            (Kind::Key, 4) => (
                format!("string_agg({name}, ',' ORDER BY {name})"),
                Kind::Key,
            ),
            (_, 4) => (format!("array_agg({name} ORDER BY {name})"), Kind::Other),
            (_, 5) => (format!("first_value({name} ORDER BY {name} DESC)"), kind),
            (Kind::Key, _) => ("count(*)".to_owned(), Kind::Int),
            (_, 6) => (format!("avg({name})"), Kind::Other),
            (Kind::Int, 7) => (format!("sum(DISTINCT {name})"), kind),
            _ => (format!("sum({name})"), kind),
        };
        let filter = match self.column(relation, &[Kind::Int]) {
            Some(value) if self.rng.one_in(6) => format!(" FILTER (WHERE {value} > 1)"),
            _ => String::new(),
        };
        (call + &filter, result)
    }

    /// SELECT DISTINCT of a time and some columns.
    pub(super) fn distinct(&mut self, relation: &Relation) -> Select {
        self.unique(relation, &[Kind::Time, Kind::Window, Kind::Bin], false)
    }

    /// DISTINCT ON all that is selected: which row is kept cannot be seen.
    pub(super) fn distinct_on(&mut self, relation: &Relation) -> Select {
        self.unique(relation, &[Kind::Time], true)
    }

    fn unique(&mut self, relation: &Relation, times: &[Kind], on: bool) -> Select {
        let Some(time) = self.column(relation, times) else {
            return self.aggregate(relation);
        };
        let mut columns: Vec<Column> = Vec::new();
        for column in &relation.columns {
            let plain = matches!(column.kind, Kind::Key | Kind::Int | Kind::Decimal);
            if column.name == time || plain && self.rng.one_in(2) {
                columns.push(column.clone());
            }
        }
        let mut filter = self.filter(relation);
        if columns.iter().any(|column| column.nulls) {
            filter.push(format!("{time} IS NOT NULL"));
        }
        for column in &mut columns {
            column.nulls = false;
        }
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let names = names.join(", ");
        let keys = if on {
            format!(" ON ({names})")
        } else {
            String::new()
        };
        let text = format!(
            "SELECT DISTINCT{keys} {names} FROM {}{}",
            relation.text,
            conditions(&filter)
        );
        Select { text, columns }
    }

    /// Two aggregates by the same window, joined on it.
    pub(super) fn two_sides(&mut self) -> Select {
        let (left, right) = (self.source(), self.source());
        let size = self.rng.between(1, 12);
        let size = self.ticks(size);
        let side = |draft: &mut Self, relation: &Relation| {
            let time = draft.column(relation, &[Kind::Time])?;
            let key = draft.column(relation, &[Kind::Key])?;
            let names = [draft.fresh("w"), draft.fresh("key"), draft.fresh("a")];
            let from = if draft.rng.one_in(4) {
                // Windows of the same windows.
                let below = &relation.text;
                let group = format!("window({time}, '{size}'), {key}");
                format!(
                    "(SELECT window_time(window) AS {time}, {key} FROM {below} GROUP BY {group})"
                )
            } else {
                relation.text.clone()
            };
            let text = format!(
                "SELECT window AS {}, {key} AS {}, count(*) AS {} FROM {from} GROUP BY window({time}, '{size}'), {key}",
                names[0], names[1], names[2]
            );
            Some((text, names))
        };
        let (Some((left, l)), Some((right, r))) = (side(self, &left), side(self, &right)) else {
            let source = self.source();
            return self.aggregate(&source);
        };
        let join = self
            .rng
            .pick(&["JOIN", "JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN"]);
        let on_key = if self.rng.one_in(2) {
            format!(" AND {} = {}", l[1], r[1])
        } else {
            String::new()
        };
        let (left_name, right_name) = (self.fresh("l"), self.fresh("r"));
        let text = format!(
            "SELECT * FROM ({left}) AS {left_name} {join} ({right}) AS {right_name} ON {} = {}{on_key}",
            l[0], r[0]
        );
        let both = l
            .into_iter()
            .zip([Kind::Window, Kind::Key, Kind::Int])
            .chain(r.into_iter().zip([Kind::Other, Kind::Key, Kind::Int]));
        let inner = join == "JOIN";
        let columns = both
            .map(|(name, kind)| match kind {
                Kind::Window if !inner => Column::new(name, Kind::Other),
                _ => Column::new(name, kind),
            })
            .collect();
        Select { text, columns }
    }

    /// A SELECT and the same again.
    pub(super) fn twice(&mut self, relation: &Relation) -> Select {
        let select = if self.rng.one_in(2) {
            self.aggregate(relation)
        } else {
            self.plain(relation)
        };
        Select {
            text: format!("{0} UNION ALL {0}", select.text),
            columns: select.columns,
        }
    }
}
