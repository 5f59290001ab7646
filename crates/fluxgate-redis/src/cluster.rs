//! A cluster: finds the node that has a hash slot, and follows hash slots that move.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::back_off::jitter;
use crate::breaker::BreakerState;
use crate::endpoint::{CONNECT_TIMEOUT, Endpoint};
use crate::error::{Address, CallError, error, no_answer, unexpected};
use crate::events::Events;
use crate::lock::lock;
use crate::node::{Node, Operation, ServerLocation};
use crate::reason;

/// The wait before a call is repeated whose keys are on two nodes.
const MOVING_WAIT: Duration = Duration::from_millis(4);
/// The shortest time between two queries of the hash slot map.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// How long a node may take to send the map before another one is queried, too.
const HEDGE_DELAY: Duration = Duration::from_millis(10);

/// A cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Endpoint>,
    events: Arc<Events>,
    state: Mutex<State>,
    refreshing: AtomicBool,
    /// Held by the task that queries the map while others wait.
    querying: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Ranges of hash slots, in order.
    ranges: Vec<NodeRange>,
    nodes: BTreeMap<Address, Arc<Node>>,
    /// The names of the primaries that were logged last.
    logged: Vec<String>,
    /// When the map was last queried, and the error if that failed.
    last_refresh: Option<Instant>,
    last_error: Option<StoreError>,
}

/// A range of hash slots, and the node that has them.
#[derive(Clone, Debug)]
struct NodeRange {
    first: u16,
    last: u16,
    node: Arc<Node>,
}

