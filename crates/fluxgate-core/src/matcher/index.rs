//! Many patterns with wildcards, found by the fragments of a path.

use std::ops::ControlFlow;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use foldhash::HashMap;

use super::pattern::{Fragment, Pattern, Segment};
use super::steps::steps;
use super::verify::{Anchor, FoundFragments};

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
    /// Builds the index of patterns with their rules. Returns `None` if they are too many.
    pub(super) fn new(patterns: &[&(Pattern, u32)]) -> Option<Self> {
        let mut indices: HashMap<&Pattern, usize> = HashMap::default();
        let mut distinct: Vec<(&Pattern, Vec<u32>)> = Vec::new();
        for (pattern, rule) in patterns {
            let index = *indices.entry(pattern).or_insert_with(|| {
                distinct.push((pattern, Vec::new()));
                distinct.len() - 1
            });
            distinct[index].1.push(*rule);
        }
        let mut fragments = Fragments::default();
        for (pattern, _) in &distinct {
            for fragment in pattern.fragments() {
                *fragments.patterns.entry(fragment.text).or_default() += 1;
            }
        }
        let mut without_fragment = Vec::new();
        let patterns = distinct
            .into_iter()
            .enumerate()
            .map(|(index, (pattern, rules))| {
                let of_pattern = pattern.fragments();
                match fragments.rarest(of_pattern.iter()) {
                    Some(rarest) => fragments.entry(rarest).patterns.push(index as u32),
                    None => without_fragment.push(index as u32),
                }
                let anchors = fragments.anchors(pattern, &of_pattern);
                PatternEntry {
                    ordered: fragments.ordered(&of_pattern, &anchors),
                    pattern: pattern.clone(),
                    anchors,
                    rules,
                }
            })
            .collect();
        let mut known: Vec<_> = fragments.numbers.into_iter().collect();
        known.sort_unstable_by_key(|(_, number)| *number);
        let known = known.into_iter().map(|(text, _)| text);
        let automaton = NFA::builder().prefilter(false).build(known).ok()?;
        Some(Self {
            start: automaton.start_state(Anchored::No).ok()?,
            automaton,
            fragments: fragments.entries,
            patterns,
            without_fragment,
        })
    }

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

/// The fragments of all patterns.
#[derive(Default)]
struct Fragments {
    /// The number of patterns that have each.
    patterns: HashMap<String, usize>,
    /// Those that the index uses.
    numbers: HashMap<String, usize>,
    entries: Vec<FragmentEntry>,
}

impl Fragments {
    fn rarest<'f>(&self, fragments: impl Iterator<Item = &'f Fragment>) -> Option<&'f Fragment> {
        // Take the longer one: a path is less likely to contain it by chance.
        fragments.min_by_key(|it| (self.patterns.get(&it.text), usize::MAX - it.text.len()))
    }

    fn number(&mut self, text: &str) -> usize {
        *self.numbers.entry(text.to_owned()).or_insert_with(|| {
            self.entries.push(FragmentEntry {
                length: text.len(),
                is_anchor: false,
                patterns: Vec::new(),
            });
            self.entries.len() - 1
        })
    }

    fn entry(&mut self, fragment: &Fragment) -> &mut FragmentEntry {
        let number = self.number(&fragment.text);
        &mut self.entries[number]
    }

    /// Returns for each inner block the rarest fragment that begins one of its segments.
    fn anchors(&mut self, pattern: &Pattern, fragments: &[Fragment]) -> Box<[Option<Anchor>]> {
        let is_deep = |segment: &Segment| *segment == Segment::Deep;
        let deeps: Vec<_> = pattern
            .segments
            .iter()
            .enumerate()
            .filter(|(_, segment)| is_deep(segment))
            .collect();
        let blocks = deeps.windows(2).map(|pair| pair[0].0 + 1..pair[1].0);
        let anchors = blocks.map(|block| {
            let begins_here = |it: &&Fragment| it.begins.is_some_and(|at| block.contains(&at));
            let rarest = self.rarest(fragments.iter().filter(begins_here))?;
            let fragment = self.number(&rarest.text);
            self.entries[fragment].is_anchor = true;
            Some(Anchor {
                fragment: fragment as u32,
                before: rarest.begins? - block.start,
            })
        });
        anchors.collect()
    }

    /// Returns the anchors and the fragments inside of segments.
    fn ordered(&mut self, fragments: &[Fragment], anchors: &[Option<Anchor>]) -> Box<[u32]> {
        let numbers = fragments.iter().map(|fragment| {
            let is_inside = !fragment.text.contains('/');
            let number = if is_inside {
                Some(self.number(&fragment.text))
            } else {
                self.numbers.get(&fragment.text).copied()
            };
            let number = number? as u32;
            let mut anchors = anchors.iter().flatten();
            let is_anchor = anchors.any(|anchor| anchor.fragment == number);
            (is_inside || is_anchor).then_some(number)
        });
        numbers.flatten().collect()
    }
}
