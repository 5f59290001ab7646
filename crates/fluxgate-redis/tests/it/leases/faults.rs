//! Instances with leases under load while the server fails: the limit holds, and they continue
//! by themselves within two seconds of the fault's end.

use std::fs;
use std::time::Duration;

use fluxgate_redis::Topology;
use fluxgate_testkit::{
    FaultProxy, Mode, RedisCluster, RedisServer, ReplyFault, Sentinels, Skew, valkey, wait_for,
    wait_until,
};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use super::fleet::{CAPACITY, DEADLINE, Fleet, LEASED, PHASE, REFILL, bucket};
use super::leased;
use super::shared::{expect_bucket, expect_windows};
use crate::cluster::slot_of_keys;
use crate::support::{patient, store_at, until};

/// Instances behind a proxy.
async fn behind_proxy() -> (RedisServer, FaultProxy, Fleet) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let url = proxy.url("redis");
    let fleet = Fleet::start(&bucket(), || store_at(&url)).await;
    (server, proxy, fleet)
}

/// Instances on a server.
async fn on(server: &RedisServer) -> Fleet {
    Fleet::start(&bucket(), || store_at(server.url())).await
}

fn set(server: &RedisServer, name: &str, value: &str) {
    server
        .cli()
        .command(&["CONFIG", "SET", name, value])
        .expect_ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_restarted_with_its_data() {
    let server = RedisServer::builder()
        .config("appendonly yes")
        .config("appendfsync always")
        .start();
    let fleet = on(&server).await;
    for _ in 0..2 {
        block_in_place(|| server.kill());
        sleep(PHASE).await;
        block_in_place(|| server.restart());
        fleet.recovers().await;
    }
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_its_data_refills_the_shared_part() {
    let server = RedisServer::start();
    let fleet = on(&server).await;
    server.cli().command(&["FLUSHALL"]).expect_ok();
    fleet.recovers().await;
    // The shared part is full again. What was on lease was charged before.
    let admitted = fleet.stop().await;
    expect_bucket(&admitted, 2 * CAPACITY - LEASED, REFILL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_killed_and_restarted() {
    let server = RedisServer::start();
    let mut fleet = on(&server).await;
    for _ in 0..5 {
        // A store that is dropped returns nothing.
        drop(fleet.benches.remove(0));
        fleet.add(&bucket(), store_at(server.url()).deadline(DEADLINE));
        sleep(PHASE / 2).await;
    }
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed_in_a_loop() {
    let server = RedisServer::start();
    let fleet = on(&server).await;
    let until = Instant::now() + PHASE;
    while Instant::now() < until {
        server.cli().command(&["SCRIPT", "FLUSH"]).expect_ok();
        sleep(Duration::from_millis(5)).await;
    }
    fleet.expect_only_timeouts();
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pauses_its_clients() {
    let server = RedisServer::start();
    let fleet = on(&server).await;
    // On a busy machine no instance may be waiting for an answer in the first pause.
    while !fleet.labels().contains(&"timeout") {
        server
            .cli()
            .command(&["CLIENT", "PAUSE", "600"])
            .expect_ok();
        sleep(Duration::from_millis(650)).await;
    }
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still() {
    let server = RedisServer::start();
    let fleet = on(&server).await;
    server.pause();
    sleep(PHASE).await;
    fleet.meets("timeout").await;
    server.resume();
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_into_a_black_hole() {
    let (_server, proxy, fleet) = behind_proxy().await;
    proxy.set_mode(Mode::BlackHole);
    sleep(PHASE).await;
    fleet.meets("timeout").await;
    proxy.heal();
    proxy.close_connections();
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_lost_cut_and_malformed() {
    let (_server, proxy, fleet) = behind_proxy().await;
    let faults = [
        ReplyFault::Swallow,
        ReplyFault::SwallowAndClose,
        ReplyFault::Cut(3),
        ReplyFault::Cut(30),
        ReplyFault::Inject(b"$1\r\nx\r\n".to_vec()),
        ReplyFault::Replace(b"-ERR no\r\n".to_vec()),
        ReplyFault::Replace(b"$5\r\nabcde\r\n".to_vec()),
    ];
    for fault in faults.iter().cycle().take(28) {
        proxy.fault_reply_to("EVALSHA", fault.clone());
        sleep(Duration::from_millis(20)).await;
    }
    proxy.heal();
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_reset() {
    let (_server, proxy, fleet) = behind_proxy().await;
    for _ in 0..20 {
        proxy.reset_connections();
        sleep(Duration::from_millis(15)).await;
    }
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_server() {
    let server = RedisServer::builder()
        .config("busy-reply-threshold 50")
        .user("limited on >secret ~fluxgate:* +@all")
        .start();
    let url = server.url_as("limited", "secret");
    let fleet = Fleet::start(&bucket(), || store_at(&url)).await;
    let mut cli = server.cli();

    set(&server, "maxmemory-policy", "noeviction");
    set(&server, "maxmemory", "1");
    fleet.meets("oom").await;
    set(&server, "maxmemory", "0");
    fleet.recovers().await;

    let in_the_way = server.directory().join("dump.rdb");
    fs::create_dir(&in_the_way).unwrap();
    set(&server, "save", "3600 100000");
    cli.command(&["BGSAVE"]);
    until("the save has failed", || {
        cli.info("rdb_last_bgsave_status").as_deref() == Some("err")
    })
    .await;
    fleet.meets("misconf").await;
    fs::remove_dir(&in_the_way).unwrap();
    cli.command(&["SAVE"]).expect_ok();
    fleet.recovers().await;

    for (forbid, permit) in [
        (["-evalsha", "-eval"], "+@all"),
        (["-psetex", "-get"], "+@all"),
        (["resetkeys", "~fluxgate:{*"], "~fluxgate:*"),
    ] {
        let user = ["ACL", "SETUSER", "limited"];
        cli.command(&[&user[..], &forbid].concat()).expect_ok();
        fleet.meets("noperm").await;
        cli.command(&[&user[..], &[permit]].concat()).expect_ok();
        fleet.recovers().await;
    }

    cli.command(&["REPLICAOF", "127.0.0.1", "1"]).expect_ok();
    fleet.meets("readonly").await;
    cli.command(&["REPLICAOF", "NO", "ONE"]).expect_ok();
    fleet.recovers().await;

    server
        .cli()
        .send(&["EVAL", "while true do end", "0"])
        .unwrap();
    until("it says that it is busy", || {
        cli.command(&["PING"]).error().is_some()
    })
    .await;
    fleet.meets("busy").await;
    cli.command(&["SCRIPT", "KILL"]).expect_ok();
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_required_later() {
    let server = RedisServer::start();
    let fleet = on(&server).await;
    let mut cli = server.cli();
    set(&server, "requirepass", "sesame");
    cli.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    fleet.meets("noauth").await;
    cli.command(&["CONFIG", "SET", "requirepass", ""])
        .expect_ok();
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data() {
    let server = RedisServer::builder()
        .config("key-load-delay 300")
        .config("loading-process-events-interval-bytes 1024")
        .config("appendonly yes")
        .config("appendfsync always")
        .start();
    let mut cli = server.cli();
    let fill = "for i = 1, 1000 do redis.call('SET', 'other:' .. i, 'x') end";
    cli.command(&["EVAL", fill, "0"]);
    cli.command(&["SAVE"]).expect_ok();
    let fleet = on(&server).await;
    block_in_place(|| server.restart());
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_values_at_the_keys() {
    let server = RedisServer::start();
    let fleet = on(&server).await;
    let mut cli = server.cli();
    let mut found = None;
    until("units are out", || {
        found = cli.keys("fluxgate:2:lease:*").pop();
        found.is_some()
    })
    .await;
    let key = found.unwrap();
    // A value of another type is an error, and the server grants nothing.
    for foreign in [&["LPUSH", &key, "x"][..], &["SET", &key, "abc"]] {
        cli.command(&["DEL", &key]);
        cli.command(foreign);
        sleep(PHASE).await;
        cli.command(&["DEL", &key]);
    }
    fleet.recovers().await;
    // What was out is not known any more.
    let admitted = fleet.stop().await;
    expect_bucket(&admitted, CAPACITY + 3 * CAPACITY, REFILL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_goes_back_and_forward_an_hour() {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    let fleet = on(&server).await;
    let hour = Duration::from_secs(3600);
    server.set_clock_offset(Skew::Behind(hour));
    sleep(2 * PHASE).await;
    // A bucket that is owed an hour recovers when its horizon has passed.
    server.set_clock_offset(Skew::NONE);
    sleep(PHASE).await;
    let before = fleet.count();
    server.set_clock_offset(Skew::Ahead(hour));
    sleep(PHASE).await;
    until("some are admitted", || fleet.count() > before).await;
    let admitted = fleet.stop().await;
    // Each of the two jumps forward fills the shared part.
    expect_bucket(&admitted, 3 * CAPACITY - 2 * LEASED, REFILL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_sentinels() {
    let sentinels = Sentinels::start();
    let master = sentinels.master_name().to_owned();
    let store = || {
        let topology = Topology::Sentinel {
            master: master.clone(),
        };
        patient(sentinels.sentinel_urls()).topology(topology)
    };
    let fleet = Fleet::start(&bucket(), store).await;
    block_in_place(|| {
        sentinels.kill_primary();
        sentinels.wait_for_failover();
    });
    fleet.recovers().await;
    // Charges that were not replicated are lost: at most the shared part.
    let admitted = fleet.stop().await;
    expect_bucket(&admitted, 2 * CAPACITY - LEASED, REFILL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_and_a_primary_cut_off_from_its_sentinels() {
    let user = "limits on >pw ~* &* +@all";
    let sentinels = Sentinels::start_with(|server| server.user(user));
    let master = sentinels.master_name().to_owned();
    let store = || {
        let topology = Topology::Sentinel {
            master: master.clone(),
        };
        let store = patient(sentinels.sentinel_urls()).topology(topology);
        store.username("limits").password("pw")
    };
    let fleet = Fleet::start(&bucket(), store).await;
    block_in_place(|| sentinels.fail_over());
    fleet.recovers().await;
    let (old, new) = (sentinels.primary(), sentinels.replica());
    block_in_place(|| {
        let mut cli = old.cli();
        cli.command(&["ACL", "SETUSER", "default", "off"])
            .expect_ok();
        cli.command(&["CLIENT", "KILL", "USER", "default"]);
        wait_until("a sentinel to name the replica", || sentinels.is_named(new));
    });
    fleet.recovers().await;
    let admitted = fleet.stop().await;
    expect_bucket(&admitted, 3 * CAPACITY, REFILL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_of_a_cluster_that_moves() {
    let cluster = RedisCluster::start(3);
    let fleet = Fleet::start(&bucket(), || patient(cluster.urls())).await;
    // A bucket that is full again has no key, so there may be none at this moment.
    let slot = block_in_place(|| wait_for("a key", || slot_of_keys(&cluster, "ann")));
    for _ in 0..3 {
        block_in_place(|| {
            let to = (cluster.node_of_hash_slot(slot) + 1) % cluster.len();
            let moving = cluster.begin_move(slot, to);
            moving.move_keys(1);
            std::thread::sleep(PHASE / 4);
            moving.finish();
        });
        sleep(PHASE / 2).await;
    }
    fleet.expect_only_timeouts();
    fleet.keeps_the_limit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_and_windows_of_a_calendar() {
    let server = match valkey() {
        Some(binary) => RedisServer::builder().binary(binary).start(),
        None => RedisServer::start(),
    };
    let capacity = 3000;
    let band = format!("{{ capacity: {capacity}, calendar: day }}");
    let rules = leased("share: 50%, for: 200ms", "fixed_window", &band);
    let fleet = Fleet::start(&rules, || store_at(server.url())).await;
    server.cli().command(&["SCRIPT", "FLUSH"]).expect_ok();
    sleep(2 * PHASE).await;
    until("nearly all is admitted", || {
        fleet.count() * 100 >= capacity * 95
    })
    .await;
    let admitted = fleet.stop().await;
    expect_windows(&admitted, capacity, 86_400_000_000);
}
