//! A session: its settings, and running one statement in it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use indicatif::HumanCount;

use super::args::Options;
use super::console::{self, note};
use super::print::{Encoder, Format};
use super::progress::Progress;
use super::run::{self, Failure, Report};
use super::signals::Signals;
use crate::context::StreamContext;
use crate::query::QueryStatus;

/// How long a cancelled statement may take to stop before the session goes on without it.
const WIND_DOWN: Duration = Duration::from_secs(2);

/// How long the epochs of started queries may take to end with the program: then they are abandoned. Less
/// than the ten seconds after which a container is killed.
const LAST_EPOCH: Duration = Duration::from_secs(5);

/// Why a script or a session ends. What there is to tell has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A statement or command failed; a prompt goes on.
    Failed,
    /// A file cannot be read; a prompt goes on.
    Unreadable,
    /// Ctrl-C; a prompt goes on.
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// The user asked for the end.
    Quit,
    /// The reader of stdout has gone.
    Hangup,
}

impl End {
    /// The exit code of a process that ends so.
    pub(crate) fn code(self) -> ExitCode {
        match self {
            Self::Quit | Self::Hangup => ExitCode::SUCCESS,
            Self::Failed => ExitCode::from(1),
            Self::Unreadable => ExitCode::from(2),
            // As a shell reports a process that SIGINT ended, or SIGTERM.
            Self::Interrupted => ExitCode::from(130),
            Self::Terminated => ExitCode::from(143),
        }
    }
}

/// A session and how it talks.
#[derive(Debug)]
pub(crate) struct Shell {
    /// Where statements run.
    pub(crate) context: StreamContext,
    /// How rows are printed.
    pub(crate) format: Format,
    /// Whether the time of every statement is told.
    pub(crate) timer: bool,
    /// `.read` files that are being read, one within the other.
    pub(crate) depth: usize,
    quiet: bool,
    interactive: bool,
    signals: Signals,
    /// Started queries that have failed and that was told, with their errors.
    failed: BTreeMap<String, String>,
}

impl Shell {
    /// A new session with nothing in it.
    ///
    /// # Errors
    /// - [`End::Failed`], when the database cannot be opened, or signals cannot be listened to
    /// - [`End::Interrupted`], [`End::Terminated`], when a signal came first
    pub(crate) async fn new(options: &Options, interactive: bool) -> Result<Self, End> {
        let signals = Signals::listen().map_err(|error| {
            note(format_args!("error: cannot listen to signals: {error}"));
            End::Failed
        })?;
        let mut interrupts = signals.interrupts(false);
        // A task of its own: a database may be long in opening, and signals are heard meanwhile.
        let opening = tokio::spawn(context(options.data_dir.clone(), options.memory_limit));
        let opened = tokio::select! {
            biased;
            () = signals.terminated() => return Err(End::Terminated),
            opened = opening => opened,
            () = interrupts.next() => return Err(End::Interrupted),
        };
        let context = opened
            .unwrap_or_else(|broken| Err(DataFusionError::ExecutionJoin(Box::new(broken))))
            .map_err(|error| {
                note(crate::error::render("", &error));
                End::Failed
            })?;
        for unopened in context.unopened() {
            note(format_args!("{} could not be opened:", unopened.name));
            note(crate::error::render("", &unopened.error.into()));
        }
        Ok(Self {
            context,
            format: options.format,
            timer: interactive && !options.quiet,
            depth: 0,
            quiet: options.quiet,
            interactive,
            signals,
            failed: BTreeMap::new(),
        })
    }

    /// Whether a person is at the prompt.
    pub(crate) fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Whether only data and errors are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Runs one statement: prints its rows, tells how it went. Ctrl-C and SIGTERM cancel it.
    ///
    /// # Errors
    /// - [`End::Failed`], when the statement failed, or stdout takes no rows
    /// - [`End::Interrupted`], when Ctrl-C; [`End::Terminated`], when SIGTERM
    /// - [`End::Hangup`], when the reader of stdout has gone
    pub(crate) async fn statement(&self, sql: &str) -> Result<(), End> {
        let started = Instant::now();
        let progress = Progress::start(self.context.live());
        let task = tokio::spawn(run::run(
            self.context.clone(),
            sql.to_owned(),
            self.format,
            progress.line(),
        ));
        let done = self.cancellable(task).await;
        progress.stop().await;
        let report = done?.map_err(|failure| match failure {
            Failure::Output(error) => output_failed(&error),
            Failure::Statement(error) => {
                note(crate::error::render(sql, &error));
                End::Failed
            }
        })?;
        self.tell(report, started.elapsed());
        Ok(())
    }

    /// Waits for something else than a statement, such as a line.
    ///
    /// # Errors
    /// - [`End::Terminated`], when SIGTERM has come
    /// - [`End::Interrupted`], when Ctrl-C came first
    pub(crate) async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, End> {
        // At a prompt Ctrl-C cancels what it sees, and a script is over with the first.
        let mut interrupts = self.signals.interrupts(self.interactive);
        tokio::select! {
            biased;
            () = self.signals.terminated() => Err(End::Terminated),
            done = work => Ok(done),
            () = interrupts.next() => Err(End::Interrupted),
        }
    }

