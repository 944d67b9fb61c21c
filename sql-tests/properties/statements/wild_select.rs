//! SELECTs of any kind.

use super::wild::Wild;

/// Groupings by time.
const TIMES: &str = "window(ts, '10 minutes')|window(ts, '1 hour')|window(ts, '1 hour', '20 minutes')|\
    window(ts, INTERVAL '90 seconds', '1 minute', '-30 seconds')|WINDOW(TS, '1 day')|session_window(ts, '5 minutes')|\
    session_window(ts, CASE WHEN v > 2 THEN '1 hour' WHEN v = 0 THEN NULL ELSE '2 minutes' END)|\
    session_window(ts, INTERVAL '1 hour')|date_bin(INTERVAL '15 minutes', ts)|\
    date_bin(INTERVAL '1 hour', ts, TIMESTAMP '2026-01-01T00:07:00')|date_trunc('hour', ts)|ts";

/// Groupings by time that are seldom right.
const ODD_TIMES: &str = "window(a.ts, '1 hour')|window(window, '2 hours')|window(window_time(window), '2 hours')|\
    window(window(ts, '10 minutes'), '1 hour')|window(ts + INTERVAL '1 hour', '1 hour')|window(ts, k)|\
    window(et, '1 hour')|session_window(window, '1 hour')|window(ts, '1 hour', '2 hours')|window(k, '1 hour')|\
    window(ts)|window()|window(ts, '1 month')|window(DISTINCT ts, '1 hour')|window(ts, '1 hour').start|\
    session_window(ts, v)|session_window(window(ts, '1 hour'), '1 hour')|window(ts, '300000 days')|\
    window(ts, '1 nanosecond')|window(ts, '1 hour', '1 microsecond')|date_bin(INTERVAL '0 seconds', ts)|\
    date_bin(INTERVAL '1 month', ts)|date_trunc(k, ts)|window(NULL, '1 hour')|window(now(), '1 hour')";

/// Aggregates.
const CALLS: &str = "count(*)|count(*)|sum(v)|avg(v)|min(ts)|max(k)|count(DISTINCT v)|array_agg(v ORDER BY v)|\
    string_agg(k, ',')|first_value(v ORDER BY ts)|last_value(v)|median(v)|approx_distinct(k)|count(ts)|stddev(v)|\
    approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY v)|bool_and(v > 1)|sum(DISTINCT v)|array_agg(ts)|\
    sum(v) + count(*)|nth_value(v, 2 ORDER BY v)|approx_median(v)|var_pop(v)|bit_xor(v)";

/// Aggregates that are seldom right.
const ODD_CALLS: &str = "sum(n)|sum(d)|grouping(k)|count(window)|max(window)|sum(9223372036854775807)|corr(v, d)|\
    array_agg(window)|sum(k)|count()|sum(sum(v))|array_agg(window.start)|min(make_array(v))|sum(v) OVER ()|\
    first_value(window)|count(DISTINCT window)|sum(-9223372036854775808)|avg(d)|max(d) FILTER (WHERE window IS NULL)";

/// Expressions over one row.
const SCALARS: &str = "ts|k|v|k|v|ts|v|k";

/// Expressions over one row that are seldom right.
const ODD_SCALARS: &str = "a.ts|t.v|window|window.start|window.\"end\"|session_window.start|window_time(window)|\
    watermark|delay|stream|et|n|d|\"Event Time\"|label|NULL|now()|$1|window.nope|*|t.*|__tidegate_w1";

/// Constants.
const CONSTANTS: &str = "1|-3|0.5|'k1'|'1 hour'|true|INTERVAL '1 hour'|TIMESTAMP '2026-01-01T01:00:00'|\
    9223372036854775807|''|NULL";

