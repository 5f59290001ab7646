//! What happens in a run: the rules, the machines, the network, and what clients and operators do
//! and which faults occur, each at its time. A plan is data, drawn from a seed, so that it can be
//! printed, cut down and kept as a test.

mod draw;
mod text;

pub use draw::Theme;
use serde::{Deserialize, Serialize};

use crate::redis::Condition;

/// What a run does. Times are in microseconds of virtual time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed of latencies and of the random numbers of the instances.
    pub(crate) seed: u64,
    pub(crate) deployment: Deployment,
    pub(crate) instances: usize,
    /// How long a decision may take.
    pub(crate) deadline: u64,
    pub(crate) near_cache: bool,
    /// The most requests that wait, in all instances together; 0 for no bound.
    pub(crate) max_waits: u32,
    /// The rule sets that instances may have, in YAML. They begin with the first.
    pub(crate) rules: Vec<String>,
    pub(crate) network: Latency,
    /// How much faster or slower than virtual time a clock may be, in millionths.
    pub(crate) drift: u32,
    /// In the order of their times.
    pub(crate) steps: Vec<(u64, Step)>,
    /// When it ends.
    pub(crate) end: u64,
}

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Deployment {
    Single,
    /// A primary with a replica, behind three sentinels.
    Sentinel,
    /// A cluster with this many nodes.
    Cluster(usize),
}

/// How long bytes travel, each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) fastest: u64,
    pub(crate) slowest: u64,
    /// The chance that bytes are late, in 10,000ths, and how late at most.
    pub(crate) late: u32,
    pub(crate) latest: u64,
}

/// Something that happens. Instances, users, servers and versions of the rules are numbered from
/// 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// A client sends requests, one after the other.
    Check {
        instance: usize,
        user: u8,
        cost: u64,
        times: u32,
    },
    /// A client asks without being charged.
    Peek {
        instance: usize,
        user: u8,
        cost: u64,
    },
    /// A client holds what it is charged, under a name.
    Hold {
        instance: usize,
        user: u8,
        cost: u64,
        span: u64,
        name: u32,
    },
    /// Settles a hold with a cost.
    Settle {
        instance: usize,
        name: u32,
        cost: u64,
    },
    Release {
        instance: usize,
        name: u32,
    },
    Renew {
        instance: usize,
        name: u32,
        span: u64,
    },
    /// A client waits until it may go on, or gives up after `patience`.
    Wait {
        instance: usize,
        user: u8,
        cost: u64,
        patience: u64,
    },
    /// An operator gives units back, or starts the counters of a user afresh.
    Refund {
        instance: usize,
        user: u8,
        units: u64,
    },
    Reset {
        instance: usize,
        user: u8,
    },
    /// An instance takes over other rules.
    Rules {
        instance: usize,
        version: usize,
    },
    /// An instance dies.
    Crash {
        instance: usize,
    },
    /// An instance returns its leases and ends.
    Stop {
        instance: usize,
    },
    Start {
        instance: usize,
    },
    /// An instance does not run for a while, and goes on where it was.
    Pause {
        instance: usize,
        span: u64,
    },
    /// The connections of an instance are reset: bytes on their way are lost.
    Cut {
        instance: usize,
    },
    /// Nothing gets through between an instance and the servers for a while. What was sent
    /// arrives afterwards, as TCP sends it again.
    Partition {
        instance: usize,
        span: u64,
    },
    /// The clock of a server is set.
    SetClock {
        server: usize,
        by: i64,
    },
    ScriptFlush {
        server: usize,
    },
    /// A server loses its data and ends all connections: it was killed and started again.
    Restart {
        server: usize,
    },
    /// A server refuses commands for a while.
    Refuse {
        server: usize,
        condition: Condition,
        span: u64,
    },
    /// The replica takes over, without the writes of the last `lag`. The old primary serves those
    /// who still talk to it for `overlap`. The sentinels learn of it one by one, within `spread`.
    Failover {
        lag: u64,
        overlap: u64,
        spread: u64,
    },
    /// The hash slot of a user moves to another node, a few keys at a time.
    MoveSlot {
        user: u8,
        to: usize,
        span: u64,
    },
}
