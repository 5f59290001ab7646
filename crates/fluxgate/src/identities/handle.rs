//! Handles: texts that refer to an identity of a rule without naming it.
//!
//! A handle is the rule set, the rule and the identity as the store keeps it, encrypted and
//! authenticated with a secret of the deployment. The encryption is deterministic: all instances give
//! the same identity the same handle, which therefore serves as a key of records, too. The nonce is a
//! keyed hash of the content, so two contents never share one.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use fluxgate_core::StoredIdentity;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

/// The version of the form of handles, which is their first byte.
const VERSION: u8 = 1;
/// A larger identity has no handle. Clients choose identities, and handles are stored.
const MAX_IDENTITY: usize = 1024;
/// Contents are padded to a multiple of this size, so that a handle tells little of their size.
const BLOCK: usize = 16;
/// The first byte of the padding; the others are 0.
const PAD: u8 = 0x80;

/// What a handle refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandleTarget {
    /// Empty for a limit that comes with the call.
    pub(crate) rule_set: String,
    pub(crate) rule: String,
    pub(crate) identity: StoredIdentity,
}

/// Why a text is not a handle of this deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandleError {
    #[error("this is not a handle; calls that list identities give one for each")]
    Malformed,
    #[error(
        "this handle is not of this deployment, or was made before its secret changed; look the \
         identity up again"
    )]
    Foreign,
    /// The secret is not known yet.
    #[error("handles are not known before the store has answered; try again")]
    NotReady,
}

/// The keys that make and open handles. `Debug` does not show them.
#[derive(Clone)]
pub(super) struct HandleKeys {
    seal: LessSafeKey,
    nonce: hmac::Key,
}

impl HandleKeys {
    /// Derives the keys from a secret.
    pub(super) fn derive(secret: &[u8]) -> Self {
        let seal = derived_key(secret, "fluxgate handle seal");
        let seal = UnboundKey::new(&CHACHA20_POLY1305, &seal);
        Self {
            seal: LessSafeKey::new(seal.expect("a key of 32 bytes is valid")),
            nonce: hmac::Key::new(
                hmac::HMAC_SHA256,
                &derived_key(secret, "fluxgate handle nonce"),
            ),
        }
    }

    /// Returns the handle of an identity of a rule; `None` if it is too large.
    pub(super) fn seal(
        &self,
        rule_set: &str,
        rule: &str,
        identity: &StoredIdentity,
    ) -> Option<String> {
        let identity = identity.to_bytes();
        if identity.len() > MAX_IDENTITY {
            return None;
        }
        let mut content =
            Vec::with_capacity(2 * BLOCK + rule_set.len() + rule.len() + identity.len());
        for name in [rule_set, rule] {
            content.push(u8::try_from(name.len()).ok()?);
            content.extend_from_slice(name.as_bytes());
        }
        content.extend_from_slice(&identity);
        content.push(PAD);
        content.resize(content.len().next_multiple_of(BLOCK), 0);
        let nonce = self.nonce_of(&content);
        let sealed = self.seal.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from([VERSION]),
            &mut content,
        );
        sealed.ok()?;
        let handle = [&[VERSION][..], &nonce, &content].concat();
        Some(BASE64_URL_SAFE_NO_PAD.encode(handle))
    }

    /// Returns what a handle refers to.
    pub(super) fn open(&self, handle: &str) -> Result<HandleTarget, HandleError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(handle);
        let mut bytes = bytes.map_err(|_| HandleError::Malformed)?;
        let Some(([VERSION, nonce @ ..], content)) =
            bytes.split_first_chunk_mut::<{ 1 + NONCE_LEN }>()
        else {
            return Err(HandleError::Malformed);
        };
        if content.len() < CHACHA20_POLY1305.tag_len() {
            return Err(HandleError::Malformed);
        }
        let content = self.seal.open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from([VERSION]),
            content,
        );
        let content = content.map_err(|_| HandleError::Foreign)?;
        read_content(content).ok_or(HandleError::Malformed)
    }

    fn nonce_of(&self, content: &[u8]) -> [u8; NONCE_LEN] {
        let tag = hmac::sign(&self.nonce, content);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&tag.as_ref()[..NONCE_LEN]);
        nonce
    }
}

impl std::fmt::Debug for HandleKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandleKeys(..)")
    }
}

/// Returns a key for one purpose, derived from a secret.
pub(super) fn derived_key(secret: &[u8], purpose: &str) -> [u8; 32] {
    let tag = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, secret),
        purpose.as_bytes(),
    );
    let mut key = [0; 32];
    key.copy_from_slice(tag.as_ref());
    key
}

fn read_content(content: &[u8]) -> Option<HandleTarget> {
    let padding = content.iter().rposition(|byte| *byte != 0)?;
    let (mut rest, padding) = content.split_at(padding);
    if padding.first() != Some(&PAD) {
        return None;
    }
    let mut name = || {
        let (length, behind) = rest.split_first()?;
        let (name, behind) = behind.split_at_checked((*length).into())?;
        rest = behind;
        String::from_utf8(name.to_vec()).ok()
    };
    let (rule_set, rule) = (name()?, name()?);
    Some(HandleTarget {
        rule_set,
        rule,
        identity: StoredIdentity::from_bytes(rest)?,
    })
}

#[cfg(test)]
mod tests {
    use fluxgate_core::KeyPart;
    use fluxgate_core::key::encoded_identity;

    use super::*;

    fn identity(user: &str) -> StoredIdentity {
        let bytes = encoded_identity(&[KeyPart::User], &[user], 64).unwrap();
        StoredIdentity::new("api", "per-user", &bytes, |_| None)
    }

    #[test]
    fn a_handle_refers_to_what_it_was_made_of() {
        let keys = HandleKeys::derive(b"a secret");
        for user in ["ann", "a", &"x".repeat(900)] {
            let handle = keys.seal("api", "per-user", &identity(user)).unwrap();
            assert_eq!(
                keys.seal("api", "per-user", &identity(user)),
                Some(handle.clone())
            );
            assert_eq!(
                keys.open(&handle),
                Ok(HandleTarget {
                    rule_set: "api".into(),
                    rule: "per-user".into(),
                    identity: identity(user),
                })
            );
            let is_safe = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
            assert!(handle.chars().all(is_safe), "{handle}");
        }
        assert_eq!(
            keys.seal("api", "per-user", &identity(&"x".repeat(1024))),
            None
        );
        let one = keys.seal("api", "per-user", &identity("ann")).unwrap();
        assert_ne!(
            keys.seal("api", "per-use", &identity("ann")),
            Some(one.clone())
        );
        // Names of about the same length cannot be told apart by the length.
        assert_eq!(
            keys.seal("api", "per-user", &identity("barbara"))
                .unwrap()
                .len(),
            one.len()
        );
    }

    #[test]
    fn a_changed_or_foreign_handle_is_refused() {
        let keys = HandleKeys::derive(b"a secret");
        let handle = keys.seal("api", "per-user", &identity("ann")).unwrap();
        let other = HandleKeys::derive(b"another secret");
        assert_eq!(other.open(&handle), Err(HandleError::Foreign));
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&handle).unwrap();
        for at in 1..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = BASE64_URL_SAFE_NO_PAD.encode(changed);
            assert_eq!(keys.open(&changed), Err(HandleError::Foreign), "{at}");
        }
        for bad in [
            "",
            "~0123456789ab",
            "ann",
            "user=ann",
            "AQ",
            &handle[..20],
            &"A".repeat(80),
        ] {
            assert_eq!(keys.open(bad), Err(HandleError::Malformed), "{bad}");
        }
    }
}
