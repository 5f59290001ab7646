//! Rules and a store: what everyone calls.

mod error;
mod virtual_time;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::algorithm::Mode;
use crate::charge::Charge;
use crate::context::RequestContext;
use crate::decision::{Decision, Outcome};
use crate::key;
use crate::memory::MemoryStore;
use crate::own::{AdHocDecision, AdHocKey};
use crate::plan::Plan;
use crate::rules::{ActiveRuleSet, Band, OnError, OnMissingRuleSet, Rule, RuleSet, RuleSets};
use crate::sip::Sip13;
use crate::store::{Checks, Group, Reason, Store, StoreError, Subject, Verdicts, WaitPermit};
use crate::time::{Micros, Retry};
pub use error::LimiterError;
pub use virtual_time::RuleVerdict;

/// Decides requests by rule sets that may change while it runs.
#[derive(Debug)]
pub struct Limiter<S = MemoryStore> {
    rules: ArcSwap<RuleSets>,
    store: S,
    /// Decides in the store's stead where a rule set says so; made when it is
    /// first needed.
    fallback: OnceLock<MemoryStore>,
    /// What is decided for limits that come with the call when the store fails.
    call_limits: OnError,
    observer: Option<Box<dyn Observer>>,
    /// Hashes of names that were asked for and do not exist, to be told of once
    /// each. They come from outside, so the names themselves are not kept.
    missing: Mutex<HashSet<u64>>,
}

/// Is told what a limiter notices besides its decisions.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// The store failed; the rule set's `on_error` decides. `None` stands for a
    /// peek, of which nothing comes.
    fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        let _ = (error, on_error);
    }

    /// A rule set was asked for that does not exist. Told once for each name, and
    /// again where the answer is that it was not passed on.
    fn rule_set_missing(&self, name: &str) -> bool {
        let _ = name;
        true
    }
}

impl<S: Store> Limiter<S> {
    /// Decides by these rules on this store.
    pub fn new(rules: RuleSets, store: S) -> Self {
        Self {
            rules: ArcSwap::from_pointee(rules),
            store,
            fallback: OnceLock::new(),
            call_limits: OnError::default(),
            observer: None,
            missing: Mutex::default(),
        }
    }

    /// Tells `observer` of store failures and missing rule sets.
    pub fn with_observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Sets what is decided for limits that come with the call ([`Limiter::take`])
    /// when the store fails; [`OnError::Local`] by default.
    pub fn call_limits(mut self, on_error: OnError) -> Self {
        self.call_limits = on_error;
        self
    }

