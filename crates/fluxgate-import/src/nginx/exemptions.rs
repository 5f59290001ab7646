//! Addresses that `geo` and `map` blocks exempt from a limit.
//!
//! nginx does not count requests whose key is empty. The usual way to exempt addresses is a
//! `geo` block that sets a variable, and a `map` block that turns it into the key or nothing.

use std::collections::HashMap;

use ipnet::IpNet;

use super::parse::Directive;
use crate::names;

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
