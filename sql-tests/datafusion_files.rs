//! DataFusion's own suites answer with Tidegate installed what they answer without.
//!
//! The files are those of the crate `datafusion-sqllogictest` of the version of DataFusion that Tidegate is built on, and
//! are not kept here. The test runs when the environment variable `TIDEGATE_DATAFUSION_SQLLOGICTEST` names the crate's
//! folder, the one that holds `test_files`, and otherwise says that it did not. In a checkout of DataFusion the folder is
//! `datafusion/sqllogictest`; the data beside it is then found too.
//!
//! Each statement of a file runs in three sessions of the same settings, one with Tidegate and two without. Where the two
//! without disagree, the answer depends on the clock, on chance or on timing and says nothing; otherwise all three must be
//! the same (in any order, unless the statement asks for one), but for the differences that are on purpose ([`RULES`]).
//! What a file expects is not looked at. A table or function that DataFusion's runner makes in Rust is missing in all three
//! sessions, and so are the functions of `datafusion-spark`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::common::config::Dialect;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use libtest_mimic::{Arguments, Failed, Trial};
use sqllogictest::{Condition, DefaultColumnType, QueryExpect, Record, parse_file};
use tempfile::TempDir;
use tidegate::context::StreamContext;
use tidegate::slt;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinError;
use tokio::time::timeout;

/// Stack of a thread in bytes: planning in a debug build needs more than the two megabytes that are usual.
const STACK: usize = 8 << 20;
/// How long a statement may take. One that takes longer has no other answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the files call the engine they run on.
const LABEL: &str = "Datafusion";
/// Partitions of a plan in the files.
const PARTITIONS: usize = 4;
/// Lines of an answer that are printed.
const LINES: usize = 20;
/// Folders that some files read, seen from the folder of the files.
const NEIGHBOURS: [&str; 4] = [
    "../core/tests",
    "../datasource-arrow/tests",
    "../../testing/data",
    "../../parquet-testing/data",
];
/// Where in a temporary folder the files are copied: as deep as in a checkout of DataFusion.
const COPY: &str = "datafusion/sqllogictest";

fn main() -> ExitCode {
    let Some(folder) = std::env::var_os("TIDEGATE_DATAFUSION_SQLLOGICTEST").map(PathBuf::from)
    else {
        eprintln!(
            "skipped: TIDEGATE_DATAFUSION_SQLLOGICTEST does not name the folder of the crate datafusion-sqllogictest; \
             https://static.crates.io/crates/datafusion-sqllogictest/datafusion-sqllogictest-55.2.0.crate is its archive"
        );
        return ExitCode::SUCCESS;
    };
    let copied = copy(&folder).expect("the files can be copied");
    std::env::set_current_dir(copied.path().join(COPY)).expect("the copy can be entered");
    let files = slt::find_files(&["test_files".into()]).expect("the files can be found");
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .build()
        .expect("a runtime starts");
    let runtime = Arc::new(runtime);
    let totals: Arc<Mutex<Totals>> = Arc::default();
    let trials = files
        .into_iter()
        .map(|file| trial(file, Arc::clone(&runtime), Arc::clone(&totals)))
        .collect();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    eprintln!("{}", totals.lock().unwrap());
    conclusion.exit_code()
}

