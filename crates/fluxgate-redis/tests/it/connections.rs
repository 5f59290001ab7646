//! Connecting to servers, and the errors when that fails.

use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_core::{Outcome, Store, StoreError, conformance};
use fluxgate_redis::reason;
use fluxgate_redis::{BreakerState, ConnectError, RedisStore, RedisStoreBuilder};
use fluxgate_testkit::{
    Certificates, ClientAuth, FaultProxy, Mode, RedisServer, ReplyFault, Stopwatch, valkey,
    wait_until,
};

use crate::support::{ALGORITHMS, Bench, GENEROUS, SLACK, one_band, store_at};

/// Connects and decides.
#[track_caller]
fn works(store: RedisStoreBuilder) -> impl Future<Output = Bench> {
    let place = std::panic::Location::caller();
    async move {
        let connected = store.clone().connect().await;
        connected.unwrap_or_else(|error| panic!("{place}: {error}"));
        let bench = Bench::new(one_band("deny", "token_bucket", 10, "1d"), store);
        let decision = bench.check("ann").await;
        let errors = bench.errors.all();
        assert_eq!(decision.outcome(), Outcome::Allowed, "{place}: {errors:?}");
        bench
    }
}

#[track_caller]
fn refused(store: RedisStoreBuilder) -> impl Future<Output = StoreError> {
    let place = std::panic::Location::caller();
    async move {
        match store.connect().await {
            Ok(_) => panic!("{place}: it connects"),
            Err(ConnectError::Store(error)) => error,
            Err(other) => panic!("{place}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_password_works_from_the_url_or_the_builder() {
    let server = RedisServer::builder().password("sesame").start();
    works(store_at(server.url())).await;
    let bare = format!("redis://{}", server.addr());
    works(store_at(&bare).password("sesame")).await;
    let file = server.directory().join("password");
    std::fs::write(&file, "sesame\n").unwrap();
    works(store_at(&bare).password_file(&file)).await;
    std::fs::write(&file, "\n").unwrap();
    let large = server.directory().join("large");
    std::fs::write(&large, vec![b'x'; (1 << 20) + 1]).unwrap();
    let fifo = server.directory().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    for (path, what) in [
        (file, "expected a password, but the file is empty"),
        (fifo, "expected a regular file, found a FIFO or pipe"),
        (server.directory().join("gone"), "No such file"),
        (
            "/dev/zero".into(),
            "expected a regular file, found a device",
        ),
        (large, "the file is larger than 1048576 bytes"),
    ] {
        let error = store_at(&bare).password_file(&path).build().unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with(path.to_str().unwrap()) && error.contains(what),
            "{error}"
        );
    }
    let error = refused(store_at(&bare)).await;
    assert_eq!(error.reason, reason::NOAUTH, "{error}");
}

/// Threads that share a runtime share a connection; runtimes do not.
#[test]
fn each_runtime_has_one_connection_for_as_long_as_it_lives() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    };
    let server = RedisServer::start();
    let store = store_at(server.url()).build().unwrap();
    let connections = || {
        let list = server.cli().command(&["CLIENT", "LIST"]).text();
        // The client that queries them has none of our commands.
        list.lines()
            .filter(|client| client.contains("cmd=ping"))
            .count()
    };
    let ping_twice = |runtime: &tokio::runtime::Runtime| {
        for _ in 0..2 {
            let store = store.clone();
            let pinged = runtime.spawn(async move { store.ping().await });
            runtime.block_on(pinged).unwrap().unwrap();
        }
    };
    let (one, other) = (runtime(), runtime());
    for (runtime, expected) in [(&one, 1), (&other, 2), (&one, 2)] {
        ping_twice(runtime);
        assert_eq!(connections(), expected);
    }
    drop(one);
    wait_until("the connection of the runtime is closed", || {
        connections() == 1
    });
    let third = runtime();
    ping_twice(&third);
    assert_eq!(connections(), 2);
    drop((store, other, third));
    wait_until("all connections are closed", || connections() == 0);
}

