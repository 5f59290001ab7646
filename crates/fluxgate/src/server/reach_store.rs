//! Connects to the store before the first request needs it.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_redis::BackOff;

use crate::engine::Engine;

/// Requests connect as well, so this need not hurry.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Pings the store until it has answered once.
pub(super) async fn reach(engine: Arc<Engine>) {
    let Some(store) = engine.store().redis() else {
        return;
    };
    let mut back_off = BackOff::up_to(LONGEST_WAIT);
    let mut logged = false;
    loop {
        match store.ping().await {
            Ok(()) => break,
            Err(error) if !logged => {
                logged = true;
                let reason = error.reason.name();
                tracing::warn!(reason, %error, "the store does not answer yet");
            }
            Err(_) => {}
        }
        tokio::time::sleep(back_off.next_wait()).await;
    }
    engine.store_was_reached();
    if logged {
        tracing::info!("the store answers");
    }
}
