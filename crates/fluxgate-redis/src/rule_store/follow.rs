//! Keeps the rules of a limiter equal to the stored rules.

use std::time::Duration;

use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::Node;
use fluxgate_core::{Limiter, RuleSets, RuleWatch, RulesError, Store, StoreError};
use tokio::time::{sleep, timeout};

use super::{RuleStore, RuleSubscription};

/// The longest delay of a change whose message is lost.
const POLL: Duration = Duration::from_secs(5);

/// The wait before a lost subscription is opened again.
const RECONNECT: Duration = Duration::from_secs(1);

/// Why stored rules were not loaded. The last good ones stay active.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// The store failed.
    #[error("cannot read the stored rules: {0}")]
    Store(#[from] StoreError),
    /// All stored rules were deleted, or the server lost its data.
    #[error("the stored rules are gone")]
    Gone,
    /// A rule set is not valid.
    #[error("rule set {name:?}:\n{faults}")]
    Invalid {
        /// The rule set.
        name: String,
        /// All its faults.
        faults: RulesError,
    },
}

impl RuleStore {
    /// Loads all stored rule sets into a limiter, and again whenever they change, until the
    /// returned value is dropped. A later version that cannot be loaded is reported to the
    /// limiter's observer, and the last good one stays active.
    ///
    /// ```no_run
    /// # use fluxgate_core::{Limiter, RuleSets};
    /// # use fluxgate_redis::RedisStore;
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::connect("redis://127.0.0.1").await?;
    /// let rules = store.rule_store();
    /// let limiter = Limiter::new(RuleSets::default(), store);
    /// let _watch = rules.follow(&limiter).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn follow<S: Store + 'static>(
        &self,
        limiter: &Limiter<S>,
    ) -> Result<RuleWatch, FollowError> {
        let (mut version, rules) = self.load().await?;
        limiter.replace_rules(rules).await?;
        let (store, limiter) = (self.clone(), limiter.clone());
        let task = tokio::spawn(async move {
            let mut subscription = None;
            // The last failure, which was reported.
            let mut failed = None;
            loop {
                store.wait_for_change(&mut subscription).await;
                let loaded = match store.version().await {
                    Ok(now) if now == version => {
                        failed = None;
                        continue;
                    }
                    // A server that lost its data must not lift all limits.
                    Ok(None) => Err(FollowError::Gone),
                    Ok(_) => store.load().await,
                    Err(error) => Err(error.into()),
                };
                match loaded {
                    Ok((now, rules)) => {
                        version = now;
                        failed = None;
                        // The state of replaced rules expires by itself.
                        let _ = limiter.replace_rules(rules).await;
                        limiter.observe_rules(Ok(()));
                    }
                    Err(error) => {
                        let message = Some(error.to_string());
                        if failed != message {
                            limiter.observe_rules(Err(&error));
                        }
                        failed = message;
                    }
                }
            }
        });
        Ok(RuleWatch::new(&task))
    }

    /// Returns all rules and their version.
    async fn load(&self) -> Result<(Option<String>, RuleSets), FollowError> {
        let stored = self.read().await?;
        let mut rules = RuleSets::default();
        for (name, set) in stored.sets {
            let read = Node::parse(&set.text)
                .map_err(|fault| RulesError(vec![fault]))
                .and_then(|set| RuleSets::read_set(&name, set, RuleOptions::default()));
            match read {
                Ok(set) => rules.extend(set),
                Err(faults) => return Err(FollowError::Invalid { name, faults }),
            }
        }
        Ok((stored.version, rules))
    }

    /// Waits for a message, or until the next poll. Subscribes if there is no subscription.
    async fn wait_for_change(&self, subscription: &mut Option<RuleSubscription>) {
        if subscription.is_none() {
            *subscription = self.subscribe().await.ok();
            // There may have been a change before the subscription.
            if subscription.is_some() {
                return;
            }
        }
        match subscription {
            Some(changes) => {
                if let Ok(None) = timeout(POLL, changes.next()).await {
                    *subscription = None;
                    sleep(RECONNECT).await;
                }
            }
            None => sleep(POLL).await,
        }
    }
}
