//! The state that the proxy shares with its connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fault::{Mode, PendingFaults};

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
