//! What a streaming table is: its query, checked.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ResolvedTableReference, Result, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Extension, FetchType, Limit, LogicalPlan, SkipType};
use datafusion::sql::parser::Statement;

use super::audit::{Shape, shape_of};
use super::late_columns::{takes, widened};
use super::replace_table::ReplaceTable;
use super::table_options::TableOptions;
use super::unbounded::UnboundedTables;
use crate::config::{InitialOrder, OutputMode, shown_columns};
use crate::error::Refusal;
use crate::logical::{
    StreamAggregate, StreamDeduplicate, StreamQuery, Watermark, carry_rows, group_columns,
    groups_may_leave, null_or_left_out, stream_scan, stream_scans,
};
use crate::source::{can_be_ordered, cannot_be_ordered};
use crate::sql::{CreateStreamingTable, Target};
use crate::time::Span;

/// The table of rows that a query does not count.
#[derive(Debug, Clone)]
pub struct LateRows {
    /// Its name, with catalog and schema: those of the streaming table unless it says others.
    pub name: TableReference,
    /// Its columns: [`carry_rows`] says which.
    pub schema: SchemaRef,
}

/// A streaming table's query, as it was understood when it was defined.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The query.
    pub query: Statement,
    /// Its text.
    pub text: String,
    /// The statement that made it.
    pub statement: String,
    /// Where its rows are written as files, if they are.
    pub target: Option<Target>,
    /// Its options.
    pub options: TableOptions,
    /// What it emits.
    pub mode: OutputMode,
    /// Schema of its result.
    pub schema: SchemaRef,
    /// Resolved names of the streams that it reads.
    pub sources: Vec<String>,
    /// Columns of the result by which update mode replaces rows; none where rows accumulate.
    pub key: Option<Vec<usize>>,
    /// A key of update mode by which a group may look like another one: it may be null, and a grouping set leaves it
    /// out.
    pub doubtful_key: Option<String>,
    /// Greatest number of rows of the result.
    pub limit: Option<u64>,
    /// How long rows of the result are kept, if not for good.
    pub retain: Option<Duration>,
    /// The rows that are not counted, if they are kept.
    pub late: Option<LateRows>,
    /// When its state leaves, as SHOW STREAMING TABLES says it.
    pub eviction: &'static str,
    /// What an audit knows of it, or why it cannot be audited.
    pub shape: std::result::Result<Shape, Refusal>,
}

impl Definition {
    /// Plans and checks a query.
    ///
    /// # Errors
    /// - what a streaming table cannot be, each with its condition name
    pub async fn plan(
        create: &CreateStreamingTable,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<Self> {
        let options = TableOptions::try_new(create.options.clone())?;
        let state = options.apply(state)?;
        let settings = crate::config::options(state.config_options());
        let (plan, limit) = streaming_plan(&create.query, &state, unbounded).await?;
        let mode = settings.output_mode;
        let key = match mode {
            OutputMode::Update => update_key(&plan)?,
            OutputMode::Append | OutputMode::Complete => None,
        };
        let scans = stream_scans(&plan)?;
        let mut sources: Vec<String> = scans
            .iter()
            .filter_map(stream_scan)
            .map(|scan| scan.name.clone())
            .collect();
        sources.sort();
        sources.dedup();
        epoch_column(&settings.epoch_by, &scans)?;
        replaced_sources(&scans)?;
        let late = match options.late_rows()? {
            Some(name) => Some(late_rows(name, create, &plan, &state, &options)?),
            None => None,
        };
        let own = late.iter().map(|late| late.name.to_string());
        if own
            .chain([table_of(create, &state).to_string()])
            .any(|own| sources.contains(&own))
        {
            return Err(recursive().into());
        }
        ordered_sources(settings.initial_order, &scans)?;
        let retain = options.retain()?;
        if retain.is_some() {
            may_retain(mode, create.target.as_ref(), options.sink())?;
        }
        Ok(Self {
            query: create.query.clone(),
            text: create.text.clone(),
            statement: create.statement.clone(),
            target: create.target.clone(),
            options,
            mode,
            schema: result_schema(&plan)?,
            sources,
            doubtful_key: match mode {
                OutputMode::Update => null_or_left_out(&plan)?,
                OutputMode::Append | OutputMode::Complete => None,
            },
            key,
            limit,
            retain,
            late,
            eviction: eviction(&plan, mode)?,
            shape: shape_of(&plan, limit),
        })
    }

    /// Whether a statement defines the same table: the same words, up to space, and the same options.
    pub fn is_same(&self, create: &CreateStreamingTable) -> bool {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut options = create.options.clone();
        options.sort();
        let same_target = match (&self.target, &create.target) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_same(other),
            _ => false,
        };
        words(&self.text) == words(&create.text) && self.options.sorted() == options && same_target
    }

