//! Foreign names and texts in a form that a rule file can hold.

use std::collections::HashSet;
use std::net::IpAddr;

use fluxgate_core::Band;
use ipnet::IpNet;

use crate::remark::Remark;

/// The longest identifier that is made from a name; a number may follow.
const MAX_ID: usize = 180;
const MAX_SET_NAME: usize = 180;
const MAX_BAND_ID: usize = 200;

/// Names that are in use.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames(HashSet<String>);

impl UniqueNames {
    /// Returns the name, with a number after it if the name is in use. The same names in the
    /// same order give the same results.
    pub(crate) fn unique(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        let mut number = 2_u32;
        while !self.0.insert(unique.clone()) {
            unique = format!("{name}-{number}");
            number += 1;
        }
        unique
    }

    /// Returns a unique identifier that resembles the name.
    pub(crate) fn unique_id(&mut self, name: &str) -> String {
        self.unique(&rule_id(name))
    }
}

/// Returns the id of a rule, `[a-z0-9][a-z0-9_-]*`, for a name of another program.
///
/// The id resembles the name. A name with letters that an id cannot hold gets an id that ends in
/// a hash of the name, so that it is the same each time and no other name has it.
///
/// ```
/// use fluxgate_import::rule_id;
///
/// assert_eq!(rule_id("Per User"), "per-user");
/// assert_eq!(rule_id("사용자-api"), "api-2db50ba51205");
/// ```
pub fn rule_id(name: &str) -> String {
    let id = slug(name);
    if is_expressible(name) {
        id
    } else {
        hashed(&id, name)
    }
}

/// Returns an id that no other name has, and that is the same each time.
fn hashed(id: &str, name: &str) -> String {
    let hash = fnv1a(name) & 0xffff_ffff_ffff;
    format!("{id}-{hash:012x}")
}

/// Returns whether an id can hold every letter and digit of a name.
pub(crate) fn is_expressible(name: &str) -> bool {
    !name
        .chars()
        .any(|it| it.is_alphanumeric() && !it.is_ascii())
}

/// The hash FNV-1a of 64 bits.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns an identifier, `[a-z0-9][a-z0-9_-]*`, that resembles a name.
pub(crate) fn slug(name: &str) -> String {
    slug_or(name, "rule")
}

/// Returns the same, or `other` if nothing of the name is left.
fn slug_or(name: &str, other: &str) -> String {
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
    match id.trim_end_matches(['-', '_']) {
        "" => other.to_owned(),
        id => id.to_owned(),
    }
}

/// Returns a valid name of a rule set, as close to the given one as possible.
pub(crate) fn set_name(name: &str) -> String {
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

/// Returns an id for a band that resembles a label, unless a rule file reserves it. A label with
/// letters that an id cannot hold gets an id that ends in a hash of the label.
pub(crate) fn band_id(label: &str) -> Option<String> {
    if !is_expressible(label) {
        return Some(hashed(&slug_or(label, "band"), label));
    }
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

/// Returns a remark on a label that the id of its band does not show.
pub(crate) fn band_id_remark(label: &str, line: usize) -> Option<Remark> {
    match band_id(label) {
        None if label.is_empty() => None,
        None => {
            let text = format!(
                "the label `{label}`: a band cannot have this id, so its position is its id, such \
                 as `b0`"
            );
            Some(Remark::lost(line, text))
        }
        Some(_) if is_expressible(label) => None,
        Some(id) => {
            let text =
                format!("the band `{label}` has the id `{id}` in responses, logs and commands");
            Some(Remark::changed(line, text))
        }
    }
}

/// Returns the network of an address or of a range such as `10.0.0.0/8`. A rule file does not
/// allow bits beyond the prefix.
pub(crate) fn network(text: &str) -> Option<IpNet> {
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
pub(crate) fn network_text(network: &IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() {
        network.addr().to_string()
    } else {
        network.to_string()
    }
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
    fn names_with_other_letters_have_ids_of_their_own() {
        let names = ["사용자", "주문", "사용자-api", "api-사용자", "é"];
        let ids = names.map(rule_id);
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "{id}");
            assert_eq!(*id, rule_id(names[index]));
            assert_eq!(*id, slug(id));
        }
        let long = rule_id(&"가x".repeat(1000));
        assert!(long.len() <= MAX_ID + 13, "{long}");
    }

    #[test]
    fn identifiers_are_unique() {
        let mut ids = UniqueNames::default();
        let given = ["a", "A", "a-2", "a"].map(|name| ids.unique_id(name));
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
    fn labels_with_other_letters_have_ids_of_their_own() {
        let labels = ["분당", "시간당", "100회", "100번", "b0분"];
        let ids = labels.map(|label| band_id(label).unwrap());
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "{id}");
            assert_eq!(band_id(id).as_ref(), Some(id), "it is valid");
        }
        assert!(
            ids[0].starts_with("band-") && ids[2].starts_with("100-"),
            "{ids:?}"
        );
        let long = band_id(&"가x".repeat(1000)).unwrap();
        assert!(long.len() <= MAX_BAND_ID, "{long}");
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
