//! A hash that is the same in every process.

use siphasher::sip128::SipHasher13;

/// Returns the SipHash-1-3 of these bytes, with a public key.
pub(crate) fn public_hash(bytes: &[u8]) -> u128 {
    SipHasher13::new_with_keys(0, 0).hash(bytes).as_u128()
}
