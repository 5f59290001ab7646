//! The key of a zone as the key of a rule.
//!
//! nginx does not count requests whose key is empty. The usual way to exempt addresses is a `geo`
//! block that sets a variable, and a `map` block that turns it into the key or nothing.

use std::collections::HashMap;

use fluxgate_core::{KeyPart, OnMissingKey};
use ipnet::IpNet;

use super::parse::Directive;
use crate::draft::Remark;
use crate::names;

/// The key of a rule.
#[derive(Debug)]
pub(super) struct RuleKey {
    pub(super) parts: Vec<KeyPart>,
    pub(super) on_missing_key: OnMissingKey,
    pub(super) remarks: Vec<Remark>,
}

/// Returns the key of a rule, or the variable that a rule cannot count by.
pub(super) fn convert(text: &str, line: usize) -> Result<RuleKey, String> {
    let mut key = RuleKey {
        parts: Vec::new(),
        on_missing_key: OnMissingKey::Ip,
        remarks: Vec::new(),
    };
    let is_in_every_request =
        |part: &KeyPart| matches!(part, KeyPart::Ip | KeyPart::Path | KeyPart::Method);
    let mut is_never_empty = has_literal(text);
    for variable in variables(text) {
        let mut remark = |text: String| key.remarks.push(Remark::changed(line, text));
        let part = match variable {
            "binary_remote_addr" | "remote_addr" => KeyPart::Ip,
            "realip_remote_addr" => {
                let text = "$realip_remote_addr is the address of the client, not of the proxy";
                remark(text.into());
                KeyPart::Ip
            }
            "uri" | "document_uri" => KeyPart::Path,
            "request_method" => KeyPart::Method,
            "remote_user" => {
                let text = "$remote_user is the user of the request, see `identity` of the filter";
                remark(text.into());
                KeyPart::User
            }
            // Each server has its own rule set.
            "server_name" => {
                is_never_empty = true;
                continue;
            }
            "server_addr" | "server_port" => {
                remark(format!(
                    "${variable} is ignored: all addresses and ports of a server count together"
                ));
                is_never_empty = true;
                continue;
            }
            other => {
                let (part, source) = named(other).ok_or_else(|| format!("${other}"))?;
                if let Some(source) = source {
                    remark(format!(
                        "${other} is an attribute: the filter needs {source}"
                    ));
                }
                part
            }
        };
        is_never_empty |= is_in_every_request(&part);
        if !key.parts.contains(&part) {
            key.parts.push(part);
        }
    }
    key.on_missing_key = match key.parts.as_slice() {
        [] => OnMissingKey::Ip,
        [part] if is_in_every_request(part) => OnMissingKey::Ip,
        // nginx does not limit requests whose key is empty.
        [_] if !is_never_empty => OnMissingKey::Skip,
        _ => OnMissingKey::Anonymous,
    };
    Ok(key)
}

/// Returns the part for a variable with a prefix, and how a filter sets it.
fn named(variable: &str) -> Option<(KeyPart, Option<String>)> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = |name: &&str| !name.is_empty() && name.bytes().all(is_letter);
    if let Some(name) = variable.strip_prefix("http_").filter(is_name) {
        return Some((KeyPart::Header(name.replace('_', "-").into()), None));
    }
    let (kind, name) = match variable.split_once('_')? {
        ("arg", name) => ("query", name),
        ("cookie", name) => ("cookie", name),
        _ => return None,
    };
    let source = format!("`attributes: {{ {variable}: \"{kind}:{name}\" }}`");
    is_name(&name).then(|| (KeyPart::Attribute(variable.into()), Some(source)))
}

/// Returns the names of the variables in a text.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|piece| {
        let (name, _) = match piece.strip_prefix('{') {
            Some(rest) => rest.split_once('}').unwrap_or((rest, "")),
            None => {
                let end = piece.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
                piece.split_at(end.unwrap_or(piece.len()))
            }
        };
        name
    })
}

/// Returns whether a text has more than variables, so that it is never empty.
fn has_literal(text: &str) -> bool {
    let length: usize = variables(text).map(|name| name.len() + 1).sum();
    let braces = text.matches(['{', '}']).count();
    text.len() > length + braces
}

/// The variables that `geo` and `map` blocks set, by their names.
#[derive(Debug, Default)]
pub(super) struct Exemptions(HashMap<String, Block>);

#[derive(Debug)]
struct Block {
    is_geo: bool,
    /// The variable that is looked up. A `geo` block may have none, which is the address.
    source: Option<String>,
    default: String,
    entries: Vec<(String, String)>,
}

/// A key, and the addresses that it exempts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExemptingKey {
    pub(super) key: String,
    pub(super) addresses: Vec<String>,
}

impl Exemptions {
    /// Adds a `geo` or `map` block. One that does more than list values is left out.
    pub(super) fn add(&mut self, directive: &Directive) {
        let arguments: Vec<_> = directive
            .arguments
            .iter()
            .map(|it| variable(&it.text))
            .collect();
        let (source, target) = match arguments.as_slice() {
            [Some(target)] => (None, *target),
            [Some(source), Some(target)] => (Some((*source).to_owned()), *target),
            _ => return,
        };
        let mut block = Block {
            is_geo: directive.name == "geo",
            source,
            default: String::new(),
            entries: Vec::new(),
        };
        for entry in &directive.block {
            let is_setting = matches!(
                entry.name.as_str(),
                "include" | "hostnames" | "volatile" | "ranges" | "proxy" | "delete"
            );
            let ([value], false) = (entry.arguments.as_slice(), is_setting) else {
                return;
            };
            match entry.name.as_str() {
                "default" => block.default.clone_from(&value.text),
                name if name.starts_with('~') => return,
                name => block.entries.push((name.to_owned(), value.text.clone())),
            }
        }
        self.0.insert(target.to_owned(), block);
    }

