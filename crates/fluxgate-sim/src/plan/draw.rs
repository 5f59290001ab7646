//! Draws plans from seeds.

use super::{Deployment, Latency, Plan, Step};
use crate::random::Random;
use crate::redis::Condition;

/// What a plan tries most. Every theme meets the ordinary faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// All algorithms.
    Rates,
    /// Requests that wait, and give up.
    Waits,
    /// Slots, and charges that are settled later.
    Holds,
    /// Units on lease.
    Leases,
    /// Instances that take over other rules one after the other.
    RuleChanges,
    /// A primary that is replaced, behind sentinels.
    Failover,
    /// A cluster whose hash slots move.
    Cluster,
}

impl Theme {
    /// All themes.
    pub const ALL: [Self; 7] = [
        Self::Rates,
        Self::Waits,
        Self::Holds,
        Self::Leases,
        Self::RuleChanges,
        Self::Failover,
        Self::Cluster,
    ];
}

impl Plan {
    /// Draws a plan.
    pub fn from_seed(seed: u64) -> Self {
        let theme = Theme::ALL[(seed % 7) as usize];
        Self::draw(theme, seed)
    }

    /// Draws a plan with a theme.
    pub fn draw(theme: Theme, seed: u64) -> Self {
        Draw::new(theme, seed).plan()
    }
}

/// What a plan is made of.
struct Draw {
    theme: Theme,
    random: Random,
    instances: u64,
    users: u64,
    /// The shortest and the longest window, as a scale of the plan.
    span: u64,
    end: u64,
    steps: Vec<(u64, Step)>,
    holds: u32,
}

const MILLIS: u64 = 1_000;

impl Draw {
    fn new(theme: Theme, seed: u64) -> Self {
        // So that themes with neighbouring seeds have nothing in common.
        let mut random = Random::new(seed ^ 0x5eed_0000_0000_0000);
        let span = match random.below(4) {
            0 => random.between(5, 50),
            1 => random.between(50, 300),
            _ => random.between(300, 2_000),
        };
        let span = match theme {
            Theme::Leases => span.max(200),
            _ => span,
        };
        Self {
            theme,
            instances: random.between(1, 4),
            users: random.between(1, 3),
            span: span * MILLIS,
            end: 0,
            steps: Vec::new(),
            holds: 0,
            random,
        }
    }

    fn plan(mut self) -> Plan {
        let is_busy = self.random.below(4) == 0;
        self.end = self.span * self.random.between(4, 12) + 500 * MILLIS;
        let rules = self.rules();
        self.requests(if is_busy { 400 } else { 120 });
        self.faults();
        self.steps.sort_by_key(|(at, _)| *at);
        let deployment = match self.theme {
            Theme::Failover => Deployment::Sentinel,
            // A cluster has a few nodes.
            Theme::Cluster => Deployment::Cluster(self.random.between(1, 3) as usize),
            _ => Deployment::Single,
        };
        let fastest = self.random.between(20, 400);
        let slowest = fastest + self.random.below(3_000);
        let deadline = match self.random.below(3) {
            0 => self.random.between(5, 50),
            _ => self.random.between(50, 500),
        };
        Plan {
            seed: self.random.next() % 1_000_000_000,
            deployment,
            instances: self.instances as usize,
            deadline: deadline * MILLIS,
            near_cache: self.random.below(3) == 0,
            max_waits: match (self.theme, self.random.below(2)) {
                (Theme::Waits, 0) => self.random.between(1, 6) as u32,
                _ => 0,
            },
            rules,
            network: Latency {
                fastest,
                slowest,
                late: self.random.below(300) as u32,
                latest: self.random.between(5, 400) * MILLIS,
            },
            drift: self.random.below(5_000) as u32,
            steps: self.steps,
            end: self.end + 300 * MILLIS,
        }
    }

    fn instance(&mut self) -> usize {
        self.random.below(self.instances) as usize
    }

    fn user(&mut self) -> u8 {
        self.random.below(self.users) as u8
    }

    fn time(&mut self) -> u64 {
        self.random.below(self.end)
    }

    /// Draws the versions of the rules.
    fn rules(&mut self) -> Vec<String> {
        let versions = if self.theme == Theme::RuleChanges {
            self.random.between(2, 3)
        } else {
            1
        };
        let rules = match (self.theme, self.random.below(4)) {
            // The rules of a request are in several hash slots, which are not charged at one
            // moment, as the ledger assumes.
            (Theme::Cluster, _) => 1,
            (_, 0) => 2,
            _ => 1,
        };
        let kinds: Vec<_> = (0..rules).map(|_| self.kind()).collect();
        let shared = self.random.below(2) == 0;
        (0..versions)
            .map(|_| {
                let mut set = Vec::new();
                for (number, kind) in kinds.iter().enumerate() {
                    set.push(self.rule(number, kind, shared));
                }
                if self.theme == Theme::Holds {
                    set.push(self.slots());
                }
                let rules = set.join(", ");
                format!("{{ rule_sets: {{ api: {{ on_error: deny, rules: [ {rules} ] }} }} }}")
            })
            .collect()
    }

