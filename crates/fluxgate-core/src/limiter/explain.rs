//! Why a request is decided as it is.

use super::BandState;
use crate::algorithm::Verdict;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::key::{KeyPart, OnMissingKey, describe_identity, missing_parts};
use crate::lease::Lease;
use crate::plan::{Action, AppliedRule, Plan};
use crate::rules::{ActiveRule, Rollout, RuleAction, RuleMode, RuleSet};

/// How every rule of a set contributes to a decision.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The decision that the request would get.
    pub decision: Decision,
    /// All rules: the enabled ones in the order of evaluation, then the others.
    pub rules: Vec<RuleExplanation>,
}

/// How a rule contributes to a decision.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RuleExplanation {
    /// The rule's id.
    pub rule: String,
    /// What keeps the rule from matching, by its field: `path`, `headers.x-plan`, `ip`; `key`
    /// if a part of the key is missing and the rule skips such requests; `enabled` if it is
    /// not. `None` if it matches.
    pub failed: Option<String>,
    /// The list that the failed field is about, if it is about one.
    pub list: Option<String>,
    /// What it does with the requests that it matches.
    pub action: RuleAction,
    /// The identity that it counts, if it matches and no part of the key is missing.
    /// Of API keys only the ends are shown.
    pub identity: Option<String>,
    /// The same identity, encoded. [`Limiter::stored_identity`](crate::Limiter::stored_identity)
    /// takes it.
    pub encoded_identity: Option<Box<[u8]>>,
    /// The parts of its key that the request lacks, if its `match` holds.
    pub missing: Vec<KeyPart>,
    /// What it does about missing parts.
    pub on_missing_key: OnMissingKey,
    /// Whether it takes part in the decision. A rule that matches does, unless an earlier
    /// one of its group does, or a rule decides by itself.
    pub applies: bool,
    /// Whether it may deny this identity's requests.
    pub mode: RuleMode,
    /// Its place in its group, if it is in one.
    pub group: Option<GroupPlace>,
    /// The share of identities that it is enforced for, if not for all.
    pub rollout: Option<Rollout>,
    /// How instances take units of its bands in advance, if they do.
    pub lease: Option<Lease>,
    /// Its bands, if it applies.
    pub bands: Vec<BandExplanation>,
}

/// The place of a rule in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupPlace {
    /// The name of the group.
    pub name: String,
    /// Its place among the enabled rules of the group, from 1.
    pub place: usize,
    /// The rule of the group that applies instead.
    pub instead: Option<String>,
}

/// A band of a rule that applies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BandExplanation {
    /// Its state before the decision.
    pub before: BandState,
    /// Its state after the decision, if the request were made.
    pub after: BandState,
    /// Whether it denies the request.
    pub denies: bool,
}

/// What the store says about the checked bands, in their order.
pub(super) struct BandVerdicts<'v> {
    pub(super) before: &'v [Verdict],
    /// Without those of shadow rules, which are not decided if the enforced ones deny.
    pub(super) after: &'v [Verdict],
    pub(super) on_lease: &'v [u64],
}

pub(super) fn explain_rules(
    set: &RuleSet,
    plan: &Plan,
    context: &RequestContext<'_>,
    verdicts: &BandVerdicts<'_>,
) -> Vec<RuleExplanation> {
    let active = set.rules().iter().enumerate();
    let mut rules: Vec<_> = active
        .map(|(index, rule)| explain_rule(set, index, rule, context))
        .collect();
    if let Some(Action::Deny(index) | Action::Allow(index)) = plan.action(0) {
        rules[index as usize].applies = true;
    }
    let mut at = 0;
    for applied in &plan.applied {
        let index = applied.rule as usize;
        add_bands(&mut rules[index], set, applied, verdicts, &mut at);
    }
    name_substitutes(set, &mut rules);
    rules.extend(set.disabled().map(|rule| RuleExplanation {
        rule: rule.into(),
        failed: Some("enabled".into()),
        ..RuleExplanation::default()
    }));
    rules
}

