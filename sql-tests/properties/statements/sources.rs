//! Streams with their clause, in every form that a stream takes.

use super::relations::{Column, Draft, Kind, Relation, Select};

impl Draft<'_> {
    /// The clause over `time`: late is nothing, for the delay is longer than rows are out of order, or than all of time.
    fn clause(&mut self, time: &str, whole: bool) -> String {
        let least = if whole || self.rng.one_in(2) {
            self.tables.spread
        } else {
            self.tables.disorder
        };
        let more = self.rng.between(1, 3);
        let delay = self.ticks(least + more);
        let space = self
            .rng
            .pick(&[" ", " ", " ", " /* late */ ", "\n", " -- when\n"]);
        let (watermark, of) = self
            .rng
            .pick(&[("WATERMARK", "DELAY OF"), ("watermark", "Delay of")]);
        format!("{watermark}{space}{time} {of} INTERVAL '{delay}'")
    }

    /// One of the tables as a stream, and whether its times may be NULL.
    fn stream(&mut self) -> (String, &'static str, bool) {
        let (table, nulls) = self.rng.pick(&[("t", true), ("u", false)]);
        let text = match self.rng.size(0, 5) {
            0 => format!("§({table}§)"),
            1 => format!(
                "§ {table}§[ WITH (max_rows_per_epoch = {})§]",
                self.rng.size(2, 9)
            ),
            _ => format!("§ {table}"),
        };
        (text, table, nulls)
    }

    /// A stream with its clause.
    pub(super) fn source(&mut self) -> Relation {
        let (stream, table, nulls) = self.stream();
        let columns = base_columns(["ts", "k", "v", "d"], nulls);
        match self.rng.size(0, 9) {
            0 => self.expression_source(&stream, nulls),
            1 => self.renamed_source(&stream, nulls),
            2 => self.joined_source(table, columns),
            3 => self.union_source(),
            4 => {
                let below = format!("SELECT * FROM {stream}{}", self.rough_filter());
                let clause = self.clause("ts", false);
                let (alias, name) = self.alias();
                Relation::new(format!("({below}) {clause}{alias}"), Some(name), columns)
            }
            5 => {
                let clause = self.clause("ts", false);
                let text = format!("SELECT * FROM {stream} {clause}{}", self.rough_filter());
                self.relation(Select { text, columns })
            }
            6 => {
                // A stream below the name, or the name read as a stream.
                let inner = self.rng.one_in(2);
                let table = if inner { stream.as_str() } else { table };
                let text = format!("SELECT * FROM {table}{}", self.rough_filter());
                let below = self.named(text);
                let clause = self.clause("ts", false);
                let word = if inner { "" } else { "§ " };
                Relation::new(format!("{word}{below} {clause}"), Some(below), columns)
            }
            _ => {
                let stream = if self.rng.one_in(6) {
                    format!("({stream})")
                } else {
                    stream
                };
                let (alias, name) = self.alias();
                let time = if self.rng.one_in(3) {
                    format!("{name}.ts")
                } else {
                    "ts".to_owned()
                };
                let clause = self.clause(&time, false);
                Relation::new(format!("{stream} {clause}{alias}"), Some(name), columns)
            }
        }
    }

    /// `WATERMARK expr AS name`.
    fn expression_source(&mut self, stream: &str, nulls: bool) -> Relation {
        let time = self.fresh("et");
        let ticks = self.rng.between(1, 5);
        let named = format!("ts + INTERVAL '{}' AS {time}", self.ticks(ticks));
        let clause = self.clause(&named, false);
        let (alias, name) = self.alias();
        let mut columns = base_columns(["ts", "k", "v", "d"], false);
        columns[0].kind = Kind::Other;
        columns.insert(0, Column::new(time, Kind::Time).nullable(nulls));
        Relation::new(format!("{stream} {clause}{alias}"), Some(name), columns)
    }

    /// An alias with a list of columns.
    fn renamed_source(&mut self, stream: &str, nulls: bool) -> Relation {
        let names = self.rng.pick(&[
            ["seen", "code_of", "n", "amount"],
            ["\"Event Time\"", "\"K\"", "value", "decimals"],
            ["watermark", "delay", "stream", "of"],
        ]);
        let clause = self.clause(names[0], false);
        let (alias, name) = self.alias();
        let text = format!("{stream} {clause}{alias} ({})", names.join(", "));
        Relation::new(text, Some(name), base_columns(names, nulls))
    }

    /// The clause after a join in parentheses.
    fn joined_source(&mut self, table: &'static str, mut columns: Vec<Column>) -> Relation {
        let code = self.fresh("code");
        let (label, weight) = (self.fresh("label"), self.fresh("weight"));
        let join = self.rng.pick(&["JOIN", "LEFT JOIN", "INNER JOIN"]);
        let clause = self.clause("ts", false);
        let text = format!(
            "(§ {table} {join} names AS nm ({code}, {label}, {weight}) ON {table}.k = nm.{code}) {clause}"
        );
        columns[0].nulls = table == "t";
        columns.push(Column::new(label, Kind::Key));
        columns.push(Column::new(weight, Kind::Int));
        Relation::new(text, None, columns)
    }

    /// Both tables, under one clause or two.
    fn union_source(&mut self) -> Relation {
        let columns = base_columns(["ts", "k", "v", "d"], true);
        let side =
            |table: &str, clause: String| format!("SELECT ts, k, v, d FROM § {table}{clause}");
        if self.rng.one_in(2) {
            let clause = self.clause("ts", true);
            let (alias, name) = self.alias();
            let sides = format!(
                "{} UNION ALL {}",
                side("t", String::new()),
                side("u", String::new())
            );
            return Relation::new(format!("({sides}) {clause}{alias}"), Some(name), columns);
        }
        let (left, right) = (self.clause("ts", false), self.clause("ts", false));
        let text = format!(
            "{} UNION ALL {}",
            side("t", format!(" {left}")),
            side("u", format!(" {right}"))
        );
        self.relation(Select { text, columns })
    }

    /// A condition on the plain columns, or none.
    fn rough_filter(&mut self) -> String {
        match self.rng.size(0, 4) {
            0 => format!(" WHERE v > {}", self.rng.between(-5, 3)),
            1 => " WHERE k <> 'k1'".to_owned(),
            2 => format!(" WHERE ts >= {}", self.tables.moment(self.rng)),
            _ => String::new(),
        }
    }
}

/// Columns of a table under these names.
fn base_columns(names: [&str; 4], nulls: bool) -> Vec<Column> {
    let kinds = [Kind::Time, Kind::Key, Kind::Int, Kind::Decimal];
    let columns = names.iter().zip(kinds);
    columns
        .map(|(name, kind)| Column::new(*name, kind).nullable(nulls && kind == Kind::Time))
        .collect()
}
