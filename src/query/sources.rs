//! The sources of a running query: a cursor for each, and the slice that an epoch takes of it.

use std::sync::Arc;

use datafusion::common::config::ExtensionOptions;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::{BoxFuture, select_all};

use super::attach::RunState;
use super::progress::SourceProgress;
use super::saved::changed;
use crate::config::{InitialOrder, TidegateOptions};
use crate::error::Refusal;
use crate::physical::StreamScanExec;
use crate::source::{
    Cursor, EventTime, Limits, ReadEnv, Reads, Taken, can_be_ordered, cannot_be_ordered,
};

/// One source as the plan reads it.
pub(super) struct SourceUse {
    pub name: String,
    limits: Limits,
    pub columns: Vec<usize>,
    /// How many places of the plan read it.
    readers: usize,
}

/// Makes a cursor for each source that has none, and finds the columns that the plan reads.
pub(super) fn open_cursors(
    plan: &Arc<dyn ExecutionPlan>,
    state: &mut RunState,
    settings: &TidegateOptions,
) -> Result<Vec<SourceUse>> {
    let mut uses: Vec<SourceUse> = Vec::new();
    for scan in scans(plan) {
        let limits = limits(settings, scan)?;
        match uses.iter_mut().find(|one| one.name == scan.source_name()) {
            Some(known) if known.limits != limits => {
                return Err(invalid(
                    "WITH",
                    &format!(
                        "the stream {} is read twice, with different options",
                        known.name
                    ),
                ));
            }
            Some(known) => {
                known.columns.extend(scan.columns());
                known.readers += 1;
            }
            None => uses.push(SourceUse {
                name: scan.source_name().to_owned(),
                limits: limits.clone(),
                columns: scan.columns().to_vec(),
                readers: 1,
            }),
        }
        match state.cursors.get_mut(scan.source_name()) {
            Some(cursor) => cursor.set_source(Arc::clone(scan.provider()), limits)?,
            None => {
                let name = scan.source_name().to_owned();
                may_be_ordered(&name, scan, &limits)?;
                let mut cursor =
                    Cursor::try_new(name.clone(), Arc::clone(scan.provider()), limits)?;
                if let Some(at) = state.saved.get(&name) {
                    same_source(&name, &at.identity, &cursor.identity())?;
                    cursor = cursor.at(at.position.clone());
                }
                state.cursors.insert(name, cursor);
            }
        }
        if let Some(cursor) = state.cursors.get_mut(scan.source_name()) {
            cursor.set_event_time(event_time(scan)?);
        }
    }
    // A query that was changed may have left a source: where it stands is kept, and nothing waits for it.
    let left: Vec<String> = state
        .cursors
        .keys()
        .filter(|name| uses.iter().all(|one| one.name != **name))
        .cloned()
        .collect();
    left.iter().for_each(|name| state.leave(name));
    for one in &mut uses {
        if let Some(cursor) = state.cursors.get(&one.name) {
            one.columns = cursor.columns(&one.columns);
        }
    }
    Ok(uses)
}

/// What a plan reads of each of its sources.
///
/// # Errors
/// - a stream's option cannot be what it is
pub(crate) fn reads(
    plan: &Arc<dyn ExecutionPlan>,
    settings: &TidegateOptions,
) -> Result<Vec<Reads>> {
    let mut all: Vec<Reads> = Vec::new();
    for scan in scans(plan) {
        let limits = limits(settings, scan)?;
        let by = limits.epoch_by.as_ref();
        let by = by.and_then(|by| scan.provider().schema().index_of(by).ok());
        let columns = scan.columns().iter().copied().chain(by);
        match all.iter_mut().find(|one| one.source == scan.source_name()) {
            Some(known) => known.columns.extend(columns),
            None => all.push(Reads {
                source: scan.source_name().to_owned(),
                columns: columns.collect(),
                on_bad_record: limits.on_bad_record,
            }),
        }
    }
    Ok(all)
}

/// The event time by which a source's first rows may be ordered.
fn event_time(scan: &StreamScanExec) -> Result<Option<EventTime>> {
    let Some(time) = scan.event_time() else {
        return Ok(None);
    };
    let schema = scan.provider().schema();
    EventTime::try_new(Arc::clone(&time.expr), &time.text, &schema).map(Some)
}

