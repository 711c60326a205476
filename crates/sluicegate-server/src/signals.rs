//! Signals from the system.

use std::io;

/// A request to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT: stop.
    Stop,
    /// SIGHUP: reload the configuration.
    Reload,
}

#[cfg(unix)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Starts to listen for signals. From now on they do not end the process.
    pub(crate) fn new() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hang_up.recv() => Signal::Reload,
        }
    }

    /// Waits for the next signal to stop. One to reload stays queued.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Without SIGHUP there is only Ctrl-C.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals)
    }

    pub(crate) async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Stop
    }

    pub(crate) async fn stop(&mut self) {
        self.next().await;
    }
}
