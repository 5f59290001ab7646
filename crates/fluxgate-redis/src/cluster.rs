//! A cluster: which node has which slot, and what to do when that changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::breaker::BreakerState;
use crate::endpoint::{CONNECT_TIMEOUT, Endpoint, unexpected};
use crate::error::{Address, CallError, error, timeout as no_answer};
use crate::events::Events;
use crate::jitter::jitter;
use crate::node::{Node, Source, Work};
use crate::reason;

/// The wait before keys that are in two places are asked for again.
const MOVING_WAIT: Duration = Duration::from_millis(4);
/// The map is not asked for more often than this.
const BETWEEN_REFRESHES: Duration = Duration::from_millis(100);
/// When a node has not told the map after so long, another is asked too.
const NEXT_AFTER: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Endpoint>,
    events: Arc<Events>,
    state: Mutex<State>,
    refreshing: AtomicBool,
    /// Held by the one who asks for a map that others wait for.
    asking: tokio::sync::Mutex<()>,
}

/// Ranges of slots, first and last, and where the primary of each is.
type Map = Vec<(u16, u16, Address)>;

#[derive(Debug, Default)]
struct State {
    /// Ranges of slots, in order.
    slots: Vec<SlotRange>,
    nodes: HashMap<Address, Arc<Node>>,
    /// When the map was last asked for, and what went wrong if it was not told.
    tried: Option<Instant>,
    trouble: Option<StoreError>,
}

#[derive(Clone, Debug)]
struct SlotRange {
    first: u16,
    last: u16,
    node: Arc<Node>,
}

impl Cluster {
    /// A cluster of which at least one of the seeds is a node.
    pub(crate) fn new(seeds: Vec<Endpoint>, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            events,
            state: Mutex::default(),
            refreshing: AtomicBool::new(false),
            asking: tokio::sync::Mutex::default(),
        })
    }

    /// Does something where a slot is, following it if it moves: a node that
    /// sends us on has not done it.
    pub(crate) async fn perform(
        self: &Arc<Self>,
        slot: u16,
        work: &Work<'_>,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        let mut node = self.node_of(slot, deadline).await?;
        let mut asking = false;
        loop {
            let cause = match node.perform(work, asking, deadline).await {
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
                    // A node that is asked must have time to answer.
                    if Instant::now() + pause + MOVING_WAIT >= deadline {
                        return Err(CallError::TryAgain.into_store_error());
                    }
                    sleep(pause).await;
                    node = self.node_of(slot, deadline).await?;
                }
                cause => {
                    // A replica may have taken over.
                    self.refresh_in_background();
                    return Err(cause.into_store_error());
                }
            }
            if Instant::now() >= deadline {
                return Err(no_answer("the cluster"));
            }
        }
    }

    /// Every node that has slots. The map is asked for anew: nobody is sent on
    /// by a node that is not known yet.
    pub(crate) async fn nodes(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, StoreError> {
        self.refresh(deadline).await?;
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for range in &self.state().slots {
            if !nodes.iter().any(|known| Arc::ptr_eq(known, &range.node)) {
                nodes.push(Arc::clone(&range.node));
            }
        }
        Ok(nodes)
    }

    /// Open if any node's breaker is.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        let state = self.state();
        let mut states = state.slots.iter().map(|range| range.node.breaker_state());
        states
            .find(|state| *state != BreakerState::Closed)
            .unwrap_or(BreakerState::Closed)
    }

    /// Asks for the map, now: one node, and the next one when that takes its
    /// time or does not know.
    pub(crate) async fn refresh(&self, deadline: Instant) -> Result<(), StoreError> {
        self.state().tried = Some(Instant::now());
        let map = self.ask_for_map(deadline).await;
        let mut state = self.state();
        state.trouble = map.as_ref().err().cloned();
        self.learn(&mut state, map?);
        Ok(())
    }

    async fn ask_for_map(&self, deadline: Instant) -> Result<Map, StoreError> {
        let mut nodes = self.known_nodes().into_iter();
        let mut asked = JoinSet::new();
        let mut trouble = None;
        loop {
            if let Some((host, node)) = nodes.next() {
                asked.spawn(async move { map_of(&node, host.as_deref(), deadline).await });
            }
            let patience = if nodes.len() == 0 {
                deadline
            } else {
                deadline.min(Instant::now() + NEXT_AFTER)
            };
            match timeout_at(patience, asked.join_next()).await {
                Ok(Some(Ok(Ok(map)))) => return Ok(map),
                Ok(Some(Ok(Err(cause)))) => trouble = Some(cause),
                Ok(Some(Err(_))) => {}
                Ok(None) => break,
                Err(_) if Instant::now() >= deadline => break,
                Err(_) => {}
            }
        }
        Err(trouble.unwrap_or_else(|| no_answer("the cluster")))
    }

    /// Those who can be asked, with the host that is theirs: the nodes of the
    /// last map, then the seeds.
    fn known_nodes(&self) -> Vec<(Option<String>, Arc<Node>)> {
        let state = self.state();
        let nodes = state.nodes.iter();
        let nodes = nodes.map(|((host, _), node)| (Some(host.clone()), Arc::clone(node)));
        let seeds = self.seeds.iter().map(|seed| {
            let host = seed.host().map(str::to_owned);
            let source = Source::Fixed(seed.clone());
            (host, Node::new(source, Arc::clone(&self.events)))
        });
        nodes.chain(seeds).collect()
    }

    fn learn(&self, state: &mut State, map: Map) {
        let mut nodes = HashMap::new();
        let mut slots = Vec::new();
        for (first, last, address) in map {
            let node = nodes.entry(address.clone()).or_insert_with(|| {
                let known = state.nodes.get(&address).cloned();
                known.unwrap_or_else(|| self.make_node(address))
            });
            slots.push(SlotRange {
                first,
                last,
                node: Arc::clone(node),
            });
        }
        slots.sort_by_key(|range| range.first);
        state.slots = slots;
        state.nodes = nodes;
    }

    /// The node that has a slot, as far as is known.
    pub(crate) async fn node_of(
        &self,
        slot: u16,
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.state().node_of(slot) {
            return Ok(node);
        }
        let asked = timeout_at(deadline, async {
            // One asks for all who wait.
            let _one = self.asking.lock().await;
            if self.state().is_fresh() {
                return Ok(());
            }
            self.refresh(deadline).await
        });
        asked.await.map_err(|_| no_answer("the cluster"))??;
        let state = self.state();
        state.node_of(slot).ok_or_else(|| {
            let message = format!("no node of the cluster has slot {slot}");
            let trouble = state.trouble.clone();
            trouble.unwrap_or_else(|| error(reason::CLUSTER_DOWN, &message))
        })
    }

    /// The node at an address that another node has named. Without a host it
    /// is that of the node that named it.
    fn node_at(&self, from: &Arc<Node>, (host, port): Address) -> Arc<Node> {
        let mut state = self.state();
        let host = if is_unknown(host.as_bytes()) {
            let mut known = state.nodes.iter();
            let named_by = known.find(|(_, node)| Arc::ptr_eq(node, from));
            named_by.map(|((host, _), _)| host.clone()).unwrap_or(host)
        } else {
            host
        };
        let address = (host, port);
        let node = state.nodes.entry(address.clone());
        Arc::clone(node.or_insert_with(|| self.make_node(address)))
    }

    fn make_node(&self, address: Address) -> Arc<Node> {
        // There is a seed, or nobody could have named a node.
        let source = Source::Fixed(self.seeds[0].at(address));
        Node::new(source, Arc::clone(&self.events))
    }

    fn refresh_in_background(self: &Arc<Self>) {
        if self.state().is_fresh() || self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            // If it fails, the next call that goes wrong asks again.
            let _ = cluster.refresh(Instant::now() + 2 * CONNECT_TIMEOUT).await;
            cluster.refreshing.store(false, Ordering::Release);
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_fresh(&self) -> bool {
        let fresh = |at: Instant| at + BETWEEN_REFRESHES > Instant::now();
        self.tried.is_some_and(fresh)
    }

    fn node_of(&self, slot: u16) -> Option<Arc<Node>> {
        let index = self.slots.partition_point(|range| range.last < slot);
        let range = self.slots.get(index).filter(|range| range.first <= slot)?;
        Some(Arc::clone(&range.node))
    }
}

