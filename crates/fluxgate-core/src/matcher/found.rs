//! The fragments that a path contains, and their positions.

use foldhash::HashMap;
use smallvec::SmallVec;

use super::steps::steps;

/// Up to this many, a scan is cheaper than a hash table.
const FEW: usize = 8;

/// The fragments found in a path, by number.
#[derive(Debug, Default)]
pub(super) struct FoundFragments {
    list: SmallVec<[FragmentPositions; FEW]>,
    /// The index of each in `list`, once there are more than a few.
    indices: HashMap<u32, usize>,
    /// The positions of anchors, each with the index of the next of the same fragment.
    starts: Vec<(usize, Option<usize>)>,
}

/// The positions of one fragment.
#[derive(Debug)]
struct FragmentPositions {
    fragment: u32,
    /// Its first and its last start.
    first: usize,
    last: usize,
    /// Its first and last entry in `starts`.
    ends: Option<(usize, usize)>,
}

impl FoundFragments {
    /// Adds a fragment that begins at `start`, after all its positions so far. All
    /// positions of an anchor are kept.
    pub(super) fn add(&mut self, fragment: u32, start: usize, is_anchor: bool) {
        let index = self
            .find(fragment)
            .unwrap_or_else(|| self.insert(fragment, start));
        let found = &mut self.list[index];
        found.last = start;
        if !is_anchor {
            return;
        }
        let new = self.starts.len();
        self.starts.push((start, None));
        if let Some((_, last)) = found.ends {
            self.starts[last].1 = Some(new);
        }
        found.ends = Some((found.ends.map_or(new, |(first, _)| first), new));
    }

    /// Returns all fragments that were found.
    pub(super) fn fragments(&self) -> impl Iterator<Item = u32> {
        self.list.iter().map(|found| found.fragment)
    }

    /// Returns the positions of an anchor, in order.
    pub(super) fn starts_of(&self, fragment: u32) -> impl Iterator<Item = usize> {
        let ends = self.find(fragment).and_then(|index| self.list[index].ends);
        let mut next = ends.map(|(first, _)| first);
        std::iter::from_fn(move || {
            let (start, after) = self.starts[next?];
            steps(1);
            next = after;
            Some(start)
        })
    }

    /// Returns whether all fragments were found, each at or after the first position that
    /// the ones before it allow.
    pub(super) fn are_in_order(&self, fragments: &[u32]) -> bool {
        let mut earliest = 0;
        fragments.iter().all(|fragment| {
            let Some(index) = self.find(*fragment) else {
                return false;
            };
            let found = &self.list[index];
            earliest = found.first.max(earliest);
            found.last >= earliest
        })
    }

    fn find(&self, fragment: u32) -> Option<usize> {
        if self.list.len() > FEW {
            steps(1);
            return self.indices.get(&fragment).copied();
        }
        steps(self.list.len());
        self.list
            .iter()
            .position(|found| found.fragment == fragment)
    }

    fn insert(&mut self, fragment: u32, start: usize) -> usize {
        let new = self.list.len();
        self.list.push(FragmentPositions {
            fragment,
            first: start,
            last: start,
            ends: None,
        });
        match new {
            ..FEW => {}
            FEW => {
                let found = self.list.iter().enumerate();
                self.indices = found
                    .map(|(index, found)| (found.fragment, index))
                    .collect();
            }
            _ => {
                self.indices.insert(fragment, new);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_fragments_are_found_in_a_list_and_in_a_map() {
        for count in [1, FEW as u32, FEW as u32 + 1, 100] {
            let mut found = FoundFragments::default();
            for start in [1, 1000, 2000] {
                for fragment in 0..count {
                    found.add(fragment, start + fragment as usize, fragment % 2 == 0);
                }
            }
            assert!(found.fragments().eq(0..count));
            for fragment in (0..count).step_by(2) {
                let starts = [1, 1000, 2000].map(|start| start + fragment as usize);
                assert!(found.starts_of(fragment).eq(starts));
            }
            assert_eq!(found.starts_of(count).next(), None);
            assert!(!found.are_in_order(&[count]));
        }
    }

    #[test]
    fn a_fragment_found_only_before_its_predecessor_is_out_of_order() {
        let mut found = FoundFragments::default();
        for (fragment, start) in [(0, 0), (1, 5), (2, 10), (0, 20)] {
            found.add(fragment, start, false);
        }
        for fragments in [&[][..], &[0, 1, 2], &[1, 2, 0], &[0, 1, 0], &[1, 0]] {
            assert!(found.are_in_order(fragments), "{fragments:?}");
        }
        for fragments in [&[2, 1][..], &[0, 2, 1], &[3], &[0, 3]] {
            assert!(!found.are_in_order(fragments), "{fragments:?}");
        }
    }
}
