//! Sets of path patterns.

use std::ops::ControlFlow;
use std::sync::OnceLock;

use foldhash::HashSet;

use super::index::Index;
use super::path_trie::PathTrie;
use super::pattern::{Pattern, Segment, Shape};
use crate::request_path::RequestPath;

/// Up to this many patterns of any kind may be active in a trie at the same time.
const FEW: usize = 16;

/// Up to this many shapes may be active: each keeps a few patterns active.
const FEW_SHAPES: usize = 8;

/// Patterns with their rules. A trie holds the patterns that a path keeps only a few of
/// active, and a few others; an index holds the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    trie: PathTrie,
    index: Option<Box<Index>>,
}

impl Patterns {
    /// Creates the set of these patterns, each with its rule.
    pub(super) fn new(patterns: &[(Pattern, u32)]) -> Self {
        let shapes: HashSet<Shape> = patterns
            .iter()
            .filter_map(|(pattern, _)| pattern.shape())
            .filter(|shape| !shape.is_plain())
            .collect();
        let are_few = shapes.len() <= FEW_SHAPES;
        let (walked, others): (Vec<_>, Vec<_>) = patterns.iter().partition(|(pattern, _)| {
            let shape = pattern.shape();
            shape.is_some_and(|shape| shape.is_plain() || are_few)
        });
        let mut trie = PathTrie::default();
        for (pattern, rule) in walked {
            trie.insert(pattern, *rule);
        }
        let index = if others.len() > FEW {
            Index::new(&others).map(Box::new)
        } else {
            None
        };
        if index.is_none() {
            for (pattern, rule) in others {
                trie.insert(pattern, *rule);
            }
        }
        Self { trie, index }
    }

    /// Calls `found` with the rules of every pattern that matches, until it breaks. A path
    /// that does not begin with `/` matches none.
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

/// The paths that match at least one of several patterns.
#[derive(Clone, Debug, Default)]
pub struct PathSet {
    paths: Paths,
    /// What the set is made of.
    patterns: Vec<Pattern>,
    /// The set of the patterns in lower case, for paths that ignore case; made when the first
    /// of them comes.
    lower: OnceLock<Box<Paths>>,
}

#[derive(Clone, Debug, Default)]
enum Paths {
    #[default]
    None,
    /// `/**` is among the patterns.
    All,
    Matching(Patterns),
}

impl PathSet {
    /// Creates the set of the paths that match any of these patterns.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Self {
            paths: Paths::new(&patterns),
            patterns,
            lower: OnceLock::new(),
        }
    }

    /// Returns whether the set contains this path; `false` without a path.
    pub fn contains(&self, path: Option<&str>) -> bool {
        path.is_some_and(|path| self.paths.contains(path))
    }

    /// Returns whether the set contains at least one form of a path.
    pub fn contains_either(&self, path: &RequestPath<'_>) -> bool {
        let paths = self.paths_for(path);
        path.either(|form| paths.contains(form))
    }

    /// Returns whether the set contains both forms of a path, the slash at the end kept.
    #[inline]
    pub fn contains_both(&self, path: &RequestPath<'_>) -> bool {
        !self.patterns.is_empty() && self.contains_forms(path)
    }

    fn contains_forms(&self, path: &RequestPath<'_>) -> bool {
        let paths = self.paths_for(path);
        path.both(|form| paths.contains(form))
    }

    fn paths_for(&self, path: &RequestPath<'_>) -> &Paths {
        match (&self.paths, path.ignores_case()) {
            (Paths::Matching(_), true) => self.lower.get_or_init(|| {
                let patterns = self.patterns.iter().map(Pattern::to_ascii_lowercase);
                Box::new(Paths::new(&patterns.collect::<Vec<_>>()))
            }),
            (paths, _) => paths,
        }
    }
}

impl Paths {
    fn new(patterns: &[Pattern]) -> Self {
        let matches_all = |pattern: &Pattern| pattern.segments == [Segment::Deep];
        if patterns.is_empty() {
            return Self::None;
        } else if patterns.iter().any(matches_all) {
            return Self::All;
        }
        let patterns: Vec<_> = patterns.iter().map(|it| (it.clone(), 0)).collect();
        Self::Matching(Patterns::new(&patterns))
    }

    fn contains(&self, path: &str) -> bool {
        let patterns = match self {
            Self::None => return false,
            Self::All => return path.starts_with('/'),
            Self::Matching(patterns) => patterns,
        };
        let found = patterns.find(path, |rules| match rules {
            [] => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        found.is_break()
    }
}
