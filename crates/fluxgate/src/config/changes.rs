//! What differs between two configurations: what a reload applies, and what needs a restart.

use std::collections::{BTreeMap, BTreeSet};

use fluxgate_core::yaml::{Node, Value};

use super::raw::RawConfig;
use super::tree;

/// What needs a restart below `gateway.timeouts` and `gateway.limits`: it belongs to the listener,
/// or to all cores together.
const FIXED: [&str; 3] = ["headers", "connections", "upstream_connections"];

/// The values of fields, in a form that depends on nothing but their meaning.
type Fields = BTreeMap<String, String>;

impl RawConfig {
    /// Returns the changed fields that take effect only after a restart.
    pub(crate) fn fixed_fields_changed_since(&self, other: &Self) -> Vec<String> {
        let (now, before) = (self.fields().0, other.fields().0);
        let changed = changed_names(&now, &before);
        changed.into_iter().map(str::to_owned).collect()
    }

    /// Returns what has changed of the settings that a reload applies, apart from the rules:
    /// `route api added`.
    pub(crate) fn settings_changed_since(&self, other: &Self) -> Vec<String> {
        let (now, before) = (self.fields().1, other.fields().1);
        let changes = changed_names(&now, &before).into_iter().map(|name| {
            let what = match (before.get(name), now.get(name)) {
                (None, _) => "added",
                (_, None) => "removed",
                _ => "changed",
            };
            format!("{name} {what}")
        });
        let mut changes: Vec<_> = changes.collect();
        let routes = |of: &Self| {
            let ids = of.routes().into_iter().map(|(id, _)| id);
            ids.collect::<Vec<_>>()
        };
        let (mut now, mut before) = (routes(self), routes(other));
        if now != before {
            now.sort_unstable();
            before.sort_unstable();
            if now == before {
                changes.push("order of the routes changed".to_owned());
            }
        }
        changes
    }

    /// Returns a text that is the same for configurations with the same settings, apart from those
    /// that need a restart and from the rules.
    pub(crate) fn settings_text(&self) -> String {
        let (_, settings) = self.fields();
        let routes = self.routes().into_iter().map(|(id, _)| id);
        format!("{settings:?} {:?}", routes.collect::<Vec<_>>())
    }

    /// Returns whether the filter of this name is the same.
    pub(crate) fn has_same_filter(&self, name: &str, other: &Self) -> bool {
        let filter = |of: &Self| {
            let filters = tree::child(&of.tree, "filters")?;
            tree::child(filters, name).map(Node::canonical)
        };
        filter(self) == filter(other)
    }

    /// Returns whether a field at the root is given, perhaps empty.
    pub(crate) fn names(&self, field: &str) -> bool {
        tree::child(&self.tree, field).is_some()
    }

    /// Returns the fields that need a restart, and the settings that a reload applies.
    fn fields(&self) -> (Fields, Fields) {
        let (mut fixed, mut live) = (Fields::new(), Fields::new());
        for (section, value) in children(&self.tree) {
            match section {
                "rule_sets" | "on_missing_rule_set" => {}
                "filters" => {
                    let filters = children(value);
                    live.extend(
                        filters.map(|(name, it)| (format!("filter {name}"), it.canonical())),
                    );
                }
                "gateway" => split_gateway(value, &mut fixed, &mut live),
                "listen" => split_listeners(value, &mut fixed, &mut live),
                _ => match &value.value {
                    Value::Map(_) => {
                        let fields = children(value).map(|(name, it)| (name, it.canonical()));
                        let fields = fields.map(|(name, it)| (format!("{section}.{name}"), it));
                        fixed.extend(fields.filter(|(name, _)| name != "keys.ipv6_prefix"));
                    }
                    _ => drop(fixed.insert(section.to_owned(), value.canonical())),
                },
            }
        }
        live.extend(
            self.routes()
                .into_iter()
                .map(|(id, route)| (format!("route {id}"), route)),
        );
        (fixed, live)
    }

    /// Returns the routes with their ids, in their order.
    fn routes(&self) -> Vec<(String, String)> {
        let gateway = tree::child(&self.tree, "gateway");
        let routes = gateway.and_then(|gateway| tree::child(gateway, "routes"));
        let Some(Value::List(routes)) = routes.map(|it| &it.value) else {
            return Vec::new();
        };
        let routes = routes.iter().map(|route| {
            let id = tree::child(route, "id").and_then(Node::as_text);
            (id.unwrap_or_default().to_owned(), route.canonical())
        });
        routes.collect()
    }
}