    /// Refuses another query in the place of this one whose rows could not go on where its rows ended.
    ///
    /// # Errors
    /// - it has another output mode, key, LIMIT, other columns or another location
    pub fn refuse_other(&self, other: &Self) -> Result<()> {
        let target = |one: &Self| {
            one.target
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default()
        };
        let limit = |one: &Self| {
            one.limit
                .map_or_else(|| "none".to_owned(), |limit| limit.to_string())
        };
        let late = |one: &Self| match &one.late {
            Some(late) => late.name.to_string(),
            None => "none".to_owned(),
        };
        let aspects = [
            ("output mode", self.mode.to_string(), other.mode.to_string()),
            (
                "columns",
                shown_columns(self.schema.fields()),
                shown_columns(other.schema.fields()),
            ),
            (
                "sink",
                format!("{:?}", self.options.sink()),
                format!("{:?}", other.options.sink()),
            ),
            ("key", format!("{:?}", self.key), format!("{:?}", other.key)),
            ("limit", limit(self), limit(other)),
            ("target", target(self), target(other)),
            ("late_rows", late(self), late(other)),
            (
                "retain",
                format!("{:?}", self.retain),
                format!("{:?}", other.retain),
            ),
        ];
        match aspects.into_iter().find(|(_, was, is)| was != is) {
            None => Ok(()),
            Some((aspect, was, is)) => Err(Refusal::new(
                "STREAMING_QUERY_CHANGED",
                "42K0E",
                format!("The table exists with another query or other options: {aspect} was {was}, it is {is}."),
            )
            .hint("write CREATE OR REPLACE STREAMING TABLE to begin anew, or REFRESH STREAMING TABLE")
            .into()),
        }
    }

