//! Encryption of what instances share with each other through the store.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use super::handle::derived_key;

/// The key that encrypts. `Debug` does not show it.
#[derive(Clone)]
pub(super) struct SealKey(LessSafeKey);

impl SealKey {
    /// Derives the key from a secret.
    pub(super) fn derive(secret: &[u8]) -> Self {
        let key = derived_key(secret, "fluxgate shared recordings");
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key);
        Self(LessSafeKey::new(key.expect("a key of 32 bytes is valid")))
    }

    /// Encrypts, and authenticates `about` as well. `None` if the system has no random numbers.
    pub(super) fn seal(&self, mut content: Vec<u8>, about: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        // Few are encrypted, so that no two random ones are the same.
        SystemRandom::new().fill(&mut nonce).ok()?;
        let unique = Nonce::assume_unique_for_key(nonce);
        let sealed = self
            .0
            .seal_in_place_append_tag(unique, Aad::from(about), &mut content);
        sealed.ok()?;
        Some([&nonce[..], &content].concat())
    }

    /// Decrypts what was encrypted with the same key and is about the same.
    pub(super) fn open(&self, sealed: &[u8], about: &[u8]) -> Option<Vec<u8>> {
        let (nonce, content) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut content = content.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(about), &mut content);
        opened.ok().map(|content| content.to_vec())
    }
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_deployment_reads_it() {
        let key = SealKey::derive(b"a secret");
        let sealed = key.seal(b"user=ann".to_vec(), b"1").unwrap();
        assert_eq!(key.open(&sealed, b"1").as_deref(), Some(&b"user=ann"[..]));
        assert!(!sealed.windows(3).any(|part| part == b"ann"));
        assert_eq!(key.open(&sealed, b"2"), None);
        assert_eq!(SealKey::derive(b"another").open(&sealed, b"1"), None);
        assert_eq!(key.open(&sealed[..20], b"1"), None);
        assert_ne!(key.seal(b"user=ann".to_vec(), b"1"), Some(sealed));
    }
}
