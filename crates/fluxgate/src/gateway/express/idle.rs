//! Connections to upstreams that wait for the next request, on this core.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::gateway::upstream::UpstreamStream;

/// How many are kept of each upstream.
const MOST: usize = 256;

/// A connection, and since when it is idle.
type Idle = (UpstreamStream, Instant);

thread_local! {
    /// Of each upstream, by its number; those that were used last at the end.
    static IDLE: RefCell<Vec<VecDeque<Idle>>> = const { RefCell::new(Vec::new()) };
}

/// Begins to send over one that is still open; tells how much of it was sent.
/// `None` if there is none, and nothing was sent.
pub(super) fn send_over_kept(upstream: usize, bytes: &[u8]) -> Option<(UpstreamStream, usize)> {
    IDLE.with_borrow_mut(|all| {
        let idle = all.get_mut(upstream)?;
        loop {
            let (stream, _) = idle.pop_back()?;
            if is_open(&stream.tcp)
                && let Ok(sent) = stream.tcp.try_write(bytes)
            {
                return Some((stream, sent));
            }
        }
    })
}

/// Keeps one for the next request.
pub(super) fn give(upstream: usize, stream: UpstreamStream) {
    IDLE.with_borrow_mut(|all| {
        if all.len() <= upstream {
            all.resize_with(upstream + 1, VecDeque::new);
        }
        let idle = &mut all[upstream];
        idle.push_back((stream, Instant::now()));
        if idle.len() > MOST {
            idle.pop_front();
        }
    });
}

/// Closes those of this core that have been idle for `longest`, and those that are
/// closed already.
pub(in crate::gateway) fn close_expired(longest: Duration) {
    let oldest = Instant::now().checked_sub(longest);
    IDLE.with_borrow_mut(|all| {
        for idle in all {
            idle.retain(|(stream, since)| {
                oldest.is_none_or(|oldest| *since > oldest) && is_open(&stream.tcp)
            });
        }
    });
}

/// Closes up to `count` of this core, first those that have been idle for longest;
/// returns how many.
pub(in crate::gateway) fn close_oldest(count: usize) -> usize {
    IDLE.with_borrow_mut(|all| {
        let oldest = || {
            let idle = all.iter_mut().filter(|idle| !idle.is_empty());
            let idle = idle.min_by_key(|idle| idle.front().map(|(_, since)| *since))?;
            idle.pop_front()
        };
        std::iter::from_fn(oldest).take(count).count()
    })
}

/// Whether the upstream has neither closed it nor said anything: who speaks without
/// being asked means to leave. The system is asked, for we may not have heard yet:
/// a request that is sent to one who has left cannot be sent again.
fn is_open(stream: &TcpStream) -> bool {
    let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}
