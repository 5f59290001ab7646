//! From a request and a rule set to the checks that a store decides.

use std::iter;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::algorithm::Mode;
use crate::context::RequestContext;
use crate::hold::HoldId;
use crate::key::{self, Identity, OnMissingKey, Subject, SubjectBytes};
use crate::matcher::Matches;
use crate::request_path::RequestPath;
use crate::rules::{ActiveRule, IdentitySubject, RuleAction, RuleMode, RuleSet};
use crate::store::{Checks, Group, HoldRequest};
use crate::time::{Micros, Timestamp};

/// A rule that applies to a request.
#[derive(Clone, Debug)]
pub(crate) struct AppliedRule {
    /// Its index in the order of evaluation.
    pub(crate) rule: u32,
    /// The bands to check; none if it denies what it matches, or a part of its key is missing
    /// and it denies.
    pub(crate) bands: Range<u32>,
    /// The units that the request asks for.
    pub(crate) cost: u64,
    /// Whether the decision reports the use of its bands.
    pub(crate) reports_use: bool,
    group: Group,
    /// The bytes of its subject.
    subject: Range<usize>,
}

impl AppliedRule {
    /// Returns whether it is only reported.
    pub(crate) fn is_shadow(&self) -> bool {
        self.group != Group::ENFORCED
    }
}

/// A rule that decides a request by itself, as its index in the order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deny(u32),
    Allow(u32),
}

/// Returns the time of the store, by which overrides end. It is only called for identities whose
/// override ends: most plans need no time.
pub(crate) type StoreTime<'t> = &'t dyn Fn() -> Timestamp;

/// The index in [`Plan::applied`] at which each of several requests ends.
pub(crate) type Ends = SmallVec<[usize; 4]>;

/// The rules that apply to a request, the enforced ones first.
///
/// A plan borrows nothing, so it can be handed on to a future. It is large and
/// therefore filled in place. All its methods must get the same rule set.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) applied: SmallVec<[AppliedRule; 4]>,
    /// What decides each of the requests, if not its limits. If one is denied, no rule applies
    /// to any of them.
    actions: SmallVec<[Option<Action>; 1]>,
    mode: Mode,
    /// The subjects, one after the other.
    bytes: SubjectBytes,
    /// Whether an enforced rule denies because a part of its key is missing.
    lacks_key: bool,
    /// Whether an enforced rule charges even if the request is denied.
    charges_always: bool,
    /// Whether the request is denied whatever the bands say.
    is_refused: bool,
    /// Whether a rule takes slots, which are always held.
    takes_slots: bool,
    /// The id of the hold, if there is one, and its requested lifetime.
    pub(crate) hold: Option<(HoldId, Option<Micros>)>,
    /// Whether the decision reports the level of every band.
    pub(crate) tells_levels: bool,
    /// Whether the decision reports the use of its bands: an enforced rule notifies.
    pub(crate) reports_uses: bool,
}