impl Cluster {
    /// Creates a cluster. At least one of the seeds must be a node.
    pub(crate) fn new(seeds: Vec<Endpoint>, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            events,
            state: Mutex::default(),
            refreshing: AtomicBool::new(false),
            querying: tokio::sync::Mutex::default(),
        })
    }

    /// Runs a script or a command on the node that has a hash slot, and follows redirections: a
    /// node that redirects has not run it.
    pub(crate) async fn perform(
        self: &Arc<Self>,
        hash_slot: u16,
        operation: Operation<'_>,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        let mut node = self.node_of(hash_slot, deadline).await?;
        let mut asking = false;
        loop {
            let cause = match node.perform(operation, asking, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(cause) => cause,
            };
            asking = false;
            match cause {
                CallError::Moved(to) => {
                    self.refresh_in_background();
                    node = self.node_at(&node, to);
                }
                CallError::Ask(to) => {
                    node = self.node_at(&node, to);
                    asking = true;
                }
                CallError::TryAgain => {
                    let pause = jitter(MOVING_WAIT);
                    // The node must have time to answer.
                    if Instant::now() + pause + MOVING_WAIT >= deadline {
                        return Err(CallError::TryAgain.into());
                    }
                    sleep(pause).await;
                    node = self.node_of(hash_slot, deadline).await?;
                }
                cause => {
                    // A replica may have taken over.
                    self.refresh_in_background();
                    return Err(cause.into());
                }
            }
            if Instant::now() >= deadline {
                return Err(no_answer("the cluster"));
            }
        }
    }

    /// Returns every node that has hash slots. Refreshes the map first, because no redirection
    /// would reveal a node that the map lacks.
    pub(crate) async fn nodes(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, StoreError> {
        self.refresh(deadline).await?;
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for range in &lock(&self.state).ranges {
            if !nodes.iter().any(|known| Arc::ptr_eq(known, &range.node)) {
                nodes.push(Arc::clone(&range.node));
            }
        }
        Ok(nodes)
    }

    /// Returns the state of a breaker that is not closed, if any.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        let state = lock(&self.state);
        let mut states = state.ranges.iter().map(|range| range.node.breaker_state());
        states
            .find(|state| *state != BreakerState::Closed)
            .unwrap_or(BreakerState::Closed)
    }

    /// Refreshes the map: queries one node, and the next one if it is slow or fails.
    pub(crate) async fn refresh(&self, deadline: Instant) -> Result<(), StoreError> {
        lock(&self.state).last_refresh = Some(Instant::now());
        let map = self.fetch_map(deadline).await;
        let mut state = lock(&self.state);
        state.last_error = map.as_ref().err().cloned();
        self.update(&mut state, map?);
        Ok(())
    }

    async fn fetch_map(&self, deadline: Instant) -> Result<HashSlotMap, StoreError> {
        let mut nodes = self.known_nodes().into_iter();
        let mut queries = JoinSet::new();
        let mut last_error = None;
        loop {
            if let Some((host, node)) = nodes.next() {
                queries.spawn(async move { query_map(&node, host.as_deref(), deadline).await });
            }
            let until = if nodes.len() == 0 {
                deadline
            } else {
                deadline.min(Instant::now() + HEDGE_DELAY)
            };
            match timeout_at(until, queries.join_next()).await {
                Ok(Some(Ok(Ok(map)))) => return Ok(map),
                Ok(Some(Ok(Err(cause)))) => last_error = Some(cause),
                Ok(Some(Err(_))) => {}
                Ok(None) => break,
                Err(_) if Instant::now() >= deadline => break,
                Err(_) => {}
            }
        }
        Err(last_error.unwrap_or_else(|| no_answer("the cluster")))
    }

    /// Returns the nodes of the last map, then the seeds, each with its host.
    fn known_nodes(&self) -> Vec<(Option<String>, Arc<Node>)> {
        let state = lock(&self.state);
        let known = state.nodes.iter();
        let nodes = known.map(|((host, _), node)| (Some(host.clone()), Arc::clone(node)));
        let seeds = self.seeds.iter().map(|seed| {
            let host = seed.host().map(str::to_owned);
            let location = ServerLocation::Fixed(seed.clone());
            (host, Node::new(location, Arc::clone(&self.events)))
        });
        nodes.chain(seeds).collect()
    }

    fn update(&self, state: &mut State, map: HashSlotMap) {
        let mut nodes = BTreeMap::new();
        let mut ranges = Vec::new();
        for PrimaryRange {
            first,
            last,
            primary,
        } in map
        {
            let node = nodes.entry(primary.clone()).or_insert_with(|| {
                let known = state.nodes.get(&primary).cloned();
                known.unwrap_or_else(|| self.make_node(primary))
            });
            ranges.push(NodeRange {
                first,
                last,
                node: Arc::clone(node),
            });
        }
        ranges.sort_by_key(|range| range.first);
        state.ranges = ranges;
        state.nodes = nodes;
        let servers = state.primaries();
        if state.logged != servers {
            tracing::info!(
                mode = "cluster",
                servers = servers.join(", "),
                "the primaries of the cluster were found"
            );
            state.logged = servers;
        }
    }

    /// Returns the node that has a hash slot, by the last map.
    pub(crate) async fn node_of(
        &self,
        hash_slot: u16,
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = lock(&self.state).node_of(hash_slot) {
            return Ok(node);
        }
        let queried = timeout_at(deadline, async {
            // One task queries for all that wait.
            let _guard = self.querying.lock().await;
            if lock(&self.state).is_fresh() {
                return Ok(());
            }
            self.refresh(deadline).await
        });
        queried.await.map_err(|_| no_answer("the cluster"))??;
        let state = lock(&self.state);
        state.node_of(hash_slot).ok_or_else(|| {
            let message = format!("no node of the cluster has slot {hash_slot}");
            let last_error = state.last_error.clone();
            last_error.unwrap_or_else(|| error(reason::CLUSTER_DOWN, &message))
        })
    }

    /// Returns the node at the address of a redirection. A missing host is that of the node that
    /// sent the redirection.
    fn node_at(&self, from: &Arc<Node>, (host, port): Address) -> Arc<Node> {
        let mut state = lock(&self.state);
        let mut known = state.nodes.iter();
        let address = match known.find(|(_, node)| Arc::ptr_eq(node, from)) {
            Some(((sender, _), _)) if is_unknown_host(host.as_bytes()) => (sender.clone(), port),
            _ => (host, port),
        };
        let node = state.nodes.entry(address.clone());
        Arc::clone(node.or_insert_with(|| self.make_node(address)))
    }

    fn make_node(&self, address: Address) -> Arc<Node> {
        // The address comes from a node, so there is a seed.
        let location = ServerLocation::Fixed(self.seeds[0].with_address(address));
        Node::new(location, Arc::clone(&self.events))
    }

    pub(crate) fn refresh_in_background(self: &Arc<Self>) {
        if lock(&self.state).is_fresh() || self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            // If it fails, the next failed call tries again.
            let _ = cluster.refresh(Instant::now() + 2 * CONNECT_TIMEOUT).await;
            cluster.refreshing.store(false, Ordering::Release);
        });
    }
}

impl State {
    fn is_fresh(&self) -> bool {
        let fresh = |at: Instant| at + REFRESH_INTERVAL > Instant::now();
        self.last_refresh.is_some_and(fresh)
    }

