//! Many path patterns against one path, in one pass.

use std::ops::ControlFlow;

use super::active_nodes::ActiveNodes;
use super::glob_trie::GlobTrie;
use super::pattern::{Pattern, Segment};
use super::segments::Segments;
use super::small_map::SmallMap;

/// A trie of patterns by segment, with the rules that end at each node.
#[derive(Clone, Debug)]
pub(super) struct PathTrie {
    nodes: Vec<PathNode>,
}

#[derive(Clone, Debug, Default)]
struct PathNode {
    literals: SmallMap<u32>,
    globs: Option<Box<GlobTrie>>,
    any: Option<u32>,
    /// The node after a segment that is not empty.
    non_empty: Option<u32>,
    deep: Option<u32>,
    /// Reached by a `**`: every segment leads back here.
    stays: bool,
    /// After a `**`: several segments may lead here.
    repeats: bool,
    rules: Vec<u32>,
}

/// The callback for patterns that match.
struct Reporter<F> {
    found: F,
    /// The nodes that were reported and may be reached again.
    reported: ActiveNodes,
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
                Segment::NonEmpty => *node.non_empty.get_or_insert(next),
                Segment::Glob(tokens) => {
                    let globs = node.globs.get_or_insert_default();
                    globs.target_of(tokens, || next)
                }
                // Two in a row mean the same as one.
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

    /// Calls `found` with the rules of every pattern that reporter, until it breaks. A path
    /// that does not begin with `/` matches none.
    pub(super) fn find(
        &self,
        path: &str,
        found: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let segments = match Segments::of(path) {
            Some(segments) if self.nodes.len() > 1 => segments,
            _ => return ControlFlow::Continue(()),
        };
        let reported = ActiveNodes::default();
        let reporter = &mut Reporter { found, reported };
        let (mut active, mut next) = (&mut ActiveNodes::default(), &mut ActiveNodes::default());
        self.enter(0, active, reporter)?;
        for segment in segments {
            next.clear();
            for at in active.iter() {
                let node = &self.nodes[at as usize];
                if let Some(to) = node.literals.get(segment.as_bytes()) {
                    self.enter(*to, next, reporter)?;
                }
                if let Some(to) = node.any {
                    self.enter(to, next, reporter)?;
                }
                if let Some(to) = node.non_empty
                    && !segment.is_empty()
                {
                    self.enter(to, next, reporter)?;
                }
                if let Some(globs) = &node.globs {
                    globs.find(segment, |to| self.enter(to, next, reporter))?;
                }
                if node.stays {
                    self.enter(at, next, reporter)?;
                }
            }
            std::mem::swap(&mut active, &mut next);
            if active.is_empty() {
                return ControlFlow::Continue(());
            }
        }
        for at in active.iter() {
            (reporter.found)(&self.nodes[at as usize].rules)?;
        }
        ControlFlow::Continue(())
    }

    /// Adds a node, and the one after an empty `**`.
    fn enter(
        &self,
        at: u32,
        active: &mut ActiveNodes,
        reporter: &mut Reporter<impl FnMut(&[u32]) -> ControlFlow<()>>,
    ) -> ControlFlow<()> {
        let node = &self.nodes[at as usize];
        let is_end = node.is_end();
        if is_end && node.stays {
            // A pattern that ends with `**` matches whatever follows.
            if node.repeats && !reporter.reported.insert(at, self.nodes.len()) {
                return ControlFlow::Continue(());
            }
            return (reporter.found)(&node.rules);
        }
        let is_active = !is_end || !node.rules.is_empty();
        if is_active && !active.insert(at, self.nodes.len()) {
            return ControlFlow::Continue(());
        }
        match node.deep {
            Some(deep) => self.enter(deep, active, reporter),
            None => ControlFlow::Continue(()),
        }
    }
}

impl PathNode {
    /// Returns whether no segment leads on from here.
    fn is_end(&self) -> bool {
        self.literals.is_empty()
            && self.globs.is_none()
            && self.any.is_none()
            && self.non_empty.is_none()
    }
}
