//! What is found out in a pass, as columns.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Float64Array, Int64Array, StringArray, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;

use super::question::Asked;
use crate::sql::window_shape;
use crate::state::{Disorder, Lateness, Outcome, usual_delays};
use crate::time::{Span, Unit};

/// What is found out in one pass.
pub(super) trait Measure: Send {
    /// Takes rows, in order of arrival.
    fn add(&mut self, ticks: &Int64Array);
    /// Ends an epoch.
    fn end_epoch(&mut self);
    /// The columns of the answer.
    fn answer(&self) -> Vec<ArrayRef>;
}

/// What finds out what is asked.
pub(super) fn measure(asked: &Asked, unit: Unit) -> Result<Box<dyn Measure>> {
    Ok(match asked {
        Asked::OutOfOrder => Box::new(Order {
            rows: 0,
            null_rows: 0,
            disorder: Disorder::new(unit),
        }),
        Asked::Lateness { window, delays, .. } => {
            let shape = window_shape(unit, &[*window])?;
            let usual = delays.is_none();
            let delays = delays.clone().unwrap_or_else(|| usual_delays(unit));
            Box::new(Delays {
                lateness: Lateness::new(shape, unit, &delays),
                usual,
            })
        }
    })
}

/// What delays lead to.
struct Delays {
    lateness: Lateness,
    /// Whether delays are to be chosen from the usual ones.
    usual: bool,
}

impl Measure for Delays {
    fn add(&mut self, ticks: &Int64Array) {
        ticks
            .iter()
            .flatten()
            .for_each(|tick| self.lateness.add(tick));
    }

    fn end_epoch(&mut self) {
        self.lateness.end_epoch();
    }

    fn answer(&self) -> Vec<ArrayRef> {
        let rows = match self.usual {
            true => self.lateness.choice(),
            false => self.lateness.outcomes(),
        };
        let timed = self.lateness.timed();
        let of = |of: fn(&Outcome) -> Option<u64>| -> ArrayRef {
            Arc::new(UInt64Array::from_iter(rows.iter().map(of)))
        };
        let percents = rows.iter().map(|row| percent(row.late_rows, timed));
        vec![
            texts(rows.iter().map(|row| Some(row.delay))),
            of(|row| Some(row.late_rows)),
            Arc::new(Float64Array::from_iter(percents)),
            of(|row| row.open_windows),
            texts(rows.iter().map(|row| row.wait.map(readable))),
            Arc::new(UInt64Array::from_value(self.lateness.epochs(), rows.len())),
        ]
    }
}

/// Columns of `lateness()`.
pub(super) fn outcome_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("delay", DataType::Utf8, false),
        Field::new("late_rows", DataType::UInt64, false),
        Field::new("late_percent", DataType::Float64, true),
        Field::new("open_windows", DataType::UInt64, true),
        Field::new("wait", DataType::Utf8, true),
        Field::new("epochs", DataType::UInt64, false),
    ]))
}

/// How far rows are out of order.
struct Order {
    rows: u64,
    null_rows: u64,
    disorder: Disorder,
}

impl Measure for Order {
    fn add(&mut self, ticks: &Int64Array) {
        self.rows += ticks.len() as u64;
        self.null_rows += ticks.null_count() as u64;
        ticks
            .iter()
            .flatten()
            .for_each(|tick| self.disorder.add(tick));
    }

    fn end_epoch(&mut self) {}

    fn answer(&self) -> Vec<ArrayRef> {
        let out_of_order = self.disorder.out_of_order();
        let number = |value| -> ArrayRef { Arc::new(UInt64Array::from_value(value, 1)) };
        let percent = percent(out_of_order, self.disorder.timed());
        let mut columns = vec![
            number(self.rows),
            number(self.null_rows),
            number(out_of_order),
            Arc::new(Float64Array::from_iter([percent])),
        ];
        let within = PERCENTILES.map(|(_, per_mille)| self.disorder.within(per_mille));
        let rest = [self.disorder.greatest(), Some(self.disorder.rounded_to())];
        columns.extend(within.into_iter().chain(rest).map(|span| texts([span])));
        columns
    }
}

/// Columns of percentiles, and how many rows of a thousand they are about.
const PERCENTILES: [(&str, u64); 4] = [("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999)];

/// Columns of `out_of_order()`.
pub(super) fn disorder_schema() -> SchemaRef {
    let numbers = ["rows", "null_rows", "out_of_order_rows"];
    let numbers = numbers.map(|name| Field::new(name, DataType::UInt64, false));
    let mut fields = numbers.to_vec();
    fields.push(Field::new("out_of_order_percent", DataType::Float64, true));
    fields.extend(PERCENTILES.map(|(name, _)| Field::new(name, DataType::Utf8, true)));
    fields.push(Field::new("max", DataType::Utf8, true));
    fields.push(Field::new("rounded_to", DataType::Utf8, false));
    Arc::new(Schema::new(fields))
}

fn texts(spans: impl IntoIterator<Item = Option<Span>>) -> ArrayRef {
    let texts = spans
        .into_iter()
        .map(|span| span.map(|span| span.to_string()));
    Arc::new(StringArray::from_iter(texts))
}

/// A share in percent, to three digits.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share is not exact to the row"
)]
fn percent(part: u64, whole: u64) -> Option<f64> {
    let percent = (whole > 0).then(|| part as f64 * 100.0 / whole as f64)?;
    format!("{percent:.2e}").parse().ok()
}

/// A mean as one reads it, rounded up: hours of days, minutes of hours, seconds of minutes, milliseconds of seconds.
fn readable(mean: Span) -> Span {
    const PARTS: [(i128, i128); 4] = [
        (86_400_000_000_000, 3_600_000_000_000),
        (3_600_000_000_000, 60_000_000_000),
        (60_000_000_000, 1_000_000_000),
        (1_000_000_000, 1_000_000),
    ];
    let part = PARTS.into_iter().find(|(from, _)| mean.nanos() >= *from);
    let part = part.map_or(1, |(_, part)| part);
    let over = mean.nanos().rem_euclid(part);
    match over {
        0 => mean,
        over => mean.plus(Span::from_nanos(part - over)),
    }
}
