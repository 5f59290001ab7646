//! When requests arrive, and with which keys.

use super::config::Traffic;
use crate::random::{Random, Zipf};

/// Draws the requests to a fleet.
#[derive(Debug)]
pub(super) struct Arrivals<'s> {
    traffic: &'s Traffic,
    zipf: Option<Zipf>,
    burst: Burst,
}

/// The requests of a burst that are left, and their key.
#[derive(Debug, Default)]
struct Burst {
    left: u64,
    key: u32,
}

impl<'s> Arrivals<'s> {
    pub(super) fn new(traffic: &'s Traffic) -> Self {
        Self {
            traffic,
            zipf: traffic.zipf.then(|| Zipf::new(traffic.keys)),
            burst: Burst::default(),
        }
    }

    /// Returns the time until the next request.
    pub(super) fn gap(&self, random: &mut Random) -> u64 {
        if self.burst.left > 0 {
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
        if self.burst.left > 0 {
            self.burst.left -= 1;
            return self.burst.key;
        }
        let key = match &self.zipf {
            Some(zipf) => zipf.draw(random),
            // Below a u32.
            None => random.below(self.traffic.keys.into()) as u32,
        };
        if random.chance(self.traffic.burst) {
            let left = random.below(self.traffic.most_burst);
            self.burst = Burst { left, key };
        }
        key
    }

    /// Returns the index of an instance, out of `instances`, for a request with this key.
    pub(super) fn instance(&self, key: u32, instances: u64, random: &mut Random) -> u64 {
        match self.traffic.instances_per_key {
            0 => random.below(instances),
            some => (Random::new(key.into()).next() + random.below(some.into())) % instances,
        }
    }
}
