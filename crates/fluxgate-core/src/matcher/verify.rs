//! One pattern against one path.

use std::str::Chars;

use foldhash::HashMap;
use smallvec::SmallVec;

use super::pattern::{Pattern, Segment, Segments, Token};
use super::steps::steps;

/// A fragment by which a block of segments is found in a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) fragment: u32,
    /// The number of segments of the block before it.
    pub(super) before: usize,
}

impl Pattern {
    /// Returns the segments between each `**` and the next.
    pub(super) fn inner_blocks(&self) -> impl Iterator<Item = &[Segment]> {
        let blocks = self.segments.split(|segment| *segment == Segment::Deep);
        let count = blocks.clone().count();
        blocks.take(count - 1).skip(1)
    }

    /// Returns whether a path matches. `anchors` belong to the inner blocks. The ends are
    /// compared first, because most other paths differ there, however long they are.
    pub(super) fn matches(
        &self,
        path: &str,
        anchors: &[Option<Anchor>],
        found: &FoundFragments,
    ) -> bool {
        let Some(mut rest) = Segments::of(path) else {
            return false;
        };
        let is_deep = |segment: &Segment| *segment == Segment::Deep;
        let first = self.segments.iter().position(is_deep);
        let last = self.segments.iter().rposition(is_deep);
        let (Some(first), Some(last)) = (first, last) else {
            return match_each(&self.segments, rest.by_ref()) && rest.is_empty();
        };
        if !match_each(&self.segments[..first], rest.by_ref()) {
            return false;
        }
        let from = path.len() - rest.len();
        if !match_each(self.segments[last + 1..].iter().rev(), rest.by_ref().rev()) {
            return false;
        }
        let mut middle = PathMiddle {
            path: &path[..from + rest.len()],
            rest,
        };
        let mut blocks = self.inner_blocks().zip(anchors);
        // Each block may take the first position that matches: a later one would leave
        // less to the blocks after it.
        blocks.all(|(block, anchor)| match anchor {
            Some(anchor) => middle.finds_by(*anchor, block, found),
            None => middle.finds(block),
        })
    }
}

/// The part of a path between its two ends.
struct PathMiddle<'p> {
    /// The path without its end.
    path: &'p str,
    rest: Segments<'p>,
}

impl<'p> PathMiddle<'p> {
    /// Returns whether a block matches somewhere, and skips to the end of the match.
    fn finds(&mut self, block: &[Segment]) -> bool {
        while !self.takes(block, self.rest) {
            if self.rest.next().is_none() {
                return false;
            }
        }
        true
    }

    /// Like [`PathMiddle::finds`], but only tries the positions of the anchor.
    fn finds_by(&mut self, anchor: Anchor, block: &[Segment], found: &FoundFragments) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        let path = self.path;
        let from = path.len() - self.rest.len();
        found.starts_of(anchor.fragment).any(|start| {
            let mut slashes = match path.get(..=start) {
                Some(path) => path.rmatch_indices('/'),
                // It is in the end.
                None => return false,
            };
            let slash = slashes.nth(anchor.before);
            slash.is_some_and(|(slash, _)| {
                let texts = Segments::of(&path[slash..]);
                slash + 1 >= from && texts.is_some_and(|texts| self.takes(block, texts))
            })
        })
    }

    /// Returns whether a block matches at the start of `texts`, and skips it.
    fn takes(&mut self, block: &[Segment], mut texts: Segments<'p>) -> bool {
        let matches = match_each(block, texts.by_ref());
        if matches {
            self.rest = texts;
        }
        matches
    }
}

/// Returns whether there is a text for each segment of a pattern, and all match.
fn match_each<'s, 'p>(
    segments: impl IntoIterator<Item = &'s Segment>,
    mut texts: impl Iterator<Item = &'p str>,
) -> bool {
    let mut segments = segments.into_iter();
    segments.all(|segment| texts.next().is_some_and(|text| segment.matches(text)))
}

impl Segment {
    /// Returns whether one segment of a path matches.
    fn matches(&self, text: &str) -> bool {
        steps(1);
        match self {
            Self::Literal(literal) => **literal == *text,
            Self::Any | Self::Deep => true,
            Self::NonEmpty => !text.is_empty(),
            Self::Glob(tokens) => glob_matches(tokens, text.chars()),
        }
    }
}

/// Matches the characters of a segment, in the same way as [`Pattern::matches`].
fn glob_matches(tokens: &[Token], mut rest: Chars<'_>) -> bool {
    let is_many = |token: &Token| *token == Token::Many;
    let first = tokens.iter().position(is_many);
    let last = tokens.iter().rposition(is_many);
    let (Some(first), Some(last)) = (first, last) else {
        return chars_match(tokens, rest.by_ref()) && rest.as_str().is_empty();
    };
    let tail = tokens[last + 1..].iter().rev();
    if !chars_match(&tokens[..first], rest.by_ref()) || !chars_match(tail, rest.by_ref().rev()) {
        return false;
    }
    tokens[first..=last].split(is_many).all(|block| {
        loop {
            let mut behind = rest.clone();
            if chars_match(block, behind.by_ref()) {
                rest = behind;
                return true;
            }
            if rest.next().is_none() {
                return false;
            }
        }
    })
}

fn chars_match<'t>(
    tokens: impl IntoIterator<Item = &'t Token>,
    mut chars: impl Iterator<Item = char>,
) -> bool {
    let mut tokens = tokens.into_iter();
    tokens.all(|token| {
        steps(1);
        chars.next().is_some_and(|char| match token {
            Token::Char(wanted) => *wanted == char,
            Token::One | Token::Many => true,
        })
    })
}

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
