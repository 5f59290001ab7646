//! Many path patterns, walked at once.

use std::ops::ControlFlow;

use super::alive::Alive;
use super::glob::GlobTrie;
use super::lookup::Lookup;
use super::pattern::{Pattern, Segment};
use super::segments::Segments;

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
    /// Behind a `**`: several segments may lead here.
    repeats: bool,
    rules: Vec<u32>,
}

/// Who is told of the patterns that fit.
struct Ends<F> {
    found: F,
    /// Those that were told of, where segments may lead again.
    told: Alive,
}

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
            let repeats = node.repeats || node.stays;
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
                    repeats,
                    ..PathNode::default()
                });
            }
            at = to as usize;
        }
        self.nodes[at].rules.push(rule);
    }

    /// Calls `found` with the rules at the end of every pattern that fits,
    /// until it breaks. A path that does not begin with `/` fits none.
    pub(super) fn find(
        &self,
        path: &str,
        found: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let segments = match Segments::of(path) {
            Some(segments) if self.nodes.len() > 1 => segments,
            _ => return ControlFlow::Continue(()),
        };
        let told = Alive::default();
        let ends = &mut Ends { found, told };
        let (mut alive, mut next) = (&mut Alive::default(), &mut Alive::default());
        self.enter(0, alive, ends)?;
        for segment in segments {
            next.clear();
            for at in alive.iter() {
                let node = &self.nodes[at as usize];
                if let Some(to) = node.literals.get(segment.as_bytes()) {
                    self.enter(*to, next, ends)?;
                }
                if let Some(to) = node.any {
                    self.enter(to, next, ends)?;
                }
                if let Some(globs) = &node.globs {
                    globs.find(segment, |to| self.enter(to, next, ends))?;
                }
                if node.stays {
                    self.enter(at, next, ends)?;
                }
            }
            std::mem::swap(&mut alive, &mut next);
            if alive.is_empty() {
                return ControlFlow::Continue(());
            }
        }
        for at in alive.iter() {
            (ends.found)(&self.nodes[at as usize].rules)?;
        }
        ControlFlow::Continue(())
    }

    /// Adds a node, and the one behind a `**` that stands for nothing.
    fn enter(
        &self,
        at: u32,
        alive: &mut Alive,
        ends: &mut Ends<impl FnMut(&[u32]) -> ControlFlow<()>>,
    ) -> ControlFlow<()> {
        let node = &self.nodes[at as usize];
        let is_end = node.is_end();
        if is_end && node.stays {
            // A pattern that ends with `**` fits whatever follows.
            if node.repeats && !ends.told.insert(at, self.nodes.len()) {
                return ControlFlow::Continue(());
            }
            return (ends.found)(&node.rules);
        }
        let is_alive = !is_end || !node.rules.is_empty();
        if is_alive && !alive.insert(at, self.nodes.len()) {
            return ControlFlow::Continue(());
        }
        match node.deep {
            Some(deep) => self.enter(deep, alive, ends),
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
