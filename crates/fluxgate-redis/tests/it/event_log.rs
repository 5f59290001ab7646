//! The log of events, the shares that are reported once, and the queues of senders.

use std::time::Duration;

use fluxgate_core::Timestamp;
use fluxgate_core::key::RuleNumber;
use fluxgate_core::store::{Micros, Subject};
use fluxgate_redis::{EventId, EventLog, ShareReport, ShareState};
use fluxgate_testkit::{RedisCluster, RedisServer, Skew};

use crate::support::{patient, store_at, until_async};

const SECOND: Duration = Duration::from_secs(1);

fn log_at(server: &RedisServer) -> EventLog {
    store_at(server.url()).build().unwrap().event_log()
}

fn subject(bytes: &[u8]) -> Subject<'_> {
    let rule = RuleNumber::NONE;
    Subject { rule, bytes }
}

/// A report about one share of an identity.
fn report<'r>(identity: &'r [u8], state: ShareState, at: u64, token: &'r str) -> ShareReport<'r> {
    ShareReport {
        subject: subject(identity),
        share: "b0 80%",
        state,
        at: Timestamp::from_micros(at).unwrap(),
        reset_after: Micros::new(3_600_000_000),
        token,
        event: token,
    }
}

async fn tell(log: &EventLog, identity: &[u8], state: ShareState, at: u64, token: &str) -> bool {
    let told = log
        .report_shares(&[report(identity, state, at, token)])
        .await;
    told.unwrap()[0]
}

async fn texts(log: &EventLog) -> Vec<String> {
    let events = log.last(1_000).await.unwrap();
    events.into_iter().map(|event| event.text).collect()
}

/// The server's time, in microseconds.
async fn now(log: &EventLog) -> u64 {
    log.time_at(subject(b"x")).await.unwrap().micros()
}

const REACHED: ShareState = ShareState::Reached {
    gap: Duration::ZERO,
};
const REACHED_IN_BUCKET: ShareState = ShareState::Reached { gap: SECOND };

#[tokio::test]
async fn events_are_read_in_order_after_any_of_them() {
    let server = RedisServer::start();
    let (log, other) = (log_at(&server), log_at(&server));
    assert_eq!(log.last(10).await.unwrap(), []);
    let ids = log.append(&["a".into(), "b".into()]).await.unwrap();
    let more = other.append(&["c".into()]).await.unwrap();
    assert!(ids[0] < ids[1] && ids[1] < more[0]);
    let after = log.read_after(ids[0], 10).await.unwrap();
    let after: Vec<_> = after.iter().map(|it| (it.id, it.text.as_str())).collect();
    assert_eq!(after, [(ids[1], "b"), (more[0], "c")]);
    let first = log.read_after(EventId::default(), 1).await.unwrap();
    assert_eq!((first.len(), &*first[0].text), (1, "a"));
    assert_eq!(log.read_after(more[0], 10).await.unwrap(), []);
    let last = log.last(2).await.unwrap();
    assert_eq!([&*last[0].text, &*last[1].text], ["b", "c"]);
    for key in server.cli().keys("*") {
        assert!(
            server.cli().command(&["PTTL", &key]).int() > 0,
            "{key} expires"
        );
    }
}

#[tokio::test]
async fn what_several_instances_notice_is_appended_once() {
    let server = RedisServer::start();
    let (one, two) = (log_at(&server), log_at(&server));
    assert!(one.append_once("rules", "1", "one".into()).await.unwrap());
    assert!(!two.append_once("rules", "1", "two".into()).await.unwrap());
    assert!(two.append_once("rules", "2", "two".into()).await.unwrap());
    assert!(one.append_once("other", "1", "other".into()).await.unwrap());
    assert_eq!(texts(&one).await, ["one", "two", "other"]);
}

