//! Waiting with a real Redis: one call for each request, a bound for all processes, and
//! cancelled units.

use std::time::Duration;

use fluxgate_core::Limiter;
use fluxgate_redis::{RedisStore, RedisStoreBuilder, Topology};
use fluxgate_testkit::{RedisServer, Stopwatch};
use fluxgate_tower::RateLimitLayer;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::Layer;

use crate::support::{Events, Inner, get, send, set_of, until};

type Layered = RateLimitLayer<Limiter<RedisStore>>;

fn builder(server: &RedisServer) -> RedisStoreBuilder {
    RedisStore::builder([server.url()])
        .topology(Topology::Standalone)
        .deadline(Duration::from_secs(10))
}

fn layer(window: &str, store: RedisStore) -> (Layered, Limiter<RedisStore>) {
    let rules = format!(
        "{{ id: r, scope: global, on_exceed: wait, max_wait: 1h, bands: [ {{ capacity: 1, window: {window} }} ] }}"
    );
    let limiter = Limiter::new(set_of(&rules), store);
    (RateLimitLayer::new(limiter.clone()).rule_set("s"), limiter)
}

/// Returns how often scripts were called.
fn script_calls(server: &RedisServer) -> u64 {
    let mut cli = server.cli();
    cli.calls("evalsha") + cli.calls("eval")
}

#[tokio::test]
async fn fifty_waiters_need_one_call_each_and_are_served_in_order_at_the_rate() {
    let server = RedisServer::start();
    let (layer, limiter) = layer("20ms", builder(&server).build().unwrap());
    let events = Events::default();
    let service = layer.layer(Inner::new(&events));
    // Load the script, and wait until the bucket is full again.
    assert_eq!(send(&service, get("/warm")).await.status, 200);
    until("a full bucket", async || {
        limiter.state("s", "r", &[]).await.unwrap()[0].remaining == 1
    })
    .await;
    events.take();
    let before = script_calls(&server);
    let (start, watch) = (Instant::now(), Stopwatch::start());
    let mut tasks = JoinSet::new();
    for index in 0..51 {
        let service = service.clone();
        tasks.spawn(async move {
            let got = send(&service, get(&format!("/{index:02}"))).await;
            (index, start.elapsed(), watch.elapsed(), got.status)
        });
        // Keep the order of the requests.
        tokio::task::yield_now().await;
    }
    let done = tasks.join_all().await;
    assert!(
        script_calls(&server) - before <= 51,
        "at most one call for each request"
    );
    for (index, elapsed, on_time, status) in done {
        assert_eq!(status, 200);
        let due = Duration::from_millis(20) * index;
        assert!(elapsed >= due, "{index} after {elapsed:?}");
        assert!(
            on_time < due + Duration::from_secs(2),
            "{index} after {on_time:?}"
        );
    }
    let served: Vec<_> = events.take().iter().map(|it| it[..3].to_owned()).collect();
    let expected: Vec<_> = (0..51).map(|index| format!("/{index:02}")).collect();
    assert_eq!(served, expected);
}

#[tokio::test]
async fn the_bound_holds_for_all_processes_and_a_dropped_waiter_frees_its_units_and_its_permit() {
    let server = RedisServer::start();
    let store = || builder(&server).max_cluster_waits(3).build().unwrap();
    let ((one, limiter), (two, _)) = (layer("1m", store()), layer("1m", store()));
    let events = Events::default();
    let services = [
        one.layer(Inner::new(&events)),
        two.layer(Inner::new(&events)),
    ];
    assert_eq!(send(&services[0], get("/x")).await.status, 200);
    let permits = || server.cli().command(&["ZCARD", "fluxgate:2:waits"]).int();
    let mut waiters = Vec::new();
    for index in 0..3 {
        let service = services[index % 2].clone();
        waiters.push(tokio::spawn(async move {
            send(&service, get("/wait")).await.status
        }));
        let expected = i64::try_from(index).unwrap() + 1;
        until("one more waiter", async || permits() == expected).await;
    }
    for service in &services {
        let got = send(service, get("/x")).await;
        assert_eq!(got.status, 429);
        // After the three waiters.
        let seconds: u64 = got.header("retry-after").unwrap().parse().unwrap();
        assert!((220..=240).contains(&seconds), "{seconds}");
    }
    // The two denied requests were charged nothing: four units are used.
    let reset_secs = async || {
        limiter.state("s", "r", &[]).await.unwrap()[0]
            .reset_after
            .as_secs()
    };
    assert!((220..=240).contains(&reset_secs().await));
    // Dropping the last waiter frees its units and its permit.
    waiters.remove(2).abort();
    until("its permit", async || permits() == 2).await;
    until("its units", async || reset_secs().await <= 180).await;
    // The second waits behind the first, so dropping the first frees only its permit.
    waiters.remove(0).abort();
    until("its permit", async || permits() == 1).await;
    assert!(
        (150..=180).contains(&reset_secs().await),
        "{}",
        reset_secs().await
    );
    waiters.remove(0).abort();
    until("all permits", async || permits() == 0).await;
    assert_eq!(
        events.count(),
        1,
        "only requests that wait to the end are served"
    );
}