impl Plan {
    /// Creates an empty plan.
    #[inline]
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            applied: SmallVec::new(),
            actions: SmallVec::new(),
            mode,
            bytes: SubjectBytes::new(),
            lacks_key: false,
            charges_always: false,
            is_refused: false,
            takes_slots: false,
            hold: None,
            tells_levels: false,
            reports_uses: false,
        }
    }

    /// Adds the rules of `set` that apply to a request.
    pub(crate) fn fill(&mut self, set: &RuleSet, context: &RequestContext<'_>, now: StoreTime<'_>) {
        let mut matches = Matches::new();
        set.matcher(context).find(context, &mut matches);
        if let Some(action) = action_of(set, context, &matches) {
            self.actions.push(Some(action));
            return;
        }
        let has_shadow = self.add_enforced(set, context, &matches, now);
        if self.lacks_key {
            self.only_peek();
        } else if has_shadow && !context.is_provisional {
            self.add_shadow(set, context, &matches, now);
        }
        self.assign_hold(context.holds, context.hold_for);
        self.tells_levels = context.holds;
    }

    /// Adds the rules of `set` that apply to several requests, which are charged together
    /// or not at all. Returns where the enforced rules and the shadow rules of each
    /// request end. If a rule denies one of them, nothing of the others is decided.
    pub(crate) fn fill_all(
        &mut self,
        set: &RuleSet,
        contexts: &[RequestContext<'_>],
        now: StoreTime<'_>,
    ) -> (Ends, Ends) {
        let (mut enforced, mut shadow) = (Ends::new(), Ends::new());
        let mut all = Vec::with_capacity(contexts.len());
        for context in contexts {
            let mut matches = Matches::new();
            set.matcher(context).find(context, &mut matches);
            self.actions.push(action_of(set, context, &matches));
            all.push((context, matches, false));
        }
        if self
            .actions
            .iter()
            .any(|it| matches!(it, Some(Action::Deny(_))))
        {
            return (smallvec![0; contexts.len()], shadow);
        }
        for (index, (context, matches, has_shadow)) in all.iter_mut().enumerate() {
            if self.actions[index].is_none() {
                *has_shadow = self.add_enforced(set, context, matches, now);
            }
            enforced.push(self.applied.len());
        }
        if self.lacks_key {
            self.only_peek();
            return (enforced, shadow);
        }
        for (context, matches, has_shadow) in &all {
            if *has_shadow {
                self.add_shadow(set, context, matches, now);
            }
            shadow.push(self.applied.len());
        }
        let holds = contexts.iter().any(|context| context.holds);
        self.assign_hold(holds, contexts.iter().filter_map(|it| it.hold_for).max());
        (enforced, shadow)
    }

    /// Adds one rule for exactly this identity, whether the rule matches or not. `cost` replaces
    /// the rule's own.
    pub(crate) fn fill_named(
        &mut self,
        set: &RuleSet,
        index: usize,
        identity: &IdentitySubject,
        cost: Option<u64>,
    ) {
        let rule = &set.rules()[index];
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&identity.subject);
        self.applied.push(AppliedRule {
            rule: index as u32,
            bands: identity.bands.clone(),
            cost: cost.unwrap_or_else(|| rule.cost.cost_of(&RequestContext::default())),
            reports_use: !rule.notify().is_empty(),
            group: match identity.mode {
                RuleMode::Enforce => Group::ENFORCED,
                RuleMode::Shadow => Group::shadow(0),
            },
            subject: start..self.bytes.len(),
        });
        self.takes_slots = rule.takes_slots();
        self.reports_uses = !rule.notify().is_empty();
        self.assign_hold(false, None);
    }

    /// Gives the request a hold if it names one or takes slots.
    #[inline]
    fn assign_hold(&mut self, holds: bool, span: Option<Micros>) {
        let may_charge = self.mode.takes() && !self.is_refused && !self.applied.is_empty();
        if (holds || self.takes_slots) && may_charge {
            self.hold = Some((HoldId::random(), span));
        }
    }

    /// Returns whether a request that passes is charged.
    pub(crate) fn takes(&self) -> bool {
        self.mode.takes()
    }

    /// Returns what decides one of the requests, if not its limits.
    #[inline]
    pub(crate) fn action(&self, request: usize) -> Option<Action> {
        self.actions.get(request).copied().flatten()
    }

    /// Returns the checks of the bands.
    #[inline]
    pub(crate) fn checks<'p>(&'p self, set: &'p RuleSet) -> Checks<'p> {
        let mut checks = Checks::new(self.mode);
        for applied in &self.applied {
            let rule = &set.rules()[applied.rule as usize];
            let bands = rule.bands_in(&applied.bands);
            let subject = self.subject(applied, rule);
            checks.push(subject, bands, applied.cost, applied.group);
        }
        if self.is_refused {
            checks.refuse();
        }
        if let Some((id, span)) = self.hold {
            let attributes = self.applied.iter().flat_map(|applied| {
                let rule = &set.rules()[applied.rule as usize];
                iter::repeat_n(rule.cost.attribute(), applied.bands.len())
            });
            checks.set_hold(HoldRequest::new(id, span, attributes));
        }
        checks
    }

    /// Returns checks of the same bands that only report their state.
    pub(crate) fn peeks<'p>(&'p self, set: &'p RuleSet) -> Checks<'p> {
        let mut checks = Checks::new(Mode::Peek);
        for applied in &self.applied {
            let rule = &set.rules()[applied.rule as usize];
            let bands = rule.bands_in(&applied.bands);
            checks.push(self.subject(applied, rule), bands, 0, Group::ENFORCED);
        }
        checks
    }

    /// Returns the subject of a rule that applies.
    #[inline]
    pub(crate) fn subject(&self, applied: &AppliedRule, rule: &ActiveRule) -> Subject<'_> {
        Subject {
            rule: rule.number(),
            bytes: &self.bytes[applied.subject.clone()],
        }
    }

    /// Returns the encoded identity that a rule counts in a request: `Some(None)` if a part
    /// of the key is missing and the rule denies; `None` if it skips such requests.
    pub(crate) fn identity_of(
        set: &RuleSet,
        rule: &ActiveRule,
        context: &RequestContext<'_>,
    ) -> Option<Option<SubjectBytes>> {
        let mut bytes = SubjectBytes::new();
        match encode_identity(set, rule, context, &mut bytes) {
            Identity::Known => Some(Some(bytes)),
            Identity::Deny => Some(None),
            Identity::Skip => None,
        }
    }

    /// Returns the encoded identity that a rule counts.
    pub(crate) fn identity(&self, applied: &AppliedRule, rule: &ActiveRule) -> &[u8] {
        let subject = self.bytes.get(applied.subject.clone());
        let identity = subject.and_then(|subject| subject.get(rule.subject().bytes.len()..));
        identity.unwrap_or_default()
    }

    /// Charges nothing but rules that charge denied requests: the request is denied whatever the
    /// bands say, and they are only checked to report those that deny too. Shadow rules are not
    /// decided.
    fn only_peek(&mut self) {
        if self.charges_always && self.mode.reports_charge() {
            self.is_refused = true;
        } else {
            self.mode = self.mode.peeking();
        }
    }

    /// Adds the enforced rules among the matches. Returns whether there may be shadow rules.
    fn add_enforced(
        &mut self,
        set: &RuleSet,
        context: &RequestContext<'_>,
        matches: &Matches,
        now: StoreTime<'_>,
    ) -> bool {
        let mut has_shadow = false;
        let mut groups = RuleGroups::new();
        for &index in matches.iter() {
            let rule = &set.rules()[index as usize];
            match rule.mode() {
                // It does not match the path, or it would have decided.
                RuleMode::Enforce if rule.action().decides() => {}
                RuleMode::Enforce => {
                    let group = (Group::ENFORCED, &mut groups);
                    self.add(set, index, context, group, now);
                }
                RuleMode::Shadow => has_shadow = true,
            }
            has_shadow |= rule.rollout().is_some();
        }
        has_shadow
    }

    fn add_shadow(
        &mut self,
        set: &RuleSet,
        context: &RequestContext<'_>,
        matches: &Matches,
        now: StoreTime<'_>,
    ) {
        let mut groups = RuleGroups::new();
        for &index in matches.iter() {
            let rule = &set.rules()[index as usize];
            if rule.mode() == RuleMode::Shadow && rule.action() == RuleAction::Allow {
                continue;
            }
            if rule.mode() == RuleMode::Shadow || rule.rollout().is_some() {
                let group = Group::shadow(self.applied.len());
                self.add(set, index, context, (group, &mut groups), now);
            }
        }
    }

    /// Adds a rule, if all its conditions hold, it has the mode of `group` for the identity
    /// of the request, and no earlier rule of its own group applies.
    fn add(
        &mut self,
        set: &RuleSet,
        index: u32,
        context: &RequestContext<'_>,
        (group, groups): (Group, &mut RuleGroups),
        now: StoreTime<'_>,
    ) {
        let rule = &set.rules()[index as usize];
        if rule.group.is_some_and(|own| groups.contains(&own)) {
            return;
        }
        if context.lacks_call && rule.depends_on_call {
            return;
        }
        if is_excepted(rule, context) {
            return;
        }
        let bytes = &mut self.bytes;
        let start = bytes.len();
        bytes.extend_from_slice(rule.subject().bytes);
        let identity_start = bytes.len();
        let identity = encode_identity(set, rule, context, bytes);
        if identity == Identity::Deny {
            // All requests without a key are one identity.
            bytes.truncate(identity_start);
        }
        let is_enforced = rule.mode_for(&bytes[identity_start..]) == RuleMode::Enforce;
        if identity == Identity::Skip || is_enforced != (group == Group::ENFORCED) {
            bytes.truncate(start);
            return;
        }
        let bands = match identity {
            // A shadow rule that would deny: an enforced one would have decided.
            _ if rule.action().decides() => {
                bytes.truncate(start);
                0..0
            }
            Identity::Deny => {
                bytes.truncate(start);
                self.lacks_key |= is_enforced;
                0..0
            }
            _ => rule.bands_for(&bytes[identity_start..], now),
        };
        groups.extend(rule.group);
        if (context.is_provisional && !is_returnable(rule)) || set.leaves_out(rule) {
            bytes.truncate(start);
            return;
        }
        // Without its key, the rule has nothing to charge.
        let charges_always = is_enforced && !bands.is_empty() && rule.charges_always();
        self.charges_always |= charges_always;
        self.takes_slots |= rule.takes_slots();
        let reports_use = is_enforced && !rule.notify().is_empty();
        self.reports_uses |= reports_use;
        self.applied.push(AppliedRule {
            rule: index,
            bands,
            reports_use,
            // The units of a request that is decided again are among those that the band counts.
            // With them it passes as long as the band does not owe: with a cost of nothing.
            cost: if charges_always && context.is_decided_again {
                0
            } else {
                rule.cost.cost_of(context)
            },
            group,
            subject: start..bytes.len(),
        });
    }
}

