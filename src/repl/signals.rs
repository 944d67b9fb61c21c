//! Ctrl-C and SIGTERM, and the terminal that the program must be left with.

use std::io;

use tokio::sync::watch;

/// The signals that have come since the program listens.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    terminated: watch::Receiver<bool>,
    /// Number of Ctrl-C; none of them has been looked at.
    interrupts: watch::Receiver<u64>,
}

/// Waits for Ctrl-C.
#[derive(Debug)]
pub(crate) struct Interrupts(watch::Receiver<u64>);

impl Signals {
    /// Listens from now on: the signals do not end the process by themselves any more.
    ///
    /// # Errors
    /// - the system does not let us listen
    pub(crate) fn listen() -> io::Result<Self> {
        let (terminate, terminated) = watch::channel(false);
        let (interrupt, interrupts) = watch::channel(0);
        listen(terminate, interrupt)?;
        Ok(Self {
            terminated,
            interrupts,
        })
    }

    /// Waits for SIGTERM; returns at once if it has come.
    pub(crate) async fn terminated(&self) {
        let mut terminated = self.terminated.clone();
        if terminated.wait_for(|terminated| *terminated).await.is_err() {
            // There is no such signal here.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for Ctrl-C: also one that has come already, unless only those from now on are meant.
    pub(crate) fn interrupts(&self, only_new: bool) -> Interrupts {
        let mut interrupts = self.interrupts.clone();
        if only_new {
            interrupts.mark_unchanged();
        }
        Interrupts(interrupts)
    }
}

impl Interrupts {
    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The system tells of none any more.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
fn listen(terminate: watch::Sender<bool>, interrupt: watch::Sender<u64>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminates = signal(SignalKind::terminate())?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        if terminates.recv().await.is_some() {
            terminate.send_replace(true);
        }
    });
    tokio::spawn(async move {
        while interrupts.recv().await.is_some() {
            interrupt.send_modify(|count| *count += 1);
        }
    });
    Ok(())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
fn listen(_: watch::Sender<bool>, interrupt: watch::Sender<u64>) -> io::Result<()> {
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            interrupt.send_modify(|count| *count += 1);
        }
    });
    Ok(())
}

/// The settings of the terminal, to be put back when the line editor, which has its own, is left while it
/// waits for a key.
#[derive(Debug)]
pub(crate) struct Terminal {
    #[cfg(unix)]
    settings: Option<nix::sys::termios::Termios>,
}

#[cfg(unix)]
impl Terminal {
    /// The settings as they are.
    pub(crate) fn now() -> Self {
        Self {
            settings: nix::sys::termios::tcgetattr(io::stdin()).ok(),
        }
    }

    /// Puts them back.
    pub(crate) fn restore(&self) {
        use nix::sys::termios::{SetArg, tcsetattr};

        if let Some(settings) = &self.settings {
            // A terminal that is gone needs no settings.
            tcsetattr(io::stdin(), SetArg::TCSADRAIN, settings).ok();
        }
    }
}

#[cfg(not(unix))]
impl Terminal {
    /// The settings as they are.
    pub(crate) fn now() -> Self {
        Self {}
    }

    /// Puts them back.
    pub(crate) fn restore(&self) {}
}
