//! The charge of a request that waits, which can be cancelled.

use std::ops::Range;

use super::outcome::Outcome;
use crate::algorithm::Charged;
use crate::context::RequestContext;
use crate::hold::HoldId;
use crate::key::{self, Identity, Subject, SubjectBytes};
use crate::rules::ActiveRuleSet;
use crate::store::ReservedCharge;

/// The units that a request was charged by each rule. It is cancelled by value, so once.
#[derive(Debug)]
pub struct Charge {
    set: ActiveRuleSet,
    /// Whether the fallback store charged them, because the store failed.
    pub(crate) by_fallback: bool,
    /// The hold of the request, whose slots are released.
    pub(crate) hold: Option<HoldId>,
    rules: Vec<ChargedRule>,
}

/// The units that one rule charged.
#[derive(Debug)]
struct ChargedRule {
    rule: u32,
    bands: Range<u32>,
    subject: Box<[u8]>,
    units: u64,
    /// Where the units of each band went.
    charged: Vec<Charged>,
}

impl Charge {
    /// Creates an empty charge.
    pub(crate) fn new(set: ActiveRuleSet, outcome: Outcome) -> Self {
        Self {
            set,
            by_fallback: outcome == Outcome::Fallback,
            hold: None,
            rules: Vec::new(),
        }
    }

    /// Adds the units that a rule charged in these bands, and where they went.
    pub(crate) fn add(
        &mut self,
        index: u32,
        bands: Range<u32>,
        context: &RequestContext<'_>,
        charged: Vec<Charged>,
    ) {
        let Some(rule) = self.set.rules().get(index as usize) else {
            return;
        };
        // Slots are released with the hold, and units that are always charged stay charged.
        if rule.takes_slots() || rule.charges_always() {
            return;
        }
        let units = rule.cost.cost_of(context);
        let mut subject = SubjectBytes::from(rule.subject().bytes);
        let (parts, on_missing) = (rule.key(), rule.on_missing_key);
        let prefix = self.set.ipv6_prefix();
        let built = key::encode_identity(parts, on_missing, context, prefix, &mut subject);
        if built == Identity::Known && !bands.is_empty() && units > 0 {
            self.rules.push(ChargedRule {
                rule: index,
                bands,
                subject: Box::from(&*subject),
                units,
                charged,
            });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns what each rule charged.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ReservedCharge<'_>> {
        self.rules.iter().filter_map(|charged| {
            let rule = self.set.rules().get(charged.rule as usize)?;
            let subject = Subject {
                rule: rule.number(),
                bytes: &charged.subject,
            };
            Some(ReservedCharge {
                subject,
                bands: rule.bands_in(&charged.bands),
                units: charged.units,
                charged: &charged.charged,
            })
        })
    }
}
