//! The store is asked for a sign of life before the first request needs it.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_redis::BackOff;

use crate::engine::Engine;

/// Requests try as well, so this may take its time.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Tries until the store has answered once.
pub(super) async fn reach(engine: Arc<Engine>) {
    let Some(store) = engine.store().redis() else {
        return;
    };
    let mut back_off = BackOff::up_to(LONGEST_WAIT);
    let mut told = false;
    loop {
        match store.ping().await {
            Ok(()) => break,
            Err(error) if !told => {
                told = true;
                let reason = error.reason.name();
                tracing::warn!(reason, %error, "the store does not answer yet");
            }
            Err(_) => {}
        }
        tokio::time::sleep(back_off.next_wait()).await;
    }
    engine.store_was_reached();
    if told {
        tracing::info!("the store answers");
    }
}
