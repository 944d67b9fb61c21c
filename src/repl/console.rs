//! The two ways out: data to stdout, everything else to stderr.

use std::fmt::Display;
use std::io::{self, Write};

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