#[tokio::test]
async fn a_share_is_told_once_by_whichever_instance_reports_it_first() {
    let server = RedisServer::start();
    let (one, two) = (log_at(&server), log_at(&server));
    let at = now(&one).await;
    // A later decision finds the use there, and its report arrives first.
    assert!(tell(&two, b"ann", ShareState::Above, at + 5, "1").await);
    assert!(!tell(&one, b"ann", REACHED, at, "2").await);
    assert!(!tell(&one, b"ann", ShareState::Above, at + 9, "3").await);
    // The next time it is reached, another decision did it.
    assert!(tell(&one, b"ann", REACHED, at + 10, "4").await);
    assert!(!tell(&two, b"ann", ShareState::Above, at + 11, "5").await);
    assert!(tell(&two, b"bob", REACHED, at, "6").await);
    assert_eq!(texts(&one).await, ["1", "4", "6"]);
}

#[tokio::test]
async fn a_use_that_was_seen_at_the_share_shortly_before_has_not_fallen() {
    let server = RedisServer::start();
    let log = log_at(&server);
    let at = now(&log).await - 10_000_000;
    assert!(tell(&log, b"ann", REACHED_IN_BUCKET, at, "1").await);
    assert!(!tell(&log, b"ann", REACHED_IN_BUCKET, at + 900_000, "2").await);
    // Seen again, so the second begins anew.
    assert!(!tell(&log, b"ann", REACHED_IN_BUCKET, at + 1_800_000, "3").await);
    assert!(!tell(&log, b"ann", ShareState::Above, at + 2_700_000, "4").await);
    assert!(tell(&log, b"ann", REACHED_IN_BUCKET, at + 3_700_001, "5").await);
    assert_eq!(texts(&log).await, ["1", "5"]);
}

#[tokio::test]
async fn a_fall_forgets_what_was_told_before_it_and_nothing_after() {
    let server = RedisServer::start();
    let log = log_at(&server);
    let at = now(&log).await;
    assert!(tell(&log, b"ann", REACHED, at, "1").await);
    assert!(
        !tell(&log, b"ann", ShareState::Below, at, "2").await,
        "not before it"
    );
    assert!(!tell(&log, b"ann", ShareState::Above, at + 1, "3").await);
    assert!(!tell(&log, b"ann", ShareState::Below, at + 2, "4").await);
    assert!(tell(&log, b"ann", ShareState::Above, at + 3, "5").await);
    assert_eq!(texts(&log).await, ["1", "5"]);
    log.forget_shares_of_rule(subject(b"an")).await.unwrap();
    assert!(tell(&log, b"ann", ShareState::Above, at + 4, "6").await);
}

#[tokio::test]
async fn a_share_is_forgotten_when_the_band_is_full_again() {
    let server = RedisServer::start();
    let log = log_at(&server);
    let at = now(&log).await;
    let brief = ShareReport {
        reset_after: Micros::new(1),
        ..report(b"ann", REACHED, at, "1")
    };
    assert_eq!(log.report_shares(&[brief]).await, Ok(vec![true]));
    assert!(!tell_brief(&log, brief, "2").await);
    until_async("the key to expire", async || {
        server.cli().keys("*told*").is_empty()
    })
    .await;
    assert!(tell_brief(&log, brief, "3").await);
}

async fn tell_brief(log: &EventLog, brief: ShareReport<'_>, token: &str) -> bool {
    let again = ShareReport {
        state: ShareState::Above,
        token,
        event: token,
        ..brief
    };
    log.report_shares(&[again]).await.unwrap()[0]
}

#[tokio::test]
async fn a_report_that_is_repeated_appends_one_event() {
    let server = RedisServer::start();
    let log = log_at(&server);
    let at = now(&log).await;
    assert!(tell(&log, b"ann", REACHED, at, "1").await);
    assert!(
        tell(&log, b"ann", REACHED, at, "1").await,
        "its reply was lost"
    );
    assert!(!tell(&log, b"ann", ShareState::Above, at, "2").await);
    assert_eq!(texts(&log).await, ["1"]);
}

#[tokio::test]
async fn a_clock_that_went_back_does_not_silence_a_share() {
    let hour = Duration::from_secs(3_600);
    let server = RedisServer::builder()
        .clock_offset(Skew::Ahead(hour))
        .start();
    let log = log_at(&server);
    assert!(tell(&log, b"ann", REACHED, now(&log).await, "1").await);
    server.set_clock_offset(Skew::NONE);
    assert!(tell(&log, b"ann", REACHED, now(&log).await, "2").await);
}

