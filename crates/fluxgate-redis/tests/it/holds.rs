//! Holds on real servers.

mod budgets;
mod cluster;
mod differential;
mod faults;
mod outages;
mod rule_changes;
mod sequences;
mod server;

use std::time::Duration;

use fluxgate_core::{Decision, HoldId, Limiter, RequestContext, RuleSets, Store};

use crate::support::rules;

/// Slots for each user, and a budget of tokens that the cost of the call is charged to.
fn slots_and_tokens(slots: u64, hold: &str, algorithm: &str) -> RuleSets {
    rules(&format!(
        "
rule_sets:
  api:
    on_error: deny
    rules:
      - {{ id: r, scope: per_user, algorithm: concurrency, hold: {hold}, bands: [ {{ capacity: {slots} }} ] }}
      - {{ id: t, scope: per_user, algorithm: {algorithm}, cost: \"attr:tokens\", bands: [ {{ capacity: 1000, window: 300d }} ] }}
"
    ))
}

/// Decides a request that takes one slot and reserves tokens.
async fn reserve<S: Store>(limiter: &Limiter<S>, user: &str, tokens: &str) -> Decision {
    let context = RequestContext::builder()
        .user(user)
        .attribute("tokens", tokens);
    limiter.check("api", &context.build()).await
}

async fn held<S: Store>(limiter: &Limiter<S>, user: &str, tokens: &str) -> HoldId {
    let decision = reserve(limiter, user, tokens).await;
    decision.hold().unwrap_or_else(|| panic!("{decision:?}"))
}

/// Returns what a user has left of a rule.
async fn left<S: Store>(limiter: &Limiter<S>, rule: &str, user: &str) -> u64 {
    limiter.state("api", rule, &[user]).await.unwrap()[0].remaining
}

const MINUTE: Duration = Duration::from_secs(60);
