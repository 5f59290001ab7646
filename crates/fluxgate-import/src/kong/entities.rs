//! The services, routes, consumers and plugins of a configuration.

use std::cmp::Reverse;
use std::collections::HashMap;

use fluxgate_core::yaml::{Faults, Node};

use super::others::Others;
use super::routes::{Route, RouteScope};
use crate::draft::Remark;
use crate::fields::Fields;

/// The plugins that become rules.
pub(super) const NAMES: [&str; 2] = ["rate-limiting", "rate-limiting-advanced"];

/// The most services, routes or plugins of a configuration.
const MAX_ENTITIES: usize = 5_000;

#[derive(Debug, Default)]
pub(super) struct Entities<'n> {
    pub(super) services: Vec<Service>,
    pub(super) routes: Vec<Route>,
    pub(super) plugins: Vec<Plugin<'n>>,
    pub(super) remarks: Vec<Remark>,
    /// The indices of services and routes by their names and ids.
    service_names: HashMap<String, usize>,
    route_names: HashMap<String, usize>,
    has_old_paths: bool,
    /// What is not about limits.
    others: Others,
}

/// The fields of each entity that say nothing about requests.
const IRRELEVANT: &str = "id name tags created_at updated_at ws_id";

#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: String,
}

/// A plugin that limits requests, and its scope.
#[derive(Debug)]
pub(super) struct Plugin<'n> {
    pub(super) line: usize,
    /// One of [`NAMES`].
    pub(super) kind: &'static str,
    pub(super) instance: Option<&'n str>,
    pub(super) enabled: bool,
    pub(super) config: Option<&'n Node>,
    pub(super) service: Option<usize>,
    pub(super) route: Option<usize>,
    pub(super) consumer: Option<String>,
    /// Remarks on its fields, other than those of the config.
    pub(super) remarks: Vec<Remark>,
}

impl Plugin<'_> {
    /// Returns whether the plugin belongs to a service or a route.
    pub(super) fn is_bound(&self) -> bool {
        self.service.is_some() || self.route.is_some()
    }

    /// Returns the position of its scope in the order in which Kong looks for an instance.
    pub(super) fn precedence(&self) -> usize {
        let scope = (
            self.consumer.is_some(),
            self.route.is_some(),
            self.service.is_some(),
        );
        match scope {
            (true, true, true) => 0,
            (true, true, false) => 1,
            (true, false, true) => 2,
            (false, true, true) => 3,
            (true, false, false) => 4,
            (false, true, false) => 5,
            (false, false, true) => 6,
            (false, false, false) => 7,
        }
    }
}

/// The entity that a plugin is nested in.
#[derive(Clone, Debug, Default)]
struct Parent {
    service: Option<usize>,
    route: Option<usize>,
    consumer: Option<String>,
}

impl<'n> Entities<'n> {
    pub(super) fn read(node: &'n Node, faults: &mut Faults) -> Option<Self> {
        let root = Fields::read(node, "a configuration", faults);
        let Some(version) = root.get("_format_version") else {
            if faults.count() == 0 {
                let text = "a declarative configuration needs `_format_version`";
                faults.add(node.position, text);
            }
            return None;
        };
        let version = version.text("`_format_version`", faults).unwrap_or("3.0");
        let mut entities = Self {
            has_old_paths: version.starts_with("1.") || version.starts_with("2."),
            ..Self::default()
        };
        // Services and routes first: plugins refer to them.
        for item in root.list("services", faults) {
            entities.service(item, faults);
        }
        for item in root.list("routes", faults) {
            let fields = Fields::read(item, "a route", faults);
            let service = entities.reference(&fields, "service", faults);
            entities.route(item, service, faults);
        }
        for item in root.list("consumers", faults) {
            let fields = Fields::read(item, "a consumer", faults);
            let name = fields.first_text(&["username", "custom_id", "id"], faults);
            let Some(name) = name else {
                faults.add(item.position, "a consumer needs a `username`");
                continue;
            };
            let read = "username custom_id plugins";
            entities
                .others
                .fields(&fields, "consumers", &[read, IRRELEVANT]);
            let consumer = Parent {
                consumer: Some(name.to_owned()),
                ..Parent::default()
            };
            entities.plugins_of(&fields, &consumer, faults);
        }
        for item in root.list("consumer_groups", faults) {
            let fields = Fields::read(item, "a consumer group", faults);
            if fields.get("plugins").is_some() {
                let text = "the plugins of a consumer group";
                entities
                    .remarks
                    .push(Remark::lost(fields.line("plugins"), text));
            }
        }
        entities.plugins_of(&root, &Parent::default(), faults);
        let read = "_format_version services routes consumers consumer_groups plugins";
        let irrelevant = "_comment _transform";
        entities.others.sections(&root, &[read, irrelevant]);
        let others = std::mem::take(&mut entities.others);
        entities.remarks.extend(others.into_remark());
        Some(entities)
    }