/// Returns the first of the enforced rules among the matches that decides by itself.
#[inline]
fn action_of(set: &RuleSet, context: &RequestContext<'_>, matches: &Matches) -> Option<Action> {
    if !set.has_actions() {
        return None;
    }
    matches.iter().find_map(|&index| {
        let rule = &set.rules()[index as usize];
        let action = match rule.action() {
            RuleAction::Limit => return None,
            RuleAction::Deny { .. } => Action::Deny(index),
            RuleAction::Allow => Action::Allow(index),
        };
        let is_known = !(context.lacks_call && rule.depends_on_call);
        let decides = is_known && rule.mode() == RuleMode::Enforce && !is_excepted(rule, context);
        decides.then_some(action)
    })
}

/// Returns whether a rule excepts the path of a request, which the matcher does not test.
#[inline]
fn is_excepted(rule: &ActiveRule, context: &RequestContext<'_>) -> bool {
    let not_paths = &rule.conditions.not_paths;
    let is_excepted = |path: &RequestPath<'_>| not_paths.contains_both(path);
    context.request_path().is_some_and(is_excepted)
}

/// Returns whether a rule needs nothing but the head of a request, and its charge can be returned
/// as if it had not been made.
fn is_returnable(rule: &ActiveRule) -> bool {
    rule.tokens().is_none() && !rule.delays() && !rule.charges_always()
}

/// The groups that already have a rule for the request, by their numbers.
type RuleGroups = SmallVec<[u32; 4]>;

/// Adds the identity that a rule counts in a request.
#[inline]
fn encode_identity(
    set: &RuleSet,
    rule: &ActiveRule,
    context: &RequestContext<'_>,
    out: &mut SubjectBytes,
) -> Identity {
    let on_missing = if context.whole_keys {
        OnMissingKey::Skip
    } else {
        rule.on_missing_key
    };
    key::encode_identity(rule.key(), on_missing, context, set.ipv6_prefix(), out)
}
