//! Rule sets that are stored in Redis.

use std::time::Duration;

use fluxgate_core::store::Reason;
use fluxgate_redis::reason;
use fluxgate_redis::{Precondition, RuleStore, Topology, WriteOutcome, etag_of};
use fluxgate_testkit::{RedisServer, Sentinels};
use tokio::time::timeout;

use crate::support::{patient, store_at};

fn rules_at(server: &RedisServer) -> RuleStore {
    store_at(server.url()).build().unwrap().rule_store()
}

#[tokio::test]
async fn a_set_is_written_only_if_the_precondition_holds() {
    let server = RedisServer::start();
    let rules = rules_at(&server);
    assert_eq!(rules.version().await, Ok(None));
    assert_eq!(rules.read().await.unwrap().sets.len(), 0);
    let (one, two) = (etag_of("one"), etag_of("two"));
    let conflict = |now: Option<&str>| WriteOutcome::Conflict {
        now: now.map(str::to_owned),
    };
    let done = |before: Option<&str>| WriteOutcome::Done {
        before: before.map(str::to_owned),
    };
    let put = async |text, expected| rules.put("a b", text, expected).await.unwrap();
    assert_eq!(put("one", Precondition::Present).await, conflict(None));
    assert_eq!(put("one", Precondition::Etag(&one)).await, conflict(None));
    assert_eq!(rules.version().await, Ok(None));
    assert_eq!(put("one", Precondition::Absent).await, done(None));
    let first = rules.version().await.unwrap();
    assert!(first.is_some());
    assert_eq!(put("two", Precondition::Absent).await, conflict(Some(&one)));
    assert_eq!(
        put("two", Precondition::Etag(&two)).await,
        conflict(Some(&one))
    );
    assert_eq!(rules.version().await.unwrap(), first);
    assert_eq!(put("two", Precondition::Etag(&one)).await, done(Some(&one)));
    assert_ne!(rules.version().await.unwrap(), first);
    assert_eq!(put("one", Precondition::Present).await, done(Some(&two)));
    assert_eq!(put("two", Precondition::Any).await, done(Some(&one)));
    rules.put("other", "", Precondition::Any).await.unwrap();
    let all = rules.read().await.unwrap();
    let texts: Vec<_> = all.sets.values().map(|set| set.text.as_str()).collect();
    assert_eq!(
        (texts, all.version),
        (vec!["two", ""], rules.version().await.unwrap())
    );
    let got = rules.get("a b").await.unwrap().unwrap();
    assert_eq!((got.text.as_str(), got.etag), ("two", two.clone()));
    let gone = rules.delete("a b", Precondition::Etag(&one)).await;
    assert_eq!(gone, Ok(conflict(Some(&two))));
    let gone = rules.delete("a b", Precondition::Etag(&two)).await;
    assert_eq!(gone, Ok(done(Some(&two))));
    assert_eq!(rules.get("a b").await, Ok(None));
    // The version stays after the last set is deleted.
    rules.delete("other", Precondition::Any).await.unwrap();
    let none = rules.read().await.unwrap();
    assert!(none.sets.is_empty() && none.version.is_some());
}

#[tokio::test]
async fn changes_are_reported_until_the_connection_is_lost() {
    let server = RedisServer::start();
    let rules = rules_at(&server);
    let mut changes = rules.subscribe().await.unwrap();
    let patience = Duration::from_secs(10);
    for text in ["one", "two"] {
        rules.put("a", text, Precondition::Any).await.unwrap();
        assert_eq!(timeout(patience, changes.next()).await, Ok(Some(())));
    }
    rules.put("a", "three", Precondition::Absent).await.unwrap();
    let nothing = timeout(Duration::from_millis(100), changes.next()).await;
    assert!(nothing.is_err(), "a conflict changes nothing");
    server.kill();
    assert_eq!(timeout(patience, changes.next()).await, Ok(None));
    assert!(rules.subscribe().await.is_err());
}

