//! From rules back to YAML.

use std::fmt::Write as _;

use super::action::RuleAction;
use super::cost::Cost;
use super::rule::{DEFAULT_PRIORITY, Key, List, OnError, Override, Rule, RuleMode, ValueMatches};
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
        let mut text = String::new();
        if self.on_missing() == OnMissingRuleSet::Deny {
            text.push_str("on_missing_rule_set: deny\n");
        }
        let first = self.iter().min_by_key(|set| set.name());
        let prefix = first.map(|set| set.ipv6_prefix());
        if let Some(prefix) = prefix.filter(|it| *it != RuleOptions::default().ipv6_prefix) {
            let _ = writeln!(text, "keys: {{ ipv6_prefix: {prefix} }}");
        }
        text + &self.sets_to_yaml()
    }

    /// Writes the rule sets like [`RuleSets::to_yaml`], without the options that apply to all of
    /// them. A service has those in its config, not in its rule files.
    pub fn sets_to_yaml(&self) -> String {
        let mut sets: Vec<_> = self.iter().collect();
        sets.sort_by_key(|set| set.name());
        let mut text = String::from(if sets.is_empty() {
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
    /// Writes the rule set as it stands in a rule file, below `rule_sets`.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        write_set(self, &mut text);
        text
    }

    /// Returns the fields of a rule, also of a disabled one, with their values as YAML, without
    /// those that have a default. The conditions are fields of their own: `match.path`.
    pub fn written_fields(&self, id: &str) -> Vec<(String, String)> {
        let mut rules = self.written.iter();
        let rule = rules.find(|rule| rule.id.as_deref() == Some(id));
        rule.map(rule_fields).unwrap_or_default()
    }
}

impl Rule {
    /// Writes the fields of the rule as YAML, without those that have a default. The rule need
    /// not be valid.
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule};
    ///
    /// let rule = Rule::new("r").per_user().band(Quota::per_minute(100));
    /// let yaml = "id: r\nscope: per_user\nbands:\n  - { capacity: 100, window: 1m }\n";
    /// assert_eq!(rule.to_yaml(), yaml);
    /// ```
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        write_rule(self, &mut text);
        text
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
    /// Adds a field if it has a value.
    fn scalar(&mut self, name: &'static str, value: impl Into<Option<String>>) {
        let value = value.into().map(FieldValue::Scalar);
        self.0.extend(value.map(|value| (name, value)));
    }

    /// Adds a field if it differs from its default.
    fn unless_default(&mut self, name: &'static str, differs: bool, value: &str) {
        self.scalar(name, differs.then(|| value.to_owned()));
    }

    fn of(rule: &Rule) -> Self {
        let mut fields = Self(Vec::new());
        fields.scalar("id", yaml_scalar(rule.id.as_deref().unwrap_or_default()));
        fields.scalar("name", rule.name.as_deref().map(yaml_scalar));
        fields.unless_default("enabled", !rule.enabled, "false");
        fields.unless_default("mode", rule.mode == RuleMode::Shadow, "shadow");
        fields.unless_default("action", rule.action.decides(), rule.action.name());
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
                [KeyPart::Ip] => fields.scalar("scope", "per_ip".to_owned()),
                [KeyPart::User] => fields.scalar("scope", "per_user".to_owned()),
                [KeyPart::ApiKey] => fields.scalar("scope", "per_api_key".to_owned()),
                parts => {
                    let parts = parts.iter().map(|it| yaml_scalar(&it.to_string()));
                    fields.scalar("key", flow_list(parts));
                }
            },
            Key::Global => fields.scalar("scope", "global".to_owned()),
            Key::Missing | Key::Faulty => {}
        }
        fields.scalar("group", rule.group.as_deref().map(yaml_scalar));
        fields.scalar("rollout", rule.rollout.map(|share| share.to_string()));
        let on_missing_key = name(&OnMissingKey::NAMES, rule.on_missing_key);
        let is_given = rule.on_missing_key != OnMissingKey::default();
        fields.unless_default("on_missing_key", is_given, &on_missing_key);
        if let Some(limit) = rule.bands.first().map(Band::limit) {
            let algorithm = name(&Algorithm::NAMES, limit.algorithm());
            let is_given = limit.algorithm() != Algorithm::TokenBucket;
            fields.unless_default("algorithm", is_given, &algorithm);
            fields.unless_default("shape", limit.rate().shape(), "true");
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
        fields.unless_default("clamp", rule.clamp, "true");
        fields.unless_default("on_exceed", rule.max_wait.is_some(), "wait");
        fields.scalar("max_wait", rule.max_wait.map(duration_text));
        if let Some(lease) = &rule.lease {
            let share = ("share".into(), lease.share().to_string());
            let span = ("for".into(), duration_text(lease.span()));
            fields.scalar("lease", flow_map(vec![share, span]));
        }
        if !rule.overrides.is_empty() {
            let overrides = rule.overrides.iter().map(written_override).collect();
            fields.0.push(("overrides", FieldValue::List(overrides)));
        }
        fields.unless_default("charge", rule.charge_always, "always");
        if !rule.notify.is_empty() {
            let shares = rule.notify.iter().map(|share| share.to_string());
            fields.scalar("notify", flow_list(shares));
        }
        fields.unless_default("reset_on_change", rule.reset_on_change, "true");
        if !rule.attributes.is_empty() {
            let pairs = rule.attributes.iter();
            let pairs = pairs.map(|(name, value)| (yaml_scalar(name), yaml_scalar(value)));
            fields.scalar("attributes", flow_map(pairs.collect()));
        }
        fields
    }
}

fn written_override(given: &Override) -> String {
    let values = given.identity.iter().flatten();
    let identity = flow_list(values.map(|value| yaml_scalar(value)));
    let mut fields = vec![
        ("identity".into(), identity),
        ("bands".into(), flow_list(bands(&given.bands))),
    ];
    if let Some(until) = given.until {
        fields.push(("until".into(), yaml_scalar(&format_rfc3339(until))));
    }
    flow_map(fields)
}

/// Returns the fields of `match` that are given.
fn conditions(rule: &Rule) -> Vec<(String, String)> {
    let texts = |texts: &[Box<str>]| (!texts.is_empty()).then(|| written_values(texts));
    let parts = [
        ("path", texts(&rule.paths)),
        ("not_path", texts(&rule.not_paths)),
        ("methods", texts(&rule.methods)),
        ("headers", value_matches(&rule.match_headers)),
        ("attributes", value_matches(&rule.match_attributes)),
        ("user", rule.match_user.as_ref().map(value_match)),
        ("api_key", rule.match_api_key.as_ref().map(value_match)),
        (
            "ip",
            written_list(&rule.ip_list).or_else(|| texts(&rule.ips)),
        ),
        (
            "not_ip",
            written_list(&rule.not_ip_list).or_else(|| texts(&rule.not_ips)),
        ),
    ];
    let given = parts.into_iter();
    given
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

fn written_list(list: &Option<Box<str>>) -> Option<String> {
    let name = list.as_deref()?;
    Some(flow_map(vec![("in".into(), yaml_scalar(name))]))
}

/// Writes the values of a list.
pub(super) fn written_values(values: &[Box<str>]) -> String {
    flow_list(values.iter().map(|value| yaml_scalar(value)))
}

fn value_matches(matches: &ValueMatches) -> Option<String> {
    let written = matches.iter();
    let written = written.map(|(name, value)| (yaml_scalar(name), value_match(value)));
    (!matches.is_empty()).then(|| flow_map(written.collect()))
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
