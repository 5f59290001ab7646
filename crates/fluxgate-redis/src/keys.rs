//! The names of keys.
//!
//! `<prefix>:{2<rule><identity>}<band>`, for example
//! `fluxgate:{2e8diRNPiIZu\ruser-00000001}burst`. Names are short, since they take about half of
//! the memory of a key.
//!
//! - `2` is the version of the layout, of both names and states. Releases with different
//!   versions do not share counters, and old keys expire.
//! - The rule is 60 bits of a hash, in ten characters: as safe as the fingerprints of the memory
//!   store, and all keys of a rule have one prefix.
//! - Each part of the identity is its kind, its length and its text; or `#` and a hash if the
//!   text must not be readable.
//! - The braces are the hash tag of a cluster: all bands of one rule and identity are in one
//!   hash slot. If an identity contains `}`, the tag ends there for all its bands. The tag is
//!   never empty, because it begins with the version.
//!
//! Windows and logs have their algorithm and length in milliseconds after the band, such as
//! `burst:f60000`, since another algorithm or length is another counter: `f` is a fixed window,
//! `s` a sliding window and `l` a log. Concurrency slots have `:h`, whatever the longest hold.
//!
//! | key | value |
//! |---|---|
//! | `<prefix>:2:undo:{...}<band>` | a note that a charge to this key was undone, kept for seconds (`lua/bucket_refund.lua`) |
//! | `<prefix>:2:lease:{...}<band>` | the units of this key that are out on lease |
//! | `<prefix>:2:told:{...}` | the shares of this identity's limits that were reported (`event_log.rs`) |
//! | `<prefix>:2:hold2:{<id>}` | the record of a hold, or on a cluster the list of its parts |
//! | `<prefix>:2:hold2:{...}<id>:<part>` | the record of a part, in the hash slot of its keys |
//! | `<prefix>:2:reservation:{<id>}` | the requests that cancel a reservation, until its request proceeds |
//!
//! The records of holds have a version of their own (`hold2`). A release with another version
//! does not find them.

use std::io::Write;

use fluxgate_core::key::{IdentityPart, PartHash, SubjectParts};
use fluxgate_core::store::Subject;
use fluxgate_core::{Algorithm, Band, HoldId};

use crate::identity_hash::{HashKeys, HashSecret, IdentityHash};

/// The default prefix of keys.
pub const DEFAULT_PREFIX: &str = "fluxgate";
/// The version of the layout, of both names and states.
pub(crate) const VERSION: char = '2';
/// The kind of keys with records of holds, and the version of the records.
const HOLD: &str = "hold2";
/// The kind of keys with the shares that were reported.
const TOLD: &str = "told";
/// Precedes a subject that does not come from a rule. The hash of a rule has no such character.
const OPAQUE: u8 = b'~';
/// Precedes a hashed part. No kind of part has this character.
const HASHED: u8 = b'#';
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const RULE_DIGITS: u32 = 10;

/// How keys are named. All processes that share limits must agree on it.
#[derive(Clone, Debug)]
pub struct KeyNaming {
    pub(crate) prefix: Box<str>,
    /// The prefix and the start of the hash tag.
    head: Vec<u8>,
    hash: Option<IdentityHash>,
}

/// A key prefix with a brace, which would change the hash slots of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key prefix `{0}` has a brace: braces would change the slots of keys in a cluster")]
pub struct InvalidPrefix(String);

impl Default for KeyNaming {
    fn default() -> Self {
        Self::with_head(DEFAULT_PREFIX)
    }
}

impl KeyNaming {
    /// Creates a naming with this prefix and with readable identities.
    pub fn new(prefix: &str) -> Result<Self, InvalidPrefix> {
        if prefix.contains(['{', '}']) {
            return Err(InvalidPrefix(prefix.into()));
        }
        Ok(Self::with_head(prefix))
    }

    fn with_head(prefix: &str) -> Self {
        let mut head = prefix.as_bytes().to_vec();
        head.extend_from_slice(b":{");
        head.push(VERSION as u8);
        Self {
            prefix: prefix.into(),
            head,
            hash: None,
        }
    }

