//! From a context and a rule set to the checks that must be run.

use std::ops::Range;

use smallvec::SmallVec;

use crate::algorithm::Mode;
use crate::context::RequestContext;
use crate::key::{self, Identity, IdentityError, OnMissingKey};
use crate::matcher::Matches;
use crate::request_path::RequestPath;
use crate::rules::{RuleMode, RuleSet};
use crate::store::{Checks, Group};

/// A rule that applies to a request.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// Its place in the order of evaluation.
    pub(crate) rule: u32,
    /// The bands of its checks; none where its key is missing and it refuses.
    pub(crate) bands: Range<u32>,
    /// Whether it can only be reported.
    pub(crate) shadow: bool,
    /// Where its identity stands among the bytes of the checks.
    pub(crate) identity: Range<usize>,
}

/// Where what each of several requests asks ends among [`Plan::applied`].
pub(crate) type Ends = SmallVec<[usize; 4]>;

/// What one request asks: the rules that apply, the enforced ones first, and
/// their checks in the same order.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'r> {
    pub(crate) applied: SmallVec<[Applied; 4]>,
    pub(crate) checks: Checks<'r>,
    /// Whether an enforced rule refuses for want of a key.
    pub(crate) refused: bool,
}

impl<'r> Plan<'r> {
    /// Asks nothing yet.
    #[inline]
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            applied: SmallVec::new(),
            checks: Checks::new(mode),
            refused: false,
        }
    }

    /// Adds what the rules of `set` ask of a request. (Not a constructor: a
    /// plan is large, and is filled where it stands.)
    pub(crate) fn fill(&mut self, set: &'r RuleSet, context: &RequestContext<'_>) {
        let mut matches = Matches::new();
        set.matcher().find(context, &mut matches);
        let has_shadow = self.add_enforced(set, context, &matches);
        if self.refused {
            self.only_look();
        } else if has_shadow {
            self.add_shadow(set, context, &matches);
        }
    }

    /// Adds what the rules of `set` ask of several requests that are charged
    /// together or not at all. Tells where what each of them asks ends, first
    /// of the enforced rules, then of the shadow rules.
    pub(crate) fn fill_all(
        &mut self,
        set: &'r RuleSet,
        contexts: &[RequestContext<'_>],
    ) -> (Ends, Ends) {
        let (mut enforced, mut shadow) = (Ends::new(), Ends::new());
        let mut all = Vec::with_capacity(contexts.len());
        for context in contexts {
            let mut matches = Matches::new();
            set.matcher().find(context, &mut matches);
            let has_shadow = self.add_enforced(set, context, &matches);
            enforced.push(self.applied.len());
            all.push((context, matches, has_shadow));
        }
        if self.refused {
            self.only_look();
            return (enforced, shadow);
        }
        for (context, matches, has_shadow) in &all {
            if *has_shadow {
                self.add_shadow(set, context, matches);
            }
            shadow.push(self.applied.len());
        }
        (enforced, shadow)
    }

    /// Adds one rule for exactly these values of its key, whether it matches or
    /// not. `cost` replaces the rule's own.
    pub(crate) fn fill_named(
        &mut self,
        set: &'r RuleSet,
        index: usize,
        identity: &[&str],
        cost: Option<u64>,
    ) -> Result<(), IdentityError> {
        let rule = &set.rules()[index];
        let bytes = self.checks.bytes_mut();
        let start = bytes.len();
        bytes.extend_from_slice(rule.subject());
        let identity_start = bytes.len();
        key::encode_values(rule.key(), identity, set.ipv6_prefix(), bytes)?;
        let bands = rule.bands_for(&bytes[identity_start..]);
        let identity = identity_start..bytes.len();
        let cost = cost.unwrap_or_else(|| rule.cost().cost_of(&RequestContext::default()));
        let shadow = rule.mode() == RuleMode::Shadow;
        let group = match shadow {
            true => Group::shadow(0),
            false => Group::ENFORCED,
        };
        self.checks
            .push_encoded(start, rule.number(), rule.bands_in(&bands), cost, group);
        self.applied.push(Applied {
            rule: index as u32,
            bands,
            shadow,
            identity,
        });
        Ok(())
    }

    /// The request is denied whatever the bands say; they are asked only to
    /// name those that refuse too. Shadow rules are not asked at all.
    fn only_look(&mut self) {
        self.checks.set_mode(self.checks.mode().peeking());
    }

    /// Adds the enforced rules among these; tells whether there are others.
    fn add_enforced(
        &mut self,
        set: &'r RuleSet,
        context: &RequestContext<'_>,
        matches: &Matches,
    ) -> bool {
        let mut has_shadow = false;
        for &index in matches.iter() {
            match set.rules()[index as usize].mode() {
                RuleMode::Enforce => self.add(set, index, context, Group::ENFORCED),
                RuleMode::Shadow => has_shadow = true,
            }
        }
        has_shadow
    }

    fn add_shadow(&mut self, set: &'r RuleSet, context: &RequestContext<'_>, matches: &Matches) {
        for &index in matches.iter() {
            if set.rules()[index as usize].mode() == RuleMode::Shadow {
                self.add(set, index, context, Group::shadow(self.applied.len()));
            }
        }
    }

    fn add(&mut self, set: &'r RuleSet, index: u32, context: &RequestContext<'_>, group: Group) {
        let rule = &set.rules()[index as usize];
        let is_excepted = |path: &RequestPath<'_>| rule.not_path().contains_both(path);
        if context.request_path().is_some_and(is_excepted) {
            return;
        }
        let bytes = self.checks.bytes_mut();
        let start = bytes.len();
        bytes.extend_from_slice(rule.subject());
        let identity_start = bytes.len();
        let on_missing = match context.whole_keys {
            true => OnMissingKey::Skip,
            false => rule.on_missing_key(),
        };
        let identity =
            key::encode_identity(rule.key(), on_missing, context, set.ipv6_prefix(), bytes);
        let bands = match identity {
            Identity::Known => rule.bands_for(&bytes[identity_start..]),
            Identity::Skip | Identity::Deny => {
                bytes.truncate(start);
                if identity == Identity::Skip {
                    return;
                }
                0..0
            }
        };
        let shadow = group != Group::ENFORCED;
        self.refused |= bands.is_empty() && !shadow;
        let cost = rule.cost().cost_of(context);
        let identity = identity_start..self.checks.bytes_mut().len().max(identity_start);
        self.checks
            .push_encoded(start, rule.number(), rule.bands_in(&bands), cost, group);
        self.applied.push(Applied {
            rule: index,
            bands,
            shadow,
            identity,
        });
    }

    /// The identity that a rule counts, encoded.
    pub(crate) fn identity(&self, applied: &Applied) -> &[u8] {
        self.checks.bytes(applied.identity.clone())
    }
}
