//! What the filters of a chain have to tell, as one set of headers.

use http::HeaderMap;
use http::header::RETRY_AFTER;
use smallvec::SmallVec;

use super::HeaderFamilies;
use super::map::Values;
use super::values::{LIMIT, Lines, Name, Out, POLICY, RATE_LIMIT, REMAINING, RESET};
use crate::ruling::Report;

/// What the filters of a chain have to tell, as one set of headers.
///
/// The two headers of the IETF's draft are lists, which hold the members of all.
/// Of the older ones those of the filter with the least left are told, one that
/// refused before all others; of `Retry-After` the longest.
#[derive(Clone, Debug)]
pub struct LimitHeaders<R>(SmallVec<[(HeaderFamilies, R); 1]>);

impl<R> Default for LimitHeaders<R> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<R: Report> LimitHeaders<R> {
    /// Adds what the next filter has to tell.
    pub fn push(&mut self, families: HeaderFamilies, ruling: R) {
        self.0.push((families, ruling));
    }

    /// Whether no filter has anything to tell.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the last filter said.
    pub fn last(&self) -> Option<&R> {
        self.0.last().map(|(_, ruling)| ruling)
    }

    /// Sets the headers of a response, in place of what stands there under the
    /// same names.
    pub fn write(&self, headers: &mut HeaderMap) {
        if !self.is_empty() {
            Values::of(|out| self.tell(out)).insert_into(headers);
        }
    }

    /// Appends the same as text, each header with its line end.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        self.tell(&mut Lines(out));
    }

    /// Whether a header of this name, in whatever case, is told: what an upstream
    /// says under it is to be left out.
    pub fn replaces(&self, name: &[u8]) -> bool {
        let is = |known: &http::HeaderName| name.eq_ignore_ascii_case(known.as_str().as_bytes());
        if [LIMIT, REMAINING, RESET].iter().any(is) {
            self.strictest().is_some()
        } else if is(&POLICY) {
            self.tells(R::write_policies)
        } else if is(&RATE_LIMIT) {
            self.tells(R::write_rate_limit)
        } else {
            is(&RETRY_AFTER) && self.retry_after().is_some()
        }
    }

    fn tell(&self, out: &mut impl Out) {
        if let [(families, ruling)] = &self.0[..] {
            return families.tell(ruling, out);
        }
        if let Some((families, ruling)) = self.strictest() {
            families.tell_legacy(ruling, out);
        }
        out.header(Name::Policy, |text| self.join(R::write_policies, text));
        out.header(Name::RateLimit, |text| self.join(R::write_rate_limit, text));
        if let Some(seconds) = self.retry_after() {
            out.number(Name::RetryAfter, seconds);
        }
    }

    /// The one whose older headers are told; of equals the first.
    fn strictest(&self) -> Option<&(HeaderFamilies, R)> {
        let telling = self.0.iter().filter(|(families, ruling)| {
            families.legacy && ruling.limit().is_some() && ruling.remaining().is_some()
        });
        telling.min_by_key(|(_, ruling)| (ruling.allowed(), ruling.remaining()))
    }

    fn retry_after(&self) -> Option<u64> {
        let telling = self.0.iter().filter(|(families, _)| families.retry_after);
        telling
            .filter_map(|(_, ruling)| super::retry_secs(ruling))
            .max()
    }

    fn join(&self, write: impl Fn(&R, &mut Vec<u8>), text: &mut Vec<u8>) {
        let start = text.len();
        for (_, ruling) in self.0.iter().filter(|(families, _)| families.ietf) {
            let before = text.len();
            if before > start {
                text.push(b',');
            }
            let member = text.len();
            write(ruling, text);
            if text.len() == member {
                text.truncate(before);
            }
        }
    }

    fn tells(&self, write: impl Fn(&R, &mut Vec<u8>)) -> bool {
        let mut text = Vec::new();
        self.join(write, &mut text);
        !text.is_empty()
    }
}
