//! A Redis cluster.

use std::io;

use crate::cli::{Reply, field_of};
use crate::hash_slot::HASH_SLOTS;
use crate::server::{RedisServer, RedisServerBuilder};
use crate::wait::{wait_for, wait_until};

/// A cluster of primaries without replicas, with equal ranges of hash slots in order.
///
/// The cluster serves the hash slots of live nodes while others are down
/// (`cluster-require-full-coverage no`), and detects a dead node after about a second. A
/// start takes two seconds, because Redis delays a node that joins.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster. At least three nodes are needed to have a majority when one fails.
    pub fn start(nodes: usize) -> Self {
        Self::start_with(nodes, |node| node)
    }

    /// Starts a cluster whose nodes are configured further, for example with another binary.
    pub fn start_with(
        nodes: usize,
        configure: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        let node = |_| {
            let builder = RedisServer::builder()
                .cluster()
                .config("cluster-config-file nodes.conf")
                .config("cluster-node-timeout 1000")
                .config("cluster-require-full-coverage no");
            configure(builder).start()
        };
        let cluster = Self {
            nodes: (0..nodes).map(node).collect(),
        };
        cluster.assign_slots();
        cluster.meet();
        cluster.wait_until_ok();
        cluster
    }

    /// Returns the number of nodes, including dead ones.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the cluster has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns a node.
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index]
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the URL of each node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// Returns the node that owns a hash slot, according to itself.
    ///
    /// # Panics
    /// If no live node owns it.
    #[track_caller]
    pub fn node_of_hash_slot(&self, slot: u16) -> usize {
        wait_for("a node that owns the slot", || {
            (0..self.len()).find(|node| {
                let slots = self.slots_of(*node).unwrap_or_default();
                slots
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&slot))
            })
        })
    }

    /// Returns the first key of the form `NAME:NUMBER` that a node owns.
    pub fn key_on(&self, node: usize, name: &str) -> String {
        let slots = self.slots_of(node).expect("a live node");
        let mut keys = (0..).map(|number: u32| format!("{name}:{number}"));
        let owns = |key: &String| {
            let slot = crate::hash_slot::hash_slot_of(key);
            slots
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&slot))
        };
        keys.find(owns).expect("every node owns some key")
    }

    /// Kills a node. No other node takes over its hash slots.
    pub fn kill_node(&self, index: usize) {
        self.nodes[index].kill();
    }

    /// Restarts a node and waits until all live nodes serve. It owns its hash slots again, but
    /// its keys are lost.
    pub fn restart_node(&self, index: usize) {
        self.nodes[index].restart();
        self.wait_until_ok();
    }

    /// Waits until every live node serves and sees all live nodes as serving.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        let live: Vec<_> = self.nodes.iter().filter(|node| node.is_running()).collect();
        for node in &live {
            wait_until("a cluster node serves", || {
                sees_all(node, &live).unwrap_or(false)
            });
        }
    }

    /// Waits until every live node sees a dead one as failed.
    #[track_caller]
    pub fn wait_until_down(&self, index: usize) {
        let port = format!(":{}@", self.nodes[index].port());
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            wait_until("the other nodes see the node as failed", || {
                let lines = nodes_seen_by(node).unwrap_or_default();
                let mut dead = lines.iter().filter(|line| line.contains(&port));
                dead.any(|line| flags(line).contains(&"fail"))
            });
        }
    }

    fn assign_slots(&self) {
        let count = u32::try_from(self.len()).expect("a few nodes");
        // The bounds of the ranges are rounded, not their sizes, so no slot is lost.
        let bound = |index: usize| {
            let index = u32::try_from(index).expect("a few nodes");
            u32::from(HASH_SLOTS) * index / count
        };
        for (index, node) in self.nodes.iter().enumerate() {
            let (first, last) = (bound(index), bound(index + 1) - 1);
            let mut cli = node.cli();
            // Nodes with the same epoch would first have to resolve the conflict.
            cli.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])
                .expect_ok();
            let range = [first.to_string(), last.to_string()];
            cli.command(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]])
                .expect_ok();
        }
    }

    fn meet(&self) {
        let mut cli = self.nodes[0].cli();
        for node in &self.nodes[1..] {
            let (port, bus) = (node.port(), node.cluster_port().expect("a cluster node"));
            let ports = [port.to_string(), bus.to_string()];
            cli.command(&["CLUSTER", "MEET", "127.0.0.1", &ports[0], &ports[1]])
                .expect_ok();
        }
    }

    /// Returns the ranges of hash slots that a node owns, according to itself.
    fn slots_of(&self, index: usize) -> io::Result<Vec<(u16, u16)>> {
        let lines = nodes_seen_by(&self.nodes[index])?;
        let own = lines.iter().find(|line| flags(line).contains(&"myself"));
        let words = own
            .map(|line| line.split(' ').skip(8))
            .into_iter()
            .flatten();
        // Migrating slots are in brackets.
        let ranges = words.filter(|word| !word.starts_with('[')).map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let number = |text: &str| text.parse().expect("CLUSTER NODES shows slots as numbers");
            (number(first), number(last))
        });
        Ok(ranges.collect())
    }
}

/// Returns whether a node serves, and sees all live nodes and their slots.
fn sees_all(node: &RedisServer, live: &[&RedisServer]) -> io::Result<bool> {
    let info = node.try_cli()?.try_command(&["CLUSTER", "INFO"])?;
    if field_of(&info.text(), "cluster_state").as_deref() != Some("ok") {
        return Ok(false);
    }
    let lines = nodes_seen_by(node)?;
    let sees = |other: &&RedisServer| {
        let port = format!(":{}@", other.port());
        let mut lines = lines.iter().filter(|line| line.contains(&port));
        // Each word after the eighth is a range of slots.
        lines.any(|line| {
            flags(line).iter().all(|flag| !is_failure(flag)) && line.split(' ').count() > 8
        })
    };
    Ok(live.iter().all(sees))
}

fn nodes_seen_by(node: &RedisServer) -> io::Result<Vec<String>> {
    if !node.is_running() {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let reply: Reply = node.try_cli()?.try_command(&["CLUSTER", "NODES"])?;
    Ok(reply.text().lines().map(str::to_owned).collect())
}

/// Returns the flags in a line of `CLUSTER NODES`.
fn flags(line: &str) -> Vec<&str> {
    let flags = line.split(' ').nth(2).unwrap_or_default();
    flags.split(',').collect()
}

fn is_failure(flag: &str) -> bool {
    matches!(flag, "fail" | "fail?" | "handshake" | "noaddr")
}

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
