//! Which groups a watermark closes, for every kind of grouping by time.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;

use crate::config::unit_of;
use crate::logical::Bin;
use crate::time::{Closed, Instant, Span, Unit, WindowShape, first_passed};

/// When groups close.
#[derive(Debug, Clone)]
pub enum Closing {
    /// Never: there is no time, or it carries no watermark.
    Never,
    /// With the end of their window.
    Windows(WindowShape),
    /// When the watermark reaches their end, which is their value.
    Sessions(Unit),
    /// When the watermark reaches their value.
    Instant(Unit),
    /// When no event at or after the watermark can have their value.
    Bin(BinFunction),
}

/// A monotone function of the event time, ready to be evaluated.
#[derive(Debug, Clone)]
pub struct BinFunction {
    /// The function, over a batch with the event time as its only column.
    pub function: Arc<dyn PhysicalExpr>,
    /// Type of the event time.
    pub event_type: DataType,
    /// Event times of which there is a value, in ticks, both ends included.
    pub safe: (i64, i64),
}

impl BinFunction {
    /// Schema of the batch that the function is evaluated on.
    pub fn schema(event_type: &DataType) -> Schema {
        Schema::new(vec![Field::new(Bin::EVENT_TIME, event_type.clone(), true)])
    }

    /// The value that an event at `watermark` has, in ticks. Behind the last event time that the function
    /// knows no event has a value: the greatest stands for it, and all groups are closed.
    fn value(&self, watermark: Instant) -> Option<i64> {
        let tick = self.event_unit()?.last_tick(watermark)?;
        let (least, greatest) = self.safe;
        if tick < least {
            return None;
        }
        let known = match tick > greatest {
            true => None,
            false => self
                .values(&[tick])
                .and_then(|values| values.iter().next().flatten()),
        };
        // Some functions know only times that fit nanoseconds.
        known.or_else(|| (tick > 0).then_some(i64::MAX))
    }

    fn event_unit(&self) -> Option<Unit> {
        match &self.event_type {
            DataType::Timestamp(unit, _) => Some(unit_of(unit)),
            _ => None,
        }
    }

    /// The values of events at these ticks.
    fn values(&self, events: &[i64]) -> Option<Int64Array> {
        let times: ArrayRef = cast(&Int64Array::from(events.to_vec()), &self.event_type).ok()?;
        let batch =
            RecordBatch::try_new(Arc::new(Self::schema(&self.event_type)), vec![times]).ok()?;
        let values = self.function.evaluate(&batch).ok()?;
        ticks(&values.into_array(events.len()).ok()?).ok()
    }

    /// The first event time whose value is greater than `value`: the function is searched, for nothing is
    /// known of it but that it never decreases.
    fn first_after(&self, value: i64) -> Option<Instant> {
        let unit = self.event_unit()?;
        let schema = Self::schema(&self.event_type);
        let at = match self.function.data_type(&schema).ok()? {
            DataType::Timestamp(unit, _) => unit_of(&unit).instant(value),
            _ => Unit::Millisecond.instant(value),
        };
        let passed = |events: &[i64]| {
            let values = self.values(events)?;
            Some(values.iter().position(|found| found > Some(value)))
        };
        first_passed(unit.floor(at.earlier(ZONES)), passed).map(|tick| unit.instant(tick))
    }
}

/// How far a value may lie behind its event time by their zones alone, rounded up to whole days.
const ZONES: Span = Span::from_nanos(2 * 86_400_000_000_000);

/// Ticks of a unit without so much at both ends, both ends included.
pub(super) fn safe_ticks(unit: Unit, below: Span, above: Span) -> (i64, i64) {
    (
        unit.ceil(unit.instant(i64::MIN).later(below)),
        unit.floor(unit.instant(i64::MAX).earlier(above)),
    )
}

impl Closing {
    /// The least watermark that closes a group, if one does: that of the window which begins, of the
    /// session which ends, or of the value which is at this tick.
    pub fn due(&self, oldest: i64) -> Option<Instant> {
        match self {
            Closing::Never => None,
            Closing::Windows(shape) => Some(shape.end(oldest)),
            Closing::Sessions(unit) | Closing::Instant(unit) => Some(unit.instant(oldest)),
            Closing::Bin(bin) => bin.first_after(oldest),
        }
    }

    /// The groups that a watermark has closed.
    pub fn by(&self, watermark: Option<Instant>) -> Closed {
        let Some(watermark) = watermark else {
            return Closed::None;
        };
        match self {
            Closing::Never => Closed::None,
            Closing::Windows(shape) => shape.closed_by(watermark),
            Closing::Sessions(unit) | Closing::Instant(unit) => unit
                .last_tick(watermark)
                .map_or(Closed::None, Closed::Through),
            Closing::Bin(bin) => {
                match bin.value(watermark).and_then(|value| value.checked_sub(1)) {
                    Some(last) => Closed::Through(last),
                    None => Closed::None,
                }
            }
        }
    }
}

/// Unit of the ticks that [`ticks`] makes of times of a type.
pub(super) fn tick_unit(of: &DataType) -> Unit {
    match of {
        DataType::Timestamp(unit, _) => unit_of(unit),
        // A window, by its start.
        DataType::Struct(fields) => fields
            .first()
            .map_or(Unit::Millisecond, |start| tick_unit(start.data_type())),
        _ => Unit::Millisecond,
    }
}

/// Timestamps as ticks.
pub(crate) fn ticks(times: &ArrayRef) -> Result<Int64Array> {
    Ok(match times.data_type() {
        DataType::Timestamp(..) => cast(times, &DataType::Int64)?
            .as_primitive::<Int64Type>()
            .clone(),
        DataType::Date32 | DataType::Date64 => {
            let times = cast(
                times,
                &DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Millisecond, None),
            )?;
            cast(&times, &DataType::Int64)?
                .as_primitive::<Int64Type>()
                .clone()
        }
        DataType::Struct(_) => {
            let windows = times.as_struct();
            let Some(start) = windows.column_by_name("start") else {
                return internal_err!("a window has a start");
            };
            let start = ticks(start)?;
            match windows.nulls() {
                Some(nulls) => Int64Array::new(
                    start.values().clone(),
                    datafusion::arrow::buffer::NullBuffer::union(start.nulls(), Some(nulls)),
                ),
                None => start,
            }
        }
        other => return internal_err!("a group's time is {other}"),
    })
}
