//! `sum` of integers that fails where it does not fit, instead of wrapping.
//!
//! The sum is kept in 128 bits and checked when it is read, so that the answer does not depend on the
//! order of the rows: a sum that leaves the type and comes back is right. All other types are
//! DataFusion's own `sum`.

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, PrimitiveArray,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type,
};
use datafusion::common::{Result, ScalarValue, exec_err, internal_datafusion_err};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature,
};

use crate::error::Refusal;

/// DataFusion's `sum`, with checked integers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CheckedSum {
    inner: Sum,
}

impl Default for CheckedSum {
    fn default() -> Self {
        Self { inner: Sum::new() }
    }
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64)
}

/// Type of the partial state: every sum of fewer than 2^63 integers fits.
const STATE: DataType = DataType::Decimal128(38, 0);

fn checks(args: &AccumulatorArgs) -> bool {
    is_integer(args.return_field.data_type())
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if !checks(&args) {
            return self.inner.accumulator(args);
        }
        let name = args.name.to_owned();
        let wanted = args.return_field.data_type().clone();
        if args.is_distinct {
            return Ok(Box::new(DistinctSum {
                values: self.inner.accumulator(args)?,
                wanted,
                name,
            }));
        }
        Ok(Box::new(IntegerSum {
            sum: 0,
            values: 0,
            wanted,
            name,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if args.is_distinct || !is_integer(args.return_type()) {
            return self.inner.state_fields(args);
        }
        Ok(vec![Arc::new(Field::new(
            format_state_name(args.name, "sum"),
            STATE,
            true,
        ))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if !checks(&args) {
            return self.inner.create_groups_accumulator(args);
        }
        Ok(Box::new(IntegerSums {
            sums: Vec::new(),
            seen: Vec::new(),
            wanted: args.return_field.data_type().clone(),
            name: args.name.to_owned(),
        }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        // DataFusion's own takes distinct values back; it wraps.
        match checks(&args) && !args.is_distinct {
            true => self.accumulator(args),
            false => self.inner.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    /// An order says nothing to a sum: DataFusion then gives it no columns to order by.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The error of a sum that does not fit.
fn overflow(name: &str, wanted: &DataType) -> datafusion::common::DataFusionError {
    Refusal::new(
        "ARITHMETIC_OVERFLOW",
        "22003",
        format!("{name}: the sum does not fit into {wanted} (overflow)."),
    )
    .hint("sum a wider type: sum(CAST(x AS DECIMAL(38, 0)))")
    .into()
}

/// A sum in the type it is wanted in.
fn fitting(sum: Option<i128>, wanted: &DataType, name: &str) -> Result<ScalarValue> {
    let Some(sum) = sum else {
        return ScalarValue::try_from(wanted);
    };
    let value = match wanted {
        DataType::UInt64 => u64::try_from(sum)
            .ok()
            .map(|value| ScalarValue::UInt64(Some(value))),
        _ => i64::try_from(sum)
            .ok()
            .map(|value| ScalarValue::Int64(Some(value))),
    };
    value.ok_or_else(|| overflow(name, wanted))
}

/// Integers of an array, widened.
fn wide(array: &ArrayRef) -> Result<Box<dyn Iterator<Item = Option<i128>> + '_>> {
    Ok(match array.data_type() {
        DataType::Int64 => Box::new(
            array
                .as_primitive::<Int64Type>()
                .iter()
                .map(|value| value.map(i128::from)),
        ),
        DataType::UInt64 => Box::new(
            array
                .as_primitive::<UInt64Type>()
                .iter()
                .map(|value| value.map(i128::from)),
        ),
        DataType::Decimal128(..) => Box::new(array.as_primitive::<Decimal128Type>().iter()),
        other => return exec_err!("sum of integers over {other}"),
    })
}

fn first(arrays: &[ArrayRef]) -> Result<&ArrayRef> {
    arrays
        .first()
        .ok_or_else(|| internal_datafusion_err!("sum takes one argument"))
}

/// One sum.
#[derive(Debug)]
struct IntegerSum {
    sum: i128,
    /// Values that are in it.
    values: i64,
    wanted: DataType,
    name: String,
}

impl IntegerSum {
    /// The sum; none of no values.
    fn held(&self) -> Option<i128> {
        (self.values > 0).then_some(self.sum)
    }
}

impl Accumulator for IntegerSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in wide(first(values)?)?.flatten() {
            self.sum = self.sum.wrapping_add(value);
            self.values += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in wide(first(values)?)?.flatten() {
            self.sum = self.sum.wrapping_sub(value);
            self.values -= 1;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        fitting(self.held(), &self.wanted, &self.name)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.name.capacity()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Decimal128(self.held(), 38, 0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// A sum of distinct integers: DataFusion collects the values, they are added here.
#[derive(Debug)]
struct DistinctSum {
    values: Box<dyn Accumulator>,
    wanted: DataType,
    name: String,
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sum = None;
        for state in self.values.state()? {
            let ScalarValue::List(list) = state else {
                return exec_err!("{}: the distinct values are not a list", self.name);
            };
            for value in wide(list.values())?.flatten() {
                sum = Some(i128::wrapping_add(sum.unwrap_or_default(), value));
            }
        }
        fitting(sum, &self.wanted, &self.name)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }
}

/// A sum for each group.
#[derive(Debug)]
struct IntegerSums {
    sums: Vec<i128>,
    seen: Vec<bool>,
    wanted: DataType,
    name: String,
}

impl IntegerSums {
    fn add<T>(
        &mut self,
        values: &PrimitiveArray<T>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
    ) where
        T: ArrowPrimitiveType,
        T::Native: Into<i128>,
    {
        if values.null_count() == 0 && filter.is_none() {
            for (value, group) in values.values().iter().zip(groups) {
                self.add_one(*group, (*value).into());
            }
            return;
        }
        for (row, group) in groups.iter().enumerate() {
            let passes = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if passes && values.is_valid(row) {
                self.add_one(*group, values.value(row).into());
            }
        }
    }

    #[inline]
    fn add_one(&mut self, group: usize, value: i128) {
        if let (Some(sum), Some(seen)) = (self.sums.get_mut(group), self.seen.get_mut(group)) {
            *sum = sum.wrapping_add(value);
            *seen = true;
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> (Vec<i128>, Vec<bool>) {
        (
            emit_to.take_needed(&mut self.sums),
            emit_to.take_needed(&mut self.seen),
        )
    }
}

impl GroupsAccumulator for IntegerSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_num_groups, 0);
        self.seen.resize(total_num_groups, false);
        let values = first(values)?;
        match values.data_type() {
            DataType::Int64 => self.add(
                values.as_primitive::<Int64Type>(),
                group_indices,
                opt_filter,
            ),
            DataType::UInt64 => self.add(
                values.as_primitive::<UInt64Type>(),
                group_indices,
                opt_filter,
            ),
            DataType::Decimal128(..) => self.add(
                values.as_primitive::<Decimal128Type>(),
                group_indices,
                opt_filter,
            ),
            other => return exec_err!("{}: sum of integers over {other}", self.name),
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, seen) = self.take(emit_to);
        let each = sums
            .into_iter()
            .zip(seen)
            .map(|(sum, seen)| seen.then_some(sum));
        let misfit = || overflow(&self.name, &self.wanted);
        Ok(match self.wanted {
            DataType::UInt64 => {
                let fit = each.map(|sum| {
                    sum.map(|sum| u64::try_from(sum).map_err(|_| misfit()))
                        .transpose()
                });
                Arc::new(fit.collect::<Result<PrimitiveArray<UInt64Type>>>()?)
            }
            _ => {
                let fit = each.map(|sum| {
                    sum.map(|sum| i64::try_from(sum).map_err(|_| misfit()))
                        .transpose()
                });
                Arc::new(fit.collect::<Result<PrimitiveArray<Int64Type>>>()?)
            }
        })
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, seen) = self.take(emit_to);
        let states: Decimal128Array = sums
            .into_iter()
            .zip(seen)
            .map(|(sum, seen)| seen.then_some(sum))
            .collect();
        Ok(vec![Arc::new(states.with_data_type(STATE))])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let passes =
            |row: usize| opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let states: Decimal128Array = wide(first(values)?)?
            .enumerate()
            .map(|(row, value)| value.filter(|_| passes(row)))
            .collect();
        Ok(vec![Arc::new(states.with_data_type(STATE))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.capacity()
    }
}
