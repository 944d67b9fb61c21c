//! Goes over the rows of a source, epoch by epoch, and keeps those that are drawn.

use std::collections::BTreeMap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::and_kleene;
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNanoType};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

use super::judge::{Bounds, Group, Judge};
use super::replay::Seen;
use super::tracks::Track;
use crate::config::unit_of;
use crate::physical::{gap_ticks, ticks};
use crate::picture::{EpochMark, LateMark, LateRows, Point};
use crate::time::{Closed, Instant, Span, Unit};

/// Late rows that are drawn, at most twice so many while they are found.
const LATE: usize = 1_000;

/// Windows that are counted at a time: the oldest leave.
const MOST_WINDOWS: usize = 4_096;

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
    count: usize,
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
            let at = track.schema.index_of_column_by_name(None, source.field(*at).name())?;
            let (qualifier, field) = track.schema.qualified_field(at);
            Some((qualifier.cloned(), Arc::clone(field)))
        });
        let fields: Vec<_> = fields.collect();
        let schema = DFSchema::new_with_metadata(fields, std::collections::HashMap::new())?;
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
                Ok::<_, datafusion::common::DataFusionError>(match holds.as_boolean_opt() {
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
                Some((kept.map(|(row, time)| time.filter(|_| holds(row))).collect(), *unit))
            }
            None => None,
        };
        Ok(Rows {
            events,
            reaches: all(&self.above, passes)?,
            times: self.time.as_ref().map(|time| ticks(&array(time)?)).transpose()?,
            gaps: self.gap.as_ref().map(array).transpose()?,
            count,
        })
    }
}

/// Unit of times of a type, in the ticks that they are read as.
fn unit(data_type: &DataType) -> Unit {
    match data_type {
        DataType::Timestamp(unit, _) => unit_of(unit),
        DataType::Struct(fields) => {
            fields.iter().find(|field| field.name() == "start").map_or(Unit::Nanosecond, |field| unit(field.data_type()))
        }
        _ => Unit::Millisecond,
    }
}

/// Goes over rows in order of arrival.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    shown: &'a [EpochMark],
    every: u64,
    /// Whether rows are drawn, not only late ones.
    draws: bool,
    pub points: Vec<Point>,
    pub late: LateFound,
    pub windows: BTreeMap<i64, Seen>,
    /// Unit of their begins.
    pub unit: Unit,
    /// Rows of the source in each epoch.
    counts: Vec<u64>,
    /// Place of the epoch, and of the next row in it.
    epoch: usize,
    within: u64,
    /// Rows so far.
    rows: u64,
    /// Windows closed when the epoch began.
    closed: Closed,
}

/// Late rows, thinned where they are very many.
#[derive(Debug)]
pub(super) struct LateFound {
    marks: Vec<LateMark>,
    every: u64,
    found: u64,
    by: Option<Span>,
}