/// A copy of the files in a temporary folder, for they write beside themselves.
fn copy(folder: &Path) -> std::io::Result<TempDir> {
    let folder = folder.canonicalize()?;
    let temporary = TempDir::new()?;
    let to = temporary.path().join(COPY);
    fs::create_dir_all(&to)?;
    for name in ["test_files", "data"] {
        copy_folder(&folder.join(name), &to.join(name))?;
    }
    for neighbour in NEIGHBOURS {
        let from = folder.join(neighbour);
        if from.is_dir() {
            copy_folder(&from, &to.join(neighbour))?;
        }
    }
    Ok(temporary)
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The test of one file, named by its path.
fn trial(file: PathBuf, runtime: Arc<Runtime>, totals: Arc<Mutex<Totals>>) -> Trial {
    let name = file
        .strip_prefix("test_files")
        .unwrap_or(&file)
        .display()
        .to_string();
    Trial::test(name, move || {
        // On a thread of the runtime, for its stack.
        let run = runtime.spawn(async move { check(&file).await });
        let verdicts = runtime
            .block_on(run)
            .map_err(|error| Failed::from(error.to_string()))?;
        totals.lock().unwrap().add(&verdicts);
        let different: String = verdicts
            .into_iter()
            .filter_map(|verdict| match verdict {
                Verdict::Different(text) => Some(text),
                _ => None,
            })
            .collect();
        if different.is_empty() {
            Ok(())
        } else {
            Err(Failed::from(different))
        }
    })
}

/// What becomes of the records of one file.
async fn check(file: &Path) -> Vec<Verdict> {
    let asked = questions(file);
    let mut verdicts = round(file, &asked).await;
    if verdicts.iter().any(Verdict::differs) {
        // What is not different again was chance.
        let again = round(file, &asked).await;
        for (verdict, again) in verdicts.iter_mut().zip(again) {
            if let Verdict::Different(text) = &verdict
                && !again.differs()
            {
                eprintln!("differed once, and not again:{text}");
                *verdict = Verdict::Unrepeatable;
            }
        }
    }
    verdicts
}

/// Runs the records of one file in three sessions, and compares.
async fn round(file: &Path, asked: &[Question]) -> Vec<Verdict> {
    let unbounded: Vec<String> = asked.iter().filter_map(Question::unbounded).collect();
    let ours = run(file, asked, true, |_| false).await;
    let refused = |at: usize| is_refused(&asked[at].sql, &ours[at]);
    let plain = run(file, asked, false, refused).await;
    let again = run(file, asked, false, refused).await;
    let answers = ours.into_iter().zip(plain).zip(again);
    asked
        .iter()
        .zip(answers)
        .map(|(question, ((ours, plain), again))| {
            verdict(question, &unbounded, [ours, plain, again])
        })
        .collect()
}

/// Compares what a session with Tidegate and two without answered.
fn verdict(question: &Question, unbounded: &[String], answers: [Answer; 3]) -> Verdict {
    let exact = question.ordered && answers[1] == answers[2];
    let [ours, plain, again] = answers.map(|answer| if exact { answer } else { answer.sorted() });
    if plain != again {
        return Verdict::Unrepeatable;
    }
    if ours == plain {
        return match plain {
            Answer::Error(_) => Verdict::SameError,
            _ => Verdict::Same,
        };
    }
    let case = Case {
        sql: &question.sql,
        unbounded,
        plain: &plain,
        ours: &ours,
    };
    match RULES.iter().position(|rule| (rule.covers)(&case)) {
        Some(rule) => Verdict::OnPurpose(rule),
        None => Verdict::Different(format!("\n{}\n{case}", question.place)),
    }
}

/// What became of a record.
enum Verdict {
    Same,
    SameError,
    Unrepeatable,
    /// It differs, by the rule of this number.
    OnPurpose(usize),
    /// It differs; both answers.
    Different(String),
}

impl Verdict {
    fn differs(&self) -> bool {
        matches!(self, Self::Different(_))
    }
}

/// How many records became what.
#[derive(Default)]
struct Totals {
    same: usize,
    same_errors: usize,
    unrepeatable: usize,
    /// Rule by rule.
    on_purpose: [usize; RULES.len()],
    different: usize,
}

impl Totals {
    fn add(&mut self, verdicts: &[Verdict]) {
        for verdict in verdicts {
            let count = match verdict {
                Verdict::Same => &mut self.same,
                Verdict::SameError => &mut self.same_errors,
                Verdict::Unrepeatable => &mut self.unrepeatable,
                Verdict::OnPurpose(rule) => &mut self.on_purpose[*rule],
                Verdict::Different(_) => &mut self.different,
            };
            *count += 1;
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on_purpose: usize = self.on_purpose.iter().sum();
        writeln!(
            f,
            "{} records compared: {} have the same rows, {} the same error, {on_purpose} differ on purpose, {} differ; \
             {} are not repeatable",
            self.same + self.same_errors + on_purpose + self.different,
            self.same,
            self.same_errors,
            self.different,
            self.unrepeatable
        )?;
        for (rule, count) in RULES.iter().zip(self.on_purpose) {
            writeln!(f, "{count} on purpose: {}", rule.reason)?;
        }
        Ok(())
    }
}

/// One statement and what it was answered.
struct Case<'a> {
    sql: &'a str,
    /// Tables of the file that are created UNBOUNDED.
    unbounded: &'a [String],
    plain: &'a Answer,
    ours: &'a Answer,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plain, ours) = (self.plain.to_string(), self.ours.to_string());
        let same = plain
            .lines()
            .zip(ours.lines())
            .take_while(|(plain, ours)| plain == ours)
            .count();
        writeln!(f, "{}", self.sql)?;
        for (who, text) in [("without", plain), ("with", ours)] {
            writeln!(
                f,
                "--- {who} Tidegate, after {same} lines that are the same"
            )?;
            for line in text.lines().skip(same).take(LINES) {
                writeln!(f, "{line}")?;
            }
            if let Some(more @ 1..) = text.lines().count().checked_sub(same + LINES) {
                writeln!(f, "... {more} lines more")?;
            }
        }
        Ok(())
    }
}