#[tokio::test]
async fn a_report_from_a_clock_that_is_ahead_is_from_now() {
    let server = RedisServer::start();
    let log = log_at(&server);
    let at = now(&log).await + 3_600_000_000;
    assert!(tell(&log, b"ann", ShareState::Above, at, "1").await);
    assert!(!tell(&log, b"ann", ShareState::Above, at + 1, "2").await);
}

#[tokio::test]
async fn many_reports_are_told_in_one_call() {
    let server = RedisServer::start();
    let log = log_at(&server);
    let at = now(&log).await;
    let names: Vec<_> = (0..500).map(|number| format!("user-{number}")).collect();
    let reports: Vec<_> = { names.iter() }
        .map(|name| report(name.as_bytes(), REACHED, at, name))
        .collect();
    let told = log.report_shares(&reports).await.unwrap();
    assert_eq!(told, vec![true; 500]);
    assert_eq!(texts(&log).await, names);
}

#[tokio::test]
async fn a_cluster_tells_a_share_once() {
    let cluster = RedisCluster::start(3);
    let log = || {
        let store = patient(cluster.urls()).build().unwrap();
        store.event_log()
    };
    let (one, two) = (log(), log());
    let at = now(&one).await;
    let names: Vec<_> = (0..50).map(|number| format!("user-{number}")).collect();
    for name in &names {
        assert!(tell(&one, name.as_bytes(), REACHED, at, name).await);
        assert!(!tell(&two, name.as_bytes(), ShareState::Above, at + 1, "again").await);
    }
    assert_eq!(texts(&two).await, names);
    one.forget_shares_of_rule(subject(b"user-")).await.unwrap();
    assert!(tell(&two, b"user-7", ShareState::Above, at + 2, "7").await);
}

#[tokio::test]
async fn a_queue_has_one_sender_whose_position_the_next_one_takes_over() {
    let server = RedisServer::start();
    let (one, two) = (log_at(&server), log_at(&server));
    let sent = one.append(&["a".into()]).await.unwrap()[0];
    let claim = async |log: &EventLog, holder| {
        let claimed = log
            .claim_queue("hook", holder, SECOND, Duration::ZERO)
            .await;
        claimed.unwrap()
    };
    let begin = claim(&one, "one").await.unwrap();
    assert!(
        begin
            >= EventId {
                ms: sent.ms,
                number: 0
            },
        "what was before is not sent"
    );
    assert_eq!(claim(&two, "two").await, None);
    let next = one.append(&["b".into()]).await.unwrap()[0];
    assert!(
        one.advance_queue("hook", "one", SECOND, next)
            .await
            .unwrap()
    );
    assert!(
        !two.advance_queue("hook", "two", SECOND, sent)
            .await
            .unwrap()
    );
    assert_eq!(claim(&one, "one").await, Some(next));
    two.release_queue("hook", "two").await.unwrap();
    assert_eq!(claim(&two, "two").await, None, "it is not its own");
    one.release_queue("hook", "one").await.unwrap();
    assert_eq!(claim(&two, "two").await, Some(next));
    // One that dies is replaced when its claim ends.
    until_async("the claim to end", async || {
        claim(&one, "one").await == Some(next)
    })
    .await;
    assert!(
        !two.advance_queue("hook", "two", SECOND, next)
            .await
            .unwrap()
    );
    let age = Duration::from_secs(3_600);
    let other = one.claim_queue("other", "one", SECOND, age).await.unwrap();
    assert!(other.unwrap() < sent, "it begins an hour ago");
}

#[tokio::test]
async fn the_log_is_bounded() {
    let server = RedisServer::start();
    let log = log_at(&server);
    let batch: Vec<_> = (0..10_000).map(|number| number.to_string()).collect();
    for _ in 0..11 {
        log.append(&batch).await.unwrap();
    }
    let keys = server.cli().keys("*:log");
    let len = server.cli().command(&["XLEN", &keys[0]]).int();
    assert!((100_000..101_000).contains(&len), "{len}");
}
