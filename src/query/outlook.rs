//! Why a streaming table has no output yet, and what would bring it: the answer to
//! `EXPLAIN STREAMING TABLE name`.

mod causes;

use std::collections::VecDeque;

use super::progress::{ClauseProgress, EpochProgress};
use super::show::show_instant;
use super::trigger::QueryStatus;
use crate::config::{OutputMode, WatermarkPolicy};
use crate::source::Unread;
use crate::time::Instant;

/// Figures of all epochs of a query together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Totals {
    /// Epochs that have committed.
    pub epochs: u64,
    /// Rows read.
    pub input_rows: u64,
    /// Rows that came too late.
    pub late_rows: u64,
    /// Rows without an event time.
    pub null_rows: u64,
    /// Rows that can have no window.
    pub rejected_rows: u64,
    /// Rows that were later than now by more than `max_future`.
    #[serde(default)]
    pub guarded_rows: u64,
    /// Records that could not be read.
    pub skipped_records: u64,
    /// Rows emitted.
    pub output_rows: u64,
    /// Rows of state that have left: windows have closed.
    pub state_rows_removed: u64,
}

impl Totals {
    /// Adds an epoch.
    pub fn add(&mut self, epoch: &EpochProgress) {
        self.epochs += 1;
        self.input_rows += epoch.input_rows;
        self.late_rows += epoch.late_rows;
        self.null_rows += epoch.null_rows;
        self.rejected_rows += epoch.rejected_rows;
        self.guarded_rows += epoch.guarded_rows;
        self.skipped_records += epoch.skipped_records;
        self.output_rows += epoch.output_rows;
        let removed = epoch.operators.iter().map(|one| one.state_rows_removed);
        self.state_rows_removed += removed.sum::<u64>();
    }
}

/// Where a streaming table stands.
#[derive(Debug)]
pub struct Standing<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its output mode.
    pub mode: OutputMode,
    /// Which clause holds the watermark.
    pub policy: WatermarkPolicy,
    /// Whether its LIMIT has been reached.
    pub full: bool,
    /// The records of its epochs that are kept, oldest first.
    pub history: &'a VecDeque<EpochProgress>,
    /// Figures of all its epochs.
    pub totals: Totals,
    /// What has arrived and was not read, by source; none while a refresh reads it.
    pub unread: Option<Vec<(String, Unread)>>,
    /// Whether it refreshes by itself.
    pub status: QueryStatus,
    /// What the clock says.
    pub now: Instant,
}

/// Late rows are worth a word when there is more than one in so many: fewer is what a delay is chosen for.
const LATE_ONE_IN: u64 = 1_000;

