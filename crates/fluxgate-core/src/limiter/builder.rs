//! Building a limiter.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::fallback::Fallback;
use super::missing_sets::MissingRuleSets;
use super::observers::Observers;
use super::{Limiter, Shared};
use crate::observer::Observer;
#[cfg(feature = "tokio")]
use crate::renewal::HoldRenewals;
use crate::rules::{OnError, OnMissingRuleSet, RuleSets};
use crate::store::Store;

impl<S: Store> Limiter<S> {
    /// Creates a limiter with these rules on this store.
    pub fn new(rules: impl Into<RuleSets>, store: S) -> Self {
        Self::builder(rules, store).build()
    }

    /// Starts a limiter with these rules on this store.
    pub fn builder(rules: impl Into<RuleSets>, store: S) -> LimiterBuilder<S> {
        LimiterBuilder(Shared {
            rules: ArcSwap::from_pointee(rules.into()),
            store,
            fallback: Fallback::new(),
            call_limits: OnError::default(),
            observers: Observers::default(),
            missing: MissingRuleSets::new(),
            #[cfg(feature = "tokio")]
            renewals: HoldRenewals::default(),
        })
    }
}

impl<S> Limiter<S> {
    /// Adds an observer to a limiter that has not been cloned.
    pub(crate) fn with_observer(self, observer: impl Observer + 'static) -> Self {
        let mut shared = Arc::into_inner(self.0).expect("observers are added before clones");
        shared.observers.add_without_decisions(observer);
        Self(Arc::new(shared))
    }
}

/// Builds a [`Limiter`].
#[derive(Debug)]
pub struct LimiterBuilder<S>(Shared<S>);

impl<S: Store> LimiterBuilder<S> {
    /// Adds an observer of decisions, store failures, rules that are loaded and rule sets that
    /// are missing.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.0.observers.add(observer);
        self
    }

    /// Adds an observer that needs no decisions, so that they are not timed for it, and that
    /// logs missing rule sets and store failures itself.
    pub fn failure_observer(mut self, observer: impl Observer + 'static) -> Self {
        self.0.observers.add_without_decisions(observer);
        self.0.missing.are_logged = false;
        self.0.fallback.is_logged = false;
        self
    }

    /// Sets the decision on limits that come with the call when the store fails.
    pub fn call_limits(mut self, on_error: OnError) -> Self {
        self.0.call_limits = on_error;
        self
    }

    /// Sets the decision on a rule set that does not exist, whatever the rules say. By default
    /// they say it ([`RuleSets::with_on_missing`], or `on_missing_rule_set` in a file).
    ///
    /// ```
    /// use fluxgate_core::{Limiter, MemoryStore, OnMissingRuleSet, RequestContext, RuleSets};
    ///
    /// let limiter = Limiter::builder(RuleSets::default(), MemoryStore::default())
    ///     .on_missing_rule_set(OnMissingRuleSet::Deny)
    ///     .build();
    /// let ann = RequestContext::builder().user("ann").build();
    /// assert!(!limiter.check_sync("misspelt", &ann).allowed());
    /// ```
    pub fn on_missing_rule_set(mut self, on_missing: OnMissingRuleSet) -> Self {
        self.0.missing.decision = Some(on_missing);
        self
    }

    /// Builds the limiter.
    pub fn build(self) -> Limiter<S> {
        Limiter(Arc::new(self.0))
    }
}
