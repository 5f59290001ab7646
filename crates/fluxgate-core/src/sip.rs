//! SipHash-1-3 with 128 bits: a keyed hash in which collisions cannot be
//! constructed without the key.
//!
//! The general crates accept their input in pieces. Here it is always one slice,
//! which needs fewer instructions for keys of a few dozen bytes.

/// SipHash-1-3 with a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sip13 {
    k0: u64,
    k1: u64,
}

/// The four words that are mixed.
#[derive(Clone, Copy)]
struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl Sip13 {
    pub(crate) const fn new(k0: u64, k1: u64) -> Self {
        Self { k0, k1 }
    }

    /// With a public key, for hashes that must be the same in every process.
    pub(crate) const PUBLIC: Self = Self::new(0, 0);

    #[inline]
    pub(crate) fn hash(&self, data: &[u8]) -> u128 {
        let mut state = State {
            v0: self.k0 ^ 0x736f_6d65_7073_6575,
            v1: self.k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            v2: self.k0 ^ 0x6c79_6765_6e65_7261,
            v3: self.k1 ^ 0x7465_6462_7974_6573,
        };
        let (words, tail) = data.as_chunks::<8>();
        for word in words {
            state.absorb(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        state.absorb(u64::from_le_bytes(last) | (data.len() as u64) << 56);
        state.v2 ^= 0xee;
        let low = state.finish();
        state.v1 ^= 0xdd;
        let high = state.finish();
        u128::from(high) << 64 | u128::from(low)
    }
}

impl State {
    #[inline]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    fn finish(&mut self) -> u64 {
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_siphash() {
        let data: Vec<u8> = (0..200_u8).map(|byte| byte.wrapping_mul(37)).collect();
        for length in 0..data.len() {
            for (k0, k1) in [(0, 0), (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908)] {
                let theirs = siphasher::sip128::SipHasher13::new_with_keys(k0, k1);
                let theirs = theirs.hash(&data[..length]);
                let ours = Sip13::new(k0, k1).hash(&data[..length]);
                assert_eq!(ours, theirs.as_u128(), "{length} bytes");
            }
        }
    }
}
