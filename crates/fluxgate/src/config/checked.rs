//! The validated configuration.

use fluxgate_core::OnMissingRuleSet;
use fluxgate_core::rules::{RuleOptions, values};
use fluxgate_core::yaml::{Faults, Node};
use fluxgate_http::server::Listener;
use fluxgate_redis::HashKeys;

use super::admin::Admin;
use super::call_limits::CallLimits;
use super::filters::{self, Filter};
use super::gateway::Gateway;
use super::keys::Keys;
use super::listen::Listen;
use super::read::Section;
use super::rules::Rules;
use super::shutdown::Shutdown;
use super::store::Store;
use super::telemetry::Telemetry;
use super::tls::Tls;
use super::tree;

/// The validated configuration of the service.
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

    /// Returns the certificate of a listener, if it uses TLS. The gateway's may be in its own
    /// section.
    pub(crate) fn listener_tls(&self, listener: Listener) -> Option<&Tls> {
        let endpoint = self.listen.of(listener)?;
        let own_section = match listener {
            Listener::Gateway => self.gateway.tls.as_ref(),
            _ => None,
        };
        own_section.or(endpoint.tls.as_ref())
    }

    /// Returns whether identities are hashed without a secret in a store that others may
    /// read.
    pub fn hashes_without_secret(&self) -> bool {
        let shared = matches!(self.store, Store::Redis(_));
        shared && self.keys.hash_keys != HashKeys::None && self.keys.hash_secret_file.is_none()
    }

    /// Reads the whole tree. The result is valid only if no fault was added.
    pub(super) fn read(root: &Node, faults: &mut Faults) -> Self {
        let section = Section::read(root, "a config", &FIELDS, faults);
        let store = Store::read(section.get("store"), faults);
        let keys = Keys::read(section.get("keys"), faults);
        let on_missing = section
            .get("on_missing_rule_set")
            .and_then(|node| values::on_missing_rule_set(node, faults));
        let options = RuleOptions {
            ipv6_prefix: keys.ipv6_prefix,
            on_missing_rule_set: on_missing.unwrap_or_default(),
            ..RuleOptions::default()
        };
        let (rule_sets, rules_from) = (section.get("rule_sets"), section.get("rules_from"));
        let rules = Rules::read(rule_sets, rules_from, options, &store, faults);
        let filters = filters::read(section.get("filters"), &rules, faults);
        let gateway = Gateway::read(section.get("gateway"), &filters, faults);
        let listen = Listen::read(section.get("listen"), faults);
        if let (Some(endpoint), Some(node)) = (&listen.gateway, section.get("listen")) {
            let at = tree::child(node, "gateway").map_or(node.position, |node| node.position);
            if gateway.routes.is_empty() {
                faults.add(
                    at,
                    "`listen.gateway` needs at least one route in `gateway.routes`",
                );
            }
            if endpoint.tls.is_some() && gateway.tls.is_some() {
                faults.add(
                    at,
                    "`listen.gateway.tls` and `gateway.tls` exclude each other",
                );
            }
        }
        Self {
            admin: Admin::read(section.get("admin"), &listen, faults),
            telemetry: Telemetry::read(section.get("telemetry"), faults),
            shutdown: Shutdown::read(section.get("shutdown"), faults),
            call_limits: CallLimits::read(section.get("call_limits"), faults),
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
