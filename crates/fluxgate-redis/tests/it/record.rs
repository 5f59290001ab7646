//! The record of what happened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_redis::record::{
    MAX_AUDIT_ENTRIES, MAX_MINUTE_ROWS, Record, RecordBatch, RecordedChange, RecordedDenial,
    RecordedRule, Step,
};
use fluxgate_testkit::{FaultProxy, RedisCluster, RedisServer, ReplyFault};

use crate::support::{patient, store_at};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// A minute of an ordinary year.
const MINUTE: u64 = 30_000_000;

fn rule(name: &str) -> RecordedRule {
    RecordedRule {
        rule_set: "api".into(),
        rule: name.into(),
    }
}

/// Returns the record of an instance of its own.
fn record(url: impl Into<String>) -> Record {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let store = store_at(url).build().unwrap();
    store.record(&format!("{number:016x}"), DAY)
}

fn row(id: &str, count: u64, at_ms: u64) -> RecordedDenial {
    RecordedDenial {
        id: id.into(),
        count,
        first_ms: at_ms,
        last_ms: at_ms,
        text: format!("text at {at_ms}"),
    }
}

async fn send(record: &Record, fill: impl FnOnce(&mut RecordBatch)) -> RecordBatch {
    let mut batch = record.new_batch();
    fill(&mut batch);
    record.send(&mut batch).await.unwrap();
    assert!(batch.is_done());
    batch
}

/// Returns the sum of all counts of a minute step by rule and outcome.
async fn sum(record: &Record, step: Step, from: u64, to: u64) -> Vec<(String, &'static str, u64)> {
    let rules = record.rules().await.unwrap();
    let counts = record.counts(step, from, to, &rules).await.unwrap();
    let mut counts: Vec<_> = { counts.into_iter() }
        .map(|it| (it.rule.rule.to_string(), it.outcome.name(), it.count))
        .collect();
    counts.sort();
    counts
}

#[tokio::test]
async fn what_instances_write_is_added_up() {
    let server = RedisServer::start();
    let (one, other) = (record(server.url()), record(server.url()));
    for (record, count) in [(&one, 3), (&other, 4), (&one, 5)] {
        send(record, |batch| {
            for (name, outcome) in [("a", Outcome::Allowed), ("b", Outcome::Fallback)] {
                batch.add_count(Step::Minute, MINUTE, &rule(name), outcome, count);
                batch.add_count(Step::Second, 60 * MINUTE + 59, &rule(name), outcome, count);
            }
        })
        .await;
    }
    let expected = [
        ("a".to_owned(), "allowed", 12),
        ("b".into(), "fallback", 12),
    ];
    assert_eq!(sum(&one, Step::Minute, MINUTE, MINUTE + 1).await, expected);
    let second = 60 * MINUTE + 59;
    assert_eq!(
        sum(&other, Step::Second, second, second + 1).await,
        expected
    );
    assert_eq!(sum(&other, Step::Second, second + 1, second + 9).await, []);
}

#[tokio::test]
async fn everything_expires() {
    let server = RedisServer::start();
    let record = record(server.url());
    let batch = send(&record, |batch| {
        batch.add_count(Step::Minute, MINUTE, &rule("a"), Outcome::Denied, 1);
        batch.add_count(Step::Second, 60 * MINUTE, &rule("a"), Outcome::Denied, 1);
        batch.add_denials(MINUTE, &rule("a"), &[row("ann", 1, 1)], 2);
    })
    .await;
    send(&record, |next| next.index_rows_of(&batch)).await;
    let change = RecordedChange {
        at_ms: 1,
        rule_set: "api".into(),
        revision: "r".into(),
        who: String::new(),
    };
    record.add_change(&change, false).await.unwrap();
    let mut cli = server.cli();
    let keys = cli.keys("*");
    assert_eq!(keys.len(), 7, "{keys:?}");
    for key in keys {
        assert!(key.starts_with("fluxgate:1:history:"), "{key}");
        let left = cli.command(&["TTL", &key]).int();
        let longest = if key.contains(":s:") {
            20 * 60
        } else {
            25 * 3600
        };
        assert!((60..=longest).contains(&left), "{key}: {left}");
    }
}

#[tokio::test]
async fn a_batch_whose_reply_is_lost_is_added_once() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let record = record(proxy.url("redis"));
    // The scripts are known, so that each call has one reply.
    let fill = |batch: &mut RecordBatch| {
        batch.add_count(Step::Minute, MINUTE, &rule("a"), Outcome::Allowed, 1);
        batch.add_denials(MINUTE, &rule("a"), &[row("ann", 1, 1)], 1);
    };
    send(&record, fill).await;
    for fault in [ReplyFault::SwallowAndClose, ReplyFault::Cut(1)] {
        let mut batch = record.new_batch();
        fill(&mut batch);
        proxy.fault_reply_to("history:m:", fault);
        assert!(record.send(&mut batch).await.is_err());
        assert!(!batch.is_done());
        while record.send(&mut batch).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(batch.is_done());
    }
    let expected = [("a".to_owned(), "allowed", 3)];
    assert_eq!(
        sum(&record, Step::Minute, MINUTE, MINUTE + 1).await,
        expected
    );
    let blocks = record.denial_blocks(MINUTE, MINUTE + 1).await.unwrap();
    let denials = record.denials(&blocks).await.unwrap();
    assert_eq!(denials, [(vec![row("ann", 3, 1)], 3)]);
}

