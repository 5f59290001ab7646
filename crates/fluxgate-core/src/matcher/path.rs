//! Many path patterns, walked at once.

use std::ops::ControlFlow;

use super::glob::GlobTrie;
use super::lookup::Lookup;
use super::pattern::{Pattern, Segment};
use crate::small::Small;

/// A trie of patterns by segment, with the rules that end at each node.
#[derive(Clone, Debug)]
pub(super) struct PathTrie {
    nodes: Vec<PathNode>,
}

#[derive(Clone, Debug, Default)]
struct PathNode {
    literals: Lookup<u32>,
    globs: Option<Box<GlobTrie>>,
    any: Option<u32>,
    deep: Option<u32>,
    /// Reached by a `**`: any segment leads back here.
    stays: bool,
    rules: Vec<u32>,
}

type Alive = Small<u32, 8>;

impl Default for PathTrie {
    fn default() -> Self {
        Self {
            nodes: vec![PathNode::default()],
        }
    }
}

impl PathTrie {
    pub(super) fn insert(&mut self, pattern: &Pattern, rule: u32) {
        let mut at = 0;
        for segment in &pattern.segments {
            let next = self.nodes.len() as u32;
            let node = &mut self.nodes[at];
            let to = match segment {
                Segment::Literal(text) => {
                    *node.literals.get_or_insert_with(text.as_bytes(), || next)
                }
                Segment::Any => *node.any.get_or_insert(next),
                Segment::Glob(tokens) => {
                    let globs = node.globs.get_or_insert_default();
                    globs.target_of(tokens, || next)
                }
                // Two in a row are as good as one.
                Segment::Deep if node.stays => at as u32,
                Segment::Deep => *node.deep.get_or_insert(next),
            };
            if to == next {
                self.nodes.push(PathNode {
                    stays: *segment == Segment::Deep,
                    ..PathNode::default()
                });
            }
            at = to as usize;
        }
        self.nodes[at].rules.push(rule);
    }

    /// Calls `found` with the rules at the end of every pattern that fits,
    /// until it breaks; with some of them perhaps more than once. A path that
    /// does not begin with `/` fits none.
    pub(super) fn find(
        &self,
        path: &str,
        mut found: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let rest = match path.strip_prefix('/') {
            Some(rest) if self.nodes.len() > 1 => rest,
            _ => return ControlFlow::Continue(()),
        };
        let mut alive = Alive::new();
        let mut next = Alive::new();
        self.enter(0, &mut alive, &mut found)?;
        for segment in Segments(Some(rest)) {
            next.clear();
            for &at in alive.iter() {
                let node = &self.nodes[at as usize];
                if let Some(to) = node.literals.get(segment.as_bytes()) {
                    self.enter(*to, &mut next, &mut found)?;
                }
                if let Some(to) = node.any {
                    self.enter(to, &mut next, &mut found)?;
                }
                if let Some(globs) = &node.globs {
                    globs.find(segment, |to| self.enter(to, &mut next, &mut found))?;
                }
                if node.stays {
                    self.enter(at, &mut next, &mut found)?;
                }
            }
            std::mem::swap(&mut alive, &mut next);
            if alive.is_empty() {
                return ControlFlow::Continue(());
            }
        }
        for &at in alive.iter() {
            found(&self.nodes[at as usize].rules)?;
        }
        ControlFlow::Continue(())
    }

    /// Adds a node, and the one behind a `**` that stands for nothing.
    fn enter(
        &self,
        at: u32,
        alive: &mut Alive,
        found: &mut impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if alive.contains(&at) {
            return ControlFlow::Continue(());
        }
        let node = &self.nodes[at as usize];
        if node.stays && node.is_end() {
            // A pattern that ends with `**` fits whatever follows.
            return found(&node.rules);
        }
        if !node.is_end() || !node.rules.is_empty() {
            alive.push(at);
        }
        match node.deep {
            Some(deep) => self.enter(deep, alive, found),
            None => ControlFlow::Continue(()),
        }
    }
}

impl PathNode {
    /// Whether no segment leads on from here.
    fn is_end(&self) -> bool {
        self.literals.is_empty() && self.globs.is_none() && self.any.is_none()
    }
}

/// What stands between the slashes: `str::split` for one byte and short texts.
struct Segments<'p>(Option<&'p str>);

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    #[inline]
    fn next(&mut self) -> Option<&'p str> {
        let rest = self.0?;
        match rest.bytes().position(|byte| byte == b'/') {
            Some(end) => {
                self.0 = Some(&rest[end + 1..]);
                Some(&rest[..end])
            }
            None => self.0.take(),
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
    Some(PathTrie),
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
        let mut trie = PathTrie::default();
        for pattern in &patterns {
            trie.insert(pattern, 0);
        }
        Self(Fits::Some(trie))
    }

    /// Whether a pattern fits. Without a path, none does.
    pub fn contains(&self, path: Option<&str>) -> bool {
        let Some(path) = path else {
            return false;
        };
        let trie = match &self.0 {
            Fits::Nothing => return false,
            Fits::Everything => return path.starts_with('/'),
            Fits::Some(trie) => trie,
        };
        let found = trie.find(path, |rules| match rules {
            [] => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        found.is_break()
    }
}
