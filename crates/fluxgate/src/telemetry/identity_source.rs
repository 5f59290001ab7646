//! Where the identity that a rule counts comes from.

use fluxgate_core::key::SubjectBytes;
use fluxgate_core::{ActiveRule, RequestContext, RuleSet};

/// Where the identity that a rule counts comes from.
#[derive(Clone, Copy)]
pub(crate) enum IdentitySource<'a> {
    Request(&'a RequestContext<'a>),
    /// The values of the rule's key, and the cost if the call names it.
    Values(&'a [&'a str], Option<u64>),
}

impl IdentitySource<'_> {
    pub(super) fn identity(self, set: &RuleSet, rule: &ActiveRule) -> Option<SubjectBytes> {
        match self {
            Self::Request(context) => set.identity_of(rule, context),
            Self::Values(values, _) => set.identity_of_values(rule, values),
        }
    }

    /// Returns the units that a rule asks for.
    pub(super) fn cost(self, rule: &ActiveRule) -> u64 {
        match self {
            Self::Request(context) => rule.cost_of(context),
            Self::Values(_, Some(cost)) => cost,
            Self::Values(_, None) => rule.cost_of(&RequestContext::default()),
        }
    }
}
