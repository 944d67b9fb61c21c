//! The binary as a process that ends by itself or is killed.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A process that nobody kills and that has not ended after so long hangs.
const LONGEST: Duration = Duration::from_secs(1800);

/// Time between two looks at what a running process does: many in an epoch, few enough to leave it the processor.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with success, after so long.
    Finished(Duration),
    /// By SIGKILL.
    Killed,
}

/// A process that does not outlive the test.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended: then there is nothing to do.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The binary, with nothing of the user's own; it prints CSV and no messages but errors.
pub(crate) fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(["-q", "--format", "csv"])
        .env("TIDEGATE_HISTORY", "");
    command
}

/// Runs a command, kills it when a limit is given and reached, and returns when the process is gone. `look` is called
/// with its id every few milliseconds while it runs.
///
/// Ends the test when the process fails, or when it dies of something else than this function.
pub(crate) fn run(
    mut command: Command,
    limit: Option<Duration>,
    mut look: impl FnMut(u32),
) -> Ending {
    let started = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut running = Running(child.expect("the binary starts"));
    let child = &mut running.0;
    let id = child.id();
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut stderr = child.stderr.take().expect("it is piped");
    let (open, closed) = mpsc::channel::<()>();
    // A full pipe would stop the process. The channel closes when the process has ended.
    let drained = thread::spawn(move || {
        io::copy(&mut stdout, &mut io::sink()).ok();
        drop(open);
    });
    let told = thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).ok();
        String::from_utf8_lossy(&text).into_owned()
    });

    let ended = ends_within(&closed, limit.unwrap_or(LONGEST), || look(id));
    if !ended {
        child.kill().expect("a process of ours can be killed");
    }
    let status = child.wait().expect("a process of ours can be awaited");
    let took = started.elapsed();
    drained.join().expect("stdout is drained");
    let told = told.join().expect("stderr is read");
    match status.code() {
        Some(0) => Ending::Finished(took),
        None if !ended && limit.is_some() => Ending::Killed,
        _ if !ended && limit.is_none() => panic!("the process hangs, after {took:?}: {told}"),
        _ => panic!("the process failed ({status}) after {took:?}: {told}"),
    }
}

/// Waits until the channel is closed, and looks from time to time. False: it is still open when the limit is reached.
fn ends_within(closed: &Receiver<()>, limit: Duration, mut look: impl FnMut()) -> bool {
    let started = Instant::now();
    loop {
        let left = limit.saturating_sub(started.elapsed());
        match closed.recv_timeout(left.min(LOOK_EVERY)) {
            Err(RecvTimeoutError::Timeout) if left <= LOOK_EVERY => return false,
            Err(RecvTimeoutError::Timeout) => look(),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}
