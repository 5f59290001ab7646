//! The last requests, for trying changed rules on.
//!
//! Each thread appends its requests to a ring of bytes, so that memory is written in order. A
//! request is copied as it is, and what it reveals is decided when it is read.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use fluxgate_core::{Outcome, RequestContext};

/// How many requests each thread keeps, and a call returns at most.
pub(crate) const MAX_RECENT: usize = 10_000;
/// A larger request is not kept.
const MAX_BYTES: usize = 4096;
/// The texts of a request without headers and attributes.
const PARTS: usize = 6;
/// The length of a missing part. No text is that long.
const MISSING: u16 = u16::MAX;

/// The last requests of one thread, the oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentRequests {
    bytes: VecDeque<u8>,
    /// The size of each.
    sizes: VecDeque<u32>,
    /// The request that is being written.
    buffer: Vec<u8>,
}

/// A recorded request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecentRequest {
    /// When it was decided, since 1970.
    pub(crate) at: Duration,
    pub(crate) cost: Option<u64>,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) rule_set: Option<String>,
    /// What was decided, and the rule that is reported.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) rule: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) attributes: Vec<(String, String)>,
}

impl RecentRequests {
    /// Records a request. If there is no room, it replaces the oldest.
    pub(super) fn record(
        &mut self,
        at: Duration,
        rule_set: &str,
        context: &RequestContext<'_>,
        decided: (Outcome, Option<&str>),
    ) {
        self.buffer.clear();
        self.write(at, rule_set, context, decided);
        if self.buffer.len() > MAX_BYTES {
            return;
        }
        if self.sizes.len() >= MAX_RECENT {
            let oldest = self.sizes.pop_front().unwrap_or_default();
            self.bytes.drain(..oldest as usize);
        }
        self.bytes.extend(&self.buffer);
        // At most `MAX_BYTES`.
        self.sizes.push_back(self.buffer.len() as u32);
    }

    fn write(
        &mut self,
        at: Duration,
        rule_set: &str,
        context: &RequestContext<'_>,
        (outcome, rule): (Outcome, Option<&str>),
    ) {
        let buffer = &mut self.buffer;
        buffer.extend_from_slice(&(at.as_micros() as u64).to_le_bytes());
        // There are ten.
        buffer.push(outcome as u8);
        buffer.push(context.cost().is_some().into());
        buffer.extend_from_slice(&context.cost().unwrap_or_default().to_le_bytes());
        match context.ip() {
            None => buffer.push(0),
            Some(IpAddr::V4(ip)) => {
                buffer.push(4);
                buffer.extend_from_slice(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                buffer.push(16);
                buffer.extend_from_slice(&ip.octets());
            }
        }
        let mut put = |text: Option<&str>| {
            let text = text.map(str::as_bytes);
            // Too long a text makes the request too large.
            let size = text.map_or(MISSING, |text| text.len().min(MAX_BYTES + 1) as u16);
            buffer.extend_from_slice(&size.to_le_bytes());
            let text = text.unwrap_or_default();
            buffer.extend_from_slice(&text[..text.len().min(MAX_BYTES + 1)]);
        };
        let parts: [_; PARTS] = [
            Some(rule_set),
            rule,
            context.user(),
            context.api_key(),
            context.method(),
            context.path(),
        ];
        parts.into_iter().for_each(&mut put);
        for (name, value) in context.headers() {
            put(Some(name));
            put(Some(value));
        }
        // Between the headers and the attributes.
        put(None);
        for (name, value) in context.attributes() {
            put(Some(name));
            put(Some(value));
        }
    }

    /// Copies the last recorded requests, which is faster than to decode them.
    pub(super) fn copy(&self, most: usize) -> EncodedRequests {
        let skipped = self.sizes.len().saturating_sub(most);
        let before: usize = self.sizes.range(..skipped).map(|size| *size as usize).sum();
        let (first, second) = self.bytes.as_slices();
        let in_first = before.min(first.len());
        EncodedRequests {
            bytes: [&first[in_first..], &second[before - in_first..]].concat(),
            sizes: self.sizes.range(skipped..).copied().collect(),
        }
    }
}

/// A copy of the requests of one thread, the oldest first.
pub(super) struct EncodedRequests {
    bytes: Vec<u8>,
    sizes: Vec<u32>,
}

impl EncodedRequests {
    /// Returns each request as it is encoded.
    pub(super) fn each(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        self.sizes.iter().filter_map(move |size| {
            let (request, behind) = rest.split_at_checked(*size as usize)?;
            rest = behind;
            Some(request)
        })
    }
}

impl RecentRequest {
    /// Reads a request as it is encoded.
    pub(crate) fn decode(encoded: &[u8]) -> Option<Self> {
        RequestDecoder(encoded).request()
    }
}

/// Returns when an encoded request was decided, in microseconds since 1970.
pub(crate) fn encoded_at(encoded: &[u8]) -> u64 {
    let at = encoded.first_chunk().copied();
    at.map_or(0, u64::from_le_bytes)
}

/// Reads a request.
struct RequestDecoder<'r>(&'r [u8]);