    /// Draws the algorithm of a rule and what all its versions share.
    fn kind(&mut self) -> RuleKind {
        let algorithms: &[_] = match self.theme {
            Theme::Waits => &["token_bucket", "leaky_bucket"],
            Theme::Leases => &["token_bucket", "leaky_bucket", "fixed_window"],
            _ => &[
                "token_bucket",
                "leaky_bucket",
                "fixed_window",
                "sliding_window",
                "sliding_log",
            ],
        };
        let algorithm = algorithms[self.random.below(algorithms.len() as u64) as usize];
        RuleKind {
            algorithm,
            is_global: self.random.below(4) == 0,
            bands: if self.random.below(3) == 0 { 2 } else { 1 },
            window: self.random.between(self.span / 2, self.span).max(MILLIS) / MILLIS,
        }
    }

    /// Draws a version of a rule.
    fn rule(&mut self, number: usize, kind: &RuleKind, shares_window: bool) -> String {
        let scope = if kind.is_global { "global" } else { "per_user" };
        let is_bucket = kind.algorithm.ends_with("bucket");
        let bands: Vec<_> = (0..kind.bands)
            .map(|band| {
                let capacity = match self.theme {
                    Theme::Leases => self.random.between(4, 60),
                    _ => self.random.between(1, 12),
                };
                let window = if is_bucket || !shares_window {
                    self.random.between(self.span / 2, self.span).max(MILLIS) / MILLIS
                } else {
                    kind.window * (band + 1)
                };
                let rate = if is_bucket && self.random.below(3) > 0 {
                    let refill = self.random.between(1, 7);
                    let period = (window * refill / capacity).max(1);
                    format!(", refill: {refill}, period: {period}ms")
                } else {
                    String::new()
                };
                format!("{{ id: b{band}, capacity: {capacity}, window: {window}ms{rate} }}")
            })
            .collect();
        let wait = match self.theme {
            Theme::Waits if number == 0 => {
                let longest = self.random.between(self.span / 4, 3 * self.span) / MILLIS;
                format!(", on_exceed: wait, max_wait: {}ms", longest.max(1))
            }
            _ => String::new(),
        };
        let lease = match self.theme {
            Theme::Leases => {
                let share = self.random.between(10, 50);
                let life = self.random.between(100, 1_000);
                format!(", lease: {{ share: {share}%, for: {life}ms }}")
            }
            _ => String::new(),
        };
        let (algorithm, bands) = (kind.algorithm, bands.join(", "));
        format!(
            "{{ id: r{number}, scope: {scope}, algorithm: {algorithm}, bands: [ {bands} ]{wait}{lease} }}"
        )
    }

    fn slots(&mut self) -> String {
        let scope = if self.random.below(3) == 0 {
            "global"
        } else {
            "per_user"
        };
        let capacity = self.random.between(1, 4);
        let hold = self.random.between(1, 4);
        format!(
            "{{ id: slots, scope: {scope}, algorithm: concurrency, hold: {hold}s, bands: [ {{ id: s, capacity: {capacity} }} ] }}"
        )
    }

    /// Draws what clients do.
    fn requests(&mut self, most: u64) {
        let count = self.random.between(20, most);
        let most_cost = if self.random.below(2) == 0 { 1 } else { 4 };
        let mut burst_at = self.time();
        for _ in 0..count {
            if self.random.below(6) == 0 {
                burst_at = self.time();
            }
            let at = if self.random.below(3) == 0 {
                self.time()
            } else {
                burst_at + self.random.below(2_000)
            };
            let (instance, user) = (self.instance(), self.user());
            let cost = self.random.between(1, most_cost);
            let step = match (self.theme, self.random.below(20)) {
                (_, 0) => Step::Peek {
                    instance,
                    user,
                    cost,
                },
                (Theme::Holds, 1..=9) => {
                    self.hold(at, instance, user, cost);
                    continue;
                }
                (Theme::Waits, 1..=14) => Step::Wait {
                    instance,
                    user,
                    cost,
                    patience: if self.random.below(2) == 0 {
                        self.random.below(self.span)
                    } else {
                        20 * self.span
                    },
                },
                _ => Step::Check {
                    instance,
                    user,
                    cost,
                    times: match self.theme {
                        Theme::Leases => self.random.between(1, 12) as u32,
                        _ => self.random.between(1, 3) as u32,
                    },
                },
            };
            self.steps.push((at, step));
        }
    }