    /// Returns the names of the nodes that have hash slots, in order.
    fn primaries(&self) -> Vec<String> {
        let mut names: Vec<_> = self.ranges.iter().map(|range| range.node.name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn node_of(&self, hash_slot: u16) -> Option<Arc<Node>> {
        let index = self.ranges.partition_point(|range| range.last < hash_slot);
        let range = self.ranges.get(index)?;
        (range.first <= hash_slot).then(|| Arc::clone(&range.node))
    }
}

/// Queries the hash slot map of the node at `host`.
async fn query_map(
    node: &Arc<Node>,
    host: Option<&str>,
    deadline: Instant,
) -> Result<HashSlotMap, StoreError> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let reply = node.command(&slots, false, deadline).await?;
    let map = parse_hash_slots(&reply, host).ok_or_else(|| unexpected("CLUSTER SLOTS"))?;
    if map.is_empty() {
        let message = "no node of the cluster has slots";
        return Err(error(reason::CLUSTER_DOWN, message));
    }
    Ok(map)
}

/// The hash slots of a cluster.
type HashSlotMap = Vec<PrimaryRange>;

/// A range of hash slots, and the address of their primary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PrimaryRange {
    first: u16,
    last: u16,
    primary: Address,
}

/// Parses the reply of `CLUSTER SLOTS` from the node at `host`.
fn parse_hash_slots(reply: &Value, host: Option<&str>) -> Option<HashSlotMap> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    let ranges = ranges.iter().map(|range| {
        let Value::Array(range) = range else {
            return None;
        };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(primary),
            ..,
        ] = &range[..]
        else {
            return None;
        };
        let [primary_host, Value::Int(port), ..] = &primary[..] else {
            return None;
        };
        let host = match primary_host {
            Value::BulkString(host) if !is_unknown_host(host) => {
                String::from_utf8(host.clone()).ok()?
            }
            // The node does not know its own address.
            _ => host?.to_owned(),
        };
        Some(PrimaryRange {
            first: u16::try_from(*first).ok()?,
            last: u16::try_from(*last).ok()?,
            primary: (host, u16::try_from(*port).ok()?),
        })
    });
    ranges.collect()
}

/// Returns whether a node left a host out or does not know it.
fn is_unknown_host(host: &[u8]) -> bool {
    matches!(host, b"" | b"?")
}

/// Returns the hash slot of a key: CRC-16 (XMODEM) of its hash tag, or of the whole key.
pub(crate) fn hash_slot_of(key: &[u8]) -> u16 {
    let tagged = hash_tag(key).unwrap_or(key);
    let crc = tagged.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let carry = crc >> 15;
            (crc << 1) ^ (0x1021 * carry)
        })
    });
    crc % 16384
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_slots_match_the_specification() {
        assert_eq!(hash_slot_of(b"123456789"), 0x31c3);
        assert_eq!(hash_slot_of(b"foo"), 12182);
        assert_eq!(
            hash_slot_of(b"{user1000}.following"),
            hash_slot_of(b"user1000")
        );
        assert_eq!(hash_slot_of(b"foo{{bar}}zap"), hash_slot_of(b"{bar"));
        assert_eq!(hash_slot_of(b"foo{}{bar}"), {
            let whole = hash_slot_of(b"foo{}{bar}");
            assert_ne!(whole, hash_slot_of(b"bar"));
            whole
        });
    }

    #[test]
    fn a_malformed_map_is_rejected() {
        let int = Value::Int;
        let host = |host: &str| Value::BulkString(host.into());
        let range = |primary| Value::Array(vec![Value::Array(vec![int(0), int(9), primary])]);
        let good = range(Value::Array(vec![host("10.0.0.1"), int(7000), host("id")]));
        let map = parse_hash_slots(&good, None);
        let expected = |host: &str| PrimaryRange {
            first: 0,
            last: 9,
            primary: (host.into(), 7000),
        };
        assert_eq!(map, Some(vec![expected("10.0.0.1")]));
        let unnamed = range(Value::Array(vec![host(""), int(7000)]));
        let map = parse_hash_slots(&unnamed, Some("here"));
        assert_eq!(map, Some(vec![expected("here")]));
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            range(Value::Nil),
            range(Value::Array(vec![host("x")])),
            range(Value::Array(vec![host("x"), int(70_000)])),
            unnamed,
        ] {
            assert_eq!(parse_hash_slots(&bad, None), None, "{bad:?}");
        }
    }
}
