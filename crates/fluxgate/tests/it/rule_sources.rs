//! Sources of rules: one suite that each of them passes.
//!
//! A source is tested by a [`RuleHost`], which keeps rules and can be broken in every way in which
//! such a place breaks. `rule_source_suite!(Host)` makes the tests of one host.

mod dir;
mod http;
#[cfg(feature = "mongodb")]
mod mongodb;
mod redis;
mod suite;
mod vectors;

use std::time::Duration;

use fluxgate_testkit::{FaultProxy, Mode};
use serde_json::Value;

/// How often the services of the suite read their source.
const POLL: Duration = Duration::from_millis(200);

/// A place where rules are kept.
trait RuleHost: Sized {
    /// Whether it is a server: a service then starts without it.
    const IS_SERVER: bool = true;

    /// Starts it with these rule sets.
    fn start(rule_sets: &Value) -> Self;

    /// Returns the config of a service that reads its rules here every [`POLL`]: `rules_from` and
    /// what it needs. `fields` is added to those of the source.
    fn config(&self, fields: &str) -> String;

    /// Replaces everything by these rule sets, which may be invalid.
    fn write(&self, rule_sets: &Value);

    /// Returns how a message names the place of a fault in the rule `r` of the set `api`.
    fn place(&self) -> String;

    /// Replaces everything by content that cannot be rules. Returns a part of the message about
    /// it, or `None` if there is no such content here.
    fn corrupt(&self, how: Corruption) -> Option<String>;

    /// Returns the proxy in front of it. Only a server has one.
    fn proxy(&self) -> &FaultProxy;

    /// Makes it unreachable.
    fn take_down(&self) {
        self.proxy().set_mode(Mode::Refuse);
        self.proxy().reset_connections();
    }

    /// Makes it leave each request without an answer.
    fn stall(&self) {
        self.proxy().set_mode(Mode::BlackHole);
    }

    /// Ends an outage or a stall.
    fn bring_back(&self) {
        self.proxy().heal();
        // Connections that were opened during a stall stay silent.
        self.proxy().close_connections();
    }
}

/// Content that cannot be rules.
#[derive(Clone, Copy, Debug)]
enum Corruption {
    /// Something else is in the place of the rules.
    WrongType,
    /// It has no end, or one that is out of reach.
    Endless,
    /// A million documents, or what there is of them.
    ManyDocuments,
    /// A valid document with 150,000 rules.
    ManyRules,
    /// A list in a list, 100,000 times.
    DeepNesting,
    /// An id of 8 MiB.
    HugeString,
}

impl Corruption {
    const ALL: [Self; 6] = [
        Self::WrongType,
        Self::Endless,
        Self::ManyDocuments,
        Self::ManyRules,
        Self::DeepNesting,
        Self::HugeString,
    ];
}

/// Returns rule sets whose set `api` has one rule `r` with this capacity.
fn one_limit(capacity: u64) -> Value {
    one_rule(serde_json::json!({
        "id": "r", "scope": "per_user", "algorithm": "fixed_window",
        "bands": [{ "capacity": capacity, "window": "30d" }],
    }))
}

/// Returns rule sets whose set `api` has this rule only.
fn one_rule(rule: Value) -> Value {
    serde_json::json!({ "api": { "rules": [rule] } })
}

/// Returns the JSON of a rule set with 150,000 rules.
fn many_rules() -> String {
    let rules: Vec<_> = (100_000..250_000)
        .map(|id| format!(r#"{{"id":"r{id}","scope":"global","bands":["1/s"]}}"#))
        .collect();
    format!(r#"{{"rules":[{}]}}"#, rules.join(","))
}

/// Returns 100,000 lists, one in the other.
fn deep_nesting() -> String {
    "[".repeat(100_000) + &"]".repeat(100_000)
}

/// Returns the JSON of a rule set whose only rule has an id of 8 MiB.
fn huge_id() -> String {
    let id = "a".repeat(8 << 20);
    format!(r#"{{"rules":[{{"id":"{id}","scope":"global","bands":["1/s"]}}]}}"#)
}

/// Returns a rule file.
fn rule_file(rule_sets: &Value) -> String {
    serde_json::json!({ "rule_sets": rule_sets }).to_string()
}

/// Returns a rule file with this text as its set `api`.
fn rule_file_with(set: &str) -> String {
    format!(r#"{{"rule_sets":{{"api":{set}}}}}"#)
}
