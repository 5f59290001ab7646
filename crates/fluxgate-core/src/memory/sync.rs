//! The atomics of [`super::line`]: real ones, or loom's, which try every order
//! in which threads can meet.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Waits a little for another thread: longer the more often it was in vain.
#[cfg(not(loom))]
pub(super) fn spin(tries: u32) {
    const IN_PLACE: u32 = 6;
    if tries < IN_PLACE {
        for _ in 0..1 << tries {
            std::hint::spin_loop();
        }
    } else {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
pub(super) fn spin(_tries: u32) {
    loom::thread::yield_now();
}