    /// Whether another query makes the same of every row, whatever its delay and its options.
    ///
    /// # Errors
    /// - one of the queries cannot be planned any more
    pub async fn is_like(
        &self,
        other: &Self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<bool> {
        let (one, _) = self.unanalyzed(state, unbounded).await?;
        let (two, _) = other.unanalyzed(state, unbounded).await?;
        Ok(without_delays(one)? == without_delays(two)?)
    }

    /// Gives the table of late rows the columns of the rows that it has, beside those of rows to come; the refusal if
    /// it cannot have both.
    pub fn keep_late_columns(&mut self, kept: &SchemaRef) -> Option<Refusal> {
        let late = self.late.as_mut()?;
        match widened(&late.schema, kept) {
            Some(schema) => {
                late.schema = schema;
                None
            }
            None => Some(late_columns_changed(&late.name, kept, &late.schema)),
        }
    }

    /// The query as it reads, its streams marked, before it is analyzed; and the session's state with its options.
    ///
    /// # Errors
    /// - the query cannot be planned any more
    pub async fn unanalyzed(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<(LogicalPlan, SessionState)> {
        let state = self.options.apply(state)?;
        Ok((marked_plan(&self.query, &state, unbounded).await?, state))
    }

    /// The plan of the query as the session is now, without its LIMIT.
    ///
    /// # Errors
    /// - the query cannot be planned any more, or its result has changed
    pub async fn replan(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
    ) -> Result<(LogicalPlan, SessionState)> {
        let state = self.options.apply(state)?;
        let (plan, _) = streaming_plan(&self.query, &state, unbounded).await?;
        if result_schema(&plan)? != self.schema {
            return Err(Refusal::new(
                "STREAMING_QUERY_CHANGED",
                "42K0E",
                "The columns of the query's result have changed since it was defined: a table or view that it reads is another one.",
            )
            .hint("write CREATE OR REPLACE STREAMING TABLE")
            .into());
        }
        match &self.late {
            Some(late) => {
                // Whether anything is ever left out was asked when it was defined.
                let carrying = carry_rows(plan, true)?;
                if !takes(&late.schema, &carrying.schema) {
                    let (name, was) = (&late.name, &late.schema);
                    return Err(late_columns_changed(name, was, &carrying.schema).into());
                }
                Ok((carrying.plan, state))
            }
            None => Ok((plan, state)),
        }
    }
}

/// The resolved name of the table that a statement makes.
fn table_of(create: &CreateStreamingTable, state: &SessionState) -> ResolvedTableReference {
    let catalog = &state.config_options().catalog;
    let name = create.name.clone();
    name.resolve(&catalog.default_catalog, &catalog.default_schema)
}

/// The refusal of a table that would read what it writes.
fn recursive() -> Refusal {
    Refusal::new(
        "RECURSIVE_STREAMING_TABLE",
        "42P20",
        "A streaming table cannot read itself, nor its late rows.",
    )
}

/// The refusal of a query whose rows are others than those that were kept of it.
fn late_columns_changed(name: &TableReference, was: &SchemaRef, now: &SchemaRef) -> Refusal {
    Refusal::new(
        "STREAMING_QUERY_CHANGED",
        "42K0E",
        format!(
            "The columns of {name} were {}, they are {}: a table or view that the query reads is another one.",
            shown_columns(was.fields()),
            shown_columns(now.fields())
        ),
    )
    .hint("bring back what it reads, or write CREATE OR REPLACE STREAMING TABLE")
}

/// The table of rows that a query does not count.
fn late_rows(
    name: TableReference,
    create: &CreateStreamingTable,
    plan: &LogicalPlan,
    state: &SessionState,
    options: &TableOptions,
) -> Result<LateRows> {
    let table = table_of(create, state);
    let late = name.resolve(&table.catalog, &table.schema);
    if late == table {
        return Err(Refusal::new(
            "INVALID_STREAM_OPTION",
            "42616",
            "late_rows names the streaming table itself.",
        )
        .hint("late rows have other columns: give their table another name")
        .into());
    }
    let scans = stream_scans(plan)?;
    let guarded = scans
        .iter()
        .filter_map(stream_scan)
        .any(|scan| options.guards(&scan.options));
    Ok(LateRows {
        name: TableReference::full(late.catalog, late.schema, late.table),
        schema: carry_rows(plan.clone(), guarded)?.schema,
    })
}

/// When the state of a query leaves.
fn eviction(plan: &LogicalPlan, mode: OutputMode) -> Result<&'static str> {
    let (mut state, mut kept) = (false, false);
    plan.apply(|node| {
        if let LogicalPlan::Extension(extension) = node {
            state |= extension.node.as_any().is::<StreamDeduplicate>();
        }
        if let LogicalPlan::Extension(extension) = node
            && let Some(aggregate) = extension.node.as_any().downcast_ref::<StreamAggregate>()
        {
            state = true;
            kept |= !aggregate.time.as_ref().is_some_and(|time| time.closes);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(match (state, kept || mode == OutputMode::Complete) {
        (false, _) => "none",
        (true, true) => "never evicted",
        (true, false) => "evicted when its time closes",
    })
}

/// The columns of the result, all nullable and without metadata.
fn result_schema(plan: &LogicalPlan) -> Result<SchemaRef> {
    let mut names = std::collections::HashSet::new();
    for field in plan.schema().fields() {
        if !names.insert(field.name()) {
            return Err(Refusal::new(
                "COLUMN_ALREADY_EXISTS",
                "42711",
                format!("The result has two columns '{}'.", field.name()),
            )
            .hint("name one of them with AS")
            .into());
        }
    }
    let fields: Vec<Field> = plan
        .schema()
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), field.data_type().clone(), true))
        .collect();
    Ok(Arc::new(Schema::new(fields)))
}

/// Rows go by their age only where they accumulate, and where the table itself keeps them.
fn may_retain(mode: OutputMode, target: Option<&Target>, sink: Option<&str>) -> Result<()> {
    let (message, hint) = match (mode, target, sink) {
        (OutputMode::Update | OutputMode::Complete, ..) => (
            format!("In {mode} mode rows are replaced, and none is old: retain has no meaning."),
            "leave retain out, or write output_mode = 'append'",
        ),
        (_, Some(target), _) => (
            format!(
                "The rows go to files in {}, which are never removed here.",
                target.location
            ),
            "leave retain out, and remove old files where they are, or leave STORED AS out",
        ),
        (_, _, Some(sink)) => (
            format!("The rows go to the sink '{sink}' and are not kept here."),
            "leave retain out: how long rows are kept is the sink's to say",
        ),
        _ => return Ok(()),
    };
    let place = target.and_then(|target| target.place);
    let refusal = Refusal::new("INVALID_STREAM_OPTION", "42616", message);
    Err(refusal.at(place).hint(hint).into())
}

/// A result that is replaced has no order of arrival to read.
fn replaced_sources(scans: &[Arc<dyn datafusion::logical_expr::TableSource>]) -> Result<()> {
    let replaced = scans
        .iter()
        .filter_map(stream_scan)
        .find(|scan| scan.provider.is::<ReplaceTable>());
    match replaced {
        None => Ok(()),
        Some(scan) => Err(Refusal::new(
            "UNSUPPORTED_STREAM_SOURCE",
            "42KDE",
            format!("{} is a streaming table in update or complete mode: its rows are replaced, not appended.", scan.name),
        )
        .at(scan.place)
        .hint("read it without STREAM, or define it in append mode")
        .into()),
    }
}

/// What gives its rows once has no order but its own.
fn ordered_sources(
    order: InitialOrder,
    scans: &[Arc<dyn datafusion::logical_expr::TableSource>],
) -> Result<()> {
    for scan in scans.iter().filter_map(stream_scan) {
        let own = scan.options.iter().find(|(key, _)| key == "initial_order");
        let own = own.and_then(|(_, value)| value.parse().ok());
        if own.unwrap_or(order) == InitialOrder::EventTime && !can_be_ordered(&scan.provider) {
            return Err(cannot_be_ordered(&scan.name).at(scan.place).into());
        }
    }
    Ok(())
}

/// `epoch_by` must name a column of a source.
fn epoch_column(
    name: &str,
    scans: &[Arc<dyn datafusion::logical_expr::TableSource>],
) -> Result<()> {
    let known = scans
        .iter()
        .any(|scan| scan.schema().index_of(name).is_ok());
    if name.is_empty() || known {
        return Ok(());
    }
    Err(Refusal::new(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "42703",
        format!("epoch_by: no source has a column '{name}'."),
    )
    .into())
}

/// A plan whose watermarks have no delay.
fn without_delays(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Extension(extension) = &node else {
            return Ok(Transformed::no(node));
        };
        let Some(watermark) = extension.node.as_any().downcast_ref::<Watermark>() else {
            return Ok(Transformed::no(node));
        };
        let node = Arc::new(Watermark {
            delay: Span::ZERO,
            ..watermark.clone()
        });
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
    })?;
    Ok(plan.data)
}

