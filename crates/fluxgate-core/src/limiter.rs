//! The limiter: rules and a store.

mod ad_hoc;
mod state;
pub(crate) mod virtual_time;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::algorithm::Mode;
use crate::band::Band;
use crate::context::RequestContext;
use crate::decision::{Charge, Decision, Outcome};
use crate::key::IdentityError;
use crate::memory::MemoryStore;
use crate::plan::Plan;
use crate::rules::{ActiveRuleSet, OnError, OnMissingRuleSet, RuleSet, RuleSets};
use crate::sip::Sip13;
use crate::store::{Checks, Reason, Store, StoreError, Verdicts, WaitPermit};
use crate::time::{Micros, Retry};

/// Decides requests by rule sets that may change while it runs.
#[derive(Debug)]
pub struct Limiter<S = MemoryStore> {
    rules: ArcSwap<RuleSets>,
    store: S,
    /// Decides if the store fails and the rule set says so; created when first needed.
    fallback: OnceLock<MemoryStore>,
    /// The decision on limits that come with the call when the store fails.
    call_limits: OnError,
    observer: Option<Box<dyn Observer>>,
    /// Hashes of missing rule sets that were reported. The names come from clients, so
    /// they are not kept themselves.
    missing: Mutex<HashSet<u64>>,
}

/// Receives events of a limiter besides its decisions.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// Called when the store fails, with the `on_error` that decides; `None` for a peek,
    /// which has no effect.
    fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        let _ = (error, on_error);
    }

    /// Called when a request names a rule set that does not exist, once for each name.
    /// Returns whether that was reported; if not, it is called again.
    fn rule_set_missing(&self, name: &str) -> bool {
        let _ = name;
        true
    }
}

/// Why a call about a rule failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// The rule set does not exist.
    #[error("there is no rule set `{0}`")]
    UnknownRuleSet(String),
    /// The rule does not exist, or it is not enabled.
    #[error("there is no rule `{rule}` in rule set `{rule_set}`")]
    UnknownRule {
        /// The set.
        rule_set: String,
        /// The rule.
        rule: String,
    },
    /// The identity does not match the rule's key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request that is planned but must wait for the store.
#[derive(Debug)]
pub struct PendingDecision {
    set: ActiveRuleSet,
    plan: Box<Plan>,
}

/// The state of a band for one identity.
#[derive(Clone, Debug)]
pub struct BandState {
    /// The band.
    pub band: Band,
    /// Whole units left.
    pub remaining: u64,
    /// The time until it is full again.
    pub reset_after: Micros,
}

impl<S: Store> Limiter<S> {
    /// Creates a limiter with these rules on this store.
    pub fn new(rules: impl Into<RuleSets>, store: S) -> Self {
        Self {
            rules: ArcSwap::from_pointee(rules.into()),
            store,
            fallback: OnceLock::new(),
            call_limits: OnError::default(),
            observer: None,
            missing: Mutex::default(),
        }
    }

    /// Sets the observer of store failures and missing rule sets.
    pub fn with_observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Sets the decision on limits that come with the call ([`Limiter::take`]) when the
    /// store fails; [`OnError::Local`] by default.
    pub fn call_limits(mut self, on_error: OnError) -> Self {
        self.call_limits = on_error;
        self
    }

