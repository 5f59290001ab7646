//! A service that is down, slow, or sends invalid responses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_testkit::{FaultProxy, Mode, ReplyFault, WAIT_TIMEOUT};
use serde_json::Value;

use super::{ALLOWED, App, RULES, answering, get, handler, ok, until};
use crate::service::Service;

#[tokio::test]
async fn a_service_that_is_down_is_decided_by_on_error() {
    let gone = fluxgate_testkit::ports::free();
    let unreachable = || handler(gone.addr());
    let open = App::new(unreachable());
    assert_eq!(
        [open.get("/api/x").await, open.get("/api/x").await],
        [200, 200]
    );
    assert_eq!(open.calls.load(Ordering::Relaxed), 2);
    let closed = App::new(unreachable().deny_on_error());
    let (status, headers, body) = closed.send(get("/api/x")).await;
    assert_eq!(
        (status, &headers["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert!(body.contains("\"retry_after_ms\":1000"), "{body}");
    assert!(body.contains("\"outcome\":\"failed_closed\""), "{body}");
    assert_eq!(closed.calls.load(Ordering::Relaxed), 0);
    let limiter = Limiter::new(RuleSets::from_yaml(RULES).unwrap(), MemoryStore::default());
    let local = App::new(unreachable().local_on_error(limiter));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(local.get("/api/x").await);
    }
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(local.calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_layer_waits_no_longer_than_the_deadline() {
    let service = Service::start(&[], RULES);
    let proxy = FaultProxy::start(service.address("api"));
    let deadline = Duration::from_millis(200);
    let app = App::new(handler(proxy.addr()).deadline(deadline).deny_on_error());
    until_ok(&app).await;
    for mode in [Mode::Delay(Duration::from_secs(60)), Mode::BlackHole] {
        proxy.set_mode(mode);
        let start = tokio::time::Instant::now();
        assert_eq!(app.get("/none").await, 503, "{mode:?}");
        let took = start.elapsed();
        assert!(
            took >= deadline && took < Duration::from_secs(30),
            "{took:?}"
        );
        proxy.heal();
        // It recovers by itself with a new connection.
        until_ok(&app).await;
    }
}

/// Sends requests until one is answered: the first connection may take long.
async fn until_ok(app: &App) {
    let end = tokio::time::Instant::now() + WAIT_TIMEOUT;
    while app.get("/none").await != 200 {
        assert!(
            tokio::time::Instant::now() < end,
            "the service does not answer"
        );
    }
}

#[tokio::test]
async fn connections_are_reused_and_replaced_if_closed() {
    let service = Service::start(&[], RULES);
    let proxy = FaultProxy::start(service.address("api"));
    let app = App::new(handler(proxy.addr()).deny_on_error());
    for _ in 0..20 {
        assert_eq!(app.get("/none").await, 200);
    }
    assert_eq!(proxy.accepted(), 1);
    for expected in 2..5 {
        proxy.close_connections();
        until("the connection to be gone", || proxy.open() == 0).await;
        // Lets the runtime of the client notice: it looks at its sockets when it is idle.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(app.get("/none").await, 200, "{expected}");
        assert_eq!(proxy.accepted(), expected);
    }
}

#[tokio::test]
async fn a_request_is_not_repeated_if_its_response_is_lost() {
    let service = Service::start(&[], RULES);
    let proxy = FaultProxy::start(service.address("api"));
    let app = App::new(handler(proxy.addr()).deny_on_error());
    assert_eq!(app.get("/none").await, 200);
    for fault in [ReplyFault::SwallowAndClose, ReplyFault::Cut(20)] {
        let before = remaining(&service, "per-user&identity=u");
        proxy.fault_next_reply(fault.clone());
        assert_eq!(app.get("/api/x").await, 503, "{fault:?}");
        assert_eq!(proxy.faults_pending(), 0);
        assert_eq!(
            remaining(&service, "per-user&identity=u"),
            before - 1,
            "{fault:?}"
        );
    }
}

fn remaining(service: &Service, rule: &str) -> u64 {
    let path = format!("/v1/state?rule_set=api&rule={rule}");
    let state: Value = serde_json::from_str(&service.http().get(&path).body).unwrap();
    state["bands"][0]["remaining"].as_u64().unwrap()
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    let invalid = [
        String::new(),
        "\0\0\0".into(),
        "HTTP/1.1 200 OK\r\n\r\n".into(),
        "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".into(),
        "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".into(),
        ok(""),
        ok("{}"),
        ok("null"),
        ok("true"),
        ok(&ALLOWED[..ALLOWED.len() - 1]),
        ok(&ALLOWED.replace("\"delay_ms\":0,", "")),
        ok(&ALLOWED.replace("\"rule\":null,", "")),
        ok(&ALLOWED.replace("no_rule", "perhaps")),
        ok(&ALLOWED.replace("true", "false")),
        ok(&ALLOWED.replace("\"delay_ms\":0", "\"delay_ms\":-1")),
        ok(&ALLOWED.replace("\"delay_ms\":0", "\"delay_ms\":18446744073709551615")),
        ok(&ALLOWED.replace("\"violated\":[]", "\"violated\":[\"a\\\"b/c\"]")),
        ok(&ALLOWED.replace("\"violated\":[]", "\"violated\":[7]")),
        ok(&format!("{}{ALLOWED}", " ".repeat(70_000))),
    ];
    for answer in invalid {
        let shown = answer.clone();
        let (address, received) = answering(answer);
        let app = App::new(handler(address).deny_on_error());
        assert_eq!(app.get("/api/x").await, 503, "{shown:.200}");
        assert_eq!(app.calls.load(Ordering::Relaxed), 0);
        received.join().unwrap();
    }
    let (address, received) = answering(ok(ALLOWED));
    assert_eq!(
        App::new(handler(address).deny_on_error())
            .get("/api/x")
            .await,
        200
    );
    received.join().unwrap();
}

#[tokio::test]
async fn a_request_too_large_for_the_service_is_denied() {
    let service = Service::start(&[], RULES);
    let app = App::new(handler(service.address("api")));
    let long = format!("/api/{}", "x".repeat(65_500));
    assert_eq!(app.get(&long).await, 429);
    // So is a request with too many headers.
    let mut request = get("/api/x");
    for index in 0..40 {
        let name = http::HeaderName::try_from(format!("x-{index}")).unwrap();
        request
            .headers_mut()
            .insert(name, "y".repeat(4_000).parse().unwrap());
    }
    let (status, headers, _) = app.send(request).await;
    assert_eq!(status, 429);
    assert!(
        !headers.contains_key("x-ratelimit-remaining"),
        "the service was not called"
    );
    assert_eq!(app.calls.load(Ordering::Relaxed), 0);
}

/// The service answers that its own store is down.
#[tokio::test]
async fn a_service_that_fails_closed_makes_the_layer_answer_503() {
    let gone = fluxgate_testkit::ports::free();
    let rules = RULES.replace("  api:\n", "  api:\n    on_error: deny\n");
    let store = format!("store: {{ redis: {{ url: 'redis://{}' }} }}\n", gone.addr());
    let dir = crate::support::Dir::new();
    dir.write(
        "fluxgate.yaml",
        format!("listen: {{ api: '127.0.0.1:0' }}\n{store}{rules}"),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let app = App::new(handler(service.address("api")));
    let (status, headers, body) = app.send(get("/api/x")).await;
    assert_eq!(
        (status, &headers["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert!(!headers.contains_key("ratelimit") && !headers.contains_key("x-ratelimit-remaining"));
    assert!(body.contains("#temporary-reduced-capacity\""), "{body}");
    assert!(body.contains("\"outcome\":\"failed_closed\""), "{body}");
    assert_eq!(app.calls.load(Ordering::Relaxed), 0);
}
