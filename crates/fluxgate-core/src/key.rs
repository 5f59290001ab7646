//! Who is counted: scopes, composite keys, and an encoding in which no two
//! identities can meet.

mod parts;

use std::net::{IpAddr, Ipv6Addr};

use crate::context::RequestContext;
use crate::request_path::RequestPath;
use crate::small::Small;

use parts::Reader;
pub use parts::{IdentityPart, SubjectParts};

/// Bytes of a subject: a rule and an identity. Most fit without an allocation.
pub(crate) type SubjectBytes = Small<u8, 192>;

/// One part of a key, as a rule names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// The client's address.
    Ip,
    /// The user.
    User,
    /// The API key.
    ApiKey,
    /// The method.
    Method,
    /// The path.
    Path,
    /// A header; the name is in lower case.
    Header(Box<str>),
    /// An attribute.
    Attribute(Box<str>),
}

/// What a rule does when a part of its key is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingKey {
    /// The client's address stands in; without one, as [`OnMissingKey::Anonymous`].
    #[default]
    Ip,
    /// One identity stands in for all whose part is missing.
    Anonymous,
    /// The rule does not match.
    Skip,
    /// The request is denied.
    Deny,
}

/// What building an identity came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// It stands in the buffer.
    Known,
    /// A part is missing, and the rule is to be passed over.
    Skip,
    /// A part is missing, and the request is to be denied.
    Deny,
}

// One byte before each part says what it is, so that the user `1.2.3.4` is not
// the address 1.2.3.4; lengths keep the parts apart.
const IPV4: u8 = b'4';
const IPV6: u8 = b'6';
const USER: u8 = b'u';
const API_KEY: u8 = b'k';
const METHOD: u8 = b'm';
const PATH: u8 = b'p';
const HEADER: u8 = b'h';
const ATTRIBUTE: u8 = b'a';
const ANONYMOUS: u8 = b'-';
/// What a limit that comes with the call counts.
const OWN: u8 = b'o';
/// Comes before what a rule says, in the subjects of one that resets on change.
pub(crate) const RESETS: u8 = b'!';

/// Appends the identity that `key` makes of `context`.
pub(crate) fn encode_identity(
    key: &[KeyPart],
    on_missing: OnMissingKey,
    context: &RequestContext<'_>,
    ipv6_prefix: u8,
    out: &mut SubjectBytes,
) -> Identity {
    for part in key {
        let value = match part {
            KeyPart::Ip => match context.ip {
                Some(ip) => {
                    encode_ip(ip, ipv6_prefix, out);
                    continue;
                }
                None => None,
            },
            KeyPart::User => context.user().map(str::as_bytes),
            KeyPart::ApiKey => context.api_key().map(str::as_bytes),
            KeyPart::Method => context.method().map(str::as_bytes),
            // Not as it was sent: another spelling counts as the same.
            KeyPart::Path => {
                let path = context.request_path().map(RequestPath::normal);
                path.map(str::as_bytes)
            }
            KeyPart::Header(name) => context.header(name).map(str::as_bytes),
            KeyPart::Attribute(name) => context.attribute_bytes(name),
        };
        match (value.filter(|value| !value.is_empty()), on_missing) {
            (Some(value), _) => encode_text(part, value, out),
            (None, OnMissingKey::Skip) => return Identity::Skip,
            (None, OnMissingKey::Deny) => return Identity::Deny,
            (None, OnMissingKey::Ip) => match context.ip {
                Some(ip) => encode_ip(ip, ipv6_prefix, out),
                None => out.push(ANONYMOUS),
            },
            (None, OnMissingKey::Anonymous) => out.push(ANONYMOUS),
        }
    }
    Identity::Known
}

/// Appends the identity of exactly these values, one for each part.
pub(crate) fn encode_values(
    key: &[KeyPart],
    values: &[&str],
    ipv6_prefix: u8,
    out: &mut SubjectBytes,
) -> Result<(), IdentityError> {
    if key.len() != values.len() {
        return Err(IdentityError::WrongCount {
            needed: key.len(),
            given: values.len(),
        });
    }
    for (part, value) in key.iter().zip(values) {
        match part {
            KeyPart::Ip => match value.parse::<IpAddr>() {
                Ok(ip) => encode_ip(ip, ipv6_prefix, out),
                Err(_) => return Err(IdentityError::NoAddress((*value).into())),
            },
            _ if value.is_empty() => return Err(IdentityError::Empty),
            _ => encode_text(part, value.as_bytes(), out),
        }
    }
    Ok(())
}

