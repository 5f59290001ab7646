//! The nodes of a trie that are alive at once.

use super::work::steps;
use crate::small::Small;

/// Among so few, looking at all is cheaper than a mark for each.
const FEW: usize = 8;

/// A set of nodes, in the order in which they came. Adding costs the same
/// however many there are.
#[derive(Debug, Default)]
pub(super) struct Alive {
    list: Small<u32, FEW>,
    /// A bit for each node of the trie, true to `list` while that holds `FEW`
    /// or more.
    marks: Vec<u64>,
}

impl Alive {
    /// Whether this node, of a trie of so many `nodes`, is new here.
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
    fn each_node_is_there_once_however_many_there_are() {
        let mut alive = Alive::default();
        for count in [0, 3, FEW - 1, FEW, FEW + 1, 200, 1, 100, FEW] {
            alive.clear();
            let nodes: Vec<u32> = (0..200).rev().take(count).collect();
            for _ in 0..2 {
                for &node in &nodes {
                    let is_known = alive.iter().any(|known| known == node);
                    assert_eq!(alive.insert(node, 200), !is_known);
                }
            }
            assert_eq!(alive.iter().collect::<Vec<_>>(), nodes);
            assert_eq!(alive.is_empty(), count == 0);
        }
    }
}
