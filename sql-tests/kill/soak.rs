//! The soak: rounds at full speed on one data directory, with a kill at even times.
//!
//! At the end of a round its tables are dropped, and then their directories removed. What is in the data directory
//! when a job has ended, before that, is the same in each round and must not grow.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::job::{Job, TABLES};
use crate::process::{self, Ending, tidegate};
use crate::round::Round;

/// Bytes that a data directory may be larger by than at the end of the first round, besides a quarter: where kills fell
/// decides what was compacted last.
const SPARE_BYTES: u64 = 64 << 10;

/// The same for files.
const SPARE_FILES: u64 = 8;

/// Rounds at least: one alone cannot grow.
const LEAST_ROUNDS: usize = 2;

/// Runs rounds for so many seconds, with a kill each `kill_seconds`.
pub(crate) fn run(seconds: u64, kill_seconds: u64) {
    let (time, every) = (
        Duration::from_secs(seconds),
        Duration::from_secs(kill_seconds),
    );
    let mut job = Job::prepare();
    let data = job.folder().join("soak-data");
    let mut peaks = Peaks::default();
    let mut sizes: Vec<Size> = Vec::new();
    let mut kills = 0_u64;
    let started = Instant::now();
    let mut next_kill = started + every;
    while started.elapsed() < time || sizes.len() < LEAST_ROUNDS {
        let mut round = Round::begin_on(&job, &format!("soak-{:06}", sizes.len()), &data);
        loop {
            // When the time is over nothing is killed any more, so that the last round ends.
            let left = next_kill.saturating_duration_since(Instant::now());
            let limit = (started.elapsed() < time).then_some(left);
            match round.run(limit, |id| peaks.note(id)) {
                Ending::Killed => {
                    kills += 1;
                    round.check(&mut job);
                    next_kill = Instant::now() + every;
                }
                Ending::Finished(_) => break,
            }
        }
        round.check_whole(&mut job);
        sizes.push(Size::of(&data));
        drop_tables(&data);
        round.remove();
    }
    tell(&sizes, &peaks, kills, started.elapsed());
    check_growth(&sizes);
}

/// Drops the tables of the job. Nobody kills this.
fn drop_tables(data: &Path) {
    let mut command = tidegate();
    command.arg("--data-dir").arg(data);
    for table in &TABLES {
        let statement = format!("DROP STREAMING TABLE IF EXISTS {}", table.name);
        command.arg("-c").arg(statement);
    }
    process::run(command, None, |_| ());
}

fn tell(sizes: &[Size], peaks: &Peaks, kills: u64, took: Duration) {
    let shown = |figure: Option<u64>| figure.map_or("unknown".to_owned(), |it| it.to_string());
    eprintln!("soak rounds              {}", sizes.len());
    eprintln!("soak kills               {kills}");
    eprintln!("peak memory, KiB         {}", shown(peaks.memory));
    eprintln!("most open files          {}", shown(peaks.open_files));
    for (what, size) in [
        ("first", sizes.first().copied()),
        (
            "largest",
            sizes.iter().max_by_key(|size| size.bytes).copied(),
        ),
        ("last", sizes.last().copied()),
    ] {
        if let Some(Size { files, bytes }) = size {
            eprintln!("data directory, {what:<9}{files} files, {bytes} bytes");
        }
    }
    eprintln!("soak seconds             {:.1}", took.as_secs_f64());
}

/// No round ends with a larger data directory than the first, but for what kills may leave to the next start.
fn check_growth(sizes: &[Size]) {
    let first = sizes[0];
    let most = Size {
        files: first.files + first.files / 4 + SPARE_FILES,
        bytes: first.bytes + first.bytes / 4 + SPARE_BYTES,
    };
    for (round, size) in sizes.iter().enumerate() {
        assert!(
            size.files <= most.files && size.bytes <= most.bytes,
            "the data directory grows: {first:?} after the first round, {size:?} after round {round}"
        );
    }
}

/// How large a directory is.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    files: u64,
    bytes: u64,
}

impl Size {
    /// Counts a directory and those below it. Nothing writes to it meanwhile.
    fn of(folder: &Path) -> Self {
        let mut size = Self::default();
        for entry in fs::read_dir(folder).expect("a directory is listed") {
            let entry = entry.expect("an entry is read");
            let about = entry.metadata().expect("an entry is there");
            let more = if about.is_dir() {
                Self::of(&entry.path())
            } else {
                Self {
                    files: 1,
                    bytes: about.len(),
                }
            };
            size.files += more.files;
            size.bytes += more.bytes;
        }
        size
    }
}

/// The most that any process took, where the system tells (`/proc`).
#[derive(Debug, Default)]
struct Peaks {
    /// Resident memory in KiB.
    memory: Option<u64>,
    open_files: Option<u64>,
}

impl Peaks {
    /// Asks about a running process; one that has just ended tells nothing.
    fn note(&mut self, id: u32) {
        self.memory = self.memory.max(resident(id));
        let open = fs::read_dir(format!("/proc/{id}/fd")).ok();
        self.open_files = self.open_files.max(open.map(|files| files.count() as u64));
    }
}

/// The greatest resident memory of a process so far, in KiB.
fn resident(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