/// A difference that is on purpose.
struct Rule {
    reason: &'static str,
    covers: fn(&Case) -> bool,
}

/// Every difference that is on purpose. Any other is a fault.
const RULES: [Rule; 8] = [
    Rule {
        reason: "a table that CREATE TABLE makes only takes new rows: UPDATE, DELETE, TRUNCATE and \
                 INSERT OVERWRITE are refused (and then left out without Tidegate)",
        covers: |case| is_refused(case.sql, case.ours),
    },
    Rule {
        reason: "EXPLAIN says the same of a statement that would be refused",
        covers: |case| {
            matches!(case.ours, Answer::Rows { rows, .. } if changes_rows(explained(case.sql))
                && rows.iter().any(|row| row.starts_with("physical_plan_error") && row.contains(REFUSED)))
        },
    },
    Rule {
        reason: "a sum of integers that does not fit fails by name and does not wrap",
        covers: |case| {
            matches!(case.ours, Answer::Error(text) if text.contains("[ARITHMETIC_OVERFLOW]"))
                && case.sql.to_lowercase().contains("sum(")
        },
    },
    Rule {
        reason: "sum(x + 1) stays as it is: sum(x) + count(x) would not fail where the sum does not fit",
        covers: |case| {
            let counts = |answer: &Answer| matches!(answer, Answer::Rows { rows, .. } if rows.iter().any(|row| row.contains("count(")));
            explained(case.sql) != case.sql
                && case.sql.to_lowercase().contains("sum(")
                && counts(case.plain)
                && !counts(case.ours)
        },
    },
    Rule {
        reason: "the settings and functions of Tidegate are listed among the others, and listings of folders are not kept",
        covers: |case| {
            let kept = "datafusion.runtime.list_files_cache_limit";
            let ours = without_rows(case.ours, &["tidegate.", "emitted | ", "progress | ", kept]);
            ours == without_rows(case.plain, &[kept])
        },
    },
    Rule {
        reason: "EXPLAIN VERBOSE shows what the analyzer of Tidegate did",
        covers: |case| {
            without_rows(case.ours, &["logical_plan after tidegate_streams | "]) == *case.plain
        },
    },
    Rule {
        reason: "EXPLAIN shows the name of the table that an INSERT writes to",
        covers: |case| match (case.plain, case.ours) {
            (Answer::Rows { rows: plain, .. }, Answer::Rows { rows: ours, .. }) => {
                let plain = plain.iter().map(|row| without_sink(row, "MemoryTable"));
                plain.eq(ours.iter().map(|row| without_sink(row, "AppendTable")))
            }
            _ => false,
        },
    },
    Rule {
        reason: "a table that is created UNBOUNDED is a stream",
        covers: |case| {
            let sql = case.sql.to_lowercase();
            case.unbounded.iter().any(|table| sql.contains(table))
                && match case.ours {
                    Answer::Rows { rows, .. } if explained(case.sql) != case.sql => {
                        let told = ["StreamQueryExec", ONE_FILE];
                        rows.iter()
                            .any(|row| told.iter().any(|text| row.contains(text)))
                    }
                    // No such file, or the rows that DataFusion would have appended to it.
                    Answer::Rows { rows, .. } => rows.is_empty(),
                    Answer::Error(text) => {
                        text.contains(ONE_FILE)
                            || NOT_OF_STREAMS.iter().any(|name| text.contains(name))
                    }
                    _ => false,
                }
        },
    },
];

/// The condition of a statement that would change rows.
const REFUSED: &str = "[UNSUPPORTED_FEATURE.TABLE_OPERATION]";
/// What DataFusion says to an INSERT into a table of one file, which an unbounded one takes without Tidegate.
const ONE_FILE: &str = "Inserting into a ListingTable backed by a single file";
/// Conditions of queries that a table can answer and a stream cannot.
const NOT_OF_STREAMS: [&str; 2] = [
    "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]",
    "[NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING]",
];

/// Whether Tidegate refuses a statement because it changes rows.
fn is_refused(sql: &str, ours: &Answer) -> bool {
    matches!(ours, Answer::Error(text) if changes_rows(sql) && text.contains(REFUSED))
}

