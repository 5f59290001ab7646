//! A path, taken apart.

/// What stands between the slashes: `str::split` for one byte and short texts.
#[derive(Clone, Copy)]
pub(super) struct Segments<'p>(Option<&'p str>);

impl<'p> Segments<'p> {
    /// `None` if the path does not begin with a slash.
    #[inline]
    pub(super) fn of(path: &'p str) -> Option<Self> {
        Some(Self(Some(path.strip_prefix('/')?)))
    }

    /// Whether there is none left. One may be of no length.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The bytes of what is left, the slashes between included.
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
