//! How a route changes requests and responses, and which pages of other sites may use it.

use std::time::Duration;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Node, Value};
use fluxgate_gateway::{
    CorsConfig, HeaderEdits, HeaderTest, HostPattern, HostRewrite, RewriteConfig,
};
use url::Url;

use super::values::read_methods;
use crate::config::section::{Section, one_or_list};
use crate::config::tree;

/// Headers that concern the connection or the message, or that the gateway sets itself.
const RESERVED: &str = "connection content-length expect forwarded host http2-settings keep-alive \
    proxy proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding \
    upgrade x-original-url x-real-ip x-request-id x-rewrite-url";

/// Reads how the target and the host of requests are changed.
pub(super) fn read_rewrite(route: &mut Section<'_, '_>) -> RewriteConfig {
    const FIELDS: &[&str] = &["strip_prefix", "add_prefix", "host"];
    let rewrite = route.optional_section("rewrite", FIELDS, |section| RewriteConfig {
        strip_prefix: section.parsed("strip_prefix", prefix).map(Into::into),
        add_prefix: section.parsed("add_prefix", prefix).map(Into::into),
        host: read_host(section),
    });
    rewrite.unwrap_or_default()
}

/// Parses a prefix of whole segments.
fn prefix(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte);
    let mut segments = text.split('/').skip(1);
    let is_good = text.starts_with('/')
        && text.bytes().all(is_plain)
        && segments.all(|segment| !matches!(segment, "" | "." | ".."));
    if is_good {
        Ok(text.to_owned())
    } else {
        let allowed = "whole segments without escapes, such as /api or /api/v1";
        Err(format!("must be {allowed}"))
    }
}

fn read_host(section: &mut Section<'_, '_>) -> HostRewrite {
    let Some(node) = section.get("host") else {
        section.show("host", tree::plain("client"));
        return HostRewrite::Client;
    };
    let Some(text) = node.text("`host`", section.faults) else {
        return HostRewrite::Client;
    };
    section.show("host", tree::text(text));
    match text {
        "client" => HostRewrite::Client,
        "upstream" => HostRewrite::Upstream,
        name => {
            let (host, port) = match name.rsplit_once(':') {
                Some((host, port)) if !port.contains(']') => (host, Some(port)),
                _ => (name, None),
            };
            let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
            let host = HostPattern::parse(host).filter(|_| is_port);
            if !matches!(host, Some(HostPattern::Exact(_))) {
                let allowed = "client, upstream or a host, such as api.example.com";
                section.fault(node, format!("`host` must be {allowed}"));
            }
            HostRewrite::Name(name.into())
        }
    }
}

/// Reads the headers that are set or removed: in requests, and in responses.
pub(super) fn read_headers(route: &mut Section<'_, '_>) -> [HeaderEdits; 2] {
    let edits = route.optional_section("headers", &["request", "response"], |section| {
        ["request", "response"].map(|name| {
            let edits = section.optional_section(name, &["set", "remove"], read_edits);
            edits.unwrap_or_default()
        })
    });
    edits.unwrap_or_default()
}

fn read_edits(section: &mut Section<'_, '_>) -> HeaderEdits {
    let mut edits = HeaderEdits::default();
    let given = section.get("set");
    let pairs = given.map(|node| node.map("`set`", section.faults));
    for (name, key, value) in pairs.unwrap_or_default() {
        let Some(name) = read_name(name, key, section) else {
            continue;
        };
        if edits.set.iter().any(|(known, _)| *known == name) {
            section.fault(key, format!("header `{name}` appears twice"));
        }
        let Some(text) = value.text("a header's value", section.faults) else {
            continue;
        };
        let is_visible = |char: char| matches!(char, ' '..='~');
        if !text.chars().all(is_visible) || text.trim() != text {
            let message = "a header's value must be ASCII without control characters, and without \
                           spaces at its ends";
            section.fault(value, message);
        }
        edits.set.push((name, text.into()));
    }
    for node in section.list_or_empty("remove") {
        let Some(text) = node.text("the name of a header", section.faults) else {
            continue;
        };
        let Some(name) = read_name(text, node, section) else {
            continue;
        };
        if edits.set.iter().any(|(known, _)| *known == name) || edits.remove.contains(&name) {
            section.fault(node, format!("header `{name}` appears twice"));
        }
        edits.remove.push(name);
    }
    let set = { edits.set.iter() }.map(|(name, value)| (&**name, tree::text(&**value)));
    section.show("set", (!edits.set.is_empty()).then(|| tree::map(set)));
    let remove = (!edits.remove.is_empty()).then(|| tree::texts(&edits.remove));
    section.show("remove", remove);
    edits
}

