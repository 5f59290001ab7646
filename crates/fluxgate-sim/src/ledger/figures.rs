//! What the rules say, in the numbers that the ledger counts with.

use std::collections::BTreeMap;

use fluxgate_core::{Algorithm, Limit, RuleSets};

use super::usage::Family;

/// A band of a version of the rules.
#[derive(Clone, Debug)]
pub(super) struct BandFigures {
    /// Its counters.
    pub(super) counter: usize,
    pub(super) is_global: bool,
    pub(super) capacity: u64,
    /// How long requests may wait for units of the future.
    pub(super) max_wait: u64,
    /// How long slots may be held.
    pub(super) longest_hold: Option<u64>,
    /// The time that one unit takes to refill, in fractions of a microsecond. The counter says how
    /// many make one.
    pub(super) unit: i128,
}

/// A counter of a band, for all versions of the rules that share it.
#[derive(Clone, Debug)]
pub(super) struct CounterInfo {
    pub(super) name: String,
    pub(super) family: Family,
    /// Parts of a microsecond.
    pub(super) parts: i128,
    /// The largest capacity, and the longest time of a unit, of any version.
    pub(super) largest: u64,
    pub(super) longest: i128,
    /// The furthest that a bucket can be from full, with all that wait for it.
    pub(super) furthest: i128,
}

impl CounterInfo {
    /// Returns how much one unit of a band is, in the measure of the family.
    pub(super) fn scale(&self, band: &BandFigures) -> i128 {
        match self.family {
            Family::Bucket => band.unit,
            Family::SlidingWindow(width) => i128::from(width),
            Family::FixedWindow(_) | Family::SlidingLog(_) | Family::Slots => 1,
        }
    }
}

/// Reads the bands of each version of the rules, and the counters that they share.
pub(super) fn read(versions: &[RuleSets]) -> (Vec<Vec<BandFigures>>, Vec<CounterInfo>) {
    let (mut bands_of, mut counters) = (Vec::new(), Vec::<CounterInfo>::new());
    let mut known = BTreeMap::<(String, Family), usize>::new();
    for version in versions {
        let rules = version.iter().flat_map(|set| set.rules());
        for rule in rules {
            for band in rule.bands() {
                let family = family_of(band.limit());
                let name = format!("{}/{}", rule.id(), band.id());
                let counter = *known.entry((name.clone(), family)).or_insert_with(|| {
                    counters.push(CounterInfo {
                        name,
                        family,
                        parts: 1,
                        largest: 0,
                        longest: 1,
                        furthest: 0,
                    });
                    counters.len() - 1
                });
                let refill = i128::from(band.limit().rate().refill());
                let largest = &mut counters[counter].largest;
                *largest = band.limit().capacity().max(*largest);
                let parts = &mut counters[counter].parts;
                if family == Family::Bucket && *parts % refill != 0 {
                    *parts *= refill;
                }
            }
        }
    }
    for version in versions {
        let rules = version.iter().flat_map(|set| set.rules());
        let bands = rules.flat_map(|rule| {
            let (known, counters) = (&known, &counters);
            rule.bands().iter().map(move |band| {
                let limit = band.limit();
                let name = format!("{}/{}", rule.id(), band.id());
                let counter = known[&(name, family_of(limit))];
                let refill = i128::from(limit.rate().refill());
                let period = i128::from(limit.rate().period().get());
                BandFigures {
                    counter,
                    is_global: rule.key().is_empty(),
                    capacity: limit.capacity(),
                    max_wait: limit.rate().max_wait().map_or(0, |max| max.get()),
                    longest_hold: (family_of(limit) == Family::Slots).then(|| limit.window().get()),
                    unit: match family_of(limit) {
                        Family::Bucket => period * counters[counter].parts / refill,
                        _ => 1,
                    },
                }
            })
        });
        let bands: Vec<_> = bands.collect();
        for band in &bands {
            let info = &mut counters[band.counter];
            info.longest = band.unit.max(info.longest);
            let fill = i128::from(band.capacity) * band.unit;
            let furthest = fill + i128::from(band.max_wait) * info.parts;
            info.furthest = furthest.max(info.furthest);
        }
        bands_of.push(bands);
    }
    (bands_of, counters)
}

fn family_of(limit: &Limit) -> Family {
    let width = limit.window().get();
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => Family::Bucket,
        Algorithm::FixedWindow => Family::FixedWindow(width),
        Algorithm::SlidingWindow => Family::SlidingWindow(width),
        Algorithm::SlidingLog => Family::SlidingLog(width),
        Algorithm::Concurrency => Family::Slots,
    }
}
