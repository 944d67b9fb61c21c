//! Plans the lowered calls of the FROM clause: `STREAM`, `WATERMARK` and `window()` become nodes.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, DataFusionError, ExprSchema, Result, ScalarValue, SchemaError,
    TableReference, not_impl_err,
};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{
    Expr, ExprSchemable, Extension, LogicalPlan, LogicalPlanBuilder, ScalarUDF, TableScan, cast,
    try_cast,
};
use sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, JoinOperator, SetExpr,
    TableAlias, TableFactor, TableWithJoins, Value,
};

use super::clause::{STREAM_CALL, WATERMARK_CALL};
use super::interval::{SpanError, parse_span};
use super::rewrite::WINDOW_CALL;
use crate::config::unit_of;
use crate::error::{Place, Refusal};
use crate::logical::{
    SessionSpec, StreamScan, TimeWindow, Watermark, WindowSpec, WindowTime, Windows,
};
use crate::time::{Span, Unit, WindowShape};

/// Makes plan nodes of the calls that the lowering wrote.
#[derive(Debug, Default)]
pub struct StreamRelations;

impl RelationPlanner for StreamRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::TableFunction { expr, alias } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(call) = LoweredCall::of(expr) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let plan = match call.name {
            STREAM_CALL => plan_stream(&call, alias.clone(), context)?,
            WATERMARK_CALL => plan_watermark(&call, alias.clone(), context)?,
            _ => plan_window(&call, alias.clone(), context)?,
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan, None,
        ))))
    }
}

/// A lowered call: its relation and its further arguments.
struct LoweredCall<'a> {
    name: &'static str,
    from: &'a [TableWithJoins],
    arguments: Vec<&'a SqlExpr>,
}

impl<'a> LoweredCall<'a> {
    fn of(expr: &'a SqlExpr) -> Option<Self> {
        let SqlExpr::Function(function) = expr else {
            return None;
        };
        let name = function.name.to_string();
        let name = [STREAM_CALL, WATERMARK_CALL, WINDOW_CALL]
            .into_iter()
            .find(|known| *known == name)?;
        let FunctionArguments::List(list) = &function.args else {
            return None;
        };
        let mut arguments = list.args.iter().filter_map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        });
        let Some(SqlExpr::Subquery(query)) = arguments.next() else {
            return None;
        };
        let SetExpr::Select(select) = query.body.as_ref() else {
            return None;
        };
        Some(Self {
            name,
            from: &select.from,
            arguments: arguments.collect(),
        })
    }

    /// The place written as two numbers, from this argument on.
    fn place(&self, at: usize) -> Option<Place> {
        let number = |at: usize| -> Option<u64> {
            match self.arguments.get(at)? {
                SqlExpr::Value(value) => match &value.value {
                    Value::Number(text, _) => text.to_string().parse().ok(),
                    _ => None,
                },
                _ => None,
            }
        };
        let place = Place {
            line: number(at)?,
            column: number(at + 1)?,
        };
        (place.line > 0).then_some(place)
    }

    fn text(&self, at: usize) -> Option<&str> {
        match self.arguments.get(at)? {
            SqlExpr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => Some(text),
                _ => None,
            },
            _ => None,
        }
    }

    /// The relation, under the alias that the whole call was given: a column is seen through it.
    fn plan(
        &self,
        alias: Option<TableAlias>,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<LogicalPlan> {
        let mut factor = one_factor(self.from)?;
        if let Some(alias) = alias {
            set_alias(&mut factor, alias);
        }
        context.plan(factor)
    }
}

