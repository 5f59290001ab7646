//! A running instance: the real limiter and store, on a runtime whose time the simulator moves.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fluxgate_core::simulation::{self, Environment};
use fluxgate_core::{
    Decision, HoldId, Limiter, LimiterError, RequestContext, Reservation, RuleSets, Settled,
    Settlement, StoreError,
};
use fluxgate_redis::{RedisStore, Topology, simulation::set_connector};
use tokio::runtime::Runtime;

use crate::clock::Clock;
use crate::network::Network;
use crate::plan::{Deployment, Plan};

/// The rule set of all requests.
pub(super) const SET: &str = "api";
/// The port of the first server, and that of the first sentinel.
pub(super) const FIRST_PORT: u16 = 7_000;
pub(super) const FIRST_SENTINEL: u16 = 7_100;
pub(super) const SENTINELS: u16 = 3;
/// How often a task may yield before the simulator moves on.
const YIELDS: usize = 6;

/// What an operation came to.
#[derive(Debug)]
pub(super) enum Answer {
    Decision(Box<Decision>),
    /// A request may go on after the delay of this decision.
    Reserved(Box<Decision>),
    /// A request that waited goes on, or gave up.
    WentOn,
    GaveUp,
    Settled(Result<Option<Settled>, StoreError>),
    Renewed(Result<bool, StoreError>),
    Administered(Result<(), LimiterError>),
    Stopped,
}

/// An answer, and what it belongs to.
#[derive(Debug)]
pub(super) struct Completion {
    /// The operation.
    pub(super) operation: usize,
    /// The version of the rules that decided it.
    pub(super) version: usize,
    /// Whether it came without waiting for anything.
    pub(super) is_local: bool,
    pub(super) answer: Answer,
}

/// What the tasks of an instance share with the simulator.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    limiter: Limiter<RedisStore>,
    version: Arc<AtomicUsize>,
    /// Counts how often the simulator has let the instance run.
    turn: Arc<AtomicU64>,
    completions: Arc<Mutex<Vec<Completion>>>,
}

impl Desk {
    fn complete(&self, operation: usize, version: usize, turn: u64, answer: Answer) {
        let completion = Completion {
            operation,
            version,
            is_local: turn == self.turn(),
            answer,
        };
        let mut completions = self
            .completions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        completions.push(completion);
    }

    fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    fn version(&self) -> usize {
        self.version.load(Ordering::Relaxed)
    }

    /// Runs an operation that gives one answer.
    async fn run<F: Future<Output = Answer>>(
        self,
        operation: usize,
        work: impl FnOnce(Limiter<RedisStore>) -> F,
    ) {
        let (version, turn) = (self.version(), self.turn());
        let answer = work(self.limiter.clone()).await;
        self.complete(operation, version, turn, answer);
    }
}

/// A running instance.
#[derive(Debug)]
pub(super) struct Process {
    runtime: Runtime,
    desk: Desk,
    clock: Clock,
    /// How far its wall clock is from virtual time.
    wall_skew: u64,
    /// What its clock showed when it last ran.
    shown: u64,
    random: u64,
}

/// The name of a user.
pub(super) fn user_name(user: u8) -> String {
    format!("u{user}")
}

fn context(user: u8, cost: u64) -> RequestContext<'static> {
    RequestContext::builder()
        .user(user_name(user))
        .cost(cost)
        .build()
}

impl Process {
    /// Starts an instance.
    pub(super) fn start(
        plan: &Plan,
        rules: RuleSets,
        version: usize,
        clock: Clock,
        wall_skew: u64,
        random: u64,
        now: u64,
    ) -> Self {
        let environment = Environment {
            wall: wall_skew + now,
            boot: clock.at(now),
            random,
        };
        simulation::replace(Some(environment));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // Only a task that waits lets others run.
        let builder = builder
            .enable_time()
            .start_paused(true)
            .event_interval(1 << 20);
        let runtime = builder.build().expect("a runtime needs no resources here");
        let limiter = {
            let _entered = runtime.enter();
            Limiter::new(rules, store(plan))
        };
        let random = simulation::replace(None).map_or(random, |it| it.random);
        Self {
            runtime,
            desk: Desk {
                limiter,
                version: Arc::new(AtomicUsize::new(version)),
                turn: Arc::default(),
                completions: Arc::default(),
            },
            shown: clock.at(now),
            clock,
            wall_skew,
            random,
        }
    }

