//! Limits on Redis with leases, beside the same limits without, and beside the memory store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fluxgate_core::{Limiter, RequestContext, RuleSets};
use fluxgate_redis::RedisStore;
use fluxgate_testkit::{RedisCluster, RedisServer};
use tokio::runtime::Runtime;

use crate::load::compare;
use crate::nginx::Nginx;
use crate::report::{Better, Random, Report, median};
use crate::service::TempDir;
use crate::{gateway, http, service, wrk};

/// Few enough that each key is used often.
const KEYS: usize = 100;
const CALLERS: usize = 64;
/// The decisions that a caller makes before it yields.
const IN_A_ROW: usize = 16;
const ROUND: Duration = Duration::from_millis(700);
const ROUNDS: usize = 5;
const DEADLINE: Duration = Duration::from_secs(10);

const LEASE: &str = "lease: { share: 20%, for: 1s },";

fn rules(lease: &str) -> RuleSets {
    let text = format!(
        "rule_sets: {{ api: {{ on_error: deny, rules: [ {{ id: per-user, scope: per_user, {lease} \
         bands: [ {{ id: burst, capacity: 1000000, window: 1s }} ] }} ] }} }}"
    );
    #[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
    RuleSets::from_yaml(&text).unwrap()
}

/// Callers of a store.
struct Callers {
    runtime: Runtime,
    limiter: Limiter<RedisStore>,
    users: Arc<[String]>,
}

/// The figures of a round.
struct Round {
    per_second: f64,
    p99_micros: f64,
}

#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
impl Callers {
    fn new(urls: &[String], lease: &str, runtime: Runtime) -> Self {
        let store = RedisStore::builder(urls.to_vec()).deadline(DEADLINE);
        let store = runtime.block_on(store.connect()).unwrap();
        let users = (0..KEYS).map(|index| format!("user-{index:08}"));
        Self {
            limiter: Limiter::new(rules(lease), store),
            runtime,
            users: users.collect(),
        }
    }

    /// Runs all callers for a while.
    fn round(&self) -> Round {
        let until = Instant::now() + ROUND;
        let started = Instant::now();
        let (count, mut times): (usize, Vec<u32>) = self.runtime.block_on(async {
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let (limiter, users) = (self.limiter.clone(), Arc::clone(&self.users));
                    tokio::spawn(async move {
                        let mut random = Random::new(caller as u64 + 1);
                        let (mut count, mut times) = (0, Vec::new());
                        while Instant::now() < until {
                            let mut check = async || {
                                let user = &users[random.next() as usize % KEYS];
                                let context = RequestContext::builder().user(user).build();
                                assert!(limiter.check("api", &context).await.allowed());
                                count += 1;
                            };
                            // One decision of each row is timed: timing takes longer than one.
                            for _ in 1..IN_A_ROW {
                                check().await;
                            }
                            let start = Instant::now();
                            check().await;
                            times.push(start.elapsed().as_nanos() as u32);
                            tokio::task::yield_now().await;
                        }
                        (count, times)
                    })
                })
                .collect();
            let mut all = (0, Vec::new());
            for caller in callers {
                let (count, times) = caller.await.unwrap();
                all.0 += count;
                all.1.extend(times);
            }
            all
        });
        let elapsed = started.elapsed().as_secs_f64();
        let p99 = times.len() * 99 / 100;
        let (_, p99, _) = times.select_nth_unstable(p99);
        Round {
            per_second: count as f64 / elapsed,
            p99_micros: f64::from(*p99) / 1000.0,
        }
    }
}

fn one_thread() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    #[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
    runtime.unwrap()
}

/// Many callers of one server.
pub(crate) fn run(report: &mut Report) {
    let servers = [RedisServer::start(), RedisServer::start()];
    let [leased, plain] = [(&servers[0], LEASE), (&servers[1], "")]
        .map(|(server, lease)| Callers::new(&[server.url()], lease, one_thread()));
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push((leased.round(), plain.round()));
    }
    let yardstick = "the same limits without leases";
    let medians = |figure: fn(&Round) -> f64| {
        let leased = rounds.iter().map(|(leased, _)| figure(leased));
        let plain = rounds.iter().map(|(_, plain)| figure(plain));
        (median(leased.collect()), median(plain.collect()))
    };
    let figures = medians(|round| round.per_second);
    report.line(
        "redis-lease",
        figures,
        yardstick,
        "decisions/s",
        Better::More,
    );
    let figures = medians(|round| round.p99_micros);
    report.line("redis-lease-p99", figures, yardstick, "us", Better::Less);
}

/// Many callers of clusters of one, two and three nodes.
pub(crate) fn on_clusters(report: &mut Report) {
    let names = ["cluster-lease-1", "cluster-lease-2", "cluster-lease-3"];
    for (nodes, name) in (1..).zip(names) {
        let clusters = [RedisCluster::start(nodes), RedisCluster::start(nodes)];
        let [leased, plain] = [(&clusters[0], LEASE), (&clusters[1], "")]
            .map(|(cluster, lease)| Callers::new(&cluster.urls(), lease, one_thread()));
        let mut rounds = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            rounds.0.push(leased.round().per_second);
            rounds.1.push(plain.round().per_second);
        }
        report.line(
            name,
            (median(rounds.0), median(rounds.1)),
            "the same cluster without leases",
            "decisions/s",
            Better::More,
        );
    }
}

/// `POST /v1/check` on Redis with leases, beside the memory store.
pub(crate) fn http(report: &mut Report) {
    let dirs = [TempDir::new("http-lease"), TempDir::new("http-memory")];
    let script = wrk::script(&dirs[0], http::SCRIPT);
    let server = RedisServer::start();
    let store = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 5s }} }}\n",
        server.url()
    );
    let leased = http::CONFIG.replace(
        "scope:",
        &format!("{}\n        scope:", LEASE.trim_end_matches(',')),
    );
    let (Some(leased), Some(memory)) = (
        service::start(&dirs[0], &["api"], &(store + &leased)),
        service::start(&dirs[1], &["api"], http::CONFIG),
    ) else {
        return;
    };
    compare(
        report,
        "http-lease",
        "the memory store",
        || wrk::ask(leased.address("api"), &script),
        || wrk::ask(memory.address("api"), &script),
    );
}

/// The gateway on Redis with leases, beside the memory store.
pub(crate) fn gateway(report: &mut Report) {
    let dir = TempDir::new("gateway-lease");
    let script = wrk::script(&dir, wrk::USERS);
    let upstream = Nginx::start(&dir, "", "text/plain", gateway::ANSWER);
    let server = RedisServer::start();
    let redis = format!("{{ redis: {{ url: \"{}\", deadline: 5s }} }}", server.url());
    let start = |store: &str, lease: &str| {
        let config = gateway::config(&upstream, store, "[main]", "");
        let config = config.replace("scope:", &format!("{lease} scope:"));
        service::start(&dir, &["gateway"], &config)
    };
    let (Some(leased), Some(memory)) = (start(&redis, LEASE), start("memory", "")) else {
        return;
    };
    compare(
        report,
        "gateway-lease",
        "our gateway on the memory store",
        || wrk::ask(leased.address("gateway"), &script),
        || wrk::ask(memory.address("gateway"), &script),
    );
}
