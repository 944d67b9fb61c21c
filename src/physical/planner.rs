//! From our logical nodes to plan nodes.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_datafusion_err};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, LogicalPlan, Operator, ScalarUDF, TableScan, UserDefinedLogicalNode,
    UserDefinedLogicalNodeCore, lit,
};
use datafusion::physical_expr::aggregate::{AggregateFunctionExpr, LoweredAggregateBuilder};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::assign::{AssignInfo, EventColumn, TimeWindowAssignExec};
use super::closing::{BinFunction, Closing, safe_ticks};
use super::deduplicate::{DeduplicateExec, DeduplicateInfo};
use super::gate::{GateInfo, Reducer, TimeWindowGateExec};
use super::limits::clause_limits;
use super::scan::EventTime;
use super::session::{SessionAssignExec, SessionInfo};
use super::{StreamScanExec, TimeWindowPartialExec, WatermarkExec, one_child};
use crate::config::unit_of;
use crate::logical::{
    Bin, GroupTime, SliceGroup, SliceToGroup, StreamAggregate, StreamDeduplicate, TimeValue,
    Watermark, stream_scan,
};
use crate::state::{Assignment, GateShape};
use crate::time::Span;

/// Plans streams, watermarks and aggregates of streams.
#[derive(Debug, Default)]
pub struct StreamPlanner;

#[async_trait]
impl ExtensionPlanner for StreamPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let input = || one_child(physical_inputs.to_vec());
        if let Some(watermark) = node.as_any().downcast_ref::<Watermark>() {
            let input = input()?;
            let [max_future, idle_timeout] = clause_limits(&input, session)?;
            let exec = WatermarkExec::try_new(
                input,
                number(watermark.id)?,
                watermark.event_time_index()?,
                watermark.delay,
            )?;
            let exec = exec
                .with_limits(max_future, idle_timeout)
                .with_rows_kept(watermark.keeps_rows);
            return Ok(Some(Arc::new(exec)));
        }
        if let Some(dedup) = node.as_any().downcast_ref::<StreamDeduplicate>() {
            return Ok(Some(Arc::new(DeduplicateExec::try_new(
                input()?,
                deduplication(dedup)?,
            )?)));
        }
        if let Some(aggregate) = node.as_any().downcast_ref::<StreamAggregate>() {
            let planning = Planning {
                planner,
                session,
                planning_ctx,
            };
            return Ok(Some(planning.aggregate(aggregate, input()?)?));
        }
        Ok(None)
    }

    async fn plan_table_scan(
        &self,
        planner: &dyn PhysicalPlanner,
        scan: &TableScan,
        session: &dyn Session,
        planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(stream) = stream_scan(&scan.source) else {
            return Ok(None);
        };
        let partitions = session.config().target_partitions();
        let event_time = match &stream.event_time {
            None => None,
            Some(time) => {
                let schema = DFSchema::try_from(stream.provider.schema())?;
                let expr = planner.create_physical_expr(time, &schema, session, planning_ctx)?;
                let text = time.to_string();
                Some(EventTime { expr, text })
            }
        };
        let projection = scan.projection.as_ref();
        let exec = StreamScanExec::try_new(stream, projection, partitions, event_time)?;
        Ok(Some(Arc::new(exec)))
    }
}

/// The number that the analyzer gave a node.
fn number(id: Option<usize>) -> Result<usize> {
    id.ok_or_else(|| {
        internal_datafusion_err!("a streaming node was planned before it was analyzed")
    })
}

/// Event times of which a bin has a value, in ticks, both ends included.
///
/// # Errors
/// - none: the event time of a bin is a timestamp
pub(crate) fn safe(bin: &Bin) -> Result<(i64, i64)> {
    match &bin.event_type {
        DataType::Timestamp(unit, _) => Ok(safe_ticks(unit_of(unit), bin.below, bin.above)),
        other => Err(internal_datafusion_err!(
            "the event time of a bin is {other}"
        )),
    }
}

