//! The names of keys.
//!
//! `<prefix>:{2<rule><identity>}<band>`, for example
//! `fluxgate:{2e8diRNPiIZu\ruser-00000001}burst`: a key costs about as much
//! memory for its name as for anything else, so names are short.
//!
//! - `2` is the version of the layout, of names and states alike. Releases with
//!   another one count apart, and what they leave behind expires by itself.
//! - The rule is 60 bits of a hash, in ten characters: as safe as the
//!   fingerprints of the memory store, and all keys of a rule begin alike.
//! - Each part of the identity is its kind and its text with the length before
//!   it, or `#` and a hash where it is not to be read.
//! - The braces are the hash tag of a cluster: all bands of one rule and
//!   identity live in one slot. An identity may contain `}`; then the tag ends
//!   there, for all its bands alike. It is never empty, for it begins with the
//!   version.
//!
//! Windows and logs have their algorithm and length behind the band, such as
//! `burst:f60000`, for those of another one are other counters: `f` is a fixed
//! window, `s` a sliding one and `l` a log, in milliseconds.
//!
//! `<prefix>:2:undo:{...}<band>` is a note on such a key, for seconds, that
//! something was taken back; see `lua/bucket_back.lua`.

use std::io::Write;

use fluxgate_core::{Algorithm, Band, IdentityPart, Subject, SubjectParts};

use crate::identity_hash::{HashKeys, HashSecret, IdentityHash};

/// What all keys begin with, unless told otherwise.
pub const DEFAULT_PREFIX: &str = "fluxgate";
/// The version of the layout: of names, and of what stands under them.
pub(crate) const VERSION: char = '2';
/// Comes before a subject that no rule made; no character of a hash.
const OPAQUE: u8 = b'~';
/// Comes before a hashed part; no kind of a part.
const HASHED: u8 = b'#';
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const RULE_DIGITS: u32 = 10;

/// How keys are named. All processes that share limits must agree on it.
#[derive(Clone, Debug)]
pub struct Naming {
    prefix: Box<str>,
    /// The prefix and what comes before every subject.
    head: Vec<u8>,
    hash: Option<IdentityHash>,
}

/// A prefix with a brace would have a say in where keys live.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be the prefix of keys: braces mark what a cluster places them by")]
pub struct BadPrefix(String);

impl Default for Naming {
    fn default() -> Self {
        Self::with_head(DEFAULT_PREFIX)
    }
}