/// Refuses to order the rows of a source that gives them in its own order.
fn may_be_ordered(name: &str, scan: &StreamScanExec, limits: &Limits) -> Result<()> {
    if limits.initial_order == InitialOrder::EventTime && !can_be_ordered(scan.provider()) {
        return Err(cannot_be_ordered(name).into());
    }
    Ok(())
}

/// Refuses another source under the name of the one that was read.
fn same_source(name: &str, was: &str, is: &str) -> Result<()> {
    match was == is {
        true => Ok(()),
        false => Err(changed(&format!("the source {name} was {was}, it is {is}"))),
    }
}

/// What the names of tables begin with that need not be said.
pub fn home(session: &SessionState) -> String {
    let catalog = &session.config_options().catalog;
    format!("{}.{}.", catalog.default_catalog, catalog.default_schema)
}

/// A table's name without what need not be said.
pub fn short<'a>(name: &'a str, home: &str) -> &'a str {
    name.strip_prefix(home).unwrap_or(name)
}

/// What each source gave.
pub(super) fn given(uses: &[SourceUse], taken: &[Taken], home: &str) -> Vec<SourceProgress> {
    uses.iter()
        .zip(taken)
        .map(|(one, taken)| SourceProgress {
            name: short(&one.name, home).to_owned(),
            rows: taken.rows,
            skipped_records: taken.skipped,
            changed_files: taken.changed.clone(),
        })
        .collect()
}

/// Completes what was taken by feeds, at the end of an epoch.
pub(super) async fn finish(
    state: &mut RunState,
    uses: &[SourceUse],
    taken: &mut [Taken],
) -> Result<()> {
    for (one, taken) in uses.iter().zip(taken) {
        if let Some(cursor) = state.cursors.get_mut(&one.name) {
            cursor.finish(taken).await?;
        }
    }
    Ok(())
}

/// The next slice of every source; by feeds where rows may be read while the epoch runs.
pub(super) async fn take(
    state: &mut RunState,
    uses: &[SourceUse],
    feeds: bool,
    env: &ReadEnv,
) -> Result<Vec<Taken>> {
    let mut all = Vec::with_capacity(uses.len());
    for one in uses {
        if let Some(cursor) = state.cursors.get_mut(&one.name) {
            let once = feeds && one.readers == 1;
            match cursor.take(&one.columns, once, env).await {
                Ok(taken) => all.push(taken),
                Err(error) => {
                    state.undo();
                    return Err(error);
                }
            }
        }
    }
    Ok(all)
}

/// Waits until one of the endless sources may have more.
pub(super) async fn wait(state: &mut RunState) {
    let waiting: Vec<BoxFuture<'_, ()>> = state
        .cursors
        .values_mut()
        .filter(|cursor| cursor.is_endless())
        .map(|cursor| cursor.arrived().boxed())
        .collect();
    if !waiting.is_empty() {
        select_all(waiting).await;
    }
}

/// The scans of streams in a plan, in its order.
fn scans(plan: &Arc<dyn ExecutionPlan>) -> Vec<&StreamScanExec> {
    let itself = plan.downcast_ref::<StreamScanExec>();
    let below = plan.children().into_iter().flat_map(scans);
    itself.into_iter().chain(below).collect()
}

/// Where epochs of a source end: its own options, else the query's settings.
fn limits(settings: &TidegateOptions, scan: &StreamScanExec) -> Result<Limits> {
    let mut own = settings.clone();
    for (key, value) in scan.options() {
        own.set(key, value)?;
    }
    // A setting of the session is about the sources that have the column.
    let given = scan.options().iter().any(|(key, _)| key == "epoch_by");
    let has_column = scan.provider().schema().index_of(&own.epoch_by).is_ok();
    let epoch_by = (given || has_column).then(|| own.epoch_by.clone());
    Ok(Limits::of(&own, epoch_by))
}

fn invalid(key: &str, reason: &str) -> DataFusionError {
    Refusal::new(
        "INVALID_STREAM_OPTION",
        "42616",
        format!("{key}: {reason}."),
    )
    .into()
}
