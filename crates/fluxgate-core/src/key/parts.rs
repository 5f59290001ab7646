//! Subjects and identities, taken apart again.

use super::{ANONYMOUS, API_KEY, ATTRIBUTE, HEADER, IPV4, IPV6, METHOD, OWN, PATH, RESETS, USER};
use crate::sip::Sip13;

/// One part of an encoded identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityPart<'a> {
    /// The byte that says what it is.
    pub kind: u8,
    /// The name of the header or attribute; empty for the others.
    pub name: &'a [u8],
    /// The text or the octets of the address; empty where one identity stands
    /// in for all whose part is missing.
    pub value: &'a [u8],
}

impl IdentityPart<'_> {
    /// Whether it stands for all whose part is missing.
    pub const fn is_anonymous(&self) -> bool {
        self.kind == ANONYMOUS
    }

    /// Whether it is an API key.
    pub const fn is_api_key(&self) -> bool {
        self.kind == API_KEY
    }

    /// Whether it is an address, in 4 or 16 octets.
    pub const fn is_address(&self) -> bool {
        matches!(self.kind, IPV4 | IPV6)
    }

    /// Whether it has a name.
    pub const fn is_named(&self) -> bool {
        matches!(self.kind, HEADER | ATTRIBUTE)
    }
}

/// A subject, taken apart.
#[derive(Clone, Debug)]
pub struct SubjectParts<'a> {
    /// What all subjects of the rule begin with.
    pub rule: &'a [u8],
    identity: Reader<'a>,
}

impl<'a> SubjectParts<'a> {
    /// Takes a subject apart, unless it was made elsewhere.
    pub(crate) fn read(subject: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(subject);
        reader.text()?;
        reader.text()?;
        if reader.0.first() == Some(&RESETS) {
            reader.take(1 + size_of::<u128>())?;
        }
        let rule = &subject[..subject.len() - reader.0.len()];
        let mut identity = reader.clone();
        while !identity.0.is_empty() {
            identity.part()?;
        }
        Some(Self {
            rule,
            identity: reader,
        })
    }

    /// A hash of the rule that is the same in every process.
    pub fn rule_hash(&self) -> u128 {
        Sip13::PUBLIC.hash(self.rule)
    }

    /// The parts of the identity.
    pub fn identity(&self) -> impl Iterator<Item = IdentityPart<'a>> {
        let mut reader = self.identity.clone();
        std::iter::from_fn(move || reader.part())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let mut length = [0; 8];
        length[..5].copy_from_slice(self.take(5)?);
        self.take(usize::try_from(u64::from_le_bytes(length)).ok()?)
    }

    fn text(&mut self) -> Option<&'a str> {
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
            OWN => self.bytes()?,
            // Nor need what Envoy sends.
            HEADER | ATTRIBUTE => {
                name = self.text()?.as_bytes();
                self.bytes()?
            }
            ANONYMOUS => &[],
            _ => return None,
        };
        Some(IdentityPart { kind, name, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyPart, SubjectBytes, encode_bytes, encode_values};

    fn subject(resets: bool) -> SubjectBytes {
        let mut subject = SubjectBytes::new();
        encode_bytes("set", &mut subject);
        encode_bytes("rule", &mut subject);
        if resets {
            subject.push(RESETS);
            subject.extend_from_slice(&[7; 16]);
        }
        subject
    }

    #[test]
    fn a_subject_comes_apart_as_it_was_put_together() {
        for resets in [false, true] {
            let mut bytes = subject(resets);
            let rule = bytes.len();
            let key = [
                KeyPart::Ip,
                KeyPart::ApiKey,
                KeyPart::Header("x-a".into()),
                KeyPart::Ip,
            ];
            let values = ["10.0.0.1", "secret", "b", "2001:db8::1"];
            encode_values(&key, &values, 64, &mut bytes).unwrap();
            let parts = SubjectParts::read(&bytes).unwrap();
            assert_eq!(parts.rule, &bytes[..rule]);
            let identity: Vec<_> = parts.identity().collect();
            assert_eq!(identity.len(), 4);
            assert!(identity[0].is_address() && identity[0].value == [10, 0, 0, 1]);
            assert!(identity[1].is_api_key() && identity[1].value == b"secret");
            assert!(identity[2].is_named() && identity[2].name == b"x-a");
            assert!(identity[3].is_address() && identity[3].value.len() == 16);
            // Anything less is no subject, or one of fewer parts.
            for end in 0..bytes.len() {
                let fewer = SubjectParts::read(&bytes[..end]);
                assert!(fewer.is_none_or(|fewer| fewer.identity().count() < 4));
            }
        }
    }

    #[test]
    fn what_no_rule_made_is_not_taken_apart() {
        for bytes in [&b""[..], b"somebody", &[0xff; 40]] {
            assert!(SubjectParts::read(bytes).is_none());
        }
    }
}
