//! What a filter reads of a request.

use http::request::Parts;

use crate::bad_request::BadRequest;

/// What a filter reads of a request, however it is kept.
pub trait RequestHead {
    /// The method, as it was sent.
    fn method(&self) -> &str;

    /// The lines of the header of this name, in order. The name is in lower case.
    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]>;

    /// Every header line, in order, with its name in whatever case it came.
    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])>;

    /// The value of a header that must not have two. It may be given twice.
    ///
    /// # Errors
    /// If it has two.
    fn only_value<'a>(&'a self, name: &str) -> Result<Option<&'a [u8]>, BadRequest> {
        let mut lines = self.header_lines(name);
        let first = lines.next();
        match lines.all(|line| Some(line) == first) {
            true => Ok(first),
            false => Err(BadRequest::ConflictingValues),
        }
    }

    /// The first line of a header.
    fn first_line<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        self.header_lines(name).next()
    }

    /// The same, if it is text.
    fn header<'a>(&'a self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.first_line(name)?).ok()
    }
}

/// Values without the blanks around them, which HTTP/1.1 takes away and HTTP/2 does
/// not: else whoever adds one would be somebody else.
impl RequestHead for Parts {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let lines = self.headers.get_all(name).iter();
        lines.map(|value| value.as_bytes().trim_ascii())
    }

    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let headers = self.headers.iter();
        headers.map(|(name, value)| (name.as_str(), value.as_bytes().trim_ascii()))
    }

    fn only_value<'a>(&'a self, name: &str) -> Result<Option<&'a [u8]>, BadRequest> {
        let Some(first) = self.first_line(name) else {
            return Ok(None);
        };
        // No header has two lines where there are as many lines as names.
        let has_others = self.headers.len() > self.headers.keys_len();
        match has_others && self.header_lines(name).any(|line| line != first) {
            true => Err(BadRequest::ConflictingValues),
            false => Ok(Some(first)),
        }
    }

    fn first_line<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        /// So few are looked at one by one for less than a hash costs.
        const FEW: usize = 8;
        let value = if self.headers.len() <= FEW {
            let headers = self.headers.iter();
            // Both are nearly always in lower case.
            let is_named = |it: &str| it == name || it.eq_ignore_ascii_case(name);
            let mut named = headers.filter(|(it, _)| is_named(it.as_str()));
            named.next()?.1
        } else {
            self.headers.get(name)?
        };
        Some(value.as_bytes().trim_ascii())
    }
}