    /// Lets it run until it waits for time or for the network. Returns what is complete.
    pub(super) fn run(&mut self, now: u64, network: &Rc<RefCell<Network>>) -> Vec<Completion> {
        let boot = self.clock.at(now);
        let passed = boot - self.shown;
        self.shown = boot;
        self.desk.turn.fetch_add(1, Ordering::Relaxed);
        simulation::replace(Some(Environment {
            wall: self.wall_skew + now,
            boot,
            random: self.random,
        }));
        set_connector(Some(Network::connector(network)));
        self.runtime.block_on(async {
            if passed > 0 {
                tokio::time::advance(Duration::from_micros(passed)).await;
            }
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
        });
        set_connector(None);
        if let Some(after) = simulation::replace(None) {
            self.random = after.random;
        }
        let completions = &self.desk.completions;
        std::mem::take(&mut completions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces its rules.
    pub(super) fn set_rules(&self, rules: RuleSets, version: usize) {
        self.desk.limiter.swap_rules(rules);
        self.desk.version.store(version, Ordering::Relaxed);
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Sends requests, one after the other. Each is an operation, from `first` on.
    pub(super) fn check(&self, first: usize, times: u32, user: u8, cost: u64) {
        let desk = self.desk.clone();
        self.spawn(async move {
            let context = context(user, cost);
            for number in 0..times as usize {
                let (version, turn) = (desk.version(), desk.turn());
                let decision = desk.limiter.check(SET, &context).await;
                let answer = Answer::Decision(Box::new(decision));
                desk.complete(first + number, version, turn, answer);
            }
        });
    }

    pub(super) fn peek(&self, operation: usize, user: u8, cost: u64) {
        let work = move |limiter: Limiter<RedisStore>| async move {
            Answer::Decision(Box::new(limiter.peek(SET, &context(user, cost)).await))
        };
        self.spawn(self.desk.clone().run(operation, work));
    }

    pub(super) fn hold(&self, operation: usize, user: u8, cost: u64, span: u64) {
        let work = move |limiter: Limiter<RedisStore>| async move {
            let held = RequestContext::builder().user(user_name(user)).cost(cost);
            let held = held.hold(Duration::from_micros(span)).build();
            Answer::Decision(Box::new(limiter.check(SET, &held).await))
        };
        self.spawn(self.desk.clone().run(operation, work));
    }

    pub(super) fn settle(&self, operation: usize, hold: HoldId, cost: u64) {
        let work = move |limiter: Limiter<RedisStore>| async move {
            Answer::Settled(limiter.settle(hold, Settlement::Cost(cost)).await)
        };
        self.spawn(self.desk.clone().run(operation, work));
    }

    pub(super) fn renew(&self, operation: usize, hold: HoldId, span: u64) {
        let work = move |limiter: Limiter<RedisStore>| async move {
            Answer::Renewed(limiter.renew(hold, Duration::from_micros(span)).await)
        };
        self.spawn(self.desk.clone().run(operation, work));
    }

    /// Waits until the request may go on, but at most for `patience`.
    pub(super) fn wait(&self, operation: usize, user: u8, cost: u64, patience: u64) {
        let desk = self.desk.clone();
        self.spawn(async move {
            let (version, turn) = (desk.version(), desk.turn());
            let context = context(user, cost);
            let reserved: Result<Reservation<Decision>, Decision> =
                desk.limiter.reserve(SET, &context).await;
            let reservation = match reserved {
                Ok(reservation) => reservation,
                Err(denied) => {
                    let answer = Answer::Decision(Box::new(denied));
                    return desk.complete(operation, version, turn, answer);
                }
            };
            let decision = reservation.get().clone();
            if decision.outcome().is_store_failure() {
                return desk.complete(operation, version, turn, Answer::GaveUp);
            }
            let answer = Answer::Reserved(Box::new(decision));
            desk.complete(operation, version, turn, answer);
            let turn = desk.turn();
            let waited = tokio::time::timeout(Duration::from_micros(patience), reservation.wait());
            let answer = match waited.await {
                Ok(_) => Answer::WentOn,
                Err(_) => Answer::GaveUp,
            };
            desk.complete(operation, version, turn, answer);
        });
    }

    /// Refunds units of all rules, or resets the counters of all rules.
    pub(super) fn administer(&self, operation: usize, user: u8, refund: Option<u64>) {
        let work = move |limiter: Limiter<RedisStore>| async move {
            let user = user_name(user);
            let rules = limiter.rules();
            let rules = rules.iter().flat_map(|set| set.rules());
            let targets: Vec<_> = rules
                .filter(|rule| !rule.takes_slots() || refund.is_none())
                .map(|rule| (rule.id().to_owned(), rule.key().is_empty()))
                .collect();
            for (rule, is_global) in targets {
                let identity: &[&str] = if is_global { &[] } else { &[&user] };
                let done = match refund {
                    Some(units) => limiter.refund(SET, &rule, identity, units).await,
                    None => limiter.reset(SET, &rule, identity).await,
                };
                if let Err(cause) = done {
                    return Answer::Administered(Err(cause));
                }
            }
            Answer::Administered(Ok(()))
        };
        self.spawn(self.desk.clone().run(operation, work));
    }

    /// Returns its leases, before it ends.
    pub(super) fn stop(&self, operation: usize) {
        let work = |limiter: Limiter<RedisStore>| async move {
            limiter.store().return_leases().await;
            Answer::Stopped
        };
        self.spawn(self.desk.clone().run(operation, work));
    }
}

/// Builds the store of an instance.
fn store(plan: &Plan) -> RedisStore {
    let url = |port: u16| format!("redis://sim:{port}");
    let (topology, urls): (_, Vec<_>) = match plan.deployment {
        Deployment::Single => (Topology::Standalone, vec![url(FIRST_PORT)]),
        Deployment::Sentinel => {
            let ports = FIRST_SENTINEL..FIRST_SENTINEL + SENTINELS;
            let master = "main".to_owned();
            (Topology::Sentinel { master }, ports.map(url).collect())
        }
        // A cluster has a few nodes.
        Deployment::Cluster(nodes) => {
            let ports = FIRST_PORT..FIRST_PORT + nodes as u16;
            (Topology::Cluster, ports.map(url).collect())
        }
    };
    let builder = RedisStore::builder(urls)
        .topology(topology)
        .deadline(Duration::from_micros(plan.deadline))
        .near_cache(plan.near_cache);
    let builder = match plan.max_waits {
        0 => builder,
        most => builder.max_cluster_waits(most),
    };
    builder.build().expect("the options of a plan are valid")
}
