//! What is computed of a source's rows: event times, judged times, and whether a row reaches its operator.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::and_kleene;
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNanoType};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;

use super::judge::{Group, Judge};
use super::tracks::Track;
use crate::config::unit_of;
use crate::physical::{gap_ticks, ticks};
use crate::time::{Instant, Unit};

/// What is computed of a source's rows.
#[derive(Debug)]
pub(super) struct Reading {
    /// Columns that are read, as places in the source's schema.
    pub columns: Vec<usize>,
    /// Unit of the judged times.
    pub unit: Unit,
    event: Option<(Arc<dyn PhysicalExpr>, Unit)>,
    below: Vec<Arc<dyn PhysicalExpr>>,
    above: Vec<Arc<dyn PhysicalExpr>>,
    time: Option<Arc<dyn PhysicalExpr>>,
    gap: Option<Arc<dyn PhysicalExpr>>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
}

/// Rows, column by column.
#[derive(Debug)]
pub(super) struct Rows {
    /// Event times; null where a row has none, or does not reach the clause.
    events: Option<(Int64Array, Unit)>,
    /// Whether a row reaches the operator.
    reaches: BooleanArray,
    /// The times that are judged.
    times: Option<Int64Array>,
    gaps: Option<ArrayRef>,
    /// Keys of sessions.
    pub keys: Vec<ArrayRef>,
    pub count: usize,
}

impl Reading {
    /// What is computed on a track.
    ///
    /// # Errors
    /// - an expression cannot be computed of a row alone
    pub(super) fn new(track: &Track, judge: Option<&Judge>, state: &SessionState) -> Result<Self> {
        let source = track.provider.schema();
        let judged = track.judge.as_ref();
        let exprs = track.event.iter().chain(&track.below).chain(&track.above);
        let exprs = exprs.chain(judged.map(|judge| &judge.time));
        let exprs = exprs.chain(judged.and_then(|judge| judge.gap.as_ref()));
        let keys = judged.map_or(&[][..], |judge| &judge.keys);
        let exprs = exprs.chain(keys);
        let mut names: Vec<usize> = exprs
            .flat_map(Expr::column_refs)
            .filter_map(|column| source.index_of(&column.name).ok())
            .collect();
        // Rows are counted even where nothing of them is read.
        if names.is_empty() {
            names.push(0);
        }
        names.sort_unstable();
        names.dedup();
        let fields = names.iter().filter_map(|at| {
            let at = track
                .schema
                .index_of_column_by_name(None, source.field(*at).name())?;
            let (qualifier, field) = track.schema.qualified_field(at);
            Some((qualifier.cloned(), Arc::clone(field)))
        });
        let fields: Vec<_> = fields.collect();
        let schema = DFSchema::new_with_metadata(fields, HashMap::new())?;
        let physical = |expr: &Expr| state.create_physical_expr(expr.clone(), &schema);
        let all = |exprs: &[Expr]| exprs.iter().map(physical).collect::<Result<Vec<_>>>();
        let unit = |expr: &Arc<dyn PhysicalExpr>| -> Result<Unit> {
            Ok(unit(&expr.data_type(schema.as_arrow())?))
        };
        let event = match track.event.as_ref().map(physical).transpose()? {
            Some(event) => Some((Arc::clone(&event), unit(&event)?)),
            None => None,
        };
        let time = judged.filter(|_| judge.is_some());
        let time = time.map(|judge| physical(&judge.time)).transpose()?;
        let gap = judged.and_then(|judge| judge.gap.as_ref());
        Ok(Self {
            columns: names,
            unit: time.as_ref().map_or(Ok(Unit::Nanosecond), unit)?,
            event,
            below: all(&track.below)?,
            above: all(&track.above)?,
            time,
            gap: gap.map(physical).transpose()?,
            keys: all(keys)?,
        })
    }

    /// The rows of a batch.
    ///
    /// # Errors
    /// - an expression fails
    pub(super) fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        let count = batch.num_rows();
        let array = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(count);
        let all = |exprs: &[Arc<dyn PhysicalExpr>], so_far: BooleanArray| {
            exprs.iter().try_fold(so_far, |so_far, expr| {
                let holds = array(expr)?;
                Ok::<_, DataFusionError>(match holds.as_boolean_opt() {
                    Some(holds) => and_kleene(&so_far, holds)?,
                    None => so_far,
                })
            })
        };
        let passes = all(&self.below, BooleanArray::from(vec![true; count]))?;
        let events = match &self.event {
            Some((event, unit)) => {
                let times = ticks(&array(event)?)?;
                let holds = |row: usize| passes.is_valid(row) && passes.value(row);
                let kept = times.iter().enumerate();
                Some((
                    kept.map(|(row, time)| time.filter(|_| holds(row)))
                        .collect(),
                    *unit,
                ))
            }
            None => None,
        };
        Ok(Rows {
            events,
            reaches: all(&self.above, passes)?,
            times: self
                .time
                .as_ref()
                .map(|time| ticks(&array(time)?))
                .transpose()?,
            gaps: self.gap.as_ref().map(array).transpose()?,
            keys: self.keys.iter().map(array).collect::<Result<_>>()?,
            count,
        })
    }
}

/// Unit of times of a type, in the ticks that they are read as.
pub(super) fn unit(data_type: &DataType) -> Unit {
    match data_type {
        DataType::Timestamp(unit, _) => unit_of(unit),
        DataType::Struct(fields) => fields
            .iter()
            .find(|field| field.name() == "start")
            .map_or(Unit::Nanosecond, |field| unit(field.data_type())),
        _ => Unit::Millisecond,
    }
}

impl Rows {
    /// Its event time, if it has one and reaches the clause.
    pub(super) fn event(&self, row: usize) -> Option<Instant> {
        let (times, unit) = self.events.as_ref()?;
        times.is_valid(row).then(|| unit.instant(times.value(row)))
    }

    /// The judged tick of a row that reaches the operator, and its group.
    pub(super) fn group(&self, row: usize, judge: &Judge, unit: Unit) -> Option<(i64, Group)> {
        let times = self.times.as_ref()?;
        let reaches = self.reaches.is_valid(row) && self.reaches.value(row);
        let tick = (reaches && times.is_valid(row)).then(|| times.value(row))?;
        let gap = self.gaps.as_ref().and_then(|gaps| {
            let gaps = gaps.as_primitive_opt::<IntervalMonthDayNanoType>()?;
            gaps.is_valid(row)
                .then(|| gap_ticks(gaps.value(row), unit))
                .flatten()
        });
        Some((tick, judge.group(tick, gap)?))
    }
}