    /// Replaces the selected parts of identities by a keyed hash.
    pub fn hashing(mut self, which: HashKeys, secret: HashSecret) -> Self {
        self.hash = Some(IdentityHash::new(which, secret));
        self
    }

    /// Appends the common start of the names of all bands of a subject.
    pub(crate) fn write_subject(&self, subject: Subject<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        self.write_tag(subject, out);
    }

    /// Appends the same for notes that a charge was undone: in the same hash slot, but not
    /// matched by [`KeyNaming::pattern`].
    pub(crate) fn write_undo_subject(&self, subject: Subject<'_>, out: &mut Vec<u8>) {
        self.write_other_subject("undo", subject, out);
    }

    /// Appends the same for the units that are out on lease.
    pub(crate) fn write_lease_subject(&self, subject: Subject<'_>, out: &mut Vec<u8>) {
        self.write_other_subject("lease", subject, out);
    }

    /// Appends the name of the shares that were reported of a subject.
    pub(crate) fn write_told_subject(&self, subject: Subject<'_>, out: &mut Vec<u8>) {
        self.write_other_subject(TOLD, subject, out);
    }

    /// Returns the pattern for `SCAN MATCH` that matches the reported shares of all identities of
    /// a rule.
    pub(crate) fn told_pattern(&self, rule: Subject<'_>) -> Vec<u8> {
        let (prefix, tag) = self.head.split_at(self.prefix.len());
        let mut head = [prefix, format!(":{VERSION}:{TOLD}").as_bytes(), tag].concat();
        Self::write_rule_head(rule, &mut head);
        escape_pattern(&head)
    }

    fn write_other_subject(&self, kind: &str, subject: Subject<'_>, out: &mut Vec<u8>) {
        let (prefix, tag) = self.head.split_at(self.prefix.len());
        out.extend_from_slice(prefix);
        out.extend_from_slice(format!(":{VERSION}:{kind}").as_bytes());
        out.extend_from_slice(tag);
        self.write_tag(subject, out);
    }

    /// Returns the key of the record of a hold, or of the list of its parts.
    pub(crate) fn hold(&self, id: HoldId) -> Vec<u8> {
        format!("{}:{VERSION}:{HOLD}:{{{id}}}", self.prefix).into_bytes()
    }

    /// Returns the key of the record of a reservation.
    pub(crate) fn reservation(&self, id: HoldId) -> Vec<u8> {
        format!("{}:{VERSION}:reservation:{{{id}}}", self.prefix).into_bytes()
    }

    /// Returns the key of the record of a part of a hold, in the hash slot of a subject.
    pub(crate) fn part_of_hold(&self, id: HoldId, subject: Subject<'_>, part: usize) -> Vec<u8> {
        let mut name = Vec::new();
        self.write_other_subject(HOLD, subject, &mut name);
        name.extend_from_slice(format!("{id}:{part}").as_bytes());
        name
    }

    fn write_tag(&self, subject: Subject<'_>, out: &mut Vec<u8>) {
        match subject.parts() {
            Some(parts) => {
                write_rule(&parts, out);
                for part in parts.identity() {
                    self.write_part(&part, out);
                }
            }
            None => write_opaque(subject.bytes, out),
        }
        out.push(b'}');
    }

