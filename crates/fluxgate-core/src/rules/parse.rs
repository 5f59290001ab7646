//! From a YAML tree to rules, with every fault noted at its place.

mod bands;
mod parts;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::rule::{CostSource, Rule, RuleMode};
use super::{RuleNumber, RuleOptions, RuleSet, RuleSets};
use crate::key::{self, KeyPart, OnMissingKey, SubjectBytes};
use crate::limit::Algorithm;
use crate::matcher::{Conditions, Matcher};
use crate::sip::Sip13;
use crate::time::Micros;
use crate::yaml::{Faults, Node};
use bands::BandStyle;

const DEFAULT_PRIORITY: i64 = 100;
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(5);
const MAX_NAME: usize = 200;

/// A whole rule file.
pub(super) fn rule_file(root: &Node, faults: &mut Faults) -> RuleSets {
    let [rule_sets, on_missing, keys] = faults.fields(
        root,
        "a rule file",
        ["rule_sets", "on_missing_rule_set", "keys"],
    );
    let mut options = RuleOptions::default();
    if let Some(node) = on_missing {
        options.on_missing_rule_set = faults.on_missing_rule_set(node).unwrap_or_default();
    }
    if let Some(node) = keys {
        let [prefix] = faults.fields(node, "`keys`", ["ipv6_prefix"]);
        if let Some(prefix) = prefix.and_then(|node| faults.ipv6_prefix(node)) {
            options.ipv6_prefix = prefix;
        }
    }
    match rule_sets {
        Some(node) => sets(node, options, faults),
        None => {
            // What is no mapping at all has been told.
            if faults.count() == 0 {
                faults.add(root.position, "`rule_sets` is missing");
            }
            RuleSets::default()
        }
    }
}

/// The mapping under `rule_sets`.
pub(super) fn sets(node: &Node, options: RuleOptions, faults: &mut Faults) -> RuleSets {
    let mut sets = HashMap::new();
    for (name, key, value) in faults.map(node, "`rule_sets`") {
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            faults.add(
                key.position,
                format!(
                    "a rule set's name must have 1 to {MAX_NAME} bytes and no control character"
                ),
            );
        }
        let set = rule_set(name, value, options, faults);
        sets.insert(name.into(), Arc::new(set));
    }
    RuleSets {
        sets,
        on_missing: options.on_missing_rule_set,
    }
}

fn rule_set(name: &str, node: &Node, options: RuleOptions, faults: &mut Faults) -> RuleSet {
    let [on_error, rules] = faults.fields(node, "a rule set", ["on_error", "rules"]);
    let on_error = on_error.and_then(|node| faults.on_error(node));
    if rules.is_none() && node.is_map() {
        faults.add(node.position, format!("rule set `{name}` has no `rules`"));
    }
    let nodes = rules.map_or(&[][..], |node| faults.list(node, "`rules`"));
    let mut ids = HashSet::new();
    let mut enabled = Vec::new();
    for node in nodes {
        let Some(parsed) = RuleReader {
            set: name,
            options,
            faults,
        }
        .rule(node, &mut ids) else {
            continue;
        };
        if parsed.enabled {
            enabled.push((parsed.rule, parsed.conditions));
        }
    }
    // Stable: rules of one priority stay in the order of the file.
    enabled.sort_by_key(|(rule, _)| rule.priority);
    let (rules, conditions): (Vec<_>, Vec<_>) = enabled.into_iter().unzip();
    let header_names = header_names(&rules, &conditions);
    let delays = rules.iter().any(Rule::delays);
    let key_header_names: BTreeSet<_> = key_headers(&rules).cloned().collect();
    let key_header_names = key_header_names.into_iter().collect();
    RuleSet {
        name: name.into(),
        on_error: on_error.unwrap_or_default(),
        rules,
        matcher: Matcher::new(conditions),
        ipv6_prefix: options.ipv6_prefix,
        header_names,
        delays,
        key_header_names,
    }
}

/// The headers that any rule asks about, each once.
fn header_names(rules: &[Rule], conditions: &[Conditions]) -> Box<[Box<str>]> {
    let matched = conditions.iter().flat_map(|conditions| &conditions.headers);
    let costs = rules.iter().filter_map(|rule| match rule.cost() {
        CostSource::Header(name) => Some(name),
        _ => None,
    });
    let names = matched
        .map(|(name, _)| name)
        .chain(key_headers(rules))
        .chain(costs);
    let names: BTreeSet<_> = names.cloned().collect();
    names.into_iter().collect()
}

/// The headers that are part of a rule's key.
fn key_headers(rules: &[Rule]) -> impl Iterator<Item = &Box<str>> {
    let parts = rules.iter().flat_map(Rule::key);
    parts.filter_map(|part| match part {
        KeyPart::Header(name) => Some(name),
        _ => None,
    })
}

struct ParsedRule {
    rule: Rule,
    conditions: Conditions,
    enabled: bool,
}

struct RuleReader<'a> {
    set: &'a str,
    options: RuleOptions,
    faults: &'a mut Faults,
}

