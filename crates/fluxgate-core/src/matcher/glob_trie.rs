//! Many globs against one segment, in one pass.

use std::ops::ControlFlow;

use foldhash::HashMap;

use super::active_nodes::ActiveNodes;
use super::pattern::Token;

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
