//! The store on a cluster.

mod denials;
mod differential;
mod discovery;
mod hash_slots;
mod partial_failure;
mod reshard;
mod shard_down;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use fluxgate_testkit::{RedisCluster, hash_slot_of, wait_until};

/// Returns the slot of the keys of an identity, once there are any.
pub(crate) fn slot_of_keys(cluster: &RedisCluster, identity: &str) -> Option<u16> {
    let pattern = format!("*{identity}*");
    cluster.nodes().iter().find_map(|node| {
        let keys = node.try_cli().ok()?.keys(&pattern);
        keys.first().map(hash_slot_of)
    })
}

/// Returns how often the nodes have replied with this error.
fn errors(cluster: &RedisCluster, code: &str) -> u64 {
    let of_node = |stats: String| -> Option<u64> { stats.strip_prefix("count=")?.parse().ok() };
    let counts = cluster.nodes().iter().map(|node| {
        let stats = node.cli().info(&format!("errorstat_{code}"));
        stats.and_then(of_node).unwrap_or(0)
    });
    counts.sum()
}

/// Waits until all nodes know each other's epochs: a node that learns of a move
/// late would assign the slot to its former owner.
fn wait_until_settled(cluster: &RedisCluster) {
    let epochs = |node: &fluxgate_testkit::RedisServer| {
        let nodes = node.cli().command(&["CLUSTER", "NODES"]).text();
        let mut epochs: Vec<(String, String)> = nodes
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (words[0].to_owned(), words[6].to_owned())
            })
            .collect();
        epochs.sort();
        epochs
    };
    wait_until("the nodes to agree", || {
        let mut views = cluster.nodes().iter().map(epochs);
        let first = views.next();
        views.all(|view| Some(view) == first)
    });
}

/// Moves a slot from node to node until it is stopped.
struct Mover {
    is_over: Arc<AtomicBool>,
    moves: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Mover {
    fn start(cluster: &Arc<RedisCluster>, slot: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let moves = Arc::new(AtomicUsize::new(0));
        let thread = thread::spawn({
            let (cluster, is_over) = (Arc::clone(cluster), Arc::clone(&is_over));
            let moves = Arc::clone(&moves);
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    cluster.move_hash_slot(
                        slot,
                        (cluster.node_of_hash_slot(slot) + 1) % cluster.len(),
                    );
                    wait_until_settled(&cluster);
                    moves.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self {
            is_over,
            moves,
            thread,
        }
    }

    /// Returns how often it has moved the slot.
    fn moves(&self) -> usize {
        self.moves.load(Ordering::Relaxed)
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
