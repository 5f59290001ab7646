//! The headers that report limits to clients.
//!
//! `families` writes `X-RateLimit-*` and `Retry-After`; the text of `RateLimit` and
//! `RateLimit-Policy` comes from the [`Report`].

mod families;
mod values;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::report::Report;
use families::retry_after_secs;
pub use families::{HeaderFamilies, ResetFormat};
pub use values::HeaderValues;
use values::{Field, HeaderSink, LIMIT, POLICY, RATE_LIMIT, REMAINING, RESET, TextSink};

/// The limit headers of a response after a chain of filters.
///
/// `RateLimit-Policy` and `RateLimit` list the members of all filters. The legacy headers are
/// those of the filter with the least remaining, or of the one that denied. `Retry-After` is
/// the longest.
#[derive(Clone, Debug)]
pub struct LimitHeaders<R> {
    reports: SmallVec<[(HeaderFamilies, R); 1]>,
    /// Headers in addition to the families.
    others: Vec<(HeaderName, HeaderValue)>,
}

impl<R> Default for LimitHeaders<R> {
    fn default() -> Self {
        Self {
            reports: SmallVec::new(),
            others: Vec::new(),
        }
    }
}

impl<R: Report> LimitHeaders<R> {
    /// Adds the report of the next filter.
    pub fn push(&mut self, families: HeaderFamilies, report: R) {
        self.reports.push((families, report));
    }

    /// Sets the headers in addition to those of the families.
    pub fn set_others(&mut self, headers: Vec<(HeaderName, HeaderValue)>) {
        self.others = headers;
    }

    /// Returns whether there are no headers to write.
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.others.is_empty()
    }

    /// Returns the report of the last filter.
    pub fn last(&self) -> Option<&R> {
        self.reports.last().map(|(_, report)| report)
    }

    /// Returns the reports of all filters, with the families that are written.
    pub fn reports(&self) -> impl Iterator<Item = &(HeaderFamilies, R)> {
        self.reports.iter()
    }

    /// Sets the headers of a response, replacing those of the same names.
    pub fn write(&self, headers: &mut HeaderMap) {
        if !self.reports.is_empty() {
            HeaderValues::collect(|sink| self.write_to(sink)).insert_into(headers);
        }
        for (name, value) in &self.others {
            headers.insert(name, value.clone());
        }
    }

    /// Appends the headers as text, each with its line end.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        if !self.reports.is_empty() {
            self.write_to(&mut TextSink(out));
        }
        for (name, value) in &self.others {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Returns whether a header of this name, in any case, is written and so replaces the one
    /// of an upstream.
    pub fn replaces(&self, name: &[u8]) -> bool {
        let is = |known: &HeaderName| name.eq_ignore_ascii_case(known.as_str().as_bytes());
        if [LIMIT, REMAINING, RESET].iter().any(is) {
            self.strictest().is_some()
        } else if is(&POLICY) {
            self.has_members(R::write_policies)
        } else if is(&RATE_LIMIT) {
            self.has_members(R::write_rate_limit)
        } else if is(&RETRY_AFTER) {
            self.retry_after().is_some()
        } else {
            self.others.iter().any(|(known, _)| is(known))
        }
    }

    fn write_to(&self, sink: &mut impl HeaderSink) {
        if let [(families, report)] = &self.reports[..] {
            return families.write_to(report, sink);
        }
        if let Some((families, report)) = self.strictest() {
            families.write_legacy(report, sink);
        }
        sink.text(Field::Policy, |text| self.join(R::write_policies, text));
        sink.text(Field::RateLimit, |text| {
            self.join(R::write_rate_limit, text);
        });
        if let Some(seconds) = self.retry_after() {
            sink.number(Field::RetryAfter, seconds);
        }
    }

    /// Returns the report for the legacy headers; the first among equals.
    fn strictest(&self) -> Option<&(HeaderFamilies, R)> {
        let reports = self.reports.iter().filter(|(families, report)| {
            families.legacy && report.limit().is_some() && report.remaining().is_some()
        });
        reports.min_by_key(|(_, report)| (report.allowed(), report.remaining()))
    }

    fn retry_after(&self) -> Option<u64> {
        let reports = self
            .reports
            .iter()
            .filter(|(families, _)| families.retry_after);
        reports
            .filter_map(|(_, report)| retry_after_secs(report))
            .max()
    }

    /// Appends the members that `write` appends for each report, separated by commas.
    fn join(&self, write: impl Fn(&R, &mut Vec<u8>), text: &mut Vec<u8>) {
        let start = text.len();
        for (_, report) in self.reports.iter().filter(|(families, _)| families.ietf) {
            let before = text.len();
            if before > start {
                text.push(b',');
            }
            let member = text.len();
            write(report, text);
            if text.len() == member {
                text.truncate(before);
            }
        }
    }

    fn has_members(&self, write: impl Fn(&R, &mut Vec<u8>)) -> bool {
        let mut text = Vec::new();
        self.join(write, &mut text);
        !text.is_empty()
    }
}
