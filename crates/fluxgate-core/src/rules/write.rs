//! From rules back to YAML.

use std::fmt::Write as _;
use std::time::Duration;

use super::rule::{Cost, DEFAULT_PRIORITY, Key, OnError, Pairs, Rule, RuleMode};
use super::set::{OnMissingRuleSet, RuleOptions, RuleSet, RuleSets};
use crate::band::Band;
use crate::key::{KeyPart, OnMissingKey};
use crate::limit::Algorithm;

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

fn write_set(set: &RuleSet, text: &mut String) {
    let _ = writeln!(text, "  {}:", scalar(set.name()));
    if set.on_error() != OnError::default() {
        let _ = writeln!(
            text,
            "    on_error: {}",
            name(&OnError::NAMES, set.on_error())
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
    let mut field = |name: &str, value: String| {
        // A block begins on the next line.
        let space = if value.starts_with('\n') { "" } else { " " };
        let _ = writeln!(text, "{name}:{space}{value}");
    };
    field("id", scalar(rule.id.as_deref().unwrap_or_default()));
    if let Some(name) = &rule.name {
        field("name", scalar(name));
    }
    if !rule.enabled {
        field("enabled", "false".into());
    }
    if rule.mode == RuleMode::Shadow {
        field("mode", "shadow".into());
    }
    if rule.priority != DEFAULT_PRIORITY {
        field("priority", rule.priority.to_string());
    }
    let matches = conditions(rule);
    if !matches.is_empty() {
        field("match", flow_map(matches));
    }
    match &rule.key {
        Key::Parts(parts) => match &parts[..] {
            [KeyPart::Ip] => field("scope", "per_ip".into()),
            [KeyPart::User] => field("scope", "per_user".into()),
            [KeyPart::ApiKey] => field("scope", "per_api_key".into()),
            parts => field(
                "key",
                flow_list(parts.iter().map(|it| scalar(&it.to_string()))),
            ),
        },
        Key::Global => field("scope", "global".into()),
        Key::Missing | Key::Faulty => {}
    }
    if rule.on_missing_key != OnMissingKey::default() {
        field(
            "on_missing_key",
            name(&OnMissingKey::NAMES, rule.on_missing_key),
        );
    }
    if let Some(limit) = rule.bands.first().map(Band::limit) {
        if limit.algorithm() != Algorithm::TokenBucket {
            field("algorithm", name(&Algorithm::NAMES, limit.algorithm()));
        }
        if limit.rate().shape() {
            field("shape", "true".into());
        }
    }
    field("bands", block_list(bands(&rule.bands)));
    match &rule.cost {
        Cost::Fixed(1) => {}
        Cost::Fixed(units) => field("cost", units.to_string()),
        Cost::Header(name) => field("cost", scalar(&format!("header:{name}"))),
        Cost::Attribute(name) => field("cost", scalar(&format!("attr:{name}"))),
    }
    if let Some(max_wait) = rule.max_wait {
        field("on_exceed", "wait".into());
        field("max_wait", duration(max_wait));
    }
    if !rule.overrides.is_empty() {
        let overrides = rule.overrides.iter().map(|given| {
            let values = given.identity.iter().flatten();
            flow_map(vec![
                (
                    "identity".into(),
                    flow_list(values.map(|value| scalar(value))),
                ),
                ("bands".into(), flow_list(bands(&given.bands))),
            ])
        });
        field("overrides", block_list(overrides));
    }
    if rule.reset_on_change {
        field("reset_on_change", "true".into());
    }
    if !rule.attributes.is_empty() {
        field("attributes", pairs(&rule.attributes));
    }
}

fn conditions(rule: &Rule) -> Vec<(String, String)> {
    let texts = |texts: &[Box<str>]| flow_list(texts.iter().map(|text| scalar(text)));
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
            (!rule.match_headers.is_empty()).then(|| pairs(&rule.match_headers)),
        ),
        (
            "attributes",
            (!rule.match_attributes.is_empty()).then(|| pairs(&rule.match_attributes)),
        ),
    ];
    let parts = parts.into_iter();
    parts
        .filter_map(|(name, value)| Some((name.into(), value?)))
        .collect()
}

fn bands(bands: &[Band]) -> impl Iterator<Item = String> {
    bands.iter().enumerate().map(|(index, band)| {
        let limit = band.limit();
        let mut fields = Vec::new();
        if band.id() != format!("b{index}") {
            fields.push(("id".into(), scalar(band.id())));
        }
        fields.push(("capacity".into(), limit.capacity().to_string()));
        fields.push(("window".into(), duration(limit.window().as_duration())));
        let rate = limit.rate();
        if rate.refill() != limit.capacity() {
            fields.push(("refill".into(), rate.refill().to_string()));
        }
        if rate.period() != limit.window() {
            fields.push(("period".into(), duration(rate.period().as_duration())));
        }
        flow_map(fields)
    })
}

fn pairs(pairs: &Pairs) -> String {
    let pairs = pairs.iter();
    flow_map(
        pairs
            .map(|(name, value)| (scalar(name), scalar(value)))
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

fn name<T: PartialEq>(names: &[(&str, T)], value: T) -> String {
    let found = names.iter().find(|(_, known)| *known == value);
    found
        .map(|(name, _)| (*name).to_owned())
        .unwrap_or_default()
}

/// Writes a duration in the largest unit that divides it.
fn duration(span: Duration) -> String {
    const UNITS: [(u128, &str); 5] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
        (1, "ms"),
    ];
    let millis = span.as_millis();
    let (size, unit) = UNITS
        .into_iter()
        .find(|(size, _)| millis.is_multiple_of(*size))
        .unwrap_or((1, "ms"));
    format!("{}{unit}", millis / size)
}

/// Writes a text without quotes where every YAML reader takes it for a text.
fn scalar(text: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(is_word)
        && !KEYWORDS.contains(&&*text.to_ascii_lowercase());
    if is_plain {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            // YAML does not print these as they are.
            '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(char));
            }
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

/// Words that a YAML reader may take for a boolean or null.
const KEYWORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
