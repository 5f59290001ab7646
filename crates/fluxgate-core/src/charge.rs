//! What a request that waits was charged, to be cancelled if it does not take
//! place.

use std::ops::Range;

use crate::algorithm::{Charged, Mode};
use crate::context::RequestContext;
use crate::decision::Outcome;
use crate::key::{self, Identity, SubjectBytes};
use crate::plan::Plan;
use crate::rules::{ActiveRuleSet, Band};
use crate::store::Subject;

/// What a request was charged: the units of every rule that took some.
#[derive(Clone, Debug)]
pub struct Charge {
    set: ActiveRuleSet,
    /// Whether the embedded engine took them, in the store's stead.
    by_fallback: bool,
    taken: Vec<Taken>,
}

/// What one rule took.
#[derive(Clone, Debug)]
struct Taken {
    rule: u32,
    bands: Range<u32>,
    subject: Box<[u8]>,
    units: u64,
    /// Where the units of each band went.
    charged: Vec<Charged>,
}

impl Charge {
    /// What a request reserved that was decided elsewhere, by what
    /// [`Decision::reservation`](crate::Decision::reservation) said of it there. Rules
    /// that no longer apply have nothing to cancel. `None` if none has, or if the text
    /// is no reservation.
    pub fn of(
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        outcome: Outcome,
        reservation: &str,
    ) -> Option<Self> {
        let mut plan = Plan::new(Mode::Take);
        plan.fill(set, context);
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
        charge.is_something().then_some(charge)
    }

    /// How many rules took something.
    pub fn rules(&self) -> usize {
        self.taken.len()
    }

    /// Nothing yet.
    pub(crate) fn new(set: ActiveRuleSet, outcome: Outcome) -> Self {
        Self {
            set,
            by_fallback: outcome == Outcome::Fallback,
            taken: Vec::new(),
        }
    }

    /// Adds what a rule took of a request in these bands, and where it went.
    pub(crate) fn add(
        &mut self,
        rule: u32,
        bands: Range<u32>,
        context: &RequestContext<'_>,
        charged: Vec<Charged>,
    ) {
        let Some(known) = self.set.rules().get(rule as usize) else {
            return;
        };
        let units = known.cost().cost_of(context);
        let mut subject = SubjectBytes::new();
        subject.extend_from_slice(known.subject());
        let (parts, on_missing) = (known.key(), known.on_missing_key());
        let prefix = self.set.ipv6_prefix();
        let built = key::encode_identity(parts, on_missing, context, prefix, &mut subject);
        if built == Identity::Known && !bands.is_empty() && units > 0 {
            self.taken.push(Taken {
                rule,
                bands,
                subject: subject.to_vec().into(),
                units,
                charged,
            });
        }
    }

    /// Whether anything was taken.
    pub(crate) fn is_something(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Whether the embedded engine took it, in the store's stead.
    pub(crate) fn by_fallback(&self) -> bool {
        self.by_fallback
    }

    /// What each rule took: from which subject, in which bands, how many units, and
    /// where they went.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (Subject<'_>, &[Band], u64, &[Charged])> {
        self.taken.iter().filter_map(|taken| {
            let rule = self.set.rules().get(taken.rule as usize)?;
            let subject = Subject {
                rule: rule.number(),
                bytes: &taken.subject,
            };
            let bands = rule.bands_in(&taken.bands);
            Some((subject, bands, taken.units, &taken.charged[..]))
        })
    }
}