/// A query as it reads, its streams marked.
async fn marked_plan(
    query: &Statement,
    state: &SessionState,
    unbounded: &UnboundedTables,
) -> Result<LogicalPlan> {
    let plan = state.statement_to_plan(query.clone()).await?;
    unbounded.as_streams(plan, state).await
}

/// Plans a query whose root is a streaming query, with the LIMIT that stood above it.
async fn streaming_plan(
    query: &Statement,
    state: &SessionState,
    unbounded: &UnboundedTables,
) -> Result<(LogicalPlan, Option<u64>)> {
    let plan = marked_plan(query, state, unbounded).await?;
    let plan = state
        .analyzer()
        .execute_and_check(plan, state.config_options(), |_, _| {})?;
    let mode = crate::config::options(state.config_options()).output_mode;
    let mut limit = None;
    let mut root = plan;
    loop {
        root = match root {
            LogicalPlan::Limit(ref above) if mode != OutputMode::Update => {
                limit = Some(constant_limit(above)?.min(limit.unwrap_or(u64::MAX)));
                Arc::unwrap_or_clone(Arc::clone(&above.input))
            }
            other => break check_root(other, limit),
        };
    }
}

fn check_root(plan: LogicalPlan, limit: Option<u64>) -> Result<(LogicalPlan, Option<u64>)> {
    if matches!(&plan, LogicalPlan::Extension(Extension { node }) if node.as_any().is::<StreamQuery>())
    {
        return Ok((plan, limit));
    }
    let streams = plan.exists(|node| Ok(crate::logical::is_stream_scan(node)))?;
    let refusal = if streams {
        Refusal::new(
            "UNSUPPORTED_STREAMING_OPERATOR",
            "42KDE",
            "ORDER BY and OFFSET, and LIMIT in update mode, need the whole result, which a streaming table never has.",
        )
        .hint("leave them out, and order when you read: SELECT * FROM name ORDER BY …")
    } else {
        Refusal::new(
            "STREAMING_TABLE_WITHOUT_STREAM",
            "42KDE",
            "The query reads no stream.",
        )
        .hint("write FROM STREAM t …, or CREATE VIEW for a query over finite tables")
    };
    Err(refusal.into())
}

