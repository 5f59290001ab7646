//! Rule sets that are kept in Redis.

use std::time::Duration;

use fluxgate_core::Reason;
use fluxgate_redis::reason;
use fluxgate_redis::{Expected, RuleStore, Topology, Written, etag_of};
use fluxgate_testkit::{RedisServer, Sentinels};
use tokio::time::timeout;

use crate::support::{patient, store_at};

fn rules_at(server: &RedisServer) -> RuleStore {
    store_at(server.url()).build().unwrap().rule_store()
}

#[tokio::test]
async fn a_set_is_written_only_if_it_is_what_its_writer_thinks() {
    let server = RedisServer::start();
    let rules = rules_at(&server);
    assert_eq!(rules.version().await, Ok(None));
    assert_eq!(rules.read().await.unwrap().sets.len(), 0);
    let (one, two) = (etag_of("one"), etag_of("two"));
    let conflict = |now: Option<&str>| Written::Conflict {
        now: now.map(str::to_owned),
    };
    let done = |before: Option<&str>| Written::Done {
        before: before.map(str::to_owned),
    };
    let put = async |text, expected| rules.put("a b", text, expected).await.unwrap();
    assert_eq!(put("one", Expected::Present).await, conflict(None));
    assert_eq!(put("one", Expected::Etag(&one)).await, conflict(None));
    assert_eq!(rules.version().await, Ok(None));
    assert_eq!(put("one", Expected::Absent).await, done(None));
    let first = rules.version().await.unwrap();
    assert!(first.is_some());
    assert_eq!(put("two", Expected::Absent).await, conflict(Some(&one)));
    assert_eq!(put("two", Expected::Etag(&two)).await, conflict(Some(&one)));
    assert_eq!(rules.version().await.unwrap(), first);
    assert_eq!(put("two", Expected::Etag(&one)).await, done(Some(&one)));
    assert_ne!(rules.version().await.unwrap(), first);
    assert_eq!(put("one", Expected::Present).await, done(Some(&two)));
    assert_eq!(put("two", Expected::Any).await, done(Some(&one)));
    rules.put("other", "", Expected::Any).await.unwrap();
    let all = rules.read().await.unwrap();
    let texts: Vec<_> = all.sets.values().map(|set| set.text.as_str()).collect();
    assert_eq!(
        (texts, all.version),
        (vec!["two", ""], rules.version().await.unwrap())
    );
    let got = rules.get("a b").await.unwrap().unwrap();
    assert_eq!((got.text.as_str(), got.etag), ("two", two.clone()));
    let gone = rules.delete("a b", Expected::Etag(&one)).await;
    assert_eq!(gone, Ok(conflict(Some(&two))));
    let gone = rules.delete("a b", Expected::Etag(&two)).await;
    assert_eq!(gone, Ok(done(Some(&two))));
    assert_eq!(rules.get("a b").await, Ok(None));
    // That there was something once is still known.
    rules.delete("other", Expected::Any).await.unwrap();
    let none = rules.read().await.unwrap();
    assert!(none.sets.is_empty() && none.version.is_some());
}

#[tokio::test]
async fn changes_are_heard_of_until_the_connection_is_lost() {
    let server = RedisServer::start();
    let rules = rules_at(&server);
    let mut changes = rules.changes().await.unwrap();
    let patience = Duration::from_secs(10);
    for text in ["one", "two"] {
        rules.put("a", text, Expected::Any).await.unwrap();
        assert_eq!(timeout(patience, changes.next()).await, Ok(Some(())));
    }
    rules.put("a", "three", Expected::Absent).await.unwrap();
    let nothing = timeout(Duration::from_millis(100), changes.next()).await;
    assert!(nothing.is_err(), "a conflict changes nothing");
    server.kill();
    assert_eq!(timeout(patience, changes.next()).await, Ok(None));
    assert!(rules.changes().await.is_err());
}

#[tokio::test]
async fn sentinels_are_asked_where_to_listen() {
    let sentinels = Sentinels::start();
    let master = sentinels.master_name().to_owned();
    let store = patient(sentinels.sentinel_urls()).topology(Topology::Sentinel { master });
    let rules = store.build().unwrap().rule_store();
    let mut changes = rules.changes().await.unwrap();
    rules.put("a", "one", Expected::Any).await.unwrap();
    let heard = timeout(Duration::from_secs(10), changes.next()).await;
    assert_eq!(heard, Ok(Some(())));
}

/// The rights that the documentation names are enough.
#[tokio::test]
async fn few_rights_will_do() {
    let rights = "user on >pw ~fluxgate:* &fluxgate:rules -@all +ping \
                  +eval +hget +hgetall +hset +hdel +get +mget +set +del +publish +subscribe";
    let server = RedisServer::builder().user(rights).start();
    let store = store_at(server.url_as("user", "pw"));
    let rules = store.build().unwrap().rule_store();
    let mut changes = rules.changes().await.unwrap();
    rules.put("a", "one", Expected::Any).await.unwrap();
    let heard = timeout(Duration::from_secs(10), changes.next()).await;
    assert_eq!(heard, Ok(Some(())));
    assert_eq!(rules.read().await.unwrap().sets.len(), 1);
    rules.delete("a", Expected::Any).await.unwrap();
}

#[tokio::test]
async fn what_somebody_else_put_there_is_an_error() {
    let server = RedisServer::start();
    let rules = rules_at(&server);
    rules.put("a", "one", Expected::Any).await.unwrap();
    let mut cli = server.cli();
    cli.command(&["SET", "fluxgate:1:{rules}:set:a", "other"])
        .expect_ok();
    let error = rules.read().await.unwrap_err();
    assert_eq!(error.reason, Reason::BAD_RESPONSE, "{error}");
    cli.command(&["DEL", "fluxgate:1:{rules}:index"]);
    cli.command(&["LPUSH", "fluxgate:1:{rules}:index", "x"]);
    let error = rules.version().await.unwrap_err();
    assert_eq!(error.reason, reason::BAD_TYPES, "{error}");
    let error = rules.put("a", "one", Expected::Any).await.unwrap_err();
    assert_eq!(error.reason, reason::BAD_TYPES, "{error}");
}
