//! The declarative configuration of Kong with the plugins `rate-limiting` and
//! `rate-limiting-advanced`.
//!
//! Kong runs only the instance of a plugin with the most specific scope, so the rules of a
//! plugin are one group, ordered by their scopes.

mod entities;
mod plugin;
mod routes;

use std::cmp::Reverse;
use std::collections::HashMap;

use fluxgate_core::internals::yaml::Faults;

use super::draft::{Draft, Match, Remark, Rule, Set, Test};
use super::names::Ids;
use entities::{Entities, Plugin};
use plugin::{Identifier, Settings};

/// The name of the rule set.
const SET: &str = "kong";
/// The attribute that holds the consumer.
const CONSUMER: &str = "consumer";

/// Reads a configuration.
pub(super) fn read(text: &str, faults: &mut Faults) -> Draft {
    let node = match super::source::document(text) {
        Ok(node) => node,
        Err(fault) => return super::unreadable(fault, faults),
    };
    let Some(entities) = Entities::read(&node, faults) else {
        return Draft::default();
    };
    let mut set = Set {
        name: SET.into(),
        ..Set::default()
    };
    let mut remarks = entities.remarks.clone();
    let mut on_error: Vec<(bool, usize)> = Vec::new();
    let mut read = Vec::new();
    for plugin in &entities.plugins {
        if let Some(settings) = Settings::read(plugin, &mut remarks, faults) {
            on_error.extend(settings.fault_tolerant);
            read.push((plugin, settings));
        }
    }
    // The most specific first.
    read.sort_by_key(|(plugin, _)| (plugin.precedence(), Reverse(entities.longest_path(plugin))));
    let mut namespaces: HashMap<&str, usize> = HashMap::new();
    for namespace in read.iter().filter_map(|(_, it)| it.namespace.as_deref()) {
        *namespaces.entry(namespace).or_default() += 1;
    }
    let mut builder = Builder {
        entities: &entities,
        ids: Ids::default(),
        remarks,
        consumer_line: None,
    };
    for (plugin, settings) in &read {
        let mut rules = builder.rules(plugin, settings);
        let namespace = settings.namespace.as_deref().unwrap_or_default();
        if namespaces.get(namespace).is_some_and(|uses| *uses > 1) {
            let text =
                format!("`namespace: {namespace}`: other plugins with it do not share counters");
            let remark = Remark::lost(plugin.line, text);
            rules
                .iter_mut()
                .for_each(|rule| rule.remarks.push(remark.clone()));
        }
        set.rules.append(&mut rules);
    }
    group(&mut set.rules);
    if let Some(line) = builder.consumer_line {
        let text = "the consumer is the attribute `consumer`, which the filter must set";
        set.remarks.push(Remark::changed(line, text));
    }
    let is_strict = on_error.iter().any(|(tolerant, _)| !tolerant);
    set.on_error = match on_error.first() {
        None => None,
        Some(_) if is_strict => Some("deny"),
        Some(_) => Some("allow"),
    };
    if let Some((_, line)) = on_error.iter().find(|(tolerant, _)| is_strict && *tolerant) {
        let text = "`fault_tolerant: true`: another plugin has false, which holds for all";
        set.remarks.push(Remark::changed(*line, text));
    }
    Draft {
        remarks: builder.remarks,
        sets: vec![set],
    }
}

/// Puts the rules of each plugin into a group, unless there is only one.
fn group(rules: &mut [Rule]) {
    for name in entities::NAMES {
        let count = rules
            .iter()
            .filter(|rule| rule.group.as_deref() == Some(name))
            .count();
        for rule in rules.iter_mut().filter(|_| count == 1) {
            if rule.group.as_deref() == Some(name) {
                rule.group = None;
            }
        }
    }
}

struct Builder<'e> {
    entities: &'e Entities<'e>,
    ids: Ids,
    remarks: Vec<Remark>,
    /// Where the consumer is needed first.
    consumer_line: Option<usize>,
}

impl Builder<'_> {
    /// Returns the rules of a plugin.
    fn rules(&mut self, plugin: &Plugin<'_>, settings: &Settings) -> Vec<Rule> {
        let Some((matches, remarks)) = self.matches(plugin) else {
            return Vec::new();
        };
        let mut rule = settings.rule(plugin);
        rule.remarks.extend(remarks);
        rule.matches = matches;
        if let Some(consumer) = &plugin.consumer {
            self.consumer_line.get_or_insert(plugin.line);
            let test = Test::Is(vec![consumer.clone()]);
            rule.matches.attributes.push((CONSUMER.into(), test));
        }
        let mut named = |mut rule: Rule, more: &str| {
            let name = format!("{}{more}", self.entities.rule_name(plugin));
            rule.id = self.ids.unique(&name);
            rule
        };
        match &settings.identifier {
            Identifier::Consumer => {
                self.consumer_line.get_or_insert(plugin.line);
                // A plugin of one consumer has one counter.
                if plugin.consumer.is_none() {
                    rule.key = vec![format!("attr:{CONSUMER}")];
                }
                vec![named(rule, "")]
            }
            Identifier::Part(part) => {
                rule.key = vec![part.clone()];
                vec![named(rule, "")]
            }
            Identifier::Path(path) => {
                let mut others = rule.clone();
                rule.matches.path = vec![path.clone()];
                others.matches.not_path.push(path.clone());
                others.key = vec!["ip".into()];
                vec![named(rule, "-path"), named(others, "")]
            }
            Identifier::Service if plugin.is_bound() || self.entities.services.is_empty() => {
                vec![named(rule, "")]
            }
            Identifier::Service => {
                let mut rules = Vec::new();
                for (index, service) in self.entities.services.iter().enumerate() {
                    let matches = self.entities.service_match(index);
                    match matches.into_match(plugin.line) {
                        Ok((matches, remarks)) => {
                            let mut rule = rule.clone();
                            rule.remarks.extend(remarks);
                            rule.matches.path = matches.path;
                            rule.matches.not_path = matches.not_path;
                            rules.push(named(rule, &format!("-{}", service.name)));
                        }
                        Err(remarks) => self.remarks.extend(remarks),
                    }
                }
                rules
            }
        }
    }

    /// Returns the conditions of a plugin's scope, or `None` if rules cannot express them.
    fn matches(&mut self, plugin: &Plugin<'_>) -> Option<(Match, Vec<Remark>)> {
        let matches = match (plugin.route, plugin.service) {
            (Some(route), _) => self.entities.route_match(route),
            (None, Some(service)) => self.entities.service_match(service),
            (None, None) => return Some((Match::default(), Vec::new())),
        };
        match matches.into_match(plugin.line) {
            Ok(found) => Some(found),
            Err(remarks) => {
                self.remarks.extend(remarks);
                None
            }
        }
    }
}
