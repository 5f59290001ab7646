//! Foreign names and texts in a form that a rule file can hold.

use std::collections::HashSet;
use std::net::IpAddr;

use fluxgate_core::Band;
use ipnet::IpNet;

/// The longest identifier that is made from a name; a number may follow.
const MAX_ID: usize = 180;
const MAX_SET_NAME: usize = 180;
const MAX_BAND_ID: usize = 200;

/// Hands out identifiers that are unique in a rule set.
#[derive(Debug, Default)]
pub(super) struct Ids(HashSet<String>);

impl Ids {
    /// Returns an identifier that resembles the name. The same names in the same order give
    /// the same identifiers.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let base = slug(name);
        let mut id = base.clone();
        let mut number = 2_u32;
        while !self.0.insert(id.clone()) {
            id = format!("{base}-{number}");
            number += 1;
        }
        id
    }
}

/// Returns the identifier that resembles a name: `[a-z0-9][a-z0-9_-]*`.
pub(super) fn slug(name: &str) -> String {
    let mut id = String::new();
    for char in name.chars() {
        let char = char.to_ascii_lowercase();
        match char {
            'a'..='z' | '0'..='9' => id.push(char),
            '_' if !id.is_empty() => id.push(char),
            _ if !id.is_empty() && !id.ends_with('-') => id.push('-'),
            _ => {}
        }
        if id.len() >= MAX_ID {
            break;
        }
    }
    let id = id.trim_end_matches(['-', '_']);
    match id {
        "" => "rule".to_owned(),
        id => id.to_owned(),
    }
}

/// Returns a valid name of a rule set, as close to the given one as possible.
pub(super) fn set_name(name: &str) -> String {
    let mut valid = String::new();
    for char in name.chars() {
        let char = if char.is_control() { '-' } else { char };
        if valid.len() + char.len_utf8() > MAX_SET_NAME {
            break;
        }
        valid.push(char);
    }
    match valid.as_str() {
        "" => "default".to_owned(),
        _ => valid,
    }
}

/// Returns an id for a band that resembles a label, unless a rule file reserves it.
pub(super) fn band_id(label: &str) -> Option<String> {
    let is_letter = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '.' | '-');
    let id = label.replace(|char| !is_letter(char), "-");
    // Bands without an id are b0, b1, ….
    let is_default = id
        .strip_prefix('b')
        .is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()));
    let is_valid = label.len() <= MAX_BAND_ID
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
        && id != Band::MISSING_KEY
        && !is_default;
    is_valid.then_some(id)
}

/// Returns the network of an address or of a range such as `10.0.0.0/8`. A rule file does not
/// allow bits beyond the prefix.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let (address, _) = text.split_once('/').unwrap_or((text, ""));
    // `IpNet` alone accepts leading zeros, which some programs read as octal numbers.
    let address: IpAddr = address.parse().ok()?;
    if text.contains('/') {
        text.parse().ok().map(|network: IpNet| network.trunc())
    } else {
        Some(address.into())
    }
}

/// Returns a network as text, or its only address.
pub(super) fn network_text(network: &IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() {
        network.addr().to_string()
    } else {
        network.to_string()
    }
}

/// Returns a text without line breaks and other control characters, which would end a comment
/// or make it unreadable.
pub(super) fn on_one_line(text: &str) -> String {
    let is_blank = |char: char| char.is_control() || char.is_whitespace() || is_special(char);
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Returns whether YAML treats a character as a line break or does not print it.
pub(super) fn is_special(char: char) -> bool {
    matches!(
        char,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_valid_identifiers() {
        for (name, expected) in [
            ("per-user", "per-user"),
            ("Per User", "per-user"),
            ("__x__", "x"),
            ("/api/v1/**", "api-v1"),
            ("", "rule"),
            ("사용자", "rule"),
            ("A.B:C", "a-b-c"),
        ] {
            assert_eq!(slug(name), expected, "{name}");
        }
        assert!(slug(&"x".repeat(1000)).len() <= MAX_ID);
    }

    #[test]
    fn identifiers_are_unique() {
        let mut ids = Ids::default();
        let given = ["a", "A", "a-2", "a"].map(|name| ids.unique(name));
        assert_eq!(given, ["a", "a-2", "a-2-2", "a-3"]);
    }

    #[test]
    fn labels_become_valid_band_ids() {
        assert_eq!(band_id("100 per minute").unwrap(), "100-per-minute");
        for label in ["", "-x", "missing_key", "b0", &"x".repeat(201)] {
            assert_eq!(band_id(label), None, "{label}");
        }
    }

    #[test]
    fn networks_have_no_bits_beyond_their_prefix() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("2001:db8::1/32", Some("2001:db8::/32")),
            ("::1/128", Some("::1")),
            ("10.00.0.0/8", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0/", None),
            ("here", None),
        ] {
            let found = network(text).map(|network| network_text(&network));
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn set_names_have_no_control_characters_and_a_bounded_length() {
        assert_eq!(set_name("edge\n"), "edge-");
        assert_eq!(set_name(""), "default");
        assert!(set_name(&"é".repeat(500)).len() <= MAX_SET_NAME);
    }
}
