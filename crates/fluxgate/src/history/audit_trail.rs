//! The entries of the audit trail.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use fluxgate_redis::record::MAX_AUDIT_ENTRIES;
use serde::Serialize;

use crate::telemetry::unix_time;

/// A change that was made through the API.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct AuditEntry {
    /// Random; tells apart equal changes.
    pub(crate) id: String,
    pub(crate) at_ms: u64,
    /// The name of the token.
    pub(crate) who: String,
    /// The action, such as `refund`.
    pub(crate) what: &'static str,
    pub(crate) rule_set: Option<String>,
    pub(crate) rule: Option<String>,
    /// The name of a limit that comes with the call.
    pub(crate) rule_id: Option<String>,
    /// In the clear or as a pseudonym, as in denials.
    pub(crate) identity: Option<String>,
    /// Refers to the identity in other calls.
    pub(crate) handle: Option<String>,
    pub(crate) units: Option<u64>,
    /// How many counters were reset.
    pub(crate) reset: Option<u64>,
    pub(crate) etag_before: Option<String>,
    pub(crate) etag_after: Option<String>,
    /// `unknown` if the store failed, but may have applied the change.
    pub(crate) outcome: Option<&'static str>,
    /// Why, as the caller has said.
    pub(crate) reason: Option<String>,
}

impl AuditEntry {
    /// Returns an entry of now, without the change.
    pub(crate) fn now() -> Self {
        Self {
            id: format!("{:016x}", RandomState::new().hash_one(0)),
            at_ms: unix_time().as_millis() as u64,
            ..Self::default()
        }
    }
}

/// The entries that this process keeps or, with Redis, has not written yet; the oldest first.
#[derive(Debug, Default)]
pub(super) struct AuditTrail(VecDeque<String>);

impl AuditTrail {
    pub(super) fn add(&mut self, entry: String) {
        if self.0.len() == MAX_AUDIT_ENTRIES {
            self.0.pop_front();
        }
        self.0.push_back(entry);
    }

    /// Returns the oldest entry.
    pub(super) fn oldest(&self) -> Option<String> {
        self.0.front().cloned()
    }

    /// Removes the oldest entry if it is this one: another one may have taken its place.
    pub(super) fn remove_oldest(&mut self, entry: &str) {
        if self.0.front().is_some_and(|oldest| oldest == entry) {
            self.0.pop_front();
        }
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &String> {
        self.0.iter().rev()
    }
}
