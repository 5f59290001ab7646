//! Malformed replies.

use std::time::Duration;

use fluxgate_core::Outcome;
use fluxgate_core::store::Reason;
use fluxgate_testkit::{FaultProxy, RedisServer, ReplyFault};
use tokio::task::JoinSet;

use crate::support::{Bench, one_band, store_at};

fn replace(bytes: &[u8]) -> ReplyFault {
    ReplyFault::Replace(bytes.to_vec())
}

fn inject(bytes: &[u8]) -> ReplyFault {
    ReplyFault::Inject(bytes.to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_reply_is_a_bad_response_and_the_next_one_is_read() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let rules = one_band("deny", "fixed_window", 1_000_000, "300d");
    let bench = Bench::new(rules, store_at(proxy.url("redis")));
    bench.recovery("somebody").await;
    for fault in [
        // Not RESP.
        replace(b"garbage\r\n"),
        replace(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        replace(b"$-7\r\n"),
        replace(b"\r\n"),
        replace(b"\0\0\0\0\0\0\0\0\r\n"),
        inject(b"?"),
        // RESP, but not of the script's type.
        replace(b":1\r\n"),
        replace(b"_\r\n"),
        replace(b"$-1\r\n"),
        replace(b"+OK\r\n"),
        replace(b"#t\r\n"),
        replace(b",1.5\r\n"),
        replace(b"*0\r\n"),
        replace(b"*2\r\n:1\r\n:1\r\n"),
        replace(b"%1\r\n+a\r\n:1\r\n"),
        // A string, but not the script's.
        replace(b"$0\r\n\r\n"),
        replace(b"$1\r\n\x01\r\n"),
        replace(b"$5\r\nhello\r\n"),
        replace(b"$12\r\n\x01\0\0\0\0\0\0\0\0;;;\r\n"),
        replace(b"$10\r\n\x01\xff\xff\xff\xff\xff\xff\xff\x7fn\r\n"),
        // One reply too many: it must not be taken for the next one.
        inject(b":1\r\n"),
        inject(b"$5\r\nhello\r\n"),
    ] {
        bench.errors.clear();
        let what = format!("{fault:?}");
        proxy.fault_reply_to("EVALSHA", fault);
        let decision = bench.check("ann").await;
        assert_eq!(decision.outcome(), Outcome::FailedClosed, "{what}");
        let errors = bench.errors.all();
        assert_eq!(
            bench.errors.labels(),
            ["bad_response"],
            "{what}: {errors:?}"
        );
        bench.recovers("somebody").await;
    }
}

/// Replies after a malformed one are not trusted: the next request must not get
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_not_used_after_a_malformed_reply() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let rules = one_band("deny", "fixed_window", 10, "300d");
    let bench = Bench::new(rules, store_at(proxy.url("redis")));
    bench.recovery("somebody").await;
    for odd in [&b":1\r\n"[..], b"$5\r\nhello\r\n", b"!\r\n"] {
        let connections = proxy.accepted();
        proxy.fault_reply_to("EVALSHA", inject(odd));
        assert!(!bench.check("ann").await.allowed());
        bench.recovers("somebody").await;
        assert_eq!(proxy.accepted(), connections + 1);
    }
}

/// Many requests with malformed replies among them: none is admitted that the
/// server did not admit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_malformed_replies_admit_no_request() {
    const LIMIT: usize = 100;
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let rules = one_band("deny", "fixed_window", LIMIT as u64, "300d");
    let store = store_at(proxy.url("redis")).deadline(Duration::from_secs(2));
    let bench = Bench::new(rules, store.near_cache(false));
    bench.recovery("somebody").await;
    let odd: [&[u8]; 4] = [b":1\r\n", b"$5\r\nhello\r\n", b"_\r\n", b"x\r\n"];
    for fault in odd.iter().cycle().take(20) {
        proxy.fault_reply_to("EVALSHA", replace(fault));
    }
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let bench = bench.clone();
        tasks.spawn(async move {
            let mut admitted = 0;
            for _ in 0..20 {
                admitted += usize::from(bench.check("ann").await.allowed());
            }
            admitted
        });
    }
    let mut admitted = 0;
    while let Some(task) = tasks.join_next().await {
        admitted += task.unwrap();
    }
    assert!(admitted <= LIMIT, "{admitted}");
    assert!(bench.errors.count(Reason::BAD_RESPONSE) > 0);
}
