//! From rules back to YAML.

use std::fmt::Write as _;

use super::action::RuleAction;
use super::cost::Cost;
use super::lists::List;
use super::rule::{DEFAULT_PRIORITY, Key, OnError, Pairs, Rule, RuleMode, ValueMatches};
use super::set::{OnMissingRuleSet, RuleOptions, RuleSet, RuleSets};
use crate::band::Band;
use crate::calendar::TimeZone;
use crate::hold::DEFAULT_HOLD;
use crate::key::{KeyPart, OnMissingKey};
use crate::limit::Algorithm;
use crate::matcher::{ValueMatch, Values};
use crate::text::{duration_text, yaml_scalar};
use crate::time::format_rfc3339;

impl RuleSets {
    /// Writes all rules, including disabled ones, as a rule file. Fields
    /// with their default value are omitted.
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule, RuleSet, RuleSets};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rule = Rule::new("per-user").per_user().band(Quota::per_minute(100));
    /// let rules = RuleSets::from(RuleSet::builder("api").rule(rule).build()?);
    /// let yaml = "\
    /// rule_sets:
    ///   api:
    ///     rules:
    ///       - id: per-user
    ///         scope: per_user
    ///         bands:
    ///           - { capacity: 100, window: 1m }
    /// ";
    /// assert_eq!(rules.to_yaml(), yaml);
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_yaml(&self) -> String {
        let mut sets: Vec<_> = self.iter().collect();
        sets.sort_by_key(|set| set.name());
        let mut text = String::new();
        if self.on_missing() == OnMissingRuleSet::Deny {
            text.push_str("on_missing_rule_set: deny\n");
        }
        let prefix = sets.first().map(|set| set.ipv6_prefix());
        if let Some(prefix) = prefix.filter(|it| *it != RuleOptions::default().ipv6_prefix) {
            let _ = writeln!(text, "keys: {{ ipv6_prefix: {prefix} }}");
        }
        text.push_str(if sets.is_empty() {
            "rule_sets: {}\n"
        } else {
            "rule_sets:\n"
        });
        for set in sets {
            write_set(set, &mut text);
        }
        text
    }
}

impl RuleSet {
    /// Returns the fields of a rule, also of a disabled one, with their values as YAML, without
    /// those that have a default. The conditions are fields of their own: `match.path`.
    pub fn written_fields(&self, id: &str) -> Vec<(String, String)> {
        let mut rules = self.written.iter();
        let rule = rules.find(|rule| rule.id.as_deref() == Some(id));
        rule.map(rule_fields).unwrap_or_default()
    }
}

fn write_set(set: &RuleSet, text: &mut String) {
    let _ = writeln!(text, "  {}:", yaml_scalar(set.name()));
    if set.on_error() != OnError::default() {
        let _ = writeln!(text, "    on_error: {}", on_error_name(set.on_error()));
    }
    if !set.lists.is_empty() {
        text.push_str("    lists:\n");
    }
    for List { name, values } in &set.lists {
        let _ = writeln!(
            text,
            "      {}: {}",
            yaml_scalar(name),
            written_values(values)
        );
    }
    text.push_str("    rules:\n");
    for rule in &set.written {
        let mut lines = String::new();
        write_rule(rule, &mut lines);
        for (index, line) in lines.lines().enumerate() {
            let indent = if index == 0 { "      - " } else { "        " };
            let _ = writeln!(text, "{indent}{line}");
        }
    }
}

/// Writes the fields of a rule, in the order of the documentation.
pub(super) fn write_rule(rule: &Rule, text: &mut String) {
    for (name, value) in WrittenFields::of(rule).0 {
        let _ = match value {
            FieldValue::Scalar(value) => writeln!(text, "{name}: {value}"),
            FieldValue::Map(fields) => writeln!(text, "{name}: {}", flow_map(fields)),
            FieldValue::List(items) => {
                writeln!(text, "{name}:{}", block_list(items.into_iter()))
            }
        };
    }
}

/// Returns the fields of a rule with their values, without those that have a default. The
/// conditions are fields of their own: `match.path`.
pub(super) fn rule_fields(rule: &Rule) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (name, value) in WrittenFields::of(rule).0 {
        match value {
            FieldValue::Scalar(value) => fields.push((name.into(), value)),
            FieldValue::List(items) => fields.push((name.into(), flow_list(items.into_iter()))),
            FieldValue::Map(parts) => {
                let parts = parts.into_iter();
                fields.extend(parts.map(|(part, value)| (format!("{name}.{part}"), value)));
            }
        }
    }
    fields
}

/// The value of a field.
enum FieldValue {
    Scalar(String),
    List(Vec<String>),
    Map(Vec<(String, String)>),
}

