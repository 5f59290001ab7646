//! One pattern against one path.

use std::str::Chars;

use super::found::FoundFragments;
use super::pattern::{Pattern, Segment, Token};
use super::segments::Segments;
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