/// Splits the section of the gateway, except for its routes.
fn split_gateway(gateway: &Node, fixed: &mut Fields, live: &mut Fields) {
    for (name, value) in children(gateway) {
        let field = format!("gateway.{name}");
        match name {
            "routes" => {}
            "timeouts" | "limits" => {
                for (name, value) in children(value) {
                    let to = if FIXED.contains(&name) {
                        &mut *fixed
                    } else {
                        &mut *live
                    };
                    to.insert(format!("{field}.{name}"), value.canonical());
                }
            }
            "tls" => {
                // Whether there is TLS at all belongs to the listener.
                fixed.insert(field, String::new());
                live.insert("certificate of the gateway".into(), value.canonical());
            }
            _ => drop(fixed.insert(field, value.canonical())),
        }
    }
}

fn split_listeners(listeners: &Node, fixed: &mut Fields, live: &mut Fields) {
    for (name, value) in children(listeners) {
        let field = format!("listen.{name}");
        let address = tree::child(value, "address").unwrap_or(value);
        fixed.insert(field.clone(), address.canonical());
        if let Some(tls) = tree::child(value, "tls") {
            fixed.insert(format!("{field}.tls"), String::new());
            live.insert(format!("certificate of listen.{name}"), tls.canonical());
        }
    }
}

fn children(node: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let pairs = match &node.value {
        Value::Map(pairs) => &pairs[..],
        _ => &[],
    };
    let pairs = pairs.iter();
    pairs.filter_map(|(key, value)| Some((key.as_text()?, value)))
}

/// Returns the names of the fields that differ.
fn changed_names<'f>(now: &'f Fields, before: &'f Fields) -> Vec<&'f str> {
    let names: BTreeSet<_> = now.keys().chain(before.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| now.get(*name) != before.get(*name));
    changed.map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> RawConfig {
        RawConfig::parse("f.yaml".as_ref(), text).unwrap()
    }

    #[test]
    fn changes_are_named_and_those_that_need_a_restart_are_told_apart() {
        let before = config(
            "listen: { gateway: '127.0.0.1:80', api: { address: '127.0.0.1:81', tls: { cert: a, key: b } } }
filters: { main: { rule_set: a }, old: {} }
gateway:
  routes: [ { id: a, upstreams: [x] }, { id: b, upstreams: [x] } ]
  timeouts: { idle: 1s, headers: 1s }
  limits: { connections: 5 }
telemetry: { level: info }
",
        );
        assert_eq!(before.settings_changed_since(&before), [""; 0]);
        // Other spellings of the same.
        let same = config(
            "filters: { old: {}, main: { rule_set: a } }
listen: { gateway: { address: '127.0.0.1:80' }, api: { address: '127.0.0.1:81', tls: { key: b, cert: a } } }
gateway: { limits: { connections: 5 }, timeouts: { headers: 1s, idle: 1s }, routes: [ { upstreams: [x], id: a }, { id: b, upstreams: [x] } ] }
telemetry: { level: info }
rule_sets: {}
",
        );
        assert_eq!(same.settings_changed_since(&before), [""; 0]);
        assert_eq!(same.fixed_fields_changed_since(&before), [""; 0]);
        assert_eq!(same.settings_text(), before.settings_text());
        assert!(same.has_same_filter("main", &before));
        let after = config(
            "listen: { gateway: '127.0.0.1:8080', api: { address: '127.0.0.1:81', tls: { cert: c, key: b } } }
filters: { main: { rule_set: b }, new: {} }
gateway:
  routes: [ { id: c, upstreams: [x] }, { id: a, upstreams: [y] } ]
  timeouts: { idle: 2s, headers: 2s }
  limits: { connections: 6, streams: 7 }
  tls: { cert: a, key: b }
telemetry: { level: debug }
history: false
",
        );
        assert_eq!(
            after.settings_changed_since(&before),
            [
                "certificate of listen.api changed",
                "certificate of the gateway added",
                "filter main changed",
                "filter new added",
                "filter old removed",
                "gateway.limits.streams added",
                "gateway.timeouts.idle changed",
                "route a changed",
                "route b removed",
                "route c added",
            ]
        );
        assert_eq!(
            after.fixed_fields_changed_since(&before),
            [
                "gateway.limits.connections",
                "gateway.timeouts.headers",
                "gateway.tls",
                "history",
                "listen.gateway",
                "telemetry.level",
            ]
        );
        assert!(!after.has_same_filter("main", &before));
        let turned = config("gateway: { routes: [ { id: b }, { id: a } ] }");
        let first = config("gateway: { routes: [ { id: a }, { id: b } ] }");
        let moved = ["order of the routes changed"];
        assert_eq!(turned.settings_changed_since(&first), moved);
        assert_ne!(turned.settings_text(), first.settings_text());
    }
}
