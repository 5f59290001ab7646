//! The `application.yml` of Spring Cloud Gateway.
//!
//! A route has predicates, filters and a URI. `RequestRateLimiter` is a filter: a token bucket
//! for each key of the route. A route with one becomes a rule set, a filter and a route. Each
//! route has the filters of `default-filters` too, with buckets of its own.

mod definitions;
mod keys;
mod limiters;
mod predicates;
mod settings;

use fluxgate_core::yaml::{Fault, Faults, Node, Value};

use crate::config_draft::{ConfigDraft, FilterDraft, RouteDraft, UpstreamDraft};
use crate::draft::{Draft, Remark, RuleSetDraft};
use crate::names::{UniqueNames, set_name};
use crate::spring::{Properties, START};
use definitions::{Definition, PREFIXES};
use limiters::{Limiter, LimiterDefaults};
use predicates::Matched;

/// Reads a configuration.
pub(crate) fn read(text: &str, faults: &mut Faults) -> Result<Draft, Fault> {
    let mut remarks = Vec::new();
    let wanted = [
        "spring.cloud.gateway",
        "spring.data.redis",
        "spring.redis",
        "server",
    ];
    let properties = Properties::read(text, &wanted, &mut remarks)?;
    remarks.sort_by(|first, second| (first.line, &first.text).cmp(&(second.line, &second.text)));
    remarks.dedup();
    let named = |name: &str| {
        let names = PREFIXES.map(|prefix| format!("{prefix}.{name}"));
        names.into_iter().find(|name| properties.has(name))
    };
    let (routes, default_filters) = (named("routes"), named("default-filters"));
    if routes.is_none() {
        let text = "a configuration needs `spring.cloud.gateway.routes` or \
                    `spring.cloud.gateway.server.webflux.routes`";
        faults.add(START, text);
        return Ok(Draft::default());
    }
    let defaults = LimiterDefaults::read(&properties, faults);
    let mut reader = Reader {
        faults,
        defaults,
        default_limiters: Vec::new(),
        sets: Vec::new(),
        config: ConfigDraft::default(),
        names: UniqueNames::default(),
        route_ids: UniqueNames::default(),
    };
    if let Some(name) = default_filters {
        let nodes = properties.list(&name, reader.faults);
        reader.default_filters(nodes);
    }
    if let Some(name) = routes {
        let nodes = properties.list(&name, reader.faults);
        reader.routes(nodes);
    }
    let Reader {
        sets, mut config, ..
    } = reader;
    settings::read(&properties, &mut config, faults);
    let of_limiters = limiters::unread(&properties);
    let mut others = properties.unread("spring.cloud.gateway");
    others.retain(|remark| !of_limiters.contains(remark));
    config.remarks.extend(others);
    config.remarks.extend(properties.unread("server"));
    remarks.extend(of_limiters);
    Ok(Draft {
        remarks,
        sets,
        config: Some(config),
    })
}

struct Reader<'r> {
    faults: &'r mut Faults,
    defaults: LimiterDefaults,
    /// The limiters of all routes.
    default_limiters: Vec<Definition>,
    sets: Vec<RuleSetDraft>,
    config: ConfigDraft,
    /// The names of rule sets, which filters have too.
    names: UniqueNames,
    route_ids: UniqueNames,
}

/// A route while it is read.
struct Pending<'n> {
    line: usize,
    id: String,
    order: i64,
    uri: &'n str,
    predicates: Vec<Definition>,
    filters: Vec<Definition>,
    remarks: Vec<Remark>,
}

