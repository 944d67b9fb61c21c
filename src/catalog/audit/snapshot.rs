//! What an audit looks at, all of one moment between two epochs.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable as PartitionTable;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{Column, Result, TableReference, internal_datafusion_err};
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect};

use super::late::{LateRows, gone};
use super::plans::{finite, table_of};
use super::rest::Rest;
use super::shape::{Closing, Shape};
use crate::catalog::correcting::Corrected;
use crate::catalog::streaming_table::StreamingTable;
use crate::catalog::unbounded::UnboundedTables;
use crate::config::{InitialOrder, OutputMode, rebuilt};
use crate::error::Refusal;
use crate::logical::{stream_scan, stream_scans};
use crate::query::{SourceStanding, home, reads, short};
use crate::source::{AppendTable, Arrival, Limits, Position, ReadEnv, Reads, held, open};
use crate::time::Instant;

/// A streaming table, its source and its late rows as they are between two epochs.
pub(super) struct Snapshot {
    pub state: SessionState,
    pub shape: Shape,
    /// Schema of the result.
    pub schema: SchemaRef,
    /// The query over all that the source holds.
    pub query: LogicalPlan,
    /// The query over what the stream has read of it.
    pub read: LogicalPlan,
    /// The query over the rest, if there is any.
    pub unread: Option<LogicalPlan>,
    /// The result as it is published.
    pub published: Arc<dyn ExecutionPlan>,
    pub watermark: Option<Instant>,
    pub late: Option<LateRows>,
    /// Whether groups are published while they are open.
    pub publishes_open: bool,
    /// Rows in open windows, as the state counts them.
    pub open_rows: i64,
    /// What the last correction of the result had seen.
    pub corrected: Option<Corrected>,
    /// Number of late rows so far.
    pub late_rows: u64,
}

impl Snapshot {
    /// Looks at a table, with its late rows if they are asked for. An epoch that runs is waited for.
    ///
    /// # Errors
    /// - `AUDIT_UNSUPPORTED`: the query is of a shape that cannot be audited
    /// - `AUDIT_WITHOUT_LATE_ROWS`: the late rows are not kept
    /// - `AUDIT_NOT_SETTLED`: an epoch has not reached the disk, or an initial order is not at its end
    /// - `AUDIT_ROWS_GONE`, `AUDIT_SOURCE_CHANGED`: the source does not hold what was read
    /// - the query cannot be planned any more
    pub(super) async fn take(
        table: &StreamingTable,
        state: &SessionState,
        unbounded: &UnboundedTables,
        with_late: bool,
    ) -> Result<Self> {
        let definition = table.definition();
        let shape = definition.shape.clone()?;
        let (plan, own) = table.unanalyzed(state, unbounded).await?;
        let reads = reads_of_files(table, &plan, state, unbounded).await?;
        let state = counting(own);
        let run = table.hold().await;
        table.check_current(&run)?;
        if run.is_ahead {
            return Err(not_on_disk(table.bare_name()).into());
        }
        if let Some(base) = table.first_row().filter(|base| *base > 0) {
            return Err(gone(table.bare_name(), base).into());
        }
        let source = Source::of(table, &plan, run.positions(), &reads, &state).await?;
        let corrected = table.corrected();
        let late_log = table.late_log();
        let late_rows = late_log.as_ref().map_or(0, |(_, log)| log.rows());
        let late = match late_log.filter(|_| with_late) {
            Some((name, log)) => {
                let corrected = corrected.map_or(0, |seen| seen.late_rows);
                Some(LateRows::of(&name.to_string(), &log, corrected)?)
            }
            None if with_late
                && definition.mode != OutputMode::Complete
                && !matches!(shape.closing, Closing::Never) =>
            {
                return Err(not_kept(table.bare_name()).into());
            }
            None => None,
        };
        let over = |provider: &Arc<dyn TableProvider>| finite(plan.clone(), Some(provider));
        let last = table.last_epoch();
        Ok(Self {
            query: over(&source.all)?,
            read: over(&source.read)?,
            unread: source.unread.as_ref().map(over).transpose()?,
            published: published(table, &state).await?,
            watermark: run.watermark,
            late,
            publishes_open: definition.mode != OutputMode::Append,
            open_rows: last.map_or(0, |last| i64::try_from(last.open_rows).unwrap_or(i64::MAX)),
            schema: Arc::clone(&definition.schema),
            corrected,
            late_rows,
            shape,
            state,
        })
    }

