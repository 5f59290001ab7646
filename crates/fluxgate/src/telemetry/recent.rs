//! The last requests, for trying changed rules on.
//!
//! Each thread keeps its own. A request is copied as it is, which takes less than writing it
//! as JSON; what it reveals is decided when it is read.

use std::collections::VecDeque;
use std::time::Duration;

use fluxgate_core::RequestContext;

/// How many requests are kept.
pub(crate) const MAX_RECENT: usize = 10_000;
/// A larger request is not kept.
const MAX_BYTES: usize = 4096;

/// The last requests of one thread, the oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentRequests(VecDeque<RecentRequest>);

/// A recorded request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentRequest {
    /// When it was decided, since 1970.
    pub(crate) at: Duration,
    pub(crate) cost: Option<u64>,
    pub(crate) ip: Option<std::net::IpAddr>,
    text: Vec<u8>,
    /// Where each text ends, in the order of [`Part`], then names and values of headers, then
    /// of attributes.
    ends: Vec<u16>,
    /// Which of the parts there are.
    present: u8,
    headers: u16,
}

/// A part of a request that has one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    RuleSet,
    User,
    ApiKey,
    Method,
    Path,
}

const PARTS: usize = 5;

impl RecentRequest {
    fn set(&mut self, at: Duration, rule_set: &str, context: &RequestContext<'_>) {
        (self.at, self.cost, self.ip) = (at, context.cost(), context.ip());
        self.text.clear();
        self.ends.clear();
        self.present = 0;
        let parts = [
            Some(rule_set),
            context.user(),
            context.api_key(),
            context.method(),
            context.path(),
        ];
        for (index, part) in parts.into_iter().enumerate() {
            self.present |= u8::from(part.is_some()) << index;
            self.push(part.unwrap_or_default());
        }
        self.headers = 0;
        for (name, value) in context.headers() {
            self.push(name);
            self.push(value);
            self.headers += 1;
        }
        for (name, value) in context.attributes() {
            self.push(name);
            self.push(value);
        }
    }

    fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
        // At most `MAX_BYTES`.
        self.ends.push(self.text.len() as u16);
    }

    fn text(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let text = &self.text[usize::from(start)..usize::from(self.ends[index])];
        // It was text when it was copied.
        std::str::from_utf8(text).unwrap_or_default()
    }

    /// Returns a part.
    pub(crate) fn part(&self, part: Part) -> Option<&str> {
        let index = part as usize;
        (self.present & 1 << index != 0).then(|| self.text(index))
    }

    /// Returns the names and values of the headers.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let count = usize::from(self.headers);
        (0..count).map(|pair| (self.text(PARTS + 2 * pair), self.text(PARTS + 2 * pair + 1)))
    }

    /// Returns the names and values of the attributes.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let first = PARTS + 2 * usize::from(self.headers);
        let pairs = (first..self.ends.len()).step_by(2);
        pairs.map(|index| (self.text(index), self.text(index + 1)))
    }
}

impl RecentRequests {
    /// Records a request in place of the oldest, if there are as many as are kept.
    pub(super) fn record(&mut self, at: Duration, rule_set: &str, context: &RequestContext<'_>) {
        let pairs = context.headers().chain(context.attributes());
        let pairs: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        let parts = [
            context.user(),
            context.api_key(),
            context.method(),
            context.path(),
        ];
        let parts = parts.iter().flatten().map(|part| part.len()).sum::<usize>();
        if rule_set.len() + parts + pairs > MAX_BYTES {
            return;
        }
        let mut request = match self.0.len() < MAX_RECENT {
            true => RecentRequest::default(),
            // Its buffers are used again.
            false => self.0.pop_front().unwrap_or_default(),
        };
        request.set(at, rule_set, context);
        self.0.push_back(request);
    }

    /// Returns the recorded requests.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RecentRequest> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_recorded() {
        let context = RequestContext::builder()
            .ip([203, 0, 113, 9])
            .user("ann")
            .path("/a")
            .header("x-client", "app")
            .header("x-empty", "")
            .attribute("plan", "free")
            .cost(3)
            .build();
        let mut recent = RecentRequests::default();
        recent.record(Duration::from_secs(7), "api", &context);
        let request = recent.iter().next().unwrap();
        assert_eq!(
            (request.at, request.cost),
            (Duration::from_secs(7), Some(3))
        );
        assert_eq!(request.ip, context.ip());
        let parts = [
            Part::RuleSet,
            Part::User,
            Part::ApiKey,
            Part::Method,
            Part::Path,
        ];
        let parts = parts.map(|part| request.part(part));
        assert_eq!(parts, [Some("api"), Some("ann"), None, None, Some("/a")]);
        let headers: Vec<_> = request.headers().collect();
        assert_eq!(headers, [("x-client", "app"), ("x-empty", "")]);
        assert_eq!(request.attributes().collect::<Vec<_>>(), [("plan", "free")]);
    }

    #[test]
    fn the_oldest_goes_first_and_large_ones_are_left_out() {
        let mut recent = RecentRequests::default();
        for number in 0..MAX_RECENT as u64 + 5 {
            let context = RequestContext::builder().cost(number).build();
            recent.record(Duration::ZERO, "s", &context);
        }
        let costs: Vec<_> = recent.iter().filter_map(|request| request.cost).collect();
        assert_eq!((costs.len(), costs[0]), (MAX_RECENT, 5));
        let large = "x".repeat(MAX_BYTES);
        let context = RequestContext::builder().user(&large).build();
        recent.record(Duration::ZERO, "s", &context);
        assert_eq!(recent.iter().last().unwrap().part(Part::User), None);
    }
}