/// Whether a statement would change rows that are there.
fn changes_rows(sql: &str) -> bool {
    let sql = sql.trim_start().to_lowercase();
    ["update", "delete", "truncate", "insert overwrite"]
        .iter()
        .any(|word| sql.starts_with(word))
}

/// The statement that an EXPLAIN is about; any other statement is itself.
fn explained(sql: &str) -> &str {
    let start = sql.trim_start();
    match start.split_at_checked("explain".len()) {
        Some((word, rest)) if word.eq_ignore_ascii_case("explain") => rest.trim_start(),
        _ => sql,
    }
}

/// An answer without the rows that begin so.
fn without_rows(answer: &Answer, beginnings: &[&str]) -> Answer {
    let mut answer = answer.clone();
    if let Answer::Rows { rows, .. } = &mut answer {
        rows.retain(|row| {
            !beginnings
                .iter()
                .any(|beginning| row.starts_with(beginning))
        });
    }
    answer
}

/// A plan without what it says of a sink of this kind.
fn without_sink(plan: &str, kind: &str) -> String {
    let begin = format!("DataSinkExec: sink={kind} (");
    match plan.split_once(&begin) {
        Some((before, rest)) => {
            let after = rest.split_once(')').map_or("", |(_, after)| after);
            format!("{before}DataSinkExec{after}")
        }
        None => plan.to_owned(),
    }
}

/// A record of a file.
struct Question {
    place: String,
    sql: String,
    /// Whether the rows have an order that is asked for.
    ordered: bool,
}

impl Question {
    /// The table that the statement creates UNBOUNDED.
    fn unbounded(&self) -> Option<String> {
        let sql = self.sql.to_lowercase();
        let (_, rest) = sql.split_once("create unbounded external table")?;
        let rest = rest.trim_start().trim_start_matches("if not exists");
        rest.split(['(', ' ', '\n'])
            .find(|word| !word.is_empty())
            .map(str::to_owned)
    }
}

/// The records of a file that DataFusion runs.
fn questions(file: &Path) -> Vec<Question> {
    parse_file::<DefaultColumnType>(file)
        .expect("the file has the form of a suite")
        .into_iter()
        .filter_map(question)
        .collect()
}

fn question(record: Record<DefaultColumnType>) -> Option<Question> {
    let (loc, conditions, sql, sorted) = match record {
        Record::Statement {
            loc,
            conditions,
            sql,
            ..
        } => (loc, conditions, sql, false),
        Record::Query {
            loc,
            conditions,
            sql,
            expected,
            ..
        } => {
            let sorted = matches!(
                expected,
                QueryExpect::Results {
                    sort_mode: Some(_),
                    ..
                }
            );
            (loc, conditions, sql, sorted)
        }
        _ => return None,
    };
    let runs = conditions.iter().all(|condition| match condition {
        Condition::OnlyIf { label } => label == LABEL,
        Condition::SkipIf { label } => label != LABEL,
    });
    runs.then(|| Question {
        place: loc.to_string(),
        ordered: !sorted && has_order(&sql),
        sql,
    })
}

/// Whether the rows of a statement have an order: those of EXPLAIN have one, too. An ORDER BY in parentheses is that of
/// an aggregate or of a subquery.
fn has_order(sql: &str) -> bool {
    let mut depth = 0_usize;
    let mut outside = String::new();
    for letter in sql.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => outside.push(letter),
            _ => {}
        }
    }
    explained(sql) != sql || outside.to_lowercase().contains("order by")
}

/// What a session answers.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Rows {
        schema: String,
        rows: Vec<String>,
    },
    Error(String),
    Panic(String),
    Endless,
    /// The session was not asked.
    LeftOut,
}

impl Answer {
    /// The same rows in an order of their own.
    fn sorted(mut self) -> Self {
        if let Self::Rows { rows, .. } = &mut self {
            rows.sort();
        }
        self
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { schema, rows } => write!(f, "{schema}\n{}", rows.join("\n")),
            Self::Error(text) => write!(f, "error: {text}"),
            Self::Panic(text) => write!(f, "panic: {text}"),
            Self::Endless => write!(f, "nothing within {PATIENCE:?}"),
            Self::LeftOut => write!(f, "not asked"),
        }
    }
}

/// A session that statements run in.
#[derive(Clone)]
enum Engine {
    Plain(SessionContext),
    Tidegate(StreamContext),
}

