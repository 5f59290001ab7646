//! One limit of a rule, ready to be used.

use crate::limit::Limit;
use crate::memory::Imprint;
use crate::sip::Sip13;

/// One limit of a rule.
#[derive(Clone, Debug)]
pub struct Band {
    id: Box<str>,
    /// Tells the counters of one subject apart; a hash of the id and of what else
    /// makes another counter.
    tag: u64,
    limit: Limit,
    /// What the memory store keeps of the limit.
    imprint: Imprint,
    /// Written once, told with every response.
    policy: Box<str>,
    /// How much of the policy is the name.
    name: usize,
}

impl Band {
    /// A band outside any rule.
    pub fn new(id: &str, limit: Limit) -> Self {
        Self {
            id: id.into(),
            tag: tag(id, &limit),
            imprint: Imprint::new(&limit),
            limit,
            policy: Box::default(),
            name: 0,
        }
    }

    /// The same as a band of the rule with this id. Ids hold nothing that would
    /// have to be escaped in a string.
    pub(super) fn of_rule(mut self, rule: &str) -> Self {
        let mut policy = format!("\"{rule}/{}\"", self.id);
        self.name = policy.len();
        policy.push_str(&format!(";q={}", self.limit.capacity()));
        if let Some(seconds) = self.limit.window().told_secs() {
            policy.push_str(&format!(";w={seconds}"));
        }
        self.policy = policy.into();
        self
    }

    /// Its identity in its rule.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it allows.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Its name in the headers of the IETF's draft: `"per-user/burst"`. Empty
    /// outside any rule.
    pub fn quoted_name(&self) -> &str {
        &self.policy[..self.name]
    }

    /// Itself as a member of `RateLimit-Policy`: `"per-user/burst";q=10;w=1`. Empty
    /// outside any rule.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Tells the counters of one subject apart: see [`tag`].
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    pub(crate) fn imprint(&self) -> Imprint {
        self.imprint
    }
}

/// The bucket of a band is one counter, whatever its numbers. Counts of another
/// algorithm or window are another one: instances that still use the old rule go
/// on with theirs.
fn tag(id: &str, limit: &Limit) -> u64 {
    let mut name = id.as_bytes().to_vec();
    if !limit.algorithm().is_bucket() {
        // No id has such a byte.
        name.push(0xf0 + limit.algorithm() as u8);
        name.extend_from_slice(&limit.window().get().to_le_bytes());
    }
    Sip13::PUBLIC.hash(&name) as u64
}
