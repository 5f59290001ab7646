//! Identities that are not to be read in the store: a keyed hash stands there.
//!
//! HMAC-SHA-256, cut to 128 bits: without the secret nobody can tell which API
//! key a name stands for, not even by trying those he knows. All instances
//! share the secret, or they would count apart.

use std::fmt;

use fluxgate_core::IdentityPart;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The bytes of a hashed part.
pub(crate) const HASH_BYTES: usize = 16;

/// Which parts of identities are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashKeys {
    /// API keys.
    #[default]
    ApiKeys,
    /// Every part.
    All,
    /// None.
    None,
}

/// The secret that all instances share. It is never shown.
#[derive(Clone)]
pub struct HashSecret(Hmac<Sha256>);

impl HashSecret {
    /// From bytes of any length; 32 random ones are best.
    pub fn new(secret: &[u8]) -> Self {
        let keyed = Hmac::new_from_slice(secret);
        Self(keyed.expect("HMAC takes keys of any length"))
    }
}

impl fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSecret(..)")
    }
}

/// Hashes the parts that are to be hashed.
#[derive(Clone, Debug)]
pub(crate) struct IdentityHash {
    which: HashKeys,
    secret: HashSecret,
}

impl IdentityHash {
    pub(crate) fn new(which: HashKeys, secret: HashSecret) -> Self {
        Self { which, secret }
    }

    /// What stands for a part, if it is to be hashed. Kind, name and value go in
    /// with their lengths, so that no two parts meet.
    pub(crate) fn of(&self, part: &IdentityPart<'_>) -> Option<[u8; HASH_BYTES]> {
        let hashes = match self.which {
            HashKeys::ApiKeys => part.is_api_key(),
            HashKeys::All => !part.is_anonymous(),
            HashKeys::None => false,
        };
        if !hashes {
            return None;
        }
        let mut mac = self.secret.0.clone();
        mac.update(&[part.kind]);
        mac.update(&(part.name.len() as u64).to_le_bytes());
        mac.update(part.name);
        mac.update(part.value);
        let hash = mac.finalize().into_bytes();
        let mut cut = [0; HASH_BYTES];
        cut.copy_from_slice(&hash[..HASH_BYTES]);
        Some(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(which: HashKeys, kind: u8, name: &str, value: &str) -> Option<[u8; HASH_BYTES]> {
        let part = IdentityPart {
            kind,
            name: name.as_bytes(),
            value: value.as_bytes(),
        };
        IdentityHash::new(which, HashSecret::new(b"a secret")).of(&part)
    }

    /// Two releases that hash differently would count apart.
    #[test]
    fn the_hash_never_changes() {
        let hex = |hash: Option<[u8; HASH_BYTES]>| -> String {
            let hash = hash.unwrap_or_default();
            hash.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        assert_eq!(
            hex(hash(HashKeys::ApiKeys, b'k', "", "key-1")),
            "6e17b44ca66b9992f067ec5d25ab6240"
        );
        assert_eq!(
            hex(hash(HashKeys::All, b'h', "x-tenant", "acme")),
            "739fc33458ff8dc9969d30dfde1ab7d1"
        );
    }

    #[test]
    fn only_what_is_asked_for_is_hashed() {
        for (which, user, api_key) in [
            (HashKeys::None, false, false),
            (HashKeys::ApiKeys, false, true),
            (HashKeys::All, true, true),
        ] {
            assert_eq!(hash(which, b'u', "", "ann").is_some(), user);
            assert_eq!(hash(which, b'k', "", "ann").is_some(), api_key);
        }
    }

    #[test]
    fn parts_that_differ_in_anything_have_other_hashes() {
        let all = |kind, name, value| hash(HashKeys::All, kind, name, value);
        let hashes = [
            all(b'u', "", "ann"),
            all(b'k', "", "ann"),
            all(b'h', "a", "nn"),
            all(b'h', "an", "n"),
            all(b'a', "a", "nn"),
        ];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash));
        }
        let other = IdentityHash::new(HashKeys::All, HashSecret::new(b"another"));
        let part = IdentityPart {
            kind: b'u',
            name: b"",
            value: b"ann",
        };
        assert_ne!(other.of(&part), hashes[0]);
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?}", HashSecret::new(b"hush"));
        assert_eq!(shown, "HashSecret(..)");
    }
}
