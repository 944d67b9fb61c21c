//! Queries and rows as SQL.

use chrono::DateTime;

use crate::arrivals::Feed;
use crate::follow::Reference;
use crate::query::{Aggregate, Grouping, Mode, Predicate, Query, Row};
use crate::scenario::Scenario;

/// Columns of every table of the suite.
pub(crate) const COLUMNS: &str = "(ts TIMESTAMP(6), k VARCHAR, v BIGINT, x DOUBLE)";

/// Units of an interval, in microseconds, largest first.
const UNITS: [(i64, &str); 5] = [
    (3_600_000_000, "hours"),
    (60_000_000, "minutes"),
    (1_000_000, "seconds"),
    (1_000, "milliseconds"),
    (1, "microseconds"),
];

/// The table of rows that `q` does not count, where a scenario keeps them.
pub(crate) const LATE: &str = "q_late";

/// The rows that `q` did not count, by epoch and reason.
pub(crate) fn late() -> String {
    format!("SELECT _epoch, _reason, count(*) AS n FROM {LATE} GROUP BY _epoch, _reason")
}

/// The statement that defines the streaming table `q` of a scenario.
pub(crate) fn definition(scenario: &Scenario) -> String {
    let query = &scenario.query;
    define(query.mode, &scenario.feed, &select(query, "STREAM t"))
}

/// The statement that defines the streaming table `q`.
pub(crate) fn define(mode: Mode, feed: &Feed, query: &str) -> String {
    let mode = match mode {
        Mode::Append => "append",
        Mode::Update => "update",
        Mode::Complete => "complete",
    };
    let most = feed
        .max_rows
        .map(|most| format!(", max_rows_per_epoch = '{most}'"))
        .unwrap_or_default();
    let late = match feed.seed.is_multiple_of(2) && query.contains("WATERMARK") {
        true => format!(", late_rows = '{LATE}'"),
        false => String::new(),
    };
    format!("CREATE STREAMING TABLE q WITH (output_mode = '{mode}'{most}{late}) AS\n{query}")
}

/// The rows that `q` emitted in an epoch.
pub(crate) fn emitted(epoch: u64) -> String {
    format!("SELECT * FROM emitted('q', {epoch})")
}

/// The query over `relation`, which is `STREAM t` or a table's name.
pub(crate) fn select(query: &Query, relation: &str) -> String {
    select_columns(query, relation, &columns(query))
}

/// The same with other columns.
pub(crate) fn select_columns(query: &Query, relation: &str, columns: &str) -> String {
    let mut filter = String::new();
    let mut from = relation.to_owned();
    if let Some(condition) = &query.filter {
        let text = predicate(&condition.predicate);
        if condition.below {
            from = format!("(SELECT * FROM {relation} WHERE {text})");
        } else {
            filter = format!("\nWHERE {text}");
        }
    }
    let watermark = query
        .delay
        .map(|delay| format!(" {}", clause(delay)))
        .unwrap_or_default();
    let having = query
        .having
        .map(|bound| format!("\nHAVING count(*) >= {bound}"))
        .unwrap_or_default();
    format!(
        "SELECT {columns}\nFROM {from}{watermark}{filter}\nGROUP BY {}{having}",
        keys(query)
    )
}

/// The clause over `ts`.
pub(crate) fn clause(delay: i64) -> String {
    format!("WATERMARK ts DELAY OF INTERVAL '{}'", duration(delay))
}

fn columns(query: &Query) -> String {
    let window = if query.selects_end() {
        "window.start AS ws, window.end AS we".to_owned()
    } else {
        format!("{} AS ws", bin(query.grouping))
    };
    let key = if query.keyed { ", k" } else { "" };
    let aggregates: String = query
        .aggregates
        .iter()
        .enumerate()
        .map(|(place, call)| format!(", {} AS a{place}", aggregate(*call)))
        .collect();
    format!("{window}{key}, count(*) AS n{aggregates}")
}

