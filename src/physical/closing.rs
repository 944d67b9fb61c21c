//! Which groups a watermark closes, for every kind of grouping by time.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;

use crate::config::unit_of;
use crate::logical::Bin;
use crate::time::{Closed, Instant, Unit, WindowShape};

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
}

impl BinFunction {
    /// Schema of the batch that the function is evaluated on.
    pub fn schema(event_type: &DataType) -> Schema {
        Schema::new(vec![Field::new(Bin::EVENT_TIME, event_type.clone(), true)])
    }

    /// The value of an event at `watermark`, in ticks.
    fn value(&self, watermark: Instant) -> Result<Option<i64>> {
        let DataType::Timestamp(unit, _) = &self.event_type else {
            return internal_err!("the event time of a bin is a timestamp");
        };
        let tick = Int64Array::from(vec![unit_of(unit).floor(watermark)]);
        let time: ArrayRef = cast(&tick, &self.event_type)?;
        let batch = RecordBatch::try_new(Arc::new(Self::schema(&self.event_type)), vec![time])?;
        let value = ticks(&self.function.evaluate(&batch)?.into_array(1)?)?;
        Ok(value.iter().next().flatten())
    }
}

impl Closing {
    /// The groups that a watermark has closed.
    ///
    /// # Errors
    /// - the function of a bin fails on the watermark
    pub fn by(&self, watermark: Option<Instant>) -> Result<Closed> {
        let Some(watermark) = watermark else {
            return Ok(Closed::None);
        };
        Ok(match self {
            Closing::Never => Closed::None,
            Closing::Windows(shape) => shape.closed_by(watermark),
            Closing::Sessions(unit) | Closing::Instant(unit) => {
                Closed::Through(unit.floor(watermark))
            }
            Closing::Bin(bin) => match bin.value(watermark)?.and_then(|value| value.checked_sub(1))
            {
                Some(last) => Closed::Through(last),
                None => Closed::None,
            },
        })
    }
}

/// Timestamps as ticks.
pub(super) fn ticks(times: &ArrayRef) -> Result<Int64Array> {
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
