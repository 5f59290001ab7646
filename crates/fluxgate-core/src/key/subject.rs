//! A rule and an identity: the subject that a store counts.

use std::sync::{LazyLock, Mutex, PoisonError};

use foldhash::HashMap;

use super::encoding::{Decoder, IdentityPart, RESETS};
use crate::sip::public_hash;

/// A rule and an identity, whatever the band. All bands of one subject are stored
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The rule's number in this process.
    pub rule: RuleNumber,
    /// The rule and the identity, encoded so that no two subjects collide.
    pub bytes: &'a [u8],
}

impl<'a> Subject<'a> {
    /// Splits it into rule and identity. Returns `None` if no rule made these bytes.
    pub fn parts(&self) -> Option<SubjectParts<'a>> {
        SubjectParts::decode(self.bytes)
    }
}

/// A number that identifies a rule, by its set and id, as long as the process runs.
///
/// A store that keeps no identities can still find the entries of a rule by it. It is
/// a number and not a hash, so no two rules collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleNumber(u32);

impl RuleNumber {
    /// The number of bits.
    pub const BITS: u32 = 20;

    /// For limits that belong to no rule.
    pub const NONE: Self = Self(0);

    /// Returns the number itself.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of the rule whose subjects start with `prefix`, or `None` once
    /// the process has seen a million rules.
    pub(crate) fn of(prefix: &[u8]) -> Option<Self> {
        static NUMBERS: LazyLock<Mutex<HashMap<Box<[u8]>, u32>>> = LazyLock::new(Default::default);
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(prefix) {
            return Some(Self(*number));
        }
        let next = Self::at(numbers.len())?;
        numbers.insert(prefix.into(), next.0);
        Some(next)
    }

    /// Returns the number at an index, or `None` after a million.
    pub(crate) fn at(index: usize) -> Option<Self> {
        let number = u32::try_from(index).ok()?.checked_add(1)?;
        (number >> Self::BITS == 0).then_some(Self(number))
    }
}

/// A decoded subject.
#[derive(Clone, Debug)]
pub struct SubjectParts<'a> {
    /// The bytes with which all subjects of the rule begin.
    pub rule: &'a [u8],
    identity: Decoder<'a>,
}

impl<'a> SubjectParts<'a> {
    fn decode(subject: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder(subject);
        decoder.text()?;
        decoder.text()?;
        if decoder.0.first() == Some(&RESETS) {
            decoder.take(1 + size_of::<u128>())?;
        }
        let rule = &subject[..subject.len() - decoder.0.len()];
        let mut identity = decoder.clone();
        while !identity.0.is_empty() {
            identity.part()?;
        }
        Some(Self {
            rule,
            identity: decoder,
        })
    }

    /// Returns a hash of the rule that is the same in every process.
    pub fn rule_hash(&self) -> u128 {
        public_hash(self.rule)
    }

    /// Returns the parts of the identity.
    pub fn identity(&self) -> impl Iterator<Item = IdentityPart<'a>> {
        let mut decoder = self.identity.clone();
        std::iter::from_fn(move || decoder.part())
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
    fn a_subject_decodes_to_the_parts_it_was_encoded_from() {
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
            let parts = SubjectParts::decode(&bytes).unwrap();
            assert_eq!(parts.rule, &bytes[..rule]);
            let identity: Vec<_> = parts.identity().collect();
            assert_eq!(identity.len(), 4);
            assert!(identity[0].is_address() && identity[0].value == [10, 0, 0, 1]);
            assert!(identity[1].is_api_key() && identity[1].value == b"secret");
            assert!(identity[2].is_named() && identity[2].name == b"x-a");
            assert!(identity[3].is_address() && identity[3].value.len() == 16);
            // A prefix is not a subject, or one with fewer parts.
            for end in 0..bytes.len() {
                let fewer = SubjectParts::decode(&bytes[..end]);
                assert!(fewer.is_none_or(|fewer| fewer.identity().count() < 4));
            }
        }
    }

    #[test]
    fn bytes_that_no_rule_made_do_not_decode() {
        for bytes in [&b""[..], b"a name", &[0xff; 40]] {
            assert!(SubjectParts::decode(bytes).is_none());
        }
    }
}
