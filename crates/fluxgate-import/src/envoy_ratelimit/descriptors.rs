//! Reads descriptors.

use std::collections::HashSet;
use std::time::Duration;

use fluxgate_core::yaml::{Faults, Node};

use crate::draft::Remark;
use crate::fields::{Fields, items, whole_number};

/// The most descriptors of a domain.
const MAX_DESCRIPTORS: usize = 20_000;

/// A descriptor and those below it.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: Option<String>,
    pub(super) limit: Option<Limit>,
    pub(super) name: Option<String>,
    pub(super) is_shadow: bool,
    pub(super) remarks: Vec<Remark>,
    pub(super) children: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
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
pub(super) fn read(
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
            // Rules have no conditions on prefixes.
            if let Some(value) = descriptor.value.as_deref().filter(|it| it.ends_with('*')) {
                let text = format!(
                    "the prefix `{value}` of `{}`, and all below it",
                    descriptor.key
                );
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
        let mut descriptor = Descriptor {
            line: node.position.line,
            key: name.to_owned(),
            value: value.filter(|text| !text.is_empty()).map(str::to_owned),
            limit: None,
            name: None,
            is_shadow: all.boolean("shadow_mode", false, self.faults),
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
            ("quota_mode", "`quota_mode`"),
        ] {
            if all.boolean(field, false, self.faults) {
                descriptor.remarks.push(Remark::lost(all.line(field), text));
            }
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
