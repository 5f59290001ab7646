//! The configuration of envoyproxy/ratelimit: a domain with nested descriptors.
//!
//! The service looks a request's descriptor up level by level: first by key and value, then by
//! key alone, and it never goes back up. So a rule without a value excludes the values that
//! its siblings list, unless such a sibling is a limit too: then both are in a group, in which
//! the first rule that matches applies. A limit counts only descriptors with exactly its keys.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use fluxgate_core::yaml::{Fault, Faults, Node};
use fluxgate_core::{Algorithm, KeyPart, OnMissingKey, ValueMatch};

use crate::draft::{BandDraft, Draft, MAX_UNITS, MAX_WINDOW, Remark, RuleDraft, RuleSetDraft};
use crate::fields::{Fields, items, whole_number};
use crate::names::{UniqueNames, set_name, slug};

/// Reads a configuration.
pub(crate) fn read(text: &str, faults: &mut Faults) -> Result<Draft, Fault> {
    let node = crate::fields::document(text)?;
    let mut remarks = Vec::new();
    let Some((domain, descriptors)) = read_descriptors(&node, &mut remarks, faults) else {
        return Ok(Draft::default());
    };
    let mut builder = RuleBuilder {
        key_sets: KeySets::default(),
        ids: UniqueNames::default(),
        rules: Vec::new(),
        sequences: HashMap::new(),
        remarks,
    };
    builder.key_sets.add(&descriptors, &mut Vec::new());
    builder.level(&descriptors, &mut Vec::new());
    let set = RuleSetDraft {
        name: set_name(&domain),
        rules: builder.rules,
        ..RuleSetDraft::default()
    };
    Ok(Draft {
        remarks: builder.remarks,
        sets: vec![set],
        config: None,
    })
}

/// One level of the path to a limit.
#[derive(Clone, Debug)]
struct PathStep<'d> {
    key: &'d str,
    value: ExpectedValue<'d>,
}

#[derive(Clone, Debug)]
enum ExpectedValue<'d> {
    Exactly(&'d str),
    AnyExcept(Vec<&'d str>),
}

struct RuleBuilder<'d> {
    key_sets: KeySets<'d>,
    ids: UniqueNames,
    rules: Vec<RuleDraft>,
    /// The first order in which each set of keys occurs.
    sequences: HashMap<BTreeSet<&'d str>, Vec<&'d str>>,
    remarks: Vec<Remark>,
}

impl<'d> RuleBuilder<'d> {
    /// Adds the rules of a list of descriptors below a path.
    fn level(&mut self, list: &'d [Descriptor], path: &mut Vec<PathStep<'d>>) {
        let (with_value, without): (Vec<_>, Vec<_>) = list
            .iter()
            .partition(|descriptor| descriptor.value.is_some());
        let mut siblings: HashMap<&str, Vec<(&Descriptor, &str)>> = HashMap::new();
        for descriptor in &with_value {
            if let Some(value) = &descriptor.value {
                let siblings = siblings.entry(&descriptor.key).or_default();
                siblings.push((*descriptor, value.as_str()));
            }
        }
        // The groups of the keys that have rules with and without a value.
        let mut groups: HashMap<(&str, bool), Option<String>> = HashMap::new();
        for default in &without {
            let same_key = siblings.get(default.key.as_str());
            if let Some(Limit::Rate { .. }) = default.limit
                && same_key.is_some_and(|it| it.iter().any(|(it, _)| it.replaces(default)))
            {
                groups.insert((&default.key, default.is_shadow), None);
            }
        }
        // Rules with a value come first, so that they apply in place of the others.
        for descriptor in with_value.iter().chain(&without) {
            if path.iter().any(|step| step.key == descriptor.key) {
                let text = format!(
                    "a descriptor with the key `{}` twice, and all below it",
                    descriptor.key
                );
                self.remarks.push(Remark::lost(descriptor.line, text));
                continue;
            }
            let others = match descriptor.value {
                Some(_) => &[][..],
                None => siblings
                    .get(descriptor.key.as_str())
                    .map_or(&[][..], Vec::as_slice),
            };
            let all = others.iter().map(|(_, value)| *value);
            let kept = others.iter().filter(|(it, _)| !it.replaces(descriptor));
            let expected = |excluded| match &descriptor.value {
                Some(value) => ExpectedValue::Exactly(value),
                None => ExpectedValue::AnyExcept(excluded),
            };
            let key = descriptor.key.as_str();
            let step = |value| PathStep { key, value };
            path.push(step(expected(kept.map(|(_, value)| *value).collect())));
            if let Some(Limit::Rate { requests, window }) = descriptor.limit {
                let mut rule = self.rule(descriptor, path, requests, window);
                if let Some(group) = groups.get_mut(&(key, descriptor.is_shadow))
                    && rule.denies.is_none()
                {
                    let group = group.get_or_insert_with(|| group_name(path));
                    rule.group = Some(group.clone());
                }
                self.rules.push(rule);
            }
            path.pop();
            path.push(step(expected(all.collect())));
            self.level(&descriptor.children, path);
            path.pop();
        }
    }

