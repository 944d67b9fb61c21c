//! Scalar functions over windows: bounds of a time, a group from its slice, `window_time`.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, ListArray, PrimitiveArray, StructArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::time_window::{SessionSpec, WindowSpec};

/// `Struct(start, end)` of the window that begins at each tick; null where the end does not fit.
pub(crate) fn window_structs(spec: &WindowSpec, begins: &Int64Array) -> Result<StructArray> {
    let size = spec.shape.size();
    let ends: Int64Array = begins
        .iter()
        .map(|begin| begin?.checked_add(size))
        .collect();
    let nulls = ends.nulls().cloned();
    let bounds = spec.bound_type();
    let begins = PrimitiveArray::<Int64Type>::new(begins.values().clone(), nulls.clone());
    let arrays: Vec<ArrayRef> = vec![cast(&begins, &bounds)?, cast(&ends, &bounds)?];
    Ok(StructArray::try_new(spec.fields(), arrays, nulls)?)
}

/// The windows of an event time, for queries that no aggregate over a stream takes: one
/// `Struct(start, end)` where windows tumble, a list of them, oldest first, where they hop.
/// Null where the time is null or a bound does not fit its type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct WindowBounds {
    spec: WindowSpec,
    signature: Signature,
}

impl WindowBounds {
    /// The windows of `spec`.
    pub fn new(spec: WindowSpec) -> Self {
        Self {
            spec,
            signature: Signature::any(1, Volatility::Immutable),
        }
    }

    fn list_field(&self) -> Arc<Field> {
        Arc::new(Field::new_list_field(
            DataType::Struct(self.spec.fields()),
            true,
        ))
    }

    /// All windows of each time, as a list column.
    fn lists(&self, times: &Int64Array) -> Result<ArrayRef> {
        let mut begins: Vec<i64> = Vec::with_capacity(times.len());
        let mut lengths = Vec::with_capacity(times.len());
        let mut valid = Vec::with_capacity(times.len());
        for time in times {
            let slice = time.and_then(|time| self.spec.shape.slice(time));
            let before = begins.len();
            if let Some(slice) = slice {
                begins.extend(self.spec.shape.windows(slice));
                begins[before..].reverse();
            }
            lengths.push(begins.len() - before);
            valid.push(slice.is_some());
        }
        let structs = window_structs(&self.spec, &Int64Array::from(begins))?;
        Ok(Arc::new(ListArray::try_new(
            self.list_field(),
            OffsetBuffer::from_lengths(lengths),
            Arc::new(structs),
            Some(NullBuffer::from(valid)),
        )?))
    }
}

