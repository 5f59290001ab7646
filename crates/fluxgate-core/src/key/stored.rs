//! Identities in the form in which a store keeps them.

use super::encoding::{Decoder, IdentityPart, PartHash, encode_bytes, encode_hashed};
use super::subject_bytes::SubjectBytes;
use crate::sip::public_hash;

/// The number of places that the identities of a rule are spread over.
const PLACES: u16 = 10_000;
/// The first byte of an identity without hashed parts.
const CLEAR: u8 = 0;
/// The first byte of an identity with hashed parts, whose place follows.
const HASHED: u8 = 1;

/// An identity of a rule in the form in which the store keeps it: parts that the store hashes
/// ([`Store::hash_part`](crate::Store::hash_part)) are hashed.
///
/// It finds the state of an identity whose values are no longer known, such as an API key:
/// [`Limiter::state_of`](crate::Limiter::state_of), [`Limiter::refund_of`](crate::Limiter::refund_of),
/// [`Limiter::reset_of`](crate::Limiter::reset_of) and
/// [`Limiter::explain_identity`](crate::Limiter::explain_identity) take it in place of values.
///
/// ```
/// use fluxgate_core::{IdentityRef, Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::new("per-user").per_user().band(Quota::per_day(10));
/// let limiter = Limiter::new(RuleSet::builder("api").rule(rule).build()?, MemoryStore::default());
/// let ann = RequestContext::builder().user("ann").build();
/// assert!(limiter.check("api", &ann).await.allowed());
///
/// let rules = limiter.rules();
/// let set = rules.get("api").unwrap();
/// let identity = set.identity_of(&set.rules()[0], &ann).unwrap();
/// let stored = limiter.stored_identity("api", "per-user", &identity);
/// let state = limiter.state_of("api", "per-user", IdentityRef::Stored(&stored)).await?;
/// assert_eq!(state[0].remaining, 9);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoredIdentity {
    /// Encoded.
    bytes: Box<[u8]>,
    /// The identity's place in the rollout of its rule, which a hash no longer tells. `None` if no
    /// part is hashed.
    place: Option<u16>,
}

impl StoredIdentity {
    /// Creates it from the encoded identity of a rule. `hash` returns the hash of a part that the
    /// store hashes.
    pub fn new(
        rule_set: &str,
        rule: &str,
        identity: &[u8],
        hash: impl Fn(&IdentityPart<'_>) -> Option<PartHash>,
    ) -> Self {
        let hashes: Vec<_> = parts_of(identity).map(|part| hash(&part)).collect();
        if hashes.iter().all(Option::is_none) {
            return Self {
                bytes: identity.into(),
                place: None,
            };
        }
        let mut bytes = SubjectBytes::new();
        let mut rest = identity;
        let mut decoder = Decoder(identity);
        for hash in hashes {
            let Some(part) = decoder.part() else { break };
            let (encoded, behind) = rest.split_at(rest.len() - decoder.0.len());
            rest = behind;
            match hash {
                Some(hash) => encode_hashed(&part, &hash, &mut bytes),
                None => bytes.extend_from_slice(encoded),
            }
        }
        Self {
            bytes: (*bytes).into(),
            place: Some(place_of_identity(rule_set, rule, identity)),
        }
    }

    /// Returns the encoded identity. [`describe_identity`](super::describe_identity) formats it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns its parts.
    pub fn parts(&self) -> impl Iterator<Item = IdentityPart<'_>> {
        parts_of(&self.bytes)
    }

    /// Returns bytes from which [`StoredIdentity::from_bytes`] makes the same identity.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(3 + self.bytes.len());
        match self.place {
            None => bytes.push(CLEAR),
            Some(place) => {
                bytes.push(HASHED);
                bytes.extend_from_slice(&place.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&self.bytes);
        bytes
    }

    /// Returns the identity that [`StoredIdentity::to_bytes`] made these bytes of; `None` if it
    /// made none like them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (place, identity) = match bytes {
            [CLEAR, identity @ ..] => (None, identity),
            [HASHED, low, high, identity @ ..] => {
                let place = u16::from_le_bytes([*low, *high]);
                if place >= PLACES {
                    return None;
                }
                (Some(place), identity)
            }
            _ => return None,
        };
        let mut decoder = Decoder(identity);
        let mut is_hashed = false;
        while !decoder.0.is_empty() {
            is_hashed |= decoder.part()?.hash().is_some();
        }
        (is_hashed == place.is_some()).then(|| Self {
            bytes: identity.into(),
            place,
        })
    }

    /// Returns its place in the rollout of its rule, if a part is hashed.
    pub(crate) fn place(&self) -> Option<u16> {
        self.place
    }
}