    /// Runs a plan, whole.
    pub(super) async fn run(
        &self,
        plan: &LogicalPlan,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<RecordBatch>> {
        let plan = self.state.create_physical_plan(plan).await?;
        collect(plan, Arc::clone(context)).await
    }
}

/// A session's state without the optimizer's rules that take fields out of a struct early: they give two fields one
/// name where a projection that reads a window stands on another one.
fn counting(state: SessionState) -> SessionState {
    const EARLY: [&str; 2] = ["extract_leaf_expressions", "push_down_leaf_projections"];
    let rules = state.optimizers().iter();
    let rules = rules.filter(|rule| !EARLY.contains(&rule.name())).cloned();
    let (rules, config) = (rules.collect(), state.config().clone());
    rebuilt(state, config).with_optimizer_rules(rules).build()
}

/// The result as it is published, with the columns of the query: a directory has those that name folders last, and
/// in their plain types.
async fn published(table: &StreamingTable, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    const PUBLISHED: &str = "__tidegate_published";
    let (provider, definition) = (table.provider(), table.definition());
    let there = provider.schema();
    if there == definition.schema {
        return provider.scan(state, None, &[], None).await;
    }
    let mut columns = Vec::new();
    for field in definition.schema.fields() {
        let (name, of) = (field.name(), field.data_type());
        let is = there.field_with_name(name)?.data_type();
        let relation = TableReference::bare(PUBLISHED);
        let mut column = Expr::Column(Column::new(Some(relation), name));
        if is != of {
            column = cast(column, of.clone());
        }
        columns.push(column.alias(name));
    }
    let plan = LogicalPlanBuilder::scan(PUBLISHED, provider_as_source(provider), None)?;
    let plan = plan.project(columns)?.build()?;
    state.create_physical_plan(&plan).await
}

/// What the stream of a table reads of each of its sources; nothing where none of them is a table over files.
///
/// # Errors
/// - the query cannot be planned any more
pub(super) async fn reads_of_files(
    table: &StreamingTable,
    plan: &LogicalPlan,
    state: &SessionState,
    unbounded: &UnboundedTables,
) -> Result<Vec<Reads>> {
    let scans = stream_scans(plan)?;
    let mut streams = scans.iter().filter_map(stream_scan);
    if !streams.any(|stream| stream.provider.is::<ListingTable>()) {
        return Ok(Vec::new());
    }
    let (plan, state) = table.planned(state, unbounded).await?;
    let settings = crate::config::options(state.config_options());
    reads(&state.create_physical_plan(&plan).await?, &settings)
}

/// The one source of a query: what it holds, what of it was read, and the rest.
struct Source {
    all: Arc<dyn TableProvider>,
    read: Arc<dyn TableProvider>,
    unread: Option<Arc<dyn TableProvider>>,
}

impl Source {
    async fn of(
        table: &StreamingTable,
        plan: &LogicalPlan,
        positions: Vec<SourceStanding>,
        reads: &[Reads],
        state: &SessionState,
    ) -> Result<Self> {
        let scans = stream_scans(plan)?;
        let Some(scan) = scans.first().and_then(stream_scan) else {
            return Err(not_again("its source").into());
        };
        let position = positions.into_iter().find(|at| at.name == scan.name);
        let position = position.and_then(|at| at.position);
        if position.as_ref().is_some_and(Position::is_in_order) {
            return Err(in_the_middle(table.bare_name()).into());
        }
        refuse_changed(table)?;
        if let Some(append) = scan.provider.downcast_ref::<AppendTable>() {
            let home = home(state);
            let name = short(&scan.name, &home);
            return Self::of_log(table.bare_name(), name, append, position);
        }
        if let Some(files) = scan.provider.downcast_ref::<ListingTable>() {
            let reads = reads.iter().find(|one| one.source == scan.name);
            let reads =
                reads.ok_or_else(|| internal_datafusion_err!("no scan of {}", scan.name))?;
            return Self::of_files(files, reads, position, state).await;
        }
        let all = scan.provider.scan(state, None, &[], None).await?;
        if all.boundedness().is_unbounded() {
            return Err(not_again(&scan.name).into());
        }
        let unread = rest_of(&scan.provider, position, state).await?;
        if unread.is_empty() {
            return Ok(Self {
                all: Arc::clone(&scan.provider),
                read: Arc::clone(&scan.provider),
                unread: None,
            });
        }
        let schema = scan.provider.schema();
        let unread = table_of(Arc::clone(&schema), unread)?;
        let rest = Rest::new(all, vec![unread.scan(state, None, &[], None).await?]);
        Ok(Self {
            all: Arc::clone(&scan.provider),
            read: Arc::new(PartitionTable::try_new(schema, vec![Arc::new(rest)])?),
            unread: Some(unread),
        })
    }

    /// Of a table over files: those that there are now are cut at the reader's position, and read as it reads them.
    async fn of_files(
        files: &ListingTable,
        reads: &Reads,
        position: Option<Position>,
        state: &SessionState,
    ) -> Result<Self> {
        let held = held(files, reads, position, &ReadEnv::of(state)).await?;
        if let Some(file) = held.changed {
            return Err(file_changed(&file).into());
        }
        if let Some(file) = held.gone {
            return Err(file_gone(&file).into());
        }
        Ok(Self {
            all: held.all,
            read: held.read,
            unread: held.unread,
        })
    }

