//! What programs use besides rules: keyed limits, and rules that follow the stored ones.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::{
    DynStore, Limiter, Observer, Quota, RequestContext, RuleSets, SharedKeyedLimiter,
};
use fluxgate_redis::{Precondition, RedisStore};
use fluxgate_testkit::RedisServer;

use crate::support::{patient, until_async};

fn store(server: &RedisServer) -> RedisStore {
    patient([server.url()]).build().unwrap()
}

#[tokio::test]
async fn processes_share_the_quota_of_a_key() {
    let server = RedisServer::start();
    let limiters = [(); 2].map(|()| {
        let quotas = [Quota::per_hour(3), Quota::per_day(100)];
        SharedKeyedLimiter::new("exports", quotas, store(&server))
    });
    let [one, two] = &limiters;
    assert_eq!(one.check("ann").await.unwrap().remaining, 2);
    assert_eq!(two.check("ann").await.unwrap().remaining, 1);
    assert_eq!(two.peek("ann").await.unwrap().remaining, 1);
    assert_eq!(one.check_n("ann", 1).await.unwrap().remaining, 0);
    let denied = two.check("ann").await.unwrap_err();
    assert!(
        denied.retry_after > Some(Duration::from_secs(1_100)),
        "{denied}"
    );
    assert!(two.check([0xff, b'\n']).await.is_ok());
    assert_eq!(one.refund("ann", 2).await.unwrap(), 2);
    assert_eq!(one.check("ann").await.unwrap().remaining, 1);
    assert!(two.reset("ann").await.unwrap());
    assert_eq!(one.check("ann").await.unwrap().remaining, 2);
}

#[tokio::test]
async fn a_dropped_reservation_returns_to_redis() {
    let server = RedisServer::start();
    let store = DynStore::new(store(&server));
    let limiter = SharedKeyedLimiter::new("exports", Quota::per_minute(1), store);
    let minute = Duration::from_secs(60);
    assert!(limiter.check("ann").await.is_ok());
    let reserved = limiter.reserve("ann", minute).await.unwrap();
    assert!(reserved.delay() > Duration::from_secs(55));
    assert!(limiter.reserve("ann", minute).await.is_err());
    drop(reserved);
    // It returns in the background.
    let mut again = None;
    until_async("it returns", async || {
        again = limiter.reserve("ann", minute).await.ok();
        again.is_some()
    })
    .await;
    assert!(again.unwrap().into_delay() <= minute);
}

#[derive(Clone, Debug, Default)]
struct Changes(Arc<Mutex<Vec<String>>>);

impl Observer for Changes {
    fn rules_changed(&self, loaded: Result<(), &(dyn std::error::Error + 'static)>) {
        let line = loaded.map_or_else(|error| error.to_string(), |()| "loaded".into());
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test]
async fn a_limiter_follows_the_stored_rules() {
    let server = RedisServer::start();
    let store = store(&server);
    let rules = store.rule_store();
    let put = async |capacity: u64| {
        let text = format!(
            "rules: [ {{ id: r, scope: global, bands: [ {{ capacity: {capacity}, window: 1h }} ] }} ]"
        );
        rules.put("s", &text, Precondition::Any).await.unwrap();
    };
    put(1).await;
    let changes = Changes::default();
    let limiter = Limiter::builder(RuleSets::default(), store)
        .observer(changes.clone())
        .build();
    let watch = rules.follow(&limiter).await.unwrap();
    let limit = async || limiter.peek("s", &RequestContext::default()).await.limit();
    assert_eq!(limit().await, Some(1));
    let until = async |count: usize| {
        crate::support::until("a change is reported", || {
            changes.0.lock().unwrap().len() >= count
        })
        .await;
        changes.0.lock().unwrap().clone()
    };
    put(2).await;
    assert_eq!(until(1).await, ["loaded"]);
    assert_eq!(limit().await, Some(2));
    rules.put("s", "rules: 1", Precondition::Any).await.unwrap();
    let reported = until(2).await;
    assert!(
        reported[1].starts_with("rule set \"s\":\n1:8: `rules` must be"),
        "{reported:?}"
    );
    assert_eq!(limit().await, Some(2), "the last good ones stay");
    server.cli().command(&["FLUSHALL"]);
    let reported = until(3).await;
    assert_eq!(reported[2], "the stored rules are gone");
    assert_eq!(limit().await, Some(2));
    drop(watch);
}
