//! The faults of a proxy.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The treatment of all bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards them.
    Pass,
    /// Forwards them after a delay, in each direction.
    Delay(Duration),
    /// Discards them. A connection opened in this mode never reaches the server, even if the
    /// mode changes.
    BlackHole,
    /// Resets new connections. Existing ones go on.
    Refuse,
}

/// A fault of one reply, whose request has reached the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// Forwards only the first bytes and closes the connection.
    Cut(usize),
    /// Discards the reply. The connection stays open, and the client takes the next reply
    /// for this one.
    Swallow,
    /// Discards the reply and closes the connection.
    SwallowAndClose,
    /// Sends these bytes before the reply.
    Inject(Vec<u8>),
    /// Sends these bytes instead of the reply.
    Replace(Vec<u8>),
}

impl ReplyFault {
    /// Returns the bytes to send, and whether to close the connection then.
    pub(super) fn apply(self, mut reply: Vec<u8>) -> (Vec<u8>, bool) {
        match self {
            Self::Cut(length) => {
                reply.truncate(length);
                (reply, true)
            }
            Self::Swallow => (Vec::new(), false),
            Self::SwallowAndClose => (Vec::new(), true),
            Self::Inject(mut bytes) => {
                bytes.append(&mut reply);
                (bytes, false)
            }
            Self::Replace(bytes) => (bytes, false),
        }
    }
}

/// A fault that is not applied yet.
#[derive(Debug)]
pub(super) struct PendingFault {
    /// The bytes that the request must contain; empty matches every request.
    request: Vec<u8>,
    fault: ReplyFault,
}

impl PendingFault {
    pub(super) fn for_any(fault: ReplyFault) -> Self {
        Self::for_request(&[], fault)
    }

    pub(super) fn for_request(request: &[u8], fault: ReplyFault) -> Self {
        Self {
            request: request.to_vec(),
            fault,
        }
    }

    fn matches(&self, request: Option<&[u8]>) -> bool {
        let size = self.request.len();
        size == 0 || request.is_some_and(|it| it.windows(size).any(|part| part == self.request))
    }
}

/// The queue of faults.
#[derive(Debug, Default)]
pub(super) struct PendingFaults(VecDeque<PendingFault>);

impl PendingFaults {
    pub(super) fn push(&mut self, fault: PendingFault) {
        self.0.push_back(fault);
    }

    /// Takes the first fault that matches a request.
    pub(super) fn take(&mut self, request: Option<&[u8]>) -> Option<ReplyFault> {
        let found = self.0.iter().position(|fault| fault.matches(request))?;
        self.0.remove(found).map(|pending| pending.fault)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[derive(Debug)]
pub(super) struct ProxyState {
    pub(super) upstream: SocketAddr,
    pub(super) mode: Mutex<Mode>,
    pub(super) faults: Mutex<PendingFaults>,
    pub(super) stopped: AtomicBool,
    pub(super) accepted: AtomicU64,
    pub(super) open: AtomicUsize,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
}

impl ProxyState {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        Self {
            upstream,
            mode: Mutex::new(Mode::Pass),
            faults: Mutex::default(),
            stopped: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_waits_for_a_matching_request() {
        let mut faults = PendingFaults::default();
        faults.push(PendingFault::for_request(b"EVAL", ReplyFault::Swallow));
        faults.push(PendingFault::for_any(ReplyFault::Cut(1)));
        faults.push(PendingFault::for_any(ReplyFault::Cut(2)));
        assert_eq!(faults.take(Some(b"PING")), Some(ReplyFault::Cut(1)));
        assert_eq!(faults.take(Some(b"EVALSHA x")), Some(ReplyFault::Swallow));
        assert_eq!(faults.take(None), Some(ReplyFault::Cut(2)));
        assert_eq!((faults.take(Some(b"EVAL")), faults.len()), (None, 0));
    }

    #[test]
    fn every_fault_is_applied_to_a_reply() {
        let apply = |fault: ReplyFault| {
            let (bytes, close) = fault.apply(b"+OK\r\n".to_vec());
            (String::from_utf8(bytes).unwrap(), close)
        };
        assert_eq!(apply(ReplyFault::Cut(2)), ("+O".to_owned(), true));
        assert_eq!(apply(ReplyFault::Swallow), (String::new(), false));
        assert_eq!(apply(ReplyFault::SwallowAndClose), (String::new(), true));
        let injected = apply(ReplyFault::Inject(b"x".to_vec()));
        assert_eq!(injected, ("x+OK\r\n".to_owned(), false));
        let replaced = apply(ReplyFault::Replace(b"x".to_vec()));
        assert_eq!(replaced, ("x".to_owned(), false));
    }
}