/// An answer in lines: what is asked, and the answer.
pub type Lines = Vec<(&'static str, String)>;

impl Standing<'_> {
    /// The answer, a line a question, in an order in which one would ask.
    pub fn lines(&self) -> Lines {
        let mut lines = Vec::new();
        match &self.status {
            QueryStatus::Stopped => {}
            QueryStatus::Running => lines.push(("status", "running".to_owned())),
            QueryStatus::Failed(error) => lines.push(("status", format!("failed: {error}"))),
        }
        lines.push(("watermark", self.watermark()));
        lines.extend(self.holders().into_iter().map(|held| ("held by", held)));
        lines.extend(self.futures().into_iter().map(|cause| ("cause", cause)));
        lines.push(("next to close", self.next_to_close()));
        if let Some(row) = self.closing_row() {
            lines.push(("closed by", row));
        }
        lines.push(("open", self.open()));
        lines.extend(self.silent().into_iter().map(|silent| ("silent", silent)));
        lines.extend(self.idle().into_iter().map(|idle| ("idle", idle)));
        lines.push(("lost", self.lost()));
        lines.extend(self.too_many_late());
        lines.extend(self.guarded().into_iter().map(|rows| ("guarded", rows)));
        lines.push(("emitted", self.emitted()));
        lines.extend(self.waiting().into_iter().map(|waits| ("not read", waits)));
        lines.push(("next", self.next()));
        lines
    }

    fn last(&self) -> Option<&EpochProgress> {
        self.history.back()
    }

    fn clauses(&self) -> &[ClauseProgress] {
        self.last().map_or(&[], |last| &last.clauses)
    }

    fn watermark(&self) -> String {
        match self.last() {
            None => "none: no epoch has run".to_owned(),
            Some(last) => match &last.watermark {
                Some(watermark) => watermark.clone(),
                None if last.clauses.is_empty() => "none: there is no WATERMARK clause".to_owned(),
                None => "none: no event time has been seen".to_owned(),
            },
        }
    }

    /// The clauses whose watermark is the query's.
    fn holders(&self) -> Vec<String> {
        if self.policy == WatermarkPolicy::Min && self.all_idle() {
            return vec!["no input: all are idle, and the watermark stays".to_owned()];
        }
        self.holding().into_iter().map(holder).collect()
    }

    /// The least watermark that closes a window.
    fn due(&self) -> Option<Instant> {
        let operators = self.last().map_or(&[][..], |last| &last.operators);
        operators.iter().filter_map(|one| one.due).min()
    }

    fn next_to_close(&self) -> String {
        let Some(last) = self.last() else {
            return "none: no epoch has run".to_owned();
        };
        let due = self.due();
        let next = last
            .operators
            .iter()
            .find(|one| due.is_some() && one.due == due);
        if let Some(next) = next {
            let at = next.closes_at.as_deref().unwrap_or_default();
            return format!(
                "the oldest window of {} when the watermark reaches {at}",
                next.operator
            );
        }
        let holds = last.operators.iter().any(|one| one.state_rows > 0);
        match self.mode {
            OutputMode::Complete => "none: complete mode keeps every group",
            _ if holds && last.open_windows == 0 => "none: no group that is held is a window",
            _ => "none: no window is open",
        }
        .to_owned()
    }

    /// The row that would close the next window.
    fn closing_row(&self) -> Option<String> {
        let due = self.due()?;
        let all_idle = self.all_idle();
        // An idle input is not waited for, unless there is no other: then one row of any is enough.
        let counts = |one: &&ClauseProgress| {
            self.policy == WatermarkPolicy::Max || all_idle || one.idle_since.is_none()
        };
        let behind = self
            .clauses()
            .iter()
            .filter(counts)
            .filter(|one| one.observed.watermark().is_none_or(|at| at < due));
        let rows: Vec<String> = behind.map(|one| row_of(one, due)).collect();
        let joined = match self.policy {
            WatermarkPolicy::Min if !all_idle => rows.join(" and "),
            WatermarkPolicy::Min | WatermarkPolicy::Max => rows.join(" or "),
        };
        Some(joined)
    }

    fn open(&self) -> String {
        let (windows, rows) = self
            .last()
            .map_or((0, 0), |last| (last.open_windows, last.open_rows));
        format!(
            "{} with {}",
            counted(windows, "window"),
            counted(rows, "row")
        )
    }

    /// Clauses that saw no event time in the last epochs.
    fn silent(&self) -> Vec<String> {
        let quiet = |at: usize| {
            // An epoch that corrects the result reads nothing.
            let records = self.history.iter().rev();
            let records = records.filter(|record| !record.sources.is_empty());
            let silent = records.take_while(|record| {
                let clause = record.clauses.get(at);
                clause.is_none_or(|clause| clause.rows == clause.null_rows)
            });
            silent.count() as u64
        };
        let clauses = self.clauses().iter().enumerate();
        let silent = clauses.filter_map(|(at, clause)| {
            let since = match (clause.observed.greatest, quiet(at)) {
                (None, _) => "no event time yet".to_owned(),
                (Some(_), 0) => return None,
                (Some(_), 1) => "no event time in the last epoch".to_owned(),
                (Some(_), epochs) => format!("no event time in the last {epochs} epochs"),
            };
            Some(format!("{}: {since}", named(clause)))
        });
        silent.collect()
    }

    fn lost(&self) -> String {
        let Totals {
            input_rows,
            late_rows,
            null_rows,
            rejected_rows,
            guarded_rows,
            skipped_records,
            ..
        } = self.totals;
        let guarded = match guarded_rows {
            0 => String::new(),
            rows => format!(", {rows} of the future"),
        };
        let unreadable = match skipped_records {
            0 => String::new(),
            records => format!(", {} unreadable", counted(records, "record")),
        };
        format!(
            "{late_rows} late, {null_rows} without event time, {rejected_rows} without a window{guarded}, of {} read{unreadable}",
            counted(input_rows, "row"),
        )
    }

    /// That more rows are late than one would expect of a delay that was chosen, and what tells a better one.
    fn too_many_late(&self) -> Lines {
        let Totals {
            epochs,
            input_rows,
            late_rows,
            ..
        } = self.totals;
        if u128::from(late_rows) * u128::from(LATE_ONE_IN) <= u128::from(input_rows) {
            return Vec::new();
        }
        let quoted = |name: &str| format!("'{}'", name.replace('\'', "''"));
        let of_one_table = self
            .clauses()
            .iter()
            .find(|one| !one.sources.contains(", "));
        let asked = of_one_table.map_or_else(
            || "table, event time".to_owned(),
            |clause| format!("{}, {}", quoted(&clause.sources), quoted(&clause.column)),
        );
        // Epochs of another size would have other late rows.
        let rows = input_rows.checked_div(epochs).unwrap_or_default().max(1);
        vec![
            (
                "late",
                format!(
                    "{} of {input_rows} read, {}: more than one in {LATE_ONE_IN}",
                    counted(late_rows, "row"),
                    share(late_rows, input_rows)
                ),
            ),
            (
                "which delay",
                format!(
                    "SELECT * FROM lateness({asked}, '1 hour'), with the window's size and max_rows_per_epoch about {rows}"
                ),
            ),
        ]
    }

    fn emitted(&self) -> String {
        format!(
            "{} in {}",
            counted(self.totals.output_rows, "row"),
            counted(self.totals.epochs, "epoch")
        )
    }

    /// Sources with rows that were not read.
    fn waiting(&self) -> Vec<String> {
        let waiting = self.unread.iter().flatten();
        waiting
            .filter_map(|(name, unread)| match unread {
                Unread::Rows(0) | Unread::Files(0) | Unread::Unknown => None,
                Unread::Rows(rows) => Some(format!("{name}: {}", counted(*rows, "row"))),
                Unread::Files(files) => Some(format!("{name}: {}", counted(*files, "file"))),
            })
            .collect()
    }

    /// What to do now.
    fn next(&self) -> String {
        let Totals {
            input_rows,
            late_rows,
            null_rows,
            output_rows,
            state_rows_removed,
            ..
        } = self.totals;
        let refresh = match &self.status {
            QueryStatus::Stopped => format!("REFRESH STREAMING TABLE {}", self.name),
            QueryStatus::Running => "wait for the refresh that follows".to_owned(),
            QueryStatus::Failed(_) => {
                return format!(
                    "mend what the error says, then ALTER STREAMING TABLE {} START",
                    self.name
                );
            }
        };
        if self.unread.is_none() {
            return "wait for the refresh that is running".to_owned();
        }
        if self.full {
            return "nothing: the LIMIT is reached, and no more rows come".to_owned();
        }
        if self.last().is_none() {
            return refresh;
        }
        if let Some(ahead) = self.ahead() {
            return ahead;
        }
        if !self.waiting().is_empty() {
            return format!("{refresh}: it reads what has arrived");
        }
        if input_rows == 0 {
            return format!("give the sources rows, then {refresh}");
        }
        if let Some(unseen) = self.all_guarded().or_else(|| self.unseen()) {
            return unseen;
        }
        if output_rows == 0 && late_rows + null_rows == input_rows && late_rows > 0 {
            return "look at the event times, or take a longer delay: every row was late or had none"
                .to_owned();
        }
        let next = match (self.mode, self.closing_row()) {
            (OutputMode::Append, Some(row)) => format!("wait for {row}, then {refresh}"),
            _ => format!("give the sources new rows, then {refresh}"),
        };
        if output_rows == 0 && state_rows_removed > 0 {
            return format!(
                "windows have closed, but HAVING, a join or a filter above the aggregate left no row of them; {next}"
            );
        }
        next
    }

    /// What to do about a clause that holds the watermark because it has seen nothing.
    fn unseen(&self) -> Option<String> {
        let unseen =
            |one: &&ClauseProgress| one.observed.greatest.is_none() && one.idle_since.is_none();
        let held = self.last()?.watermark.is_none();
        let first = self.clauses().iter().find(unseen).filter(|_| held)?;
        let others = self.clauses().iter().any(|one| !unseen(&one));
        let or = if others && self.policy == WatermarkPolicy::Min {
            ", or set idle_timeout, or multiple_watermark_policy = 'max'"
        } else {
            ""
        };
        Some(format!(
            "give {} an event time: without one there is no watermark{or}",
            named(first)
        ))
    }
}

