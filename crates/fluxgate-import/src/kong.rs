//! The declarative configuration of Kong with the plugins `rate-limiting` and
//! `rate-limiting-advanced`.
//!
//! Kong runs only the instance of a plugin with the most specific scope, so the rules of a
//! plugin are one group, ordered by their scopes.

mod entities;
mod others;
mod plugin;
mod routes;

use std::cmp::Reverse;
use std::collections::HashMap;

use fluxgate_core::yaml::{Fault, Faults};
use fluxgate_core::{KeyPart, OnError, ValueMatch};

use crate::draft::{Conditions, Draft, Remark, RuleDraft, RuleSetDraft};
use crate::names::UniqueNames;
use entities::{Entities, Plugin};
use others::Names;
use plugin::{Identifier, Settings};

/// The name of the rule set.
const SET: &str = "kong";
/// The most rules. A plugin that counts by route has one for each route.
const MAX_RULES: usize = 10_000;
/// The attribute that holds the consumer.
const CONSUMER: &str = "consumer";

/// Reads a configuration.
pub(crate) fn read(text: &str, faults: &mut Faults) -> Result<Draft, Fault> {
    let node = crate::fields::document(text)?;
    let Some(entities) = Entities::read(&node, faults) else {
        return Ok(Draft::default());
    };
    let mut set = RuleSetDraft {
        name: SET.into(),
        ..RuleSetDraft::default()
    };
    let mut remarks = entities.remarks.clone();
    let mut storage = Names::default();
    let mut fault_tolerance: Vec<(bool, usize)> = Vec::new();
    let mut plugins = Vec::new();
    for plugin in &entities.plugins {
        if let Some(settings) = Settings::read(plugin, &mut remarks, faults) {
            for (name, line) in &settings.storage {
                storage.add(format!("`{name}`"), *line);
            }
            fault_tolerance.extend(settings.fault_tolerant);
            plugins.push((plugin, settings));
        }
    }
    remarks.extend(storage.remark("the `store` of the config says where counters are"));
    // The most specific first.
    plugins
        .sort_by_key(|(plugin, _)| (plugin.precedence(), Reverse(entities.longest_path(plugin))));
    let mut namespaces: HashMap<&str, usize> = HashMap::new();
    for (_, settings) in &plugins {
        if let Some(namespace) = &settings.namespace {
            *namespaces.entry(namespace).or_default() += 1;
        }
    }
    let mut builder = RuleBuilder {
        entities: &entities,
        ids: UniqueNames::default(),
        remarks,
        consumer_line: None,
    };
    for (plugin, settings) in &plugins {
        let mut rules = builder.rules(plugin, settings);
        let namespace = settings.namespace.as_deref().unwrap_or_default();
        if namespaces.get(namespace).is_some_and(|uses| *uses > 1) {
            let text =
                format!("`namespace: {namespace}`: other plugins with it do not share counters");
            for rule in &mut rules {
                rule.remarks.push(Remark::lost(plugin.line, text.as_str()));
            }
        }
        set.rules.append(&mut rules);
        if set.rules.len() > MAX_RULES {
            let text = format!("the plugins have more than {MAX_RULES} rules");
            faults.add(node.position, text);
            break;
        }
    }
    ungroup_single_rules(&mut set.rules);
    if let Some(line) = builder.consumer_line {
        let text = "the consumer is the attribute `consumer`, which the filter must set";
        set.remarks.push(Remark::changed(line, text));
    }
    let is_strict = fault_tolerance.iter().any(|(tolerant, _)| !tolerant);
    if is_strict {
        set.on_error = OnError::Deny;
        if let Some((_, line)) = fault_tolerance.iter().find(|(tolerant, _)| *tolerant) {
            let text = "`fault_tolerant: true`: another plugin has false, which holds for all";
            set.remarks.push(Remark::changed(*line, text));
        }
    } else if !fault_tolerance.is_empty() {
        set.on_error = OnError::Allow;
    }
    Ok(Draft {
        remarks: builder.remarks,
        sets: vec![set],
        config: None,
    })
}