impl RuleReader<'_> {
    /// A rule, or `None` if it is so wrong that nothing can be made of it; what
    /// is wrong is noted in either case.
    fn rule<'n>(&mut self, node: &'n Node, ids: &mut HashSet<&'n str>) -> Option<ParsedRule> {
        let faults_before = self.faults.count();
        let [
            id,
            name,
            enabled,
            mode,
            priority,
            matches,
            scope,
            key,
            on_missing_key,
            algorithm,
            shape,
            bands,
            cost,
            on_exceed,
            max_wait,
            overrides,
            reset_on_change,
            attributes,
        ] = self.faults.fields(
            node,
            "a rule",
            [
                "id",
                "name",
                "enabled",
                "mode",
                "priority",
                "match",
                "scope",
                "key",
                "on_missing_key",
                "algorithm",
                "shape",
                "bands",
                "cost",
                "on_exceed",
                "max_wait",
                "overrides",
                "reset_on_change",
                "attributes",
            ],
        );
        if !node.is_map() {
            return None;
        }
        let id = self.rule_id(node, id, ids);
        let name = name.and_then(|node| self.faults.text(node, "`name`"));
        let enabled = self.boolean(enabled, "`enabled`", true);
        let modes = [("enforce", RuleMode::Enforce), ("shadow", RuleMode::Shadow)];
        let mode = mode.and_then(|node| self.faults.one_of(node, "`mode`", &modes));
        let priority = priority.and_then(|node| {
            let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
            self.faults.whole(node, "`priority`", least, most)
        });
        let (conditions, not_path) = self.conditions(matches);
        let key = self.key(node, scope, key);
        let on_missing_key = on_missing_key.and_then(|node| {
            let names = [
                ("ip", OnMissingKey::Ip),
                ("anonymous", OnMissingKey::Anonymous),
                ("skip", OnMissingKey::Skip),
                ("deny", OnMissingKey::Deny),
            ];
            self.faults.one_of(node, "`on_missing_key`", &names)
        });
        let algorithm = match algorithm {
            Some(node) => self.faults.one_of(node, "`algorithm`", &Algorithm::NAMES),
            None => Some(Algorithm::TokenBucket),
        };
        let waits = on_exceed
            .and_then(|node| {
                let names = [("reject", false), ("wait", true)];
                self.faults.one_of(node, "`on_exceed`", &names)
            })
            .unwrap_or(false);
        let max_wait = max_wait.and_then(|node| self.faults.duration(node, "`max_wait`"));
        let max_wait = waits.then(|| max_wait.unwrap_or(DEFAULT_MAX_WAIT));
        let style = BandStyle {
            algorithm,
            shape: self.boolean(shape, "`shape`", false),
            shape_at: shape.map_or(node.position, |node| node.position),
            max_wait,
        };
        let mut bands = match bands {
            Some(list) => self.bands(list, &style),
            None => {
                self.faults.add(node.position, "a rule needs `bands`");
                Vec::new()
            }
        };
        let cost = cost.map_or(Some(CostSource::Fixed(1)), |node| self.cost(node));
        let own = bands.len() as u32;
        let overrides =
            overrides.map(|node| self.overrides(node, key.as_deref(), &style, &mut bands));
        let reset_on_change = self.boolean(reset_on_change, "`reset_on_change`", false);
        let attributes = attributes.map(|node| self.texts(node, "`attributes`"));

        // Numbers are not given back, so only good rules get one.
        if self.faults.count() > faults_before {
            return None;
        }
        let subject = subject_of_rule(self.set, id?, reset_on_change.then_some(node));
        let Some(number) = RuleNumber::of(&subject) else {
            self.faults.add(
                node.position,
                "this process has seen a million different rules; restart it to load more",
            );
            return None;
        };
        let id = id?;
        let bands = bands.into_iter().map(|band| band.of_rule(id));
        Some(ParsedRule {
            rule: Rule {
                id: id.into(),
                name: name.map(Into::into),
                mode: mode.unwrap_or_default(),
                priority: priority.unwrap_or(DEFAULT_PRIORITY),
                not_path,
                key: key?,
                on_missing_key: on_missing_key.unwrap_or_default(),
                cost: cost?,
                max_wait: max_wait.map(Micros::from_duration),
                bands: bands.collect(),
                own,
                overrides: overrides.unwrap_or_default(),
                attributes: attributes.unwrap_or_default(),
                subject: subject.to_vec().into(),
                number,
                reset_on_change,
            },
            conditions,
            enabled,
        })
    }

    fn rule_id<'n>(
        &mut self,
        rule: &Node,
        node: Option<&'n Node>,
        ids: &mut HashSet<&'n str>,
    ) -> Option<&'n str> {
        let Some(node) = node else {
            self.faults.add(rule.position, "a rule needs an `id`");
            return None;
        };
        let id = self.faults.text(node, "`id`")?;
        let mut bytes = id.bytes();
        let starts_well = bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let goes_on_well = bytes.all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
        });
        if !starts_well || !goes_on_well || id.len() > MAX_NAME {
            self.faults.add(
                node.position,
                format!("`{id}` is no rule id; allowed is [a-z0-9][a-z0-9_-]* up to {MAX_NAME} characters"),
            );
        }
        if !ids.insert(id) {
            let set = self.set;
            self.faults.add(
                node.position,
                format!("a rule `{id}` stands in rule set `{set}` already"),
            );
        }
        Some(id)
    }

    fn boolean(&mut self, node: Option<&Node>, what: &str, default: bool) -> bool {
        node.and_then(|node| self.faults.boolean(node, what))
            .unwrap_or(default)
    }
}

/// The start of every subject of a rule. A rule that resets on change has what
/// it says in it: any other text makes other subjects.
fn subject_of_rule(set: &str, id: &str, resets: Option<&Node>) -> SubjectBytes {
    let mut subject = SubjectBytes::new();
    key::encode_bytes(set, &mut subject);
    key::encode_bytes(id, &mut subject);
    if let Some(rule) = resets {
        let says = Sip13::PUBLIC.hash(rule.canonical().as_bytes());
        // No part of an identity begins with this byte.
        subject.push(key::RESETS);
        subject.extend_from_slice(&says.to_le_bytes());
    }
    subject
}