/// A FROM list as one table factor: `a, b` is `(a CROSS JOIN b)`.
fn one_factor(from: &[TableWithJoins]) -> Result<TableFactor> {
    use sqlparser::ast::Join;
    let [first, rest @ ..] = from else {
        return not_impl_err!("a relation is missing");
    };
    if rest.is_empty() && first.joins.is_empty() {
        return Ok(first.relation.clone());
    }
    let mut all = first.clone();
    for table in rest {
        all.joins.push(Join {
            relation: table.relation.clone(),
            global: false,
            join_operator: JoinOperator::CrossJoin(sqlparser::ast::JoinConstraint::None),
        });
        all.joins.extend(table.joins.clone());
    }
    Ok(TableFactor::NestedJoin {
        table_with_joins: Box::new(all),
        alias: None,
    })
}

/// Gives a factor an alias; one that it has already goes below.
fn set_alias(factor: &mut TableFactor, new: TableAlias) {
    match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. }
            if alias.is_none() =>
        {
            *alias = Some(new);
        }
        _ => {
            let inner = std::mem::replace(
                factor,
                TableFactor::TableFunction {
                    expr: SqlExpr::value(Value::Null),
                    alias: None,
                },
            );
            *factor = TableFactor::NestedJoin {
                table_with_joins: Box::new(TableWithJoins {
                    relation: inner,
                    joins: Vec::new(),
                }),
                alias: Some(new),
            };
        }
    }
}

/// `STREAM t`: the one table under the name becomes a stream.
fn plan_stream(
    call: &LoweredCall<'_>,
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let place = call.place(0);
    let mut options = Vec::new();
    let mut at = 2;
    while let (Some(key), Some(value)) = (call.text(at), call.text(at + 1)) {
        if !STREAM_OPTIONS.contains(&key) {
            return Err(Refusal::new(
                "INVALID_STREAM_OPTION",
                "42616",
                format!("A stream has no option '{key}'."),
            )
            .at(place)
            .hint(format!("the options are {}", STREAM_OPTIONS.join(", ")))
            .into());
        }
        options.push((key.to_owned(), value.to_owned()));
        at += 2;
    }
    let plan = call.plan(alias, context)?;
    let (mut finite, mut streams) = (0, 0);
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            if crate::logical::is_stream_scan(node) {
                streams += 1
            } else {
                finite += usize::from(source_as_provider(&scan.source).is_ok())
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if finite + streams != 1 {
        return Err(Refusal::new(
            "UNSUPPORTED_STREAM_SOURCE",
            "42KDE",
            "STREAM needs one table: this name reads none or several.",
        )
        .at(place)
        .hint("write STREAM before the table that is meant, inside the view or subquery")
        .into());
    }
    let plan = plan.transform_up(|node| match &node {
        LogicalPlan::TableScan(scan) if !crate::logical::is_stream_scan(&node) => {
            Ok(Transformed::yes(as_stream(
                scan,
                &options,
                place,
                context.context_provider().options(),
            )?))
        }
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(plan.data)
}

/// Options of `WITH (…)` behind a stream's name.
const STREAM_OPTIONS: [&str; 4] = [
    "epoch_by",
    "max_rows_per_epoch",
    "max_files_per_epoch",
    "on_bad_record",
];

/// A scan whose rows come epoch by epoch.
pub(crate) fn as_stream(
    scan: &TableScan,
    options: &[(String, String)],
    place: Option<Place>,
    config: &ConfigOptions,
) -> Result<LogicalPlan> {
    let catalog = &config.catalog;
    let name = scan
        .table_name
        .clone()
        .resolve(&catalog.default_catalog, &catalog.default_schema);
    let source = StreamScan {
        name: name.to_string(),
        provider: source_as_provider(&scan.source)?,
        options: options.to_vec(),
        place,
    };
    let mut stream = scan.clone();
    stream.source = Arc::new(source);
    Ok(LogicalPlan::TableScan(stream))
}

/// `WATERMARK expr [AS name] DELAY OF …`.
fn plan_watermark(
    call: &LoweredCall<'_>,
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let place = call.place(3);
    let mut input = call.plan(alias, context)?;
    let Some(expr) = call.arguments.first() else {
        return not_impl_err!("a WATERMARK clause without an expression");
    };
    let planned = context
        .sql_to_expr((*expr).clone(), input.schema())
        .map_err(|error| placed(error, input.schema(), place))?;
    known_columns(&planned, input.schema(), place)?;
    of_one_row(&planned, place)?;
    let name = match call.arguments.get(1) {
        Some(SqlExpr::Identifier(ident)) => Some(context.normalize_ident(ident.clone())),
        _ => None,
    };
    let event_time = match (planned, name) {
        (Expr::Column(column), None) => column,
        (_, None) => {
            return Err(Refusal::new(
                "REQUIRES_EXPLICIT_NAME_IN_WATERMARK_CLAUSE",
                "42000",
                "The watermark's expression has no name: it adds a column to the relation.",
            )
            .at(place)
            .hint(format!("write WATERMARK {expr} AS event_time DELAY OF …"))
            .into());
        }
        (expr, Some(name)) => {
            input = add_first(input, expr, &name, place)?;
            Column::from(input.schema().qualified_field(0))
        }
    };
    timestamp(&event_time, input.schema(), place)?;
    let delay = call
        .text(2)
        .and_then(|text| text.parse().ok())
        .map_or(Span::ZERO, Span::from_nanos);
    let node = Watermark {
        input,
        event_time,
        delay,
        id: None,
    };
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    }))
}

