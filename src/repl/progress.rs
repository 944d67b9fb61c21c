//! The line on stderr that tells how far a long statement is.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::query::Live;

/// A statement that takes less shows no line.
const PATIENCE: Duration = Duration::from_millis(300);

/// Time between two versions of the line.
const STEP: Duration = Duration::from_millis(100);

/// The line of one statement.
#[derive(Debug)]
pub(crate) struct Progress {
    line: ProgressBar,
    /// Keeps the line up to date; none when stderr is not a terminal.
    writer: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts to watch a statement; the line appears when it takes long.
    pub(crate) fn start(live: watch::Receiver<Live>) -> Self {
        // It has nowhere to be drawn until it is wanted: `suspend` would draw it again at once.
        let line = ProgressBar::hidden();
        let writer = std::io::stderr()
            .is_terminal()
            .then(|| tokio::spawn(keep(line.clone(), live)));
        Self { line, writer }
    }

    /// The line, for whoever prints and has to take it off the screen meanwhile.
    pub(crate) fn line(&self) -> ProgressBar {
        self.line.clone()
    }

    /// Takes the line off the screen for good.
    pub(crate) async fn stop(self) {
        if let Some(writer) = self.writer {
            writer.abort();
            // Once it has ended, as an aborted task or not, it cannot draw the line again.
            writer.await.ok();
        }
        self.line.finish_and_clear();
    }
}

async fn keep(line: ProgressBar, live: watch::Receiver<Live>) {
    let started = Instant::now();
    tokio::time::sleep(PATIENCE).await;
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        line.set_style(style);
    }
    line.set_draw_target(ProgressDrawTarget::stderr());
    loop {
        line.set_message(describe(&live.borrow(), started.elapsed()));
        line.tick();
        tokio::time::sleep(STEP).await;
    }
}

/// The text of the line.
fn describe(live: &Live, elapsed: Duration) -> String {
    let seconds = format!("{:.1} s", elapsed.as_secs_f64());
    if !live.running {
        return seconds;
    }
    let rate = u128::from(live.rows) * 1000 / elapsed.as_millis().max(1);
    let mut parts = vec![
        counted(live.rows, "row"),
        format!(
            "{} rows/s",
            HumanCount(u64::try_from(rate).unwrap_or(u64::MAX))
        ),
        counted(live.epochs, "epoch"),
    ];
    if let Some(watermark) = &live.watermark {
        parts.push(format!("watermark {watermark}"));
    }
    parts.push(counted(live.open_windows, "open window"));
    parts.push(seconds);
    parts.join(", ")
}

fn counted(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", HumanCount(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streaming_query_shows_its_figures() {
        let live = Live {
            running: true,
            rows: 12_000,
            epochs: 1,
            watermark: Some("2026-10-01T09:20:00".to_owned()),
            open_windows: 3,
        };
        assert_eq!(
            describe(&live, Duration::from_millis(1500)),
            "12,000 rows, 8,000 rows/s, 1 epoch, watermark 2026-10-01T09:20:00, 3 open windows, 1.5 s"
        );
    }

    #[test]
    fn another_statement_shows_its_time() {
        assert_eq!(describe(&Live::default(), Duration::from_secs(2)), "2.0 s");
    }
}