impl<'r> RequestDecoder<'r> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// Returns the next text; `None` if it is missing, or at the end.
    fn text(&mut self) -> Option<String> {
        let size = u16::from_le_bytes(self.take()?);
        if size == MISSING {
            return None;
        }
        let (text, rest) = self.0.split_at_checked(size.into())?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn pairs(&mut self) -> Vec<(String, String)> {
        let pair = || Some((self.text()?, self.text()?));
        std::iter::from_fn(pair).collect()
    }

    fn request(mut self) -> Option<RecentRequest> {
        let at = Duration::from_micros(u64::from_le_bytes(self.take()?));
        let [outcome] = self.take()?;
        let outcome = Outcome::ALL.get(usize::from(outcome)).copied();
        let [has_cost] = self.take()?;
        let cost = u64::from_le_bytes(self.take()?);
        let ip = match self.take()? {
            [4] => Some(IpAddr::from(self.take::<4>()?)),
            [16] => Some(IpAddr::from(self.take::<16>()?)),
            _ => None,
        };
        Some(RecentRequest {
            at,
            cost: (has_cost == 1).then_some(cost),
            ip,
            outcome,
            rule_set: self.text(),
            rule: self.text(),
            user: self.text(),
            api_key: self.text(),
            method: self.text(),
            path: self.text(),
            headers: self.pairs(),
            attributes: self.pairs(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(recent: &RecentRequests, most: usize) -> Vec<RecentRequest> {
        let copy = recent.copy(most);
        copy.each().filter_map(RecentRequest::decode).collect()
    }

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
        let denied = (Outcome::Denied, Some("per-user"));
        recent.record(Duration::from_secs(7), "api", &context, denied);
        let bare = RequestContext::default();
        recent.record(
            Duration::from_secs(8),
            "api",
            &bare,
            (Outcome::NoRule, None),
        );
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = RecentRequest {
            at: Duration::from_secs(7),
            cost: Some(3),
            ip: context.ip(),
            rule_set: Some("api".into()),
            outcome: Some(Outcome::Denied),
            rule: Some("per-user".into()),
            user: Some("ann".into()),
            path: Some("/a".into()),
            headers: vec![pair("x-client", "app"), pair("x-empty", "")],
            attributes: vec![pair("plan", "free")],
            ..RecentRequest::default()
        };
        let bare = RecentRequest {
            at: Duration::from_secs(8),
            rule_set: Some("api".into()),
            outcome: Some(Outcome::NoRule),
            ..RecentRequest::default()
        };
        assert_eq!(decoded(&recent, 1), std::slice::from_ref(&bare));
        assert_eq!(decoded(&recent, 9), [expected, bare]);
    }

    #[test]
    fn the_oldest_goes_first_and_large_ones_are_left_out() {
        let mut recent = RecentRequests::default();
        for number in 0..MAX_RECENT as u64 + 5 {
            let context = RequestContext::builder().cost(number).build();
            recent.record(Duration::ZERO, "s", &context, (Outcome::Allowed, None));
        }
        for size in [MAX_BYTES, 100_000] {
            let large = "x".repeat(size);
            let context = RequestContext::builder().user(&large).build();
            recent.record(Duration::ZERO, "s", &context, (Outcome::Allowed, None));
        }
        let requests = decoded(&recent, MAX_RECENT);
        let costs: Vec<_> = requests.iter().filter_map(|it| it.cost).collect();
        assert_eq!((costs.len(), costs[0]), (MAX_RECENT, 5));
    }
}
