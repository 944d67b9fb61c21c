//! Statements of any kind, most of which mean something: the clause in every place, streams below everything.
//!
//! Choices stand in one text, with `|` between.

use crate::scenario::Rng;

/// Statements about the tables of the suite, drawn without regard to what a stream takes.
#[derive(Debug)]
pub(super) struct Wild<'a> {
    pub(super) rng: &'a mut Rng,
    /// Whether what can hardly be right is written too.
    odd: bool,
    /// Names of the views and common table expressions so far.
    pub(super) relations: Vec<String>,
}

/// Settings besides the output mode.
const SETTINGS: &str = "tidegate.end_of_input = 'hold'|tidegate.multiple_watermark_policy = 'max'|\
    tidegate.max_future = '0 seconds'|tidegate.idle_timeout = '1 second'|\
    tidegate.epoch_by = 'k'|datafusion.execution.batch_size = 3|datafusion.optimizer.max_passes = 1|\
    datafusion.execution.time_zone = '+05:30'|datafusion.optimizer.filter_null_join_keys = true|\
    datafusion.sql_parser.enable_ident_normalization = false|datafusion.optimizer.prefer_hash_join = false";

impl<'a> Wild<'a> {
    pub(super) fn new(rng: &'a mut Rng) -> Self {
        let odd = rng.one_in(3);
        Self {
            rng,
            odd,
            relations: Vec::new(),
        }
    }

    /// One of the choices.
    pub(super) fn one(&mut self, choices: &'static str) -> &'static str {
        let choices: Vec<&str> = choices.split('|').collect();
        self.rng.pick(&choices)
    }

    /// One of what may be right, or now and then one of what hardly is.
    pub(super) fn either(&mut self, right: &'static str, odd: &'static str) -> &'static str {
        let odd = if self.odd && self.rng.one_in(6) {
            odd
        } else {
            right
        };
        self.one(odd)
    }

    /// Settings and views, and then what is done with a query.
    pub(super) fn statements(&mut self, query: Option<String>) -> Vec<String> {
        let mut all = Vec::new();
        if self.rng.one_in(3) {
            let mode = self.either("append|update|complete", "sometimes|");
            all.push(format!("SET tidegate.output_mode = '{mode}'"));
        }
        if self.rng.one_in(3) {
            all.push(format!(
                "SET tidegate.max_rows_per_epoch = {}",
                self.rng.size(1, 9)
            ));
        }
        if self.rng.one_in(8) {
            all.push(format!("SET {}", self.one(SETTINGS)));
        }
        for _ in 0..self.rng.size(0, 5).saturating_sub(3) {
            let name = format!("view{}", self.relations.len());
            let query = self.query(1);
            all.push(format!("CREATE VIEW {name} AS {query}"));
            self.relations.push(name);
        }
        let depth = self.rng.pick(&[0, 1, 1, 2]);
        let query = query.unwrap_or_else(|| self.query(depth));
        self.uses(query, &mut all);
        all
    }

    /// What is done with a query.
    fn uses(&mut self, query: String, all: &mut Vec<String>) {
        match self.rng.size(0, 19) {
            0 => all.push(format!("EXPLAIN {query}")),
            1 => {
                let how = self.one("ANALYZE|VERBOSE|FORMAT TREE|ANALYZE VERBOSE");
                all.push(format!("EXPLAIN {how} {query}"));
            }
            2..=6 => self.streaming_table(&query, all),
            7 => {
                all.push(format!("CREATE TABLE made AS {query}"));
                all.push("SELECT * FROM made".to_owned());
            }
            8 => {
                all.push("CREATE TABLE sink (a TIMESTAMP, b VARCHAR, c BIGINT)".to_owned());
                let into = self.one("sink|sink (b)|sink (c, b)|t");
                all.push(format!("INSERT INTO {into} {query}"));
                all.push("SELECT * FROM sink".to_owned());
            }
            9 => self.prepared(&query, all),
            10 => {
                all.push(format!("CREATE OR REPLACE VIEW again AS {query}"));
                let again =
                    self.one("again|STREAM again|again WATERMARK ts DELAY OF INTERVAL 1 HOUR");
                all.push(format!("SELECT * FROM {again}"));
            }
            11 => all.push(format!("DESCRIBE {query}")),
            12 => {
                let change = self.one(
                    "DELETE FROM t WHERE k IN|UPDATE t SET v = 1 WHERE v IN|INSERT OVERWRITE t|\
                     CREATE OR REPLACE TABLE t AS|CREATE EXTERNAL TABLE t AS|COPY",
                );
                all.push(format!("{change} ({query})"));
            }
            _ => all.push(query),
        }
    }

