//! Limits that come with the call and belong to no rule.

use crate::algorithm::Verdict;
use crate::band::Band;
use crate::decision::{Decision, Outcome};
use crate::key::{self, RuleNumber, StoredIdentity, Subject, SubjectBytes};
use crate::time::{Micros, Retry};

/// The key of a limit that comes with the call. It never collides with that of a rule.
#[derive(Clone, Debug)]
pub struct AdHocKey(SubjectBytes);

impl AdHocKey {
    /// Creates a key without a name. It need not be text.
    pub fn key(key: &[u8]) -> Self {
        Self::new("", &[key])
    }

    /// Creates an identity under a name, which must not be empty.
    pub fn named(name: &str, identity: &[&str]) -> Self {
        debug_assert!(!name.is_empty());
        let values: Vec<_> = identity.iter().map(|value| value.as_bytes()).collect();
        Self::new(name, &values)
    }

    /// Creates the key of a limit that comes with a descriptor of this domain, which must not be empty,
    /// and with these entries. It is never that of a key or of an identity under a name.
    pub fn descriptor<'e>(
        domain: &str,
        entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
    ) -> Self {
        debug_assert!(!domain.is_empty());
        let mut bytes = SubjectBytes::new();
        key::encode_descriptor(domain, entries, &mut bytes);
        Self(bytes)
    }

    /// Creates the key of an identity under a name, or of a key if the name is empty, in the form in
    /// which the store keeps it.
    pub fn stored(name: &str, identity: &StoredIdentity) -> Self {
        let mut bytes = SubjectBytes::new();
        key::encode_ad_hoc(name, &[], &mut bytes);
        bytes.extend_from_slice(identity.as_bytes());
        Self(bytes)
    }

    /// Returns the encoded key, from which [`AdHocKey::from_bytes`] makes the same one.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the key that is encoded as these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the name, which is empty for a key without one.
    pub fn name(&self) -> &str {
        key::ad_hoc_name(&self.0)
    }

    /// Returns the encoded identity.
    pub fn identity(&self) -> &[u8] {
        let rule = self.as_subject().parts().map(|parts| parts.rule.len());
        let identity = rule.and_then(|end| self.0.get(end..));
        identity.unwrap_or_default()
    }

    pub(crate) fn new(name: &str, values: &[&[u8]]) -> Self {
        let mut bytes = SubjectBytes::new();
        key::encode_ad_hoc(name, values, &mut bytes);
        Self(bytes)
    }

    /// Formats the key or the identity for people: `key=ann`.
    pub fn describe(&self) -> String {
        key::describe_identity(self.identity())
    }

    pub(crate) fn as_subject(&self) -> Subject<'_> {
        Subject {
            rule: RuleNumber::NONE,
            bytes: &self.0,
        }
    }
}

/// A request that is decided by a limit that comes with the call.
#[derive(Clone, Debug)]
pub struct AdHocCheck {
    /// What is counted.
    pub key: AdHocKey,
    /// The limit; `None` allows nothing but a cost of 0.
    pub band: Option<Band>,
    /// The units.
    pub cost: u64,
}

/// The decision on a limit that comes with the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdHocDecision {
    /// Allowed, denied or never; if the store failed: fallback, failed open or failed
    /// closed.
    pub outcome: Outcome,
    /// Whether the call may go on.
    pub allowed: bool,
    /// Whole units left; `None` if the store failed and they are not known.
    pub remaining: Option<u64>,
    /// The time until the same call would pass; zero if it passes.
    pub retry_after: Retry,
    /// The time until the limit is full again.
    pub reset_after: Micros,
}

impl AdHocDecision {
    /// The decision on a request that was not decided, because another one of the same call is
    /// forbidden.
    pub(crate) const UNDECIDED: Self = Self {
        outcome: Outcome::NoRule,
        allowed: true,
        remaining: None,
        retry_after: Retry::NOW,
        reset_after: Micros::ZERO,
    };

    /// The decision on a cost of 0 by a limit that allows nothing.
    pub(crate) const NOTHING_ASKED: Self = Self {
        outcome: Outcome::Allowed,
        remaining: Some(0),
        ..Self::UNDECIDED
    };

    /// Converts a verdict. Without one, the call is denied.
    pub(crate) fn new(verdict: Option<&Verdict>) -> Self {
        let verdict = verdict.unwrap_or(&Verdict::NEVER);
        let allowed = verdict.passes();
        Self {
            outcome: match verdict.retry_after {
                _ if allowed => Outcome::Allowed,
                Retry::After(_) => Outcome::Denied,
                Retry::Never => Outcome::Never,
            },
            allowed,
            remaining: Some(verdict.remaining.into()),
            retry_after: verdict.retry_after,
            reset_after: verdict.reset_after,
        }
    }

    /// Converts a decision that was made without the state of the store.
    pub(crate) fn without_state(decision: &Decision) -> Self {
        Self {
            outcome: decision.outcome(),
            allowed: decision.allowed(),
            remaining: None,
            retry_after: decision.retry(),
            reset_after: decision.reset_micros(),
        }
    }
}
