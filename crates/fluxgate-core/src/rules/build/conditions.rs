//! Checks the conditions of a rule.

use super::lists::{ListUses, has_hashes, stored_value};
use crate::matcher::{
    Conditions, Field, ListNumber, PathSet, Pattern, ValueCondition, ValueMatch, Values,
};
use crate::network::{IpNetwork, NetworkIndex};
use crate::rules::fault::{FaultCollector, Step};
use crate::rules::names::lower_header_name;
use crate::rules::rule::{Rule, ValueMatches};

/// Checks what is under `match`.
pub(super) fn check(
    rule: &Rule,
    lists: &mut ListUses<'_>,
    faults: &mut FaultCollector<'_>,
) -> Conditions {
    let parse_pattern = |text: &str| Pattern::parse(text);
    let paths = parse_all("path", &rule.paths, parse_pattern, faults);
    let not_paths = parse_all("not_path", &rule.not_paths, parse_pattern, faults);
    let mut values = Vec::new();
    if !rule.methods.is_empty() {
        let methods = rule.methods.iter().map(|method| method.as_bytes().into());
        values.push((
            Field::Method,
            ValueCondition::OneOf(sorted(methods.collect())),
        ));
    }
    values.extend(headers(&rule.match_headers, lists, faults));
    values.extend(attributes(&rule.match_attributes, lists, faults));
    for (name, field, value) in [
        ("user", Field::User, &rule.match_user),
        ("api_key", Field::ApiKey, &rule.match_api_key),
    ] {
        let Some(value) = value else { continue };
        faults.field(name, |faults| {
            values.extend(condition(field, &format!("`{name}`"), value, lists, faults));
        });
    }
    let (ips, ip_list) = networks("ip", &rule.ips, rule.ip_list.as_deref(), lists, faults);
    let not_ip_list = rule.not_ip_list.as_deref();
    let (not_ips, not_ip_list) = networks("not_ip", &rule.not_ips, not_ip_list, lists, faults);
    Conditions {
        paths: (!rule.paths.is_empty()).then_some(paths),
        not_paths: PathSet::new(not_paths),
        values,
        ips: (!rule.ips.is_empty()).then_some(ips),
        ip_list,
        not_ips: NetworkIndex::new(not_ips),
        not_ip_list,
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
            Err(error) => faults.item(field, index, |faults| faults.add(error.to_string())),
        }
    }
    parsed
}

/// Checks the networks of a field, or the list of networks in their place.
fn networks(
    field: &'static str,
    texts: &[Box<str>],
    list: Option<&str>,
    lists: &mut ListUses<'_>,
    faults: &mut FaultCollector<'_>,
) -> (Vec<IpNetwork>, Option<ListNumber>) {
    let parse = |text: &str| text.parse::<IpNetwork>();
    let parsed = parse_all(field, texts, parse, faults);
    let list = list.and_then(|list| {
        faults.field(field, |faults| {
            if !texts.is_empty() {
                faults.add(format!("`{field}` is either networks or a list, not both"));
            }
            faults.field("in", |faults| lists.of_ip(list, faults))
        })
    });
    (parsed, list)
}

fn headers(
    given: &ValueMatches,
    lists: &mut ListUses<'_>,
    faults: &mut FaultCollector<'_>,
) -> Vec<(Field, ValueCondition)> {
    let mut names: Vec<Box<str>> = Vec::new();
    let mut checked = Vec::new();
    faults.field("headers", |faults| {
        for (name, value) in given {
            faults.at(Step::Name(name.clone()), |faults| {
                let lower = header_name(name, faults);
                let field = Field::Header(lower.clone().unwrap_or_default());
                let condition = condition(field, "a header's value", value, lists, faults);
                let Some(lower) = lower else { return };
                if names.contains(&lower) {
                    faults.add(format!(
                        "header `{lower}` appears twice (their case does not matter)"
                    ));
                }
                names.push(lower);
                checked.extend(condition);
            });
        }
    });
    checked
}

fn attributes(
    given: &ValueMatches,
    lists: &mut ListUses<'_>,
    faults: &mut FaultCollector<'_>,
) -> Vec<(Field, ValueCondition)> {
    let mut names: Vec<&str> = Vec::new();
    let mut checked = Vec::new();
    faults.field("attributes", |faults| {
        for (name, value) in given {
            if names.contains(&&**name) {
                faults.add(format!("`{name}` appears twice in `attributes`"));
            }
            names.push(name);
            faults.at(Step::Name(name.clone()), |faults| {
                let field = Field::Attribute(name.clone());
                checked.extend(condition(
                    field,
                    "an attribute's value",
                    value,
                    lists,
                    faults,
                ));
            });
        }
    });
    checked
}

/// Checks the values of a field, or the list in their place. An API key is compared by its hash
/// if any value is written as one.
fn condition(
    field: Field,
    what: &str,
    ValueMatch(values): &ValueMatch,
    lists: &mut ListUses<'_>,
    faults: &mut FaultCollector<'_>,
) -> Option<(Field, ValueCondition)> {
    // `not` is the field around values that must not occur.
    let mut stored = |field: Field, values: &[Box<str>], around: Option<&'static str>| {
        if values.is_empty() {
            faults.add(format!("{what} must not be an empty list"));
        }
        let field = if field == Field::ApiKey && has_hashes(values) {
            Field::ApiKeyHash
        } else {
            field
        };
        let mut all = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            match stored_value(&field, value) {
                Ok(value) => all.push(value),
                Err(message) => match around {
                    Some(field) => faults.item(field, index, |faults| faults.add(message)),
                    None => faults.at(Step::Index(index), |faults| faults.add(message)),
                },
            }
        }
        (field, sorted(all))
    };
    Some(match values {
        Values::OneOf(values) => {
            let (field, values) = stored(field, values, None);
            (field, ValueCondition::OneOf(values))
        }
        Values::NoneOf(values) => {
            let (field, values) = stored(field, values, Some("not"));
            (field, ValueCondition::NoneOf(values))
        }
        Values::Present(present) => (field, ValueCondition::Present(*present)),
        Values::In(list) => {
            let used = faults.field("in", |faults| lists.of_field(field, list, faults));
            let (field, list) = used?;
            (field, ValueCondition::In(list))
        }
        Values::NotIn(list) => {
            let used = faults.field("not_in", |faults| lists.of_field(field, list, faults));
            let (field, list) = used?;
            (field, ValueCondition::NotIn(list))
        }
    })
}

/// Returns values sorted, each once.
fn sorted(mut values: Vec<Box<[u8]>>) -> Vec<Box<[u8]>> {
    values.sort_unstable();
    values.dedup();
    values
}

/// Returns the name of a header in lower case.
pub(super) fn header_name(name: &str, faults: &mut FaultCollector<'_>) -> Option<Box<str>> {
    let lower = lower_header_name(name);
    if lower.is_none() {
        faults.add(format!("`{name}` cannot be the name of a header"));
    }
    lower
}
