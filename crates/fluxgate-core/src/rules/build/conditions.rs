//! Checks the conditions of a rule.

use crate::matcher::{Conditions, Field, PathSet, Pattern, ValueMatch, Values};
use crate::network::{IpNetwork, NetworkIndex};
use crate::rules::fault::{FaultCollector, Step};
use crate::rules::names::lower_header_name;
use crate::rules::rule::{Rule, ValueMatches};

/// Checks what is under `match`.
pub(super) fn check(rule: &Rule, faults: &mut FaultCollector<'_>) -> Conditions {
    let parse_pattern = |text: &str| Pattern::parse(text);
    let paths = parse_all("path", &rule.paths, parse_pattern, faults);
    let not_paths = parse_all("not_path", &rule.not_paths, parse_pattern, faults);
    let mut values = Vec::new();
    if !rule.methods.is_empty() {
        values.push((Field::Method, ValueMatch::any_of(rule.methods.clone())));
    }
    values.extend(headers(&rule.match_headers, faults));
    values.extend(attributes(&rule.match_attributes, faults));
    for (_, value) in &mut values {
        *value = value.sorted();
    }
    let parse_network = |text: &str| text.parse::<IpNetwork>();
    let ips = parse_all("ip", &rule.ips, parse_network, faults);
    let not_ips = parse_all("not_ip", &rule.not_ips, parse_network, faults);
    Conditions {
        paths: (!rule.paths.is_empty()).then_some(paths),
        not_paths: PathSet::new(not_paths),
        values,
        ips: (!rule.ips.is_empty()).then_some(ips),
        not_ips: NetworkIndex::new(not_ips),
    }
}

/// Parses the texts of a field. Reports those that are not valid.
fn parse_all<T, E: ToString>(
    field: &'static str,
    texts: &[Box<str>],
    parse: impl Fn(&str) -> Result<T, E>,
    faults: &mut FaultCollector<'_>,
) -> Vec<T> {
    let mut parsed = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match parse(text) {
            Ok(value) => parsed.push(value),
            Err(error) => faults.field(field, |faults| {
                faults.at(Step::Index(index), |faults| faults.add(error.to_string()));
            }),
        }
    }
    parsed
}

fn headers(given: &ValueMatches, faults: &mut FaultCollector<'_>) -> Vec<(Field, ValueMatch)> {
    let mut checked: Vec<(Field, ValueMatch)> = Vec::new();
    faults.field("headers", |faults| {
        for (name, value) in given {
            faults.at(Step::Name(name.clone()), |faults| {
                check_values("a header's value", value, faults);
                let Some(field) = header_name(name, faults).map(Field::Header) else {
                    return;
                };
                if checked.iter().any(|(known, _)| *known == field) {
                    let lower = name.to_ascii_lowercase();
                    faults.add(format!(
                        "header `{lower}` appears twice (their case does not matter)"
                    ));
                }
                checked.push((field, value.clone()));
            });
        }
    });
    checked
}

fn attributes(given: &ValueMatches, faults: &mut FaultCollector<'_>) -> Vec<(Field, ValueMatch)> {
    let mut checked: Vec<(Field, ValueMatch)> = Vec::new();
    faults.field("attributes", |faults| {
        for (name, value) in given {
            let field = Field::Attribute(name.clone());
            if checked.iter().any(|(known, _)| *known == field) {
                faults.add(format!("`{name}` appears twice in `attributes`"));
            }
            faults.at(Step::Name(name.clone()), |faults| {
                check_values("an attribute's value", value, faults);
            });
            checked.push((field, value.clone()));
        }
    });
    checked
}

fn check_values(what: &str, value: &ValueMatch, faults: &mut FaultCollector<'_>) {
    if let Values::OneOf(values) | Values::NoneOf(values) = &value.0
        && values.is_empty()
    {
        faults.add(format!("{what} must not be an empty list"));
    }
}

/// Returns the name of a header in lower case.
pub(super) fn header_name(name: &str, faults: &mut FaultCollector<'_>) -> Option<Box<str>> {
    let lower = lower_header_name(name);
    if lower.is_none() {
        faults.add(format!("`{name}` cannot be the name of a header"));
    }
    lower
}