/// Refuses an event time that is not told by a row alone.
fn of_one_row(expr: &Expr, place: Option<Place>) -> Result<()> {
    let whole = expr.exists(|part| {
        Ok(matches!(
            part,
            Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::ScalarSubquery(_)
                | Expr::Exists(_)
        ))
    })?;
    if !whole {
        return Ok(());
    }
    Err(Refusal::new(
        "MISSING_GROUP_BY",
        "42803",
        format!("The event time {expr} depends on other rows."),
    )
    .at(place)
    .hint("an event time is computed from its own row: WATERMARK ts DELAY OF …")
    .into())
}

/// Adds a named expression as the first column.
fn add_first(
    input: LogicalPlan,
    expr: Expr,
    name: &str,
    place: Option<Place>,
) -> Result<LogicalPlan> {
    if input
        .schema()
        .fields()
        .iter()
        .any(|field| field.name() == name)
    {
        return Err(Refusal::new(
            "COLUMN_ALREADY_EXISTS",
            "42711",
            format!("The relation has a column '{name}' already."),
        )
        .at(place)
        .hint("give the event time another name")
        .into());
    }
    // The column belongs to the relation: it is seen through its name when it has only one.
    let mut qualifiers: Vec<Option<&TableReference>> = input
        .schema()
        .iter()
        .map(|(qualifier, _)| qualifier)
        .collect();
    qualifiers.dedup();
    let qualifier = match qualifiers.as_slice() {
        [Some(one)] => Some((*one).clone()),
        _ => None,
    };
    let added = match qualifier {
        Some(qualifier) => expr.alias_qualified(Some(qualifier), name),
        None => expr.alias(name),
    };
    let columns: Vec<Expr> = input
        .schema()
        .iter()
        .map(|field| Expr::Column(Column::from(field)))
        .collect();
    LogicalPlanBuilder::from(input)
        .project(std::iter::once(added).chain(columns).collect::<Vec<_>>())?
        .build()
}

/// The error of a length that names columns.
fn not_constant(length: &SqlExpr, place: Option<Place>) -> DataFusionError {
    Refusal::new(
        "DATATYPE_MISMATCH.NON_FOLDABLE_INPUT",
        "42K09",
        format!("window(): the length {length} is not a constant."),
    )
    .at(place)
    .hint("write it as text, '10 minutes', or as INTERVAL '10 minutes'")
    .into()
}

