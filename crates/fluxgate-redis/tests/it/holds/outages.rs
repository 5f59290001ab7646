//! Holds whose server is lost, full, or reached too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fluxgate_core::{HoldId, Limiter, Observer, Outcome, Settled, Settlement};
use fluxgate_redis::reason;
use fluxgate_testkit::{FaultProxy, Mode, RedisServer, Skew};

use super::{MINUTE, held, left, reserve, slots_and_tokens};
use crate::support::{ALGORITHMS, Bench, RECOVERY, SLACK, store_at, until, until_async};

const DEADLINE: Duration = Duration::from_secs(3);

fn bench(url: String, hold: &str) -> Bench {
    let store = store_at(url).deadline(DEADLINE).near_cache(false);
    Bench::new(slots_and_tokens(2, hold, "fixed_window"), store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_are_free_after_a_hold_if_the_server_is_lost_before_they_are_released() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let bench = bench(proxy.url("redis"), "1s");
    let ids = [
        held(&bench.limiter, "ann", "400").await,
        held(&bench.limiter, "ann", "400").await,
    ];
    for mode in [Mode::BlackHole, Mode::Refuse] {
        proxy.set_mode(mode);
        proxy.close_connections();
        let settled = bench.limiter.settle(ids[0], Settlement::RELEASE).await;
        assert!(settled.is_err());
        let renewed = bench.limiter.renew(ids[1], MINUTE).await;
        assert!(renewed.is_err());
    }
    until("the holds have ended", || {
        server.cli().keys("*:h").is_empty() && server.cli().keys("*:hold2:*").is_empty()
    })
    .await;
    proxy.heal();
    let recovery = until_async("it recovers", async || {
        bench.store().ping().await.is_ok()
            && reserve(&bench.limiter, "bob", "1").await.outcome() == Outcome::Allowed
    });
    assert!(recovery.await < RECOVERY + SLACK);
    assert_eq!(left(&bench.limiter, "r", "ann").await, 2);
    // Neither is revived, and what they reserved stays charged.
    for id in ids {
        assert_eq!(
            bench.limiter.settle(id, Settlement::RELEASE).await,
            Ok(None)
        );
        assert_eq!(bench.limiter.renew(id, MINUTE).await, Ok(false));
    }
    assert_eq!(left(&bench.limiter, "t", "ann").await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_its_data_knows_no_hold_and_holds_again() {
    let server = RedisServer::start();
    let bench = bench(server.url(), "1m");
    let id = held(&bench.limiter, "ann", "400").await;
    server.restart();
    bench.recovery("bob").await;
    assert_eq!(
        bench.limiter.settle(id, Settlement::Cost(9)).await,
        Ok(None)
    );
    let id = held(&bench.limiter, "ann", "400").await;
    let settled = bench.limiter.settle(id, Settlement::Cost(9)).await.unwrap();
    assert_eq!(settled.map(|settled| settled.charged), Some(9));
    assert_eq!(left(&bench.limiter, "t", "ann").await, 991);
}

/// Counts what the limiter reports of holds.
#[derive(Clone, Debug, Default)]
struct Late(Arc<[AtomicUsize; 2]>);

impl Late {
    fn counts(&self) -> [usize; 2] {
        [0, 1].map(|index: usize| self.0[index].load(Ordering::Relaxed))
    }
}

impl Observer for Late {
    fn hold_expired(&self, _: HoldId) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    fn hold_settled(&self, _: HoldId, settled: Option<Settled>) {
        self.0[1].fetch_add(usize::from(settled.is_none()), Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_late_revives_nothing_and_is_reported() {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    let proxy = FaultProxy::start(server.addr());
    let late = Late::default();
    let store = store_at(proxy.url("redis")).deadline(DEADLINE);
    let rules = slots_and_tokens(2, "1s", "fixed_window");
    let limiter = Limiter::builder(rules, store.connect().await.unwrap());
    let limiter = limiter.observer(late.clone()).build();
    let decision = reserve(&limiter, "ann", "1").await;
    let kept = limiter.keep_hold(&decision).unwrap();
    proxy.set_mode(Mode::BlackHole);
    until("the hold has ended", || server.cli().keys("*:h").is_empty()).await;
    proxy.heal();
    proxy.close_connections();
    until("it is reported", || late.counts() == [1, 0]).await;
    assert_eq!(limiter.kept_holds(), 0);
    assert!(server.cli().keys("*:h").is_empty(), "it is not revived");
    drop(kept);
    until("its request ends too late", || late.counts() == [1, 1]).await;
    // Settled instead, before it would have been renewed.
    until_async("it is connected", async || {
        reserve(&limiter, "bob", "1").await.outcome() == Outcome::Allowed
    })
    .await;
    let decision = reserve(&limiter, "eve", "1").await;
    let mut kept = limiter.keep_hold(&decision).unwrap();
    server.set_clock_offset(Skew::Ahead(Duration::from_secs(2)));
    assert_eq!(kept.settle(Settlement::Cost(5)).await, Ok(None));
    assert_eq!(late.counts()[1], 2);
    assert_eq!(left(&limiter, "t", "eve").await, 999);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_a_settlement_changes_nothing_and_slots_are_released() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let mut limit_memory = |bytes| {
        cli.command(&["CONFIG", "SET", "maxmemory", bytes])
            .expect_ok();
    };
    for algorithm in ALGORITHMS {
        server.cli().command(&["FLUSHALL"]).expect_ok();
        let store = store_at(server.url()).near_cache(false);
        let bench = Bench::new(slots_and_tokens(3, "1m", algorithm), store);
        let limiter = &bench.limiter;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(held(limiter, "ann", "200").await);
        }
        let (kept, released) = (ids[0], ids[1]);
        limit_memory("1");
        for cost in [900, 50] {
            let settled = limiter.settle(kept, Settlement::Cost(cost)).await;
            assert_eq!(settled.unwrap_err().reason, reason::OOM, "{algorithm}");
        }
        let settled = limiter.settle(released, Settlement::AsReserved).await;
        assert!(settled.unwrap().is_some(), "{algorithm}");
        assert_eq!(
            reserve(limiter, "ann", "1").await.outcome(),
            Outcome::FailedClosed
        );
        limit_memory("0");
        assert_eq!(left(limiter, "r", "ann").await, 1, "{algorithm}");
        assert_eq!(left(limiter, "t", "ann").await, 400, "{algorithm}");
        let settled = limiter.settle(kept, Settlement::Cost(50)).await.unwrap();
        assert_eq!(settled.map(|settled| settled.charged), Some(50));
        assert_eq!(left(limiter, "r", "ann").await, 2, "{algorithm}");
        assert_eq!(left(limiter, "t", "ann").await, 550, "{algorithm}");
    }
}
