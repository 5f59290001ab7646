//! Keys: the parts of a request that a rule counts by, and their encoding.

mod encoding;
mod fingerprint;
mod stored;
mod subject;
mod subject_bytes;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::context::RequestContext;
use crate::request_path::RequestPath;

use encoding::{
    AD_HOC, ANONYMOUS, API_KEY, ATTRIBUTE, Decoder, HEADER, IPV4, IPV6, METHOD, PATH, USER,
};
pub use encoding::{AUTHORIZATION, IdentityPart, PartHash, counted_credentials};
pub(crate) use encoding::{RESETS, encode_bytes};
pub use fingerprint::Fingerprinter;
pub(crate) use stored::place_of;
pub use stored::{IdentityRef, StoredIdentity, parts_of};
pub use subject::{RuleNumber, Subject, SubjectParts};
pub use subject_bytes::SubjectBytes;

/// The attribute with the method of a call of the Model Context Protocol, which the gateway reads.
pub const MCP_METHOD: &str = "mcp:method";

/// The attribute with the tool, the resource or the prompt that such a call names.
pub const MCP_NAME: &str = "mcp:name";

/// One part of a key, as a rule names it.
///
/// ```
/// use fluxgate_core::{KeyPart, Rule};
///
/// let tenant: KeyPart = "attr:tenant".parse()?;
/// assert_eq!(tenant, KeyPart::Attribute("tenant".into()));
/// // Each user of each tenant has its own counters.
/// let rule = Rule::new("per-tenant-user").key([tenant, KeyPart::User]);
/// # Ok::<_, fluxgate_core::KeyPartError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
    /// A header, in any case.
    Header(Box<str>),
    /// An attribute.
    Attribute(Box<str>),
}

impl KeyPart {
    /// Returns whether both parts have the same value in every request.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header(name), Self::Header(other)) => name.eq_ignore_ascii_case(other),
            _ => self == other,
        }
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::User => f.write_str("user"),
            Self::ApiKey => f.write_str("api_key"),
            Self::Method => f.write_str("method"),
            Self::Path => f.write_str("path"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Attribute(name) if is_of_call(name) => f.write_str(name),
            Self::Attribute(name) => write!(f, "attr:{name}"),
        }
    }
}

/// Returns whether an attribute is one that the gateway reads from a call.
pub(crate) fn is_of_call(attribute: &str) -> bool {
    [MCP_METHOD, MCP_NAME].contains(&attribute)
}

/// Reads a part as rule files name it: `ip`, `user`, `header:NAME`, `attr:NAME`, `mcp:name`, ….
impl FromStr for KeyPart {
    type Err = KeyPartError;

    fn from_str(text: &str) -> Result<Self, KeyPartError> {
        Ok(match text {
            "ip" => Self::Ip,
            "user" => Self::User,
            "api_key" => Self::ApiKey,
            "method" => Self::Method,
            "path" => Self::Path,
            MCP_METHOD | MCP_NAME => Self::Attribute(text.into()),
            _ => match text.split_once(':') {
                Some(("header", name)) => Self::Header(name.into()),
                Some(("attr", name)) if !name.is_empty() => Self::Attribute(name.into()),
                _ => return Err(KeyPartError(text.into())),
            },
        })
    }
}

/// A text does not name a part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a part of a key; allowed are \
     ip, user, api_key, method, path, header:NAME, attr:NAME, mcp:method, mcp:name"
)]
pub struct KeyPartError(pub(crate) String);

/// What a rule does if a part of its key is missing.
///
/// ```
/// use fluxgate_core::{Limiter, MemoryStore, OnMissingKey, Quota, RequestContext, Rule, RuleSet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::new("per-key")
///     .per_api_key()
///     .on_missing_key(OnMissingKey::Deny)
///     .band(Quota::per_second(10));
/// let rules = RuleSet::builder("api").rule(rule).build()?;
/// let limiter = Limiter::new(rules, MemoryStore::default());
/// let api = limiter.rule_set("api")?;
/// assert!(!api.check_sync(&RequestContext::default()).allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingKey {
    /// Counts by the client's address; without one, as [`OnMissingKey::Anonymous`].
    #[default]
    Ip,
    /// Counts all requests that lack the part as one identity.
    Anonymous,
    /// Does not match.
    Skip,
    /// Denies the request.
    Deny,
}