    /// Returns the decision on limits that come with the call when the store fails.
    pub fn call_limits_on_error(&self) -> OnError {
        self.call_limits
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the active rules.
    pub fn rules(&self) -> Arc<RuleSets> {
        self.rules.load_full()
    }

    /// Replaces all rules atomically, and deletes the state of rules that reset on change
    /// and have changed.
    pub async fn replace_rules(&self, rules: RuleSets) -> Result<(), StoreError> {
        let replaced = self.swap_rules(rules);
        self.reset_replaced(&replaced).await
    }

    /// Replaces all rules atomically and returns the old ones. Their state is not deleted
    /// before [`Limiter::reset_replaced`].
    pub fn swap_rules(&self, rules: RuleSets) -> Arc<RuleSets> {
        self.rules.swap(Arc::new(rules))
    }

    /// Deletes the state of replaced rules that reset on change, unless they are active
    /// again. Continues after a failure and returns the first one.
    pub async fn reset_replaced(&self, replaced: &RuleSets) -> Result<(), StoreError> {
        let mut first = Ok(());
        for set in replaced.iter() {
            for rule in set.rules().iter().filter(|rule| rule.reset_on_change()) {
                // The rules may have changed while the last reset ran.
                let rules = self.rules.load_full();
                let now = rules.get(set.name()).and_then(|set| set.rule(rule.id()));
                // The number of a rule that resets on change depends on its text.
                if now.is_none_or(|now| now.number() != rule.number()) {
                    let reset = self.store.reset_rule(rule.subject()).await;
                    first = first.and(reset.map(drop));
                }
            }
        }
        first
    }

    /// Returns the active rule set of this name.
    pub fn rule_set(&self, name: &str) -> Option<ActiveRuleSet> {
        self.rules.load().get(name).map(ActiveRuleSet::of)
    }

    /// Returns the decision on a rule set that does not exist.
    pub fn missing_rule_set(&self, name: &str) -> Decision {
        self.without_rule_set(name, self.rules.load().on_missing())
    }

    /// Decides a request, and charges it if it passes.
    pub async fn check(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
    ) -> Result<Decision, LimiterError> {
        self.decide(rule_set, context, Mode::Take).await
    }

    /// Decides a request without charging it.
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
        let set = ActiveRuleSet::of(set);
        drop(rules);
        let PendingDecision { set, plan } = match self.try_decide(set, context, mode) {
            Ok(decision) => return Ok(decision),
            Err(pending) => pending,
        };
        let mut decision = {
            let checks = plan.checks(&set);
            let verdicts = self.store.decide(&checks).await;
            self.conclude(&set, &plan, &checks, verdicts)
        };
        decision.set_rule_set(set);
        Ok(decision)
    }

