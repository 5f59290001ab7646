//! Connections to upstreams that wait for the next request. Each core has its
//! own, and asks no other.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use super::request_body::RequestBody;

/// How many a core keeps to one upstream.
const MOST_IDLE: usize = 256;
/// How often those are looked for that have waited too long.
const OFTEN: Duration = Duration::from_secs(5);

/// A connection to an upstream.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<RequestBody>,
    /// The upstream's number.
    pub(super) upstream: usize,
    /// How much has been read from it.
    pub(super) read: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    connection: Connection,
}

thread_local! {
    /// By the upstream's number; those that waited longest first.
    static IDLE: RefCell<Vec<Vec<Idle>>> = const { RefCell::new(Vec::new()) };
}

impl Connection {
    /// The one to this upstream that has waited for the shortest time.
    pub(super) fn waiting(upstream: usize) -> Option<Self> {
        IDLE.with_borrow_mut(|all| {
            let idle = all.get_mut(upstream)?;
            std::iter::from_fn(|| idle.pop())
                .map(|idle| idle.connection)
                .find(|connection| !connection.sender.is_closed())
        })
    }

    /// How much has been read from it so far.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Leaves it to the next request.
    pub(super) fn leave(self) {
        if self.sender.is_closed() {
            return;
        }
        // When the thread ends there is no next one.
        let _ = IDLE.try_with(|all| {
            let all = &mut *all.borrow_mut();
            if all.len() <= self.upstream {
                all.resize_with(self.upstream + 1, Vec::new);
            }
            let idle = &mut all[self.upstream];
            if idle.len() == MOST_IDLE {
                idle.remove(0);
            }
            idle.push(Idle {
                since: Instant::now(),
                connection: self,
            });
        });
    }
}

/// Closes those of this core that have waited for `idle`; for ever.
pub(super) async fn close_old_ones(idle: Duration) {
    let mut often = tokio::time::interval(OFTEN.min(idle));
    loop {
        often.tick().await;
        IDLE.with_borrow_mut(|all| {
            for waiting in all {
                waiting.retain(|it| it.since.elapsed() < idle && !it.connection.sender.is_closed());
            }
        });
    }
}
