//! Which texts a path contains, and where.

use hashbrown::HashMap;

use super::work::steps;
use crate::small::Small;

/// Among so few, looking at all is cheaper than a hash.
const FEW: usize = 8;

/// Texts by number.
#[derive(Debug, Default)]
pub(super) struct Seen {
    list: Small<Place, FEW>,
    /// Where each stands in `list`, once there are more than a few.
    numbers: HashMap<u32, usize>,
    /// Where anchors were seen, each with the next of the same text.
    starts: Vec<(usize, Option<usize>)>,
}

/// Where a text was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    run: u32,
    /// Where it begins first and last.
    first: usize,
    last: usize,
    /// The first and the last of it among `starts`.
    ends: Option<(usize, usize)>,
}

impl Seen {
    /// A text was seen that begins here, behind all that were seen of it
    /// before. `is_anchor`: every place of it counts.
    pub(super) fn note(&mut self, run: u32, start: usize, is_anchor: bool) {
        let known = self.find(run).unwrap_or_else(|| self.add(run, start));
        let place = &mut self.list[known];
        place.last = start;
        if !is_anchor {
            return;
        }
        let new = self.starts.len();
        self.starts.push((start, None));
        if let Some((_, last)) = place.ends {
            self.starts[last].1 = Some(new);
        }
        place.ends = Some((place.ends.map_or(new, |(first, _)| first), new));
    }

    /// All texts that were seen.
    pub(super) fn runs(&self) -> impl Iterator<Item = u32> {
        self.list.iter().map(|place| place.run)
    }

    /// Where an anchor begins, in order.
    pub(super) fn starts_of(&self, run: u32) -> impl Iterator<Item = usize> {
        let ends = self.find(run).and_then(|known| self.list[known].ends);
        let mut next = ends.map(|(first, _)| first);
        std::iter::from_fn(move || {
            let (start, after) = self.starts[next?];
            steps(1);
            next = after;
            Some(start)
        })
    }

    /// Whether all were seen, and none of them only before its forerunners.
    pub(super) fn are_in_order(&self, runs: &[u32]) -> bool {
        let mut earliest = 0;
        runs.iter().all(|run| {
            let Some(known) = self.find(*run) else {
                return false;
            };
            let place = &self.list[known];
            earliest = place.first.max(earliest);
            place.last >= earliest
        })
    }

    fn find(&self, run: u32) -> Option<usize> {
        if self.list.len() > FEW {
            steps(1);
            return self.numbers.get(&run).copied();
        }
        steps(self.list.len());
        self.list.iter().position(|known| known.run == run)
    }

    fn add(&mut self, run: u32, start: usize) -> usize {
        let new = self.list.len();
        self.list.push(Place {
            run,
            first: start,
            last: start,
            ends: None,
        });
        match new {
            ..FEW => {}
            FEW => {
                let known = self.list.iter().enumerate();
                self.numbers = known.map(|(index, place)| (place.run, index)).collect();
            }
            _ => {
                self.numbers.insert(run, new);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_what_was_noted_however_many_there_are() {
        for count in [1, FEW as u32, FEW as u32 + 1, 100] {
            let mut seen = Seen::default();
            for start in [1, 1000, 2000] {
                for run in 0..count {
                    seen.note(run, start + run as usize, run % 2 == 0);
                }
            }
            assert!(seen.runs().eq(0..count));
            for run in (0..count).step_by(2) {
                let starts = [1, 1000, 2000].map(|start| start + run as usize);
                assert!(seen.starts_of(run).eq(starts));
            }
            assert_eq!(seen.starts_of(count).next(), None);
            assert!(!seen.are_in_order(&[count]));
        }
    }

    #[test]
    fn what_was_seen_only_before_its_forerunner_is_out_of_order() {
        let mut seen = Seen::default();
        for (run, start) in [(0, 0), (1, 5), (2, 10), (0, 20)] {
            seen.note(run, start, false);
        }
        for runs in [&[][..], &[0, 1, 2], &[1, 2, 0], &[0, 1, 0], &[1, 0]] {
            assert!(seen.are_in_order(runs), "{runs:?}");
        }
        for runs in [&[2, 1][..], &[0, 2, 1], &[3], &[0, 3]] {
            assert!(!seen.are_in_order(runs), "{runs:?}");
        }
    }
}
