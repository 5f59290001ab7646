//! The memory for bodies of calls, which are held as a whole until they are sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::error::GatewayError;

/// The capacity that a body of unknown length begins with.
const FIRST_CAPACITY: u64 = 4 * 1024;

/// Bounds the memory that all bodies of calls take together, on all connections.
#[derive(Debug)]
pub(crate) struct BodyBuffer {
    max: u64,
    used: AtomicU64,
}

impl BodyBuffer {
    pub(crate) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self {
            max,
            used: AtomicU64::new(0),
        })
    }

    /// Starts a body of at most `max` bytes.
    ///
    /// What a client declares takes no memory, and so it takes no part of the bound either:
    /// otherwise a few clients that declare much and send nothing would lock out the others.
    pub(crate) fn start(self: &Arc<Self>, max: u64) -> BufferedBody {
        BufferedBody {
            content: Vec::new(),
            max,
            permit: BufferPermit {
                buffer: Arc::clone(self),
                bytes: 0,
            },
        }
    }

    /// Returns whether `bytes` more fit, and adds them.
    fn acquire(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max);
        let ordering = Ordering::Relaxed;
        self.used.fetch_update(ordering, ordering, more).is_ok()
    }
}

/// A part of the buffer, which is returned when it is dropped.
#[derive(Debug)]
struct BufferPermit {
    buffer: Arc<BodyBuffer>,
    bytes: u64,
}

impl BufferPermit {
    /// Returns whether the part could be extended to `bytes`.
    fn extend_to(&mut self, bytes: u64) -> bool {
        let is_acquired = self.buffer.acquire(bytes.saturating_sub(self.bytes));
        if is_acquired {
            self.bytes = self.bytes.max(bytes);
        }
        is_acquired
    }

    fn shrink_to(&mut self, bytes: u64) {
        let rest = self.bytes.saturating_sub(bytes);
        self.buffer.used.fetch_sub(rest, Ordering::Relaxed);
        self.bytes -= rest;
    }
}

impl Drop for BufferPermit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// The body of a call. The buffer counts every byte of its capacity.
#[derive(Debug)]
pub(crate) struct BufferedBody {
    content: Vec<u8>,
    max: u64,
    permit: BufferPermit,
}

impl BufferedBody {
    /// Appends a part of the body. It is copied, because a part may keep a larger block of
    /// memory alive, which the buffer does not count.
    pub(crate) fn append(&mut self, part: &[u8]) -> Result<(), GatewayError> {
        let needed = self.content.len() as u64 + part.len() as u64;
        if needed > self.max {
            return Err(GatewayError::BodyTooLarge(self.max));
        }
        let capacity = self.permit.bytes;
        if needed > capacity {
            let doubled = (2 * capacity).max(FIRST_CAPACITY).min(self.max).max(needed);
            // Near the bound, the needed size may fit where twice as much does not.
            if !self.permit.extend_to(doubled) && !self.permit.extend_to(needed) {
                return Err(GatewayError::BufferFull);
            }
            let more = self.permit.bytes - self.content.len() as u64;
            self.content
                .reserve_exact(usize::try_from(more).unwrap_or(part.len()));
        }
        self.content.extend_from_slice(part);
        Ok(())
    }

    /// Takes the end of the body.
    pub(crate) fn finish(mut self) -> Self {
        self.content.shrink_to_fit();
        self.permit.shrink_to(self.content.len() as u64);
        self
    }

    /// Replaces the body by the one to send, if that differs. The difference is some bytes,
    /// for members that the gateway adds.
    pub(crate) fn replace(&mut self, content: Option<Vec<u8>>) {
        if let Some(content) = content {
            self.content = content;
        }
    }

    /// Returns the body to send. The buffer counts it until the last reference is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for BufferedBody {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(buffer: &BodyBuffer) -> u64 {
        buffer.used.load(Ordering::Relaxed)
    }

    #[test]
    fn a_body_counts_by_its_capacity_until_it_is_sent() {
        let buffer = BodyBuffer::new(1_000_000);
        let mut body = buffer.start(100_000);
        assert_eq!(used(&buffer), 0);
        body.append(&[1; 10]).unwrap();
        assert_eq!(used(&buffer), FIRST_CAPACITY);
        body.append(&[2; 5000]).unwrap();
        assert!(used(&buffer) >= body.content.capacity() as u64);
        let body = body.finish();
        assert_eq!(used(&buffer), 5010);
        let sent = body.into_bytes();
        let part = sent.slice(5000..);
        drop(sent);
        assert_eq!((used(&buffer), &part[..]), (5010, &[2; 10][..]));
        drop(part);
        assert_eq!(used(&buffer), 0);
    }

    #[test]
    fn no_body_exceeds_its_own_bound_or_the_common_one() {
        let buffer = BodyBuffer::new(10_000);
        let mut first = buffer.start(6000);
        first.append(&[0; 5000]).unwrap();
        first.append(&[0; 1000]).unwrap();
        let too_large = first.append(&[0]);
        assert!(matches!(too_large, Err(GatewayError::BodyTooLarge(6000))));
        assert_eq!(used(&buffer), 6000);
        // Twice what the second has would not fit, but what it needs does.
        let mut second = buffer.start(9000);
        second.append(&[0; 3000]).unwrap();
        assert_eq!(used(&buffer), 9000);
        second.append(&[0; 1000]).unwrap();
        let full = second.append(&[0]);
        assert!(matches!(full, Err(GatewayError::BufferFull)));
        assert_eq!(used(&buffer), 10_000);
        drop((first, second));
        assert_eq!(used(&buffer), 0);
    }
}
