//! A running Envoy that limits its clients by the service.

mod late_costs;

use std::net::SocketAddr;

use fluxgate_testkit::{Answer, Http, RedisServer, ports};

use super::envoy_program::{EnvoyProgram, replace, upstream_listener};
use super::store_outage;
use crate::docs::{first_of, only};
use crate::service::Service;

/// A listener of Envoy that calls the service for every request.
struct Front {
    /// The rule set.
    domain: &'static str,
    /// Whether Envoy denies requests when the service does not answer.
    failure_mode_deny: bool,
    /// Whether the cost is reported when the response has ended.
    reports_late: bool,
}

/// A running Envoy with the config of `docs/grpc.md`. The upstream is a listener of the same
/// Envoy.
struct Envoy {
    program: EnvoyProgram,
    fronts: Vec<ports::Port>,
}

impl Envoy {
    fn start(service: &Service, fronts: &[Front]) -> Self {
        let own = ports::free();
        let listener = upstream_listener(own.number());
        Self::start_before(service, fronts, own.addr(), &listener)
    }

    /// Starts it before this upstream, and with another listener.
    fn start_before(
        service: &Service,
        fronts: &[Front],
        upstream: SocketAddr,
        other_listener: &str,
    ) -> Self {
        let ports: Vec<_> = fronts.iter().map(|_| ports::free()).collect();
        let config = only("yaml envoy");
        let (head, rest) = config.split_once("  - address").unwrap();
        let (listener, clusters) = rest.split_once("  clusters:\n").unwrap();
        let listener = format!("  - address{listener}");
        let listeners = fronts.iter().zip(&ports);
        let listeners = listeners.map(|(front, port)| front.listener(&listener, port.number()));
        let listeners: String = listeners.collect();
        let clusters = replace(clusters, "9000", upstream.port());
        let clusters = replace(&clusters, "8082", service.address("grpc").port());
        let config = format!("{head}{listeners}{other_listener}  clusters:\n{clusters}");
        let envoy = EnvoyProgram::start(&config);
        let envoy = Self {
            program: envoy,
            fronts: ports,
        };
        // A request without the headers has no descriptor, so Envoy does not call the
        // service for it.
        for front in 0..fronts.len() {
            envoy.program.wait_for(|| {
                let answer = envoy.front(front).try_request("GET", "/", &[], "");
                answer.is_ok_and(|answer| answer.status == 200)
            });
        }
        envoy
    }

    fn front(&self, front: usize) -> Http {
        Http::new(self.fronts[front].addr())
    }

    fn get(&self, front: usize, user: &str) -> Answer {
        self.front(front)
            .request("GET", "/", &[("X-User", user)], "")
    }
}

impl Front {
    /// Returns the documented listener with the settings of this front.
    fn listener(&self, documented: &str, port: u16) -> String {
        let listener = replace(documented, "8000", port);
        let domain = format!("domain: {}", self.domain);
        let listener = replace(&listener, "domain: api", domain);
        let deny = format!("failure_mode_deny: {}", self.failure_mode_deny);
        let listener = replace(&listener, "failure_mode_deny: false", deny);
        // The test machine may be busy.
        let listener = replace(&listener, "timeout: 0.1s", "timeout: 30s");
        if !self.reports_late {
            return listener;
        }
        let (before_route, _) = listener.split_once("              - match:").unwrap();
        format!("{before_route}{}", only("yaml envoy-late"))
    }
}

fn documented_service() -> Service {
    service_of(&first_of("docs/grpc.md", "yaml"))
}

/// Starts the service with a documented configuration.
fn service_of(config: &str) -> Service {
    let config = replace(config, "listen: { grpc: \"127.0.0.1:8082\" }\n", "");
    Service::start(&["grpc"], &config)
}

const FAIL_OPEN: Front = Front {
    domain: "api",
    failure_mode_deny: false,
    reports_late: false,
};
const FAIL_CLOSED: Front = Front {
    domain: "api",
    failure_mode_deny: true,
    reports_late: false,
};

