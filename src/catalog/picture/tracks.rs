//! From a query's plan to its rows: for each operator that judges rows, the way down to the sources, and what is
//! computed of a source's columns on it.
//!
//! ```text
//! StreamAggregate  window(ts, '1 hour')        judged by  CAST(f AS TIMESTAMP)
//!   Filter         status = 'placed'           above      s = 'placed'
//!     Watermark    ts                          event time CAST(f AS TIMESTAMP)
//!       Projection CAST(f AS TIMESTAMP) AS ts, s AS status
//!         TableScan (f, s)
//! ```

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::config::ExtensionOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Union};

use crate::config::{OutputMode, TidegateOptions, options};
use crate::logical::{
    GroupTime, StreamAggregate, StreamDeduplicate, TimeValue, Watermark, stream_scan,
};
use crate::time::Span;

/// The tracks of a plan.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub tracks: Vec<Track>,
}

/// The way from an operator down to one source.
#[derive(Debug, Clone)]
pub(super) struct Track {
    /// Resolved name of the source.
    pub source: String,
    pub provider: Arc<dyn TableProvider>,
    /// Settings of the query, with the options behind the source's name.
    pub settings: TidegateOptions,
    /// Columns of the source, as expressions name them.
    pub schema: DFSchema,
    /// The event time at the clause.
    pub event: Option<Expr>,
    /// What a row must fulfil to reach the clause.
    pub below: Vec<Expr>,
    /// What it must fulfil to reach the operator.
    pub above: Vec<Expr>,
    /// How it is judged; none where no row is late.
    pub judge: Option<JudgeExpr>,
}

/// What decides whether a row is late.
#[derive(Debug, Clone)]
pub(super) struct JudgeExpr {
    /// The time that is judged.
    pub time: Expr,
    /// The gap behind it, of a session.
    pub gap: Option<Expr>,
    /// The keys that a session is one of; empty where windows are drawn for all keys together.
    pub keys: Vec<Expr>,
    /// The groups; none for a deduplication, which judges the event time itself.
    pub group: Option<GroupTime>,
    /// Number of the aggregate; none where its windows are not drawn.
    pub id: Option<usize>,
}

/// What is carried down the plan.
#[derive(Debug, Clone, Default)]
struct Carried {
    event: Option<Expr>,
    below: Vec<Expr>,
    above: Vec<Expr>,
    judge: Option<JudgeExpr>,
}

/// The tracks of an analyzed plan.
///
/// # Errors
/// - a setting cannot be what it is
pub(super) fn plan(plan: &LogicalPlan, state: &SessionState) -> Result<Plan> {
    let mut found = Plan::default();
    let settings = options(state.config_options());
    descend(plan, Carried::default(), &settings, &mut found.tracks)?;
    Ok(found)
}

impl Plan {
    /// The size of the windows, where they have one.
    pub(super) fn scale(&self) -> Span {
        let groups = self
            .tracks
            .iter()
            .filter_map(|track| track.judge.as_ref()?.group.as_ref());
        let spans = groups.filter_map(|group| match &group.value {
            TimeValue::Windows(spec) | TimeValue::WindowColumn(spec) => {
                let ticks = i128::from(spec.shape.size());
                Some(Span::from_nanos(
                    ticks.saturating_mul(i128::from(spec.shape.unit().nanos())),
                ))
            }
            _ => None,
        });
        spans.max().unwrap_or(Span::ZERO)
    }

    /// What is grouped by and awaited, in words.
    pub(super) fn rule(&self, delay: Option<Span>) -> String {
        let judge = self.tracks.iter().find_map(|track| track.judge.as_ref());
        let group = judge.map(
            |judge| match judge.group.as_ref().map(|group| &group.value) {
                Some(TimeValue::Windows(spec) | TimeValue::WindowColumn(spec)) => {
                    format!("windows of {}", spec.shape)
                }
                Some(TimeValue::Session(spec, _)) => format!("sessions, gap {}", spec.label),
                Some(TimeValue::Bin(bin)) => bin.function.human_display().to_string(),
                Some(TimeValue::Instant(_)) => "by event time".to_owned(),
                None => "distinct rows".to_owned(),
            },
        );
        let delay = delay.map(|delay| format!("delay {delay}"));
        group
            .into_iter()
            .chain(delay)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn descend(
    plan: &LogicalPlan,
    mut carried: Carried,
    settings: &TidegateOptions,
    tracks: &mut Vec<Track>,
) -> Result<()> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            tracks.extend(track(scan, carried, settings)?);
            return Ok(());
        }
        LogicalPlan::Projection(projection) => {
            let exprs = &projection.expr;
            carried = carried.with(&projection.schema, &|at| {
                exprs.get(at).cloned().map(unaliased)
            })?;
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let columns = alias.input.schema().columns();
            carried = carried.with(&alias.schema, &|at| {
                columns.get(at).cloned().map(Expr::Column)
            })?;
        }
        LogicalPlan::Filter(filter) => {
            let filters = match carried.event {
                Some(_) => &mut carried.below,
                None => &mut carried.above,
            };
            filters.push(filter.predicate.clone());
        }
        LogicalPlan::Union(union) => return each(union, &carried, settings, tracks),
        LogicalPlan::Extension(extension) => {
            carried = beneath(extension.node.as_any(), carried);
        }
        _ => {}
    }
    for input in plan.inputs() {
        // Of several inputs the rows come from the one that has the time.
        descend(
            input,
            carried.clone().within(input.schema()),
            settings,
            tracks,
        )?;
    }
    Ok(())
}