impl Reader<'_> {
    /// Reads the filters of all routes.
    fn default_filters(&mut self, nodes: &[Node]) {
        let filters = Definition::read_all(nodes, "a filter", self.faults);
        let (limiters, others): (Vec<_>, Vec<_>) =
            filters.into_iter().partition(Definition::is_limiter);
        for other in others {
            let text = format!("the default filter `{}`", other.text);
            self.config.remarks.push(Remark::lost(other.line, text));
        }
        self.default_limiters = limiters;
    }

    fn add_set(&mut self, set: RuleSetDraft) {
        let rules = set.rules.iter();
        let attributes = rules.flat_map(|rule| &rule.key).filter_map(keys::unset);
        let attributes: Vec<_> = attributes.collect();
        let mut filter = FilterDraft {
            name: set.name.clone(),
            rule_set: Some(set.name.clone()),
            ..FilterDraft::default()
        };
        for name in attributes {
            let line = set.rules[0].remarks.first().map_or(1, |it| it.line);
            let text = format!("the source of the attribute `{name}`: add it to `attributes`");
            filter.remarks.push(Remark::lost(line, text));
        }
        self.config.filters.push(filter);
        self.sets.push(set);
    }

    fn routes(&mut self, nodes: &[Node]) {
        let mut routes = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            routes.extend(self.pending(node, index));
        }
        // The order of the text decides among equals.
        routes.sort_by_key(|route| route.order);
        for route in routes {
            self.route(route);
        }
    }

    fn pending<'n>(&mut self, node: &'n Node, index: usize) -> Option<Pending<'n>> {
        let line = node.position.line;
        let Value::Map(_) = &node.value else {
            let text = format!("a route must be a mapping, not {}", node.kind());
            self.faults.add(node.position, text);
            return None;
        };
        let fields = crate::spring::fields(node, "a route", self.faults);
        let known = "id uri order predicates filters enabled";
        let mut remarks = fields.unread("a route", &[known]);
        if !fields.boolean("enabled", true, self.faults) {
            let text = "a route that is not enabled";
            self.config.remarks.push(Remark::lost(line, text));
            return None;
        }
        let id = match fields.text("id", self.faults) {
            Some(id) => id.to_owned(),
            None => {
                let text = "the route has no id: Spring Cloud Gateway makes one at each start";
                remarks.push(Remark::changed(line, text));
                format!("route-{}", index + 1)
            }
        };
        let order = fields.text("order", self.faults).map(str::parse);
        let order = order.transpose().unwrap_or_else(|_| {
            let text = "`order` must be a whole number";
            self.faults.add(node.position, text);
            None
        });
        let Some(uri) = fields.text("uri", self.faults) else {
            self.faults.add(node.position, "a route needs a `uri`");
            return None;
        };
        let predicates = fields.list("predicates", self.faults);
        let filters = fields.list("filters", self.faults);
        Some(Pending {
            line,
            id,
            order: order.unwrap_or(0),
            uri,
            predicates: Definition::read_all(predicates, "a predicate", self.faults),
            filters: Definition::read_all(filters, "a filter", self.faults),
            remarks,
        })
    }

    fn route(&mut self, route: Pending<'_>) {
        let Pending {
            line,
            id,
            uri,
            predicates,
            filters,
            mut remarks,
            ..
        } = route;
        let matched = predicates::read(&predicates, self.faults);
        let (limiters, others): (Vec<_>, Vec<_>) =
            filters.into_iter().partition(Definition::is_limiter);
        for other in others {
            remarks.extend(other.remark());
        }
        let set = self.set(line, &id, &limiters, &matched);
        let names = set.iter().map(|set| set.name.clone()).collect();
        if let Some(set) = set {
            self.add_set(set);
        }
        let upstream = match settings::upstream(uri) {
            Ok((upstream, remark)) => {
                remarks.extend(remark.map(|text| Remark::changed(line, text)));
                upstream
            }
            Err(why) => {
                let text = format!("the route `{id}`: {why}");
                self.config.remarks.push(Remark::lost(line, text));
                return;
            }
        };
        if let Some(predicate) = matched.beyond_routes.first() {
            let text = format!(
                "the route `{id}`: routes cannot express `{predicate}`; requests go to a later route"
            );
            self.config.remarks.push(Remark::lost(line, text));
            return;
        }
        remarks.extend(matched.route_remarks);
        let id = self.route_ids.unique(&set_name(&id));
        self.config.routes.push(RouteDraft {
            remarks,
            id,
            path: matched.path,
            host: matched.host,
            methods: matched.conditions.methods,
            headers: matched.headers,
            upstreams: vec![UpstreamDraft {
                url: upstream,
                weight: None,
            }],
            filters: names,
            ..RouteDraft::default()
        });
    }

    /// Returns the rule set of a route, if the route has limits.
    fn set(
        &mut self,
        line: usize,
        id: &str,
        limiters: &[Definition],
        matched: &Matched,
    ) -> Option<RuleSetDraft> {
        let all = self.default_limiters.iter().chain(limiters);
        let limiters = Limiter::read_all(all, &self.defaults, self.faults);
        let mut remarks = Vec::new();
        let mut rules = limiters::rules(&limiters, id, &mut remarks);
        if rules.is_empty() {
            self.config.remarks.extend(remarks);
            return None;
        }
        for rule in &mut rules {
            rule.conditions = matched.conditions.clone();
        }
        remarks.extend(matched.rule_remarks.iter().cloned());
        let text = if matched.beyond_rules.is_empty() {
            format!("use this set for the requests of the route `{id}`")
        } else {
            let others = matched.beyond_rules.iter().map(|it| format!("`{it}`"));
            let others = others.collect::<Vec<_>>().join(" and ");
            format!("use this set for the requests of the route `{id}`, which has {others}")
        };
        Some(RuleSetDraft {
            name: self.names.unique(&set_name(id)),
            remarks,
            selection: Some(Remark::changed(line, text)),
            // Spring Cloud Gateway lets requests pass if Redis fails.
            on_error: fluxgate_core::OnError::Allow,
            rules,
        })
    }
}
