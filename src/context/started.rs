//! Queries that were started: each is a task that refreshes its table.
//!
//! ```text
//!            orders                      status, changes
//! Started ------------> task of a query ----------------> whoever asks
//!    |                      |  refreshes, then waits: for rows, for time, or for orders
//!    | aborts when dropped  v
//!    +------------------> Home, held only while it refreshes
//! ```
//!
//! - A task holds nothing of the database between two runs: when the last context goes, so does the database.
//! - The next run begins when the last one has ended; an interval that began meanwhile is over.
//! - An error, or a panic, ends the task of its query and no other.
//! - A query is taken from the list before it is waited for: one that is started meanwhile is a task of its
//!   own, and waits for its turn to run.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use datafusion::common::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use futures::FutureExt;
use futures::future::{join_all, select_all};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::panicked;
use super::ticker::{RuntimeTicker, Ticker, left};
use crate::catalog::{Awaiting, StreamingTables, UnboundedTables};
use crate::error::refusal;
use crate::query::{Orders, QueryStatus, Trigger, is_redefined};

/// What a run of a query needs.
#[derive(Clone)]
pub(super) struct Home {
    pub session: SessionContext,
    pub tables: Arc<StreamingTables>,
    pub unbounded: Arc<UnboundedTables>,
}

/// The queries that were started, by the resolved names of their tables.
#[derive(Debug)]
pub(super) struct Started {
    queries: Mutex<BTreeMap<String, Query>>,
    /// Those that are to run again when a statement has ended, unless they are told otherwise meanwhile.
    paused: Mutex<BTreeSet<String>>,
    /// How often something has changed.
    changes: Arc<watch::Sender<u64>>,
    ticker: Arc<dyn Ticker>,
}

/// A query that was started. Its task does not outlive it.
#[derive(Debug)]
struct Query {
    orders: watch::Sender<Option<Trigger>>,
    status: Arc<Mutex<QueryStatus>>,
    task: JoinHandle<()>,
    /// What the task runs on.
    runtime: Handle,
}

/// A query that is stopped as long as a statement is under way that may take its table away. It is started again when
/// this goes, however the statement ends, if the table is still there; else what it failed with is forgotten.
pub(super) struct Paused {
    started: Arc<Started>,
    home: Arc<Home>,
    name: String,
    /// Id of the table's query; none if it runs again for any table of its name.
    id: Option<String>,
    /// When it refreshes, and what it runs on; none if it did not run.
    again: Option<(Trigger, Handle)>,
}

