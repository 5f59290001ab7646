//! The conditions of a rule, and the lists that they use.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use crate::matcher::{
    Conditions, Field, ListIndex, ListNumber, PathSet, Pattern, ValueCondition, ValueMatch, Values,
};
use crate::network::{IpNetwork, NetworkIndex};
use crate::rules::fault::{FaultCollector, RuleFault, Step};
use crate::rules::names::{MAX_NAME, is_set_name, lower_header_name};
use crate::rules::rule::{List, MAX_VALUES, Rule, ValueMatches};
use crate::text::parse_sha256;

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

/// Checks the names and the sizes of lists.
pub(super) fn check_lists(lists: &[List], faults: &mut FaultCollector<'_>) {
    let mut names = HashSet::new();
    for List { name, values } in lists {
        faults.enter([Step::Field("lists"), Step::Name(name.clone())]);
        if !is_set_name(name) {
            faults.add(format!(
                "a list's name must have 1 to {MAX_NAME} bytes and no control character"
            ));
        } else if !names.insert(name) {
            faults.add(format!("there is a list `{name}` already"));
        }
        if values.is_empty() {
            faults.add(format!("list `{name}` must not be empty"));
        } else if values.len() > MAX_VALUES {
            faults.add(format!(
                "list `{name}` has {} values; a list may have {MAX_VALUES}",
                values.len()
            ));
        }
        faults.leave(2);
    }
}

/// The lists of a rule set, and how its rules use them.
pub(super) struct ListUses<'a> {
    lists: &'a [List],
    pub(super) index: ListIndex,
    /// The fields that each list is indexed for; `None` is the client's address.
    indexed: HashSet<(ListNumber, Option<Field>)>,
    /// Faults of values, which belong to the lists and not to the rule that uses them.
    pub(super) faults: Vec<RuleFault>,
}

impl<'a> ListUses<'a> {
    pub(super) fn new(lists: &'a [List]) -> Self {
        Self {
            lists,
            index: ListIndex::default(),
            indexed: HashSet::new(),
            faults: Vec::new(),
        }
    }

    /// Returns the number of a list that the value of a field is compared with, and the field:
    /// an API key is compared by its hash if the list names any by its hash. Adds a fault if
    /// there is no such list.
    pub(super) fn of_field(
        &mut self,
        field: Field,
        name: &str,
        faults: &mut FaultCollector<'_>,
    ) -> Option<(Field, ListNumber)> {
        let (number, values) = self.find(name, faults)?;
        let mut field = field;
        if field == Field::ApiKey && has_hashes(values) {
            field = Field::ApiKeyHash;
        }
        if self.indexed.insert((number, Some(field.clone()))) {
            let parse = |value: &str| stored_value(&field, value);
            let parsed = self.parse_all(name, values, parse, faults);
            self.index.add_values(&field, number, parsed.into_iter());
        }
        Some((field, number))
    }

    /// Returns the number of a list that addresses are compared with. Adds a fault if there is
    /// no such list, and for each value that is no network.
    pub(super) fn of_ip(
        &mut self,
        name: &str,
        faults: &mut FaultCollector<'_>,
    ) -> Option<ListNumber> {
        let (number, values) = self.find(name, faults)?;
        if self.indexed.insert((number, None)) {
            let parse = |value: &str| {
                let network = value.parse::<IpNetwork>();
                network.map_err(|error| format!("{error}; `ip` uses this list"))
            };
            let parsed = self.parse_all(name, values, parse, faults);
            self.index.add_networks(number, parsed.into_iter());
        }
        Some(number)
    }

    fn find(
        &self,
        name: &str,
        faults: &mut FaultCollector<'_>,
    ) -> Option<(ListNumber, &'a [Box<str>])> {
        let mut lists = self.lists.iter();
        let found = lists.position(|list| *list.name == *name);
        if found.is_none() {
            let known: Vec<_> = self.lists.iter().map(|list| &*list.name).collect();
            faults.add(match &known[..] {
                [] => format!("there is no list `{name}`: the rule set has no `lists`"),
                known => format!("there is no list `{name}`; there are {}", known.join(", ")),
            });
        }
        found.map(|index| (index as ListNumber, &*self.lists[index].values))
    }

    /// Parses the values of a list. Adds a fault for each that is not valid.
    fn parse_all<T>(
        &mut self,
        list: &str,
        values: &[Box<str>],
        parse: impl Fn(&str) -> Result<T, String>,
        faults: &FaultCollector<'_>,
    ) -> Vec<T> {
        let mut parsed = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            match parse(value) {
                Ok(value) => parsed.push(value),
                Err(message) => {
                    let item = [Step::Name(list.into()), Step::Index(index)];
                    let path = [Step::Field("lists")].into_iter().chain(item);
                    self.faults.push(faults.fault_at(path.collect(), message));
                }
            }
        }
        parsed
    }
}

/// Returns a value as the value of a field is compared with it, or why it is not one.
fn stored_value(field: &Field, value: &str) -> Result<Box<[u8]>, String> {
    if *field != Field::ApiKeyHash {
        return Ok(value.as_bytes().into());
    }
    match value.strip_prefix(HASHED) {
        Some(digits) => match parse_sha256(digits) {
            Some(hash) => Ok(Box::new(hash)),
            None => Err(format!(
                "an API key by its hash is `{HASHED}` and 64 hexadecimal digits; `{value}` is not"
            )),
        },
        None => Ok(Sha256::digest(value.as_bytes()).as_slice().into()),
    }
}

/// Returns whether any API key is written as its hash.
fn has_hashes(values: &[Box<str>]) -> bool {
    values.iter().any(|value| value.starts_with(HASHED))
}

/// The start of an API key that is written as its hash.
const HASHED: &str = "sha256:";