impl Naming {
    /// Names with this prefix, and identities as they are.
    pub fn new(prefix: &str) -> Result<Self, BadPrefix> {
        if prefix.contains(['{', '}']) {
            return Err(BadPrefix(prefix.into()));
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

    /// What all names begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Puts a keyed hash in the place of these parts of identities.
    pub fn hashing(mut self, which: HashKeys, secret: HashSecret) -> Self {
        self.hash = Some(IdentityHash::new(which, secret));
        self
    }

    /// Appends what the names of all bands of a subject begin with.
    pub(crate) fn write_subject(&self, subject: Subject<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        self.write_tag(subject, out);
    }

    /// The same for notes on what was taken back: in the same slot, and not among
    /// what a pattern finds.
    pub(crate) fn write_note(&self, subject: Subject<'_>, out: &mut Vec<u8>) {
        let (prefix, tag) = self.head.split_at(self.prefix.len());
        out.extend_from_slice(prefix);
        out.extend_from_slice(format!(":{VERSION}:undo").as_bytes());
        out.extend_from_slice(tag);
        self.write_tag(subject, out);
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

    /// Appends what makes the name of a subject that of a band.
    pub(crate) fn write_band(band: &Band, out: &mut Vec<u8>) {
        out.extend_from_slice(band.id().as_bytes());
        let limit = band.limit();
        let algorithm = match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => return,
            Algorithm::FixedWindow => 'f',
            Algorithm::SlidingWindow => 's',
            Algorithm::SlidingLog => 'l',
        };
        let millis = limit.window().get() / 1000;
        // Writing to a vector cannot fail.
        let _ = write!(out, ":{algorithm}{millis}");
    }

    /// The keys of all bands of a subject.
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

    /// What `SCAN MATCH` finds all keys of a rule by.
    pub(crate) fn pattern(&self, rule: Subject<'_>) -> Vec<u8> {
        let mut head = self.head.clone();
        match rule.parts() {
            Some(parts) => write_rule(&parts, &mut head),
            None => write_opaque(rule.bytes, &mut head),
        }
        let mut pattern = Vec::with_capacity(head.len() + 1);
        for byte in head {
            if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
                pattern.push(b'\\');
            }
            pattern.push(byte);
        }
        pattern.push(b'*');
        pattern
    }

    fn write_part(&self, part: &IdentityPart<'_>, out: &mut Vec<u8>) {
        if let Some(hash) = self.hash.as_ref().and_then(|hash| hash.of(part)) {
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
            octets if part.is_address() => write_text(without_zeros(octets), out),
            text => write_text(text, out),
        }
    }
}

fn write_rule(parts: &SubjectParts<'_>, out: &mut Vec<u8>) {
    let hash = parts.rule_hash();
    for digit in 0..RULE_DIGITS {
        // Six bits.
        out.push(DIGITS[(hash >> (6 * digit)) as usize % DIGITS.len()]);
    }
}

/// Byte by byte, so that what begins alike has names that begin alike, and
/// without the brace that ends it.
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

/// The length, seven bits a byte, and the text.
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    let mut length = text.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(text);
}

/// An IPv6 address counts by its prefix, so it mostly ends with zeros.
fn without_zeros(octets: &[u8]) -> &[u8] {
    let end = octets.iter().rposition(|octet| *octet != 0);
    &octets[..end.map_or(0, |end| end + 1)]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use fluxgate_core::{Limit, RuleNumber};

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

    fn name(naming: &Naming, bytes: &[u8], band: &str) -> Vec<u8> {
        let limit = Limit::builder(Algorithm::TokenBucket, 1, Duration::from_secs(1));
        let band = Band::new(band, limit.build().unwrap());
        let rule = RuleNumber::NONE;
        let subject = Subject { rule, bytes };
        naming.keys(subject, &[band]).remove(0)
    }

    #[test]
    fn windows_of_another_length_or_algorithm_have_another_name() {
        let bytes = subject("s", "r", &user("a"));
        let of = |algorithm, seconds| {
            let limit = Limit::builder(algorithm, 1, Duration::from_secs(seconds));
            let band = Band::new("b", limit.build().unwrap());
            let subject = Subject {
                rule: RuleNumber::NONE,
                bytes: &bytes,
            };
            let name = Naming::default().keys(subject, &[band]).remove(0);
            name.escape_ascii().to_string()
        };
        let start = of(Algorithm::TokenBucket, 1);
        assert_eq!(of(Algorithm::LeakyBucket, 60), start);
        for (algorithm, end) in [
            (Algorithm::FixedWindow, ":f60000"),
            (Algorithm::SlidingWindow, ":s60000"),
            (Algorithm::SlidingLog, ":l60000"),
        ] {
            assert_eq!(of(algorithm, 60), format!("{start}{end}"));
        }
    }

    /// Two releases that name keys differently would count apart.
    #[test]
    fn names_never_change() {
        let naming = Naming::default();
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
    fn a_prefix_has_no_braces() {
        assert!(Naming::new("").is_ok() && Naming::new("a:b*").is_ok());
        for prefix in ["{}", "{tag}", "a{", "}"] {
            assert!(Naming::new(prefix).is_err());
        }
    }

    #[test]
    fn no_two_keys_share_a_name() {
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
            let naming = Naming::default().hashing(which, HashSecret::new(b"s"));
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
