//! Leases on real servers.

mod faults;
mod fleet;
mod holder;
mod script;
mod shared;
mod sleep;

use fluxgate_core::RuleSets;
use fluxgate_testkit::RedisServer;

use crate::support::rules;

/// A rule that leases, for each user, in the set `api`. `bands` is YAML.
fn leased(lease: &str, algorithm: &str, bands: &str) -> RuleSets {
    rules(&format!(
        "rule_sets: {{ api: {{ on_error: deny, rules: [ {{ id: r, scope: per_user, \
         algorithm: {algorithm}, lease: {{ {lease} }}, bands: [ {bands} ] }} ] }} }}"
    ))
}

/// Returns how many calls of scripts a server has run.
fn calls(server: &RedisServer) -> u64 {
    let mut cli = server.cli();
    cli.calls("evalsha") + cli.calls("eval")
}
