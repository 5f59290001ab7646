//! Replaces parts of identities in the names of keys by a keyed hash.
//!
//! The hash is HMAC-SHA-256, truncated to 128 bits. Without the secret, an API key can neither
//! be read from a name nor be confirmed by a guess. Instances must have the same secret to share
//! counters.

use std::fmt;

use fluxgate_core::key::{IdentityPart, PartHash};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

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

/// The secret that all instances share. `Debug` does not show it.
#[derive(Clone)]
pub struct HashSecret(Hmac<Sha256>);

impl HashSecret {
    /// Creates a secret from bytes of any length; 32 random bytes are best.
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

/// Hashes the selected parts of identities.
#[derive(Clone, Debug)]
pub(crate) struct IdentityHash {
    which: HashKeys,
    secret: HashSecret,
}

impl IdentityHash {
    pub(crate) fn new(which: HashKeys, secret: HashSecret) -> Self {
        Self { which, secret }
    }

    /// Returns the hash of a part, if it is selected. The input has the kind, the length of the
    /// name, the name and the value, so that different parts have different input.
    pub(crate) fn hash(&self, part: &IdentityPart<'_>) -> Option<PartHash> {
        let is_selected = match self.which {
            HashKeys::ApiKeys => part.is_api_key(),
            HashKeys::All => !part.is_anonymous(),
            HashKeys::None => false,
        };
        if !is_selected {
            return None;
        }
        let mut mac = self.secret.0.clone();
        mac.update(&[part.kind]);
        mac.update(&(part.name.len() as u64).to_le_bytes());
        mac.update(part.name);
        mac.update(part.value);
        mac.finalize().into_bytes().first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(which: HashKeys, kind: u8, name: &str, value: &str) -> Option<PartHash> {
        let part = IdentityPart {
            kind,
            name: name.as_bytes(),
            value: value.as_bytes(),
        };
        IdentityHash::new(which, HashSecret::new(b"a secret")).hash(&part)
    }

    /// Releases that hash differently would not share counters.
    #[test]
    fn the_hash_never_changes() {
        let hex = |hash: Option<PartHash>| -> String {
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
    fn only_selected_parts_are_hashed() {
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
    fn different_parts_have_different_hashes() {
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
        assert_ne!(other.hash(&part), hashes[0]);
    }

    #[test]
    fn debug_does_not_show_the_secret() {
        let shown = format!("{:?}", HashSecret::new(b"hush"));
        assert_eq!(shown, "HashSecret(..)");
    }
}
