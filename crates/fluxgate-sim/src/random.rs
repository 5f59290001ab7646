//! Deterministic random numbers.

/// A generator of random numbers (SplitMix64). Equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `count`, or 0 if that is 0.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        // The upper half of a product of two words fits into a word.
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }

    /// Returns a number from `least` to `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns a number from −`most` to `most`.
    pub(crate) fn around_zero(&mut self, most: u32) -> i64 {
        i64::from(most) - self.below(2 * u64::from(most) + 1) as i64
    }

    /// Returns `true` in `in_10_000` of 10,000 cases.
    pub(crate) fn chance(&mut self, in_10_000: u32) -> bool {
        in_10_000 > 0 && self.below(10_000) < u64::from(in_10_000)
    }
}

/// Draws keys by Zipf's law: the n-th key is drawn with a probability in proportion to 1/n.
///
/// Uses the alias method: each key has a bin, and all bins weigh the same. A key that weighs
/// less than a bin shares it with one that weighs more.
#[derive(Debug)]
pub(crate) struct Zipf {
    /// The weight that each key has in its own bin, and the key that has the rest.
    bins: Vec<(u64, u32)>,
    /// The weight of a bin.
    bin: u64,
}

impl Zipf {
    pub(crate) fn new(keys: u32) -> Self {
        const FIRST: u64 = 1 << 40;
        let count = u64::from(keys);
        let bin = (1..=count).map(|rank| FIRST / rank).sum();
        // Times the number of keys, so that a bin weighs as much as all keys did.
        let mut weights: Vec<u128> = (1..=count)
            .map(|rank| u128::from(FIRST / rank) * u128::from(count))
            .collect();
        let is_light = |weight: u128| weight < u128::from(bin);
        let (mut light, mut heavy): (Vec<u32>, Vec<u32>) =
            (0..keys).partition(|key| is_light(weights[*key as usize]));
        let mut bins: Vec<_> = (0..keys).map(|key| (bin, key)).collect();
        while let (Some(small), Some(large)) = (light.pop(), heavy.last().copied()) {
            let own = weights[small as usize];
            // Less than a bin.
            bins[small as usize] = (own as u64, large);
            let left = &mut weights[large as usize];
            *left -= u128::from(bin) - own;
            if is_light(*left) {
                heavy.pop();
                light.push(large);
            }
        }
        Self { bins, bin }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        // Below the number of keys.
        let key = random.below(self.bins.len() as u64) as u32;
        let (own, other) = self.bins[key as usize];
        if random.below(self.bin) < own {
            key
        } else {
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_drawn_by_their_rank() {
        let mut random = Random::new(1);
        let zipf = Zipf::new(1_000);
        let mut counts = vec![0_u64; 1_000];
        for _ in 0..1_000_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        // The sum of 1/n up to 1,000 is 7.485.
        for rank in [1, 2, 3, 10, 50] {
            let expected = 1_000_000 * 1_000 / 7_485 / rank;
            let count = counts[rank as usize - 1];
            assert!(count.abs_diff(expected) * 10 < expected, "{rank}: {count}");
        }
    }
}
