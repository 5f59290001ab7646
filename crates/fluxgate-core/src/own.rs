//! Limits that come with the call, and belong to no rule.

use crate::algorithm::Verdict;
use crate::decision::{Decision, Outcome};
use crate::key::{self, SubjectBytes};
use crate::rules::RuleNumber;
use crate::store::Subject;
use crate::time::{Micros, Retry, Timestamp};

/// Who is counted by a limit that comes with the call. No rule ever counts the
/// same, whatever its name and key.
#[derive(Clone, Debug)]
pub struct AdHocKey(SubjectBytes);

impl AdHocKey {
    /// A key alone, which need not be text.
    pub fn key(key: &[u8]) -> Self {
        Self::new("", &[key])
    }

    /// An identity under a name; the name must not be empty, for that is what
    /// keys alone have.
    pub fn named(name: &str, identity: &[&str]) -> Self {
        debug_assert!(!name.is_empty());
        let values: Vec<_> = identity.iter().map(|value| value.as_bytes()).collect();
        Self::new(name, &values)
    }

    fn new(name: &str, values: &[&[u8]]) -> Self {
        let mut bytes = SubjectBytes::new();
        key::encode_own(name, values, &mut bytes);
        Self(bytes)
    }

    /// Returns the key or the identity for people to read: `key=ann`.
    pub fn describe(&self) -> String {
        let rule = self.as_subject().parts().map(|parts| parts.rule.len());
        let identity = rule.and_then(|end| self.0.get(end..));
        key::describe_identity(identity.unwrap_or_default())
    }

    pub(crate) fn as_subject(&self) -> Subject<'_> {
        Subject {
            rule: RuleNumber::NONE,
            bytes: &self.0,
        }
    }
}

/// The answer of a limit that comes with the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdHocDecision {
    /// Allowed, denied, never, or, where the store failed, what its `on_error` says:
    /// fallback, failed open or failed closed.
    pub outcome: Outcome,
    /// Whether it may go on.
    pub allowed: bool,
    /// Whole units left; `None` where the store failed and its state is not known.
    pub remaining: Option<u64>,
    /// How long until the same would pass; zero where it did.
    pub retry_after: Retry,
    /// How long until the limit is full again.
    pub reset_after: Micros,
}

impl AdHocDecision {
    /// A store that gives no verdict has refused.
    pub(crate) fn new(verdict: Option<&Verdict>) -> Self {
        let refused = Verdict {
            at: Timestamp::default(),
            remaining: 0,
            part: 0,
            retry_after: Retry::Never,
            reset_after: Micros::ZERO,
            delay: Micros::ZERO,
        };
        let verdict = verdict.unwrap_or(&refused);
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

    /// The answer where the store failed and its state is not known.
    pub(crate) fn without_state(decision: &Decision) -> Self {
        Self {
            outcome: decision.outcome(),
            allowed: decision.allowed(),
            remaining: None,
            retry_after: decision.retry_after(),
            reset_after: decision.reset_after(),
        }
    }
}