    fn service(&mut self, node: &'n Node, faults: &mut Faults) {
        if self.is_full(self.services.len(), node, faults) {
            return;
        }
        let fields = Fields::read(node, "a service", faults);
        let index = self.services.len();
        let names = names(&fields, faults);
        self.services.push(Service {
            name: names
                .first()
                .map_or("service".into(), |name| (*name).to_owned()),
        });
        let read = "enabled routes plugins";
        self.others.fields(&fields, "services", &[read, IRRELEVANT]);
        if !fields.boolean("enabled", true, faults) {
            let name = &self.services[index].name;
            let text = format!("`enabled: false` of service `{name}`: its rules apply");
            let line = fields.line("enabled");
            self.remarks.push(Remark::lost(line, text));
        }
        let names = names.into_iter().map(|name| (name.to_owned(), index));
        self.service_names.extend(names);
        for item in fields.list("routes", faults) {
            self.route(item, Some(index), faults);
        }
        let parent = Parent {
            service: Some(index),
            ..Parent::default()
        };
        self.plugins_of(&fields, &parent, faults);
    }

    fn route(&mut self, node: &'n Node, service: Option<usize>, faults: &mut Faults) {
        if self.is_full(self.routes.len(), node, faults) {
            return;
        }
        let fields = Fields::read(node, "a route", faults);
        let index = self.routes.len();
        let names = names(&fields, faults);
        let name = names.first().map_or("route", |name| *name);
        let route = Route::read(&fields, name, service, self.has_old_paths, faults);
        self.routes.push(route);
        let read = "service plugins";
        let known = [read, Route::FIELDS, IRRELEVANT];
        self.others.fields(&fields, "routes", &known);
        let names = names.into_iter().map(|name| (name.to_owned(), index));
        self.route_names.extend(names);
        let parent = Parent {
            route: Some(index),
            ..Parent::default()
        };
        self.plugins_of(&fields, &parent, faults);
    }

    fn plugins_of(&mut self, fields: &Fields<'n>, parent: &Parent, faults: &mut Faults) {
        for item in fields.list("plugins", faults) {
            if self.is_full(self.plugins.len(), item, faults) {
                return;
            }
            self.plugin(item, parent.clone(), faults);
        }
    }

    fn plugin(&mut self, node: &'n Node, parent: Parent, faults: &mut Faults) {
        let fields = Fields::read(node, "a plugin", faults);
        let Some(name) = fields.text("name", faults) else {
            faults.add(node.position, "a plugin needs a `name`");
            return;
        };
        let line = node.position.line;
        let Some(kind) = NAMES.into_iter().find(|known| *known == name) else {
            if name.contains("ratelimit")
                || name.contains("rate-limit")
                || name == "service-protection"
            {
                self.remarks
                    .push(Remark::lost(line, format!("the plugin `{name}`")));
            } else {
                self.others.plugin(name, line);
            }
            return;
        };
        if fields.get("consumer_group").is_some() {
            let text = format!("the plugin `{name}` of a consumer group");
            self.remarks.push(Remark::lost(line, text));
            return;
        }
        if fields.get("_config").is_some() {
            let text = "`_config`: write the configuration into the plugin";
            self.remarks
                .push(Remark::lost(fields.line("_config"), text));
        }
        let consumer = fields
            .get("consumer")
            .and_then(|it| reference_name(it, "consumer", faults));
        let plugin = Plugin {
            line,
            kind,
            instance: fields.text("instance_name", faults),
            enabled: fields.boolean("enabled", true, faults),
            config: fields.get("config"),
            service: parent
                .service
                .or_else(|| self.reference(&fields, "service", faults)),
            route: parent
                .route
                .or_else(|| self.reference(&fields, "route", faults)),
            consumer: parent.consumer.or(consumer.map(str::to_owned)),
            remarks: unread(&fields, faults),
        };
        self.plugins.push(plugin);
    }