/// What a node, which is at `host`, knows of the cluster.
async fn map_of(
    node: &Arc<Node>,
    host: Option<&str>,
    deadline: Instant,
) -> Result<Map, StoreError> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let reply = node.command(&question, false, deadline).await;
    let reply = reply.map_err(CallError::into_store_error)?;
    let map = read_map(&reply, host).ok_or_else(|| unexpected("CLUSTER SLOTS"))?;
    if map.is_empty() {
        let message = "no node of the cluster has slots";
        return Err(error(reason::CLUSTER_DOWN, message));
    }
    Ok(map)
}

/// The ranges of `CLUSTER SLOTS`, each with its primary.
fn read_map(reply: &Value, asked: Option<&str>) -> Option<Map> {
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
        let [host, Value::Int(port), ..] = &primary[..] else {
            return None;
        };
        let host = match host {
            Value::BulkString(host) if !is_unknown(host) => String::from_utf8(host.clone()).ok()?,
            // It does not know its own address, but we do.
            _ => asked?.to_owned(),
        };
        let slot = |number: &i64| u16::try_from(*number).ok();
        Some((
            slot(first)?,
            slot(last)?,
            (host, u16::try_from(*port).ok()?),
        ))
    });
    ranges.collect()
}

/// What stands for a host that was not told, or has no name.
fn is_unknown(host: &[u8]) -> bool {
    matches!(host, b"" | b"?")
}

/// The slot of a key: CRC-16 (XMODEM) of its tag, or of all of it.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tagged = tag(key).unwrap_or(key);
    let crc = tagged.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let carry = crc >> 15;
            (crc << 1) ^ (0x1021 * carry)
        })
    });
    crc % 16384
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{}{bar}"), {
            let whole = slot_of(b"foo{}{bar}");
            assert_ne!(whole, slot_of(b"bar"));
            whole
        });
    }

    #[test]
    fn a_map_that_is_none_is_refused() {
        let int = Value::Int;
        let host = |host: &str| Value::BulkString(host.into());
        let range = |primary| Value::Array(vec![Value::Array(vec![int(0), int(9), primary])]);
        let good = range(Value::Array(vec![host("10.0.0.1"), int(7000), host("id")]));
        let map = read_map(&good, None);
        assert_eq!(map, Some(vec![(0, 9, ("10.0.0.1".into(), 7000))]));
        let unnamed = range(Value::Array(vec![host(""), int(7000)]));
        let map = read_map(&unnamed, Some("here"));
        assert_eq!(map, Some(vec![(0, 9, ("here".into(), 7000))]));
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            range(Value::Nil),
            range(Value::Array(vec![host("x")])),
            range(Value::Array(vec![host("x"), int(70_000)])),
            unnamed,
        ] {
            assert_eq!(read_map(&bad, None), None, "{bad:?}");
        }
    }
}
