//! Moving hash slots between nodes.

use super::RedisCluster;
use crate::reply::Reply;

/// A hash slot that is moving between two nodes.
///
/// The old node serves the keys that it still has and replies `ASK` for the others. A
/// command on several keys gets `TRYAGAIN` if some have moved. If dropped before
/// [`HashSlotMove::finish`], the hash slot stays in this state.
#[derive(Debug)]
#[must_use]
pub struct HashSlotMove<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl RedisCluster {
    /// Moves a hash slot with all its keys.
    #[track_caller]
    pub fn move_hash_slot(&self, slot: u16, to: usize) {
        self.begin_move(slot, to).finish();
    }

    /// Marks a hash slot as migrating and importing. No key moves yet.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, to: usize) -> HashSlotMove<'_> {
        let from = self.node_of_hash_slot(slot);
        assert_ne!(from, to, "slot {slot} is there already");
        let moving = HashSlotMove {
            cluster: self,
            slot,
            from,
            to,
        };
        // In this order, so that no client is redirected to a node that does not expect it.
        moving.set_slot(to, "IMPORTING", &moving.id(from));
        moving.set_slot(from, "MIGRATING", &moving.id(to));
        moving
    }
}

impl HashSlotMove<'_> {
    /// Returns the node that owns the hash slot until the move is finished.
    pub fn from(&self) -> usize {
        self.from
    }

    /// Returns the node that will own the hash slot.
    pub fn to(&self) -> usize {
        self.to
    }

    /// Moves at most this many keys and returns their number, which is 0 when all have moved.
    #[track_caller]
    pub fn move_keys(&self, at_most: usize) -> usize {
        let mut cli = self.cluster.node(self.from).cli();
        let (slot, count) = (self.slot.to_string(), at_most.to_string());
        let reply = cli.command(&["CLUSTER", "GETKEYSINSLOT", &slot, &count]);
        let keys = reply.array();
        if keys.is_empty() {
            return 0;
        }
        let port = self.cluster.node(self.to).port().to_string();
        let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"];
        let head = head.iter().map(|word| word.as_bytes());
        let command: Vec<&[u8]> = head.chain(keys.iter().map(Reply::bytes)).collect();
        let reply = cli.command(&command);
        // The keys may have expired in between.
        if reply != Reply::Simple("NOKEY".to_owned()) {
            reply.expect_ok();
        }
        keys.len()
    }

    /// Moves the remaining keys and announces the new owner to every live node.
    #[track_caller]
    pub fn finish(self) {
        // A migrating slot gets no new keys: these are created on the new node.
        while self.move_keys(100) > 0 {}
        let new = self.id(self.to);
        self.set_slot(self.to, "NODE", &new);
        self.set_slot(self.from, "NODE", &new);
        let others = (0..self.cluster.len()).filter(|node| ![self.from, self.to].contains(node));
        for node in others.filter(|node| self.cluster.node(*node).is_running()) {
            self.set_slot(node, "NODE", &new);
        }
    }

    #[track_caller]
    fn set_slot(&self, node: usize, state: &str, other: &str) {
        let slot = self.slot.to_string();
        let mut cli = self.cluster.node(node).cli();
        cli.command(&["CLUSTER", "SETSLOT", &slot, state, other])
            .expect_ok();
    }

    #[track_caller]
    fn id(&self, node: usize) -> String {
        let mut cli = self.cluster.node(node).cli();
        cli.command(&["CLUSTER", "MYID"]).text()
    }
}