    /// Decides a request by a rule set that is active or was when the request came, and
    /// charges it if it passes. Returns what is planned, and charges nothing, if the store
    /// must be awaited: [`Limiter::complete`] continues then.
    pub fn try_check(
        &self,
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, PendingDecision> {
        self.try_decide(set.clone(), context, mode)
    }

    /// Decides like [`Limiter::try_check`] and, if the store must be awaited, like
    /// [`Limiter::complete`].
    pub async fn check_with_permit(
        &self,
        set: &ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> (Decision, WaitPermit) {
        match self.try_check(set, context, mode) {
            Ok(decision) => (decision, WaitPermit::unbounded()),
            Err(pending) => self.complete(pending).await,
        }
    }

    fn try_decide(
        &self,
        set: ActiveRuleSet,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, PendingDecision> {
        let mut plan = Plan::new(mode);
        plan.fill(&set, context);
        let mut verdicts = Verdicts::new();
        let is_decided = {
            let checks = plan.checks(&set);
            checks.list().is_empty() || self.store.try_decide(&checks, &mut verdicts)
        };
        if is_decided {
            let mut decision = Decision::combine(&plan, &verdicts);
            decision.set_rule_set(set);
            return Ok(decision);
        }
        let plan = Box::new(plan);
        Err(PendingDecision { set, plan })
    }

    /// Decides a planned request, and charges it if it passes. A request that has to wait
    /// gets a permit, if their number is bounded for all processes. The permit is acquired
    /// before any units are; if none is left, the request is decided as if no rule let it
    /// wait.
    pub async fn complete(&self, pending: PendingDecision) -> (Decision, WaitPermit) {
        let PendingDecision { set, plan } = pending;
        let (mut decision, permit) = {
            let checks = plan.checks(&set);
            let (verdicts, permit) = match self.store.decide_with_permit(&checks).await {
                Ok((verdicts, permit)) => (Ok(verdicts), permit),
                Err(error) => (Err(error), WaitPermit::unbounded()),
            };
            (self.conclude(&set, &plan, &checks, verdicts), permit)
        };
        decision.set_rule_set(set);
        (decision, permit)
    }

    /// Decides several requests, which are charged together or not at all. Returns the
    /// decision on each.
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
        let mut plan = Plan::new(Mode::Take);
        let ends = plan.fill_all(set, contexts);
        let checks = plan.checks(set);
        let mut decisions = match self.verdicts(&checks).await {
            Ok(verdicts) => Decision::combine_all(&plan, &ends, &verdicts),
            Err(error) => match self.fall_back(set.on_error(), &checks, &error) {
                Fallback::Fixed(decision) => vec![decision; contexts.len()],
                Fallback::Local(verdicts) => Decision::combine_all(&plan, &ends, &verdicts)
                    .into_iter()
                    .map(Decision::into_fallback)
                    .collect(),
            },
        };
        for decision in &mut decisions {
            decision.set_rule_set(ActiveRuleSet::of(set));
        }
        Ok(decisions)
    }

    /// Charges an identity by one rule, whether the rule matches or not. `cost` replaces
    /// the rule's own.
    pub async fn consume(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &[&str],
        cost: Option<u64>,
    ) -> Result<Decision, LimiterError> {
        let set = self.known_set(rule_set)?;
        let index = set.rules().iter().position(|known| known.id() == rule);
        let index = index.ok_or_else(|| unknown_rule(&set, rule))?;
        let mut decision = {
            let mut plan = Plan::new(Mode::Take);
            plan.fill_named(&set, index, identity, cost)?;
            let checks = plan.checks(&set);
            let verdicts = self.verdicts(&checks).await;
            self.conclude(&set, &plan, &checks, verdicts)
        };
        decision.set_rule_set(set);
        Ok(decision)
    }

    /// Cancels the charge of a request that waits and does not go on. Continues after a
    /// failure and returns the first one.
    pub async fn cancel(&self, charge: Charge) -> Result<(), StoreError> {
        let mut first = Ok(());
        for (subject, bands, units, charged) in charge.iter() {
            let cancelled = match charge.by_fallback() {
                // A fallback that was never created holds nothing.
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

    /// Acquires a permit to wait for at most `longest`. Returns `None` if the number of
    /// waiting requests is bounded for all processes that share the state, and reached.
    pub async fn begin_wait(&self, longest: Duration) -> Result<Option<WaitPermit>, StoreError> {
        self.store.begin_wait(longest).await
    }

    async fn verdicts(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let mut verdicts = Verdicts::new();
        if checks.list().is_empty() || self.store.try_decide(checks, &mut verdicts) {
            return Ok(verdicts);
        }
        self.store.decide(checks).await
    }

    fn without_rule_set(&self, name: &str, on_missing: OnMissingRuleSet) -> Decision {
        const MAX_NAMES: usize = 1_000;
        // If another thread holds the lock, the next request reports the name.
        if let Some(observer) = &self.observer
            && let Ok(mut reported) = self.missing.try_lock()
        {
            let hash = Sip13::PUBLIC.hash(name.as_bytes()) as u64;
            if !reported.contains(&hash) && observer.rule_set_missing(name) {
                // Reporting a name twice is better than growing without bound.
                if reported.len() >= MAX_NAMES {
                    reported.clear();
                }
                reported.insert(hash);
            }
        }
        match on_missing {
            OnMissingRuleSet::Allow => Decision::no_rule(),
            OnMissingRuleSet::Deny => Decision::without_rule(false, Outcome::Denied, Retry::Never),
        }
    }

    /// Makes the decision from the store's answer, or without it if the store failed.
    fn conclude(
        &self,
        set: &RuleSet,
        plan: &Plan,
        checks: &Checks<'_>,
        verdicts: Result<Verdicts, StoreError>,
    ) -> Decision {
        match verdicts {
            Ok(verdicts) => Decision::combine(plan, &verdicts),
            Err(error) => match self.fall_back(set.on_error(), checks, &error) {
                Fallback::Fixed(decision) => decision,
                Fallback::Local(verdicts) => Decision::combine(plan, &verdicts).into_fallback(),
            },
        }
    }

    /// Decides after the store failed.
    fn fall_back(&self, on_error: OnError, checks: &Checks<'_>, error: &StoreError) -> Fallback {
        if let Some(observer) = &self.observer {
            let decides = checks.mode().takes().then_some(on_error);
            observer.store_failed(error, decides);
        }
        match on_error {
            OnError::Allow => Fallback::Fixed(Decision::failed_open()),
            OnError::Deny => Fallback::Fixed(Decision::failed_closed()),
            OnError::Local => {
                let fallback = self.fallback.get_or_init(MemoryStore::default);
                Fallback::Local(fallback.decide_now(checks))
            }
        }
    }

    fn known_set(&self, name: &str) -> Result<ActiveRuleSet, LimiterError> {
        let set = self.rule_set(name);
        set.ok_or_else(|| LimiterError::UnknownRuleSet(name.into()))
    }
}

/// The decision after the store failed.
enum Fallback {
    /// The same for every request.
    Fixed(Decision),
    /// The verdicts of the fallback store.
    Local(Verdicts),
}

fn unknown_rule(set: &RuleSet, id: &str) -> LimiterError {
    LimiterError::UnknownRule {
        rule_set: set.name().into(),
        rule: id.into(),
    }
}

fn no_verdict() -> StoreError {
    StoreError {
        reason: Reason::BAD_RESPONSE,
        message: "the store gave no verdict".into(),
    }
}
