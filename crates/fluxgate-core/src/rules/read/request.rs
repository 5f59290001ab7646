//! The parts of a rule that concern the request: conditions, key and cost.

use crate::key::KeyPart;
use crate::matcher::{ValueMatch, Values};
use crate::rules::cost::{Cost, Tokens};
use crate::rules::rule::{Key, Rule, ValueMatches};
use crate::yaml::{Faults, Fields, Node, Value};

/// The fields of `match`.
const FIELDS: [&str; 9] = [
    "path",
    "not_path",
    "methods",
    "headers",
    "attributes",
    "user",
    "api_key",
    "ip",
    "not_ip",
];

pub(super) fn read_conditions(node: Option<&Node>, rule: &mut Rule, faults: &mut Faults) {
    let Some(node) = node else { return };
    let fields = Fields::read(Some(node), "`match`", &FIELDS, faults);
    rule.paths = read_list(fields.get("path"), "`path`", "a path pattern", faults);
    rule.not_paths = read_list(
        fields.get("not_path"),
        "`not_path`",
        "a path pattern",
        faults,
    );
    rule.methods = read_list(fields.get("methods"), "`methods`", "a method", faults);
    rule.match_headers = read_value_matches(
        fields.get("headers"),
        "`headers`",
        "a header's value",
        faults,
    );
    let (attributes, what) = (fields.get("attributes"), "an attribute's value");
    rule.match_attributes = read_value_matches(attributes, "`attributes`", what, faults);
    let mut value = |name: &str, what| {
        let node = fields.get(name);
        node.map(|node| read_value_match(node, what, faults))
    };
    rule.match_user = value("user", "`user`");
    rule.match_api_key = value("api_key", "`api_key`");
    (rule.ips, rule.ip_list) = read_networks(fields.get("ip"), "`ip`", faults);
    (rule.not_ips, rule.not_ip_list) = read_networks(fields.get("not_ip"), "`not_ip`", faults);
}

/// Reads networks, or `{ in: LIST }`.
fn read_networks(
    node: Option<&Node>,
    what: &str,
    faults: &mut Faults,
) -> (Vec<Box<str>>, Option<Box<str>>) {
    let Some(node) = node else {
        return (Vec::new(), None);
    };
    if !node.is_map() {
        return (read_list(Some(node), what, "a network", faults), None);
    }
    let before = faults.count();
    let [list] = node.fields(what, ["in"], faults);
    let name = list.and_then(|node| node.text("the name of a list", faults));
    if list.is_none() && faults.count() == before {
        let message = format!("{what} is a list of networks, or `in` with the name of a list");
        faults.add(node.position, message);
    }
    (Vec::new(), name.map(Into::into))
}

fn read_value_matches(
    node: Option<&Node>,
    what: &str,
    value: &str,
    faults: &mut Faults,
) -> ValueMatches {
    let pairs = node.map(|node| node.map(what, faults)).unwrap_or_default();
    let matches = pairs.into_iter();
    matches
        .map(|(name, _, node)| (name.into(), read_value_match(node, value, faults)))
        .collect()
}

/// Reads a value, a list of them, `{ not: … }`, `{ present: … }`, `{ in: LIST }` or
/// `{ not_in: LIST }`.
fn read_value_match(node: &Node, what: &str, faults: &mut Faults) -> ValueMatch {
    let Value::Map(_) = &node.value else {
        return ValueMatch(Values::OneOf(read_one_or_more(node, what, faults)));
    };
    let before = faults.count();
    let fields = ["not", "present", "in", "not_in"];
    let [not, present, list, not_list] = node.fields(what, fields, faults);
    let list_name = |node: &Node, faults: &mut Faults| {
        let name = node.text("the name of a list", faults);
        name.map(Into::into)
    };
    let values = match (not, present, list, not_list) {
        (Some(not), None, None, None) => Some(Values::NoneOf(read_one_or_more(not, what, faults))),
        (None, Some(present), None, None) => {
            present.boolean("`present`", faults).map(Values::Present)
        }
        (None, None, Some(list), None) => list_name(list, faults).map(Values::In),
        (None, None, None, Some(list)) => list_name(list, faults).map(Values::NotIn),
        // An unknown field has been reported.
        _ if faults.count() > before => None,
        _ => {
            let message = format!(
                "{what} is a text, a list, or a mapping with one of `not`, `present`, \
                 `in` and `not_in`"
            );
            faults.add(node.position, message);
            None
        }
    };
    ValueMatch(values.unwrap_or(Values::Present(true)))
}

fn read_one_or_more(node: &Node, what: &str, faults: &mut Faults) -> Vec<Box<str>> {
    match &node.value {
        Value::List(_) => read_list(Some(node), what, what, faults),
        _ => {
            let value = node.text(what, faults);
            vec![value.unwrap_or_default().into()]
        }
    }
}

/// Reads a list of texts. An element that is not a text is empty.
fn read_list(node: Option<&Node>, what: &str, element: &str, faults: &mut Faults) -> Vec<Box<str>> {
    let nodes = node.map_or(&[][..], |node| node.list(what, faults));
    let texts = nodes.iter().map(|node| node.text(element, faults));
    texts.map(|text| text.unwrap_or_default().into()).collect()
}

pub(super) fn read_key(scope: Option<&Node>, key: Option<&Node>, faults: &mut Faults) -> Key {
    match (scope, key) {
        (Some(_), Some(key)) => {
            let message = "a rule has either a `scope` or a `key`, not both";
            faults.add(key.position, message);
            Key::Faulty
        }
        (None, None) => Key::Missing,
        (Some(scope), None) => read_scope(scope, faults),
        (None, Some(key)) => {
            let nodes = key.list("`key`", faults);
            if nodes.is_empty() {
                return Key::Faulty;
            }
            let parts = nodes.iter().enumerate();
            let parts = parts.map(|(index, node)| {
                // In place of a part with a fault: one that the others differ from.
                let stand_in = || KeyPart::Attribute(format!("?{index}").into());
                node.parsed("a part of a key", faults)
                    .unwrap_or_else(stand_in)
            });
            Key::Parts(parts.collect())
        }
    }
}

fn read_scope(node: &Node, faults: &mut Faults) -> Key {
    let names = [
        ("global", Key::Global),
        ("per_ip", Key::Parts(vec![KeyPart::Ip])),
        ("per_user", Key::Parts(vec![KeyPart::User])),
        ("per_api_key", Key::Parts(vec![KeyPart::ApiKey])),
    ];
    let scope = node.one_of("`scope`", &names, faults);
    scope.unwrap_or(Key::Faulty)
}

pub(super) fn read_cost(node: &Node, faults: &mut Faults) -> Option<Cost> {
    if let Some(text) = node.as_text() {
        if let Some(name) = text.strip_prefix("header:") {
            return Some(Cost::Header(name.into()));
        }
        if let Some(name) = text.strip_prefix("attr:") {
            return Some(Cost::Attribute(name.into()));
        }
        if let Some((_, tokens)) = Tokens::NAMES.iter().find(|(name, _)| *name == text) {
            return Some(Cost::Tokens(*tokens));
        }
    }
    if let Value::Plain(text) = &node.value
        && let Ok(cost) = text.parse::<u64>()
        && !text.starts_with('+')
    {
        return Some(Cost::Fixed(cost));
    }
    faults.add(node.position, Cost::expected());
    None
}