fn keys(query: &Query) -> String {
    let bin = bin(query.grouping);
    match (query.keyed, query.key_first) {
        (false, _) => bin,
        (true, false) => format!("{bin}, k"),
        (true, true) => format!("k, {bin}"),
    }
}

/// The call that groups event times. The forms of `window` with fewer arguments are used where they do.
fn bin(grouping: Grouping) -> String {
    match grouping {
        Grouping::DateBin { size } => format!("date_bin(INTERVAL '{}', ts)", duration(size)),
        Grouping::TruncMinute => "date_trunc('minute', ts)".to_owned(),
        Grouping::Window { size, slide, start } => {
            let mut arguments = format!("ts, '{}'", duration(size));
            if slide != size || start != 0 {
                arguments.push_str(&format!(", '{}'", duration(slide)));
            }
            if start != 0 {
                arguments.push_str(&format!(", '{}'", duration(start)));
            }
            format!("window({arguments})")
        }
    }
}

fn aggregate(call: Aggregate) -> String {
    match call {
        Aggregate::CountV => "count(v)".to_owned(),
        Aggregate::SumV => "sum(v)".to_owned(),
        Aggregate::MinV => "min(v)".to_owned(),
        Aggregate::MaxV => "max(v)".to_owned(),
        Aggregate::AvgX => "avg(x)".to_owned(),
        Aggregate::DistinctV => "count(DISTINCT v)".to_owned(),
        Aggregate::MaxTs => "max(ts)".to_owned(),
        Aggregate::CountAbove(bound) => format!("count(*) FILTER (WHERE v > {bound})"),
        Aggregate::SumAbove(bound) => format!("sum(v) FILTER (WHERE v > {bound})"),
    }
}

fn predicate(condition: &Predicate) -> String {
    match condition {
        Predicate::ValueAtLeast(bound) => format!("v >= {bound}"),
        Predicate::KeyIsNot(key) => format!("k <> '{key}'"),
        Predicate::TimeAtLeast(bound) => format!("ts >= {}", timestamp(*bound)),
    }
}

/// A length of time in its largest whole unit: `90 seconds`.
pub(crate) fn duration(micros: i64) -> String {
    let (unit, name) = UNITS
        .into_iter()
        .find(|(unit, _)| micros % unit == 0 && (micros != 0 || *unit == 1_000_000))
        .expect("every length is a number of microseconds");
    format!("{} {name}", micros / unit)
}

fn timestamp(micros: i64) -> String {
    let time = DateTime::from_timestamp_micros(micros).expect("within the calendar");
    format!("TIMESTAMP '{}'", time.format("%Y-%m-%dT%H:%M:%S%.6f"))
}

/// A feed of the streaming table `q` as statements that a person can run, with what `model` says of each refresh.
pub(crate) fn replay(feed: &Feed, definition: &str, mut model: impl Reference) -> String {
    let mut text = format!(
        "SET datafusion.execution.target_partitions = {};\nCREATE TABLE t {COLUMNS};\n{definition};\n",
        feed.partitions
    );
    for round in &feed.rounds {
        text.push_str(&insert(round));
        text.push_str("REFRESH STREAMING TABLE q;\n");
        for rows in feed.epochs(round) {
            let outcome = model.epoch(rows);
            text.push_str(&format!("-- {:?}\n", model.told(outcome.figures)));
            text.push_str(&format!("-- {:?}\n", outcome.emitted));
        }
    }
    text
}

fn insert(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let tuples: Vec<String> = rows.iter().map(tuple).collect();
    format!("INSERT INTO t VALUES\n  {};\n", tuples.join(",\n  "))
}

fn tuple(row: &Row) -> String {
    let null = || "NULL".to_owned();
    format!(
        "({}, {}, {}, {})",
        row.ts.map_or_else(null, timestamp),
        row.k.as_ref().map_or_else(null, |key| format!("'{key}'")),
        row.v.map_or_else(null, |v| v.to_string()),
        row.x.map_or_else(null, |x| x.to_string()),
    )
}
