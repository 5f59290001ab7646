//! When requests come, and with which keys.

use super::random::{Random, Zipf};
use super::setting::Traffic;

#[derive(Debug)]
pub(super) struct Arrivals<'s> {
    traffic: &'s Traffic,
    zipf: Option<Zipf>,
    /// The requests of a burst that are left, and their key.
    burst: (u64, u32),
}

impl<'s> Arrivals<'s> {
    pub(super) fn new(traffic: &'s Traffic) -> Self {
        Self {
            traffic,
            zipf: traffic.zipf.then(|| Zipf::new(traffic.keys)),
            burst: (0, 0),
        }
    }

    /// Returns the time until the next request.
    pub(super) fn gap(&self, random: &mut Random) -> u64 {
        if self.burst.0 > 0 {
            return 0;
        }
        if random.chance(self.traffic.pause) {
            random.below(self.traffic.longest_pause)
        } else {
            random.between(0, 2 * self.traffic.mean_gap)
        }
    }

    /// Returns the key of a request.
    pub(super) fn key(&mut self, random: &mut Random) -> u32 {
        if self.burst.0 > 0 {
            self.burst.0 -= 1;
            return self.burst.1;
        }
        let key = match &self.zipf {
            Some(zipf) => zipf.draw(random),
            // Below a u32.
            None => random.below(self.traffic.keys.into()) as u32,
        };
        if random.chance(self.traffic.burst) {
            self.burst = (random.below(self.traffic.most_burst), key);
        }
        key
    }

    /// Returns the place of an instance for a request with this key, among so many.
    pub(super) fn instance(&self, key: u32, instances: u64, random: &mut Random) -> u64 {
        match self.traffic.homes {
            0 => random.below(instances),
            homes => (Random::new(key.into()).next() + random.below(homes.into())) % instances,
        }
    }
}
