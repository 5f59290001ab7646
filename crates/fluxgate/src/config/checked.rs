//! The validated configuration.

use fluxgate_core::OnMissingRuleSet;
use fluxgate_core::rules::RuleOptions;
use fluxgate_core::yaml::{Faults, Node};
use fluxgate_http::server::Listener;
use fluxgate_redis::HashKeys;

use super::filters::{self, Filter};
use super::gateway::Gateway;
use super::history::History;
use super::listen::{Listen, Tls};
use super::rules::Rules;
use super::section::Section;
use super::settings::{Admin, CallLimits, Keys, Shutdown, Telemetry};
use super::store::Store;
use super::tree;
use super::webhooks::Webhook;

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
    /// Options for limits that a call states itself (`/v1/consume`, `CL.THROTTLE`).
    pub call_limits: CallLimits,
    /// Access to the admin API.
    pub admin: Admin,
    /// Logs and traces.
    pub telemetry: Telemetry,
    /// How much is kept of what happened; `None` if nothing is.
    pub history: Option<History>,
    /// Where events are sent.
    pub webhooks: Vec<Webhook>,
    /// How the service shuts down.
    pub shutdown: Shutdown,
}

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

    /// Returns the certificate of a listener, if it uses TLS. The gateway's may be in the section
    /// `gateway` instead of `listen`.
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

    /// Reads the whole tree, and returns the effective configuration as well. The result is valid
    /// only if no fault was added.
    pub(super) fn read(root: &Node, faults: &mut Faults) -> (Self, Node) {
        const FIELDS: &[&str] = &[
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
            "history",
            "webhooks",
            "shutdown",
        ];
        const ON_MISSING: [(&str, OnMissingRuleSet); 2] = [
            ("allow", OnMissingRuleSet::Allow),
            ("deny", OnMissingRuleSet::Deny),
        ];
        let mut section = Section::read(root, "a config", FIELDS, faults);
        let root = &mut section;
        let store = Store::read(root);
        let keys = Keys::read(root);
        let default = OnMissingRuleSet::default();
        let options = RuleOptions {
            ipv6_prefix: keys.ipv6_prefix,
            on_missing_rule_set: root.one_of("on_missing_rule_set", &ON_MISSING, default),
            ..RuleOptions::default()
        };
        let rules = Rules::read(root, options, &store);
        let filters = filters::read(root, &rules);
        let gateway = Gateway::read(root, &filters);
        let listen = Listen::read(root);
        if let (Some(endpoint), Some(node)) = (&listen.gateway, root.get("listen")) {
            let at = tree::child(node, "gateway").unwrap_or(node);
            if gateway.routes.is_empty() {
                let message = "`listen.gateway` needs at least one route in `gateway.routes`";
                root.fault(at, message);
            }
            if endpoint.tls.is_some() && gateway.tls.is_some() {
                root.fault(
                    at,
                    "`listen.gateway.tls` and `gateway.tls` exclude each other",
                );
            }
        }
        let config = Self {
            admin: Admin::read(root, &listen),
            telemetry: Telemetry::read(root),
            history: History::read(root),
            webhooks: Webhook::read_all(root),
            shutdown: Shutdown::read(root),
            call_limits: CallLimits::read(root),
            on_missing_rule_set: options.on_missing_rule_set,
            store,
            keys,
            listen,
            filters,
            gateway,
            rules,
        };
        (config, section.into_node())
    }
}