/// Removes the group of a plugin that has only one rule.
fn ungroup_single_rules(rules: &mut [RuleDraft]) {
    for name in entities::NAMES {
        let mut group = rules
            .iter_mut()
            .filter(|rule| rule.group.as_deref() == Some(name));
        if let (Some(rule), None) = (group.next(), group.next()) {
            rule.group = None;
        }
    }
}

struct RuleBuilder<'e> {
    entities: &'e Entities<'e>,
    ids: UniqueNames,
    remarks: Vec<Remark>,
    /// The line of the first plugin that needs the consumer.
    consumer_line: Option<usize>,
}

impl RuleBuilder<'_> {
    /// Returns the rules of a plugin.
    fn rules(&mut self, plugin: &Plugin<'_>, settings: &Settings) -> Vec<RuleDraft> {
        let Some((conditions, remarks)) = self.conditions(plugin) else {
            return Vec::new();
        };
        let mut rule = settings.rule(plugin);
        rule.remarks.extend(remarks);
        rule.conditions = conditions;
        if let Some(consumer) = &plugin.consumer {
            self.consumer_line.get_or_insert(plugin.line);
            let is_consumer = ValueMatch::from(consumer.as_str());
            rule.conditions
                .attributes
                .push((CONSUMER.into(), is_consumer));
        }
        let mut named = |mut rule: RuleDraft, suffix: &str| {
            let name = format!("{}{suffix}", self.entities.rule_name(plugin));
            rule.id = self.ids.unique_id(&name);
            rule
        };
        match &settings.identifier {
            Identifier::Consumer => {
                self.consumer_line.get_or_insert(plugin.line);
                // A plugin of one consumer has one counter.
                if plugin.consumer.is_none() {
                    rule.key = vec![KeyPart::Attribute(CONSUMER.into())];
                }
                vec![named(rule, "")]
            }
            Identifier::Part(part) => {
                rule.key = vec![part.clone()];
                vec![named(rule, "")]
            }
            Identifier::Path(path) => {
                let mut others = rule.clone();
                rule.conditions.path = vec![path.clone()];
                others.conditions.not_path.push(path.clone());
                others.key = vec![KeyPart::Ip];
                vec![named(rule, "-path"), named(others, "")]
            }
            Identifier::Service if plugin.is_bound() || self.entities.services.is_empty() => {
                vec![named(rule, "")]
            }
            Identifier::Route if plugin.route.is_some() || self.entities.routes.is_empty() => {
                vec![named(rule, "")]
            }
            Identifier::Route => {
                // Those on other routes do not matter to the rule of a route.
                rule.remarks = settings.rule(plugin).remarks;
                let mut rules = Vec::new();
                for index in self.entities.routes_of(plugin) {
                    let scope = self.entities.route_scope(index);
                    match scope.into_conditions(plugin.line) {
                        Ok((conditions, remarks)) => {
                            let mut rule = rule.clone();
                            rule.remarks.extend(remarks);
                            let consumer = std::mem::take(&mut rule.conditions.attributes);
                            rule.conditions = conditions;
                            rule.conditions.attributes = consumer;
                            let route = &self.entities.routes[index];
                            rules.push(named(rule, &format!("-{}", route.name)));
                        }
                        Err(remarks) => self.remarks.extend(remarks),
                    }
                }
                rules
            }
            Identifier::Service => {
                let mut rules = Vec::new();
                for (index, service) in self.entities.services.iter().enumerate() {
                    let scope = self.entities.service_scope(index);
                    match scope.into_conditions(plugin.line) {
                        Ok((conditions, remarks)) => {
                            let mut rule = rule.clone();
                            rule.remarks.extend(remarks);
                            rule.conditions.path = conditions.path;
                            rule.conditions.not_path = conditions.not_path;
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
    fn conditions(&mut self, plugin: &Plugin<'_>) -> Option<(Conditions, Vec<Remark>)> {
        let scope = match (plugin.route, plugin.service) {
            (Some(route), _) => self.entities.route_scope(route),
            (None, Some(service)) => self.entities.service_scope(service),
            (None, None) => return Some((Conditions::default(), Vec::new())),
        };
        scope
            .into_conditions(plugin.line)
            .map_err(|remarks| self.remarks.extend(remarks))
            .ok()
    }
}
