//! The prompt: read an entry, run it, again.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use rustyline::config::{Behavior, CompletionType};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Config, Editor};
use tokio::sync::oneshot;

use super::console::note;
use super::helper::Assistant;
use super::names::Names;
use super::session::{End, Shell};
use super::signals::Terminal;
use super::source::Input;
use super::{commands, highlight, script};

/// What stands before the first line of an entry.
const PROMPT: &str = "tidegate> ";

/// Entries that the history keeps.
const HISTORY: usize = 10_000;

type Prompt = Editor<Assistant, DefaultHistory>;

/// The editor back, and what was entered.
type Answer = (Prompt, Result<String, ReadlineError>);

/// Reads and runs entries until Ctrl-D, `.quit`, or the loss of the terminal.
///
/// # Errors
/// - [`End::Quit`], when `.quit`
/// - [`End::Hangup`], when the reader of stdout has gone
/// - [`End::Unreadable`], when the terminal cannot be read
/// - [`End::Terminated`], when SIGTERM
pub(crate) async fn run(shell: &mut Shell) -> Result<(), End> {
    let colours = highlight::is_wanted();
    let mut editor = editor(colours).map_err(|error| unusable(&error))?;
    let history = history_file(|name| std::env::var_os(name));
    load(&mut editor, history.as_deref());
    if !shell.is_quiet() {
        greet();
    }
    let styled = match colours {
        true => highlight::prompt(PROMPT),
        false => PROMPT.to_owned(),
    };
    let terminal = Terminal::now();
    loop {
        shell.tell_failures();
        if let Some(assistant) = editor.helper_mut() {
            assistant.names = Names::of(&shell.context).await;
        }
        let asked = ask(editor, styled.clone())?;
        let Ok(asked) = shell.unless_terminated(asked).await else {
            // The editor is left as it waits for a key.
            terminal.restore();
            note("terminated");
            return Err(End::Terminated);
        };
        let Ok((back, entry)) = asked else {
            note("error: the line editor broke");
            return Err(End::Unreadable);
        };
        editor = back;
        match entry {
            Ok(entry) => {
                remember(&mut editor, &entry, history.as_deref());
                match enter(shell, entry).await {
                    Err(end @ (End::Quit | End::Hangup | End::Terminated)) => return Err(end),
                    Ok(()) | Err(End::Failed | End::Unreadable | End::Interrupted) => {}
                }
            }
            // Ctrl-C leaves the entry, a resized window changes nothing.
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(unusable(&error)),
        }
    }
}

/// Waits for an entry on a thread of its own, which nothing waits for when the program ends meanwhile.
fn ask(mut editor: Prompt, styled: String) -> Result<oneshot::Receiver<Answer>, End> {
    let (sender, receiver) = oneshot::channel();
    let reads = move || {
        let entry = editor.readline(&(PROMPT, styled.as_str()));
        // Nobody waits any more when the program ends.
        sender.send((editor, entry)).ok();
    };
    match std::thread::Builder::new()
        .name("prompt".to_owned())
        .spawn(reads)
    {
        Ok(_) => Ok(receiver),
        Err(error) => Err(unusable(&ReadlineError::Io(error))),
    }
}

/// Runs what was entered: a command, or statements up to the first that fails.
async fn enter(shell: &mut Shell, entry: String) -> Result<(), End> {
    match commands::bare(&entry) {
        Some(command) => commands::run(shell, command).await,
        None => script::run_input(shell, &Input::Text(entry)).await,
    }
}

fn editor(colours: bool) -> rustyline::Result<Prompt> {
    // With stdout sent elsewhere the prompt still belongs on the terminal.
    let behavior = match std::io::stdout().is_terminal() {
        true => Behavior::Stdio,
        false => Behavior::PreferTerm,
    };
    let config = Config::builder()
        .behavior(behavior)
        .completion_type(CompletionType::List)
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .max_history_size(HISTORY)?
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Assistant::new(colours)));
    Ok(editor)
}

fn greet() {
    note(format_args!(
        "tidegate {}, on DataFusion {}",
        env!("CARGO_PKG_VERSION"),
        datafusion::DATAFUSION_VERSION
    ));
    note("Statements end with a semicolon; .help lists commands, .quit ends.");
}

fn unusable(error: &ReadlineError) -> End {
    note(format_args!("error: cannot read the terminal: {error}"));
    End::Unreadable
}

/// The file that keeps entries: `TIDEGATE_HISTORY` (none if that is empty), or a file among the user's
/// state; none without a home.
fn history_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = variable("TIDEGATE_HISTORY") {
        return (!path.is_empty()).then(|| path.into());
    }
    let state = variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        // The XDG specification has relative paths ignored.
        .filter(|path| path.is_absolute())
        .or_else(|| {
            let home = variable("HOME").filter(|home| !home.is_empty())?;
            Some(Path::new(&home).join(".local/state"))
        })?;
    Some(state.join("tidegate/history"))
}

/// Loads the history and sees to it that there is a folder for it.
fn load(editor: &mut Prompt, history: Option<&Path>) {
    let Some(history) = history else { return };
    let loaded = match history.parent() {
        Some(folder) => std::fs::create_dir_all(folder).map_err(ReadlineError::from),
        None => Ok(()),
    }
    .and_then(|()| match history.exists() {
        true => editor.load_history(history),
        false => Ok(()),
    });
    if let Err(error) = loaded {
        note(format_args!(
            "the history {} cannot be used: {error}",
            history.display()
        ));
    }
}

/// Adds an entry to the history, at once, so that a crash does not lose it.
fn remember(editor: &mut Prompt, entry: &str, history: Option<&Path>) {
    if entry.trim().is_empty() {
        return;
    }
    let Ok(true) = editor.add_history_entry(entry.trim_end()) else {
        return;
    };
    if let Some(history) = history {
        // What can be wrong with the file was told when it was loaded.
        editor.append_history(history).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(variables: &[(&str, &str)]) -> Option<PathBuf> {
        history_file(|name| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_history_is_where_the_user_wants_it() {
        let home = ("HOME", "/home/a");
        assert_eq!(
            file(&[
                home,
                ("XDG_STATE_HOME", "/state"),
                ("TIDEGATE_HISTORY", "h")
            ]),
            Some("h".into())
        );
        assert_eq!(
            file(&[home, ("XDG_STATE_HOME", "/state")]),
            Some("/state/tidegate/history".into())
        );
        assert_eq!(
            file(&[home, ("XDG_STATE_HOME", "state")]),
            Some("/home/a/.local/state/tidegate/history".into())
        );
        assert_eq!(file(&[home, ("TIDEGATE_HISTORY", "")]), None);
        assert_eq!(file(&[]), None);
    }
}