    fn prepared(&mut self, query: &str, all: &mut Vec<String>) {
        let types = self.one("|(BIGINT)|(BIGINT, VARCHAR)");
        let filter = self.one("| WHERE $1 > 0| WHERE k <> $2 AND v > $1");
        all.push(format!(
            "PREPARE p{types} AS SELECT * FROM ({query}) AS p{filter}"
        ));
        let values = self.one("(1)|(1, 'k1')||(NULL)");
        all.push(format!("EXECUTE p{values}"));
    }

    /// The life of a streaming table.
    fn streaming_table(&mut self, query: &str, all: &mut Vec<String>) {
        let how = self.one("CREATE|CREATE|CREATE OR REPLACE|CREATE OR REFRESH");
        let name = self.one("st|st|\"St x\"|public.st|IF NOT EXISTS st");
        let options = match self.rng.size(0, 5) {
            0..=2 => {
                let mode = self.either("append|update|complete", "sometimes");
                let more = self.one("||, max_rows_per_epoch = 4|, epoch_by = k");
                format!("WITH (output_mode = '{mode}'{more}) ")
            }
            _ => String::new(),
        };
        all.push(format!("{how} STREAMING TABLE {name} {options}AS {query}"));
        let name = name.trim_start_matches("IF NOT EXISTS ");
        all.push(format!("REFRESH STREAMING TABLE {name}"));
        if self.rng.one_in(2) {
            let row = "(TIMESTAMP '2026-02-01T00:00:00', 'k1', 3)";
            all.push(format!("INSERT INTO t (ts, k, v) VALUES {row}"));
            all.push(format!("REFRESH STREAMING TABLE {name}"));
        }
        all.push(format!("SELECT * FROM {name}"));
        match self.rng.size(0, 5) {
            0 => all.push("SHOW STREAMING TABLES".to_owned()),
            1 => all.push(format!("DESCRIBE {name}")),
            2 => all.push("SELECT * FROM emitted('st')".to_owned()),
            3 => all.push(format!("SELECT count(*) FROM STREAM {name}")),
            4 => all.push(format!("DROP STREAMING TABLE {name}")),
            _ => {}
        }
    }

    /// A query with at most so many levels below it.
    pub(super) fn query(&mut self, depth: usize) -> String {
        let known = self.relations.len();
        let mut text = String::new();
        if depth > 0 && self.rng.one_in(5) {
            let name = self.either("c1|c2|watermark|\"C d\"", "stream|t|window");
            let columns = self.either("", " (ts, k)| (a, b, c)");
            text = format!("WITH {name}{columns} AS ({}) ", self.query(depth - 1));
            self.relations.push(name.to_owned());
        }
        text += &self.body(depth);
        if self.rng.one_in(6) {
            let direction = self.one("| DESC| ASC NULLS FIRST");
            text += &format!(" ORDER BY {}{direction}", self.order());
        }
        if self.rng.one_in(8) {
            text += &format!(" LIMIT {}", self.either("0|1|3|100|1 + 1", "NULL|ALL|-1|v"));
        }
        if self.rng.one_in(16) {
            text += &format!(" OFFSET {}", self.rng.size(0, 4));
        }
        self.relations.truncate(known);
        text
    }

    fn order(&mut self) -> String {
        match self.rng.size(0, 3) {
            0 => self.scalar(1),
            _ => self
                .either("1|2|k|v, 1", "window|window.start|n|ALL")
                .to_owned(),
        }
    }

    fn body(&mut self, depth: usize) -> String {
        match self.rng.size(0, 13) {
            0 if depth > 0 => {
                let how = self.one("UNION ALL|UNION|EXCEPT|INTERSECT|UNION ALL BY NAME");
                format!(
                    "{} {how} {}",
                    self.select(depth - 1),
                    self.select(depth - 1)
                )
            }
            1 | 2 if depth > 0 => {
                let half = self.select(depth - 1);
                format!("{half} UNION ALL {half}")
            }
            3 if depth > 0 => format!("({})", self.query(depth - 1)),
            4 if self.rng.one_in(4) => {
                "VALUES (TIMESTAMP '2026-01-01T00:00:00', 'k1', 1)".to_owned()
            }
            _ => self.select(depth),
        }
    }
}