/// The number of a LIMIT.
fn constant_limit(limit: &Limit) -> Result<u64> {
    match (limit.get_skip_type()?, limit.get_fetch_type()?) {
        (SkipType::Literal(0), FetchType::Literal(Some(fetch))) => Ok(fetch as u64),
        _ => Err(Refusal::new(
            "UNSUPPORTED_STREAMING_OPERATOR",
            "42KDE",
            "A streaming table takes LIMIT with a number, and no OFFSET.",
        )
        .into()),
    }
}

/// Columns that name a group, which update mode needs in the result.
fn update_key(plan: &LogicalPlan) -> Result<Option<Vec<usize>>> {
    let groups = plan.exists(|node| {
        Ok(matches!(node, LogicalPlan::Extension(extension) if extension.node.as_any().is::<StreamAggregate>()))
    })?;
    if !groups {
        // Every row is new.
        return Ok(None);
    }
    let may_leave = groups_may_leave(plan);
    if may_leave == Some(true) {
        return Err(leaving_groups().into());
    }
    if let Some(columns) = group_columns(plan) {
        return Ok(Some(columns));
    }
    let (message, hint) = match may_leave {
        Some(_) => (
            "In update mode rows are replaced by their group: every grouping expression must be selected.",
            "add the window (or window.start) and every key to the SELECT list",
        ),
        None => (
            "In update mode rows are replaced by their group: no join, UNION or unnest() may stand above the aggregate.",
            "join, unite or unnest where the table is read, or write one query for each side",
        ),
    };
    Err(Refusal::new("UPDATE_MODE_WITHOUT_KEY", "42KDE", message)
        .hint(hint)
        .into())
}

/// The refusal of a filter that a group may stop passing: nothing would take its last row away.
fn leaving_groups() -> Refusal {
    Refusal::new(
        "UPDATE_MODE_WITH_FILTER",
        "42KDE",
        "In update mode a group that stops passing HAVING, or a WHERE above the aggregate, would keep its last row: such a \
         filter may ask for the window and the keys only.",
    )
    .hint(
        "leave it out and filter when you read, SELECT … FROM name WHERE …, or write output_mode = 'complete'",
    )
}
