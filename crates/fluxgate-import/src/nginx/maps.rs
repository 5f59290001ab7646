//! Keys from `geo` and `map` blocks.
//!
//! nginx does not count requests whose key is empty. The usual way to exempt addresses is a
//! `geo` block that sets a variable, and a `map` block that turns it into the key or nothing.
//! Another `map` block counts by a header, and by the address where the header is missing.

use std::collections::HashMap;

use ipnet::IpNet;

use super::parse::Directive;
use crate::names;

/// The variables that `geo` and `map` blocks set, by their names.
#[derive(Debug, Default)]
pub(super) struct Maps(HashMap<String, Block>);

#[derive(Debug)]
struct Block {
    is_geo: bool,
    /// The variable that is looked up. A `geo` block may have none, which is the address.
    source: Option<String>,
    default: String,
    entries: Vec<(String, String)>,
}

/// The key of a zone after its `map` is applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResolvedKey {
    pub(super) key: String,
    /// The addresses that are not counted.
    pub(super) addresses: Vec<String>,
    /// Whether requests without the key count by their address.
    pub(super) falls_back_to_address: bool,
}

impl ResolvedKey {
    /// Returns a key that no `map` changes.
    pub(super) fn plain(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            addresses: Vec::new(),
            falls_back_to_address: false,
        }
    }
}

impl Maps {
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

    /// Applies the `map` of a variable. Returns `None` if there is none, or if no rule can count by
    /// its values.
    pub(super) fn resolve(&self, key: &str) -> Option<ResolvedKey> {
        let map = self.0.get(variable(key)?).filter(|it| !it.is_geo)?;
        map.else_address().or_else(|| self.exempting(map))
    }

    /// Returns the key that all addresses have but those that a `geo` block exempts.
    fn exempting(&self, map: &Block) -> Option<ResolvedKey> {
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
        Some(ResolvedKey {
            addresses: addresses.collect(),
            ..ResolvedKey::plain(key)
        })
    }
}

impl Block {
    /// Returns the variable of `map $variable $key { default $variable; "" $remote_addr; }`.
    fn else_address(&self) -> Option<ResolvedKey> {
        let source = self.source.as_deref()?;
        let is_source = |text: &str| variable(text) == Some(source);
        let is_address =
            |text: &str| matches!(variable(text), Some("remote_addr" | "binary_remote_addr"));
        let [(given, value)] = self.entries.as_slice() else {
            return None;
        };
        let matches = given.is_empty() && is_address(value) && is_source(&self.default);
        matches.then(|| ResolvedKey {
            falls_back_to_address: true,
            ..ResolvedKey::plain(&self.default)
        })
    }

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
        let mut maps = Maps::default();
        for directive in parse(text).unwrap() {
            maps.add(&directive);
        }
        let found = maps.resolve("$key")?;
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
    fn a_header_else_the_address() {
        let mut maps = Maps::default();
        for directive in parse(
            "map $http_x_api_key $a { default $http_x_api_key; '' $binary_remote_addr; }
             map $cookie_sid $b { \"\" $remote_addr; default ${cookie_sid}; }
             map $http_x $c { default $http_y; '' $remote_addr; }
             map $http_x $d { default $http_x; '' $remote_addr; vip ''; }
             map $http_x $e { '' $remote_addr; }",
        )
        .unwrap()
        {
            maps.add(&directive);
        }
        for (name, expected) in [
            ("$a", Some("$http_x_api_key")),
            ("${b}", Some("${cookie_sid}")),
            ("$c", None),
            ("$d", None),
            ("$e", None),
        ] {
            let found = maps.resolve(name);
            assert_eq!(found.as_ref().map(|it| it.key.as_str()), expected, "{name}");
            assert!(found.is_none_or(|it| it.falls_back_to_address));
        }
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
