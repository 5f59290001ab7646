//! Random numbers.
//!
//! All random choices of this crate and of `fluxgate-redis` are drawn here, so that a simulation
//! can repeat them.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;

/// Returns a random number that other processes cannot guess.
pub fn word() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(word) = crate::simulation::next_word() {
        return word;
    }
    RandomState::new().hash_one(0)
}

/// Returns random bytes of the operating system, fit for a secret.
///
/// # Panics
/// If the operating system provides none.
pub(crate) fn secret() -> [u8; 16] {
    #[cfg(feature = "simulation")]
    if let (Some(low), Some(high)) = (
        crate::simulation::next_word(),
        crate::simulation::next_word(),
    ) {
        return (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
    bytes
}

/// Hashes with SipHash-1-3 and a random key, like the `RandomState` of the standard library, whose
/// key no simulation could repeat.
#[derive(Clone, Debug)]
pub struct KeyedHash {
    key: (u64, u64),
}

impl KeyedHash {
    /// Draws a key.
    pub fn random() -> Self {
        Self {
            key: (word(), word()),
        }
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.key.0, self.key.1)
    }
}