impl Engine {
    /// A session of the settings that the files are written for.
    fn new(file: &Path, tidegate: bool) -> Result<Self> {
        let mut config = SessionConfig::new().with_target_partitions(PARTITIONS);
        if file.starts_with("test_files/spark") {
            config.options_mut().sql_parser.dialect = Dialect::Spark;
        }
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .build();
        let mut session = SessionContext::new_with_state(state);
        if file.ends_with("dynamic_file.slt") {
            session = session.enable_url_table();
        }
        Ok(if tidegate {
            Self::Tidegate(StreamContext::over(session)?)
        } else {
            Self::Plain(session)
        })
    }

    async fn sql(&self, sql: &str) -> Result<DataFrame> {
        match self {
            Self::Plain(session) => session.sql(sql).await,
            Self::Tidegate(context) => context.sql(sql).await,
        }
    }

    async fn answer(self, sql: String) -> Answer {
        match self.rows(&sql).await {
            Ok((schema, rows)) => Answer::Rows { schema, rows },
            Err(error) => Answer::Error(without_guess(&error.strip_backtrace())),
        }
    }

    async fn rows(&self, sql: &str) -> Result<(String, Vec<String>)> {
        let frame = self.sql(sql).await?;
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let schema = schema_text(&plan.schema());
        let batches = collect(plan, context).await?;
        Ok((schema, rows_text(&batches)?))
    }
}

/// An error without the function that the user may have meant: which of several it names is chance.
fn without_guess(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("Did you mean "))
        .collect();
    lines.join("\n")
}

/// Columns with their types, and what is known of them.
fn schema_text(schema: &Schema) -> String {
    let columns: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| {
            let mut metadata: Vec<_> = field.metadata().iter().collect();
            metadata.sort();
            let null = if field.is_nullable() { "" } else { " NOT NULL" };
            format!(
                "{} {}{null}{}",
                field.name(),
                field.data_type(),
                if metadata.is_empty() {
                    String::new()
                } else {
                    format!(" {metadata:?}")
                }
            )
        })
        .collect();
    columns.join(", ")
}

fn rows_text(batches: &[RecordBatch]) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|column| Ok((column, ArrayFormatter::try_new(column.as_ref(), &options)?)))
            .collect::<Result<Vec<_>>>()?;
        rows.extend((0..batch.num_rows()).map(|row| {
            let cells: Vec<String> = columns
                .iter()
                .map(|(column, text)| {
                    rounded(column, row).unwrap_or_else(|| text.value(row).to_string())
                })
                .collect();
            cells.join(" | ")
        }));
    }
    Ok(rows)
}

/// A floating-point number without its last digits, which depend on the order in which numbers were added.
fn rounded(column: &ArrayRef, row: usize) -> Option<String> {
    match column.data_type() {
        _ if column.is_null(row) => None,
        DataType::Float64 => {
            let value = column.as_primitive::<Float64Type>().value(row);
            Some(format!("{value:.11e}"))
        }
        DataType::Float32 => {
            let value = column.as_primitive::<Float32Type>().value(row);
            Some(format!("{value:.5e}"))
        }
        _ => None,
    }
}

/// Answers to a file's records in a session of their own; some records are left out.
async fn run(
    file: &Path,
    asked: &[Question],
    tidegate: bool,
    left_out: impl Fn(usize) -> bool,
) -> Vec<Answer> {
    clear(file).expect("the folder that the file writes to can be cleared");
    let engine = Engine::new(file, tidegate).expect("a session starts");
    let mut answers = Vec::new();
    for (at, question) in asked.iter().enumerate() {
        answers.push(if left_out(at) {
            Answer::LeftOut
        } else {
            ask(engine.clone(), question.sql.clone()).await
        });
    }
    answers
}

/// The answer to one record, whatever becomes of it.
async fn ask(engine: Engine, sql: String) -> Answer {
    let task = tokio::spawn(engine.answer(sql));
    let stop = task.abort_handle();
    match timeout(PATIENCE, task).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Answer::Panic(panic_text(error)),
        Err(_) => {
            stop.abort();
            Answer::Endless
        }
    }
}

fn panic_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic
                .downcast_ref::<&str>()
                .map_or_else(|| "without a text".to_owned(), ToString::to_string),
        },
        Err(error) => error.to_string(),
    }
}

/// Empties the folder that a file writes to.
fn clear(file: &Path) -> std::io::Result<()> {
    let stem = file.file_stem().unwrap_or_default();
    let folder = Path::new("test_files/scratch").join(stem);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)
}
