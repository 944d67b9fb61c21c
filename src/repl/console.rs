//! The two ways out: data to stdout, everything else to stderr.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Writes data to stdout, and sees it off.
///
/// # Errors
/// - stdout does not take it; [`io::ErrorKind::BrokenPipe`] when its reader has gone
pub(crate) fn data(bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Writes a line for the person at the terminal to stderr.
pub(crate) fn note(text: impl Display) {
    // When stderr is gone there is nowhere left to tell.
    writeln!(io::stderr().lock(), "{text}").ok();
}

/// Columns of a picture where stdout is no terminal and nobody says how many.
const COLUMNS: usize = 80;

/// How many columns stdout has: those of its terminal, else those that `COLUMNS` says, else 80.
pub(crate) fn columns() -> usize {
    let terminal = ::console::Term::stdout().size_checked();
    let said = || std::env::var("COLUMNS").ok()?.trim().parse().ok();
    let columns = terminal.map(|(_, columns)| usize::from(columns));
    columns
        .filter(|columns| *columns > 0)
        .or_else(said)
        .unwrap_or(COLUMNS)
}

/// Whether data may have colours: on a terminal, unless `NO_COLOR` is set.
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && super::highlight::is_wanted()
}
