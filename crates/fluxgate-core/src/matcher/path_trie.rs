//! Many path patterns against one path, in one pass.

use std::ops::ControlFlow;

use foldhash::HashMap;
use smallvec::SmallVec;

use super::pattern::{Pattern, Segment, Segments, Token};
use super::small_map::SmallMap;
use super::steps::steps;

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

/// A trie of globs. Globs with a common prefix share it, so few nodes are active at the
/// same time, however many globs there are.
#[derive(Clone, Debug)]
pub(super) struct GlobTrie {
    nodes: Vec<GlobNode>,
}

#[derive(Clone, Debug, Default)]
struct GlobNode {
    chars: HashMap<char, u32>,
    one: Option<u32>,
    many: Option<u32>,
    /// Reached by a `*`: every character leads back here.
    stays: bool,
    /// The target of a glob that ends here.
    target: Option<u32>,
}

impl Default for GlobTrie {
    fn default() -> Self {
        Self {
            nodes: vec![GlobNode::default()],
        }
    }
}

impl GlobTrie {
    /// Returns the target of this glob, or that of `make` if it is new.
    pub(super) fn target_of(&mut self, glob: &[Token], make: impl FnOnce() -> u32) -> u32 {
        let mut at = 0;
        for token in glob {
            let next = self.nodes.len() as u32;
            let node = &mut self.nodes[at as usize];
            let slot = match token {
                Token::Char(char) => node.chars.entry(*char).or_insert(next),
                Token::One => node.one.get_or_insert(next),
                Token::Many => node.many.get_or_insert(next),
            };
            at = *slot;
            if at == next {
                self.nodes.push(GlobNode {
                    stays: *token == Token::Many,
                    ..GlobNode::default()
                });
            }
        }
        *self.nodes[at as usize].target.get_or_insert_with(make)
    }

    /// Calls `found` with the target of every glob that matches `segment`, until it
    /// breaks.
    pub(super) fn find(
        &self,
        segment: &str,
        mut found: impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (mut active, mut next) = (&mut ActiveNodes::default(), &mut ActiveNodes::default());
        self.enter(0, active);
        for char in segment.chars() {
            next.clear();
            for at in active.iter() {
                let node = &self.nodes[at as usize];
                if let Some(&to) = node.chars.get(&char) {
                    self.enter(to, next);
                }
                if let Some(to) = node.one {
                    self.enter(to, next);
                }
                if node.stays {
                    self.enter(at, next);
                }
            }
            std::mem::swap(&mut active, &mut next);
            if active.is_empty() {
                break;
            }
        }
        for at in active.iter() {
            if let Some(target) = self.nodes[at as usize].target {
                found(target)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Adds a node, and the one after an empty `*`.
    fn enter(&self, at: u32, active: &mut ActiveNodes) {
        if active.insert(at, self.nodes.len())
            && let Some(many) = self.nodes[at as usize].many
        {
            self.enter(many, active);
        }
    }
}

/// Up to this many, a scan is cheaper than a bit set.
const FEW: usize = 8;

/// A set of nodes, in the order of their insertion. An insertion takes constant time.
#[derive(Debug, Default)]
pub(super) struct ActiveNodes {
    list: SmallVec<[u32; FEW]>,
    /// A bit for each node of the trie, maintained while `list` holds `FEW` or more.
    marks: Vec<u64>,
}

impl ActiveNodes {
    /// Adds a node of a trie of `nodes` nodes. Returns whether it is new.
    #[inline]
    pub(super) fn insert(&mut self, node: u32, nodes: usize) -> bool {
        if self.list.len() < FEW {
            steps(1 + self.list.len());
            if self.list.contains(&node) {
                return false;
            }
        } else if !self.mark(node, nodes) {
            return false;
        }
        self.list.push(node);
        true
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        if self.list.len() >= FEW && !self.marks.is_empty() {
            for &node in self.list.iter() {
                self.marks[node as usize / 64] = 0;
            }
        }
        self.list.clear();
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.list.iter().copied()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[cold]
    fn mark(&mut self, node: u32, nodes: usize) -> bool {
        steps(1);
        if self.marks.is_empty() {
            self.marks = vec![0; nodes.div_ceil(64)];
        }
        if self.list.len() == FEW {
            for &node in self.list.iter() {
                self.marks[node as usize / 64] |= 1 << (node % 64);
            }
        }
        let word = &mut self.marks[node as usize / 64];
        let is_new = *word & (1 << (node % 64)) == 0;
        *word |= 1 << (node % 64);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_in_the_set_once() {
        let mut active = ActiveNodes::default();
        for count in [0, 3, FEW - 1, FEW, FEW + 1, 200, 1, 100, FEW] {
            active.clear();
            let nodes: Vec<u32> = (0..200).rev().take(count).collect();
            for _ in 0..2 {
                for &node in &nodes {
                    let is_known = active.iter().any(|known| known == node);
                    assert_eq!(active.insert(node, 200), !is_known);
                }
            }
            assert_eq!(active.iter().collect::<Vec<_>>(), nodes);
            assert_eq!(active.is_empty(), count == 0);
        }
    }
}