    fn rule(
        &mut self,
        descriptor: &Descriptor,
        path: &[PathStep<'d>],
        requests: u64,
        window: Duration,
    ) -> RuleDraft {
        let id = self.ids.unique_id(&path_name(path));
        let denies = requests == 0;
        // A rule that denies what it matches decides before the others of its group, and no
        // condition requires that an attribute has a value but none of these. It has no
        // place in a group of shadow rules either, because only the first of those reports.
        let has_exceptions = path.iter().any(
            |step| matches!(&step.value, ExpectedValue::AnyExcept(values) if !values.is_empty()),
        );
        let is_action = denies && !has_exceptions && !descriptor.is_shadow;
        let mut rule = if is_action {
            RuleDraft::denying(id, 403)
        } else {
            RuleDraft::new(id, Algorithm::FixedWindow)
        };
        if is_action {
            // It has no bands.
        } else if denies {
            // The cost is above the capacity. A key that no request has would not do: over
            // gRPC, a rule without all parts of its key does not match.
            rule.bands.push(BandDraft::new(1, MAX_WINDOW));
            rule.cost = MAX_UNITS;
        } else {
            let capacity = requests.min(MAX_UNITS);
            rule.bands.push(BandDraft::new(capacity, window));
        }
        rule.remarks.extend(descriptor.remarks.iter().cloned());
        if requests > MAX_UNITS {
            let text =
                format!("{requests} requests per unit are reduced to {MAX_UNITS}, the maximum");
            rule.remarks.push(Remark::changed(descriptor.line, text));
        }
        rule.name.clone_from(&descriptor.name);
        rule.shadow = descriptor.is_shadow;
        for step in path {
            let condition = match &step.value {
                ExpectedValue::Exactly(value) => Some(ValueMatch::from(*value)),
                // One counter for all values, so that one call passes and not one for each.
                ExpectedValue::AnyExcept(values) if denies && values.is_empty() => {
                    Some(ValueMatch::present())
                }
                ExpectedValue::AnyExcept(values) => {
                    rule.key.push(KeyPart::Attribute(step.key.into()));
                    (!values.is_empty()).then(|| ValueMatch::not(values.iter().copied()))
                }
            };
            let named = condition.map(|condition| (step.key.to_owned(), condition));
            rule.conditions.attributes.extend(named);
        }
        if denies && !is_action {
            let text = if rule.key.is_empty() {
                "a call with a `hits_addend` of 1 passes once in 366 days"
            } else {
                "a call with a `hits_addend` of 1 passes once in 366 days for each value"
            };
            rule.remarks.push(Remark::changed(descriptor.line, text));
        }
        if !rule.key.is_empty() {
            rule.on_missing_key = OnMissingKey::Skip;
        }
        let keys: BTreeSet<_> = path.iter().map(|step| step.key).collect();
        for key in self.key_sets.more_than(&keys) {
            let absent = (key.to_owned(), ValueMatch::absent());
            rule.conditions.attributes.push(absent);
        }
        let sequence: Vec<_> = path.iter().map(|step| step.key).collect();
        let first = self
            .sequences
            .entry(keys)
            .or_insert_with(|| sequence.clone());
        if *first != sequence {
            let text = format!(
                "the order of entries, so descriptors ordered as {} count here too",
                first.join(", ")
            );
            rule.remarks.push(Remark::lost(descriptor.line, text));
        }
        rule
    }
}

impl Descriptor {
    /// Returns what to call the descriptor in a remark, if it matches more than one value by `*`.
    /// Versions before March 2026 take a `*` literally that is not the last character.
    fn pattern(&self) -> Option<String> {
        let value = self.value.as_deref().unwrap_or_default();
        let key = &self.key;
        match value.strip_suffix('*') {
            Some(prefix) if !prefix.contains('*') && !key.contains('*') => {
                Some(format!("the prefix `{value}` of `{key}`"))
            }
            None if key.contains('*') && value.is_empty() => Some(format!("the pattern `{key}`")),
            _ if value.contains('*') || key.contains('*') => {
                Some(format!("the pattern `{value}` of `{key}`"))
            }
            _ => None,
        }
    }

