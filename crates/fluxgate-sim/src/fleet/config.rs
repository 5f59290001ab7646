//! The configuration of a fleet. Times are in microseconds, chances in 10,000ths.

use fluxgate_core::{Band, InvalidRules, Lease, Limit, Rule, RuleSet};

use crate::random::Random;

/// The configuration of a fleet.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// The seed of all random choices.
    pub seed: u64,
    /// How long it runs, in virtual time.
    pub duration: u64,
    /// The number of instances.
    pub instances: u32,
    /// The rules. All of them apply to every request.
    pub rules: Vec<FleetRule>,
    /// The requests.
    pub traffic: Traffic,
    /// The network.
    pub network: Network,
    /// How instances end.
    pub churn: Churn,
    /// The most by which a clock is faster or slower than virtual time, in millionths.
    pub drift: u32,
    /// The mean time between two losses of the server's data; 0 for none.
    pub data_loss: u64,
    /// A fault of the server.
    pub fault: Fault,
}

/// A rule that leases.
#[derive(Clone, Debug)]
pub struct FleetRule {
    /// Its bands.
    pub bands: Vec<Band>,
    /// Whether it has one counter for all keys.
    pub is_global: bool,
}

impl FleetRule {
    /// Creates a rule with bands of one algorithm.
    pub fn new(limits: &[Limit], lease: Lease, is_global: bool) -> Result<Self, InvalidRules> {
        let rule = limits.iter().fold(
            Rule::new("leased").per_user().lease(lease),
            |rule, limit| rule.band(*limit),
        );
        let set = RuleSet::builder("fleet").rule(rule).build()?;
        let bands = set.rule("leased").map(|rule| rule.bands().to_vec());
        Ok(Self {
            bands: bands.unwrap_or_default(),
            is_global,
        })
    }
}

/// The requests that come to a fleet.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The mean time between two requests to the fleet.
    pub mean_gap: u64,
    /// How many keys there are.
    pub keys: u32,
    /// Whether keys are drawn by Zipf's law instead of evenly.
    pub zipf: bool,
    /// The number of instances that get the requests of one key; 0 for all.
    pub instances_per_key: u32,
    /// Requests cost from 1 to this many units.
    pub most_cost: u64,
    /// The chance of a burst of requests with one key at once.
    pub burst: u32,
    /// The most requests of a burst.
    pub most_burst: u64,
    /// The mean time between two floods of one key: more requests at once than all instances and
    /// the server can admit; 0 for none.
    pub flood: u64,
    /// The chance of a pause.
    pub pause: u32,
    /// The longest pause.
    pub longest_pause: u64,
}

/// The network between instances and server.
#[derive(Clone, Debug)]
pub struct Network {
    /// The least latency, each way.
    pub fastest: u64,
    /// The most latency, each way, of calls and replies that are not late.
    pub slowest: u64,
    /// The chance that a call or a reply is lost.
    pub lost: u32,
    /// The chance that a call or a reply is late.
    pub late: u32,
    /// The most latency of late ones.
    pub latest: u64,
    /// How long an instance waits for a reply.
    pub deadline: u64,
}

/// The latency of a call and of its reply; `None` if it is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub(super) there: Option<u64>,
    pub(super) back: Option<u64>,
}

impl Network {
    pub(super) fn trip(&self, random: &mut Random) -> Trip {
        Trip {
            there: self.latency(random),
            back: self.latency(random),
        }
    }

    fn latency(&self, random: &mut Random) -> Option<u64> {
        if random.chance(self.lost) {
            return None;
        }
        let slowest = if random.chance(self.late) {
            self.latest
        } else {
            self.slowest
        };
        Some(random.between(self.fastest, slowest))
    }
}

/// How instances end. Each time is a mean; 0 for never.
#[derive(Clone, Debug)]
pub struct Churn {
    /// The time between two crashes in the fleet.
    pub crash: u64,
    /// The time between two instances that return their units and end.
    pub shutdown: u64,
    /// The time until an instance that has ended starts again.
    pub down: u64,
}

/// A fault of the server, to test that the oracle detects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It forgets which units are out.
    ForgetsOutstanding,
    /// It decides by the whole capacity of a bucket, although units are out.
    SharesAll,
}
