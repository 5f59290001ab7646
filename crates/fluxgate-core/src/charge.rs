//! What a request was charged, to be given back if it does not take place.

use std::ops::Range;

use crate::algorithm::Mode;
use crate::context::RequestContext;
use crate::decision::Outcome;
use crate::key::{self, Identity, SubjectBytes};
use crate::limit::{Algorithm, Limit};
use crate::plan::Plan;
use crate::rules::{Band, RuleSetInForce};
use crate::store::Subject;
use crate::time::Micros;

/// What a request was charged: the units of every rule that took some.
#[derive(Clone, Debug)]
pub struct Charge {
    set: RuleSetInForce,
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
    /// How long each band needed to be full again when it had taken them; none
    /// where nobody noted that.
    reset_after: Vec<Micros>,
}

impl Charge {
    /// What a request like this reserves when it passes with this outcome: in
    /// every rule that applies, but those that `refused` it, which are shadow
    /// rules then. `None` if that is nothing.
    ///
    /// When that was is not known here. So only the buckets that can owe are
    /// among them: what others took may have come back to them by itself.
    pub fn of(
        set: &RuleSetInForce,
        context: &RequestContext<'_>,
        outcome: Outcome,
        refused: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        if !outcome.charges() {
            return None;
        }
        let mut plan = Plan::new(Mode::Take);
        plan.fill(set, context);
        if plan.refused {
            return None;
        }
        let mut charge = Self::new(set.clone(), outcome);
        for applied in &plan.applied {
            let rule = &set.rules()[applied.rule as usize];
            let can_owe = { rule.bands_in(&applied.bands).iter() }.all(|it| can_owe(it.limit()));
            if can_owe && !refused(rule.id()) {
                charge.add(applied.rule, applied.bands.clone(), context, Vec::new());
            }
        }
        charge.is_something().then_some(charge)
    }

    /// How many rules took something.
    pub fn rules(&self) -> usize {
        self.taken.len()
    }

    /// Nothing yet.
    pub(crate) fn new(set: RuleSetInForce, outcome: Outcome) -> Self {
        Self {
            set,
            by_fallback: outcome == Outcome::Fallback,
            taken: Vec::new(),
        }
    }

    /// Adds what a rule took of a request in these bands, and how long each of
    /// them then needed to be full again.
    pub(crate) fn add(
        &mut self,
        rule: u32,
        bands: Range<u32>,
        context: &RequestContext<'_>,
        reset_after: Vec<Micros>,
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
                reset_after,
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

    /// Whom it was taken from, in which bands, and how much of it they still hold
    /// when so long has passed.
    pub(crate) fn held_after(
        &self,
        waited: Micros,
    ) -> impl Iterator<Item = (Subject<'_>, &[Band], u64)> {
        self.taken.iter().flat_map(move |taken| {
            let rule = self.set.rules().get(taken.rule as usize);
            rule.into_iter().flat_map(move |rule| {
                let subject = Subject {
                    rule: rule.number(),
                    bytes: &taken.subject,
                };
                let held = taken.held_after(rule.bands_in(&taken.bands), waited);
                { held.into_iter() }.map(move |(bands, units)| (subject, bands, units))
            })
        })
    }
}

impl Taken {
    /// How many units these bands still hold when so long has passed: as few
    /// slices as can be, each of bands that hold as many.
    fn held_after<'b>(&self, bands: &'b [Band], waited: Micros) -> Vec<(&'b [Band], u64)> {
        let held = |at: usize| {
            let reset_after = self.reset_after.get(at).copied();
            held_after(bands[at].limit(), self.units, reset_after, waited)
        };
        let mut slices = Vec::new();
        let mut start = 0;
        while start < bands.len() {
            let units = held(start);
            let same = (start..bands.len()).take_while(|at| held(*at) == units);
            let end = start + same.count();
            if units > 0 {
                slices.push((&bands[start..end], units));
            }
            start = end;
        }
        slices
    }
}

/// Whether what a band takes may come out of the future.
fn can_owe(limit: &Limit) -> bool {
    let rate = limit.rate();
    limit.algorithm().is_bucket() && (rate.max_wait().is_some() || rate.shape())
}

/// How many of its units a band still holds when so long has passed. Where that
/// is not certain it is less: what has left already and is given back again lets
/// more pass than the limit.
fn held_after(limit: &Limit, units: u64, reset_after: Option<Micros>, waited: Micros) -> u64 {
    if waited == Micros::ZERO {
        return units;
    }
    let Some(reset_after) = reset_after else {
        return 0;
    };
    // One more, for the time until it is full was rounded up.
    let gone = waited.get().saturating_add(1);
    let left = reset_after.get().saturating_sub(gone);
    let all_or_nothing = |held: bool| if held { units } else { 0 };
    match limit.algorithm() {
        // Had it not taken them, it would have been full so much earlier; from
        // then on they refill.
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let rate = limit.rate();
            let refills = u128::from(left) * u128::from(rate.refill());
            let refills = refills / u128::from(rate.period().get());
            u64::try_from(refills).map_or(units, |refills| refills.min(units))
        }
        // They leave with the window; that of a sliding one then weighs for as
        // long again.
        Algorithm::FixedWindow | Algorithm::SlidingLog => all_or_nothing(left > 0),
        Algorithm::SlidingWindow => all_or_nothing(left > limit.window().get()),
    }
}
