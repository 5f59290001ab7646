//! Any number of path patterns.

use std::ops::ControlFlow;

use hashbrown::HashSet;

use super::index::Index;
use super::path::PathTrie;
use super::pattern::{Pattern, Segment};
use super::shape::Shape;
use crate::request_path::RequestPath;

/// So many patterns of any kind may be alive in a trie at once.
const FEW: usize = 16;

/// So many shapes of patterns may: each keeps a few alive.
const FEW_SHAPES: usize = 8;

/// Patterns with the rules that ask for them. Those of which a path keeps but a
/// few alive stand in a trie, and so do a few others; the rest have an index.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    trie: PathTrie,
    index: Option<Box<Index>>,
}

impl Patterns {
    /// Each with its rule.
    pub(super) fn new(patterns: &[(Pattern, u32)]) -> Self {
        let shapes = patterns.iter().filter_map(|(pattern, _)| pattern.shape());
        let shapes: HashSet<Shape> = shapes.filter(|shape| !shape.is_plain()).collect();
        let are_few = shapes.len() <= FEW_SHAPES;
        let (walked, others): (Vec<_>, Vec<_>) = patterns.iter().partition(|(pattern, _)| {
            let shape = pattern.shape();
            shape.is_some_and(|shape| shape.is_plain() || are_few)
        });
        let mut trie = PathTrie::default();
        for (pattern, rule) in walked {
            trie.insert(pattern, *rule);
        }
        let index = match others.len() > FEW {
            true => Index::new(&others).map(Box::new),
            false => None,
        };
        if index.is_none() {
            for (pattern, rule) in others {
                trie.insert(pattern, *rule);
            }
        }
        Self { trie, index }
    }

    /// Calls `found` with the rules of every pattern that fits, until it
    /// breaks. A path that does not begin with `/` fits none.
    #[inline]
    pub(super) fn find(
        &self,
        path: &str,
        mut found: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.trie.find(path, &mut found)?;
        match &self.index {
            Some(index) => index.find(path, found),
            None => ControlFlow::Continue(()),
        }
    }
}

/// Patterns of which any will do.
#[derive(Clone, Debug, Default)]
pub struct PathSet(Fits);

/// What fits a set of patterns.
#[derive(Clone, Debug, Default)]
enum Fits {
    #[default]
    Nothing,
    /// `/**` is among them: every path.
    Everything,
    Some(Patterns),
}

impl PathSet {
    /// All these patterns; with none, no path fits.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        let is_everything = |pattern: &Pattern| pattern.segments == [Segment::Deep];
        if patterns.is_empty() {
            return Self(Fits::Nothing);
        } else if patterns.iter().any(is_everything) {
            return Self(Fits::Everything);
        }
        let patterns: Vec<_> = patterns.into_iter().map(|pattern| (pattern, 0)).collect();
        Self(Fits::Some(Patterns::new(&patterns)))
    }

    /// Whether a pattern fits. Without a path, none does.
    pub fn contains(&self, path: Option<&str>) -> bool {
        let Some(path) = path else {
            return false;
        };
        let patterns = match &self.0 {
            Fits::Nothing => return false,
            Fits::Everything => return path.starts_with('/'),
            Fits::Some(patterns) => patterns,
        };
        let found = patterns.find(path, |rules| match rules {
            [] => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        found.is_break()
    }

    /// Whether a pattern fits one form of a path at least.
    pub fn contains_either(&self, path: &RequestPath<'_>) -> bool {
        path.either(|form| self.contains(Some(form)))
    }

    /// Whether patterns fit both forms of a path.
    pub fn contains_both(&self, path: &RequestPath<'_>) -> bool {
        path.both(|form| self.contains(Some(form)))
    }
}
