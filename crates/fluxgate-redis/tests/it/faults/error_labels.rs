//! Every kind of server error is counted under its own label.

use std::fs;
use std::thread;
use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_testkit::{Cli, RedisServer};

use crate::support::{Bench, one_band, store_at, until};

fn bench(url: String) -> Bench {
    let rules = one_band("deny", "fixed_window", 1_000_000, "300d");
    Bench::new(rules, store_at(url))
}

fn set(cli: &mut Cli, name: &str, value: &str) {
    cli.command(&["CONFIG", "SET", name, value]).expect_ok();
}

/// Checks that requests fail with this label only.
async fn expect_label(bench: &Bench, label: &str) {
    bench.errors.clear();
    for number in 0..10 {
        let decision = bench.check(&format!("user-{number}")).await;
        let errors = bench.errors.all();
        assert_eq!(decision.outcome(), Outcome::FailedClosed, "{errors:?}");
    }
    assert_eq!(bench.errors.labels(), [label], "{:?}", bench.errors.all());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_memory_is_oom() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let bench = bench(server.url());
    bench.recovery("somebody").await;
    set(&mut cli, "maxmemory-policy", "noeviction");
    set(&mut cli, "maxmemory", "1");
    expect_label(&bench, "oom").await;
    assert_eq!(cli.dbsize(), 1, "nothing was charged");
    set(&mut cli, "maxmemory", "0");
    bench.recovers("somebody").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_save_is_misconf() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let bench = bench(server.url());
    bench.recovery("somebody").await;
    // The dump cannot replace a directory.
    let in_the_way = server.directory().join("dump.rdb");
    fs::create_dir(&in_the_way).unwrap();
    set(&mut cli, "save", "3600 100000");
    cli.command(&["BGSAVE"]);
    until("the save has failed", || {
        cli.info("rdb_last_bgsave_status").as_deref() == Some("err")
    })
    .await;
    expect_label(&bench, "misconf").await;
    assert_eq!(cli.dbsize(), 1, "nothing was charged");
    fs::remove_dir(&in_the_way).unwrap();
    cli.command(&["SAVE"]).expect_ok();
    bench.recovers("somebody").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_required_later_is_noauth() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let bench = bench(server.url());
    bench.recovery("somebody").await;
    set(&mut cli, "requirepass", "sesame");
    // Existing connections stay logged in; a new one must log in.
    cli.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let _ = bench.check("somebody").await;
    expect_label(&bench, "noauth").await;
    set(&mut cli, "requirepass", "");
    bench.recovers("somebody").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_noauth_and_is_not_shown() {
    let server = RedisServer::builder().password("sesame").start();
    let url = format!("redis://:mistaken@{}", server.addr());
    let bench = bench(url);
    expect_label(&bench, "noauth").await;
    for error in bench.errors.all() {
        let text = error.to_string();
        assert!(!text.contains("mistaken"), "{text}");
        assert!(text.contains(&server.addr().to_string()), "{text}");
    }
    let mut cli = server.cli();
    cli.command(&["ACL", "SETUSER", "default", ">mistaken"])
        .expect_ok();
    bench.recovers("somebody").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_permission_is_noperm() {
    let server = RedisServer::builder()
        .user("limited on >secret ~fluxgate:* +@all")
        .start();
    let mut cli = server.cli();
    let bench = bench(server.url_as("limited", "secret"));
    bench.recovery("somebody").await;
    let mut allow = |what: &[&str]| {
        let user = ["ACL", "SETUSER", "limited"];
        cli.command(&[&user[..], what].concat()).expect_ok();
    };
    // The commands that are sent, those of the script, and the keys.
    for (forbid, permit) in [
        (&["-evalsha"][..], &["+@all"][..]),
        (&["-time"], &["+@all"]),
        (&["-psetex"], &["+@all"]),
        (&["resetkeys", "~other:*"], &["~fluxgate:*"]),
    ] {
        allow(forbid);
        expect_label(&bench, "noperm").await;
        allow(permit);
        bench.recovers("somebody").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_loading() {
    // Loading takes longer than any stall of a busy machine, and clients are answered during it.
    let server = RedisServer::builder()
        .config("key-load-delay 1000")
        .config("loading-process-events-interval-bytes 1024")
        .start();
    let mut cli = server.cli();
    let fill = "for i = 1, 40000 do redis.call('SET', 'other:' .. i, 'x') end";
    cli.command(&["EVAL", fill, "0"]);
    cli.command(&["SAVE"]).expect_ok();
    let bench = bench(server.url());
    bench.recovery("somebody").await;
    thread::scope(|scope| {
        scope.spawn(|| server.restart());
        let loading = async {
            while !bench.errors.labels().contains(&"loading") {
                let decision = bench.check("somebody").await;
                // Before the server is killed, and never after that.
                let killed = !bench.errors.all().is_empty();
                assert!(!(killed && decision.allowed()));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            expect_label(&bench, "loading").await;
            // The rest is loaded at once.
            set(&mut server.cli(), "key-load-delay", "0");
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(loading));
    });
    bench.recovers("somebody").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_runs_a_long_script_is_busy() {
    let server = RedisServer::builder()
        .config("busy-reply-threshold 50")
        .start();
    let bench = bench(server.url());
    bench.recovery("somebody").await;
    let (mut cli, mut other) = (server.cli(), server.cli());
    other.send(&["EVAL", "while true do end", "0"]).unwrap();
    until("it says that it is busy", || {
        cli.command(&["PING"]).error().is_some()
    })
    .await;
    expect_label(&bench, "busy").await;
    cli.command(&["SCRIPT", "KILL"]).expect_ok();
    bench.recovers("somebody").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_become_a_replica_is_readonly() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let bench = bench(server.url());
    bench.recovery("somebody").await;
    cli.command(&["REPLICAOF", "127.0.0.1", "1"]).expect_ok();
    expect_label(&bench, "readonly").await;
    cli.command(&["REPLICAOF", "NO", "ONE"]).expect_ok();
    bench.recovers("somebody").await;
}