impl LateFound {
    fn add(&mut self, mark: LateMark) {
        self.by = self.by.max(Some(mark.by));
        if self.found.is_multiple_of(self.every) {
            self.marks.push(mark);
        }
        self.found += 1;
        if self.marks.len() >= 2 * LATE {
            let mut place = 0_u64;
            self.marks.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// Adds them to those of other tracks.
    pub(super) fn finish(self, all: &mut LateRows) {
        all.marks.extend(self.marks);
        all.marks.sort_by(|a, b| a.point.at.total_cmp(&b.point.at));
        all.found += self.found;
        all.by = all.by.max(self.by);
    }
}

impl<'a> Walk<'a> {
    /// Over the rows of these epochs.
    pub(super) fn new(shown: &'a [EpochMark], every: u64, draws: bool) -> Self {
        Self {
            shown,
            every,
            draws,
            points: Vec::new(),
            late: LateFound {
                marks: Vec::new(),
                every: 1,
                found: 0,
                by: None,
            },
            windows: BTreeMap::new(),
            unit: Unit::Nanosecond,
            counts: Vec::new(),
            epoch: 0,
            within: 0,
            rows: 0,
            closed: Closed::None,
        }
    }

    /// Begins with the first row; so many are in each epoch.
    pub(super) fn begin(&mut self, counts: &[u64], judge: Option<&Judge>) {
        self.counts = counts.to_vec();
        self.enter(judge);
    }

    /// Goes to the next epoch that has rows, where the one at hand has no more.
    fn enter(&mut self, judge: Option<&Judge>) {
        while self.counts.get(self.epoch).is_some_and(|count| self.within >= *count) {
            self.epoch += 1;
            self.within = 0;
        }
        let mark = self.shown.get(self.epoch);
        self.closed = match (judge, mark) {
            (Some(judge), Some(mark)) => judge.closed(mark.before),
            _ => Closed::None,
        };
    }

    /// Takes rows. Judged times are in this unit.
    pub(super) fn take(&mut self, rows: &Rows, judge: Option<&Judge>, unit: Unit) {
        let judge = judge.map(|judge| judge.clone().in_unit(unit));
        self.unit = unit;
        let mut bounds = judge.as_ref().map(|judge| Bounds::new(judge, unit));
        if self.within == 0 {
            self.enter(judge.as_ref());
        }
        for row in 0..rows.count {
            let Some((mark, count)) = self.shown.get(self.epoch).zip(self.counts.get(self.epoch).copied()) else {
                return;
            };
            let at = place(mark.number, self.within, count);
            let event = rows.event(row);
            if let Some(time) = event.filter(|_| self.draws && self.rows.is_multiple_of(self.every)) {
                self.points.push(Point { at, time });
            }
            if let (Some(judge), Some(bounds)) = (&judge, &mut bounds) {
                self.judge(rows, row, at, mark, judge, bounds);
            }
            self.rows += 1;
            self.within += 1;
            if self.within >= count {
                self.enter(judge.as_ref());
            }
        }
    }

    /// Whether a row is late, and which windows count it.
    fn judge(
        &mut self,
        rows: &Rows,
        row: usize,
        at: f64,
        mark: &EpochMark,
        judge: &Judge,
        bounds: &mut Bounds<'_>,
    ) {
        let Some((tick, group)) = rows.group(row, judge, self.unit) else {
            return;
        };
        if let Some(watermark) = mark.before.filter(|_| group.is_in(self.closed)) {
            let Some((window, due)) = bounds.window(group) else {
                return;
            };
            let time = rows.event(row).unwrap_or_else(|| self.unit.instant(tick));
            self.late.add(LateMark {
                point: Point { at, time },
                epoch: mark.number,
                watermark,
                window,
                by: Span::from_nanos(watermark.nanos().saturating_sub(due.nanos())),
            });
            if let Group::Begin(begin) = group {
                self.window(begin, at).late += 1;
            }
            return;
        }
        for begin in judge.windows(tick) {
            if !self.closed.contains(begin) {
                self.window(begin, at).rows += 1;
            }
        }
    }

    /// A window, with this arrival as its first if it has none.
    fn window(&mut self, begin: i64, at: f64) -> &mut Seen {
        if self.windows.len() >= MOST_WINDOWS && !self.windows.contains_key(&begin) {
            self.windows.pop_first();
        }
        self.windows.entry(begin).or_insert(Seen {
            from: at,
            rows: 0,
            late: 0,
        })
    }
}

impl Rows {
    fn event(&self, row: usize) -> Option<Instant> {
        let (times, unit) = self.events.as_ref()?;
        times.is_valid(row).then(|| unit.instant(times.value(row)))
    }

    /// The judged tick of a row that reaches the operator, and its group.
    fn group(&self, row: usize, judge: &Judge, unit: Unit) -> Option<(i64, Group)> {
        let times = self.times.as_ref()?;
        let reaches = self.reaches.is_valid(row) && self.reaches.value(row);
        let tick = (reaches && times.is_valid(row)).then(|| times.value(row))?;
        let gap = self.gaps.as_ref().and_then(|gaps| {
            let gaps = gaps.as_primitive_opt::<IntervalMonthDayNanoType>()?;
            gaps.is_valid(row).then(|| gap_ticks(gaps.value(row), unit)).flatten()
        });
        Some((tick, judge.group(tick, gap)?))
    }
}

/// Where a row is in its epoch.
#[expect(
    clippy::cast_precision_loss,
    reason = "a place in a picture is not exact to the row"
)]
fn place(epoch: u64, within: u64, count: u64) -> f64 {
    epoch as f64 + (within as f64 + 0.5) / (count as f64).max(1.0)
}
