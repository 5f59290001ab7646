//! The segments of a path.

/// The texts between the slashes. Like `str::split`, but faster for short texts.
#[derive(Clone, Copy)]
pub(super) struct Segments<'p>(Option<&'p str>);

impl<'p> Segments<'p> {
    /// Returns `None` if the path does not begin with a slash.
    #[inline]
    pub(super) fn of(path: &'p str) -> Option<Self> {
        Some(Self(Some(path.strip_prefix('/')?)))
    }

    /// Returns whether no segment is left. A segment may be empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the number of bytes left, including the slashes between segments.
    pub(super) fn len(&self) -> usize {
        self.0.map_or(0, str::len)
    }
}

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    #[inline]
    fn next(&mut self) -> Option<&'p str> {
        let rest = self.0?;
        match rest.bytes().position(|byte| byte == b'/') {
            Some(end) => {
                self.0 = Some(&rest[end + 1..]);
                Some(&rest[..end])
            }
            None => self.0.take(),
        }
    }
}

impl DoubleEndedIterator for Segments<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let rest = self.0?;
        match rest.bytes().rposition(|byte| byte == b'/') {
            Some(end) => {
                self.0 = Some(&rest[..end]);
                Some(&rest[end + 1..])
            }
            None => self.0.take(),
        }
    }
}