impl Wild<'_> {
    /// A SELECT with at most so many levels below it.
    pub(super) fn select(&mut self, depth: usize) -> String {
        let from = self.from(depth);
        let distinct = match self.rng.size(0, 13) {
            0 => "DISTINCT ".to_owned(),
            1 => format!("DISTINCT ON ({}) ", self.key()),
            _ => String::new(),
        };
        let filter = if self.rng.one_in(4) {
            format!(" WHERE {}", self.condition(depth))
        } else {
            String::new()
        };
        let (items, group) = if self.rng.one_in(3) {
            (self.items(depth), String::new())
        } else {
            self.grouped()
        };
        let having = if !group.is_empty() && self.rng.one_in(8) {
            format!(" HAVING {} > {}", self.aggregate(), self.rng.between(0, 3))
        } else {
            String::new()
        };
        let qualify = self.either("", " QUALIFY row_number() OVER (ORDER BY ts) = 1||");
        format!("SELECT {distinct}{items} FROM {from}{filter}{group}{having}{qualify}")
    }

    fn key(&mut self) -> &'static str {
        self.either(
            "k|k|v|ts|k, v|upper(k)|v + 1",
            "label|window|1|d|ts, d|window.start",
        )
    }

    /// Items and GROUP BY: the time goes by the names ts or window, so that a SELECT above can group by it again.
    fn grouped(&mut self) -> (String, String) {
        let time = self.either(TIMES, ODD_TIMES);
        let key = self.key();
        let named = match time.split_once('(').map(|(name, _)| name) {
            Some("window" | "WINDOW") => "window",
            Some("session_window") => "session_window",
            _ => "",
        };
        let shown = match self.rng.size(0, 6) {
            _ if named.is_empty() => format!("{time} AS ts"),
            0 => format!("{named}.start AS ts, {named}.end"),
            1 => named.to_owned(),
            2 => format!("{time} AS window"),
            3 => format!("{time}.start"),
            4 => format!("{named}['end'] AS ts, {named}"),
            _ => format!("window_time({named}) AS ts"),
        };
        let (with_key, group) = self.group(time, key);
        let shown_key = if with_key {
            format!("{key}, ")
        } else {
            String::new()
        };
        let mut calls = format!("{} AS v", self.aggregate());
        for _ in 0..self.rng.size(0, 2) {
            calls += &format!(", {}", self.aggregate());
        }
        (format!("{shown}, {shown_key}{calls}"), group)
    }

    /// GROUP BY, and whether the key is in it.
    fn group(&mut self, time: &str, key: &str) -> (bool, String) {
        let list = match self.rng.size(0, 19) {
            0 => format!("ROLLUP ({time}, {key})"),
            1 => format!("CUBE ({time}, {key})"),
            2 | 3 => format!("GROUPING SETS (({time}, {key}), ({time}))"),
            4 => format!("GROUPING SETS (({time}), ({key}), ())"),
            5 => format!("{time}, ROLLUP ({key})"),
            6 => key.to_owned(),
            7 => "1, 2".to_owned(),
            8 => format!("{time}, {key}, {}", self.either(TIMES, ODD_TIMES)),
            9 => "ALL".to_owned(),
            10 => return (false, String::new()),
            11..=14 => format!("{key}, {time}"),
            _ => return (false, format!(" GROUP BY {time}")),
        };
        (true, format!(" GROUP BY {list}"))
    }

    fn items(&mut self, depth: usize) -> String {
        match self.rng.size(0, 9) {
            0..=3 => "*".to_owned(),
            4 => "*, window(ts, '1 hour') AS w".to_owned(),
            5 => "ts, k, v".to_owned(),
            6 if depth > 0 => format!("ts, k, ({}) AS sub", self.subquery(depth)),
            7 => {
                let call = self.one("row_number()|sum(v)|rank()|lag(ts)|window(ts, '1 hour')");
                let frame = self.one(
                    "|ORDER BY ts|PARTITION BY k|PARTITION BY window(ts, '1 hour') ORDER BY v|\
                     ORDER BY ts RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND CURRENT ROW",
                );
                format!("ts, k, {call} OVER ({frame}) AS v")
            }
            _ => {
                let name = self.one(" AS v| AS v|| AS window| AS \"Event Time\"| AS watermark");
                format!("ts, k, {}{name}", self.scalar(2))
            }
        }
    }

    fn aggregate(&mut self) -> String {
        let call = self.either(CALLS, ODD_CALLS);
        let filter = if self.rng.one_in(10) {
            " FILTER (WHERE v > 1)"
        } else {
            ""
        };
        format!("{call}{filter}")
    }

    /// An expression of a few levels.
    pub(super) fn scalar(&mut self, depth: usize) -> String {
        if self.rng.one_in(5) {
            return self.one(CONSTANTS).to_owned();
        }
        if depth == 0 || self.rng.one_in(3) {
            return self.either(SCALARS, ODD_SCALARS).to_owned();
        }
        let inner = self.scalar(depth - 1);
        match self.rng.size(0, 11) {
            0 => format!("{inner} + 1"),
            1 => format!("({inner})"),
            2 => {
                let kind = self.one("BIGINT|VARCHAR|TIMESTAMP|DATE|TIMESTAMP(0)|DECIMAL(5,1)");
                format!("TRY_CAST({inner} AS {kind})")
            }
            3 => format!("CASE WHEN {inner} IS NULL THEN 0 ELSE v END"),
            4 => format!("coalesce({inner}, {})", self.either(SCALARS, ODD_SCALARS)),
            5 => format!("{inner} = {}", self.either(SCALARS, ODD_SCALARS)),
            6 => format!("{inner}['start']"),
            7 => format!("{inner}.start"),
            8 => format!("make_array({inner})"),
            9 => format!("{inner} AT TIME ZONE 'UTC'"),
            10 => format!("window({inner}, '1 hour')"),
            _ => format!("date_trunc('hour', {inner})"),
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        match self.rng.size(0, 9) {
            0 => "v > 1".to_owned(),
            1 => "ts >= TIMESTAMP '2026-01-01T00:10:00'".to_owned(),
            2 => self
                .one("true|false|NULL|1 = 0|random() < 2|ts < now()")
                .to_owned(),
            3 => "k IN (SELECT code FROM names)".to_owned(),
            4 if depth > 0 => format!("v > ({})", self.subquery(depth)),
            5 if depth > 0 => format!("EXISTS ({})", self.subquery(depth)),
            6 if depth > 0 => format!("v NOT IN ({})", self.subquery(depth)),
            7 => "window(ts, '1 hour').start > TIMESTAMP '2026-01-01T00:10:00'".to_owned(),
            _ => format!("{} IS NOT NULL", self.scalar(2)),
        }
    }

    /// A query of an expression.
    fn subquery(&mut self, depth: usize) -> String {
        match self.rng.size(0, 4) {
            0 | 1 => "SELECT max(weight) FROM names WHERE names.code = k".to_owned(),
            2 => "SELECT max(weight) FROM names".to_owned(),
            3 => "SELECT max(v) FROM STREAM t".to_owned(),
            _ => self.query(depth - 1),
        }
    }
}
