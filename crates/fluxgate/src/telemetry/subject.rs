//! What a decision is reported by: its subject, rule and band.

use fluxgate_core::{Band, Decision, Outcome, RequestContext, Rule, RuleSet};

/// The subject of a decision or a change.
#[derive(Clone, Copy)]
pub(crate) enum Subject<'a> {
    Request(&'a RequestContext<'a>),
    /// The values of a rule's key.
    Identity(&'a [&'a str]),
}

impl Subject<'_> {
    pub(super) fn describe(self, set: &RuleSet, rule: &Rule) -> Option<String> {
        match self {
            Self::Request(context) => set.describe_identity(rule, context),
            Self::Identity(values) => set.describe_values(rule, values),
        }
    }
}

/// Returns the rule and the band that a decision is counted by. For a shadow denial, they
/// are the first that would have refused.
pub(super) fn reported_rule(decision: &Decision) -> (Option<&Rule>, Option<&Band>) {
    if decision.outcome() == Outcome::ShadowDenied {
        let first = decision.violated().next();
        return (first.map(|it| it.rule), first.and_then(|it| it.band));
    }
    (decision.rule(), decision.band())
}

/// Returns whether only a store that answers leads to this outcome.
pub(super) fn needs_store(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Allowed | Outcome::Denied | Outcome::ShadowDenied
    )
}
