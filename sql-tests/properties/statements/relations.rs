//! Relations of statements that a stream takes: what can stand in FROM, and what is known of its columns.
//!
//! A text is a template: `§ t` and `§(t§)` are `STREAM t` and `STREAM(t)`, or in batch just the table, and what stands
//! between `§[` and `§]` is said of streams only.

use super::data::Tables;
use crate::scenario::Rng;
use crate::text::duration;

/// What a column may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The event time, of which the watermark speaks.
    Time,
    /// A window or session of it.
    Window,
    /// A bin of it.
    Bin,
    /// Text.
    Key,
    /// Whole numbers.
    Int,
    /// Decimals.
    Decimal,
    /// Anything else: it can be counted and selected.
    Other,
}

/// A column of a relation.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Its name, as it is written.
    pub(super) name: String,
    /// What it holds.
    pub(super) kind: Kind,
    /// Whether a time in it may be NULL.
    pub(super) nulls: bool,
}

impl Column {
    pub(super) fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            nulls: false,
        }
    }

    pub(super) fn nullable(self, nulls: bool) -> Self {
        Self { nulls, ..self }
    }
}

/// Something in FROM.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    /// Its text, alias included.
    pub(super) text: String,
    /// The name that may stand before a column.
    pub(super) name: Option<String>,
    /// Its columns.
    pub(super) columns: Vec<Column>,
}

/// A SELECT and its columns.
#[derive(Debug, Clone)]
pub(super) struct Select {
    /// Its text.
    pub(super) text: String,
    /// Its columns.
    pub(super) columns: Vec<Column>,
}

/// How selects become relations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Subquery,
    Cte,
    View,
}

/// A statement being drawn.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) tables: &'a Tables,
    nesting: Nesting,
    numbers: usize,
    /// Common table expressions, each `name AS (query)`.
    pub(super) ctes: Vec<String>,
    /// Statements that make the views.
    pub(super) views: Vec<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(rng: &'a mut Rng, tables: &'a Tables) -> Self {
        let nesting = rng.pick(&[Nesting::Subquery, Nesting::Cte, Nesting::View]);
        Self {
            rng,
            tables,
            nesting,
            numbers: 0,
            ctes: Vec::new(),
            views: Vec::new(),
        }
    }

    /// A name that is not taken.
    pub(super) fn fresh(&mut self, prefix: &str) -> String {
        self.numbers += 1;
        format!("{prefix}{}", self.numbers)
    }

    /// A length of time of so many ticks.
    pub(super) fn ticks(&self, ticks: i64) -> String {
        duration(ticks * self.tables.tick)
    }

    /// An alias with a new name.
    pub(super) fn alias(&mut self) -> (String, String) {
        let name = self.fresh("r");
        let text = self.rng.pick(&[" AS ", " "]).to_owned() + &name;
        (text, name)
    }

    /// A view or a common table expression of a query.
    pub(super) fn named(&mut self, query: String) -> String {
        let name = self.fresh("q");
        if self.nesting == Nesting::View {
            self.views
                .push(format!("CREATE OR REPLACE VIEW {name} AS {query}"));
        } else {
            self.ctes.push(format!("{name} AS ({query})"));
        }
        name
    }

    /// A SELECT as a relation.
    pub(super) fn relation(&mut self, select: Select) -> Relation {
        // A view cannot see the statement's common table expressions.
        let as_view = self.nesting == Nesting::View && self.ctes.is_empty();
        if self.nesting == Nesting::Cte || as_view {
            let name = self.named(select.text);
            if self.rng.one_in(2) {
                let (alias, short) = self.alias();
                return Relation::new(format!("{name}{alias}"), Some(short), select.columns);
            }
            return Relation::new(name.clone(), Some(name), select.columns);
        }
        if self.rng.one_in(4) {
            return Relation::new(format!("({})", select.text), None, select.columns);
        }
        let (alias, name) = self.alias();
        Relation::new(
            format!("({}){alias}", select.text),
            Some(name),
            select.columns,
        )
    }

    /// The relation, joined now and then with what is no stream.
    pub(super) fn beside(&mut self, mut relation: Relation) -> Relation {
        if !self.rng.one_in(3) {
            return relation;
        }
        if self.rng.one_in(5) {
            let (list, copy) = (self.fresh("list"), self.fresh("copy"));
            relation.text += &format!(" CROSS JOIN UNNEST(make_array(1, 2)) AS {list} ({copy})");
            relation.columns.push(Column::new(copy, Kind::Int));
            return relation;
        }
        let Some(key) = self.column(&relation, &[Kind::Key]) else {
            return relation;
        };
        let names = self.fresh("nm");
        let added = [
            self.fresh("code"),
            self.fresh("label"),
            self.fresh("weight"),
        ];
        let table = format!("names AS {names} ({})", added.join(", "));
        let on = format!("ON {key} = {names}.{}", added[0]);
        let text = &relation.text;
        let (text, adds) = match self.rng.size(0, 6) {
            0 => (format!("{table} JOIN {text} {on}"), true),
            1 => (format!("{table} RIGHT JOIN {text} {on}"), true),
            2 => (format!("{text} LEFT SEMI JOIN {table} {on}"), false),
            3 => (format!("{text} LEFT ANTI JOIN {table} {on}"), false),
            4 => (format!("{text} LEFT JOIN {table} {on}"), true),
            _ => (format!("{text} JOIN {table} {on}"), true),
        };
        relation.text = text;
        if adds {
            let kinds = [Kind::Key, Kind::Key, Kind::Int];
            let added = added.into_iter().zip(kinds);
            relation
                .columns
                .extend(added.map(|(name, kind)| Column::new(name, kind)));
        }
        relation
    }

    /// Some column of one of these kinds.
    pub(super) fn column(&mut self, relation: &Relation, kinds: &[Kind]) -> Option<String> {
        let fitting: Vec<&Column> = relation
            .columns
            .iter()
            .filter(|column| kinds.contains(&column.kind))
            .collect();
        if fitting.is_empty() {
            return None;
        }
        Some(fitting[self.rng.size(0, fitting.len() - 1)].name.clone())
    }
}

impl Relation {
    pub(super) fn new(text: String, name: Option<String>, columns: Vec<Column>) -> Self {
        Self {
            text,
            name,
            columns,
        }
    }
}
