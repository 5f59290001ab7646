//! The encoding of subjects, in which no two collide.
//!
//! One byte before each part says what it is, so the user `1.2.3.4` is not the
//! address 1.2.3.4; lengths keep the parts apart.

use std::borrow::Cow;

use super::subject_bytes::SubjectBytes;

pub(super) const IPV4: u8 = b'4';
pub(super) const IPV6: u8 = b'6';
pub(super) const USER: u8 = b'u';
pub(super) const API_KEY: u8 = b'k';
pub(super) const METHOD: u8 = b'm';
pub(super) const PATH: u8 = b'p';
pub(super) const HEADER: u8 = b'h';
pub(super) const ATTRIBUTE: u8 = b'a';
pub(super) const ANONYMOUS: u8 = b'-';
/// A value of a limit that comes with the call.
pub(super) const AD_HOC: u8 = b'o';
/// A part that the store keeps as a hash: its own kind and the hash.
pub(super) const HASHED: u8 = b'#';
/// Precedes the hash of a rule that resets on change.
pub(crate) const RESETS: u8 = b'!';

/// Appends a text with its length.
pub(crate) fn encode_bytes(text: impl AsRef<[u8]>, out: &mut SubjectBytes) {
    let text = text.as_ref();
    out.extend_from_slice(&encoded_length(text));
    out.extend_from_slice(text);
}

/// Appends a part of which the store keeps a hash.
pub(super) fn encode_hashed(part: &IdentityPart<'_>, hash: &PartHash, out: &mut SubjectBytes) {
    out.push(HASHED);
    encode_bytes(part.name, out);
    out.push(part.kind);
    out.extend_from_slice(hash);
}

/// Returns the length of a text. No text in memory is longer than five bytes can tell.
#[inline]
fn encoded_length(text: &[u8]) -> [u8; 5] {
    let [a, b, c, d, e, ..] = (text.len() as u64).to_le_bytes();
    [a, b, c, d, e]
}

/// The hash that a store keeps in place of a part of an identity.
pub type PartHash = [u8; 16];

/// One part of an encoded identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityPart<'a> {
    /// The byte that says what it is.
    pub kind: u8,
    /// The name of the header or attribute; empty for the others.
    pub name: &'a [u8],
    /// The text or the octets of the address; empty if the part is anonymous.
    pub value: &'a [u8],
}

impl<'a> IdentityPart<'a> {
    /// Returns a key or a value of the identity of a limit that comes with the call.
    pub const fn of_call(value: &'a [u8]) -> Self {
        Self {
            kind: AD_HOC,
            name: &[],
            value,
        }
    }

    /// Returns whether it stands for all requests that lack this part.
    pub const fn is_anonymous(&self) -> bool {
        self.kind == ANONYMOUS
    }

    /// Returns whether it is an API key.
    pub const fn is_api_key(&self) -> bool {
        self.kind == API_KEY
    }

    /// Returns whether it is an address, in 4 or 16 octets.
    pub const fn is_address(&self) -> bool {
        matches!(self.kind, IPV4 | IPV6)
    }

    /// Returns whether it has a name.
    pub const fn is_named(&self) -> bool {
        matches!(self.kind, HEADER | ATTRIBUTE)
    }

    /// Returns its hash, if that is all that is known of it.
    pub fn hash(&self) -> Option<&'a PartHash> {
        let (_, hash) = self.value.split_first()?;
        hash.try_into().ok().filter(|_| self.kind == HASHED)
    }

    /// Returns the byte that says what was hashed, or [`IdentityPart::kind`] if it is not hashed.
    pub fn hashed_kind(&self) -> u8 {
        match self.value.first() {
            Some(kind) if self.kind == HASHED => *kind,
            _ => self.kind,
        }
    }
}

/// Decodes a subject.
#[derive(Clone, Debug)]
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let mut length = [0; 8];
        length[..5].copy_from_slice(self.take(5)?);
        self.take(usize::try_from(u64::from_le_bytes(length)).ok()?)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn part(&mut self) -> Option<IdentityPart<'a>> {
        let kind = self.take(1)?[0];
        let mut name = &[][..];
        let value = match kind {
            IPV4 => self.take(4)?,
            IPV6 => self.take(16)?,
            USER | API_KEY | METHOD | PATH => self.text()?.as_bytes(),
            // A key of the Redis protocol need not be text.
            AD_HOC => self.bytes()?,
            // Nor need a descriptor of Envoy.
            HEADER | ATTRIBUTE => {
                name = self.text()?.as_bytes();
                self.bytes()?
            }
            ANONYMOUS => &[],
            HASHED => {
                name = self.text()?.as_bytes();
                self.take(1 + size_of::<PartHash>())?
            }
            _ => return None,
        };
        Some(IdentityPart { kind, name, value })
    }
}

/// The name of the header, in lower case.
pub const AUTHORIZATION: &str = "authorization";

/// Returns credentials with their scheme in lower case and one space behind it, because servers
/// read `bearer  x` as `Bearer x`. A value without white space has no scheme, and stays as it is.
///
/// ```
/// use fluxgate_core::key::counted_credentials;
///
/// assert_eq!(*counted_credentials(b"BEARER \t aB"), *b"bearer aB");
/// assert_eq!(*counted_credentials(b"Token-Only"), *b"Token-Only");
/// ```
pub fn counted_credentials(value: &[u8]) -> Cow<'_, [u8]> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(end) = value.iter().position(is_space) else {
        return Cow::Borrowed(value);
    };
    let (scheme, rest) = value.split_at(end);
    let credentials = rest.trim_ascii_start();
    let is_counted = !scheme.iter().any(u8::is_ascii_uppercase)
        && rest.len() == credentials.len() + 1
        && rest.starts_with(b" ");
    if is_counted {
        return Cow::Borrowed(value);
    }
    let mut counted = scheme.to_ascii_lowercase();
    counted.push(b' ');
    counted.extend_from_slice(credentials);
    Cow::Owned(counted)
}