#[test]
fn envoy_allows_exactly_the_requests_that_the_rules_allow() {
    let service = documented_service();
    let envoy = Envoy::start(&service, &[FAIL_OPEN]);
    let answers: Vec<_> = (0..6).map(|_| envoy.get(0, "ann")).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
    assert_eq!(answers[0].body, "hello");
    for (answer, remaining) in answers.iter().zip(["2", "1", "0", "0", "0", "0"]) {
        assert_eq!(answer.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(
            answer.header("ratelimit-policy"),
            Some(r#""per-user/burst";q=3;w=3600"#)
        );
        assert_eq!(answer.header("retry-after").is_some(), answer.status == 429);
    }
    assert_eq!(
        answers[0].header("ratelimit"),
        Some(r#""per-user/burst";r=2;t=1200"#)
    );
    let retry: u64 = answers[3].header("retry-after").unwrap().parse().unwrap();
    assert!((1100..=1200).contains(&retry), "{retry}");
    assert_eq!(envoy.get(0, "bob").status, 200);
}

#[test]
fn two_descriptors_of_envoy_are_both_charged_or_neither() {
    let service = documented_service();
    let envoy = Envoy::start(&service, &[FAIL_OPEN]);
    let get = |user: &str, address: &str| {
        let headers = [
            ("X-User", user),
            ("X-Plan", "free"),
            ("X-Forwarded-For", address),
        ];
        envoy.front(0).request("GET", "/", &headers, "").status
    };
    // The four denied requests do not charge the address.
    let ann: Vec<_> = (0..7).map(|_| get("ann", "192.0.2.1")).collect();
    assert_eq!(ann, [200, 200, 200, 429, 429, 429, 429]);
    let bob: Vec<_> = (0..3).map(|_| get("bob", "192.0.2.1")).collect();
    assert_eq!(bob, [200, 200, 429]);
    // The address has no units left, another one does.
    assert_eq!(get("bob", "192.0.2.2"), 200);
    assert_eq!(get("bob", "192.0.2.2"), 429);
}

#[test]
fn envoy_follows_failure_mode_deny_without_the_service() {
    let service = documented_service();
    let envoy = Envoy::start(&service, &[FAIL_OPEN, FAIL_CLOSED]);
    assert_eq!(envoy.get(0, "ann").status, 200);
    assert_eq!(envoy.get(1, "ann").status, 200);
    service.program.kill();
    for _ in 0..5 {
        assert_eq!(envoy.get(0, "ann").status, 200);
        assert_eq!(envoy.get(1, "ann").status, 500);
    }
}

#[test]
fn on_error_decides_for_envoy_without_the_store() {
    let store = RedisServer::start();
    let service = Service::start(&["grpc"], &store_outage::config(&store));
    let fronts = ["allow", "deny", "local"].map(|domain| Front {
        domain,
        // Has no effect, because the service always decides.
        failure_mode_deny: domain == "allow",
        reports_late: false,
    });
    let envoy = Envoy::start(&service, &fronts);
    for front in 0..fronts.len() {
        assert_eq!(envoy.get(front, "ann").status, 200);
    }
    store.kill();
    for _ in 0..4 {
        assert_eq!(envoy.get(0, "ann").status, 200);
        let denied = envoy.get(1, "ann");
        assert_eq!(
            (denied.status, denied.header("retry-after")),
            (429, Some("1"))
        );
        let outcome = denied.header("x-fluxgate-outcome");
        assert_eq!(outcome, Some("failed_closed"));
    }
    let local: Vec<_> = (0..3).map(|_| envoy.get(2, "ann").status).collect();
    assert_eq!(local, [200, 200, 429]);
}

/// If the service required UTF-8, the call would fail and Envoy would allow the request.
#[test]
fn invalid_utf8_in_a_descriptor_of_envoy_is_limited_by_its_bytes() {
    let service = documented_service();
    let envoy = Envoy::start(&service, &[FAIL_OPEN]);
    let get = |user: &[u8]| {
        let mut http = envoy.front(0);
        let head = [b"GET / HTTP/1.1\r\nHost: a\r\nX-User: ", user, b"\r\n\r\n"].concat();
        http.send_raw(&head).unwrap();
        http.read_answer(false).unwrap().status
    };
    for user in [&b"ann\xff"[..], b"ann\xfe", "ann\u{fffd}".as_bytes()] {
        let statuses: Vec<_> = (0..4).map(|_| get(user)).collect();
        assert_eq!(statuses, [200, 200, 200, 429], "{}", user.escape_ascii());
    }
}