    /// Of an append-only table: its rows are cut at the reader's position.
    fn of_log(
        reader: &str,
        name: &str,
        table: &AppendTable,
        position: Option<Position>,
    ) -> Result<Self> {
        let log = table.log();
        let all = log.snapshot();
        if log.base() > 0 {
            return Err(gone(name, log.base()).into());
        }
        let taken = match position {
            Some(Position::Rows(rows)) => rows,
            _ => 0,
        };
        if log.hides_before(taken) {
            return Err(written_over(reader, name).into());
        }
        let [read, unread] = log.split_at(taken);
        let schema = log.schema();
        Ok(Self {
            read: table_of(Arc::clone(schema), read)?,
            unread: match unread.is_empty() {
                true => None,
                false => Some(table_of(Arc::clone(schema), unread)?),
            },
            all: Arc::new(MemTable::try_new(Arc::clone(schema), vec![all])?),
        })
    }
}

/// What of a source lies behind a position.
async fn rest_of(
    provider: &Arc<dyn TableProvider>,
    position: Option<Position>,
    state: &SessionState,
) -> Result<Vec<RecordBatch>> {
    let settings = crate::config::options(state.config_options());
    let env = ReadEnv::of(state);
    let columns: Vec<usize> = (0..provider.schema().fields().len()).collect();
    // Here no order matters.
    let limits = Limits {
        initial_order: InitialOrder::Arrival,
        ..Limits::of(&settings, None)
    };
    let mut reader = open(provider, &columns, position, &limits, None, &env).await?;
    let mut rows = Vec::new();
    loop {
        match reader.next().await? {
            Arrival::Rows(batch) | Arrival::Stretch(batch) => rows.push(batch),
            Arrival::FileEnd | Arrival::StretchEnd => {}
            Arrival::Waiting | Arrival::Ended => break,
        }
    }
    rows.retain(|batch| batch.num_rows() > 0);
    Ok(rows)
}

/// The refusal to look at a table between two states that a refresh would settle.
fn not_settled(name: &str, why: &str) -> Refusal {
    Refusal::new("AUDIT_NOT_SETTLED", "55000", why)
        .hint(format!("first write REFRESH STREAMING TABLE {name}"))
}

/// The last epoch is nowhere but in memory.
fn not_on_disk(name: &str) -> Refusal {
    let why = format!(
        "The last epoch of {name} did not reach the disk: what is published and what was read are of two epochs."
    );
    not_settled(name, &why)
}

/// A part of what was there first has been read.
fn in_the_middle(name: &str) -> Refusal {
    let why = format!(
        "{name} is reading what was there first in the order of event time, and has not come to its end."
    );
    not_settled(name, &why)
}

/// The refusal to explain what nobody has kept.
fn not_kept(name: &str) -> Refusal {
    Refusal::new(
        "AUDIT_WITHOUT_LATE_ROWS",
        "55000",
        format!("The late rows of {name} are not kept: what is missing in it cannot be explained."),
    )
    .hint("keep them in a table: CREATE STREAMING TABLE … WITH (late_rows = 'late') AS …; recount() needs none")
}

/// The refusal of a source that gives its rows once.
pub(super) fn not_again(name: &str) -> Refusal {
    Refusal::new(
        "RECOUNT_UNBOUNDED",
        "0A000",
        format!("{name} gives its rows once, and never ends: they cannot be counted again."),
    )
    .hint("keep the rows first: INSERT INTO a table, and read that as a stream")
}

/// The refusal of a source whose rows were counted, and then corrected: the stream has both, a recount the new ones.
fn written_over(reader: &str, name: &str) -> Refusal {
    Refusal::new(
        "AUDIT_SOURCE_CHANGED",
        "KD000",
        format!(
            "{name} was corrected: {reader} has counted rows of it that others have been written over, and those too."
        ),
    )
    .hint(format!(
        "recount('{reader}') counts it as it is now"
    ))
}

/// Refuses a source whose files are not those that were read.
fn refuse_changed(table: &StreamingTable) -> Result<()> {
    let changed = table.history().into_iter().find_map(|epoch| {
        let changed = epoch
            .sources
            .into_iter()
            .flat_map(|source| source.changed_files);
        changed.into_iter().next()
    });
    match changed {
        None => Ok(()),
        Some(file) => Err(file_changed(&file).into()),
    }
}

/// The refusal of a file that is not what was read.
fn file_changed(file: &str) -> Refusal {
    Refusal::new(
        "AUDIT_SOURCE_CHANGED",
        "KD000",
        format!("{file} has changed since it was read: what it held then cannot be counted again."),
    )
    .hint("begin anew with the files as they are: REFRESH STREAMING TABLE … FULL")
}

/// The refusal of a file that was read and is not there.
fn file_gone(file: &str) -> Refusal {
    Refusal::new(
        "AUDIT_ROWS_GONE",
        "KD000",
        format!("{file} is gone: the rows that were read of it cannot be counted again."),
    )
    .hint("bring it back under its name, or begin anew with the files that there are: REFRESH STREAMING TABLE … FULL")
}

/// The refusal of a table whose published rows were counted by several texts.
pub(super) fn redefined(name: &str) -> Refusal {
    Refusal::new(
        "AUDIT_QUERY_CHANGED",
        "55000",
        format!("{name} has read rows as another query than the one that it is: no single text explains what it counted."),
    )
    .hint(format!(
        "begin anew: REFRESH STREAMING TABLE {name} FULL; recount('{name}') counts by the text that it has"
    ))
}
