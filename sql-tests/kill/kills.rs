//! The kill loop: rounds, one after the other, until there were so many kills.

use std::fmt;
use std::time::{Duration, Instant};

use crate::fuse::Fuse;
use crate::job::{Job, TABLES};
use crate::process::Ending;
use crate::round::{Found, Round};

/// Runs and kills jobs, and ends the test at the first row too few or too many.
pub(crate) fn run(kills: u64, seed: u64) {
    eprintln!("TIDEGATE_KILL_SEED={seed}");
    let started = Instant::now();
    let mut job = Job::prepare();
    let mut round = Round::begin(&job, "undisturbed");
    let (undisturbed, _) = round.finish(&mut job);
    round.remove();

    let mut fuse = Fuse::new(seed, undisturbed);
    let mut figures = Figures::new(undisturbed);
    let mut round = Round::begin(&job, &name(&figures));
    let mut before = 0;
    while figures.kills < kills {
        match round.run(Some(fuse.draw()), |_| ()) {
            Ending::Killed => {
                let found = round.check(&mut job);
                figures.add_kill(found);
                // Where nothing more can come, its absence tells nothing.
                if found.complete < TABLES.len() {
                    fuse.learn(found.rows > before);
                }
                before = found.rows;
            }
            Ending::Finished(_) => {
                let found = round.check_whole(&mut job);
                figures.add_round(found, &round);
                round.remove();
                round = Round::begin(&job, &name(&figures));
                before = 0;
            }
        }
    }
    let (_, found) = round.finish(&mut job);
    figures.add_round(found, &round);
    round.remove();
    figures.took = started.elapsed();
    eprint!("{figures}");
}

/// The name of the next round.
fn name(figures: &Figures) -> String {
    format!("round-{:06}", figures.rounds)
}

/// What was done.
#[derive(Debug)]
struct Figures {
    undisturbed: Duration,
    took: Duration,
    kills: u64,
    /// Kills before which no row was there.
    before_first_row: u64,
    /// Kills by how many tables were complete: at the last place, all.
    by_complete: [u64; TABLES.len() + 1],
    rounds: u64,
    /// Rows read and compared, those of all checks.
    rows: u64,
    files: u64,
    looks: u64,
}

impl Figures {
    fn new(undisturbed: Duration) -> Self {
        Self {
            undisturbed,
            took: Duration::ZERO,
            kills: 0,
            before_first_row: 0,
            by_complete: [0; TABLES.len() + 1],
            rounds: 0,
            rows: 0,
            files: 0,
            looks: 0,
        }
    }

    fn add_kill(&mut self, found: Found) {
        self.kills += 1;
        self.rows += found.rows as u64;
        if found.rows == 0 {
            self.before_first_row += 1;
        } else {
            self.by_complete[found.complete] += 1;
        }
    }

    fn add_round(&mut self, found: Found, round: &Round) {
        self.rounds += 1;
        self.rows += found.rows as u64;
        self.files += round.files().seen() as u64;
        self.looks += round.files().looks();
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, figure: String| writeln!(f, "{what:<34}{figure}");
        line("kills", self.kills.to_string())?;
        line("  before the first row", self.before_first_row.to_string())?;
        for (kills, table) in self.by_complete.iter().zip(&TABLES) {
            let what = format!("  before the last row of {}", table.name);
            line(&what, kills.to_string())?;
        }
        let after = self.by_complete[TABLES.len()];
        line("  after the last row", after.to_string())?;
        line("rounds", self.rounds.to_string())?;
        line("rows compared", self.rows.to_string())?;
        line("rows lost, doubled", "0, 0".to_owned())?;
        line("files seen", self.files.to_string())?;
        line("looks at files", self.looks.to_string())?;
        let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
        line("seconds of a job alone", seconds(self.undisturbed))?;
        line("seconds", seconds(self.took))
    }
}
