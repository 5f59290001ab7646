//! Many globs over one segment, walked at once.

use std::ops::ControlFlow;

use hashbrown::HashMap;

use super::alive::Alive;
use super::pattern::Token;

/// A trie of globs. Globs that begin alike share their beginning, so the nodes
/// that are alive at once are few however many globs there are.
#[derive(Clone, Debug)]
pub(super) struct GlobTrie {
    nodes: Vec<GlobNode>,
}

#[derive(Clone, Debug, Default)]
struct GlobNode {
    chars: HashMap<char, u32>,
    one: Option<u32>,
    many: Option<u32>,
    /// Reached by a `*`: any character leads back here.
    stays: bool,
    /// Where a glob that ends here leads to.
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
    /// Where this glob leads; `make` says so for one that is new.
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

    /// Calls `found` with the target of every glob that `segment` fits,
    /// until it breaks.
    pub(super) fn find(
        &self,
        segment: &str,
        mut found: impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (mut alive, mut next) = (&mut Alive::default(), &mut Alive::default());
        self.enter(0, alive);
        for char in segment.chars() {
            next.clear();
            for at in alive.iter() {
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
            std::mem::swap(&mut alive, &mut next);
            if alive.is_empty() {
                break;
            }
        }
        for at in alive.iter() {
            if let Some(target) = self.nodes[at as usize].target {
                found(target)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Adds a node, and the one behind a `*` that stands for nothing.
    fn enter(&self, at: u32, alive: &mut Alive) {
        if alive.insert(at, self.nodes.len())
            && let Some(many) = self.nodes[at as usize].many
        {
            self.enter(many, alive);
        }
    }
}