/// Explains what one rule does with an identity that it is looked up by.
pub(super) fn explain_named_rule(
    set: &RuleSet,
    plan: &Plan,
    index: usize,
    verdicts: &BandVerdicts<'_>,
) -> RuleExplanation {
    let rule = &set.rules()[index];
    let applied = plan.applied.first();
    let identity = applied.map(|applied| plan.identity(applied, rule));
    let mut explained = RuleExplanation {
        rule: rule.id().into(),
        action: rule.action(),
        identity: identity.map(describe_identity),
        encoded_identity: identity.map(Into::into),
        on_missing_key: rule.on_missing_key,
        mode: rule.mode(),
        group: group_place(set, index),
        rollout: rule.rollout(),
        lease: rule.lease(),
        ..RuleExplanation::default()
    };
    if let Some(applied) = applied {
        add_bands(&mut explained, set, applied, verdicts, &mut 0);
    }
    explained
}

/// Adds what a rule that applies does, with its bands. `at` is the place of its first band among
/// the verdicts, and becomes that of the next rule.
fn add_bands(
    explained: &mut RuleExplanation,
    set: &RuleSet,
    applied: &AppliedRule,
    verdicts: &BandVerdicts<'_>,
    at: &mut usize,
) {
    explained.applies = true;
    explained.mode = if applied.is_shadow() {
        RuleMode::Shadow
    } else {
        RuleMode::Enforce
    };
    for band in set.rules()[applied.rule as usize].bands_in(&applied.bands) {
        let (before, decided) = (verdicts.before.get(*at), verdicts.after.get(*at));
        let on_lease = verdicts.on_lease.get(*at).copied().unwrap_or_default();
        *at += 1;
        let Some(before) = before else { continue };
        let state = |verdict: &Verdict| BandState::new(band, verdict, on_lease);
        explained.bands.push(BandExplanation {
            before: state(before),
            after: state(decided.unwrap_or(before)),
            denies: decided.is_some_and(|verdict| !verdict.passes()),
        });
    }
}

/// Returns the place of a rule in its group, if it is in one.
fn group_place(set: &RuleSet, index: usize) -> Option<GroupPlace> {
    let group = set.rules()[index].group?;
    let earlier = set.rules()[..=index].iter();
    Some(GroupPlace {
        name: set.group_name(group).into(),
        place: earlier.filter(|it| it.group == Some(group)).count(),
        instead: None,
    })
}

fn explain_rule(
    set: &RuleSet,
    index: usize,
    rule: &ActiveRule,
    context: &RequestContext<'_>,
) -> RuleExplanation {
    let encoded = Plan::identity_of(set, rule, context);
    let failed = set.matcher(context).first_failed(&rule.conditions, context);
    let list = failed.as_ref().and_then(|failed| failed.list);
    let failed = failed.map(|failed| failed.field);
    let missing = match failed {
        None => missing_parts(rule.key(), context).cloned().collect(),
        Some(_) => Vec::new(),
    };
    let is_skipped = failed.is_none() && encoded.is_none();
    let failed = failed.or(is_skipped.then(|| "key".into()));
    let counts = failed.is_none() && !rule.action().decides();
    let identity = encoded.flatten().filter(|_| counts);
    RuleExplanation {
        rule: rule.id().into(),
        failed,
        list: list.map(|list| set.list_name(list).into()),
        action: rule.action(),
        mode: rule.mode_for(identity.as_deref().unwrap_or_default()),
        identity: identity.as_deref().map(describe_identity),
        encoded_identity: identity.map(|identity| (*identity).into()),
        missing,
        on_missing_key: rule.on_missing_key,
        applies: false,
        group: group_place(set, index),
        rollout: rule.rollout(),
        lease: rule.lease(),
        bands: Vec::new(),
    }
}

/// Names the rule that applies in place of others of its group.
fn name_substitutes(set: &RuleSet, rules: &mut [RuleExplanation]) {
    for index in 0..rules.len() {
        let group = set.rules()[index].group;
        let explained = &rules[index];
        if explained.applies || explained.failed.is_some() || group.is_none() {
            continue;
        }
        let mut active = set.rules().iter().zip(&*rules);
        let instead = active
            .find(|(rule, other)| {
                rule.group == group && other.applies && other.mode == explained.mode
            })
            .map(|(rule, _)| rule.id().to_owned());
        if let Some(place) = &mut rules[index].group {
            place.instead = instead;
        }
    }
}
