//! Small tables of the statements: `t` and `u`, which are read as streams, and others beside them.

use std::sync::Arc;

use chrono::DateTime;
use datafusion::arrow::array::{
    ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray,
    TimestampNanosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::common::DataFusionError;
use tidegate::context::StreamContext;

use crate::scenario::Rng;

/// 2026-01-01T00:00:00Z in microseconds.
const BEGIN: i64 = 1_767_225_600_000_000;

/// Lengths of a tick, in microseconds: a second, a minute, an hour.
const TICKS: [i64; 3] = [1_000_000, 60_000_000, 3_600_000_000];

/// Types of the event time.
const TIME_TYPES: [&str; 6] = [
    "TIMESTAMP",
    "TIMESTAMP(6)",
    "TIMESTAMP(6)",
    "TIMESTAMP(3)",
    "TIMESTAMP(0)",
    "TIMESTAMP WITH TIME ZONE",
];

/// What the tables beside `t` and `u` are: `names` has a code twice and one that is NULL, `words` the names of our words.
const BESIDE: [&str; 5] = [
    "CREATE TABLE names (code VARCHAR, label VARCHAR, weight BIGINT)",
    "INSERT INTO names VALUES ('k1', 'one', 10), ('k2', 'two', 20), ('k2', 'second', 21), ('k9', 'nine', 90), \
     (NULL, 'none', 0)",
    "CREATE TABLE words (window BIGINT, watermark TIMESTAMP, stream VARCHAR, delay BIGINT)",
    "INSERT INTO words VALUES (1, TIMESTAMP '2026-01-01T00:01:00', 's', 2)",
    "CREATE TABLE nothing (ts TIMESTAMP, k VARCHAR, v BIGINT)",
];

/// A row of `t` or `u`.
#[derive(Debug, Clone)]
struct Arrival {
    /// Microseconds since 1970.
    ts: Option<i64>,
    k: Option<String>,
    v: Option<i64>,
    /// Hundredths.
    d: Option<i64>,
}

/// The tables `t` and `u` of the columns ts, k, v, d, the second without NULL in ts, and what is known of their times.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    /// Microseconds of a tick.
    pub(super) tick: i64,
    /// Type of the event time.
    time_type: &'static str,
    /// Ticks that a row may be behind one that came before it.
    pub(super) disorder: i64,
    /// Ticks between the earliest and the latest row at most.
    pub(super) spread: i64,
    /// Rows of `t` and of `u`, in order of arrival.
    rows: [Vec<Arrival>; 2],
}

impl Tables {
    /// Some twenty to sixty rows.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let tick = rng.pick(&TICKS);
        let disorder = rng.between(0, 8);
        let (step, keys) = (rng.between(0, 3), rng.between(1, 4));
        let mut spread = 0;
        let mut rows = |nulls: bool| {
            let mut now = 0;
            let mut rows = Vec::new();
            for _ in 0..rng.size(8, 28) {
                now += rng.between(0, step) + if rng.one_in(20) { 15 } else { 0 };
                let time = now - rng.between(0, disorder);
                rows.push(arrival(rng, time * tick, keys, nulls));
            }
            spread = spread.max(now + disorder + 1);
            rows
        };
        let rows = [rows(true), rows(false)];
        Self {
            tick,
            time_type: rng.pick(&TIME_TYPES),
            disorder,
            spread,
            rows,
        }
    }

    /// Some time among the rows, as a literal.
    pub(super) fn moment(&self, rng: &mut Rng) -> String {
        timestamp(BEGIN + rng.between(0, self.spread) * self.tick)
    }

    /// Makes the tables, and those beside them, as [`statements`](Self::statements) would.
    pub(super) async fn make(&self, context: &StreamContext) -> Result<(), DataFusionError> {
        for (name, rows) in ["t", "u"].iter().zip(&self.rows) {
            make(context, name, self.columns(rows)?).await?;
        }
        for (name, columns) in beside() {
            make(context, name, columns).await?;
        }
        Ok(())
    }

    fn columns(&self, rows: &[Arrival]) -> Result<Vec<(&'static str, ArrayRef)>, DataFusionError> {
        let times: TimestampMicrosecondArray = rows.iter().map(|row| row.ts).collect();
        let keys: StringViewArray = rows.iter().map(|row| row.k.as_deref()).collect();
        let values: Int64Array = rows.iter().map(|row| row.v).collect();
        let amounts = rows.iter().map(|row| row.d.map(i128::from));
        let amounts = Decimal128Array::from_iter(amounts).with_precision_and_scale(10, 2)?;
        let (unit, zone) = match self.time_type {
            "TIMESTAMP(0)" => (TimeUnit::Second, None),
            "TIMESTAMP(3)" => (TimeUnit::Millisecond, None),
            "TIMESTAMP(6)" => (TimeUnit::Microsecond, None),
            "TIMESTAMP" => (TimeUnit::Nanosecond, None),
            _ => (TimeUnit::Nanosecond, Some("+00:00".into())),
        };
        Ok(vec![
            ("ts", cast(&times, &DataType::Timestamp(unit, zone))?),
            ("k", Arc::new(keys)),
            ("v", Arc::new(values)),
            ("d", Arc::new(amounts)),
        ])
    }

    /// The statements that make the same tables.
    pub(super) fn statements(&self) -> Vec<String> {
        let mut all: Vec<String> = BESIDE.map(str::to_owned).to_vec();
        for (name, rows) in ["t", "u"].iter().zip(&self.rows) {
            let time_type = self.time_type;
            let columns = format!("ts {time_type}, k VARCHAR, v BIGINT, d DECIMAL(10,2)");
            all.push(format!("CREATE TABLE {name} ({columns})"));
            if !rows.is_empty() {
                let rows: Vec<String> = rows.iter().map(tuple).collect();
                all.push(format!(
                    "INSERT INTO {name} VALUES\n  {}",
                    rows.join(",\n  ")
                ));
            }
        }
        all
    }

    /// The same with fewer rows, larger cuts first.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for table in 0..self.rows.len() {
            let count = self.rows[table].len();
            let mut length = count;
            while length > 0 {
                for start in (0..count).step_by(length) {
                    let mut fewer = self.clone();
                    fewer.rows[table].drain(start..(start + length).min(count));
                    all.push(fewer);
                }
                length /= 2;
            }
        }
        all
    }
}