/// An error of planning an expression, with its place; an unknown column with the known ones.
fn placed(error: DataFusionError, schema: &DFSchema, place: Option<Place>) -> DataFusionError {
    let mut inner = &error;
    loop {
        inner = match inner {
            DataFusionError::Diagnostic(_, below) | DataFusionError::Context(_, below) => below,
            DataFusionError::Collection(errors) => match errors.first() {
                Some(first) => first,
                None => return error,
            },
            DataFusionError::SchemaError(cause, _)
                if matches!(cause.as_ref(), SchemaError::FieldNotFound { .. }) =>
            {
                let SchemaError::FieldNotFound { field, .. } = cause.as_ref() else {
                    return error;
                };
                return no_column(&field.flat_name(), schema, place);
            }
            _ => return error,
        };
    }
}

/// The error of a column that the relation does not have.
fn no_column(name: &str, schema: &DFSchema, place: Option<Place>) -> DataFusionError {
    let names: Vec<String> = schema
        .columns()
        .iter()
        .map(|column| column.name.clone())
        .collect();
    Refusal::new(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "42703",
        format!("The relation has no column '{name}'."),
    )
    .at(place)
    .hint(format!("its columns are {}", names.join(", ")))
    .into()
}

/// Refuses names that the relation does not have.
fn known_columns(expr: &Expr, schema: &DFSchema, place: Option<Place>) -> Result<()> {
    for column in expr.column_refs() {
        if schema.has_column(column) {
            continue;
        }
        return Err(no_column(&column.flat_name(), schema, place));
    }
    Ok(())
}

/// Refuses an event time that is not a TIMESTAMP.
fn timestamp(column: &Column, schema: &DFSchema, place: Option<Place>) -> Result<()> {
    let field = schema.field_from_column(column)?;
    if matches!(field.data_type(), DataType::Timestamp(..)) {
        return Ok(());
    }
    Err(Refusal::new(
        "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE",
        "42K09",
        format!(
            "The event time '{}' is {}, not a TIMESTAMP.",
            column.name,
            field.data_type()
        ),
    )
    .at(place)
    .hint(format!(
        "write WATERMARK CAST({} AS TIMESTAMP) AS event_time DELAY OF …",
        column.name
    ))
    .into())
}

/// `window(ts, size [, slide [, start]])`.
fn plan_window(
    call: &LoweredCall<'_>,
    alias: Option<TableAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let place = call.place(0);
    let function = call.text(2).unwrap_or("window").to_owned();
    let column = call.text(3).unwrap_or_default().to_owned();
    let input = call.plan(alias, context)?;
    let [time, sizes @ ..] = call.arguments.get(4..).unwrap_or_default() else {
        return Err(wrong_count(place));
    };
    let time = context
        .sql_to_expr((*time).clone(), input.schema())
        .map_err(|error| placed(error, input.schema(), place))?;
    known_columns(&time, input.schema(), place)?;
    let (time, unit, zone) = event_time(time, &input, place)?;
    let windows = if function == "session_window" {
        let [gap] = sizes else {
            return Err(wrong_count(place));
        };
        let gap = context
            .sql_to_expr((*gap).clone(), input.schema())
            .map_err(|error| placed(error, input.schema(), place))?;
        known_columns(&gap, input.schema(), place)?;
        session(gap, unit, zone, &input, place)?
    } else {
        if sizes.is_empty() || sizes.len() > 3 {
            return Err(wrong_count(place));
        }
        let empty = DFSchema::empty();
        let sizes = sizes
            .iter()
            .map(|size| {
                let constant = context.sql_to_expr((*size).clone(), &empty);
                length(constant.map_err(|_| not_constant(size, place)), place)
            })
            .collect::<Result<Vec<Span>>>()?;
        let shape = shape(unit, &sizes).map_err(|refusal| refusal.at(place))?;
        Windows::Fixed(WindowSpec { shape, zone })
    };
    let bound = windows.bound_type();
    let time = if time.get_type(input.schema().as_ref())? == bound {
        time
    } else {
        cast(time, bound)
    };
    let node = TimeWindow::try_new(input, time, windows, &column, place)?;
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    }))
}

