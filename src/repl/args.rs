//! The command line.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::print::Format;
use super::source::Input;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Options {
    /// What to do.
    pub(crate) request: Request,
    /// How rows are printed.
    pub(crate) format: Format,
    /// Neither banner nor messages.
    pub(crate) quiet: bool,
    /// Where tables and checkpoints are kept; none for in memory.
    pub(crate) data_dir: Option<PathBuf>,
    /// Bytes that queries may hold.
    pub(crate) memory_limit: Option<usize>,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Request {
    /// Read statements from a person.
    Prompt,
    /// Run these, in this order.
    Scripts(Vec<Input>),
    /// Run sqllogictest suites.
    Test {
        /// Files, and directories of files.
        paths: Vec<PathBuf>,
        /// Write the answers into the files.
        complete: bool,
        /// Suites that run at a time, 1 or more.
        jobs: usize,
    },
}

/// SQL with event-time watermarks and streaming windows, on Apache DataFusion.
///
/// Without -c and -f: a prompt, or the statements on stdin when that is not a terminal.
/// Data goes to stdout, everything else to stderr. Behind -c, -f and stdin it stays while a query runs that
/// ALTER STREAMING TABLE name START has started; SIGINT and SIGTERM are then its ordinary end.
/// Exit codes: 0; 1, a statement or a started query failed; 2, wrong usage or an unreadable file;
/// 130, interrupted; 143, terminated.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, args_conflicts_with_subcommands = true)]
struct Args {
    /// Run these statements; may be repeated and mixed with -f, in order
    #[arg(short = 'c', long, value_name = "SQL", allow_hyphen_values = true)]
    command: Vec<String>,
    /// Run the statements of a file (`-`: stdin); may be repeated
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// How rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// No banner and no messages but errors
    #[arg(short, long)]
    quiet: bool,
    /// Keep tables, streaming tables and their checkpoints in this directory [default: in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// How much memory queries may hold, such as 64MB or 2GiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory_limit: Option<usize>,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run sqllogictest suites
    Test {
        /// Suites, and directories of suites
        #[arg(required = true, value_name = "FILE_OR_DIR")]
        paths: Vec<PathBuf>,
        /// Write the answers into the files instead of comparing with them
        #[arg(long)]
        complete: bool,
        /// Suites that run at a time [default: number of processors]
        #[arg(long, value_name = "N")]
        jobs: Option<NonZeroUsize>,
    },
}

/// Reads the process's own command line.
///
/// # Errors
/// - wrong usage, or `--help` and `--version`, which clap calls errors too
pub(crate) fn parse() -> Result<Options, clap::Error> {
    parse_from(std::env::args_os(), std::io::stdin().is_terminal())
}

/// Prints what clap has to say and returns the exit code: 2 for wrong usage, 0 for help.
pub(crate) fn explain(message: &clap::Error) -> ExitCode {
    // When the stream is gone there is nowhere left to tell.
    message.print().ok();
    u8::try_from(message.exit_code()).map_or(ExitCode::from(2), ExitCode::from)
}

fn parse_from(
    words: impl IntoIterator<Item = OsString>,
    stdin_is_terminal: bool,
) -> Result<Options, clap::Error> {
    let matches = Args::command().try_get_matches_from(words)?;
    let args = Args::from_arg_matches(&matches)?;
    let request = match args.action {
        Some(Action::Test {
            paths,
            complete,
            jobs,
        }) => Request::Test {
            paths,
            complete,
            jobs: jobs.or_else(processors).map_or(1, NonZeroUsize::get),
        },
        None => match inputs(&matches) {
            inputs if !inputs.is_empty() => Request::Scripts(inputs),
            _ if stdin_is_terminal => Request::Prompt,
            _ => Request::Scripts(vec![Input::Stdin]),
        },
    };
    Ok(Options {
        request,
        format: args.format,
        quiet: args.quiet,
        data_dir: args.data_dir,
        memory_limit: args.memory_limit,
    })
}

/// Reads a size: a number with a unit of 1000 (KB, MB, GB) or of 1024 (KiB, MiB, GiB; also K, M, G).
fn bytes(text: &str) -> Result<usize, String> {
    let digits =
        text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == ' ');
    let unit = text
        .get(digits.len()..)
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let unit = match unit.as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return Err("write a number and KB, MB, GB, KiB, MiB or GiB".to_owned()),
    };
    let number: f64 = digits
        .trim()
        .parse()
        .map_err(|_| "write a number first, as in 64MB".to_owned())?;
    let size = number * f64::from(unit);
    if !(1.0..=1e15).contains(&size) {
        return Err("write a size between 1 byte and 1,000,000 GB".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is in the range that was just checked"
    )]
    let size = size as usize;
    Ok(size)
}

fn processors() -> Option<NonZeroUsize> {
    std::thread::available_parallelism().ok()
}

/// The -c and -f, in the order in which they were written.
fn inputs(matches: &ArgMatches) -> Vec<Input> {
    let mut inputs: Vec<(usize, Input)> = Vec::new();
    if let (Some(places), Some(texts)) = (
        matches.indices_of("command"),
        matches.get_many::<String>("command"),
    ) {
        inputs.extend(places.zip(texts.cloned().map(Input::Text)));
    }
    if let (Some(places), Some(paths)) = (
        matches.indices_of("file"),
        matches.get_many::<PathBuf>("file"),
    ) {
        inputs.extend(places.zip(paths.cloned().map(Input::from)));
    }
    inputs.sort_by_key(|(place, _)| *place);
    inputs.into_iter().map(|(_, input)| input).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str], stdin_is_terminal: bool) -> Result<Options, clap::Error> {
        let words = std::iter::once(&"tidegate")
            .chain(words)
            .map(OsString::from);
        parse_from(words, stdin_is_terminal)
    }

    #[test]
    fn commands_and_files_keep_their_order() {
        let options = parsed(&["-c", "A", "-f", "b.sql", "-c", "-- C", "-f", "-"], true).unwrap();
        let Request::Scripts(inputs) = options.request else {
            panic!("not scripts");
        };
        assert_eq!(
            inputs,
            [
                Input::Text("A".to_owned()),
                Input::File("b.sql".into()),
                Input::Text("-- C".to_owned()),
                Input::Stdin,
            ]
        );
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("64MB"), Ok(64_000_000));
        assert_eq!(bytes("1.5 KiB"), Ok(1_536));
        assert_eq!(bytes("7"), Ok(7));
        for wrong in ["", "MB", "-1MB", "64 monkeys", "nan", "inf", "1e30"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stdin_is_read_when_it_is_not_a_terminal() {
        assert!(matches!(
            parsed(&[], true).unwrap().request,
            Request::Prompt
        ));
        assert!(matches!(
            parsed(&[], false).unwrap().request,
            Request::Scripts(inputs) if inputs == [Input::Stdin]
        ));
    }

    #[test]
    fn wrong_usage_has_exit_code_2() {
        for words in [
            &["--format", "xml"][..],
            &["test"],
            &["test", "--jobs", "0", "a.slt"],
            &["-c", "A", "test", "a.slt"],
            &["nonsense"],
        ] {
            assert_eq!(parsed(words, true).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
