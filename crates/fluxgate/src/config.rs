//! The configuration of the service: one YAML file, overridden by the environment and by
//! flags, and validated as a whole into types that cannot hold invalid values.

mod admin;
mod deployment;
mod effective;
mod filters;
mod gateway;
mod jwt;
mod keys;
mod listen;
mod llm_warnings;
mod origins;
mod overrides;
mod paths;
mod raw;
mod read;
pub mod rule_file;
mod rules;
mod secrets;
mod shutdown;
mod source_warnings;
mod sources;
mod store;
mod telemetry;
mod tls;
mod tree;
mod url;

use std::path::Path;

use fluxgate_core::rules::{RuleOptions, values};
use fluxgate_core::yaml::{Faults, Node};
use fluxgate_core::{OnError, OnMissingRuleSet};
use fluxgate_http::Listener;

pub use admin::Admin;
pub use deployment::Deployment;
pub use filters::Filter;
pub use gateway::{Gateway, Llm, Route};
pub use jwt::{Jwt, JwtKeys};
pub use keys::{HashKeys, Keys};
pub use listen::{Endpoint, Listen};
pub use origins::{ConfigFault, FaultLocation, OverrideSource};
pub use overrides::Overrides;
pub use paths::PathPatterns;
pub use raw::{ConfigError, RawConfig};
pub use rules::{DEFAULT_POLL, Rules};
pub use secrets::{Secret, SecretError, Secrets};
pub use shutdown::Shutdown;
pub use source_warnings::ConfigWarning;
pub(crate) use source_warnings::source_warnings;
pub use sources::{Field, SourceField, Sources};
pub use store::{Mode, Redis, RedisTls, Store};
pub use telemetry::{Level, LogFormat, Telemetry};
pub use tls::Tls;
pub(crate) use tree::duration_text;
pub use url::{HttpUrl, RedisUrl};

/// The checked configuration of the service.
#[derive(Debug)]
pub struct Config {
    /// Where the limiter keeps its state.
    pub store: Store,
    /// How identities are counted and stored.
    pub keys: Keys,
    /// The listeners to open.
    pub listen: Listen,
    /// The filters that routes refer to, in the order of the file.
    pub filters: Vec<Filter>,
    /// The routes, timeouts and limits of the gateway.
    pub gateway: Gateway,
    /// Where the rules come from.
    pub rules: Rules,
    /// How requests for an unknown rule set are decided.
    pub on_missing_rule_set: OnMissingRuleSet,
    /// The options of limits that come with the call.
    pub call_limits: CallLimits,
    /// Access to the admin API.
    pub admin: Admin,
    /// Logs and traces.
    pub telemetry: Telemetry,
    /// How the service ends.
    pub shutdown: Shutdown,
}

/// How limits that come with the call (`/v1/consume`, `CL.THROTTLE`) behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// The decision if the store fails.
    pub on_error: OnError,
}

impl CallLimits {
    fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        let [on_error] = node.map_or([None], |node| {
            node.fields("`call_limits`", ["on_error"], faults)
        });
        let on_error = on_error.and_then(|node| values::on_error(node, faults));
        Self {
            on_error: on_error.unwrap_or_default(),
        }
    }

    fn node(self) -> Node {
        let on_error = tree::name_of(&OnError::NAMES, self.on_error);
        tree::map([("on_error", Some(on_error))])
    }
}

/// The top-level fields.
const FIELDS: [&str; 12] = [
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
    "shutdown",
];