    /// Appends the part of a name after the subject.
    pub(crate) fn write_band(band: &Band, out: &mut Vec<u8>) {
        out.extend_from_slice(band.id().as_bytes());
        let limit = band.limit();
        let algorithm = match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => return,
            Algorithm::FixedWindow => 'f',
            Algorithm::SlidingWindow => 's',
            Algorithm::SlidingLog => 'l',
            Algorithm::Concurrency => return out.extend_from_slice(b":h"),
        };
        // Writing to a vector cannot fail.
        let _ = match limit.windows() {
            Some(calendar) => write!(
                out,
                ":c{}:{}",
                calendar.unit().name(),
                calendar.time_zone().name()
            ),
            None => write!(out, ":{algorithm}{}", limit.window().get() / 1000),
        };
    }

    /// Returns the keys of all bands of a subject.
    pub(crate) fn keys(&self, subject: Subject<'_>, bands: &[Band]) -> Vec<Vec<u8>> {
        let mut head = Vec::new();
        self.write_subject(subject, &mut head);
        let name = |band| {
            let mut name = head.clone();
            Self::write_band(band, &mut name);
            name
        };
        bands.iter().map(name).collect()
    }

    /// Returns the pattern for `SCAN MATCH` that matches all keys of a rule.
    pub(crate) fn pattern(&self, rule: Subject<'_>) -> Vec<u8> {
        let mut head = self.head.clone();
        Self::write_rule_head(rule, &mut head);
        escape_pattern(&head)
    }

    /// Appends the part of a name that all identities of a rule share.
    fn write_rule_head(rule: Subject<'_>, out: &mut Vec<u8>) {
        match rule.parts() {
            Some(parts) => write_rule(&parts, out),
            None => write_opaque(rule.bytes, out),
        }
    }

    /// Returns the hash that replaces a part, if it is selected.
    pub(crate) fn hash_part(&self, part: &IdentityPart<'_>) -> Option<PartHash> {
        self.hash.as_ref()?.hash(part)
    }

    fn write_part(&self, part: &IdentityPart<'_>, out: &mut Vec<u8>) {
        let known = part.hash().copied();
        if let Some(hash) = known.or_else(|| self.hash_part(part)) {
            out.push(HASHED);
            out.extend_from_slice(&hash);
            return;
        }
        out.push(part.kind);
        if part.is_named() {
            write_text(part.name, out);
        }
        match part.value {
            _ if part.is_anonymous() => {}
            &[a, b, c, d] if part.is_address() => out.extend_from_slice(&[a, b, c, d]),
            octets if part.is_address() => write_text(strip_zeros(octets), out),
            text => write_text(text, out),
        }
    }
}

/// Returns the pattern that matches all names with this start.
fn escape_pattern(head: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(head.len() + 1);
    for byte in head {
        if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    pattern
}

fn write_rule(parts: &SubjectParts<'_>, out: &mut Vec<u8>) {
    let hash = parts.rule_hash();
    for digit in 0..RULE_DIGITS {
        // Six bits.
        out.push(DIGITS[(hash >> (6 * digit)) as usize % DIGITS.len()]);
    }
}

/// Appends bytes, with `}` escaped, which would end the tag. Subjects with a common prefix have
/// names with a common prefix.
fn write_opaque(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(OPAQUE);
    for byte in bytes {
        match byte {
            b'%' => out.extend_from_slice(b"%%"),
            b'}' => out.extend_from_slice(b"%)"),
            byte => out.push(*byte),
        }
    }
}

/// Appends the length of a text, and the text.
pub(crate) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    write_length(text.len(), out);
    out.extend_from_slice(text);
}