impl ScalarUDFImpl for WindowBounds {
    fn name(&self) -> &str {
        "window"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(if self.spec.shape.hops() {
            DataType::List(self.list_field())
        } else {
            DataType::Struct(self.spec.fields())
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let times = ticks(&first_array(&args)?, &self.spec)?;
        if self.spec.shape.hops() {
            return Ok(ColumnarValue::Array(self.lists(&times)?));
        }
        let begins: Int64Array = times
            .iter()
            .map(|time| self.spec.shape.slice(time?))
            .collect();
        Ok(ColumnarValue::Array(Arc::new(window_structs(
            &self.spec, &begins,
        )?)))
    }
}

/// Event times in ticks of the windows' unit.
fn ticks(times: &ArrayRef, spec: &WindowSpec) -> Result<Int64Array> {
    let times = cast(times, &spec.bound_type())?;
    Ok(cast(&times, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}

fn first_array(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    match args.args.first() {
        Some(value) => value.to_array(args.number_rows),
        None => exec_err!("a function of one argument was given none"),
    }
}

/// The grouping value of each slice, an `Int64`: the window that begins there, or the timestamp itself.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SliceToGroup {
    group: SliceGroup,
    signature: Signature,
}

/// What a slice's number stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SliceGroup {
    /// Begin of a window.
    Window(WindowSpec),
    /// Begin of a session; its end is the second argument.
    Session(SessionSpec),
    /// A timestamp of this type.
    Timestamp(DataType),
}

impl SliceToGroup {
    pub(crate) fn new(group: SliceGroup) -> Self {
        Self {
            group,
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for SliceToGroup {
    fn name(&self) -> &str {
        match self.group {
            SliceGroup::Window(_) => "window_of_slice",
            SliceGroup::Session(_) => "session_of_bounds",
            SliceGroup::Timestamp(_) => "time_of_slice",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(match &self.group {
            SliceGroup::Window(spec) => DataType::Struct(spec.fields()),
            SliceGroup::Session(spec) => DataType::Struct(spec.fields()),
            SliceGroup::Timestamp(data_type) => data_type.clone(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let slices = first_array(&args)?;
        let array: ArrayRef = match &self.group {
            SliceGroup::Window(spec) => {
                Arc::new(window_structs(spec, slices.as_primitive::<Int64Type>())?)
            }
            SliceGroup::Session(spec) => {
                let bounds = args.args.iter().map(|bound| {
                    Ok(cast(
                        &bound.to_array(args.number_rows)?,
                        &spec.bound_type(),
                    )?)
                });
                Arc::new(StructArray::try_new(
                    spec.fields(),
                    bounds.collect::<Result<_>>()?,
                    None,
                )?)
            }
            SliceGroup::Timestamp(data_type) => cast(&slices, data_type)?,
        };
        Ok(ColumnarValue::Array(array))
    }
}

/// `window_time(window)`: the last moment that belongs to a window, its end less one microsecond
/// (Spark's `window_time`), in the unit of the bounds but at least in microseconds.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct WindowTime {
    signature: Signature,
}

impl Default for WindowTime {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl WindowTime {
    /// Type of `window_time` of a column of this type, if it is a window.
    pub(crate) fn result_type(window: &DataType) -> Option<DataType> {
        let DataType::Struct(fields) = window else {
            return None;
        };
        let [start, end] = fields.as_ref() else {
            return None;
        };
        match (start.name().as_str(), end.name().as_str(), end.data_type()) {
            ("start", "end", DataType::Timestamp(TimeUnit::Nanosecond, zone)) => {
                Some(DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()))
            }
            ("start", "end", DataType::Timestamp(_, zone)) => {
                Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
            }
            _ => None,
        }
    }
}

impl ScalarUDFImpl for WindowTime {
    fn name(&self) -> &str {
        "window_time"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first().and_then(Self::result_type) {
            Some(data_type) => Ok(data_type),
            None => plan_err!(
                "[DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE] window_time() takes a window, the column that window() makes. SQLSTATE: 42K09"
            ),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let windows = first_array(&args)?;
        let result_type = self.return_type(&[windows.data_type().clone()])?;
        let windows = windows.as_struct();
        let microsecond = match &result_type {
            DataType::Timestamp(TimeUnit::Nanosecond, _) => 1_000,
            _ => 1,
        };
        let Some(ends) = windows.column_by_name("end") else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(&result_type)?));
        };
        let ends = cast(&cast(ends, &result_type)?, &DataType::Int64)?;
        let times: Int64Array = ends
            .as_primitive::<Int64Type>()
            .iter()
            .enumerate()
            .map(|(row, end)| {
                end.filter(|_| windows.is_valid(row))?
                    .checked_sub(microsecond)
            })
            .collect();
        let untyped: ArrayRef = match &result_type {
            DataType::Timestamp(TimeUnit::Microsecond, _) => Arc::new(
                times.reinterpret_cast::<datafusion::arrow::datatypes::TimestampMicrosecondType>(),
            )
                as Arc<TimestampMicrosecondArray>,
            _ => Arc::new(times),
        };
        Ok(ColumnarValue::Array(cast(&untyped, &result_type)?))
    }
}

/// `window()` and `session_window()` where no SELECT has taken them: a function that only says where
/// they can stand.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Misplaced {
    name: &'static str,
    signature: Signature,
}

impl Misplaced {
    /// The function of this name.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }

    fn refusal(&self) -> datafusion::common::DataFusionError {
        crate::error::Refusal::new("MISPLACED_WINDOW", "42601", format!("{}() cannot stand here.", self.name))
            .hint("use it in SELECT, WHERE, GROUP BY, HAVING, QUALIFY or ORDER BY of a query with a FROM clause")
            .into()
    }
}

impl ScalarUDFImpl for Misplaced {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Err(self.refusal())
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(self.refusal())
    }
}