/// The fields of a rule that have no default value, in the order of the documentation.
struct WrittenFields(Vec<(&'static str, FieldValue)>);

impl WrittenFields {
    fn scalar(&mut self, name: &'static str, value: String) {
        self.0.push((name, FieldValue::Scalar(value)));
    }

    fn of(rule: &Rule) -> Self {
        let mut fields = Self(Vec::new());
        fields.scalar("id", yaml_scalar(rule.id.as_deref().unwrap_or_default()));
        if let Some(name) = &rule.name {
            fields.scalar("name", yaml_scalar(name));
        }
        if !rule.enabled {
            fields.scalar("enabled", "false".into());
        }
        if rule.mode == RuleMode::Shadow {
            fields.scalar("mode", "shadow".into());
        }
        if rule.action.decides() {
            fields.scalar("action", rule.action.name().into());
        }
        if let RuleAction::Deny { status } = rule.action
            && status != RuleAction::DEFAULT_STATUS
        {
            fields.scalar("status", status.to_string());
        }
        if rule.priority != DEFAULT_PRIORITY {
            fields.scalar("priority", rule.priority.to_string());
        }
        let matches = conditions(rule);
        if !matches.is_empty() {
            fields.0.push(("match", FieldValue::Map(matches)));
        }
        match &rule.key {
            Key::Parts(parts) => match &parts[..] {
                [KeyPart::Ip] => fields.scalar("scope", "per_ip".into()),
                [KeyPart::User] => fields.scalar("scope", "per_user".into()),
                [KeyPart::ApiKey] => fields.scalar("scope", "per_api_key".into()),
                parts => fields.scalar(
                    "key",
                    flow_list(parts.iter().map(|it| yaml_scalar(&it.to_string()))),
                ),
            },
            Key::Global => fields.scalar("scope", "global".into()),
            Key::Missing | Key::Faulty => {}
        }
        if let Some(group) = &rule.group {
            fields.scalar("group", yaml_scalar(group));
        }
        if let Some(share) = &rule.rollout {
            fields.scalar("rollout", share.to_string());
        }
        if rule.on_missing_key != OnMissingKey::default() {
            fields.scalar(
                "on_missing_key",
                name(&OnMissingKey::NAMES, rule.on_missing_key),
            );
        }
        if let Some(limit) = rule.bands.first().map(Band::limit) {
            if limit.algorithm() != Algorithm::TokenBucket {
                fields.scalar("algorithm", name(&Algorithm::NAMES, limit.algorithm()));
            }
            if limit.rate().shape() {
                fields.scalar("shape", "true".into());
            }
            if limit.algorithm() == Algorithm::Concurrency && limit.window() != DEFAULT_HOLD {
                fields.scalar("hold", duration_text(limit.window().as_duration()));
            }
        }
        if !rule.action.decides() {
            let bands = bands(&rule.bands).collect();
            fields.0.push(("bands", FieldValue::List(bands)));
        }
        match &rule.cost {
            Cost::Fixed(1) => {}
            Cost::Fixed(units) => fields.scalar("cost", units.to_string()),
            Cost::Header(name) => fields.scalar("cost", yaml_scalar(&format!("header:{name}"))),
            Cost::Attribute(name) => fields.scalar("cost", yaml_scalar(&format!("attr:{name}"))),
            Cost::Tokens(tokens) => fields.scalar("cost", yaml_scalar(tokens.attribute())),
        }
        if rule.clamp {
            fields.scalar("clamp", "true".into());
        }
        if let Some(max_wait) = rule.max_wait {
            fields.scalar("on_exceed", "wait".into());
            fields.scalar("max_wait", duration_text(max_wait));
        }
        if let Some(lease) = &rule.lease {
            let share = ("share".into(), lease.share().to_string());
            let span = ("for".into(), duration_text(lease.span()));
            fields.scalar("lease", flow_map(vec![share, span]));
        }
        if !rule.overrides.is_empty() {
            let overrides = rule.overrides.iter().map(|given| {
                let values = given.identity.iter().flatten();
                let mut fields = vec![
                    (
                        "identity".into(),
                        flow_list(values.map(|value| yaml_scalar(value))),
                    ),
                    ("bands".into(), flow_list(bands(&given.bands))),
                ];
                if let Some(until) = given.until {
                    fields.push(("until".into(), yaml_scalar(&format_rfc3339(until))));
                }
                flow_map(fields)
            });
            fields
                .0
                .push(("overrides", FieldValue::List(overrides.collect())));
        }
        if rule.charge_always {
            fields.scalar("charge", "always".into());
        }
        if rule.reset_on_change {
            fields.scalar("reset_on_change", "true".into());
        }
        if !rule.attributes.is_empty() {
            fields.scalar("attributes", pairs(&rule.attributes));
        }
        fields
    }
}

fn conditions(rule: &Rule) -> Vec<(String, String)> {
    let texts = |texts: &[Box<str>]| flow_list(texts.iter().map(|text| yaml_scalar(text)));
    let parts = [
        ("path", (!rule.paths.is_empty()).then(|| texts(&rule.paths))),
        (
            "not_path",
            (!rule.not_paths.is_empty()).then(|| texts(&rule.not_paths)),
        ),
        (
            "methods",
            (!rule.methods.is_empty()).then(|| texts(&rule.methods)),
        ),
        (
            "headers",
            (!rule.match_headers.is_empty()).then(|| value_matches(&rule.match_headers)),
        ),
        (
            "attributes",
            (!rule.match_attributes.is_empty()).then(|| value_matches(&rule.match_attributes)),
        ),
        ("user", rule.match_user.as_ref().map(value_match)),
        ("api_key", rule.match_api_key.as_ref().map(value_match)),
        ("ip", networks(&rule.ips, rule.ip_list.as_deref())),
        (
            "not_ip",
            networks(&rule.not_ips, rule.not_ip_list.as_deref()),
        ),
    ]
    .into_iter();
    parts
        .filter_map(|(name, value)| Some((name.into(), value?)))
        .collect()
}

fn bands(bands: &[Band]) -> impl Iterator<Item = String> {
    bands.iter().enumerate().map(|(index, band)| {
        let limit = band.limit();
        let mut fields = Vec::new();
        if band.id() != format!("b{index}") {
            fields.push(("id".into(), yaml_scalar(band.id())));
        }
        fields.push(("capacity".into(), limit.capacity().to_string()));
        if let Some(calendar) = limit.windows() {
            fields.push(("calendar".into(), calendar.unit().name().into()));
            let zone = calendar.time_zone();
            if zone != TimeZone::UTC {
                fields.push(("time_zone".into(), yaml_scalar(zone.name())));
            }
            return flow_map(fields);
        }
        if limit.algorithm() == Algorithm::Concurrency {
            return flow_map(fields);
        }
        fields.push(("window".into(), duration_text(limit.window().as_duration())));
        let rate = limit.rate();
        if rate.refill() != limit.capacity() {
            fields.push(("refill".into(), rate.refill().to_string()));
        }
        if rate.period() != limit.window() {
            fields.push(("period".into(), duration_text(rate.period().as_duration())));
        }
        flow_map(fields)
    })
}

fn networks(texts: &[Box<str>], list: Option<&str>) -> Option<String> {
    let list = list.map(|list| flow_map(vec![("in".into(), yaml_scalar(list))]));
    list.or_else(|| (!texts.is_empty()).then(|| written_values(texts)))
}

/// Writes the values of a list.
pub(super) fn written_values(values: &[Box<str>]) -> String {
    flow_list(values.iter().map(|value| yaml_scalar(value)))
}

fn value_matches(matches: &ValueMatches) -> String {
    let matches = matches
        .iter()
        .map(|(name, value)| (yaml_scalar(name), value_match(value)));
    flow_map(matches.collect())
}

fn value_match(ValueMatch(values): &ValueMatch) -> String {
    let one_or_more = |values: &[Box<str>]| match values {
        [one] => yaml_scalar(one),
        several => written_values(several),
    };
    let (name, value) = match values {
        Values::OneOf(values) => return one_or_more(values),
        Values::NoneOf(values) => ("not", one_or_more(values)),
        Values::Present(present) => ("present", present.to_string()),
        Values::In(list) => ("in", yaml_scalar(list)),
        Values::NotIn(list) => ("not_in", yaml_scalar(list)),
    };
    flow_map(vec![(name.into(), value)])
}

fn pairs(pairs: &Pairs) -> String {
    let pairs = pairs.iter();
    flow_map(
        pairs
            .map(|(name, value)| (yaml_scalar(name), yaml_scalar(value)))
            .collect(),
    )
}

fn flow_map(fields: Vec<(String, String)>) -> String {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    format!("{{ {} }}", fields.join(", "))
}

fn flow_list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn block_list(items: impl Iterator<Item = String>) -> String {
    items.map(|item| format!("\n  - {item}")).collect()
}

pub(super) fn on_error_name(on_error: OnError) -> String {
    name(&OnError::NAMES, on_error)
}

fn name<T: PartialEq>(names: &[(&str, T)], value: T) -> String {
    let found = names.iter().find(|(_, known)| *known == value);
    found
        .map(|(name, _)| (*name).to_owned())
        .unwrap_or_default()
}
