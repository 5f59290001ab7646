//! What the system tells the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits until the process is to end: SIGTERM, or Ctrl-C. When told so again,
/// it ends at once.
pub(super) async fn wait_for_end() {
    let (mut terminate, mut interrupt) = (
        listen(SignalKind::terminate()),
        listen(SignalKind::interrupt()),
    );
    told(&mut terminate, &mut interrupt).await;
    tokio::spawn(async move {
        told(&mut terminate, &mut interrupt).await;
        std::process::exit(130);
    });
}

async fn told(terminate: &mut Option<Signal>, interrupt: &mut Option<Signal>) {
    tokio::select! {
        () = next(terminate) => {}
        () = next(interrupt) => {}
    }
}

fn listen(kind: SignalKind) -> Option<Signal> {
    let signal = signal(kind);
    signal
        .map_err(|error| tracing::warn!(%error, "a signal cannot be listened to"))
        .ok()
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