impl Config {
    /// Loads and validates a file, or the demo, with overrides applied.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        RawConfig::load(path, overrides)?.check()
    }

    /// Returns the configuration that runs without a file: every listener on loopback, a
    /// store in memory, and one path for each algorithm.
    pub fn demo() -> Self {
        let demo = RawConfig::demo().check();
        demo.expect("the demo is built in, and a test validates it")
    }

    /// Returns the filter with this name.
    pub fn filter(&self, name: &str) -> Option<&Filter> {
        self.filters.iter().find(|filter| filter.name == name)
    }

    /// Returns the options for rules that are loaded later.
    pub fn rule_options(&self) -> RuleOptions {
        RuleOptions {
            ipv6_prefix: self.keys.ipv6_prefix,
            on_missing_rule_set: self.on_missing_rule_set,
            ..RuleOptions::default()
        }
    }

    /// Returns whether a listener uses TLS.
    pub(crate) fn has_tls(&self, listener: Listener) -> bool {
        self.listener_tls(listener).is_some()
    }

    /// Returns the certificate of a listener, if it uses TLS. That of the gateway may be in its
    /// own section.
    pub(crate) fn listener_tls(&self, listener: Listener) -> Option<&Tls> {
        let endpoint = self.listen.of(listener)?;
        let own_section = match listener {
            Listener::Gateway => self.gateway.tls.as_ref(),
            _ => None,
        };
        own_section.or(endpoint.tls.as_ref())
    }

    /// Returns warnings about settings that are valid, but probably not intended.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |warning: String| warnings.push(warning);
        if self.listen.is_empty() {
            warn("`listen` names no listener: the service accepts no connections".into());
        }
        if self.hashes_without_secret() {
            warn(
                "`keys.hash_secret_file` is missing: anyone who can read the store can confirm \
                 guesses of hashed identities"
                    .into(),
            );
        }
        self.warn_about_tokens(&mut warn);
        for filter in &self.filters {
            let name = &filter.name;
            if filter.rule_set.is_none() {
                warn(format!(
                    "filter `{name}` has no `rule_set`: everything passes"
                ));
            }
        }
        if self.listen.gateway.is_none() && !self.gateway.routes.is_empty() {
            warn("`gateway.routes` has no effect: `listen.gateway` is missing".into());
        }
        warnings
    }

    /// Returns whether identities are hashed without a secret in a store that others may
    /// read.
    pub fn hashes_without_secret(&self) -> bool {
        let shared = matches!(self.store, Store::Redis(_));
        shared && self.keys.hash_keys != HashKeys::None && self.keys.hash_secret_file.is_none()
    }

    /// Reads the whole tree. The result is valid only if no fault was added.
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
            shutdown,
        ] = root.fields("a config", FIELDS, faults);
        let store = Store::read(store, faults);
        let keys = Keys::read(keys, faults);
        let on_missing = on_missing.and_then(|node| values::on_missing_rule_set(node, faults));
        let options = RuleOptions {
            ipv6_prefix: keys.ipv6_prefix,
            on_missing_rule_set: on_missing.unwrap_or_default(),
            ..RuleOptions::default()
        };
        let rules = Rules::read(rule_sets, rules_from, options, &store, faults);
        let filters = filters::read(filters, &rules, faults);
        let gateway = Gateway::read(gateway, &filters, faults);
        let (listen, listen_node) = (Listen::read(listen, faults), listen);
        if let (Some(_), [], Some(node)) = (&listen.gateway, &gateway.routes[..], listen_node) {
            let at = tree::child(node, "gateway").map_or(node.position, |node| node.position);
            faults.add(
                at,
                "`listen.gateway` needs at least one route in `gateway.routes`",
            );
        }
        let has_own_tls = listen.gateway.as_ref().is_some_and(|it| it.tls.is_some());
        if let (true, Some(_), Some(node)) = (has_own_tls, &gateway.tls, listen_node) {
            let at = tree::child(node, "gateway").map_or(node.position, |node| node.position);
            faults.add(
                at,
                "`listen.gateway.tls` and `gateway.tls` exclude each other",
            );
        }
        Self {
            admin: Admin::read(admin, &listen, faults),
            telemetry: Telemetry::read(telemetry, faults),
            shutdown: Shutdown::read(shutdown, faults),
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
    fn the_demo_is_valid_and_shows_every_algorithm() {
        let demo = Config::demo();
        assert_eq!(demo.warnings(), [""; 0]);
        let Rules::Inline(sets) = &demo.rules else {
            panic!("the demo defines its rules")
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
        let addresses = addresses.map(|it| it.map(|it| it.address.to_string()));
        let expected = [8080, 8081, 8082, 8083].map(|port| Some(format!("127.0.0.1:{port}")));
        assert_eq!(addresses, expected);
        assert_eq!(
            demo.gateway.routes[0].upstreams,
            [fluxgate_gateway::UpstreamTarget::Echo]
        );
    }
}
