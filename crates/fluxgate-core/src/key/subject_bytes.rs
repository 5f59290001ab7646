//! The buffer in which a subject is encoded.

use std::fmt;
use std::ops::Deref;

/// Most subjects of a request fit without an allocation.
const INLINE: usize = 192;

/// The encoded bytes of a subject: a rule and an identity.
#[derive(Clone)]
pub struct SubjectBytes<const N: usize = INLINE> {
    inline: [u8; N],
    /// The number of bytes in `inline`; none once they are in `spilled`.
    inline_len: usize,
    /// All bytes, if they are too many.
    spilled: Vec<u8>,
}

impl SubjectBytes {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self::with_room()
    }
}

impl<const N: usize> SubjectBytes<N> {
    /// Creates a buffer with room for `N` bytes without an allocation.
    #[inline]
    pub(crate) const fn with_room() -> Self {
        Self {
            inline: [0; N],
            inline_len: 0,
            spilled: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        let end = self.inline_len + bytes.len();
        match self.inline.get_mut(self.inline_len..end) {
            Some(free) if self.spilled.is_empty() => {
                free.copy_from_slice(bytes);
                self.inline_len = end;
            }
            _ => self.spill(bytes),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, byte: u8) {
        self.extend_from_slice(&[byte]);
    }

    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.inline_len = self.inline_len.min(len);
        self.spilled.truncate(len);
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        let inline = &self.inline[..self.inline_len];
        self.spilled.extend_from_slice(inline);
        self.spilled.extend_from_slice(bytes);
        self.inline_len = 0;
    }
}

impl From<&[u8]> for SubjectBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut subject = Self::new();
        subject.extend_from_slice(bytes);
        subject
    }
}

impl<const N: usize> Deref for SubjectBytes<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.spilled.is_empty() {
            &self.inline[..self.inline_len]
        } else {
            &self.spilled
        }
    }
}

impl<const N: usize> fmt::Debug for SubjectBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_order_however_many_they_are() {
        for step in [1, 7, INLINE - 1, INLINE, INLINE + 1] {
            let (mut bytes, mut expected) = (SubjectBytes::new(), Vec::new());
            for number in 0..10_u8 {
                let more = vec![number; step];
                bytes.extend_from_slice(&more);
                expected.extend_from_slice(&more);
                assert_eq!(*bytes, *expected);
            }
            for len in [expected.len(), 5 * step, step / 2, 0] {
                bytes.truncate(len);
                assert_eq!(*bytes, expected[..len]);
                bytes.push(7);
                assert_eq!(bytes.len(), len + 1);
                assert_eq!(bytes[len], 7);
            }
        }
    }
}
