//! One rule set of a limiter.

use std::sync::Arc;

use super::{Hold, Limiter};
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::memory::MemoryStore;
use crate::reservation::Reservation;
use crate::store::{LocalStore, Store};

/// Decides requests by one rule set of a [`Limiter`]. It is created by [`Limiter::rule_set`],
/// which fails if there is no such set, so a misspelt name does not let every request pass.
///
/// It names a rule set and always decides by the rules that are active. If new rules
/// ([`Limiter::replace_rules`]) lack the set, it decides like the limiter does for a name that
/// does not exist: [`OnMissingRuleSet`](crate::OnMissingRuleSet) of the rules says whether
/// requests pass, and the name is logged once.
///
/// Clones are cheap. Create it once, and keep it: a check costs as much as one by name.
#[derive(Debug)]
pub struct RuleSetLimiter<S = MemoryStore> {
    limiter: Limiter<S>,
    name: Arc<str>,
}

impl<S> Clone for RuleSetLimiter<S> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            name: Arc::clone(&self.name),
        }
    }
}

/// There is no rule set of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no rule set `{name}`; {}", list(.known))]
#[non_exhaustive]
pub struct UnknownRuleSet {
    /// The name that was given.
    pub name: String,
    /// The names of the rule sets that exist, sorted.
    pub known: Vec<String>,
}

fn list(known: &[String]) -> String {
    match known {
        [] => "there are no rule sets".into(),
        [only] => format!("the only one is `{only}`"),
        _ => format!("there are `{}`", known.join("`, `")),
    }
}

impl<S: Store> Limiter<S> {
    /// Returns a handle to the rule set of this name. Fails if there is none now.
    ///
    /// ```
    /// use fluxgate_core::{Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rule = Rule::new("per-user").per_user().band(Quota::per_minute(2));
    /// let rules = RuleSet::builder("api").rule(rule).build()?;
    /// let limiter = Limiter::new(rules, MemoryStore::default());
    /// let api = limiter.rule_set("api")?;
    ///
    /// let ann = RequestContext::builder().user("ann").build();
    /// assert!(api.check_sync(&ann).allowed());
    ///
    /// let misspelt = limiter.rule_set("apis").unwrap_err();
    /// assert_eq!(misspelt.to_string(), "there is no rule set `apis`; the only one is `api`");
    /// # Ok(())
    /// # }
    /// ```
    pub fn rule_set(&self, name: &str) -> Result<RuleSetLimiter<S>, UnknownRuleSet> {
        let rules = self.0.rules.load();
        let set = rules.get(name).ok_or_else(|| {
            let mut known: Vec<String> = rules.iter().map(|set| set.name().into()).collect();
            known.sort_unstable();
            let name = name.into();
            UnknownRuleSet { name, known }
        })?;
        Ok(RuleSetLimiter {
            limiter: self.clone(),
            name: set.name().into(),
        })
    }
}

impl<S: Store> RuleSetLimiter<S> {
    /// Returns the name of the rule set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Decides a request, and charges it if it passes: see [`Limiter::check`].
    pub async fn check(&self, context: &RequestContext<'_>) -> Decision {
        self.limiter.check(&self.name, context).await
    }

    /// Decides a request without charging it.
    pub async fn peek(&self, context: &RequestContext<'_>) -> Decision {
        self.limiter.peek(&self.name, context).await
    }

    /// Decides several requests, which are charged together or not at all: see
    /// [`Limiter::check_all`].
    pub async fn check_all(&self, contexts: &[RequestContext<'_>]) -> Vec<Decision> {
        self.limiter.check_all(&self.name, contexts).await
    }
}

impl<S: Store + 'static> RuleSetLimiter<S> {
    /// Decides a request, and reserves its units if it has to wait: see [`Limiter::reserve`].
    pub async fn reserve(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Reservation<Decision>, Decision> {
        self.limiter.reserve(&self.name, context).await
    }

    /// Decides a request, and waits for its units if its rules allow that: see
    /// [`Limiter::until_ready`].
    #[cfg(feature = "tokio")]
    pub async fn until_ready(&self, context: &RequestContext<'_>) -> Result<Decision, Decision> {
        self.limiter.until_ready(&self.name, context).await
    }

    /// Decides a request, and holds its charge: see [`Limiter::hold`].
    pub async fn hold(&self, context: &RequestContext<'_>) -> Result<Hold<S>, Decision> {
        self.limiter.hold(&self.name, context).await
    }
}

impl<S: LocalStore> RuleSetLimiter<S> {
    /// Decides a request like [`RuleSetLimiter::check`], without a future.
    pub fn check_sync(&self, context: &RequestContext<'_>) -> Decision {
        self.limiter.check_sync(&self.name, context)
    }

    /// Decides a request like [`RuleSetLimiter::peek`], without a future.
    pub fn peek_sync(&self, context: &RequestContext<'_>) -> Decision {
        self.limiter.peek_sync(&self.name, context)
    }
}