/// A clause by its column and tables.
fn named(clause: &ClauseProgress) -> String {
    format!("{} of {}", clause.column, clause.sources)
}

fn holder(clause: &ClauseProgress) -> String {
    let seen = &clause.observed;
    match seen.greatest {
        Some(greatest) => format!(
            "{}: {} less {}",
            named(clause),
            show_instant(seen.unit.instant(greatest), seen.unit, seen.zoned),
            clause.delay
        ),
        None => format!("{}: no event time yet", named(clause)),
    }
}

/// The least event time of a clause that moves its watermark to `due`.
fn row_of(clause: &ClauseProgress, due: Instant) -> String {
    let seen = &clause.observed;
    // The watermark has the column's unit: it reaches what lies between two ticks at the second.
    let due = seen.unit.instant(seen.unit.ceil(due));
    let tick = seen.unit.ceil(due.later(seen.delay));
    let time = show_instant(seen.unit.instant(tick), seen.unit, seen.zoned);
    format!(
        "a row of {} with {} >= {time}",
        clause.sources, clause.column
    )
}

/// A share as a person reads it: `5.43 %`.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share is not exact to the row"
)]
fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "all".to_owned(),
        whole => format!("{:.2} %", part as f64 * 100.0 / whole as f64),
    }
}

/// `1 row`, `2 rows`.
fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