    /// Returns what is decided for limits that come with the call when the store
    /// fails.
    pub fn call_limits_on_error(&self) -> OnError {
        self.call_limits
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSets> {
        self.rules.load_full()
    }

    /// Puts other rules in force, at once and as a whole. Rules that reset on
    /// change and have changed leave nothing behind.
    pub async fn replace_rules(&self, rules: RuleSets) -> Result<(), StoreError> {
        let replaced = self.swap_rules(rules);
        self.reset_replaced(&replaced).await
    }

    /// Puts other rules in force, at once and as a whole, and gives back those
    /// before. What they must not leave behind is still there:
    /// [`Limiter::reset_replaced`] deletes it.
    pub fn swap_rules(&self, rules: RuleSets) -> Arc<RuleSets> {
        self.rules.swap(Arc::new(rules))
    }

    /// Deletes the state of those replaced rules that reset on change, unless
    /// they are in force again. What fails keeps no other from being deleted; the
    /// first failure is told.
    pub async fn reset_replaced(&self, replaced: &RuleSets) -> Result<(), StoreError> {
        let mut first = Ok(());
        for set in replaced.iter() {
            for rule in set.rules().iter().filter(|rule| rule.reset_on_change()) {
                // Those of this moment: the one before may have taken long.
                let rules = self.rules.load_full();
                let now = rules.get(set.name()).and_then(|set| set.rule(rule.id()));
                // A rule that resets on change has what it says in its number.
                if now.is_none_or(|now| now.number() != rule.number()) {
                    let reset = self.store.reset_rule(rule_subject(rule)).await;
                    first = first.and(reset.map(drop));
                }
            }
        }
        first
    }

    /// Decides a request and charges it if it passes.
    pub async fn check(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Decision, LimiterError> {
        self.decide(rule_set, context, Mode::Take).await
    }

    /// Decides in the same way and charges nothing.
    pub async fn peek(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Decision, LimiterError> {
        self.decide(rule_set, context, Mode::Peek).await
    }

    /// Decides a request as if no rule let it wait, and charges it if it passes.
    pub async fn check_now(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Decision, LimiterError> {
        self.decide(rule_set, context, Mode::TakeNow).await
    }

    async fn decide(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, LimiterError> {
        let rules = self.rules.load();
        let Some(set) = rules.get(rule_set) else {
            return Ok(self.without_rule_set(rule_set, rules.on_missing()));
        };
        let set = ActiveRuleSet::hold(set);
        drop(rules);
        Ok(self.decide_by(set, context, mode).await)
    }

    /// Decides by a rule set that was in force a moment ago, and charges the
    /// request if it passes.
    pub async fn check_by(&self, set: &ActiveRuleSet, context: &RequestContext<'_>) -> Decision {
        self.decide_by(set.clone(), context, Mode::Take).await
    }

    /// The same for a caller that can wait, if `mode` says so. A request that has to
    /// wait has a place among the waiters of all processes then, where their number
    /// is bounded; it is taken before any units are, and where none is free the
    /// request is decided as if no rule let it wait.
    pub async fn check_with_permit(
        &self,
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> (Decision, WaitPermit) {
        let mut plan = Plan::new(mode);
        plan.fill(set, context);
        let mut verdicts = Verdicts::new();
        let (mut decision, place) = if plan.checks.list().is_empty()
            || self.store.try_decide(&plan.checks, &mut verdicts)
        {
            (Decision::combine(&plan, &verdicts), WaitPermit::unbounded())
        } else {
            match self.store.decide_with_permit(&plan.checks).await {
                Ok((verdicts, place)) => (Decision::combine(&plan, &verdicts), place),
                Err(error) => {
                    let decision = self.on_error(set.on_error(), &plan, &error);
                    (decision, WaitPermit::unbounded())
                }
            }
        };
        drop(plan);
        decision.belongs_to(set.clone());
        (decision, place)
    }

    /// Decides a request at once, where the store need not wait for anybody; `None`,
    /// and nothing is charged, where it must.
    pub fn try_check(
        &self,
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Option<Decision> {
        let mut plan = Plan::new(mode);
        plan.fill(set, context);
        let mut verdicts = Verdicts::new();
        let decided =
            plan.checks.list().is_empty() || self.store.try_decide(&plan.checks, &mut verdicts);
        decided.then(|| {
            let mut decision = Decision::combine(&plan, &verdicts);
            decision.belongs_to(set.clone());
            decision
        })
    }

    async fn decide_by(
        &self,
        set: ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Decision {
        let mut decision = {
            let mut plan = Plan::new(mode);
            plan.fill(&set, context);
            let mut verdicts = Verdicts::new();
            if plan.checks.list().is_empty() || self.store.try_decide(&plan.checks, &mut verdicts) {
                Decision::combine(&plan, &verdicts)
            } else {
                match self.store.decide(&plan.checks).await {
                    Ok(verdicts) => Decision::combine(&plan, &verdicts),
                    Err(error) => self.on_error(set.on_error(), &plan, &error),
                }
            }
        };
        decision.belongs_to(set);
        decision
    }

    /// What is decided where there is no rule set of this name.
    pub fn missing_rule_set(&self, name: &str) -> Decision {
        self.without_rule_set(name, self.rules.load().on_missing())
    }

    /// The rule set of this name that is in force.
    pub fn rule_set(&self, name: &str) -> Option<ActiveRuleSet> {
        self.rules.load().get(name).map(ActiveRuleSet::hold)
    }

    /// Cancels what a request that waits was charged, because it does not take
    /// place. A failure does not keep the other rules from getting their units; the
    /// first one is returned.
    pub async fn cancel(&self, charge: Charge) -> Result<(), StoreError> {
        let mut first = Ok(());
        for (subject, bands, units, charged) in charge.taken() {
            let cancelled = match charge.by_fallback() {
                // Where it never decided, it holds nothing either.
                true => match self.fallback.get() {
                    Some(fallback) => fallback.cancel(subject, bands, units, charged).await,
                    None => continue,
                },
                false => self.store.cancel(subject, bands, units, charged).await,
            };
            first = first.and(cancelled);
        }
        first
    }

    /// A place among those who wait for at most `longest`, where their number is
    /// bounded for all processes that share the state. `None` if there is none.
    pub async fn begin_wait(&self, longest: Duration) -> Result<Option<WaitPermit>, StoreError> {
        self.store.begin_wait(longest).await
    }

    /// Decides several requests that are charged together or not at all, and
    /// tells how each of them fared.
    pub async fn check_all(
        &self,
        rule_set: &str,
        contexts: &[RequestContext<'_>],
    ) -> Result<Vec<Decision>, LimiterError> {
        let rules = self.rules.load_full();
        let Some(set) = rules.get(rule_set) else {
            let decision = self.without_rule_set(rule_set, rules.on_missing());
            return Ok(vec![decision; contexts.len()]);
        };
        let mut decisions = {
            let mut plan = Plan::new(Mode::Take);
            let ends = plan.fill_all(set, contexts);
            match self.verdicts(&plan.checks).await {
                Ok(verdicts) => Decision::combine_all(&plan, &ends, &verdicts),
                Err(error) => match self.failed(set.on_error(), &plan.checks, &error) {
                    Failed::Decided(decision) => vec![decision; contexts.len()],
                    Failed::Local(verdicts) => Decision::combine_all(&plan, &ends, &verdicts)
                        .into_iter()
                        .map(Decision::into_fallback)
                        .collect(),
                },
            }
        };
        for decision in &mut decisions {
            decision.belongs_to(ActiveRuleSet::hold(set));
        }
        Ok(decisions)
    }

    /// Charges an identity by one rule, whether the rule matches or not. `cost`
    /// replaces the rule's own.
    pub async fn consume(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
        cost: Option<u64>,
    ) -> Result<Decision, LimiterError> {
        let set = self.set(rule_set)?;
        let index = set.rules().iter().position(|known| known.id() == rule);
        let index = index.ok_or_else(|| unknown_rule(&set, rule))?;
        let mut decision = {
            let mut plan = Plan::new(Mode::Take);
            plan.fill_named(&set, index, identity, cost)?;
            match self.verdicts(&plan.checks).await {
                Ok(verdicts) => Decision::combine(&plan, &verdicts),
                Err(error) => self.on_error(set.on_error(), &plan, &error),
            }
        };
        decision.belongs_to(set);
        Ok(decision)
    }

    /// Charges a limit that comes with the call. When the store fails,
    /// [`Limiter::call_limits`] says what is decided.
    pub async fn take(&self, subject: &AdHocKey, band: &Band, cost: u64) -> AdHocDecision {
        let mut checks = Checks::new(Mode::Take);
        let bands = std::slice::from_ref(band);
        checks.push(subject.as_subject(), bands, cost, Group::ENFORCED);
        let failed = match self.verdicts(&checks).await {
            Ok(verdicts) => return AdHocDecision::new(verdicts.first()),
            Err(error) => self.failed(self.call_limits, &checks, &error),
        };
        match failed {
            Failed::Local(verdicts) => AdHocDecision {
                outcome: Outcome::Fallback,
                ..AdHocDecision::new(verdicts.first())
            },
            Failed::Decided(decision) => AdHocDecision::without_state(&decision),
        }
    }

    /// Returns what is left of a limit that comes with the call.
    pub async fn ad_hoc_state(
        &self,
        subject: &AdHocKey,
        band: &Band,
    ) -> Result<BandState, StoreError> {
        let mut checks = Checks::new(Mode::Peek);
        let bands = std::slice::from_ref(band);
        checks.push(subject.as_subject(), bands, 0, Group::ENFORCED);
        let verdicts = self.store.decide(&checks).await?;
        let verdict = verdicts.first().ok_or_else(no_verdict)?;
        Ok(BandState {
            band: band.clone(),
            remaining: verdict.remaining.into(),
            reset_after: verdict.reset_after,
        })
    }

    /// Refunds units of a limit that comes with the call; returns what is left.
    pub async fn refund_ad_hoc(
        &self,
        subject: &AdHocKey,
        band: &Band,
        units: u64,
    ) -> Result<u64, StoreError> {
        let bands = std::slice::from_ref(band);
        let verdicts = self
            .store
            .refund(subject.as_subject(), bands, units)
            .await?;
        let verdict = verdicts.first().ok_or_else(no_verdict)?;
        Ok(verdict.remaining.into())
    }

    /// Deletes the state of a limit that comes with the call; returns how many
    /// counters had state. Of the band only the id matters.
    pub async fn reset_ad_hoc(&self, subject: &AdHocKey, band: &Band) -> Result<u64, StoreError> {
        let bands = std::slice::from_ref(band);
        self.store.reset(subject.as_subject(), bands).await
    }

    async fn verdicts(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let mut verdicts = Verdicts::new();
        if checks.list().is_empty() || self.store.try_decide(checks, &mut verdicts) {
            return Ok(verdicts);
        }
        self.store.decide(checks).await
    }

    fn without_rule_set(&self, name: &str, on_missing: OnMissingRuleSet) -> Decision {
        const MOST_NAMES: usize = 1_000;
        // Who finds it taken need not wait: the name will be asked for again.
        if let Some(observer) = &self.observer
            && let Ok(mut told) = self.missing.try_lock()
        {
            let hash = Sip13::PUBLIC.hash(name.as_bytes()) as u64;
            if !told.contains(&hash) && observer.rule_set_missing(name) {
                // Rather told twice than kept without a bound.
                if told.len() >= MOST_NAMES {
                    told.clear();
                }
                told.insert(hash);
            }
        }
        match on_missing {
            OnMissingRuleSet::Allow => Decision::no_rule(),
            OnMissingRuleSet::Deny => Decision::plain(false, Outcome::Denied, Retry::Never),
        }
    }

    fn on_error(&self, on_error: OnError, plan: &Plan<'_>, error: &StoreError) -> Decision {
        match self.failed(on_error, &plan.checks, error) {
            Failed::Decided(decision) => decision,
            Failed::Local(verdicts) => Decision::combine(plan, &verdicts).into_fallback(),
        }
    }

    /// What is decided when the store cannot.
    fn failed(&self, on_error: OnError, checks: &Checks<'_>, error: &StoreError) -> Failed {
        if let Some(observer) = &self.observer {
            let decides = checks.mode().takes().then_some(on_error);
            observer.store_failed(error, decides);
        }
        match on_error {
            OnError::Allow => Failed::Decided(Decision::failed_open()),
            OnError::Deny => Failed::Decided(Decision::failed_closed()),
            OnError::Local => {
                let fallback = self.fallback.get_or_init(MemoryStore::default);
                Failed::Local(fallback.decide_now(checks))
            }
        }
    }

    /// Gives units back to an identity, in every band of a rule, and tells what
    /// the fullest-used band has left then.
    pub async fn refund(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
        units: u64,
    ) -> Result<u64, LimiterError> {
        let set = self.set(rule_set)?;
        let rule = find_rule(&set, rule)?;
        let (subject, bands) = rule.subject_of(identity, set.ipv6_prefix())?;
        let subject = Subject {
            rule: rule.number(),
            bytes: &subject,
        };
        let verdicts = self.store.refund(subject, bands, units).await?;
        let remaining = verdicts.iter().map(|verdict| verdict.remaining).min();
        remaining.map(u64::from).ok_or_else(|| no_verdict().into())
    }

    /// Forgets an identity in every band of a rule; tells how many had state.
    pub async fn reset(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
    ) -> Result<u64, LimiterError> {
        let set = self.set(rule_set)?;
        let rule = find_rule(&set, rule)?;
        let (subject, bands) = rule.subject_of(identity, set.ipv6_prefix())?;
        let subject = Subject {
            rule: rule.number(),
            bytes: &subject,
        };
        Ok(self.store.reset(subject, bands).await?)
    }

    /// Forgets all identities of a rule; tells how many counters had state.
    pub async fn reset_rule(&self, rule_set: &str, rule: &str) -> Result<u64, LimiterError> {
        let set = self.set(rule_set)?;
        let rule = find_rule(&set, rule)?;
        Ok(self.store.reset_rule(rule_subject(rule)).await?)
    }

    /// Deletes the state of every enabled rule of a set; returns how many counters
    /// had state. A rule that fails keeps no other from being reset; the first
    /// failure is returned.
    pub async fn reset_set(&self, rule_set: &str) -> Result<u64, LimiterError> {
        let set = self.set(rule_set)?;
        let mut gone = Ok(0);
        for rule in set.rules() {
            let reset = self.store.reset_rule(rule_subject(rule)).await;
            gone = gone.and_then(|before: u64| Ok(before + reset?));
        }
        gone
    }

    /// What an identity has left in each band of a rule.
    pub async fn state(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
    ) -> Result<Vec<BandState>, LimiterError> {
        let set = self.set(rule_set)?;
        let rule = find_rule(&set, rule)?;
        let (subject, bands) = rule.subject_of(identity, set.ipv6_prefix())?;
        let mut checks = Checks::new(Mode::Peek);
        let subject = Subject {
            rule: rule.number(),
            bytes: &subject,
        };
        checks.push(subject, bands, 0, Group::ENFORCED);
        let verdicts: Verdicts = self.store.decide(&checks).await?;
        let states = bands
            .iter()
            .zip(&verdicts)
            .map(|(band, verdict)| BandState {
                band: band.clone(),
                remaining: verdict.remaining.into(),
                reset_after: verdict.reset_after,
            });
        Ok(states.collect())
    }

    fn set(&self, name: &str) -> Result<ActiveRuleSet, LimiterError> {
        let rules = self.rules.load();
        let set = rules.get(name).map(ActiveRuleSet::hold);
        set.ok_or_else(|| LimiterError::UnknownRuleSet(name.into()))
    }
}

/// An encoded identity, for people to read: `user=ann`, `ip=10.0.0.1 path=/x`.
pub fn describe_identity(encoded: &[u8]) -> String {
    key::describe_identity(encoded)
}

/// What a band holds for one identity.
#[derive(Clone, Debug)]
pub struct BandState {
    /// The band.
    pub band: Band,
    /// Whole units left.
    pub remaining: u64,
    /// How long until it is full again.
    pub reset_after: Micros,
}

fn find_rule<'s>(set: &'s RuleSet, id: &str) -> Result<&'s Rule, LimiterError> {
    set.rule(id).ok_or_else(|| unknown_rule(set, id))
}

fn unknown_rule(set: &RuleSet, id: &str) -> LimiterError {
    LimiterError::UnknownRule {
        rule_set: set.name().into(),
        rule: id.into(),
    }
}

/// What is decided in the store's stead.
enum Failed {
    /// The same for every request.
    Decided(Decision),
    /// What the embedded engine says.
    Local(Verdicts),
}

fn rule_subject(rule: &Rule) -> Subject<'_> {
    Subject {
        rule: rule.number(),
        bytes: rule.subject(),
    }
}

fn no_verdict() -> StoreError {
    StoreError {
        reason: Reason::BadResponse,
        message: "the store gave no verdict".into(),
    }
}
