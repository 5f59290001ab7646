//! The rules that refuse one request.

use std::ops::Range;

use fluxgate_core::RuleVerdict;

/// The enforced rules that refuse one request. Reused for the next request, so a denial
/// needs no allocation.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The ranges of id and identity in `bytes`.
    ranges: Vec<(Range<usize>, Option<Range<usize>>)>,
    bytes: Vec<u8>,
}

/// A rule that refuses a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal<'a> {
    /// The id of the rule.
    pub(super) rule: &'a str,
    /// The encoded identity; none if a part of the key is missing.
    pub(super) identity: Option<&'a [u8]>,
}

impl Refusals {
    /// Removes all rules, for the next request.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.bytes.clear();
    }

    /// Adds a rule if it is enforced and refuses the request.
    pub(super) fn add(&mut self, verdict: &RuleVerdict<'_>) {
        if !verdict.denied || verdict.is_shadow {
            return;
        }
        let rule = self.store(verdict.rule.id().as_bytes());
        let identity = verdict.identity.map(|identity| self.store(identity));
        self.ranges.push((rule, identity));
    }

    fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Refusal<'_>> {
        self.ranges.iter().map(|(rule, identity)| Refusal {
            // Ids are text, and stored whole.
            rule: str::from_utf8(&self.bytes[rule.clone()]).unwrap_or_default(),
            identity: identity.clone().map(|identity| &self.bytes[identity]),
        })
    }
}
