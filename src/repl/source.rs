//! Where the lines of a script come from.
//!
//! A file may be a pipe whose writer thinks for a while. Lines are therefore read on a thread of their
//! own and waited for without blocking, so that Ctrl-C is heard meanwhile and a statement runs as soon as
//! it is complete.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

/// Lines that may be read ahead of the statement that runs.
const READ_AHEAD: usize = 1024;

/// Something that holds statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// The text itself.
    Text(String),
    /// A file.
    File(PathBuf),
    /// Stdin.
    Stdin,
}

impl From<PathBuf> for Input {
    /// `-` is stdin.
    fn from(path: PathBuf) -> Self {
        if path == Path::new("-") {
            Self::Stdin
        } else {
            Self::File(path)
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("-c"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Stdin => f.write_str("stdin"),
        }
    }
}

/// Lines of an [`Input`], each with its line feed.
#[derive(Debug)]
pub(crate) struct Lines {
    receiver: mpsc::Receiver<io::Result<String>>,
}

impl Lines {
    /// Opens an input and starts to read it.
    ///
    /// # Errors
    /// - the file cannot be opened
    pub(crate) fn open(input: &Input) -> io::Result<Self> {
        let reader: Box<dyn Read + Send> = match input {
            Input::Text(text) => Box::new(io::Cursor::new(text.clone())),
            Input::File(path) => Box::new(File::open(path)?),
            Input::Stdin => Box::new(io::stdin()),
        };
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        // The runtime waits for its own blocking threads when it ends; nothing waits for this one.
        std::thread::Builder::new()
            .name("script".to_owned())
            .spawn(move || read(BufReader::new(reader), &sender))?;
        Ok(Self { receiver })
    }

    /// The next line, or nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<io::Result<String>> {
        self.receiver.recv().await
    }
}

/// Sends line after line until the end, an error, or the loss of interest of the receiver.
fn read(mut reader: impl BufRead, sender: &mpsc::Sender<io::Result<String>>) {
    loop {
        let mut line = String::new();
        let (line, last) = match reader.read_line(&mut line) {
            Ok(0) => return,
            Ok(_) => (Ok(line), false),
            Err(error) => (Err(error), true),
        };
        if sender.blocking_send(line).is_err() || last {
            return;
        }
    }
}
