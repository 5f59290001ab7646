//! A cluster of primaries.

mod migration;

use std::io;

pub use migration::SlotMove;

use crate::cli::field_of;
use crate::reply::Reply;
use crate::server::{RedisServer, RedisServerBuilder};
use crate::slot::SLOTS;
use crate::wait::{wait_for, wait_until};

/// Primaries without replicas that share all slots, in equal ranges: node 0 has
/// the first, and so on.
///
/// A slot whose node is down does not stop the others
/// (`cluster-require-full-coverage no`), and a dead node is noticed after about
/// a second. A node that starts waits two seconds before it serves, as Redis
/// has it, so a start takes that long.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// A cluster of so many nodes; three is the least with a majority that
    /// survives the loss of one.
    pub fn start(nodes: usize) -> Self {
        Self::start_with(nodes, |node| node)
    }

    /// A cluster whose nodes are made special, as with another binary.
    pub fn start_with(
        nodes: usize,
        special: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        let node = |_| {
            let plain = RedisServer::builder()
                .cluster()
                .config("cluster-config-file nodes.conf")
                .config("cluster-node-timeout 1000")
                .config("cluster-require-full-coverage no");
            special(plain).start()
        };
        let cluster = Self {
            nodes: (0..nodes).map(node).collect(),
        };
        cluster.assign_slots();
        cluster.introduce();
        cluster.wait_until_ok();
        cluster
    }

    /// How many nodes it has, dead ones too.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node.
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index]
    }

    /// All nodes.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The URL of each node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// Which node has a slot, as the node itself says.
    ///
    /// # Panics
    /// If no living node says so.
    #[track_caller]
    pub fn node_of_slot(&self, slot: u16) -> usize {
        wait_for("a node that has the slot", || {
            (0..self.len()).find(|node| {
                let slots = self.slots_of(*node).unwrap_or_default();
                slots
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&slot))
            })
        })
    }

    /// A key of the form `NAME:NUMBER` that a node has, the same each time.
    pub fn key_on(&self, node: usize, name: &str) -> String {
        let slots = self.slots_of(node).expect("a living node");
        let mut keys = (0..).map(|number: u32| format!("{name}:{number}"));
        let has = |key: &String| {
            let slot = crate::slot::slot_of(key);
            slots
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&slot))
        };
        keys.find(has).expect("the numbers do not end")
    }

    /// Kills a node; its slots have nobody then.
    pub fn kill_node(&self, index: usize) {
        self.nodes[index].kill();
    }

    /// Starts a node again and waits until all living nodes serve again. It has
    /// its slots and has lost its keys.
    pub fn restart_node(&self, index: usize) {
        self.nodes[index].restart();
        self.wait_until_ok();
    }

    /// Waits until every living node serves, and knows every living node as one
    /// that does.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        let living: Vec<_> = self.nodes.iter().filter(|node| node.is_running()).collect();
        for node in &living {
            wait_until("a cluster node to serve", || {
                self.agrees(node, &living).unwrap_or(false)
            });
        }
    }

    /// Waits until every living node has seen that a dead one is down.
    #[track_caller]
    pub fn wait_until_down(&self, index: usize) {
        let id_port = format!(":{}@", self.nodes[index].port());
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            wait_until("the others to see that a node is down", || {
                let lines = nodes_seen_by(node).unwrap_or_default();
                let mut dead = lines.iter().filter(|line| line.contains(&id_port));
                dead.any(|line| flags(line).contains(&"fail"))
            });
        }
    }

    fn assign_slots(&self) {
        let count = u32::try_from(self.len()).expect("a few nodes");
        // No remainder is lost: the ends of the ranges are rounded, not their size.
        let edge = |index: usize| {
            let index = u32::try_from(index).expect("a few nodes");
            u32::from(SLOTS) * index / count
        };
        for (index, node) in self.nodes.iter().enumerate() {
            let (first, last) = (edge(index), edge(index + 1) - 1);
            let mut cli = node.cli();
            // Nodes with one epoch would quarrel before they serve.
            cli.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])
                .expect_ok();
            let range = [first.to_string(), last.to_string()];
            cli.command(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]])
                .expect_ok();
        }
    }

    fn introduce(&self) {
        let mut cli = self.nodes[0].cli();
        for node in &self.nodes[1..] {
            let (port, bus) = (node.port(), node.cluster_port().expect("a cluster node"));
            let ports = [port.to_string(), bus.to_string()];
            cli.command(&["CLUSTER", "MEET", "127.0.0.1", &ports[0], &ports[1]])
                .expect_ok();
        }
    }

    fn agrees(&self, node: &RedisServer, living: &[&RedisServer]) -> io::Result<bool> {
        let info = node.try_cli()?.try_command(&["CLUSTER", "INFO"])?;
        if field_of(&info.text(), "cluster_state").as_deref() != Some("ok") {
            return Ok(false);
        }
        let lines = nodes_seen_by(node)?;
        let knows = |other: &&RedisServer| {
            let port = format!(":{}@", other.port());
            let mut line = lines.iter().filter(|line| line.contains(&port));
            // Each word after the eighth is a range of slots: it knows them too.
            line.any(|line| {
                flags(line).iter().all(|flag| !is_bad(flag)) && line.split(' ').count() > 8
            })
        };
        Ok(living.iter().all(knows))
    }

    /// The ranges of slots that a node says it has.
    fn slots_of(&self, index: usize) -> io::Result<Vec<(u16, u16)>> {
        let lines = nodes_seen_by(&self.nodes[index])?;
        let own = lines.iter().find(|line| flags(line).contains(&"myself"));
        let words = own
            .map(|line| line.split(' ').skip(8))
            .into_iter()
            .flatten();
        // In brackets: slots that are moving.
        let ranges = words.filter(|word| !word.starts_with('[')).map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let number = |text: &str| text.parse().expect("CLUSTER NODES shows slots as numbers");
            (number(first), number(last))
        });
        Ok(ranges.collect())
    }
}

fn nodes_seen_by(node: &RedisServer) -> io::Result<Vec<String>> {
    if !node.is_running() {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let reply: Reply = node.try_cli()?.try_command(&["CLUSTER", "NODES"])?;
    Ok(reply.text().lines().map(str::to_owned).collect())
}

/// The flags in a line of `CLUSTER NODES`.
fn flags(line: &str) -> Vec<&str> {
    let flags = line.split(' ').nth(2).unwrap_or_default();
    flags.split(',').collect()
}

fn is_bad(flag: &str) -> bool {
    matches!(flag, "fail" | "fail?" | "handshake" | "noaddr")
}