/// Returns the name of a header that may be changed, in lower case.
fn read_name(name: &str, node: &Node, section: &mut Section<'_, '_>) -> Option<Box<str>> {
    let name = values::header_name(name, node.position, section.faults)?;
    let is_reserved = RESERVED.split(' ').any(|known| known == &*name)
        || name.starts_with("x-forwarded-")
        || name.contains("ratelimit");
    if is_reserved {
        section.fault(node, format!("the gateway sets `{name}` by itself"));
    }
    Some(name)
}

/// Reads which pages of other sites may use the route, if it says so.
pub(super) fn read_cors(route: &mut Section<'_, '_>) -> Option<CorsConfig> {
    const FIELDS: &[&str] = &["origins", "methods", "headers", "credentials", "max_age"];
    route.optional_section("cors", FIELDS, |section| {
        if section.get("origins").is_none() {
            section.missing("`cors` needs `origins`, such as https://app.example.com or \"*\"");
        }
        let mut origins = Vec::new();
        for node in section.list("origins") {
            let Some(text) = node.text("an origin", section.faults) else {
                continue;
            };
            if text != "*" && !is_origin(text) {
                let message = format!(
                    "`{text}` is no origin, such as https://app.example.com, as browsers send it, \
                     without a path and in lower case"
                );
                section.fault(node, message);
            }
            origins.push(text.to_owned());
        }
        let mut methods = read_methods(section);
        if section.get("methods").is_none() {
            methods = ["GET", "HEAD", "POST"].map(str::to_owned).into();
        }
        let mut headers = Vec::new();
        for node in section.list_or_empty("headers") {
            let Some(text) = node.text("the name of a header", section.faults) else {
                continue;
            };
            if values::header_name(text, node.position, section.faults).is_some() {
                headers.push(text.to_owned());
            }
        }
        let credentials = section.boolean("credentials", false);
        if let Some(node) = section.get("credentials")
            && credentials
            && origins.iter().any(|origin| origin == "*")
        {
            section.fault(
                node,
                "`credentials` need `origins` that are named, not \"*\"",
            );
        }
        section.show("origins", tree::texts(&origins));
        section.show("methods", tree::texts(&methods));
        section.show("headers", tree::texts(&headers));
        CorsConfig {
            origins,
            methods,
            headers,
            credentials,
            max_age: section.duration("max_age", Duration::from_secs(3600)),
        }
    })
}

/// Returns whether browsers send this text as an origin.
fn is_origin(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text
    })
}

/// Reads what the headers of requests must be: a value, a list of values, `{ not: … }` or
/// `{ present: … }`.
pub(super) fn read_header_tests(section: &mut Section<'_, '_>) -> Vec<(Box<str>, HeaderTest)> {
    let mut tests: Vec<(Box<str>, HeaderTest)> = Vec::new();
    let mut shown = Vec::new();
    let given = section.get("headers");
    let pairs = given.map(|node| node.map("`headers`", section.faults));
    for (name, key, value) in pairs.unwrap_or_default() {
        let Some(name) = values::header_name(name, key.position, section.faults) else {
            continue;
        };
        if tests.iter().any(|(known, _)| *known == name) {
            let message = format!("header `{name}` appears twice (their case does not matter)");
            section.fault(key, message);
        }
        if let Some((test, node)) = read_header_test(value, section) {
            shown.push((name.to_string(), node));
            tests.push((name, test));
        }
    }
    let pairs = shown.iter().map(|(name, node)| (&**name, node.clone()));
    section.show("headers", (!shown.is_empty()).then(|| tree::map(pairs)));
    tests
}

fn read_header_test(node: &Node, section: &mut Section<'_, '_>) -> Option<(HeaderTest, Node)> {
    if !matches!(node.value, Value::Map(_)) {
        let values = read_values(node, section);
        let shown = tree::one_or_list(&values);
        return Some((HeaderTest::AnyOf(values), shown));
    }
    let mut condition = Section::read(node, "a condition", &["not", "present"], section.faults);
    match (condition.get("not"), condition.get("present")) {
        (Some(not), None) => {
            let values = read_values(not, &mut condition);
            condition.show("not", tree::one_or_list(&values));
            Some((HeaderTest::NoneOf(values), condition.into_node()))
        }
        (None, Some(_)) => {
            let is_present = condition.boolean("present", true);
            Some((HeaderTest::Present(is_present), condition.into_node()))
        }
        _ => {
            condition.missing("a condition is a value, a list of values, `not` or `present`");
            None
        }
    }
}

fn read_values(node: &Node, section: &mut Section<'_, '_>) -> Vec<Box<str>> {
    let nodes = one_or_list(node, "a header's values", section.faults).iter();
    let values = nodes.filter_map(|node| node.text("a header's value", section.faults));
    values.map(Into::into).collect()
}