/// When the groups of a time close; `physical` makes expressions.
///
/// # Errors
/// - those of `physical`
pub(crate) fn closing(
    time: &GroupTime,
    physical: impl Fn(&Expr, &DFSchema) -> Result<Arc<dyn PhysicalExpr>>,
) -> Result<Closing> {
    if !time.closes {
        return Ok(Closing::Never);
    }
    Ok(match &time.value {
        TimeValue::Windows(spec) | TimeValue::WindowColumn(spec) => Closing::Windows(spec.shape),
        TimeValue::Session(spec, _) => Closing::Sessions(spec.unit),
        TimeValue::Instant(unit) => Closing::Instant(*unit),
        TimeValue::Bin(bin) => {
            let schema = DFSchema::try_from(BinFunction::schema(&bin.event_type))?;
            Closing::Bin(BinFunction {
                function: physical(&bin.function, &schema)?,
                event_type: bin.event_type.clone(),
                safe: safe(bin)?,
            })
        }
    })
}

/// Whether rows are aggregated by [`TimeWindowPartialExec`]: they are grouped by one slice of time and one set
/// of keys, and no aggregate asks for an order.
fn by_slice(node: &StreamAggregate, aggregates: &[Arc<AggregateFunctionExpr>]) -> bool {
    let session = |time: &GroupTime| matches!(time.value, TimeValue::Session(..));
    node.time.as_ref().is_some_and(|time| !session(time))
        && node.left_out.is_none()
        && aggregates.iter().all(|one| one.order_bys().is_empty())
}

/// Whether a batch query groups by the argument of its DISTINCT aggregates, as DataFusion's optimizer makes it do where
/// they have one and the others are sums and extremes: zeros of both signs are one value then.
fn groups_by_distinct(node: &StreamAggregate) -> bool {
    let mut arguments: HashSet<&Expr> = HashSet::new();
    for expr in &node.aggregates {
        let Expr::AggregateFunction(call) = expr else {
            return false;
        };
        let (name, params) = (call.func.name().to_lowercase(), &call.params);
        if params.filter.is_some() || !params.order_by.is_empty() {
            return false;
        }
        if params.distinct {
            arguments.extend(&params.args);
        } else if !["sum", "min", "max"].contains(&name.as_str()) {
            return false;
        }
    }
    arguments.len() == 1 && node.left_out.is_none()
}

/// An aggregate to which zeros of both signs are one value.
fn with_one_zero(
    aggregate: &AggregateFunctionExpr,
    schema: &Schema,
) -> Result<Arc<AggregateFunctionExpr>> {
    let mut arguments: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    for argument in aggregate.expressions() {
        let data_type = argument.data_type(schema)?;
        if !data_type.is_floating() {
            arguments.push(argument);
            continue;
        }
        // -0.0 + 0.0 is 0.0, and every other value stays what it is.
        let zero = Arc::new(Literal::new(ScalarValue::new_zero(&data_type)?));
        arguments.push(Arc::new(BinaryExpr::new(argument, Operator::Plus, zero)));
    }
    let orders = aggregate.all_expressions().order_by_exprs;
    let changed = aggregate.with_new_expressions(arguments, orders);
    changed
        .map(Arc::new)
        .ok_or_else(|| internal_datafusion_err!("an aggregate has lost an argument"))
}

/// What stands under a cast to a finer unit, which does not hold all times.
fn narrowed(time: &Expr) -> Option<&Expr> {
    match time {
        Expr::TryCast(cast) => Some(&cast.expr),
        _ => None,
    }
}

/// Which rows are alike, from the columns of the node's input.
fn deduplication(node: &StreamDeduplicate) -> Result<DeduplicateInfo> {
    let time = node
        .input
        .schema()
        .field(node.outputs + node.keys)
        .data_type();
    let DataType::Timestamp(unit, _) = time else {
        return Err(internal_datafusion_err!(
            "the event time of a deduplication is a timestamp"
        ));
    };
    let unit = unit_of(unit);
    // A delay finer than the column is rounded up: a key is never forgotten too early.
    let nanos = i128::from(unit.nanos());
    let hold = node
        .hold
        .nanos()
        .saturating_add(nanos - 1)
        .div_euclid(nanos);
    Ok(DeduplicateInfo {
        id: number(node.id)?,
        outputs: node.outputs,
        keys: node.keys,
        unit,
        hold: i64::try_from(hold).unwrap_or(i64::MAX),
        judges: node.judges,
        keeps_rows: node.keeps_rows,
    })
}