/// The sessions of a gap: a constant, or an expression over each row.
fn session(
    gap: Expr,
    unit: Unit,
    zone: Option<Arc<str>>,
    input: &LogicalPlan,
    place: Option<Place>,
) -> Result<Windows> {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    if !gap.any_column_refs() && !gap.is_volatile() {
        let constant = match &gap {
            Expr::Literal(..) | Expr::Negative(_) => length(Ok(gap), place)?,
            _ => return Err(session_gap(&gap, place)),
        };
        let unit = unit.fitting(&[constant]).unwrap_or(Unit::Nanosecond);
        let label = constant.to_string();
        let literal = i64::try_from(constant.nanos()).unwrap_or(i64::MAX);
        let literal = ScalarValue::new_interval_mdn(0, 0, literal);
        return Ok(Windows::Session(
            SessionSpec { unit, zone, label },
            Expr::Literal(literal, None),
        ));
    }
    let label = format!("gap {gap}");
    let gap = match gap.get_type(input.schema().as_ref())? {
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => try_cast(gap, interval),
        DataType::Interval(_) => cast(gap, interval),
        _ => return Err(session_gap(&gap, place)),
    };
    let unit = unit.max(Unit::Microsecond);
    Ok(Windows::Session(SessionSpec { unit, zone, label }, gap))
}

fn session_gap(gap: &Expr, place: Option<Place>) -> DataFusionError {
    Refusal::new(
        "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
        "42K09",
        format!("session_window(): the gap {gap} is not a length of time."),
    )
    .at(place)
    .hint("write it as text, '5 minutes', as INTERVAL '5 minutes', or as an expression of either type")
    .into()
}

fn wrong_count(place: Option<Place>) -> DataFusionError {
    Refusal::new("WRONG_NUM_ARGS.WITHOUT_SUGGESTION", "42605", "window() takes a time and one to three lengths: size, slide, start; session_window() a time and a gap.")
        .at(place)
        .hint("write window(ts, '1 hour'), window(ts, '1 hour', '10 minutes') or window(ts, '1 day', '1 day', '8 hours')")
        .into()
}

/// The event time of a window's argument: a timestamp, a text that is cast to one, or a window's
/// last moment.
fn event_time(
    time: Expr,
    input: &LogicalPlan,
    place: Option<Place>,
) -> Result<(Expr, Unit, Option<Arc<str>>)> {
    let data_type = time.get_type(input.schema().as_ref())?;
    match &data_type {
        DataType::Timestamp(unit, zone) => Ok((time, unit_of(unit), zone.clone())),
        DataType::Utf8
        | DataType::Utf8View
        | DataType::LargeUtf8
        | DataType::Date32
        | DataType::Date64 => Ok((
            cast(
                time,
                DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Microsecond, None),
            ),
            Unit::Microsecond,
            None,
        )),
        DataType::Struct(_)
            if let Some(DataType::Timestamp(unit, zone)) = WindowTime::result_type(&data_type) =>
        {
            let call = ScalarUDF::from(WindowTime::default()).call(vec![time]);
            Ok((call, unit_of(&unit), zone))
        }
        other => Err(Refusal::new(
            "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            "42K09",
            format!("window() takes a TIMESTAMP or a window; this is {other}."),
        )
        .at(place)
        .hint("cast it: window(CAST(x AS TIMESTAMP), '1 hour')")
        .into()),
    }
}

