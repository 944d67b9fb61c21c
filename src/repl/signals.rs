//! SIGTERM, which ends the program from wherever it is, and the terminal that it must be left with.

use std::io;

use tokio::sync::watch;

/// Tells whether SIGTERM has come, however long ago.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    terminated: watch::Receiver<bool>,
}

impl Signals {
    /// Listens from now on: the signal does not end the process by itself any more.
    ///
    /// # Errors
    /// - the system does not let us listen
    pub(crate) fn listen() -> io::Result<Self> {
        let (sender, terminated) = watch::channel(false);
        listen(sender)?;
        Ok(Self { terminated })
    }

    /// Waits for SIGTERM; returns at once if it has come.
    pub(crate) async fn terminated(&self) {
        let mut terminated = self.terminated.clone();
        if terminated.wait_for(|terminated| *terminated).await.is_err() {
            // There is no such signal here.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
fn listen(sender: watch::Sender<bool>) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        if terminate.recv().await.is_some() {
            sender.send_replace(true);
        }
    });
    Ok(())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
fn listen(_: watch::Sender<bool>) -> io::Result<()> {
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