/// A row; with `nulls`, now and then without an event time.
fn arrival(rng: &mut Rng, time: i64, keys: i64, nulls: bool) -> Arrival {
    let no_time = nulls && rng.one_in(10);
    Arrival {
        ts: (!no_time).then_some(BEGIN + time),
        k: (!rng.one_in(8)).then(|| format!("k{}", rng.between(1, keys))),
        v: (!rng.one_in(8)).then(|| rng.between(-5, 9)),
        d: (!rng.one_in(8)).then(|| rng.between(-500, 900)),
    }
}

fn tuple(row: &Arrival) -> String {
    let null = || "NULL".to_owned();
    let amount = |cents: i64| {
        let sign = if cents < 0 { "-" } else { "" };
        format!("{sign}{}.{:02}", cents.abs() / 100, cents.abs() % 100)
    };
    format!(
        "({}, {}, {}, {})",
        row.ts.map_or_else(null, timestamp),
        row.k.as_ref().map_or_else(null, |key| format!("'{key}'")),
        row.v.map_or_else(null, |v| v.to_string()),
        row.d.map_or_else(null, amount),
    )
}

fn timestamp(micros: i64) -> String {
    let time = DateTime::from_timestamp_micros(micros).expect("within the calendar");
    format!("TIMESTAMP '{}'", time.format("%Y-%m-%dT%H:%M:%S%.6f"))
}

/// What [`BESIDE`] says, as columns.
fn beside() -> [(&'static str, Vec<(&'static str, ArrayRef)>); 3] {
    let codes = [Some("k1"), Some("k2"), Some("k2"), Some("k9"), None];
    let labels = ["one", "two", "second", "nine", "none"];
    let minute = (BEGIN + 60_000_000) * 1_000;
    let text = |texts: &[Option<&str>]| -> ArrayRef { Arc::new(StringViewArray::from_iter(texts)) };
    let whole = |numbers: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(numbers)) };
    let times = |times: Vec<i64>| -> ArrayRef { Arc::new(TimestampNanosecondArray::from(times)) };
    [
        (
            "names",
            vec![
                ("code", text(&codes)),
                ("label", text(&labels.map(Some))),
                ("weight", whole(vec![10, 20, 21, 90, 0])),
            ],
        ),
        (
            "words",
            vec![
                ("window", whole(vec![1])),
                ("watermark", times(vec![minute])),
                ("stream", text(&[Some("s")])),
                ("delay", whole(vec![2])),
            ],
        ),
        (
            "nothing",
            vec![
                ("ts", times(Vec::new())),
                ("k", text(&[])),
                ("v", whole(Vec::new())),
            ],
        ),
    ]
}

/// Makes an append-only table of these columns.
async fn make(
    context: &StreamContext,
    name: &str,
    columns: Vec<(&str, ArrayRef)>,
) -> Result<(), DataFusionError> {
    let field =
        |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    context.create_table(name, Arc::clone(&schema))?;
    let arrays = columns.into_iter().map(|(_, column)| column).collect();
    context
        .append(name, RecordBatch::try_new(schema, arrays)?)
        .await
}
