//! Deterministic random numbers.

/// A generator of random numbers (SplitMix64). Equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `count`, or 0 if that is 0.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        // The upper half of a product of two words fits into a word.
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }

    /// Returns a number from `least` to `most`.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns a number from −`most` to `most`.
    pub(super) fn around_zero(&mut self, most: u32) -> i64 {
        i64::from(most) - self.below(2 * u64::from(most) + 1) as i64
    }

    /// Returns `true` in `in_10_000` of 10,000 cases.
    pub(super) fn chance(&mut self, in_10_000: u32) -> bool {
        in_10_000 > 0 && self.below(10_000) < u64::from(in_10_000)
    }
}

/// Draws keys by Zipf's law: the n-th key is drawn with a probability in proportion to 1/n.
#[derive(Debug)]
pub(super) struct Zipf {
    /// The sums of the weights up to each key.
    sums: Vec<u64>,
}

impl Zipf {
    pub(super) fn new(keys: u32) -> Self {
        const WEIGHT: u64 = 1 << 40;
        let mut sum = 0;
        let weights = (1..=u64::from(keys)).map(|rank| WEIGHT / rank);
        let sums = weights.map(|weight| {
            sum += weight;
            sum
        });
        Self {
            sums: sums.collect(),
        }
    }

    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        let point = random.below(self.sums.last().copied().unwrap_or_default());
        // There are at most as many keys as a u32 has values.
        self.sums.partition_point(|sum| *sum <= point) as u32
    }
}
