//! From a context and a rule set to the checks that must be run.

use std::ops::Range;

use smallvec::SmallVec;

use crate::algorithm::Mode;
use crate::context::RequestContext;
use crate::key::{self, Identity};
use crate::matcher::Matches;
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
        let mut has_shadow = false;
        for &index in matches.iter() {
            match set.rules()[index as usize].mode() {
                RuleMode::Enforce => self.add(set, index, context, Group::ENFORCED),
                RuleMode::Shadow => has_shadow = true,
            }
        }
        if self.refused {
            // The request is denied whatever the bands say; they are asked only
            // to name those that refuse too. Shadow rules are not asked at all.
            self.checks.set_mode(Mode::Peek);
        } else if has_shadow {
            for &index in matches.iter() {
                if set.rules()[index as usize].mode() == RuleMode::Shadow {
                    self.add(set, index, context, Group::shadow(self.applied.len()));
                }
            }
        }
    }

    fn add(&mut self, set: &'r RuleSet, index: u32, context: &RequestContext<'_>, group: Group) {
        let rule = &set.rules()[index as usize];
        if rule.not_path().contains(context.path()) {
            return;
        }
        let bytes = self.checks.bytes_mut();
        let start = bytes.len();
        bytes.extend_from_slice(rule.subject());
        let identity_start = bytes.len();
        let identity = key::encode_identity(
            rule.key(),
            rule.on_missing_key(),
            context,
            set.ipv6_prefix(),
            bytes,
        );
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