/// Why values do not make an identity of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// One value is needed for each part of the key.
    #[error("the key has {needed} part(s), the identity {given} value(s)")]
    WrongCount {
        /// Parts of the key.
        needed: usize,
        /// Values given.
        given: usize,
    },
    /// The key has an address there.
    #[error("`{0}` is no IP address")]
    NoAddress(String),
    /// Empty counts as missing, so no request ever has this identity.
    #[error("an identity must not be empty")]
    Empty,
}

fn encode_text(part: &KeyPart, value: &[u8], out: &mut SubjectBytes) {
    let (kind, name) = match part {
        KeyPart::User => (USER, None),
        KeyPart::ApiKey => (API_KEY, None),
        KeyPart::Method => (METHOD, None),
        KeyPart::Path => (PATH, None),
        KeyPart::Header(name) => (HEADER, Some(name)),
        KeyPart::Attribute(name) => (ATTRIBUTE, Some(name)),
        // Addresses have an encoding of their own; as text they would still
        // not meet it.
        KeyPart::Ip => (ANONYMOUS, None),
    };
    out.push(kind);
    if let Some(name) = name {
        encode_bytes(&**name, out);
    }
    encode_bytes(value, out);
}

fn encode_ip(ip: IpAddr, ipv6_prefix: u8, out: &mut SubjectBytes) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            out.push(IPV4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(ipv6_prefix))
                .unwrap_or(0);
            out.push(IPV6);
            out.extend_from_slice(&(ip.to_bits() & mask).to_be_bytes());
        }
    }
}

/// Appends the subject of a limit that comes with the call: a rule of no set,
/// for no set's name is empty.
pub(crate) fn encode_own(name: &str, values: &[&[u8]], out: &mut SubjectBytes) {
    encode_bytes("", out);
    encode_bytes(name, out);
    for value in values {
        out.push(OWN);
        encode_bytes(value, out);
    }
}

pub(crate) fn encode_bytes(text: impl AsRef<[u8]>, out: &mut SubjectBytes) {
    let text = text.as_ref();
    // Texts come from memory, and none there is longer than a u64 can tell.
    out.extend_from_slice(&(text.len() as u64).to_le_bytes()[..5]);
    out.extend_from_slice(text);
}

/// An encoded identity, for people to read: `user=ann`, `ip=10.0.0.1 path=/x`.
/// API keys are shown by their ends only.
pub(crate) fn describe_identity(encoded: &[u8]) -> String {
    let mut reader = Reader(encoded);
    let mut parts = Vec::new();
    while let Some(part) = reader.part() {
        parts.push(describe(&part));
    }
    if parts.is_empty() {
        "(everyone)".into()
    } else {
        parts.join(" ")
    }
}

fn describe(part: &IdentityPart<'_>) -> String {
    let name = String::from_utf8_lossy(part.name);
    let value = String::from_utf8_lossy(part.value);
    match (part.kind, part.value) {
        (IPV4, &[a, b, c, d]) => format!("ip={}", IpAddr::from([a, b, c, d])),
        (IPV6, octets) => {
            let octets: [u8; 16] = octets.try_into().unwrap_or_default();
            format!("ip={}", Ipv6Addr::from(octets))
        }
        (USER, _) => format!("user={value}"),
        (API_KEY, _) => format!("api_key={}", ends_of(&value)),
        (OWN, _) => format!("key={value}"),
        (METHOD, _) => format!("method={value}"),
        (PATH, _) => format!("path={value}"),
        (HEADER, _) => format!("header:{name}={value}"),
        (ATTRIBUTE, _) => format!("attr:{name}={value}"),
        _ => "anonymous".into(),
    }
}

fn ends_of(secret: &str) -> String {
    let chars: Vec<char> = secret.chars().collect();
    if chars.len() < 12 {
        return "…".into();
    }
    let (head, tail) = (&chars[..4], &chars[chars.len() - 2..]);
    format!("{}…{}", String::from_iter(head), String::from_iter(tail))
}