struct Planning<'a> {
    planner: &'a dyn PhysicalPlanner,
    session: &'a dyn Session,
    planning_ctx: &'a PhysicalPlanningContext,
}

impl Planning<'_> {
    fn expr(&self, expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        self.planner
            .create_physical_expr(expr, schema, self.session, self.planning_ctx)
    }

    /// Assign, partial aggregate, gate, final aggregate, and a projection to the node's schema.
    fn aggregate(
        &self,
        node: &StreamAggregate,
        input: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let streaming = node.id.is_some();
        let gate = Arc::new(self.gate_info(node)?);
        let bounds = gate.bounds();
        let partitions = gate.partitions(self.session.config().target_partitions());
        let assigned = self.assign(node, Arc::clone(&input), Arc::clone(&gate))?;
        let raw_schema = assigned.schema();
        let group_by = self.group_by(node, &raw_schema, bounds)?;
        let (aggregates, filters) = self.aggregates(node, &raw_schema, bounds)?;
        let partial = AggregateExec::try_new(
            AggregateMode::Partial,
            group_by.clone(),
            aggregates.clone(),
            filters.clone(),
            assigned,
            Arc::clone(&raw_schema),
        )?;
        let partial: Arc<dyn ExecutionPlan> = match streaming && by_slice(node, &aggregates) {
            true => {
                let info = self.assign_info(node, Arc::clone(&gate))?;
                let keys = group_by.expr().iter().skip(bounds);
                let keys: Vec<_> = keys.map(|(key, _)| Arc::clone(key)).collect();
                let schema = partial.schema();
                let exec = TimeWindowPartialExec::try_new(
                    input,
                    info,
                    &keys,
                    &aggregates,
                    &filters,
                    schema,
                    partitions < 2,
                )?;
                Arc::new(exec)
            }
            false => Arc::new(partial),
        };
        let reducer = Reducer {
            group_by: group_by.clone(),
            aggregates: aggregates.clone(),
            raw_schema: Arc::clone(&raw_schema),
        };
        let gated: Arc<dyn ExecutionPlan> = match streaming {
            true => {
                let reducer = Arc::new(reducer);
                Arc::new(TimeWindowGateExec::new(partial, gate, reducer, partitions))
            }
            // Sessions of a finite table: nothing is kept.
            false => partial,
        };
        // Without keys there is one partition, and nothing to spread.
        let mode = if node.keys.is_empty() && node.left_out.is_none() {
            AggregateMode::Final
        } else {
            AggregateMode::FinalPartitioned
        };
        let finished = AggregateExec::try_new(
            mode,
            group_by.as_final(),
            aggregates,
            filters,
            gated,
            raw_schema,
        )?;
        self.to_schema(node, Arc::new(finished), bounds)
    }

    fn assign(
        &self,
        node: &StreamAggregate,
        input: Arc<dyn ExecutionPlan>,
        gate: Arc<GateInfo>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(GroupTime {
            expr,
            value: TimeValue::Session(spec, gap),
            ..
        }) = &node.time
        else {
            let info = self.assign_info(node, gate)?;
            return Ok(Arc::new(TimeWindowAssignExec::new(input, info)));
        };
        let schema = node.input.schema();
        let info = SessionInfo {
            time: self.expr(expr, schema)?,
            event: narrowed(expr)
                .map(|event| self.expr(event, schema))
                .transpose()?,
            gap: self.expr(gap, schema)?,
            unit: spec.unit,
            keys: node
                .keys
                .iter()
                .map(|key| self.expr(key, schema))
                .collect::<Result<_>>()?,
            judges: node.judges,
            row: self.row(node)?,
            gate,
            finite: node.id.is_none(),
        };
        Ok(Arc::new(SessionAssignExec::new(input, info)))
    }

    /// The row as it reached its clause, if rows that are not counted are kept.
    fn row(&self, node: &StreamAggregate) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let row = node.row.as_ref();
        row.map(|row| self.expr(row, node.input.schema()))
            .transpose()
    }

    fn gate_info(&self, node: &StreamAggregate) -> Result<GateInfo> {
        let time = node.time.as_ref();
        let shape = match time.map(|time| &time.value) {
            None => GateShape::Timeless,
            Some(TimeValue::Windows(spec)) if spec.shape.hops() => GateShape::Hopping(spec.shape),
            Some(TimeValue::Session(..)) => GateShape::Sessions,
            Some(_) => GateShape::One,
        };
        Ok(GateInfo {
            // A query over a finite table keeps nothing, and needs no number.
            id: node.id.unwrap_or_default(),
            label: time.map_or_else(|| "no time".to_owned(), ToString::to_string),
            mode: node.mode,
            closing: time.map_or(Ok(Closing::Never), |time| self.closing(time))?,
            behind: time.map_or(Span::ZERO, |time| time.behind),
            shape,
            // Behind the keys DataFusion puts the number of the grouping set.
            keys: node.keys.len() + usize::from(node.left_out.is_some()),
            counts_late: node.has_timeless_set(),
            windows: time.is_some(),
            in_order: self.has_memory_limit()
                && matches!(shape, GateShape::One | GateShape::Hopping(_))
                && !node.has_timeless_set(),
        })
    }

    fn has_memory_limit(&self) -> bool {
        let pool = &self.session.runtime_env().memory_pool;
        matches!(pool.memory_limit(), MemoryLimit::Finite(_))
    }

    fn closing(&self, time: &GroupTime) -> Result<Closing> {
        closing(time, |expr, schema| self.expr(expr, schema))
    }

    fn assign_info(&self, node: &StreamAggregate, gate: Arc<GateInfo>) -> Result<AssignInfo> {
        let schema = node.input.schema();
        let (time, assignment) = match &node.time {
            None => (None, Assignment::Values),
            Some(time) => {
                let assignment = match &time.value {
                    TimeValue::Windows(spec) => Assignment::Windows(spec.shape),
                    _ => Assignment::Values,
                };
                (Some(self.expr(&time.expr, schema)?), assignment)
            }
        };
        let event = match &node.time {
            Some(time) => self.event(time, schema)?,
            None => None,
        };
        Ok(AssignInfo {
            time,
            event,
            assignment,
            judges: node.judges,
            row: self.row(node)?,
            gate,
        })
    }

    /// The event time from which a grouping time is computed here, where the result may not exist.
    fn event(&self, time: &GroupTime, schema: &DFSchema) -> Result<Option<EventColumn>> {
        let (expr, safe) = match (&time.value, &time.expr) {
            // The value was computed below: its event time is not here.
            (TimeValue::Bin(_), Expr::Column(_)) => return Ok(None),
            (TimeValue::Bin(bin), computed) => match computed.column_refs().into_iter().next() {
                Some(column) => (Expr::Column(column.clone()), safe(bin)?),
                None => return Ok(None),
            },
            (_, computed) => match narrowed(computed) {
                Some(event) => (event.clone(), (i64::MIN, i64::MAX)),
                None => return Ok(None),
            },
        };
        let expr = self.expr(&expr, schema)?;
        Ok(Some(EventColumn { expr, safe }))
    }

    /// Grouping by the slice or the bounds, then the keys.
    fn group_by(
        &self,
        node: &StreamAggregate,
        raw_schema: &Schema,
        bounds: usize,
    ) -> Result<PhysicalGroupBy> {
        let fields = raw_schema.fields();
        let first = fields.len().saturating_sub(bounds);
        let mut exprs: Vec<(Arc<dyn PhysicalExpr>, String)> = (first..fields.len())
            .map(|at| {
                let name = raw_schema.field(at).name();
                (Arc::new(Column::new(name, at)) as _, name.clone())
            })
            .collect();
        for (at, key) in node.keys.iter().enumerate() {
            // Names are for plans only: two keys may be called the same.
            exprs.push((
                self.expr(key, node.input.schema())?,
                format!("{at}:{}", key.schema_name()),
            ));
        }
        let Some(left_out) = &node.left_out else {
            return Ok(PhysicalGroupBy::new_single(exprs));
        };
        let nulls = exprs
            .iter()
            .map(|(expr, name)| {
                let null = ScalarValue::try_from(expr.data_type(raw_schema)?)?;
                Ok((Arc::new(Literal::new(null)) as _, name.clone()))
            })
            .collect::<Result<Vec<_>>>()?;
        // The slice stands for the time; without a time it is always there.
        let position = node.time.as_ref().map(|time| time.position);
        let groups = left_out.iter().map(|set| {
            let time = position
                .and_then(|at| set.get(at).copied())
                .unwrap_or(false);
            let keys = set
                .iter()
                .enumerate()
                .filter(|(at, _)| Some(*at) != position)
                .map(|(_, out)| *out);
            std::iter::once(time).chain(keys).collect()
        });
        Ok(PhysicalGroupBy::new(exprs, nulls, groups.collect(), true))
    }

    #[expect(
        clippy::type_complexity,
        reason = "the two lists that DataFusion's aggregate takes"
    )]
    fn aggregates(
        &self,
        node: &StreamAggregate,
        raw_schema: &Schema,
        bounds: usize,
    ) -> Result<(
        Vec<Arc<AggregateFunctionExpr>>,
        Vec<Option<Arc<dyn PhysicalExpr>>>,
    )> {
        let properties = self.session.execution_props();
        let mut aggregates = Vec::new();
        let mut filters = Vec::new();
        // Sessions change their bounds as they merge: the rows in them are counted with them.
        let rows = (bounds > 1).then(|| count(lit(1_i64)).alias("__rows"));
        let one_zero = groups_by_distinct(node);
        for expr in node.aggregates.iter().chain(&rows) {
            let lowered = LoweredAggregateBuilder::new(
                expr,
                node.input.schema(),
                raw_schema,
                properties,
                self.planning_ctx,
            )
            .build()?;
            aggregates.push(match one_zero && lowered.aggregate.is_distinct() {
                true => with_one_zero(&lowered.aggregate, raw_schema)?,
                false => lowered.aggregate,
            });
            filters.push(lowered.filter);
        }
        Ok((aggregates, filters))
    }

    /// Columns `slice, keys, aggregates` as the node's grouping expressions and aggregates.
    fn to_schema(
        &self,
        node: &StreamAggregate,
        input: Arc<dyn ExecutionPlan>,
        bounds: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fields = input.schema();
        let column = |at: usize| -> Arc<dyn PhysicalExpr> {
            Arc::new(Column::new(fields.field(at).name(), at))
        };
        let mut exprs: Vec<Arc<dyn PhysicalExpr>> =
            (bounds..fields.fields().len()).map(column).collect();
        let schema = UserDefinedLogicalNodeCore::schema(node);
        if let Some(time) = &node.time {
            let wanted = schema.field(time.position).data_type();
            exprs.insert(
                time.position,
                self.group_value(time, wanted, (0..bounds).map(column).collect(), &fields)?,
            );
        }
        let named = exprs
            .into_iter()
            .zip(schema.fields())
            .map(|(expr, field)| ProjectionExpr {
                expr,
                alias: field.name().clone(),
            });
        Ok(Arc::new(ProjectionExec::try_new(named, input)?))
    }

    /// The grouping value of a slice.
    fn group_value(
        &self,
        time: &GroupTime,
        wanted: &DataType,
        slice: Vec<Arc<dyn PhysicalExpr>>,
        schema: &Schema,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let group = match &time.value {
            TimeValue::Windows(spec) | TimeValue::WindowColumn(spec) => {
                SliceGroup::Window(spec.clone())
            }
            TimeValue::Session(spec, _) => SliceGroup::Session(spec.clone()),
            TimeValue::Bin(_) | TimeValue::Instant(_) => SliceGroup::Timestamp(wanted.clone()),
        };
        let function = Arc::new(ScalarUDF::from(SliceToGroup::new(group)));
        let options = Arc::new(self.session.config_options().clone());
        Ok(Arc::new(ScalarFunctionExpr::try_new(
            function, slice, schema, options,
        )?))
    }
}
