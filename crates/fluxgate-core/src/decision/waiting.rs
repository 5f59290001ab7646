//! Decisions to wait for, and what is given back of those that were not.

use smallvec::SmallVec;

use super::{Decision, Held, Outcome};
use crate::charge::Charge;
use crate::context::RequestContext;
use crate::rules::RuleMode;
use crate::time::{Micros, Retry, Timestamp};

impl Decision {
    /// How long a filter may wait before it asks again, where that may help: the
    /// bands that refuse are all of rules that wait, and none for longer than it
    /// may. (A bucket of such a rule would have reserved.)
    pub fn worth_waiting(&self) -> Option<Micros> {
        let wait = self.retry_after.after()?;
        if self.allowed || self.violated.is_empty() {
            return None;
        }
        let mut most = self.violated().map(|violated| violated.rule.max_wait());
        most.all(|most| most.is_some_and(|most| wait <= most))
            .then_some(wait)
    }

    /// How long a request may wait that has to: the least that the rules allow
    /// which it waits for. `None` where they do not say, as those that shape.
    pub fn max_wait(&self) -> Option<Micros> {
        let delayed = self.delayed().map(|held| held.band);
        let delayed = delayed.filter_map(|band| self.resolve(band));
        let refused = self.violated().filter(|_| !self.allowed);
        { refused.chain(delayed) }
            .filter_map(|it| it.rule.max_wait())
            .min()
    }

    /// The same, when so long has passed since.
    pub fn after(mut self, waited: Micros) -> Self {
        let at = self.at.micros().saturating_add(waited.get());
        self.at = Timestamp::saturating_from_micros(at);
        let left = self.reset_after.get().saturating_sub(waited.get());
        self.reset_after = Micros::new(left);
        self
    }

    /// A request that was to wait, and found no place to: denied by the bands it
    /// would have waited for, the one with the longest wait reported. What it took
    /// is to be given back.
    pub fn into_denied(mut self) -> Self {
        let delayed: SmallVec<[Held; 2]> = self.delayed().copied().collect();
        // Of equals the first.
        let longest = delayed.iter().rev().max_by_key(|held| held.delay);
        let Some(&Held {
            band,
            at,
            reset_after,
            ..
        }) = longest
        else {
            return self;
        };
        self.allowed = false;
        if self.outcome != Outcome::Fallback {
            self.outcome = Outcome::Denied;
        }
        self.retry_after = Retry::After(self.delay);
        self.delay = Micros::ZERO;
        self.held = Vec::new();
        self.reported = Some(band);
        self.remaining = Some(0);
        self.at = at;
        self.reset_after = reset_after;
        // Shadow rules are not decided where the enforced ones refuse.
        let set = self.set.as_deref();
        self.applied.retain(|applied| {
            let rule = set.and_then(|set| set.rules().get(applied.rule as usize));
            rule.is_some_and(|rule| rule.mode() == RuleMode::Enforce)
        });
        for applied in &mut self.applied {
            applied.refuses = delayed.iter().any(|held| held.band.rule == applied.rule);
        }
        self.violated = delayed.iter().map(|held| held.band).collect();
        self
    }

    /// The enforced bands that have to be waited for, in the order of evaluation.
    fn delayed(&self) -> impl Iterator<Item = &Held> {
        let enforced = |band| {
            let rule = self.resolve(band).map(|it| it.rule);
            rule.is_some_and(|rule| rule.mode() == RuleMode::Enforce)
        };
        let held = self.held.iter();
        held.filter(move |held| held.delay > Micros::ZERO && enforced(held.band))
    }

    /// What a request that has to wait was charged, to be cancelled if it does not
    /// take place. `context` must be the one that was decided. `None` if it need
    /// not wait or was charged nothing.
    pub fn charge(&self, context: &RequestContext<'_>) -> Option<Charge> {
        if self.held.is_empty() || !self.allowed || !self.outcome.charges() {
            return None;
        }
        let mut charge = Charge::new(self.set.clone()?, self.outcome);
        for applied in self.applied.iter().filter(|applied| !applied.refuses) {
            let held = self.held.iter();
            let held = held.filter(|held| held.band.rule == applied.rule);
            let charged = held.map(|held| held.charged).collect();
            charge.add(applied.rule, applied.bands.clone(), context, charged);
        }
        charge.is_something().then_some(charge)
    }

    /// What [`Charge::of`] must be told to cancel what this request reserved, as text:
    /// where the units of each band went. `None` if it reserved nothing.
    pub fn reservation(&self) -> Option<String> {
        if self.held.is_empty() || !self.allowed || !self.outcome.charges() {
            return None;
        }
        let set = self.set.as_deref()?;
        let charged = self.applied.iter().filter(|applied| !applied.refuses);
        let rules = charged.filter_map(|applied| {
            let rule = set.rules().get(applied.rule as usize)?;
            let held = self.held.iter();
            let held = held.filter(|held| held.band.rule == applied.rule);
            let marks: Vec<_> = held.map(|held| held.charged.to_string()).collect();
            Some(format!("{}={}", rule.id(), marks.join("+")))
        });
        Some(rules.collect::<Vec<_>>().join(","))
    }
}