    /// Returns whether its rule applies in place of that of a sibling without a value, so that
    /// a group can hold both.
    fn replaces(&self, default: &Self) -> bool {
        let has_rule = matches!(self.limit, Some(Limit::Rate { .. }));
        has_rule && self.is_shadow == default.is_shadow
    }
}

/// Returns the keys and the expected values of a path, as one name.
fn path_name(path: &[PathStep<'_>]) -> String {
    let words: Vec<_> = path
        .iter()
        .flat_map(|step| match step.value {
            ExpectedValue::Exactly(value) => [step.key, value],
            ExpectedValue::AnyExcept(_) => [step.key, ""],
        })
        .filter(|word| !word.is_empty())
        .collect();
    words.join("-")
}

/// Returns the name of the group of a path's last key, whatever its value.
fn group_name(path: &[PathStep<'_>]) -> String {
    let Some((last, before)) = path.split_last() else {
        return String::new();
    };
    let name = path_name(before);
    slug(&format!("{name}-{}", last.key))
}

/// The sets of keys that descriptors have.
#[derive(Debug, Default)]
struct KeySets<'d> {
    sets: BTreeSet<BTreeSet<&'d str>>,
    /// The sets that contain a key.
    by_key: HashMap<&'d str, Vec<BTreeSet<&'d str>>>,
}

impl<'d> KeySets<'d> {
    fn add(&mut self, list: &'d [Descriptor], path: &mut Vec<&'d str>) {
        for descriptor in list {
            path.push(&descriptor.key);
            let set: BTreeSet<_> = path.iter().copied().collect();
            if self.sets.insert(set.clone()) {
                for key in &set {
                    self.by_key.entry(key).or_default().push(set.clone());
                }
            }
            self.add(&descriptor.children, path);
            path.pop();
        }
    }

    /// Returns the keys of larger sets that these keys are a part of.
    fn more_than(&self, keys: &BTreeSet<&'d str>) -> BTreeSet<&'d str> {
        let sets_of_keys = keys.iter().filter_map(|key| self.by_key.get(key));
        let rarest = sets_of_keys.min_by_key(|sets| sets.len());
        rarest
            .into_iter()
            .flatten()
            .filter(|set| set.is_superset(keys))
            .flat_map(|set| set.difference(keys).copied())
            .collect()
    }
}

/// The most descriptors of a domain.
const MAX_DESCRIPTORS: usize = 20_000;

/// A descriptor and those below it.
#[derive(Debug)]
struct Descriptor {
    line: usize,
    key: String,
    value: Option<String>,
    limit: Option<Limit>,
    name: Option<String>,
    is_shadow: bool,
    remarks: Vec<Remark>,
    children: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Unlimited,
    Rate { requests: u64, window: Duration },
}

/// The units and their lengths in seconds. The windows of the service begin at whole multiples
/// of these lengths, those of months and years too.
const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];

/// Reads the domain and its descriptors.
fn read_descriptors(
    node: &Node,
    remarks: &mut Vec<Remark>,
    faults: &mut Faults,
) -> Option<(String, Vec<Descriptor>)> {
    let [domain, list] = node.fields("a configuration", ["domain", "descriptors"], faults);
    let Some(domain) = domain else {
        if faults.count() == 0 {
            faults.add(node.position, "a configuration needs a `domain`");
        }
        return None;
    };
    let domain_name = domain.text("`domain`", faults)?;
    if domain_name.is_empty() {
        faults.add(domain.position, "`domain` must not be empty");
    }
    let mut reader = Reader {
        count: 0,
        remarks,
        faults,
    };
    let descriptors = list.map(|list| reader.list(list)).unwrap_or_default();
    Some((domain_name.to_owned(), descriptors))
}

struct Reader<'r> {
    count: usize,
    /// Remarks on descriptors that become no rule.
    remarks: &'r mut Vec<Remark>,
    faults: &'r mut Faults,
}

impl Reader<'_> {
    fn list(&mut self, node: &Node) -> Vec<Descriptor> {
        let mut seen = HashSet::new();
        let mut descriptors = Vec::new();
        for item in items(node, "`descriptors`", self.faults) {
            self.count += 1;
            if self.count > MAX_DESCRIPTORS {
                if self.count == MAX_DESCRIPTORS + 1 {
                    let text = format!("there are more than {MAX_DESCRIPTORS} descriptors");
                    self.faults.add(item.position, text);
                }
                break;
            }
            let Some(descriptor) = self.descriptor(item) else {
                continue;
            };
            if !seen.insert((descriptor.key.clone(), descriptor.value.clone())) {
                let value = descriptor.value.as_deref().unwrap_or("(any value)");
                let text = format!("`{}` with `{value}` is in this list twice", descriptor.key);
                self.faults.add(item.position, text);
            }
            // Rules have no conditions on parts of a value.
            if let Some(text) = descriptor.pattern() {
                let text = format!("{text}, and all below it");
                self.remarks.push(Remark::lost(descriptor.line, text));
                continue;
            }
            descriptors.push(descriptor);
        }
        descriptors
    }