/// Appends a length, in seven bits per byte.
pub(crate) fn write_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// Strips trailing zeros, which most IPv6 addresses have, because only their prefix counts.
fn strip_zeros(octets: &[u8]) -> &[u8] {
    let end = octets.iter().rposition(|octet| *octet != 0);
    &octets[..end.map_or(0, |end| end + 1)]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use fluxgate_core::Limit;
    use fluxgate_core::key::RuleNumber;

    use super::*;

    /// As the core encodes it: lengths in five bytes.
    fn encode(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes()[..5], text].concat()
    }

    fn subject(set: &str, rule: &str, identity: &[u8]) -> Vec<u8> {
        [
            &encode(set.as_bytes())[..],
            &encode(rule.as_bytes()),
            identity,
        ]
        .concat()
    }

    fn user(name: &str) -> Vec<u8> {
        [b"u", &encode(name.as_bytes())[..]].concat()
    }

    fn name(naming: &KeyNaming, bytes: &[u8], band: &str) -> Vec<u8> {
        let limit = Limit::builder(Algorithm::TokenBucket, 1, Duration::from_secs(1));
        let band = Band::new(band, limit.build().unwrap());
        let rule = RuleNumber::NONE;
        let subject = Subject { rule, bytes };
        naming.keys(subject, &[band]).remove(0)
    }

    #[test]
    fn windows_of_different_length_or_algorithm_have_different_names() {
        let bytes = subject("s", "r", &user("a"));
        let of = |algorithm, seconds| {
            let limit = Limit::builder(algorithm, 1, Duration::from_secs(seconds));
            let band = Band::new("b", limit.build().unwrap());
            let subject = Subject {
                rule: RuleNumber::NONE,
                bytes: &bytes,
            };
            let name = KeyNaming::default().keys(subject, &[band]).remove(0);
            name.escape_ascii().to_string()
        };
        let start = of(Algorithm::TokenBucket, 1);
        assert_eq!(of(Algorithm::LeakyBucket, 60), start);
        for (algorithm, end) in [
            (Algorithm::FixedWindow, ":f60000"),
            (Algorithm::SlidingWindow, ":s60000"),
            (Algorithm::SlidingLog, ":l60000"),
            (Algorithm::Concurrency, ":h"),
        ] {
            assert_eq!(of(algorithm, 60), format!("{start}{end}"));
        }
    }

    /// Releases that name keys differently would not share counters.
    #[test]
    fn names_never_change() {
        let naming = KeyNaming::default();
        let of = |bytes: &[u8]| name(&naming, bytes, "burst").escape_ascii().to_string();
        let named = subject("api-limits", "per-user", &user("user-00000001"));
        assert_eq!(of(&named), r"fluxgate:{2e8diRNPiIZu\ruser-00000001}burst");
        let address = subject("s", "r", &[b"4\x0a\x00\x00\x01", &user("a}b")[..]].concat());
        assert_eq!(
            of(&address),
            r"fluxgate:{2MHyRsvuFnO4\n\x00\x00\x01u\x03a}b}burst"
        );
        assert_eq!(of(b"10% }"), "fluxgate:{2~10%% %)}burst");
    }

    #[test]
    fn a_prefix_with_braces_is_rejected() {
        assert!(KeyNaming::new("").is_ok() && KeyNaming::new("a:b*").is_ok());
        for prefix in ["{}", "{tag}", "a{", "}"] {
            assert!(KeyNaming::new(prefix).is_err());
        }
    }

    #[test]
    fn different_keys_have_different_names() {
        let long = "x".repeat(300);
        let identities = [
            vec![],
            user("a"),
            user("b"),
            user("a}b"),
            user(&long),
            [user("a"), user("b")].concat(),
            [user("ab"), b"-".to_vec()].concat(),
            b"-".to_vec(),
            b"--".to_vec(),
            b"4\x01\x02\x03\x04".to_vec(),
            [b"4", &b"-\x03--"[..]].concat(),
            [&b"6"[..], &[0; 16]].concat(),
            [&b"6"[..], &[1; 8], &[0; 8]].concat(),
            [&b"6"[..], &[1; 7], &[0; 9]].concat(),
            [b"h", &encode(b"a")[..], &encode(b"bc")].concat(),
            [b"h", &encode(b"ab")[..], &encode(b"c")].concat(),
            [b"a", &encode(b"ab")[..], &encode(b"c")].concat(),
        ];
        let mut subjects = vec![b"opaque".to_vec(), b"}".to_vec(), b"%)".to_vec(), vec![]];
        for identity in &identities {
            subjects.push(subject("s", "r", identity));
            subjects.push(subject("sr", "", identity));
            subjects.push(subject(
                "s",
                "r",
                &[b"!0123456789abcdef", &identity[..]].concat(),
            ));
        }
        for which in [HashKeys::None, HashKeys::ApiKeys, HashKeys::All] {
            let naming = KeyNaming::default().hashing(which, HashSecret::new(b"s"));
            let mut seen = HashMap::new();
            for subject in &subjects {
                for band in ["b", "b0", "}b"] {
                    let key = (subject, band);
                    let other = seen.insert(name(&naming, subject, band), key);
                    assert_eq!(other, None, "{key:?}");
                }
            }
        }
    }
}
