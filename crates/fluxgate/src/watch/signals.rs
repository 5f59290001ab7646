//! The signals that the service handles.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the service handles. A signal that arrives after this is created is kept
/// until it is awaited; before, it would end the process.
#[derive(Debug)]
pub(crate) struct Signals {
    /// SIGHUP: reload the rules.
    pub(crate) hangup: Option<Signal>,
    /// SIGTERM and Ctrl-C: shut down.
    pub(crate) shutdown: ShutdownSignals,
}

/// SIGTERM and Ctrl-C.
#[derive(Debug)]
pub(crate) struct ShutdownSignals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Signals {
    /// Installs the handlers. Must be called within a runtime.
    pub(crate) fn listen() -> Self {
        Self {
            hangup: listen(SignalKind::hangup()),
            shutdown: ShutdownSignals {
                terminate: listen(SignalKind::terminate()),
                interrupt: listen(SignalKind::interrupt()),
            },
        }
    }
}

impl ShutdownSignals {
    /// Waits for the first signal. The second ends the process at once.
    pub(crate) async fn wait(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(130);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            () = next_signal(&mut self.terminate) => {}
            () = next_signal(&mut self.interrupt) => {}
        }
    }
}

/// Waits for a signal; forever, if it cannot be handled.
pub(crate) async fn next_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

fn listen(kind: SignalKind) -> Option<Signal> {
    let signal = signal(kind);
    signal
        .map_err(|error| tracing::warn!(%error, "cannot handle a signal"))
        .ok()
}
