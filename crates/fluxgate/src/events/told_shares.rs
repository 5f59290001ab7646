//! The shares that were reported, for a process without Redis.

use std::collections::HashMap;
use std::time::Duration;

use crate::telemetry::{FoundShare, FoundState};

/// How many shares are remembered. More are reported once more.
const MAX_TOLD: usize = 100_000;
/// A share is remembered for at least this long, as in Redis.
const LEAST_KEPT: Duration = Duration::from_secs(2);

/// The shares that were reported.
#[derive(Debug, Default)]
pub(super) struct ToldShares(HashMap<ShareKey, ToldShare>);

/// A rule with an identity, and a band and its share.
type ShareKey = (Box<[u8]>, String);

#[derive(Clone, Copy, Debug)]
struct ToldShare {
    /// When the use was last seen at the share, in µs by the clock of the store.
    seen: u64,
    /// When the band is full again if nothing else comes, in time since the start of the service.
    until: Duration,
}

impl ToldShares {
    /// Returns whether to report a share: by the same rules as the shared log.
    pub(super) fn tells(&mut self, found: &FoundShare, now: Duration) -> bool {
        let key = (found.subject.clone(), found.name());
        let at = found.at.micros();
        let until = now + found.reset_after.as_duration().max(LEAST_KEPT);
        let known = self.0.get_mut(&key).filter(|known| known.until > now);
        let FoundState::Below = found.state else {
            if let Some(known) = known {
                known.until = known.until.max(until);
                let unseen = Duration::from_micros(at.saturating_sub(known.seen));
                known.seen = known.seen.max(at);
                return matches!(found.state, FoundState::Reached { gap } if unseen > gap);
            }
            if self.0.len() >= MAX_TOLD {
                self.0.retain(|_, known| known.until > now);
            }
            if self.0.len() >= MAX_TOLD {
                self.0.clear();
            }
            self.0.insert(key, ToldShare { seen: at, until });
            return true;
        };
        if known.is_none_or(|known| known.seen < at) {
            self.0.remove(&key);
        }
        false
    }

    /// Forgets all identities of a rule.
    pub(super) fn forget_rule(&mut self, rule: &[u8]) {
        self.0.retain(|(subject, _), _| !subject.starts_with(rule));
    }
}