/// What is carried below a node of ours.
fn beneath(node: &dyn std::any::Any, mut carried: Carried) -> Carried {
    if let Some(aggregate) = node.downcast_ref::<StreamAggregate>() {
        return Carried {
            judge: judge(aggregate),
            ..Carried::default()
        };
    }
    if let Some(clause) = node.downcast_ref::<Watermark>() {
        carried.event = Some(Expr::Column(clause.event_time.clone()));
    }
    if let Some(distinct) = node.downcast_ref::<StreamDeduplicate>() {
        let columns = distinct.input.schema().columns();
        let time = columns.get(distinct.outputs.saturating_add(distinct.keys));
        let judge = time.filter(|_| distinct.judges).map(|time| JudgeExpr {
            time: Expr::Column(time.clone()),
            gap: None,
            keys: Vec::new(),
            group: None,
            id: None,
        });
        return Carried {
            judge,
            ..Carried::default()
        };
    }
    carried
}

/// How an aggregate judges its rows, if it does.
fn judge(aggregate: &StreamAggregate) -> Option<JudgeExpr> {
    let group = aggregate.time.as_ref()?;
    let judges = aggregate.judges
        && group.closes
        && aggregate.mode != OutputMode::Complete
        && !aggregate.has_timeless_set();
    let (gap, keys) = match &group.value {
        TimeValue::Session(_, gap) => (Some(gap.clone()), aggregate.keys.clone()),
        _ => (None, Vec::new()),
    };
    let is_session = gap.is_some();
    judges.then(|| JudgeExpr {
        time: group.expr.clone(),
        gap,
        keys,
        group: Some(group.clone()),
        // Sessions of several grouping sets would lie one over the other.
        id: aggregate
            .id
            .filter(|_| !is_session || aggregate.left_out.is_none()),
    })
}

fn each(
    union: &Union,
    carried: &Carried,
    settings: &TidegateOptions,
    tracks: &mut Vec<Track>,
) -> Result<()> {
    for input in &union.inputs {
        let columns = input.schema().columns();
        let column = |at: usize| columns.get(at).cloned().map(Expr::Column);
        let carried = carried.clone().with(&union.schema, &column)?;
        descend(input, carried, settings, tracks)?;
    }
    Ok(())
}

/// The track that ends at a scan, if it is that of a stream.
fn track(scan: &TableScan, carried: Carried, settings: &TidegateOptions) -> Result<Option<Track>> {
    let Some(stream) = stream_scan(&scan.source) else {
        return Ok(None);
    };
    let mut settings = settings.clone();
    for (key, value) in &stream.options {
        settings.set(key, value)?;
    }
    Ok(Some(Track {
        source: stream.name.clone(),
        provider: Arc::clone(&stream.provider),
        settings,
        schema: scan.projected_schema.as_ref().clone(),
        event: carried.event,
        below: carried.below,
        above: carried.above,
        judge: carried.judge,
    }))
}

fn unaliased(expr: Expr) -> Expr {
    expr.unalias()
}

impl Carried {
    /// Every expression, changed.
    fn map(self, f: &dyn Fn(Expr) -> Result<Expr>) -> Result<Self> {
        let all = |exprs: Vec<Expr>| exprs.into_iter().map(f).collect::<Result<Vec<_>>>();
        let judge = match self.judge {
            Some(judge) => Some(JudgeExpr {
                time: f(judge.time)?,
                gap: judge.gap.map(f).transpose()?,
                keys: all(judge.keys)?,
                ..judge
            }),
            None => None,
        };
        Ok(Self {
            event: self.event.map(f).transpose()?,
            below: all(self.below)?,
            above: all(self.above)?,
            judge,
        })
    }

    /// With what the columns of a node are below it, by their places in its schema.
    fn with(self, schema: &DFSchema, below: &dyn Fn(usize) -> Option<Expr>) -> Result<Self> {
        self.map(&|expr| {
            let replaced = expr.transform(|inner| {
                let found = match &inner {
                    Expr::Column(column) => schema.maybe_index_of_column(column).and_then(below),
                    _ => None,
                };
                Ok(match found {
                    Some(found) => Transformed::yes(found),
                    None => Transformed::no(inner),
                })
            })?;
            Ok(replaced.data)
        })
    }

    /// What of it is about columns of a schema: nothing where the time is not.
    fn within(self, schema: &DFSchema) -> Self {
        let has = |column: &Column| schema.maybe_index_of_column(column).is_some();
        let about = |expr: &Expr| expr.column_refs().into_iter().all(has);
        let times = self
            .event
            .iter()
            .chain(self.judge.iter().map(|judge| &judge.time));
        if !times.clone().all(about) {
            return Self::default();
        }
        // A condition on both sides of a join cannot be told of one row.
        Self {
            below: self.below.into_iter().filter(|expr| about(expr)).collect(),
            above: self.above.into_iter().filter(|expr| about(expr)).collect(),
            ..self
        }
    }
}
