//! Writes a draft as a rule file with comments.

use std::fmt::Write as _;

use super::draft::{
    Algorithm, Band, DEFAULT_ON_MISSING_KEY, Draft, Match, Remark, Rule, Set, Test, Window,
};
use super::names::{is_special, on_one_line};

/// Returns the rule file of a draft.
pub(super) fn to_yaml(draft: &Draft, origin: &str) -> String {
    let mut text = format!("# Imported from {}\n", on_one_line(origin));
    write_remarks(&draft.remarks, 0, &mut text);
    text.push_str("rule_sets:\n");
    for set in &draft.sets {
        write_set(set, &mut text);
    }
    text
}

fn write_remarks(remarks: &[Remark], indent: usize, text: &mut String) {
    let indent = " ".repeat(indent);
    for remark in remarks {
        let _ = writeln!(
            text,
            "{indent}# {} (line {})",
            remark.sentence(),
            remark.line
        );
    }
}

fn write_set(set: &Set, text: &mut String) {
    write_remarks(&set.remarks, 2, text);
    let _ = writeln!(text, "  {}:", scalar(&set.name));
    if let Some(on_error) = set.on_error {
        let _ = writeln!(text, "    on_error: {on_error}");
    }
    text.push_str("    rules:\n");
    for rule in &set.rules {
        write_remarks(&rule.remarks, 6, text);
        for (index, line) in rule_lines(rule).iter().enumerate() {
            let indent = if index == 0 { "      - " } else { "        " };
            let _ = writeln!(text, "{indent}{line}");
        }
    }
}

/// Returns the fields of a rule, in the order of the documentation.
fn rule_lines(rule: &Rule) -> Vec<String> {
    let mut lines = vec![format!("id: {}", scalar(&rule.id))];
    let mut field = |name: &str, value: String| lines.push(format!("{name}: {value}"));
    if let Some(name) = &rule.name {
        field("name", scalar(name));
    }
    if !rule.enabled {
        field("enabled", "false".into());
    }
    if rule.shadow {
        field("mode", "shadow".into());
    }
    if rule.denies {
        field("action", "deny".into());
    }
    let conditions = conditions(&rule.matches);
    if !conditions.is_empty() {
        lines.push("match:".into());
        lines.extend(
            conditions
                .iter()
                .map(|(name, value)| format!("  {name}: {value}")),
        );
    }
    if !rule.denies {
        limit_lines(rule, &mut lines);
    }
    if !rule.attributes.is_empty() {
        let pairs = rule.attributes.iter();
        let pairs = pairs.map(|(name, value)| (scalar(name), scalar(value)));
        lines.push(format!("attributes: {}", flow_map(pairs)));
    }
    lines
}

/// Adds the fields that only limits have.
fn limit_lines(rule: &Rule, lines: &mut Vec<String>) {
    let mut field = |name: &str, value: String| lines.push(format!("{name}: {value}"));
    match &rule.key.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => field("scope", "global".into()),
        ["ip"] => field("scope", "per_ip".into()),
        ["user"] => field("scope", "per_user".into()),
        ["api_key"] => field("scope", "per_api_key".into()),
        parts => field("key", scalars(parts)),
    }
    if let Some(group) = &rule.group {
        field("group", scalar(group));
    }
    if rule.on_missing_key != DEFAULT_ON_MISSING_KEY {
        field("on_missing_key", rule.on_missing_key.into());
    }
    match rule.algorithm {
        Algorithm::TokenBucket => {}
        Algorithm::ShapingBucket => {
            field("algorithm", "leaky_bucket".into());
            field("shape", "true".into());
        }
        Algorithm::FixedWindow => field("algorithm", "fixed_window".into()),
        Algorithm::SlidingWindow => field("algorithm", "sliding_window".into()),
    }
    lines.push("bands:".into());
    lines.extend(
        rule.bands
            .iter()
            .map(|band| format!("  - {}", band_text(band))),
    );
    let mut field = |name: &str, value: String| lines.push(format!("{name}: {value}"));
    if rule.cost != 1 {
        field("cost", rule.cost.to_string());
    }
    if let Some(max_wait) = rule.max_wait_ms {
        field("on_exceed", "wait".into());
        field("max_wait", duration(max_wait));
    }
}

fn conditions(matches: &Match) -> Vec<(&'static str, String)> {
    let lists = [
        ("path", &matches.path),
        ("not_path", &matches.not_path),
        ("methods", &matches.methods),
    ];
    let tests = [
        ("headers", &matches.headers),
        ("attributes", &matches.attributes),
    ];
    let addresses = [("ip", &matches.ip), ("not_ip", &matches.not_ip)];
    let list = |(name, items): (&'static str, &Vec<String>)| {
        (!items.is_empty()).then(|| (name, scalars(items)))
    };
    let test = |(name, tests): (&'static str, &Vec<(String, Test)>)| {
        let pairs = tests
            .iter()
            .map(|(name, test)| (scalar(name), test_text(test)));
        (!tests.is_empty()).then(|| (name, flow_map(pairs)))
    };
    let lists = lists.into_iter().filter_map(list);
    let tests = tests.into_iter().filter_map(test);
    lists
        .chain(tests)
        .chain(addresses.into_iter().filter_map(list))
        .collect()
}

fn test_text(test: &Test) -> String {
    let values = |values: &[String]| match values {
        [value] => scalar(value),
        values => scalars(values),
    };
    match test {
        Test::Is(expected) => values(expected),
        Test::Not(excluded) => format!("{{ not: {} }}", values(excluded)),
        Test::Present(present) => format!("{{ present: {present} }}"),
    }
}

fn band_text(band: &Band) -> String {
    let mut fields = Vec::new();
    if let Some(id) = &band.id {
        fields.push(("id".to_owned(), scalar(id)));
    }
    fields.push(("capacity".into(), band.capacity.to_string()));
    match &band.window {
        Window::Millis(window) => fields.push(("window".into(), duration(*window))),
        Window::Calendar(unit, zone) => {
            fields.push(("calendar".into(), (*unit).into()));
            fields.push(("time_zone".into(), scalar(zone)));
        }
    }
    if let Some((refill, period)) = band.refill {
        fields.push(("refill".into(), refill.to_string()));
        fields.push(("period".into(), duration(period)));
    }
    flow_map(fields.into_iter())
}

fn flow_map(pairs: impl Iterator<Item = (String, String)>) -> String {
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn scalars(items: &[impl AsRef<str>]) -> String {
    let items: Vec<_> = items.iter().map(|item| scalar(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// Writes a duration in the largest unit that divides it.
pub(super) fn duration(millis: u64) -> String {
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let unit = units
        .into_iter()
        .find(|(unit, _)| millis.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "ms"));
    format!("{}{name}", millis / unit)
}

/// Writes a text without quotes where every YAML reader takes it for a text.
fn scalar(text: &str) -> String {
    // Words that a YAML reader may take for a boolean or null.
    const KEYWORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(is_word)
        && !KEYWORDS.contains(&&*text.to_ascii_lowercase());
    if is_plain {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            _ if char.is_control() || is_special(char) => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(char));
            }
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