/// An identity of a rule: the values of the parts of its key in order, or the form in which the
/// store keeps it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum IdentityRef<'a> {
    /// The values.
    Values(&'a [&'a str]),
    /// As the store keeps it.
    Stored(&'a StoredIdentity),
}

/// Returns the parts of an encoded identity.
pub fn parts_of(identity: &[u8]) -> impl Iterator<Item = IdentityPart<'_>> {
    let mut decoder = Decoder(identity);
    std::iter::from_fn(move || decoder.part())
}

/// Returns the place of a subject among 10,000, which is the same in every process and release.
pub(crate) fn place_of(subject: &[u8]) -> u16 {
    let hash = public_hash(subject) as u64;
    // Below `PLACES`.
    ((u128::from(hash) * u128::from(PLACES)) >> u64::BITS) as u16
}

/// Returns the place of an encoded identity of a rule.
fn place_of_identity(rule_set: &str, rule: &str, identity: &[u8]) -> u16 {
    let mut subject = SubjectBytes::new();
    encode_bytes(rule_set, &mut subject);
    encode_bytes(rule, &mut subject);
    subject.extend_from_slice(identity);
    place_of(&subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyPart, describe_identity, encode_values};

    fn identity(values: &[(KeyPart, &str)]) -> SubjectBytes {
        let mut bytes = SubjectBytes::new();
        for (part, value) in values {
            let part = std::slice::from_ref(part);
            encode_values(part, &[value], 64, &mut bytes).unwrap();
        }
        bytes
    }

    fn hash_keys(part: &IdentityPart<'_>) -> Option<PartHash> {
        part.is_api_key().then_some([0xab; 16])
    }

    #[test]
    fn only_the_selected_parts_are_hashed() {
        let header = KeyPart::Header("x-tenant".into());
        let values = [
            (KeyPart::User, "ann"),
            (KeyPart::ApiKey, "secret-key-1"),
            (header, "acme"),
            (KeyPart::Ip, "2001:db8::1"),
        ];
        let identity = identity(&values);
        let stored = StoredIdentity::new("s", "r", &identity, hash_keys);
        assert_eq!(
            describe_identity(stored.as_bytes()),
            "user=ann api_key=#abababababab header:x-tenant=acme ip=2001:db8::"
        );
        let parts: Vec<_> = stored.parts().collect();
        assert_eq!(parts.len(), 4);
        assert_eq!(parts[1].hash(), Some(&[0xab; 16]));
        assert!(stored.place().is_some());
        let clear = StoredIdentity::new("s", "r", &identity, |_| None);
        assert_eq!((clear.as_bytes(), clear.place()), (&*identity, None));
        let all = StoredIdentity::new("s", "r", &identity, |_| Some([7; 16]));
        assert_eq!(
            describe_identity(all.as_bytes()),
            "user=#070707070707 api_key=#070707070707 header:x-tenant=#070707070707 \
             ip=#070707070707"
        );
    }

    #[test]
    fn bytes_make_the_same_identity_or_none() {
        let identity = identity(&[(KeyPart::User, "ann"), (KeyPart::ApiKey, "secret-key-1")]);
        for stored in [
            StoredIdentity::new("s", "r", &identity, hash_keys),
            StoredIdentity::new("s", "r", &identity, |_| None),
            StoredIdentity::new("s", "r", &[], |_| None),
        ] {
            let bytes = stored.to_bytes();
            assert_eq!(StoredIdentity::from_bytes(&bytes), Some(stored.clone()));
            for end in 1..bytes.len() {
                let shorter = StoredIdentity::from_bytes(&bytes[..end]);
                assert_ne!(shorter, Some(stored.clone()), "{end}");
            }
        }
        for bad in [
            &b""[..],
            &[2],
            &[HASHED, 0, 0],
            &[HASHED, 0xff, 0xff],
            b"\0x",
        ] {
            assert_eq!(StoredIdentity::from_bytes(bad), None, "{bad:?}");
        }
    }
}