/// A connection that the server closed while it was idle is not used again.
#[tokio::test]
async fn a_restart_while_idle_costs_no_decision() {
    let server = RedisServer::start();
    let store = store_at(server.url()).build().unwrap();
    for _ in 0..3 {
        store.ping().await.unwrap();
        server.restart();
        // The server's FIN has arrived by now: this lets the runtime read it.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store.ping().await.unwrap();
}

/// The permissions that `docs/operations.md` lists, and no more.
#[tokio::test]
async fn a_user_with_minimal_permissions_works() {
    const DECIDES: &str = "+evalsha +eval +script|load +ping +time +get +mget +exists +psetex \
        +pexpire +unlink +zrange +zadd +zcount +zcard +zrem +zremrangebyrank +scan";
    const WAITS: &str = "+zremrangebyscore +zrevrange +pexpireat";
    let user = format!("limiter on >secret ~fluxgate:* resetchannels -@all {DECIDES} {WAITS}");
    let server = RedisServer::builder().user(&user).start();
    works(store_at(server.url_as("limiter", "secret"))).await;
    let bare = format!("redis://{}", server.addr());
    let store = store_at(bare).username("limiter").password("secret");
    works(store.clone()).await;
    for algorithm in ALGORITHMS {
        let bench = Bench::new(one_band("deny", algorithm, 3, "1h"), store.clone());
        for cost in [2, 1, 1] {
            let _ = bench.check_cost("bob", cost).await;
        }
        assert_eq!(bench.left("bob").await, 0, "{algorithm}");
        let refunded = bench.limiter.refund("api", "r", &["bob"], 1).await;
        assert_eq!(refunded, Ok(1), "{algorithm}");
        // `ann` has a state of another algorithm.
        assert!(bench.limiter.reset_rule("api", "r").await.unwrap() > 0);
        assert_eq!(bench.errors.all(), [], "{algorithm}");
    }
    let store = store.max_cluster_waits(1).build().unwrap();
    let permit = store.begin_wait(GENEROUS).await.unwrap();
    assert!(permit.is_some());
    assert!(store.begin_wait(GENEROUS).await.unwrap().is_none());
}

#[tokio::test]
async fn a_unix_socket_works() {
    let server = RedisServer::builder().unix_socket().start();
    let path = server.socket_path();
    works(store_at(format!("unix://{}", path.display()))).await;
    works(store_at(format!("redis+unix://{}", path.display()))).await;
}

#[tokio::test]
async fn tls_trusts_only_the_given_authority() {
    let server = RedisServer::builder().tls(ClientAuth::Off).start();
    let ca = Certificates::read(server.certificates().ca());
    works(store_at(server.tls_url()).tls_ca(&ca)).await;
    let other = Certificates::read(Certificates::generate().ca());
    for error in [
        refused(store_at(server.tls_url()).tls_ca(&other)).await,
        refused(store_at(server.tls_url())).await,
    ] {
        let text = error.to_string();
        assert!(text.contains(&server.tls_addr().to_string()), "{text}");
        assert!(text.contains("certificate"), "{text}");
    }
}

#[tokio::test]
async fn mutual_tls_presents_a_certificate() {
    let server = RedisServer::builder().tls(ClientAuth::Required).start();
    let files = server.certificates();
    let ca = Certificates::read(files.ca());
    let read = |files: &Certificates| {
        let certificate = Certificates::read(files.client_cert());
        (certificate, Certificates::read(files.client_key()))
    };
    let store = || store_at(server.tls_url()).tls_ca(&ca);
    let (certificate, key) = read(files);
    works(store().tls_client(&certificate, &key)).await;
    let (certificate, key) = read(&Certificates::generate());
    for error in [
        refused(store()).await,
        refused(store().tls_client(&certificate, &key)).await,
    ] {
        let text = error.to_string();
        assert!(text.contains(&server.tls_addr().to_string()), "{text}");
        assert!(!text.contains("PRIVATE KEY"), "{text}");
    }
}

#[tokio::test]
async fn the_connection_speaks_resp3() {
    let server = RedisServer::start();
    let bench = works(store_at(server.url())).await;
    let clients = server.cli().command(&["CLIENT", "LIST"]).text();
    // The other connection is that of the test.
    let resp3 = clients.lines().filter(|line| line.contains(" resp=3"));
    assert_eq!(resp3.count(), 1, "{clients}");
    drop(bench);
}

#[tokio::test]
async fn an_unreachable_server_is_reported_by_address_without_the_password() {
    for url in [
        "redis://127.0.0.1:1",
        "redis://limiter:hush@127.0.0.1:1",
        "redis://:hush@127.0.0.1:1/3",
    ] {
        let store = RedisStore::builder([url]).deadline(GENEROUS);
        let error = refused(store).await.to_string();
        assert!(error.contains("127.0.0.1:1"), "{error}");
        assert!(error.contains("cannot connect"), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
    let error = refused(store_at("unix:///nowhere/redis.sock")).await;
    assert!(error.to_string().contains("/nowhere/redis.sock"), "{error}");
}

#[tokio::test]
async fn a_timeout_names_the_address_and_comes_within_the_deadline() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    proxy.set_mode(Mode::BlackHole);
    let deadline = Duration::from_millis(200);
    let watch = Stopwatch::start();
    let store = RedisStore::builder([proxy.url("redis")]).deadline(deadline);
    let error = refused(store).await;
    assert!(watch.elapsed() <= deadline + SLACK, "{:?}", watch.elapsed());
    assert_eq!(error.reason, Reason::TIMEOUT, "{error}");
    let text = error.to_string();
    assert!(text.contains(&proxy.addr().to_string()), "{text}");
}

#[tokio::test]
async fn an_invalid_url_is_reported_without_the_password() {
    for url in ["http://limiter:hush@somewhere", "redis://:hush@", "hush"] {
        let error = RedisStore::builder([url]).build().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ConnectError::Url { .. }), "{text}");
        assert!(url == "hush" || !text.contains("hush"), "{text}");
    }
}