    /// Draws a hold and what becomes of it.
    fn hold(&mut self, at: u64, instance: usize, user: u8, cost: u64) {
        let name = self.holds;
        self.holds += 1;
        let span = self.random.between(1_000, 3_000) * MILLIS;
        let hold = Step::Hold {
            instance,
            user,
            cost,
            span,
            name,
        };
        self.steps.push((at, hold));
        let mut next = at + self.random.between(1_000, span);
        if self.random.below(3) == 0 {
            let instance = self.instance();
            let renew = Step::Renew {
                instance,
                name,
                span,
            };
            self.steps.push((next, renew));
            next += self.random.between(1_000, span);
        }
        let instance = self.instance();
        let ends = match self.random.below(4) {
            0 => return,
            1 => Step::Settle {
                instance,
                name,
                cost: self.random.below(2 * cost + 1),
            },
            _ => Step::Release { instance, name },
        };
        self.steps.push((next, ends));
        if self.random.below(3) == 0 {
            // A client repeats a call whose reply was lost.
            let instance = self.instance();
            let again = next + self.random.between(1, 50_000);
            self.steps.push((again, Step::Release { instance, name }));
        }
    }

    /// Draws faults.
    fn faults(&mut self) {
        let count = match self.random.below(3) {
            0 => 0,
            1 => self.random.between(1, 3),
            _ => self.random.between(3, 12),
        };
        for _ in 0..count {
            let at = self.time();
            let instance = self.instance();
            let span = self.random.between(1, 2 * self.span);
            let step = match self.random.below(16) {
                0 | 1 => {
                    let down = self.random.between(1, self.span);
                    self.steps.push((at + down, Step::Start { instance }));
                    Step::Crash { instance }
                }
                2 => {
                    let down = self.random.between(1, self.span);
                    self.steps.push((at + down, Step::Start { instance }));
                    Step::Stop { instance }
                }
                3 | 4 => Step::Pause { instance, span },
                5 | 6 => Step::Cut { instance },
                7 => Step::Partition { instance, span },
                // A lease is timed by the clocks of both sides, which may drift but not step.
                8 | 9 if !matches!(self.theme, Theme::Failover | Theme::Leases) => Step::SetClock {
                    server: 0,
                    by: self.random.around_zero((4 * self.span) as u32),
                },
                10 => Step::ScriptFlush { server: 0 },
                11 if self.random.below(4) == 0 => Step::Restart { server: 0 },
                12 => Step::Refuse {
                    server: 0,
                    condition: match self.random.below(4) {
                        0 => Condition::Loading,
                        1 => Condition::Busy,
                        2 => Condition::Misconfigured,
                        _ => Condition::OutOfMemory,
                    },
                    span,
                },
                13 => Step::Refund {
                    instance,
                    user: self.user(),
                    units: self.random.between(1, 5),
                },
                14 if self.random.below(2) == 0 => Step::Reset {
                    instance,
                    user: self.user(),
                },
                _ => Step::Cut { instance },
            };
            self.steps.push((at, step));
        }
        self.themed_faults();
    }

    /// Draws what the theme is about.
    fn themed_faults(&mut self) {
        match self.theme {
            Theme::RuleChanges => {
                for _ in 0..self.random.between(1, 3 * self.instances) {
                    let change = Step::Rules {
                        instance: self.instance(),
                        version: self.random.below(3) as usize,
                    };
                    let at = self.time();
                    self.steps.push((at, change));
                }
            }
            Theme::Failover => {
                let at = self.time();
                let lag = match self.random.below(2) {
                    0 => 0,
                    _ => self.random.below(self.span),
                };
                let failover = Step::Failover {
                    lag,
                    overlap: self.random.below(4 * self.span),
                    spread: self.random.below(500 * MILLIS),
                };
                self.steps.push((at, failover));
            }
            Theme::Cluster => {
                for _ in 0..self.random.between(1, 4) {
                    let step = Step::MoveSlot {
                        user: self.user(),
                        to: self.random.below(3) as usize,
                        span: self.random.between(MILLIS, self.span),
                    };
                    let at = self.time();
                    self.steps.push((at, step));
                }
            }
            _ => {}
        }
    }
}

/// What all versions of a rule share.
struct RuleKind {
    algorithm: &'static str,
    is_global: bool,
    bands: u64,
    window: u64,
}
