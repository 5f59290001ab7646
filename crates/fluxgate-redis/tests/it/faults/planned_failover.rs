//! Failovers in which the old primary lives on and accepts writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_redis::{RedisStoreBuilder, Topology};
use fluxgate_testkit::{
    Cli, FaultProxy, Mode, RedisCluster, RedisServer, Sentinels, Stopwatch, WAIT_TIMEOUT,
    wait_until,
};
use tokio::runtime::{Handle, Runtime};
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Bench, RECOVERY, SLACK, one_band, patient, store_at, until, until_async};

/// The quota per second.
const QUOTA: usize = 20;
/// How soon a new primary must be followed.
const FOLLOWED: Duration = Duration::from_secs(3);
/// How long the old primary is with_error_log after that: no request may reach it.
const AFTER: Duration = Duration::from_secs(2);
/// How much later than its decision a reply may be recorded, on a loaded machine.
const LATE: Duration = Duration::from_millis(750);

/// A user that only the store logs in as, so that servers can deny all others.
const USER: &str = "limits on >pw ~* &* +@all";

fn behind(sentinels: &Sentinels, urls: Vec<String>) -> RedisStoreBuilder {
    let master = sentinels.master_name().to_owned();
    patient(urls)
        .topology(Topology::Sentinel { master })
        .deadline(Duration::from_secs(5))
}

fn bench(store: RedisStoreBuilder) -> Bench {
    Bench::new(one_band("deny", "token_bucket", QUOTA as u64, "1s"), store)
}

/// Sends requests of one user in a loop until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

/// When requests were admitted, by all instances.
#[derive(Clone, Default)]
struct Admitted(Arc<Mutex<Vec<Instant>>>);

impl Load {
    fn start(bench: &Bench, admitted: &Admitted) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (bench, admitted, stop) = (bench.clone(), admitted.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if bench.check("ann").await.outcome() == Outcome::Allowed {
                        admitted.0.lock().unwrap().push(Instant::now());
                    }
                    sleep(Duration::from_millis(5)).await;
                }
            })
        };
        let clients = (0..4).map(client).collect();
        Self { stop, clients }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap();
        }
    }
}

impl Admitted {
    /// Checks that no interval has more than the limit plus one quota.
    #[track_caller]
    fn expect_at_most_one_quota_more(&self) {
        let mut instants = self.0.lock().unwrap().clone();
        instants.sort();
        assert!(instants.len() > QUOTA, "{}", instants.len());
        for (first, start) in instants.iter().enumerate() {
            for (last, end) in instants.iter().enumerate().skip(first) {
                let span = *end - *start;
                let refilled = (span + LATE).as_millis() as usize * QUOTA / 1000;
                let (count, most) = (last - first + 1, 2 * QUOTA + refilled);
                assert!(count <= most, "{count} in {span:?}, {most} at most");
            }
        }
    }
}

/// Returns how many decisions a server has made.
fn decisions(cli: &mut Cli) -> u64 {
    cli.calls("evalsha") + cli.calls("eval")
}

/// Watches an old primary and checks how long after `start` it made its last decision,
/// while it is not a replica yet: only the sentinels know that it is no longer the primary.
async fn expect_left(server: &RedisServer, start: Stopwatch) {
    let mut cli = server.cli();
    let mut before = decisions(&mut cli);
    let mut last = Duration::ZERO;
    while start.elapsed() < FOLLOWED + AFTER {
        if cli.command(&["ROLE"]).array()[0].text() != "master" {
            // The machine is slow, and the sentinels have already demoted it.
            break;
        }
        let now = decisions(&mut cli);
        if std::mem::replace(&mut before, now) != now {
            last = start.elapsed();
        }
        sleep(Duration::from_millis(10)).await;
    }
    assert!(last < FOLLOWED, "{last:?}");
}