#[tokio::test]
async fn a_full_server_gets_the_batch_later() {
    let server = RedisServer::start();
    let record = record(server.url());
    let mut cli = server.cli();
    cli.command(&["CONFIG", "SET", "maxmemory", "1"])
        .expect_ok();
    let mut batch = record.new_batch();
    batch.add_count(Step::Minute, MINUTE, &rule("a"), Outcome::Allowed, 2);
    let error = record.send(&mut batch).await.unwrap_err();
    assert_eq!(error.reason.name(), "oom", "{error}");
    cli.command(&["CONFIG", "SET", "maxmemory", "0"])
        .expect_ok();
    record.send(&mut batch).await.unwrap();
    let expected = [("a".to_owned(), "allowed", 2)];
    assert_eq!(
        sum(&record, Step::Minute, MINUTE, MINUTE + 1).await,
        expected
    );
}

#[tokio::test]
async fn a_key_that_another_program_has_taken_holds_up_nothing_else() {
    let server = RedisServer::start();
    let record = record(server.url());
    let fill = |batch: &mut RecordBatch| {
        batch.add_count(Step::Minute, MINUTE, &rule("a"), Outcome::Denied, 7);
        batch.add_count(Step::Minute, MINUTE, &rule("b"), Outcome::Allowed, 5);
        batch.add_denials(MINUTE, &rule("a"), &[row("ann", 3, 1)], 4);
    };
    send(&record, fill).await;
    let mut cli = server.cli();
    let taken = ["*:m:*:api/a", "*:d:*:api/a"].map(|pattern| cli.keys(pattern).remove(0));
    for key in &taken {
        cli.command(&["DEL", key]);
        cli.command(&["LPUSH", key, "x"]);
    }
    let mut batch = record.new_batch();
    fill(&mut batch);
    let refused = record.send(&mut batch).await.unwrap_err();
    assert_eq!(refused.reason.name(), "bad_types");
    assert!(batch.is_done());
    assert_eq!((batch.take_lost(), batch.take_lost()), (14, 0));
    let rules = [rule("b")];
    let counts = record.counts(Step::Minute, MINUTE, MINUTE + 1, &rules);
    assert_eq!(counts.await.unwrap()[0].count, 10);
    // What another program has written into a hash is replaced, or left out.
    for key in &taken {
        cli.command(&["DEL", key]);
        for field in ["0d", "=ann", "dropped", "rows"] {
            cli.command(&["HSET", key, field, "x"]);
        }
    }
    send(&record, |batch| {
        batch.add_count(Step::Minute, MINUTE, &rule("a"), Outcome::Denied, 7);
        batch.add_denials(MINUTE, &rule("a"), &[row("ann", 3, 1)], 4);
    })
    .await;
    let found = sum(&record, Step::Minute, MINUTE, MINUTE + 1).await;
    assert_eq!(found[0], ("a".to_owned(), "denied", 7));
}

#[tokio::test]
async fn rows_of_an_identity_are_merged() {
    let server = RedisServer::start();
    let (one, other) = (record(server.url()), record(server.url()));
    let text = "with spaces, \"quotes\", ümlauts and\ttabs";
    for (record, count, at) in [(&one, 2, 50), (&other, 3, 90), (&one, 1, 20)] {
        let row = RecordedDenial {
            text: format!("{text} {at}"),
            ..row("ann", count, at)
        };
        send(record, |batch| {
            batch.add_denials(MINUTE, &rule("a"), &[row], 0);
        })
        .await;
    }
    let blocks = one.denial_blocks(MINUTE, MINUTE + 1).await.unwrap();
    let expected = RecordedDenial {
        id: "ann".into(),
        count: 6,
        first_ms: 20,
        last_ms: 90,
        text: format!("{text} 90"),
    };
    assert_eq!(one.denials(&blocks).await.unwrap(), [(vec![expected], 0)]);
}

#[tokio::test]
async fn a_minute_keeps_the_heaviest_rows_and_counts_the_others() {
    let server = RedisServer::start();
    let record = record(server.url());
    let light: Vec<_> = (0..MAX_MINUTE_ROWS as u64)
        .map(|number| row(&format!("light{number}"), 1 + number % 3, 5))
        .collect();
    let heavy: Vec<_> = (0..100)
        .map(|number| row(&format!("heavy{number}"), 10, 6))
        .collect();
    let mut total = 0;
    let mut last = None;
    for rows in [&light, &heavy, &light] {
        total += rows.iter().map(|row| row.count).sum::<u64>();
        let batch = send(&record, |batch| {
            if let Some(last) = &last {
                batch.index_rows_of(last);
            }
            batch.add_denials(MINUTE, &rule("a"), rows, 0);
        })
        .await;
        last = Some(batch);
    }
    send(&record, |batch| batch.index_rows_of(&last.unwrap())).await;
    let blocks = record.denial_blocks(MINUTE, MINUTE + 1).await.unwrap();
    let (rows, dropped) = record.denials(&blocks).await.unwrap().remove(0);
    assert_eq!(rows.len(), MAX_MINUTE_ROWS);
    assert_eq!(rows.iter().filter(|row| row.count == 10).count(), 100);
    let counted: u64 = rows.iter().map(|row| row.count).sum();
    assert_eq!(counted + dropped, total);
    let by_index = record.dropped(MINUTE, MINUTE + 1).await.unwrap();
    assert_eq!(by_index, [(blocks[0].clone(), dropped)]);
}