/// A length given to `window()`: a text or an INTERVAL literal.
fn length(expr: Result<Expr>, place: Option<Place>) -> Result<Span> {
    const HINT: &str = "write it as text, '10 minutes', or as INTERVAL '10 minutes'";
    let unreadable = |reason: String| {
        Refusal::new(
            "CANNOT_PARSE_INTERVAL",
            "22006",
            format!("window(): {reason}."),
        )
        .at(place)
        .hint(HINT)
    };
    let (expr, sign) = match expr? {
        Expr::Negative(inner) => (*inner, -1),
        other => (other, 1),
    };
    let Expr::Literal(value, _) = &expr else {
        return Err(unreadable(format!("the length {expr} is not a constant")).into());
    };
    let span = match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::Utf8View(Some(text))
        | ScalarValue::LargeUtf8(Some(text)) => parse_span(text),
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => Ok(
            Span::from_days_and_nanos(interval.days, interval.nanoseconds),
        ),
        ScalarValue::IntervalDayTime(Some(interval)) => Ok(Span::from_days_and_nanos(
            interval.days,
            i64::from(interval.milliseconds).saturating_mul(1_000_000),
        )),
        ScalarValue::IntervalMonthDayNano(Some(_)) | ScalarValue::IntervalYearMonth(_) => {
            Err(SpanError::Months)
        }
        other => return Err(unreadable(format!("{other} is not a length of time")).into()),
    };
    match span {
        Ok(span) => Ok(Span::from_nanos(span.nanos().saturating_mul(sign))),
        Err(SpanError::Unreadable(reason)) => Err(unreadable(reason).into()),
        Err(SpanError::Months) => Err(Refusal::new(
            "UNSUPPORTED_WINDOW_LENGTH",
            "42K09",
            "window(): months and years have no fixed length.",
        )
        .at(place)
        .hint("write it in days, or group by date_trunc('month', ts)")
        .into()),
    }
}

/// Windows that a row may be in: a day every second, with room. Each of them emits a row of its own.
const WINDOWS_OF_A_ROW: i128 = 100_000;

/// Size, slide and start as a shape, in the coarsest unit that holds them.
fn shape(unit: Unit, sizes: &[Span]) -> Result<WindowShape, Refusal> {
    let size = sizes.first().copied().unwrap_or_default();
    let slide = sizes.get(1).copied().unwrap_or(size);
    let start = sizes.get(2).copied().unwrap_or_default();
    let range = |message: String, hint: &str| {
        Refusal::new("DATATYPE_MISMATCH.VALUE_OUT_OF_RANGE", "42K09", message).hint(hint)
    };
    let violation = |message: String, hint: &str| {
        Refusal::new(
            "DATATYPE_MISMATCH.PARAMETER_CONSTRAINT_VIOLATION",
            "42K09",
            message,
        )
        .hint(hint)
    };
    if size <= Span::ZERO {
        return Err(range(
            format!("window(): the size {size} must be greater than zero."),
            "write a length such as '10 minutes'",
        ));
    }
    if slide <= Span::ZERO {
        return Err(range(
            format!("window(): the slide {slide} must be greater than zero."),
            "leave it out for tumbling windows",
        ));
    }
    if slide > size {
        return Err(violation(
            format!(
                "window(): the slide {slide} is above the size {size}: rows between windows would be lost."
            ),
            "the size comes first: window(ts, '1 hour', '10 minutes')",
        ));
    }
    let windows = size.nanos().checked_div(slide.nanos()).unwrap_or(i128::MAX);
    if windows > WINDOWS_OF_A_ROW {
        return Err(range(
            format!(
                "window(): a row would be in {windows} windows; the limit is {WINDOWS_OF_A_ROW}."
            ),
            "take a longer slide",
        ));
    }
    if start.abs() >= slide {
        return Err(violation(
            format!("window(): the start {start} is not within one slide of {slide}."),
            "give the start modulo the slide",
        ));
    }
    let all = [size, slide, start];
    unit.fitting(&all)
        .and_then(|unit| {
            WindowShape::new(
                unit,
                unit.ticks(size)?,
                unit.ticks(slide)?,
                unit.ticks(start)?,
            )
        })
        .ok_or_else(|| {
            range(
                format!("window(): {size} is longer than timestamps reach."),
                "write a shorter length",
            )
        })
}