/// Detection uses the connection that decisions use.
#[tokio::test]
async fn detecting_a_cluster_takes_no_second_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let store = RedisStore::builder([proxy.url("redis")]).deadline(GENEROUS);
    let store = store.connect().await.unwrap();
    assert_eq!(store.breaker_state(), BreakerState::Closed);
    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));
}

/// A server that replies with an error is reachable.
#[tokio::test]
async fn an_error_reply_does_not_break_the_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bench = works(store_at(proxy.url("redis"))).await;
    let connections = proxy.accepted();
    for _ in 0..10 {
        let odd = b"-ERR something of no name\r\n".to_vec();
        proxy.fault_reply_to("EVALSHA", ReplyFault::Replace(odd));
        let decision = bench.check("ann").await;
        assert_eq!(decision.outcome(), Outcome::FailedClosed);
    }
    assert_eq!(bench.errors.labels(), ["redis_error"]);
    assert_eq!(bench.store().breaker_state(), BreakerState::Closed);
    assert_eq!(proxy.accepted(), connections);
}

#[tokio::test]
async fn a_broken_connection_is_renewed_for_the_next_request() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bench = works(store_at(proxy.url("redis"))).await;
    for round in 0..6 {
        if round % 2 == 0 {
            proxy.close_connections();
        } else {
            proxy.reset_connections();
        }
        bench.recovers("bob").await;
    }
    assert_eq!(bench.store().breaker_state(), BreakerState::Closed);
}

#[tokio::test]
async fn valkey_decides_as_the_vectors_say() {
    let Some(binary) = valkey() else {
        println!("left out: valkey-server is not installed");
        return;
    };
    let server = RedisServer::builder().binary(binary).start();
    let steps = conformance::run(async |clock| {
        server.cli().command(&["FLUSHALL"]).expect_ok();
        let store = store_at(server.url())
            .deadline(Duration::from_secs(10))
            .near_cache(false)
            .injected_clock(clock);
        store.connect().await.unwrap()
    });
    let steps = steps.await.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(steps > 300, "only {steps} steps were checked");
    works(store_at(server.url())).await;
}