    fn descriptor(&mut self, node: &Node) -> Option<Descriptor> {
        let known = [
            "key",
            "value",
            "rate_limit",
            "descriptors",
            "shadow_mode",
            "detailed_metric",
            "value_to_metric",
            "share_threshold",
            "quota_mode",
            "metadata",
        ];
        let [key, value, limit, children, ..] = node.fields("a descriptor", known, self.faults);
        let all = Fields::read(node, "a descriptor", &mut Faults::default());
        let Some(key) = key else {
            self.faults.add(node.position, "a descriptor needs a `key`");
            return None;
        };
        let name = key.text("`key`", self.faults)?;
        if name.is_empty() || name.chars().any(char::is_control) {
            let text = "`key` must not be empty or contain control characters";
            self.faults.add(key.position, text);
        }
        let value = value.and_then(|value| value.text("`value`", self.faults));
        let has_quota_mode = all.boolean("quota_mode", false, self.faults);
        let mut descriptor = Descriptor {
            line: node.position.line,
            key: name.to_owned(),
            value: value.filter(|text| !text.is_empty()).map(str::to_owned),
            limit: None,
            name: None,
            is_shadow: all.boolean("shadow_mode", false, self.faults) || has_quota_mode,
            remarks: Vec::new(),
            children: Vec::new(),
        };
        if let Some(limit) = limit {
            self.limit(limit, &mut descriptor);
        }
        for (field, text) in [
            (
                "share_threshold",
                "`share_threshold`: each value has its own counter",
            ),
            (
                "detailed_metric",
                "`detailed_metric`: metrics have the rule, but no values",
            ),
            (
                "value_to_metric",
                "`value_to_metric`: metrics have the rule, but no values",
            ),
        ] {
            if all.boolean(field, false, self.faults) {
                descriptor.remarks.push(Remark::lost(all.line(field), text));
            }
        }
        if has_quota_mode {
            let text = "`quota_mode`: the metadata of a response that it would deny has `outcome` \
                        `shadow_denied`";
            let line = all.line("quota_mode");
            descriptor.remarks.push(Remark::changed(line, text));
        }
        if all.get("metadata").is_some() {
            let text = "`metadata`: responses have none";
            let line = all.line("metadata");
            descriptor.remarks.push(Remark::lost(line, text));
        }
        // Remarks stand before the rule. A descriptor without a limit has none.
        if !matches!(descriptor.limit, Some(Limit::Rate { .. })) {
            self.remarks.append(&mut descriptor.remarks);
        }
        descriptor.children = children.map(|it| self.list(it)).unwrap_or_default();
        Some(descriptor)
    }

    fn limit(&mut self, node: &Node, descriptor: &mut Descriptor) {
        let known = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
        let [unit, requests, unlimited, name, replaces] =
            node.fields("`rate_limit`", known, self.faults);
        let name = name.and_then(|name| name.text("`name`", self.faults));
        descriptor.name = name.map(str::to_owned);
        if let Some(replaces) = replaces {
            let text = "`replaces`: both limits apply";
            let line = replaces.position.line;
            descriptor.remarks.push(Remark::lost(line, text));
        }
        let unlimited = unlimited.and_then(|it| it.boolean("`unlimited`", self.faults));
        if unlimited == Some(true) {
            descriptor.limit = Some(Limit::Unlimited);
            if let Some(name) = &descriptor.name {
                let text = format!("the name `{name}`: no rule is needed for what is unlimited");
                descriptor.remarks.push(Remark::lost(descriptor.line, text));
            }
            if let Some(unit) = unit {
                let text = "`unit` and `unlimited: true` exclude each other";
                self.faults.add(unit.position, text);
            }
            return;
        }
        let (Some(unit), Some(requests)) = (unit, requests) else {
            let text = "`rate_limit` needs a `unit` and `requests_per_unit`";
            self.faults.add(node.position, text);
            return;
        };
        let given = unit.as_text().unwrap_or_default().to_ascii_lowercase();
        let seconds = match UNITS.iter().find(|(name, _)| *name == given) {
            Some((_, seconds)) => Some(*seconds),
            None => unit.one_of("`unit`", &UNITS, self.faults),
        };
        let allowed = 0..=u32::MAX.into();
        let requests = whole_number(requests, "`requests_per_unit`", allowed, self.faults);
        if let (Some(seconds), Some(requests)) = (seconds, requests) {
            let window = Duration::from_secs(seconds);
            descriptor.limit = Some(Limit::Rate { requests, window });
        }
    }
}
