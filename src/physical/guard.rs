//! What a WATERMARK clause sees of a batch: event times that move the watermark, and rows from the future that do not.
//!
//! ```text
//!                       now      now + max_future
//! -----------------------|---------------|----------------> event time
//!  passes, moves the watermark           | guarded: counted, set aside
//! ```
//!
//! - The bound itself passes; so does a row without an event time, and every row where there is no guard.
//! - The bound is one for all rows of an epoch. It is rounded down to the column's unit, which changes nothing: event
//!   times are whole ticks. Beyond what the type can hold nothing is guarded.
//! - The least and greatest event time of a batch are known anyway: a batch without a guarded row is not looked at
//!   again.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, AsArray, BooleanArray, Int64Array, RecordBatch, StructArray,
};
use datafusion::arrow::compute::kernels::cmp::gt;
use datafusion::arrow::compute::{filter_record_batch, not, prep_null_mask_filter};
use datafusion::arrow::datatypes::{
    DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use datafusion::common::{Result, internal_err};

use super::closing::ticks;
use crate::logical::EVENT_TIME;
use crate::state::EventTimes;

/// The rows of one partition on their way past a clause.
#[derive(Debug)]
pub(super) struct Sight {
    /// Index of the event time.
    column: usize,
    /// Greatest event time that passes, in ticks; none where all do.
    bound: Option<i64>,
    times: EventTimes,
    /// Guarded rows, if they are kept.
    kept: Option<Vec<StructArray>>,
}

impl Sight {
    /// Nothing has been seen yet.
    pub(super) fn new(column: usize, bound: Option<i64>) -> Self {
        Self {
            column,
            bound,
            times: EventTimes::default(),
            kept: None,
        }
    }

    /// The same, and guarded rows are kept if that is asked for.
    pub(super) fn keeping(mut self, keeps: bool) -> Self {
        self.kept = keeps.then(Vec::new);
        self
    }

    /// The guarded rows, each once: structs of the clause's columns, and of the event time once more.
    pub(super) fn take_kept(&mut self) -> Vec<StructArray> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What has been seen.
    pub(super) fn times(&self) -> &EventTimes {
        &self.times
    }

    /// Takes note of a batch; the rows of it that pass.
    pub(super) fn pass(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let times = event_times(&batch, self.column)?;
        let Some(bound) = self.bound.filter(|bound| times.greatest > Some(*bound)) else {
            self.times.add(&times);
            return Ok(batch);
        };
        let beyond = beyond(&batch, self.column, bound)?;
        let guarded = filter_record_batch(&batch, &beyond)?;
        let passes = filter_record_batch(&batch, &not(&beyond)?)?;
        self.times.add(&event_times(&passes, self.column)?);
        self.times.guarded += guarded.num_rows() as u64;
        self.times.greatest_guarded = self.times.greatest_guarded.max(times.greatest);
        if let Some(kept) = &mut self.kept {
            kept.push(row(&guarded, self.column)?);
        }
        Ok(passes)
    }
}

/// Rows as a struct of their columns, and of the event time once more.
fn row(batch: &RecordBatch, column: usize) -> Result<StructArray> {
    let schema = batch.schema();
    let time = schema.field(column).clone().with_name(EVENT_TIME);
    let fields = schema.fields().iter().cloned().chain([Arc::new(time)]);
    let columns = batch.columns().iter().chain([batch.column(column)]);
    let columns = columns.cloned().collect();
    Ok(StructArray::try_new(fields.collect(), columns, None)?)
}

/// Which rows of a batch have an event time greater than the bound.
fn beyond(batch: &RecordBatch, column: usize, bound: i64) -> Result<BooleanArray> {
    let beyond = gt(
        &ticks(batch.column(column))?,
        &Int64Array::new_scalar(bound),
    )?;
    Ok(match beyond.null_count() {
        0 => beyond,
        _ => prep_null_mask_filter(&beyond),
    })
}

/// Event times of a batch, in ticks.
fn event_times(batch: &RecordBatch, column: usize) -> Result<EventTimes> {
    let times = batch.column(column);
    Ok(match times.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            EventTimes::of(times.as_primitive::<TimestampSecondType>())
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            EventTimes::of(times.as_primitive::<TimestampMillisecondType>())
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            EventTimes::of(times.as_primitive::<TimestampMicrosecondType>())
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            EventTimes::of(times.as_primitive::<TimestampNanosecondType>())
        }
        other => return internal_err!("the event time is {other}"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, TimestampMillisecondArray};
    use datafusion::arrow::compute::cast;
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    /// A batch of event times in milliseconds, cast to a type, and the numbers of its rows.
    fn batch(times: Vec<Option<i64>>, to: &DataType) -> RecordBatch {
        let rows = i64::try_from(times.len()).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let times = TimestampMillisecondArray::from(times).with_timezone("UTC");
        let times = cast(&times, to).unwrap();
        RecordBatch::try_from_iter_with_nullable([("ts", times, true), ("n", numbers, false)])
            .unwrap()
    }

    fn numbers(batch: &RecordBatch) -> Vec<i64> {
        batch
            .column(1)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    }

    #[test]
    fn what_is_later_than_the_bound_is_guarded_in_every_unit_and_zone() {
        for (unit, in_a_second) in [
            (TimeUnit::Second, 1),
            (TimeUnit::Millisecond, 1_000),
            (TimeUnit::Microsecond, 1_000_000),
            (TimeUnit::Nanosecond, 1_000_000_000),
        ] {
            for zone in [None, Some("UTC".into()), Some("+02:00".into())] {
                let to = DataType::Timestamp(unit, zone);
                let times = [Some(5_000), None, Some(11_000), Some(10_000), Some(-1_000)];
                let mut sight = Sight::new(0, Some(10 * in_a_second));
                let passes = sight.pass(batch(times.to_vec(), &to)).unwrap();
                assert_eq!(numbers(&passes), [0, 1, 3, 4], "{to}");
                let seen = sight.times();
                assert_eq!((seen.rows, seen.timed, seen.guarded), (4, 3, 1), "{to}");
                assert_eq!(seen.greatest, Some(10 * in_a_second), "{to}");
                assert_eq!(seen.greatest_guarded, Some(11 * in_a_second), "{to}");
            }
        }
    }

    #[test]
    fn without_a_guard_or_under_the_greatest_bound_all_pass() {
        let to = DataType::Timestamp(TimeUnit::Nanosecond, None);
        for bound in [None, Some(i64::MAX)] {
            let mut sight = Sight::new(0, bound);
            let times = vec![Some(9_000_000_000_000), None];
            assert_eq!(sight.pass(batch(times, &to)).unwrap().num_rows(), 2);
            assert_eq!((sight.times().rows, sight.times().guarded), (2, 0));
        }
    }

    #[test]
    fn a_batch_of_which_nothing_passes_is_empty_and_moves_nothing() {
        let to = DataType::Timestamp(TimeUnit::Second, None);
        let mut sight = Sight::new(0, Some(0));
        let passes = sight.pass(batch(vec![Some(2_000), Some(1_000)], &to));
        assert_eq!(passes.unwrap().num_rows(), 0);
        assert_eq!((sight.times().rows, sight.times().greatest), (0, None));
        assert_eq!(sight.times().guarded, 2);
    }
}