/// Makes a server deny its sentinels and its replica, but not the store.
fn cut_off(server: &RedisServer) {
    let mut cli = server.cli();
    cli.command(&["ACL", "SETUSER", "default", "off"])
        .expect_ok();
    cli.command(&["CLIENT", "KILL", "USER", "default"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_is_followed_by_old_and_new_instances() {
    let sentinels = Sentinels::start();
    let store = || behind(&sentinels, sentinels.sentinel_urls());
    let admitted = Admitted::default();
    let (one, two) = (bench(store()), bench(store()));
    one.recovery("bob").await;
    two.recovery("bob").await;
    let first = Load::start(&one, &admitted);
    let second = Load::start(&two, &admitted);
    let old = sentinels.primary();
    let new = block_in_place(|| sentinels.fail_over());
    let named = Stopwatch::start();
    // One instance is restarted meanwhile.
    second.stop().await;
    drop(two);
    let three = bench(store());
    let third = Load::start(&three, &admitted);
    expect_left(old, named).await;
    for bench in [&one, &three] {
        let before = decisions(&mut new.cli());
        until_async("a decision of the new primary", async || {
            let _ = bench.check("bob").await;
            decisions(&mut new.cli()) > before
        })
        .await;
    }
    first.stop().await;
    third.stop().await;
    admitted.expect_at_most_one_quota_more();
    assert_eq!(one.store().failovers(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_cut_off_from_its_sentinels_is_left() {
    let sentinels = Sentinels::start_with(|server| server.user(USER));
    let store = || {
        let store = behind(&sentinels, sentinels.sentinel_urls());
        store.username("limits").password("pw")
    };
    let admitted = Admitted::default();
    let one = bench(store());
    one.recovery("bob").await;
    let first = Load::start(&one, &admitted);
    let (old, new) = (sentinels.primary(), sentinels.replica());
    block_in_place(|| {
        cut_off(old);
        wait_until("a sentinel to name the replica", || sentinels.is_named(new));
    });
    let named = Stopwatch::start();
    let two = bench(store());
    let second = Load::start(&two, &admitted);
    expect_left(old, named).await;
    first.stop().await;
    second.stop().await;
    admitted.expect_at_most_one_quota_more();
    assert_eq!(one.store().failovers(), 1);
}

/// The instance is on the primary's side: it learns of the failover as soon as it
/// reaches one sentinel again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_cut_off_with_the_primary_leaves_it_when_one_sentinel_is_back() {
    let sentinels = Sentinels::start_with(|server| server.user(USER));
    let proxies = proxies(&sentinels);
    let store = behind(&sentinels, urls(&proxies));
    // What is lost in the black hole must not take longer than a failover may.
    let store = store.deadline(Duration::from_millis(500));
    let bench = bench(store.username("limits").password("pw"));
    bench.recovery("bob").await;
    until("the sentinels are with_error_log", || are_watched(&proxies)).await;
    for proxy in &proxies {
        proxy.set_mode(Mode::BlackHole);
    }
    let load = Load::start(&bench, &Admitted::default());
    let (old, new) = (sentinels.primary(), sentinels.replica());
    block_in_place(|| {
        cut_off(old);
        wait_until("all to name the replica", || {
            sentinels.wait_for_failover().port() == new.port()
        });
    });
    // The instance cannot know yet.
    let before = decisions(&mut old.cli());
    until("the old primary decides", || {
        decisions(&mut old.cli()) > before
    })
    .await;
    assert_eq!(bench.store().failovers(), 0);
    proxies[1].heal();
    expect_left(old, Stopwatch::start()).await;
    assert_eq!(bench.store().failovers(), 1);
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_with_an_older_epoch_does_not_bring_the_old_primary_back() {
    let sentinels = Sentinels::start();
    let bench = bench(behind(&sentinels, sentinels.sentinel_urls()));
    bench.recovery("bob").await;
    let (old, new) = (sentinels.primary(), sentinels.replica());
    block_in_place(|| {
        sentinels.fail_over();
        wait_until("all to name the replica", || {
            sentinels.wait_for_failover().port() == new.port()
        });
    });
    until("the failover is followed", || {
        bench.store().failovers() == 1
    })
    .await;
    // The only sentinel that answers now starts again at epoch 0.
    let [first, second, third] = sentinels.sentinels() else {
        panic!("three sentinels");
    };
    first.pause();
    second.pause();
    let (mut cli, master) = (third.cli(), sentinels.master_name());
    cli.command(&["SENTINEL", "REMOVE", master]).expect_ok();
    let port = old.port().to_string();
    cli.command(&["SENTINEL", "MONITOR", master, "127.0.0.1", &port, "2"])
        .expect_ok();
    let before = decisions(&mut old.cli());
    let start = Instant::now();
    while start.elapsed() < FOLLOWED {
        assert_eq!(bench.check("bob").await.outcome(), Outcome::Allowed);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(decisions(&mut old.cli()), before);
    assert_eq!(bench.store().failovers(), 1);
    first.resume();
    second.resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minimal_permissions_at_the_sentinels_are_enough() {
    // All commands that the store sends to a sentinel, then only those from
    // before it with_error_log them: then a majority is trusted, within two polls.
    let all: &[&str] = &[
        "+sentinel|get-master-addr-by-name",
        "+sentinel|master",
        "+subscribe",
        "&+switch-master",
        "&+promoted-slave",
    ];
    for rights in [all, &all[..1]] {
        let sentinels = Sentinels::start();
        for sentinel in sentinels.sentinels() {
            let user = ["ACL", "SETUSER", "watcher", "on", ">pw", "-@all", "+ping"];
            let user = [&user, rights].concat();
            sentinel.cli().command(&user).expect_ok();
        }
        for server in sentinels.servers() {
            let user = ["ACL", "SETUSER", "watcher", "on", ">pw", "~*", "+@all"];
            server.cli().command(&user).expect_ok();
        }
        let url = |it: &RedisServer| it.url_as("watcher", "pw");
        let urls = sentinels.sentinels().iter().map(url).collect();
        let bench = bench(behind(&sentinels, urls));
        bench.recovery("bob").await;
        block_in_place(|| sentinels.fail_over());
        let followed = until("the failover is followed", || {
            bench.store().failovers() == 1
        });
        let followed = followed.await;
        assert!(followed < FOLLOWED, "{followed:?} with {rights:?}");
        bench.recovers("bob").await;
        let refused = |it: &RedisServer| it.cli().command(&["ACL", "LOG"]).array().to_vec();
        let refused: Vec<_> = sentinels.sentinels().iter().flat_map(refused).collect();
        assert_eq!(refused.is_empty(), rights == all, "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_sentinels_are_polled_and_followed_when_they_are_back() {
    let sentinels = Sentinels::start();
    let proxies = proxies(&sentinels);
    let bench = bench(behind(&sentinels, urls(&proxies)));
    bench.recovery("bob").await;
    until("the sentinels are with_error_log", || are_watched(&proxies)).await;
    for proxy in &proxies {
        proxy.set_mode(Mode::Refuse);
        proxy.close_connections();
    }
    let accepted = || proxies.iter().map(FaultProxy::accepted).sum::<u64>();
    let (before, start) = (accepted(), Instant::now());
    while start.elapsed() < Duration::from_secs(4) {
        assert_eq!(bench.check("bob").await.outcome(), Outcome::Allowed);
        sleep(Duration::from_millis(100)).await;
    }
    // A query takes two attempts if the connection was lost; eight attempts to
    // subscribe take more than four seconds.
    let tries = accepted() - before;
    assert!((3..=3 * (2 * 7 + 8)).contains(&tries), "{tries} tries");
    for proxy in &proxies {
        proxy.heal();
    }
    block_in_place(|| sentinels.fail_over());
    let followed = until("the failover is followed", || {
        bench.store().failovers() == 1
    });
    assert!(followed.await < FOLLOWED);
    bench.recovers("bob").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_store_leaves_no_task_and_no_connection() {
    let sentinels = Sentinels::start();
    let proxies = proxies(&sentinels);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let bench = bench(behind(&sentinels, urls(&proxies)));
    assert_eq!(tasks(), before, "nothing is done before it is asked");
    bench.recovery("bob").await;
    until("the sentinels are with_error_log", || are_watched(&proxies)).await;
    drop(bench);
    until("all connections are closed", || {
        proxies.iter().all(|proxy| proxy.open() == 0)
    })
    .await;
    until("all tasks have ended", || tasks() == before).await;
}

/// A store may be used in several runtimes, and outlive the one that watches.
#[test]
fn sentinels_are_watched_again_after_the_runtime_is_gone() {
    let sentinels = Sentinels::start();
    let proxies = proxies(&sentinels);
    let bench = bench(behind(&sentinels, urls(&proxies)));
    for _ in 0..2 {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            bench.recovers("bob").await;
            until("the sentinels are with_error_log", || are_watched(&proxies)).await;
        });
        // This would not end if the watching task held the runtime.
        drop(runtime);
        wait_until("all connections are closed", || {
            proxies.iter().all(|proxy| proxy.open() == 0)
        });
    }
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        bench.recovers("bob").await;
        block_in_place(|| sentinels.fail_over());
        let followed = until("the failover is followed", || {
            bench.store().failovers() == 1
        });
        assert!(followed.await < FOLLOWED);
    });
}

/// Stored rules and their messages are in the same Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_to_stored_rules_ends_with_the_old_primary() {
    let sentinels = Sentinels::start();
    let store = behind(&sentinels, sentinels.sentinel_urls());
    let rules = store.build().unwrap().rule_store();
    let mut changes = rules.subscribe().await.unwrap();
    block_in_place(|| sentinels.fail_over());
    // The connection still works, but nothing is published there any more.
    let watch = Stopwatch::start();
    let ended = timeout(WAIT_TIMEOUT, changes.next()).await;
    assert_eq!(ended, Ok(None));
    assert!(watch.elapsed() < FOLLOWED, "{:?}", watch.elapsed());
    let mut changes = None;
    let again = until_async("messages of the new primary", async || {
        changes = rules.subscribe().await.ok();
        changes.is_some()
    });
    assert!(again.await < RECOVERY + SLACK);
    let any = fluxgate_redis::Precondition::Any;
    rules.put("a", "one", any).await.unwrap();
    let errors = timeout(WAIT_TIMEOUT, changes.unwrap().next()).await;
    assert_eq!(errors, Ok(Some(())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_store_without_sentinels_sends_nothing() {
    let server = RedisServer::start();
    expect_idle(store_at(server.url()), &[&server]).await;
    let cluster = RedisCluster::start(3);
    let store = patient(cluster.urls()).topology(Topology::Cluster);
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    expect_idle(store, &nodes).await;
}

/// After a decision nothing is sent to these servers for longer than the poll
/// interval, and there are no tasks but those of connections.
async fn expect_idle(store: RedisStoreBuilder, servers: &[&RedisServer]) {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    // The task that waits for deadlines ends with the last of them.
    let bench = bench(store.deadline(Duration::from_secs(1)));
    bench.recovery("bob").await;
    until("the script is loaded", || {
        bench.store().script_reloads() == 1
    })
    .await;
    let mut clis: Vec<_> = servers.iter().map(|server| server.cli()).collect();
    let mut commands = || -> Vec<u64> {
        let of = |cli: &mut Cli| cli.info("total_commands_processed").unwrap();
        let of = |cli| of(cli).parse().unwrap();
        clis.iter_mut().map(of).collect()
    };
    // The query itself counts as well.
    let mut last = commands();
    until("what was under way is over", || {
        let asked = |before: &u64| before + 1;
        let quiet: Vec<_> = last.iter().map(asked).collect();
        last = commands();
        last == quiet
    })
    .await;
    sleep(Duration::from_millis(2500)).await;
    let quiet: Vec<_> = last.iter().map(|before| before + 1).collect();
    assert_eq!(commands(), quiet);
    assert!(tasks() <= before + servers.len(), "{} tasks", tasks());
    assert_eq!(bench.store().failovers(), 0);
}

fn proxies(sentinels: &Sentinels) -> Vec<FaultProxy> {
    let sentinels = sentinels.sentinels().iter();
    sentinels.map(|it| FaultProxy::start(it.addr())).collect()
}

fn urls(proxies: &[FaultProxy]) -> Vec<String> {
    proxies.iter().map(|proxy| proxy.url("redis")).collect()
}

/// Returns whether each sentinel has two connections: one for queries, one for
/// messages.
fn are_watched(proxies: &[FaultProxy]) -> bool {
    proxies.iter().all(|proxy| proxy.open() == 2)
}