#[tokio::test]
async fn the_subscription_goes_to_the_primary_of_the_sentinels() {
    let sentinels = Sentinels::start();
    let master = sentinels.master_name().to_owned();
    let store = patient(sentinels.sentinel_urls()).topology(Topology::Sentinel { master });
    let rules = store.build().unwrap().rule_store();
    let mut changes = rules.subscribe().await.unwrap();
    rules.put("a", "one", Precondition::Any).await.unwrap();
    let errors = timeout(Duration::from_secs(10), changes.next()).await;
    assert_eq!(errors, Ok(Some(())));
}

/// The permissions that the documentation lists are enough.
#[tokio::test]
async fn minimal_permissions_are_enough() {
    let rights = "user on >pw ~fluxgate:* &fluxgate:rules -@all +ping \
                  +eval +hget +hgetall +hset +hdel +get +mget +set +del +publish +subscribe";
    let server = RedisServer::builder().user(rights).start();
    let store = store_at(server.url_as("user", "pw"));
    let rules = store.build().unwrap().rule_store();
    let mut changes = rules.subscribe().await.unwrap();
    rules.put("a", "one", Precondition::Any).await.unwrap();
    let errors = timeout(Duration::from_secs(10), changes.next()).await;
    assert_eq!(errors, Ok(Some(())));
    assert_eq!(rules.read().await.unwrap().sets.len(), 1);
    rules.delete("a", Precondition::Any).await.unwrap();
}

#[tokio::test]
async fn a_foreign_value_is_an_error() {
    let server = RedisServer::start();
    let rules = rules_at(&server);
    rules.put("a", "one", Precondition::Any).await.unwrap();
    let mut cli = server.cli();
    cli.command(&["SET", "fluxgate:1:{rules}:set:a", "other"])
        .expect_ok();
    let error = rules.read().await.unwrap_err();
    assert_eq!(error.reason, Reason::BAD_RESPONSE, "{error}");
    cli.command(&["DEL", "fluxgate:1:{rules}:index"]);
    cli.command(&["LPUSH", "fluxgate:1:{rules}:index", "x"]);
    let error = rules.version().await.unwrap_err();
    assert_eq!(error.reason, reason::BAD_TYPES, "{error}");
    let error = rules.put("a", "one", Precondition::Any).await.unwrap_err();
    assert_eq!(error.reason, reason::BAD_TYPES, "{error}");
}

#[tokio::test]
async fn more_rules_than_can_be_meant_are_not_read() {
    let server = RedisServer::start();
    let rules = rules_at(&server);
    rules.put("a", "one", Precondition::Any).await.unwrap();
    let mut cli = server.cli();
    let (index, head) = ("fluxgate:1:{rules}:index", "fluxgate:1:{rules}:set:");
    let many = "for i = 1, 10000 do redis.call('HSET', KEYS[1], 'set-' .. i, 'x') end";
    cli.command(&["EVAL", many, "1", index]);
    let error = rules.read().await.unwrap_err();
    assert_eq!(error.reason, Reason::BAD_RESPONSE, "{error}");
    let expected = "there are 10001 rule sets; at most 10000 are read";
    assert!(error.message.contains(expected), "{error}");
    // The last one that is allowed makes the first that lacks its text the fault.
    cli.command(&["HDEL", index, "set-1"]);
    let error = rules.read().await.unwrap_err();
    assert!(
        error.message.contains("\"set-10\" does not match"),
        "{error}"
    );
    let huge = "redis.call('DEL', KEYS[1]); for i = 1, 2 do \
                redis.call('HSET', KEYS[1], 'h' .. i, 'x'); \
                redis.call('SETRANGE', KEYS[2] .. 'h' .. i, 40000000, 'x') end";
    cli.command(&["EVAL", huge, "2", index, head]);
    let error = rules.read().await.unwrap_err();
    let expected = "the rule sets have 80000002 bytes; at most 67108864 are read";
    assert!(error.message.contains(expected), "{error}");
}
