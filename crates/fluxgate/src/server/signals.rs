//! What the system tells the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that mean something to the service. What comes once this is made
/// waits until somebody asks; before, the system would end the process.
#[derive(Debug)]
pub(super) struct Signals {
    /// SIGHUP: the rules are to be read again.
    pub(super) hang_up: Option<Signal>,
    pub(super) end: End,
}

/// SIGTERM and Ctrl-C.
#[derive(Debug)]
pub(super) struct End {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Signals {
    /// Listens to them from now on. The runtime must be entered.
    pub(super) fn listen() -> Self {
        Self {
            hang_up: listen(SignalKind::hangup()),
            end: End {
                terminate: listen(SignalKind::terminate()),
                interrupt: listen(SignalKind::interrupt()),
            },
        }
    }
}

impl End {
    /// Waits until the process is to end. When told so again, it ends at once.
    pub(super) async fn wait(mut self) {
        self.told().await;
        tokio::spawn(async move {
            self.told().await;
            std::process::exit(130);
        });
    }

    async fn told(&mut self) {
        tokio::select! {
            () = next(&mut self.terminate) => {}
            () = next(&mut self.interrupt) => {}
        }
    }
}

/// Waits for a signal; for ever, if it cannot be listened to.
pub(crate) async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

fn listen(kind: SignalKind) -> Option<Signal> {
    let signal = signal(kind);
    signal
        .map_err(|error| tracing::warn!(%error, "a signal cannot be listened to"))
        .ok()
}