impl OnMissingKey {
    /// Their names in rules.
    pub(crate) const NAMES: [(&str, Self); 4] = [
        (Self::Ip.name(), Self::Ip),
        (Self::Anonymous.name(), Self::Anonymous),
        (Self::Skip.name(), Self::Skip),
        (Self::Deny.name(), Self::Deny),
    ];

    /// Returns its name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Anonymous => "anonymous",
            Self::Skip => "skip",
            Self::Deny => "deny",
        }
    }
}

/// The result of building an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// It is in the buffer.
    Known,
    /// A part is missing, and the rule does not match.
    Skip,
    /// A part is missing, and the request is denied.
    Deny,
}

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
            // The normal form, so that another spelling does not count as another path.
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

/// Returns the parts of a key that a context lacks.
pub(crate) fn missing_parts<'k>(
    key: &'k [KeyPart],
    context: &RequestContext<'_>,
) -> impl Iterator<Item = &'k KeyPart> {
    key.iter().filter(move |part| {
        let part = std::slice::from_ref(*part);
        let (on_missing, mut unused) = (OnMissingKey::Deny, SubjectBytes::new());
        encode_identity(part, on_missing, context, 128, &mut unused) == Identity::Deny
    })
}

/// Returns the identity of exactly these values, one for each part of a key, encoded.
///
/// ```
/// use fluxgate_core::KeyPart;
/// use fluxgate_core::key::{describe_identity, encoded_identity};
///
/// let identity = encoded_identity(&[KeyPart::User, KeyPart::Ip], &["ann", "2001:db8::1"], 64)?;
/// assert_eq!(describe_identity(&identity), "user=ann ip=2001:db8::");
/// # Ok::<_, fluxgate_core::IdentityError>(())
/// ```
pub fn encoded_identity(
    key: &[KeyPart],
    values: &[&str],
    ipv6_prefix: u8,
) -> Result<SubjectBytes, IdentityError> {
    let mut identity = SubjectBytes::new();
    encode_values(key, values, ipv6_prefix, &mut identity)?;
    Ok(identity)
}

/// Returns whether an encoded identity has one part for each part of a key. A part that a request
/// lacks may have a stand-in.
pub(crate) fn fits(key: &[KeyPart], identity: &[u8]) -> bool {
    let mut parts = parts_of(identity);
    let fits = key.iter().all(|part| {
        let (kind, name) = kind_of(part);
        parts.next().is_some_and(|found| match found.hashed_kind() {
            ANONYMOUS | IPV4 | IPV6 => true,
            other => other == kind && found.name == name.as_bytes(),
        })
    });
    fits && parts.next().is_none()
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

/// Why values are not an identity of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Each part of the key needs one value.
    #[error("the key has {needed} part(s), the identity {given} value(s)")]
    WrongCount {
        /// Parts of the key.
        needed: usize,
        /// Values given.
        given: usize,
    },
    /// The part must be an address.
    #[error("`{0}` is not an IP address")]
    NoAddress(String),
    /// An empty value counts as missing, so no request ever has this identity.
    #[error("an identity must not be empty")]
    Empty,
    /// The stored identity has other parts than the rule's key, which has changed since.
    #[error("the rule counts by other parts now than this identity has")]
    OtherKey,
}

fn encode_text(part: &KeyPart, value: &[u8], out: &mut SubjectBytes) {
    let (kind, name) = kind_of(part);
    out.push(kind);
    if matches!(kind, HEADER | ATTRIBUTE) {
        encode_bytes(name, out);
        if kind == HEADER && *name == *AUTHORIZATION {
            return encode_bytes(&*counted_credentials(value), out);
        }
    }
    encode_bytes(value, out);
}

