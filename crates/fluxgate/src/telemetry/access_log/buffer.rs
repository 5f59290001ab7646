//! The lines of each thread that are not written yet.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use fluxgate_core::Percent;

use crate::identities::Identities;

/// How many bytes of each thread may wait to be written. Further lines are lost.
const MAX_BYTES: usize = 4 << 20;
/// With as many bytes, the writer is woken.
const FULL_BYTES: usize = 64 << 10;
/// How many names of addresses a thread remembers.
const MAX_ADDRESSES: usize = 1024;

/// The buffers of all threads.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Distinguishes logs in one process, which tests have.
    number: u64,
    all: Mutex<Vec<Arc<Mutex<Buffer>>>>,
    /// The thread that writes them.
    pub(super) writer: OnceLock<Thread>,
    /// Whether the file must be opened again.
    pub(super) reopens: AtomicBool,
    /// Whether no more lines follow.
    pub(super) has_ended: AtomicBool,
}

/// The lines of one thread. The writer locks it only to take them.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    lines: Vec<u8>,
    /// The share of requests that is due to be logged, in hundredths of a percent.
    due: u16,
    /// Names of addresses: to hash one takes longer than to write a line.
    addresses: HashMap<IpAddr, Arc<str>>,
    writer: Option<Thread>,
}

thread_local! {
    static LOCAL: RefCell<Option<(u64, Arc<Mutex<Buffer>>)>> = const { RefCell::new(None) };
}

impl Buffers {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            all: Mutex::default(),
            writer: OnceLock::new(),
            reopens: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Calls `append` with the buffer of this thread.
    pub(super) fn with_local<T>(&self, append: impl FnOnce(&mut Buffer) -> T) -> T {
        LOCAL.with_borrow_mut(|local| match local {
            Some((number, buffer)) if *number == self.number => append(&mut lock(buffer)),
            _ => {
                let (_, buffer) = local.insert((self.number, self.add()));
                append(&mut lock(buffer))
            }
        })
    }

    fn add(&self) -> Arc<Mutex<Buffer>> {
        let buffer = Buffer {
            writer: self.writer.get().cloned(),
            ..Buffer::default()
        };
        let buffer = Arc::new(Mutex::new(buffer));
        lock(&self.all).push(Arc::clone(&buffer));
        buffer
    }

    /// Takes the lines of every thread in turn, and passes them to `write`.
    pub(super) fn drain(&self, mut write: impl FnMut(&[u8])) {
        let mut taken = Vec::new();
        let all = lock(&self.all).clone();
        for buffer in all {
            taken.clear();
            {
                let mut buffer = lock(&buffer);
                std::mem::swap(&mut buffer.lines, &mut taken);
                // The names depend on a secret that may change.
                buffer.addresses.clear();
            }
            if !taken.is_empty() {
                write(&taken);
            }
        }
    }

    /// Wakes the writer.
    pub(super) fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}

impl Buffer {
    /// Returns whether the next request is logged: exactly this share is.
    pub(super) fn is_in_sample(&mut self, share: Percent) -> bool {
        const ALL: u16 = 10_000;
        self.due += share.hundredths();
        if self.due >= ALL {
            self.due -= ALL;
            return true;
        }
        false
    }

    /// Appends the line that `write` writes. Returns `false` if it does not fit.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.lines.len();
        if before >= MAX_BYTES {
            return false;
        }
        write(&mut self.lines);
        let is_full = before < FULL_BYTES && self.lines.len() >= FULL_BYTES;
        if let Some(writer) = self.writer.as_ref().filter(|_| is_full) {
            writer.unpark();
        }
        true
    }

    /// Returns an address as logs name it.
    pub(super) fn address_in_logs(&mut self, ip: IpAddr, identities: &Identities) -> Arc<str> {
        if let Some(name) = self.addresses.get(&ip) {
            return Arc::clone(name);
        }
        if self.addresses.len() >= MAX_ADDRESSES {
            self.addresses.clear();
        }
        let name: Arc<str> = identities.address_in_logs(ip).into();
        self.addresses.insert(ip, Arc::clone(&name));
        name
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_share_is_logged() {
        for (share, expected) in [("100%", 1000), ("12.5%", 125), ("0.1%", 1), ("0%", 0)] {
            let mut buffer = Buffer::default();
            let share: Percent = share.parse().unwrap();
            let logged = (0..1000).filter(|_| buffer.is_in_sample(share)).count();
            assert_eq!(logged, expected, "{share}");
        }
    }

    #[test]
    fn a_buffer_is_bounded_and_can_be_used_again() {
        let buffers = Buffers::new();
        let append = || buffers.with_local(|it| it.append(|text| text.extend([b'x'; 1000])));
        let appended = (0..10_000).filter(|_| append()).count();
        assert_eq!(appended, MAX_BYTES.div_ceil(1000));
        let mut drained = 0;
        buffers.drain(|lines| drained += lines.len());
        assert_eq!(drained, appended * 1000);
        assert!(append());
    }
}