impl Drop for Paused {
    fn drop(&mut self) {
        let is_awaited = self.again.is_some() && self.started.paused().remove(&self.name);
        let table = self.home.tables.get(&self.name);
        let id = self.id.as_deref();
        let stays = table.is_some_and(|table| id.is_none_or(|id| id == table.id()));
        if !stays {
            self.started.forget_failed(&self.name);
        } else if let Some((trigger, runtime)) = self.again.take().filter(|_| is_awaited) {
            let name = std::mem::take(&mut self.name);
            self.started.start_on(&runtime, name, trigger, &self.home);
        }
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Query {
    fn status(&self) -> QueryStatus {
        self.status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// When it refreshes, if it does.
    fn trigger(&self) -> Option<Trigger> {
        let running = self.status() == QueryStatus::Running;
        self.orders.borrow().filter(|_| running)
    }
}

impl Default for Started {
    fn default() -> Self {
        Self::with_ticker(Arc::new(RuntimeTicker::default()))
    }
}

impl Started {
    pub(super) fn with_ticker(ticker: Arc<dyn Ticker>) -> Self {
        Self {
            queries: Mutex::default(),
            paused: Mutex::default(),
            changes: Arc::default(),
            ticker,
        }
    }

    fn queries(&self) -> MutexGuard<'_, BTreeMap<String, Query>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn paused(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a query is.
    pub(super) fn status(&self, name: &str) -> QueryStatus {
        self.queries()
            .get(name)
            .map(Query::status)
            .unwrap_or_default()
    }

    /// Changes whenever a run has ended, or a query was started or stopped.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Starts a query, or tells one that runs when to refresh from now on.
    ///
    /// # Errors
    /// - there is no runtime to run it on
    pub(super) fn start(&self, name: String, trigger: Trigger, home: &Arc<Home>) -> Result<()> {
        let runtime =
            Handle::try_current().map_err(|error| DataFusionError::External(error.into()))?;
        self.paused().remove(&name);
        self.start_on(&runtime, name, trigger, home);
        Ok(())
    }

    fn start_on(&self, runtime: &Handle, name: String, trigger: Trigger, home: &Arc<Home>) {
        let mut queries = self.queries();
        match queries.get(&name).filter(|query| query.trigger().is_some()) {
            Some(query) => {
                query.orders.send_if_modified(|order| {
                    let other = *order != Some(trigger);
                    *order = Some(trigger);
                    other
                });
            }
            None => {
                let (sender, orders) = Orders::new(trigger);
                let status = Arc::new(Mutex::new(QueryStatus::Running));
                let keeper = Keeper {
                    name: name.clone(),
                    home: Arc::downgrade(home),
                    orders,
                    status: Arc::clone(&status),
                    changes: Arc::clone(&self.changes),
                    ticker: Arc::clone(&self.ticker),
                };
                let query = Query {
                    orders: sender,
                    status,
                    task: runtime.spawn(keeper.keep().boxed()),
                    runtime: runtime.clone(),
                };
                queries.insert(name, query);
            }
        }
        drop(queries);
        changed(&self.changes);
    }

    /// Tells a query that what it waits for may be something else by now. One that runs at intervals is not told: it
    /// finds that at the next.
    pub(super) fn look_again(&self, name: &str) {
        if let Some(query) = self.queries().get(name) {
            let waits = |order: &mut Option<Trigger>| *order == Some(Trigger::Arrival);
            query.orders.send_if_modified(waits);
        }
    }

    /// Stops a query when its epoch has ended. It is `stopped` then, or `failed` if that epoch did. Whoever does
    /// not wait abandons the epoch.
    pub(super) async fn stop(&self, name: &str) {
        self.paused().remove(name);
        let query = self.queries().remove(name);
        if let Some(query) = query {
            self.end(name, query).await;
        }
    }

    /// Ends a query that was taken from the list, when its epoch has ended.
    async fn end(&self, name: &str, mut query: Query) {
        if query.trigger().is_some() {
            query.orders.send_replace(None);
            // An end in whatever way is an end.
            (&mut query.task).await.ok();
            self.keep_failed(name, query);
        }
        changed(&self.changes);
    }

    /// Stops a query, when its epoch has ended, until what this returns goes. Whoever does not wait abandons the
    /// epoch, and the query runs on.
    pub(super) async fn pause(
        self: &Arc<Self>,
        name: &str,
        id: Option<&str>,
        home: &Arc<Home>,
    ) -> Paused {
        let (query, again) = self.take(name).unzip();
        if again.is_some() {
            self.paused().insert(name.to_owned());
        }
        let paused = Paused {
            started: Arc::clone(self),
            home: Arc::clone(home),
            name: name.to_owned(),
            id: id.map(str::to_owned),
            again,
        };
        if let Some(query) = query {
            self.end(name, query).await;
        }
        paused
    }

    /// Takes a query from the list, if it runs; and when it does, and on what.
    fn take(&self, name: &str) -> Option<(Query, (Trigger, Handle))> {
        let mut queries = self.queries();
        let trigger = queries.get(name)?.trigger()?;
        let query = queries.remove(name)?;
        let runtime = query.runtime.clone();
        Some((query, (trigger, runtime)))
    }

    /// Forgets what a query failed with, of a table that has gone.
    pub(super) fn forget_failed(&self, name: &str) {
        let mut queries = self.queries();
        if queries
            .get(name)
            .is_some_and(|query| query.trigger().is_none())
        {
            queries.remove(name);
        }
    }

    /// Stops all queries when their epochs have ended. Epochs that have not after this time are abandoned;
    /// returns the names of those queries.
    pub(super) async fn shutdown(&self, limit: Duration) -> Vec<String> {
        self.paused().clear();
        let mut running = self.take_running();
        for query in running.values() {
            query.orders.send_replace(None);
        }
        let ended = join_all(running.values_mut().map(|query| &mut query.task));
        tokio::select! {
            biased;
            _ = ended => {}
            () = self.ticker.wait(limit) => {}
        }
        let mut abandoned = Vec::new();
        for (name, mut query) in running {
            if !query.task.is_finished() {
                query.task.abort();
                // It ends where it next waits.
                (&mut query.task).await.ok();
                abandoned.push(name.clone());
            }
            self.keep_failed(&name, query);
        }
        changed(&self.changes);
        abandoned
    }

    /// Waits for something, but no longer than this.
    pub(super) async fn within(&self, limit: Duration, what: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = what => {}
            () = self.ticker.wait(limit) => {}
        }
    }

    fn take_running(&self) -> BTreeMap<String, Query> {
        let mut queries = self.queries();
        let all = std::mem::take(&mut *queries);
        let (running, others) = all
            .into_iter()
            .partition(|(_, query)| query.trigger().is_some());
        *queries = others;
        running
    }

    /// Keeps a query that has failed while it was being stopped, for its error.
    fn keep_failed(&self, name: &str, query: Query) {
        if query.status().error().is_some() {
            self.queries().entry(name.to_owned()).or_insert(query);
        }
    }
}

/// What the task of a query holds.
struct Keeper {
    name: String,
    home: Weak<Home>,
    orders: Orders,
    status: Arc<Mutex<QueryStatus>>,
    changes: Arc<watch::Sender<u64>>,
    ticker: Arc<dyn Ticker>,
}

impl Keeper {
    /// The life of the task.
    async fn keep(mut self) {
        let ended = AssertUnwindSafe(self.refresh_again_and_again())
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| Err(panicked(&*panic)));
        let status = match ended {
            Ok(()) => QueryStatus::Stopped,
            Err(error) => QueryStatus::Failed(told(&error)),
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        changed(&self.changes);
    }

    async fn refresh_again_and_again(&mut self) -> Result<()> {
        while let Some(trigger) = self.orders.now() {
            let began = self.ticker.now();
            loop {
                let Some(awaiting) = self.refresh().await? else {
                    return Ok(());
                };
                changed(&self.changes);
                let ticker = Arc::clone(&self.ticker);
                tokio::select! {
                    biased;
                    () = self.orders.changed() => break,
                    () = next_run(&*ticker, trigger, began, awaiting) => {}
                }
            }
        }
        Ok(())
    }

    /// One run. None if it is the last: the query is to stop, or its table has gone.
    async fn refresh(&self) -> Result<Option<Awaiting>> {
        let Some(home) = self.home.upgrade() else {
            return Ok(None);
        };
        let state = home.session.state();
        let table = loop {
            // It may be another one than in the run before, under the same name, and by now another one than when
            // the run was planned.
            let Some(table) = home.tables.get(&self.name) else {
                return Ok(None);
            };
            let run = table.refresh_as_started(&state, &home.unbounded, self.orders.clone());
            match run.await {
                Err(error) if is_redefined(&error) => {}
                done => {
                    done?;
                    break table;
                }
            }
        };
        tokio::select! {
            biased;
            () = self.orders.stopped() => Ok(None),
            awaiting = table.awaited(&state) => awaiting.map(Some),
        }
    }
}

/// Waits until the next run is due.
async fn next_run(ticker: &dyn Ticker, trigger: Trigger, began: Duration, mut awaiting: Awaiting) {
    match (trigger, awaiting.poll) {
        (Trigger::Every(every), _) => ticker.wait(left(began, every, ticker.now())).await,
        (Trigger::Arrival, poll) => {
            let arrived = awaiting.rows.iter_mut().map(|rows| rows.arrived().boxed());
            let passed = poll.into_iter().chain(awaiting.idle);
            let passed = passed.map(|time| ticker.wait(time));
            select_all(arrived.chain(passed)).await;
        }
    }
}

fn changed(changes: &watch::Sender<u64>) {
    changes.send_modify(|changes| *changes = changes.wrapping_add(1));
}

/// An error in words: a refusal without what was wrapped around it.
fn told(error: &DataFusionError) -> String {
    refusal(error).map_or_else(|| error.strip_backtrace(), ToString::to_string)
}
