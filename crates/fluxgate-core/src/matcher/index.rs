//! Many patterns with wildcards, found by the fragments of a path.

mod build;

use std::ops::ControlFlow;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;

use super::found::FoundFragments;
use super::pattern::Pattern;
use super::steps::steps;
use super::verify::Anchor;

/// Patterns by their rarest fragment: the one that the fewest other patterns have. One
/// pass over a path finds all these fragments in it, and their patterns are then
/// compared one by one. So the cost depends on the path and on the patterns whose rarest
/// fragment it contains.
#[derive(Clone, Debug)]
pub(super) struct Index {
    automaton: NFA,
    start: StateID,
    fragments: Vec<FragmentEntry>,
    patterns: Vec<PatternEntry>,
    /// Those without any fragment, which are always compared.
    without_fragment: Vec<u32>,
}

/// A fragment by which patterns or their blocks are found.
#[derive(Clone, Debug)]
struct FragmentEntry {
    length: usize,
    is_anchor: bool,
    /// The patterns whose rarest fragment it is.
    patterns: Vec<u32>,
}

#[derive(Clone, Debug)]
struct PatternEntry {
    pattern: Pattern,
    /// The anchor of each inner block that has one.
    anchors: Box<[Option<Anchor>]>,
    /// Fragments that a path must contain in this order. Most paths that do not match are
    /// recognized by them, without reading the path again.
    ordered: Box<[u32]>,
    rules: Vec<u32>,
}

impl Index {
    /// Calls `report` with the rules of every pattern that matches, until it breaks.
    pub(super) fn find(
        &self,
        path: &str,
        mut report: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let found = self.fragments_in(path);
        let by_fragment = found
            .fragments()
            .map(|it| &self.fragments[it as usize].patterns);
        for candidates in by_fragment.chain([&self.without_fragment]) {
            for &candidate in candidates {
                let candidate = &self.patterns[candidate as usize];
                if found.are_in_order(&candidate.ordered)
                    && candidate.pattern.matches(path, &candidate.anchors, &found)
                {
                    report(&candidate.rules)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn fragments_in(&self, path: &str) -> FoundFragments {
        let mut found = FoundFragments::default();
        let mut state = self.start;
        // With a slash appended, every segment ends with one.
        for (index, byte) in path.bytes().chain([b'/']).enumerate() {
            steps(1);
            state = self.automaton.next_state(Anchored::No, state, byte);
            if self.automaton.is_match(state) {
                for ended in 0..self.automaton.match_len(state) {
                    let number = self.automaton.match_pattern(state, ended).as_u32();
                    let fragment = &self.fragments[number as usize];
                    let start = index + 1 - fragment.length;
                    found.add(number, start, fragment.is_anchor);
                }
            }
        }
        found
    }
}
