//! The charge of a request that waits, which can be cancelled.

use std::ops::Range;

use super::outcome::Outcome;
use crate::algorithm::{Charged, Mode};
use crate::band::Band;
use crate::context::RequestContext;
use crate::hold::HoldId;
use crate::key::{self, Identity, Subject, SubjectBytes};
use crate::plan::Plan;
use crate::rules::ActiveRuleSet;
use crate::time::Timestamp;

/// The units that a request was charged by each rule.
#[derive(Clone, Debug)]
pub struct Charge {
    set: ActiveRuleSet,
    /// Whether the fallback store charged them, because the store failed.
    by_fallback: bool,
    /// The hold of the request, whose slots are given back.
    hold: Option<HoldId>,
    rules: Vec<ChargedRule>,
}

/// The units that one rule charged.
#[derive(Clone, Debug)]
struct ChargedRule {
    rule: u32,
    bands: Range<u32>,
    subject: Box<[u8]>,
    units: u64,
    /// Where the units of each band went.
    charged: Vec<Charged>,
}

impl Charge {
    /// Returns the charge of a request that was decided elsewhere, as
    /// [`Decision::reservation`](crate::Decision::reservation) described it there. Rules
    /// that no longer apply have nothing to cancel. Returns `None` if no rule is left, or
    /// if the text is not a reservation.
    pub fn of(
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        outcome: Outcome,
        reservation: &str,
    ) -> Option<Self> {
        let mut plan = Plan::new(Mode::Take);
        // As far as this process knows. Bands of another number are not cancelled.
        plan.fill(set, context, &Timestamp::of_system_clock);
        let mut charge = Self::new(set.clone(), outcome);
        for part in reservation.split(',') {
            let (id, marks) = part.split_once('=')?;
            let charged = marks.split('+').map(|mark| mark.parse().ok());
            let charged: Vec<Charged> = charged.collect::<Option<_>>()?;
            let mut applied = plan.applied.iter();
            let applied = applied.find(|it| set.rules()[it.rule as usize].id() == id);
            if let Some(applied) = applied.filter(|it| it.bands.len() == charged.len()) {
                charge.add(applied.rule, applied.bands.clone(), context, charged);
            }
        }
        (!charge.is_empty()).then_some(charge)
    }

    /// Returns the number of rules that charged units.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

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
        if rule.takes_slots() {
            // They are given back by the hold.
            return;
        }
        let units = rule.cost().cost_of(context);
        let mut subject = SubjectBytes::from_slice(rule.subject().bytes);
        let (parts, on_missing) = (rule.key(), rule.on_missing_key());
        let prefix = self.set.ipv6_prefix();
        let built = key::encode_identity(parts, on_missing, context, prefix, &mut subject);
        if built == Identity::Known && !bands.is_empty() && units > 0 {
            self.rules.push(ChargedRule {
                rule: index,
                bands,
                subject: subject.into_boxed_slice(),
                units,
                charged,
            });
        }
    }

    /// Sets the hold of the request.
    pub(crate) fn set_hold(&mut self, hold: Option<HoldId>) {
        self.hold = hold;
    }

    /// Returns the hold of the request.
    pub(crate) fn hold(&self) -> Option<HoldId> {
        self.hold
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns whether the fallback store charged it.
    pub(crate) fn by_fallback(&self) -> bool {
        self.by_fallback
    }

    /// Returns for each rule the subject, the bands, the units and where they went.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Subject<'_>, &[Band], u64, &[Charged])> {
        self.rules.iter().filter_map(|charged| {
            let rule = self.set.rules().get(charged.rule as usize)?;
            let subject = Subject {
                rule: rule.number(),
                bytes: &charged.subject,
            };
            let bands = rule.bands_in(&charged.bands);
            Some((subject, bands, charged.units, &charged.charged[..]))
        })
    }
}