/// Returns the byte that says what a part is, and its name if it has one.
fn kind_of(part: &KeyPart) -> (u8, &str) {
    match part {
        KeyPart::User => (USER, ""),
        KeyPart::ApiKey => (API_KEY, ""),
        KeyPart::Method => (METHOD, ""),
        KeyPart::Path => (PATH, ""),
        KeyPart::Header(name) => (HEADER, name),
        KeyPart::Attribute(name) => (ATTRIBUTE, name),
        // Addresses have two kinds, and `encode_ip` encodes them.
        KeyPart::Ip => (ANONYMOUS, ""),
    }
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

/// Appends the subject of a limit that comes with the call. Its rule set has an empty
/// name, which no other has.
pub(crate) fn encode_ad_hoc(name: &str, values: &[&[u8]], out: &mut SubjectBytes) {
    encode_bytes("", out);
    encode_bytes(name, out);
    for value in values {
        out.push(AD_HOC);
        encode_bytes(value, out);
    }
}

/// Appends the subject of a limit that comes with a descriptor: its domain, and its entries as
/// attributes.
pub(crate) fn encode_descriptor<'e>(
    domain: &str,
    entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
    out: &mut SubjectBytes,
) {
    encode_ad_hoc(domain, &[], out);
    for (name, value) in entries {
        out.push(ATTRIBUTE);
        encode_bytes(name, out);
        encode_bytes(value, out);
    }
}

/// Returns the name of a limit that comes with the call.
pub(crate) fn ad_hoc_name(subject: &[u8]) -> &str {
    let mut decoder = Decoder(subject);
    let rule_set = decoder.text();
    rule_set.and_then(|_| decoder.text()).unwrap_or_default()
}

/// Formats an encoded identity for people: `user=ann`, `ip=10.0.0.1 path=/x`. Of API
/// keys only the ends are shown, and of a part that is hashed the first digits of the hash:
/// `api_key=#6e17b44ca66b`.
pub fn describe_identity(encoded: &[u8]) -> String {
    describe_identity_with(encoded, |part| {
        let (first, _) = part.hash()?.split_first_chunk::<6>()?;
        let [a, b, c, d, e, f] = first;
        Some(format!("#{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}"))
    })
}

/// Formats an encoded identity like [`describe_identity`]. `replace` returns what is shown in place
/// of the value of a part.
pub fn describe_identity_with(
    encoded: &[u8],
    replace: impl Fn(&IdentityPart<'_>) -> Option<String>,
) -> String {
    let parts: Vec<_> = parts_of(encoded)
        .map(|part| match replace(&part) {
            Some(value) if !part.is_anonymous() => format!("{}={value}", label_of(&part)),
            _ => describe(&part),
        })
        .collect();
    if parts.is_empty() {
        "(everyone)".into()
    } else {
        parts.join(" ")
    }
}

fn describe(part: &IdentityPart<'_>) -> String {
    let value = String::from_utf8_lossy(part.value);
    let value = match (part.kind, part.value) {
        (ANONYMOUS, _) => return "anonymous".into(),
        (IPV4, &[a, b, c, d]) => IpAddr::from([a, b, c, d]).to_string(),
        (IPV6, octets) => {
            let octets: [u8; 16] = octets.try_into().unwrap_or_default();
            Ipv6Addr::from(octets).to_string()
        }
        (API_KEY, _) => ends_of(&value),
        _ => value.into(),
    };
    format!("{}={value}", label_of(part))
}

/// Returns what a part is, as rules name it.
fn label_of(part: &IdentityPart<'_>) -> String {
    let name = String::from_utf8_lossy(part.name);
    match part.hashed_kind() {
        IPV4 | IPV6 => "ip".into(),
        USER => "user".into(),
        API_KEY => "api_key".into(),
        AD_HOC => "key".into(),
        METHOD => "method".into(),
        PATH => "path".into(),
        HEADER => format!("header:{name}"),
        ATTRIBUTE => format!("attr:{name}"),
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