#[tokio::test]
async fn the_oldest_rows_are_dropped_if_there_are_too_many() {
    let server = RedisServer::start();
    let record = record(server.url());
    let rows: Vec<_> = (0..10)
        .map(|number| row(&format!("u{number}"), 2, 5))
        .collect();
    let batch = send(&record, |batch| {
        for minute in 0..100 {
            batch.add_denials(MINUTE + minute, &rule("a"), &rows, 0);
        }
    })
    .await;
    send(&record, |next| next.index_rows_of(&batch)).await;
    let all = |most| record.trim_denials(MINUTE, MINUTE + 100, most);
    assert_eq!(all(1_000).await.unwrap(), 0);
    assert_eq!(all(205).await.unwrap(), 80);
    assert_eq!(all(205).await.unwrap(), 0);
    let blocks = record.denial_blocks(MINUTE, MINUTE + 100).await.unwrap();
    assert_eq!(blocks.len(), 20);
    assert!(blocks.iter().all(|block| block.minute >= MINUTE + 80));
    let dropped = record.dropped(MINUTE, MINUTE + 100).await.unwrap();
    assert_eq!(dropped.iter().map(|(_, count)| count).sum::<u64>(), 80 * 20);
}

#[tokio::test]
async fn a_change_is_one_entry_however_many_instances_take_it_over() {
    let server = RedisServer::start();
    let instances = [record(server.url()), record(server.url())];
    let change = |revision: &str, at_ms| RecordedChange {
        at_ms,
        rule_set: "api".into(),
        revision: revision.into(),
        who: "ops".into(),
    };
    for (revision, at, is_first) in [
        ("a", 10, true),
        ("b", 20, false),
        // It is taken over late, and once more by a process that starts.
        ("b", 25, false),
        ("b", 30, true),
        ("a", 40, false),
        // As the store of the rules has it.
        ("b", 20, false),
        ("a", 10, false),
        // Changed while no process ran.
        ("c", 50, true),
    ] {
        for (number, record) in instances.iter().enumerate() {
            let at = if revision == "a" || revision == "c" {
                at + number as u64
            } else {
                at
            };
            record
                .add_change(&change(revision, at), is_first)
                .await
                .unwrap();
        }
    }
    let changes = instances[0].changes().await.unwrap();
    assert_eq!(changes, [change("b", 20), change("a", 40), change("c", 50)]);
}

#[tokio::test]
async fn a_cluster_has_the_record_on_all_nodes() {
    let cluster = RedisCluster::start(3);
    let store = || patient(cluster.urls()).build().unwrap();
    let (one, other) = (store().record("1", DAY), store().record("2", DAY));
    for record in [&one, &other] {
        send(record, |batch| {
            for number in 0..50 {
                let rule = rule(&format!("r{number}"));
                batch.add_count(Step::Minute, MINUTE, &rule, Outcome::Denied, 2);
                batch.add_denials(MINUTE, &rule, &[row("ann", 2, 1)], 0);
            }
        })
        .await;
    }
    let sums = sum(&other, Step::Minute, MINUTE, MINUTE + 1).await;
    assert_eq!(sums.len(), 50);
    assert!(sums.iter().all(|(_, _, count)| *count == 4), "{sums:?}");
    let blocks = one.denial_blocks(MINUTE, MINUTE + 1).await.unwrap();
    let denials = one.denials(&blocks).await.unwrap();
    assert_eq!(denials.len(), 50);
    assert!(denials.iter().all(|(rows, _)| rows[0].count == 4));
}

#[tokio::test]
async fn the_audit_trail_is_shared_bounded_and_has_each_entry_once() {
    let server = RedisServer::start();
    let (one, other) = (record(server.url()), record(server.url()));
    for entry in ["a", "b", "a"] {
        one.add_audit(entry).await.unwrap();
    }
    other.add_audit("c").await.unwrap();
    assert_eq!(one.audit(10).await.unwrap(), ["c", "b", "a"]);
    assert_eq!(one.audit(2).await.unwrap(), ["c", "b"]);
    for number in 0..MAX_AUDIT_ENTRIES {
        other.add_audit(&number.to_string()).await.unwrap();
    }
    let all = one.audit(2 * MAX_AUDIT_ENTRIES).await.unwrap();
    assert_eq!(all.len(), MAX_AUDIT_ENTRIES);
    assert_eq!(all.last().unwrap(), "0");
}