    /// Returns the key that a variable stands for, if all other addresses have it.
    pub(super) fn resolve(&self, key: &str) -> Option<ExemptingKey> {
        let map = self.0.get(variable(key)?).filter(|it| !it.is_geo)?;
        let geo = self.0.get(map.source.as_deref()?).filter(|it| it.is_geo)?;
        if !matches!(geo.source.as_deref(), None | Some("remote_addr")) {
            return None;
        }
        let key = map.value(&geo.default);
        let (mut exempt, mut counted) = (Vec::new(), Vec::new());
        for (network, value) in &geo.entries {
            let network = names::network(network)?;
            match map.value(value) {
                "" => exempt.push(network),
                value if value == key => counted.push(network),
                _ => return None,
            }
        }
        // The most specific network decides; a rule cannot include a part of what it excludes.
        let is_inside = |inner: &IpNet| exempt.iter().any(|outer| outer.contains(inner));
        if key.is_empty() || counted.iter().any(is_inside) {
            return None;
        }
        let addresses = exempt.iter().map(names::network_text);
        Some(ExemptingKey {
            key: key.to_owned(),
            addresses: addresses.collect(),
        })
    }
}

impl Block {
    /// Returns what a value becomes.
    fn value(&self, text: &str) -> &str {
        let found = self.entries.iter().find(|(name, _)| name == text);
        found.map_or(&self.default, |(_, value)| value)
    }
}

/// Returns the name of a variable.
fn variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let inside = name.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    Some(inside.unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::parse::parse;

    #[test]
    fn variables_become_parts() {
        use OnMissingKey::{Anonymous, Ip, Skip};
        for (text, parts, missing) in [
            ("$binary_remote_addr", "ip", Ip),
            ("${remote_addr}", "ip", Ip),
            ("$http_x_api_key", "header:x-api-key", Skip),
            ("$http_x_api_key$uri", "header:x-api-key path", Anonymous),
            (
                "$binary_remote_addr:$cookie_sid",
                "ip attr:cookie_sid",
                Anonymous,
            ),
            ("key-$arg_token", "attr:arg_token", Anonymous),
            ("$server_name", "", Ip),
            ("all", "", Ip),
            ("$remote_user", "user", Skip),
        ] {
            let key = convert(text, 1).unwrap();
            let found: Vec<_> = key.parts.iter().map(ToString::to_string).collect();
            assert_eq!(
                (found.join(" ").as_str(), key.on_missing_key),
                (parts, missing),
                "{text}"
            );
        }
    }

    #[test]
    fn other_variables_are_refused() {
        for text in [
            "$limit_key",
            "$request_uri",
            "$host",
            "$",
            "${",
            "$http_",
            "$ssl_client_s_dn",
        ] {
            assert!(convert(text, 1).is_err(), "{text}");
        }
    }

    const MAP: &str = "map $limited $key { 0 \"\"; 1 $binary_remote_addr; }";

    fn resolve(text: &str) -> Option<(String, String)> {
        let mut exemptions = Exemptions::default();
        for directive in parse(text).unwrap() {
            exemptions.add(&directive);
        }
        let found = exemptions.resolve("$key")?;
        Some((found.key, found.addresses.join(" ")))
    }

    #[test]
    fn addresses_without_a_key_are_exempt() {
        let geo = "geo $limited { default 1; 10.1.2.3/8 0; 192.0.2.1 0; 2001:db8::/32 0; 172.16.0.0/12 1; }";
        let (key, addresses) = resolve(&format!("{geo} {MAP}")).unwrap();
        assert_eq!(key, "$binary_remote_addr");
        assert_eq!(addresses, "10.0.0.0/8 192.0.2.1 2001:db8::/32");
        let map = "map $limited $key { default $http_x; no \"\"; }";
        let geo = "geo $remote_addr $limited { default yes; ::1 no; }";
        let expected = Some(("$http_x".to_owned(), "::1".to_owned()));
        assert_eq!(resolve(&format!("{map} {geo}")), expected);
    }

    #[test]
    fn blocks_that_do_more_are_refused() {
        for geo in [
            "",
            "geo $limited { default 0; 10.0.0.0/8 1; }",
            "geo $limited { default 1; 10.0.0.0/8 0; 10.1.0.0/16 1; }",
            "geo $limited { default 1; ranges; 10.0.0.0-10.0.0.9 0; }",
            "geo $limited { default 1; include file; }",
            "geo $limited { default 1; here 0; }",
            "geo $http_x $limited { default 1; 10.0.0.0/8 0; }",
        ] {
            assert_eq!(resolve(&format!("{geo} {MAP}")), None, "{geo}");
        }
        let geo = "geo $limited { default 1; 10.0.0.0/8 0; }";
        for map in [
            "",
            "map $limited $key { ~0 \"\"; 1 $binary_remote_addr; }",
            "map $limited $key { 0 $server_name; 1 $binary_remote_addr; }",
            "map $http_x $key { 0 \"\"; 1 $binary_remote_addr; }",
        ] {
            assert_eq!(resolve(&format!("{geo} {map}")), None, "{map}");
        }
    }
}
