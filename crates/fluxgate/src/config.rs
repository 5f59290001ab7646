//! The configuration of the service: one YAML file, changed by the environment
//! and by flags, checked whole into types that cannot be wrong.

mod admin;
mod call_limits;
mod draft;
mod filters;
mod gateway;
mod keys;
mod listen;
mod origins;
mod overrides;
mod paths;
mod read;
pub mod rule_file;
mod rules;
mod secrets;
mod show;
mod store;
mod telemetry;
mod tree;
mod url;

use std::path::Path;

use fluxgate_core::values;
use fluxgate_core::yaml::{Faults, Node};
use fluxgate_core::{OnMissingRuleSet, RuleOptions};

pub use admin::Admin;
pub use call_limits::CallLimits;
pub use draft::{ConfigError, RawConfig};
pub use filters::Filter;
pub use gateway::{Gateway, Route, Tls};
pub use keys::{HashKeys, Keys};
pub use listen::Listen;
pub use origins::{ConfigFault, Place, Source};
pub use overrides::Overrides;
pub use paths::PathPatterns;
pub use rules::{DEFAULT_POLL, Rules};
pub use secrets::{Secret, SecretError, Secrets};
pub use store::{Mode, Redis, RedisTls, Store};
pub use telemetry::{Level, LogFormat, Telemetry};
pub use url::{HttpUrl, RedisUrl};

/// The checked configuration of the service.
#[derive(Debug)]
pub struct Config {
    /// Where the state lives.
    pub store: Store,
    /// How identities are counted and stored.
    pub keys: Keys,
    /// The listeners to open.
    pub listen: Listen,
    /// In the order of the file; routes name them.
    pub filters: Vec<Filter>,
    /// What the gateway forwards, and within which bounds.
    pub gateway: Gateway,
    /// Where the rules come from.
    pub rules: Rules,
    /// What asking for a rule set that does not exist means.
    pub on_missing_rule_set: OnMissingRuleSet,
    /// How limits that come with the call behave.
    pub call_limits: CallLimits,
    /// Who may change things.
    pub admin: Admin,
    /// Logs and traces.
    pub telemetry: Telemetry,
}

/// The fields of a file.
const FIELDS: [&str; 11] = [
    "store",
    "keys",
    "listen",
    "filters",
    "gateway",
    "rule_sets",
    "rules_from",
    "on_missing_rule_set",
    "call_limits",
    "admin",
    "telemetry",
];

impl Config {
    /// The config of this file, or the demo, with these changes.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        RawConfig::load(path, overrides)?.check()
    }

    /// What runs where nothing is configured: every listener on loopback, in
    /// memory, with rules that show each algorithm on a path of its own.
    pub fn demo() -> Self {
        let demo = RawConfig::demo().check();
        demo.expect("the demo is part of the program, and a test checks it")
    }

    /// The filter of this name.
    pub fn filter(&self, name: &str) -> Option<&Filter> {
        self.filters.iter().find(|filter| filter.name == name)
    }

    /// What rules that are read later have to know.
    pub fn rule_options(&self) -> RuleOptions {
        RuleOptions {
            ipv6_prefix: self.keys.ipv6_prefix,
            on_missing_rule_set: self.on_missing_rule_set,
        }
    }

    /// What is allowed, but hardly meant.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |warning: String| warnings.push(warning);
        if self.listen.is_empty() {
            warn("`listen` names no listener: nothing would be opened".into());
        }
        if self.hashes_without_secret() {
            warn(
                "`keys.hash_secret_file` is missing: whoever can read the store can check \
                 his guesses of hashed identities"
                    .into(),
            );
        }
        for filter in &self.filters {
            let name = &filter.name;
            match (&filter.rule_set, &self.rules) {
                (None, _) => warn(format!(
                    "filter `{name}` has no `rule_set`: everything passes"
                )),
                (Some(set), Rules::Inline(sets)) if sets.get(set).is_none() => {
                    warn(format!(
                        "filter `{name}` names `{set}`, and `rule_sets` is empty"
                    ));
                }
                _ => {}
            }
        }
        if self.listen.gateway.is_none() && !self.gateway.routes.is_empty() {
            warn("`gateway` has routes, but `listen.gateway` is missing: it is not opened".into());
        }
        warnings
    }

    /// Whether identities are hashed in a store that others may read, under a
    /// secret that is none.
    pub fn hashes_without_secret(&self) -> bool {
        let shared = matches!(self.store, Store::Redis(_));
        shared && self.keys.hash_keys != HashKeys::None && self.keys.hash_secret_file.is_none()
    }

    /// Reads a whole tree. It is good only if no fault was found.
    fn read(root: &Node, faults: &mut Faults) -> Self {
        let [
            store,
            keys,
            listen,
            filters,
            gateway,
            rule_sets,
            rules_from,
            on_missing,
            call_limits,
            admin,
            telemetry,
        ] = root.fields("a config", FIELDS, faults);
        let store = Store::read(store, faults);
        let keys = Keys::read(keys, faults);
        let on_missing = on_missing.and_then(|node| values::on_missing_rule_set(node, faults));
        let options = RuleOptions {
            ipv6_prefix: keys.ipv6_prefix,
            on_missing_rule_set: on_missing.unwrap_or_default(),
        };
        let rules = Rules::read(rule_sets, rules_from, options, &store, faults);
        let filters = filters::read(filters, &rules, faults);
        let gateway = Gateway::read(gateway, &filters, faults);
        let (listen, listen_node) = (Listen::read(listen, faults), listen);
        if let (Some(_), [], Some(node)) = (listen.gateway, &gateway.routes[..], listen_node) {
            let at = tree::child(node, "gateway").map_or(node.position, |node| node.position);
            faults.add(at, "a gateway needs `gateway.routes`, and there are none");
        }
        Self {
            admin: Admin::read(admin, &listen, faults),
            telemetry: Telemetry::read(telemetry, faults),
            call_limits: CallLimits::read(call_limits, faults),
            on_missing_rule_set: options.on_missing_rule_set,
            store,
            keys,
            listen,
            filters,
            gateway,
            rules,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_good_and_shows_every_algorithm() {
        let demo = Config::demo();
        assert_eq!(demo.warnings(), [""; 0]);
        let Rules::Inline(sets) = &demo.rules else {
            panic!("the demo has its rules with it")
        };
        let rules = sets.only().map(|set| set.rules()).unwrap_or_default();
        let ids: Vec<_> = rules.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids, ["fixed", "log", "sliding", "token", "leaky"]);
        let addresses = [
            demo.listen.gateway,
            demo.listen.api,
            demo.listen.grpc,
            demo.listen.resp,
        ];
        let addresses = addresses.map(|address| address.map(|address| address.to_string()));
        let expected = [8080, 8081, 8082, 8083].map(|port| Some(format!("127.0.0.1:{port}")));
        assert_eq!(addresses, expected);
        assert_eq!(
            demo.gateway.routes[0].upstreams,
            [fluxgate_gateway::UpstreamTarget::Echo]
        );
    }
}