    /// Returns the index of the service or route that a field refers to.
    fn reference(&self, fields: &Fields<'n>, kind: &str, faults: &mut Faults) -> Option<usize> {
        let node = fields.get(kind)?;
        let name = reference_name(node, kind, faults)?;
        let known = match kind {
            "service" => &self.service_names,
            _ => &self.route_names,
        };
        let found = known.get(name).copied();
        if found.is_none() {
            faults.add(node.position, format!("there is no {kind} `{name}`"));
        }
        found
    }

    fn is_full(&self, count: usize, node: &Node, faults: &mut Faults) -> bool {
        if count == MAX_ENTITIES {
            let text = format!("there are more than {MAX_ENTITIES} services, routes or plugins");
            faults.add(node.position, text);
        }
        count >= MAX_ENTITIES
    }

    pub(super) fn route_scope(&self, route: usize) -> RouteScope {
        RouteScope::new(&self.routes, |index, _| index == route)
    }

    pub(super) fn service_scope(&self, service: usize) -> RouteScope {
        RouteScope::new(&self.routes, |_, route| route.service == Some(service))
    }

    /// Returns the routes of a plugin, those that Kong prefers first.
    pub(super) fn routes_of(&self, plugin: &Plugin<'_>) -> Vec<usize> {
        let is_bound = |route: &Route| match plugin.service {
            Some(service) => route.service == Some(service),
            None => true,
        };
        let mut routes: Vec<_> = (0..self.routes.len())
            .filter(|index| is_bound(&self.routes[*index]))
            .collect();
        routes.sort_by_key(|index| {
            let route = &self.routes[*index];
            (route.is_plain(), Reverse(route.longest().unwrap_or(0)))
        });
        routes
    }

    /// Returns the length of the longest path of a plugin's routes.
    pub(super) fn longest_path(&self, plugin: &Plugin<'_>) -> usize {
        if let Some(bound) = plugin.route {
            return self.routes[bound].longest().unwrap_or(0);
        }
        let is_bound = |route: &&Route| plugin.service.is_some() && route.service == plugin.service;
        let routes = self.routes.iter().filter(is_bound);
        routes.filter_map(Route::longest).max().unwrap_or(0)
    }

    /// Returns a name for the rule of a plugin.
    pub(super) fn rule_name(&self, plugin: &Plugin<'_>) -> String {
        if let Some(instance) = plugin.instance {
            return instance.to_owned();
        }
        let mut words = Vec::new();
        words.extend(plugin.consumer.as_deref());
        words.extend(plugin.route.map(|index| self.routes[index].name.as_str()));
        words.extend(
            plugin
                .service
                .map(|index| self.services[index].name.as_str()),
        );
        if words.is_empty() {
            words.push("global");
        }
        if plugin.kind != NAMES[0] {
            words.push("advanced");
        }
        words.join("-")
    }
}

/// Returns remarks on the fields of a plugin that are not read.
fn unread(fields: &Fields<'_>, faults: &mut Faults) -> Vec<Remark> {
    let read = "name instance_name enabled config _config service route consumer";
    let protocols = fields.texts("protocols", faults);
    let has = |name: &str| protocols.iter().any(|(protocol, _)| *protocol == name);
    // The default has both.
    let protocols = if has("http") && has("https") {
        "protocols"
    } else {
        ""
    };
    fields.unread("a plugin", &[read, IRRELEVANT, protocols])
}

/// Returns the names by which others refer to an entity.
fn names<'n>(fields: &Fields<'n>, faults: &mut Faults) -> Vec<&'n str> {
    let names = ["name", "id"].into_iter();
    names.filter_map(|name| fields.text(name, faults)).collect()
}

/// Returns the name in a reference: a text, or a mapping with the name or the id.
fn reference_name<'n>(node: &'n Node, kind: &str, faults: &mut Faults) -> Option<&'n str> {
    if let Some(text) = node.as_text() {
        return Some(text);
    }
    let what = format!("`{kind}`");
    let fields = Fields::read(node, &what, faults);
    let name = fields.first_text(&["name", "username", "custom_id", "id"], faults);
    if name.is_none() && faults.count() == 0 {
        faults.add(node.position, format!("{what} must be a name, or have one"));
    }
    name
}
