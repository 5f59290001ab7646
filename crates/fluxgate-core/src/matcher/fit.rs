//! One pattern and one path.

use std::str::Chars;

use super::pattern::{Pattern, Segment, Token};
use super::seen::Seen;
use super::segments::Segments;
use super::work::steps;

/// A text by which a block of segments is found in a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) run: u32,
    /// How many segments of the block stand before it.
    pub(super) before: usize,
}

impl Pattern {
    /// The segments between each `**` and the next.
    pub(super) fn inner_blocks(&self) -> impl Iterator<Item = &[Segment]> {
        let blocks = self.segments.split(|segment| *segment == Segment::Deep);
        let count = blocks.clone().count();
        blocks.take(count - 1).skip(1)
    }

    /// Whether a path fits. `anchors` belong to the inner blocks. The ends are
    /// compared first: by them most misfits are told at once, however long the
    /// path.
    pub(super) fn fits(&self, path: &str, anchors: &[Option<Anchor>], seen: &Seen) -> bool {
        let Some(mut rest) = Segments::of(path) else {
            return false;
        };
        let is_deep = |segment: &Segment| *segment == Segment::Deep;
        let first = self.segments.iter().position(is_deep);
        let last = self.segments.iter().rposition(is_deep);
        let (Some(first), Some(last)) = (first, last) else {
            return fit_each(&self.segments, rest.by_ref()) && rest.is_empty();
        };
        if !fit_each(&self.segments[..first], rest.by_ref()) {
            return false;
        }
        let from = path.len() - rest.len();
        if !fit_each(self.segments[last + 1..].iter().rev(), rest.by_ref().rev()) {
            return false;
        }
        let mut inside = Inside {
            path: &path[..from + rest.len()],
            rest,
        };
        let mut blocks = self.inner_blocks().zip(anchors);
        // Each may take the first place where it fits: a later one would leave
        // less to those behind it.
        blocks.all(|(block, anchor)| match anchor {
            Some(anchor) => inside.finds_by(*anchor, block, seen),
            None => inside.finds(block),
        })
    }
}

/// What is left of a path between its two ends.
struct Inside<'p> {
    /// The path without its end.
    path: &'p str,
    rest: Segments<'p>,
}

impl<'p> Inside<'p> {
    /// Whether a block fits somewhere. What follows it is left.
    fn finds(&mut self, block: &[Segment]) -> bool {
        while !self.takes(block, self.rest) {
            if self.rest.next().is_none() {
                return false;
            }
        }
        true
    }

    /// The same, where only places with the anchor come into question.
    fn finds_by(&mut self, anchor: Anchor, block: &[Segment], seen: &Seen) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        let path = self.path;
        let from = path.len() - self.rest.len();
        seen.starts_of(anchor.run).any(|start| {
            let mut slashes = match path.get(..=start) {
                Some(path) => path.rmatch_indices('/'),
                // It stands in the end.
                None => return false,
            };
            let slash = slashes.nth(anchor.before);
            slash.is_some_and(|(slash, _)| {
                let texts = Segments::of(&path[slash..]);
                slash + 1 >= from && texts.is_some_and(|texts| self.takes(block, texts))
            })
        })
    }

    /// Whether a block fits just here.
    fn takes(&mut self, block: &[Segment], mut texts: Segments<'p>) -> bool {
        let fits = fit_each(block, texts.by_ref());
        if fits {
            self.rest = texts;
        }
        fits
    }
}

/// Whether there is a text for each segment of a pattern, and fits it.
fn fit_each<'s, 'p>(
    segments: impl IntoIterator<Item = &'s Segment>,
    mut texts: impl Iterator<Item = &'p str>,
) -> bool {
    let mut segments = segments.into_iter();
    segments.all(|segment| texts.next().is_some_and(|text| segment.fits(text)))
}

impl Segment {
    /// Whether one segment of a path fits.
    fn fits(&self, text: &str) -> bool {
        steps(1);
        match self {
            Self::Literal(literal) => **literal == *text,
            Self::Any | Self::Deep => true,
            Self::Glob(tokens) => glob_fits(tokens, text.chars()),
        }
    }
}

/// The same for characters, with `*` for `**`.
fn glob_fits(tokens: &[Token], mut rest: Chars<'_>) -> bool {
    let is_many = |token: &Token| *token == Token::Many;
    let first = tokens.iter().position(is_many);
    let last = tokens.iter().rposition(is_many);
    let (Some(first), Some(last)) = (first, last) else {
        return chars_fit(tokens, rest.by_ref()) && rest.as_str().is_empty();
    };
    let tail = tokens[last + 1..].iter().rev();
    if !chars_fit(&tokens[..first], rest.by_ref()) || !chars_fit(tail, rest.by_ref().rev()) {
        return false;
    }
    tokens[first..=last].split(is_many).all(|block| {
        loop {
            let mut behind = rest.clone();
            if chars_fit(block, behind.by_ref()) {
                rest = behind;
                return true;
            }
            if rest.next().is_none() {
                return false;
            }
        }
    })
}

fn chars_fit<'t>(
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