    /// Waits for a statement, and stops it on a signal. It is a task of its own so that the signal is heard
    /// while it computes, and so that a panic in it does not end the session.
    async fn cancellable(&self, mut task: Task) -> Result<Result<Report, Failure>, End> {
        match self.unless_interrupted(&mut task).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(broken)) => Ok(Err(Failure::Statement(DataFusionError::ExecutionJoin(
                Box::new(broken),
            )))),
            Err(end) => {
                task.abort();
                // It stops where it next waits; one that computes for long is left behind.
                let stopped = tokio::time::timeout(WIND_DOWN, task).await.is_ok();
                note(match stopped {
                    true => "cancelled",
                    false => "cancelled; the statement is still winding down",
                });
                Err(end)
            }
        }
    }

    /// Waits for a line of a person.
    ///
    /// # Errors
    /// - [`End::Terminated`], when SIGTERM has come
    pub(crate) async fn unless_terminated<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, End> {
        tokio::select! {
            biased;
            () = self.signals.terminated() => Err(End::Terminated),
            done = work => Ok(done),
        }
    }

    /// Stays as long as a query runs that was started, and tells when one fails. Ctrl-C and SIGTERM end it:
    /// that is how a service ends.
    ///
    /// # Errors
    /// - [`End::Failed`], when a query that was started has failed
    pub(crate) async fn serve(&mut self) -> Result<(), End> {
        let mut changes = self.context.status_changes();
        let mut interrupts = self.signals.interrupts(false);
        let mut announced = self.quiet;
        loop {
            changes.mark_unchanged();
            self.tell_failures();
            let running = self.running();
            if running == 0 {
                break;
            }
            if !std::mem::replace(&mut announced, true) {
                let queries = if running == 1 { "query" } else { "queries" };
                note(format_args!(
                    "{running} streaming {queries} running; Ctrl-C or SIGTERM ends"
                ));
            }
            tokio::select! {
                biased;
                () = self.signals.terminated() => break,
                () = interrupts.next() => break,
                Ok(()) = changes.changed() => {}
            }
        }
        self.shut_down().await;
        match self.failed.is_empty() {
            true => Ok(()),
            false => Err(End::Failed),
        }
    }

    /// Number of queries that were started and run.
    fn running(&self) -> usize {
        let statuses = self.context.statuses().into_iter();
        let running = statuses.filter(|(_, status)| *status == QueryStatus::Running);
        running.count()
    }

    /// Tells which started queries have failed since it was told last.
    pub(crate) fn tell_failures(&mut self) {
        let statuses = self.context.statuses().into_iter();
        let failed: BTreeMap<String, String> = statuses
            .filter_map(|(name, status)| Some((name, status.error()?.to_owned())))
            .collect();
        for (name, error) in &failed {
            if self.failed.get(name) != Some(error) {
                note(format_args!(
                    "error: {name} is not refreshed any more: {error}"
                ));
            }
        }
        self.failed = failed;
    }

    /// Stops the queries that were started: at the end of their epochs, or after a while in their middle.
    pub(crate) async fn shut_down(&mut self) {
        self.context.shutdown(LAST_EPOCH).await;
        self.tell_failures();
    }

    /// Prints rows that are no statement's.
    ///
    /// # Errors
    /// As [`Shell::statement`], but for Ctrl-C.
    pub(crate) fn show(&self, rows: &RecordBatch) -> Result<(), End> {
        let options = self.context.session().copied_config();
        let mut encoder = Encoder::new(self.format, rows.schema(), &options.options().format);
        let text = encoder
            .encode(std::slice::from_ref(rows))
            .and_then(|mut text| {
                text.extend(encoder.finish()?);
                Ok(text)
            })
            .map_err(|error| {
                note(crate::error::render("", &error));
                End::Failed
            })?;
        console::data(&text).map_err(|error| output_failed(&error))
    }

    /// Tells what a statement did. A script hears only of rows written, for it sees the others.
    fn tell(&self, report: Report, elapsed: Duration) {
        let worth_telling = match report {
            Report::Written(_) => !self.quiet,
            Report::Nothing | Report::Printed(_) => self.interactive && !self.quiet,
        };
        if self.timer {
            note(format_args!("{report} in {:.3} s", elapsed.as_secs_f64()));
        } else if worth_telling {
            note(report);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nothing => f.write_str("ok"),
            Self::Printed(1) => f.write_str("1 row"),
            Self::Printed(rows) => write!(f, "{} rows", HumanCount(rows)),
            Self::Written(1) => f.write_str("1 row written"),
            Self::Written(rows) => write!(f, "{} rows written", HumanCount(rows)),
        }
    }
}

/// A session with what a person at a prompt expects of one.
async fn context(
    data_dir: Option<PathBuf>,
    memory_limit: Option<usize>,
) -> DataFusionResult<StreamContext> {
    let mut config = SessionConfig::new().with_information_schema(true);
    // Errors show their place in the text.
    config.options_mut().sql_parser.collect_spans = true;
    // An empty cell could be an empty string.
    "NULL".clone_into(&mut config.options_mut().format.null);
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(limit) = memory_limit {
        runtime = runtime.with_memory_limit(limit, 1.0);
    }
    let session = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
    match data_dir {
        Some(dir) => StreamContext::open_over(session, dir).await,
        None => StreamContext::over(session),
    }
}

/// Prints a text that is no rows.
///
/// # Errors
/// As [`Shell::show`].
pub(crate) fn print(text: &str) -> Result<(), End> {
    console::data(text.as_bytes()).map_err(|error| output_failed(&error))
}

type Task = tokio::task::JoinHandle<Result<Report, Failure>>;

/// A reader that has read enough (`| head`) is no failure.
fn output_failed(error: &io::Error) -> End {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return End::Hangup;
    }
    note(format_args!("error: cannot write to stdout: {error}"));
    End::Failed
}
