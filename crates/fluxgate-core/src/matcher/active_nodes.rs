//! The nodes of a trie that are active at the same time.

use smallvec::SmallVec;

use super::steps::steps;

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
