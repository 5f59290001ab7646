//! A running Envoy that asks the service to authorize its requests.

use std::fmt::Write as _;

use fluxgate_testkit::readings::{READINGS, SentRequest, Treatment};
use fluxgate_testkit::{Answer, Http, ports, wait_until};
use serde_json::Value;

use super::readings;
use crate::docs::{Block, only};
use crate::service::Service;
use crate::service::grpc::envoy_program::{EnvoyProgram, replace, upstream_listener};

/// A listener of Envoy.
#[derive(Clone, Copy)]
struct Front {
    failure_mode_allow: bool,
    /// Whether headers are sent line by line.
    encode_raw_headers: bool,
}

const DOCUMENTED: Front = Front {
    failure_mode_allow: false,
    encode_raw_headers: true,
};
const FAIL_OPEN: Front = Front {
    failure_mode_allow: true,
    ..DOCUMENTED
};
const JOINED: Front = Front {
    encode_raw_headers: false,
    ..DOCUMENTED
};

/// A running Envoy with the config of `docs/grpc.md`.
struct Envoy {
    _program: EnvoyProgram,
    fronts: Vec<ports::Port>,
}

impl Envoy {
    fn start(service: &Service, fronts: &[Front]) -> Self {
        Self::start_with(service, fronts, |_, listener| listener)
    }

    /// Starts it with listeners that are changed by `customize`, which gets their index.
    fn start_with(
        service: &Service,
        fronts: &[Front],
        customize: impl Fn(usize, String) -> String,
    ) -> Self {
        let upstream = ports::free();
        let ports: Vec<_> = fronts.iter().map(|_| ports::free()).collect();
        let config = only("yaml envoy-authz");
        let (head, rest) = config.split_once("  - address").unwrap();
        let (listener, clusters) = rest.split_once("  clusters:\n").unwrap();
        let listener = format!("  - address{listener}");
        let listeners = fronts.iter().zip(&ports).enumerate();
        let listeners = listeners.map(|(index, (front, port))| {
            customize(index, front.listener(&listener, port.number()))
        });
        let listeners: String = listeners.collect();
        let upstream_listener = upstream_listener(upstream.number());
        let clusters = replace(clusters, "9000", upstream.number());
        let clusters = replace(&clusters, "8082", service.address("grpc").port());
        let config = format!("{head}{listeners}{upstream_listener}  clusters:\n{clusters}");
        let program = EnvoyProgram::start(&config);
        for port in &ports {
            program.wait_for(|| {
                let answer = Http::new(port.addr()).try_request("GET", "/health", &[], "");
                answer.is_ok_and(|answer| answer.status == 200)
            });
        }
        Self {
            _program: program,
            fronts: ports,
        }
    }

    fn send(&self, front: usize, path: &str, headers: &[(&str, &str)]) -> Answer {
        Http::new(self.fronts[front].addr()).request("GET", path, headers, "")
    }

    fn get(&self, front: usize, path: &str, user: &str) -> Answer {
        self.send(front, path, &[("X-User-Id", user)])
    }
}

impl Front {
    /// Returns the documented listener with the settings of this front.
    fn listener(self, documented: &str, port: u16) -> String {
        let listener = replace(documented, "8000", port);
        let allow = format!("failure_mode_allow: {}", self.failure_mode_allow);
        let listener = replace(&listener, "failure_mode_allow: false", allow);
        let raw = format!("encode_raw_headers: {}", self.encode_raw_headers);
        let listener = replace(&listener, "encode_raw_headers: true", raw);
        // The test machine may be busy.
        replace(&listener, "timeout: 0.1s", "timeout: 30s")
    }
}

/// Starts the service with the documented configuration, and more rules.
fn documented_service(rules: &str) -> Service {
    let mut blocks = Block::all_of("docs/grpc.md").into_iter();
    let config = blocks.find(|block| block.kind == "yaml" && block.text.contains("filters:"));
    let config = config.expect("the filter is documented").text;
    let config = replace(&config, "listen: { grpc: \"127.0.0.1:8082\" }\n", "");
    Service::start(&["grpc"], &(config + rules))
}

const MORE_RULES: &str = r#"
      - { id: closed, action: deny, status: 451, match: { path: ["/closed"] } }
      - { id: slow, match: { path: ["/slow"] }, scope: global, on_exceed: wait, bands: [ { capacity: 1, window: 500ms } ] }
"#;

#[test]
fn envoy_allows_and_refuses_as_the_gateway() {
    let service = documented_service(MORE_RULES);
    let envoy = Envoy::start(&service, &[DOCUMENTED]);
    let answers: Vec<_> = (0..5).map(|_| envoy.get(0, "/x", "ann")).collect();
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(answers[0].body, "hello");
    for (answer, remaining) in answers.iter().zip(["2", "1", "0", "0", "0"]) {
        assert_eq!(answer.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining));
        let policy = answer.header("ratelimit-policy");
        assert_eq!(policy, Some(r#""per-user/burst";q=3;w=3600"#));
        assert_eq!(answer.header("retry-after").is_some(), answer.status == 429);
    }
    let refused = &answers[3];
    let kind = refused.header("content-type");
    assert_eq!(kind, Some("application/problem+json"));
    let body: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(body["violated-policies"][0], "per-user/burst");
    // Spellings of the path, another user, an exception and a rule that forbids.
    assert_eq!(envoy.get(0, "//x", "ann").status, 429);
    assert_eq!(envoy.get(0, "/x", "bob").status, 200);
    let health = envoy.get(0, "/health", "ann");
    assert_eq!((health.status, health.header("ratelimit")), (200, None));
    let closed = envoy.get(0, "/closed", "bob");
    assert_eq!(closed.status, 451);
    assert!(
        closed.body.contains("a rule forbids this request"),
        "{closed:?}"
    );
}

#[test]
fn envoy_refuses_grpc_requests_in_the_terms_of_grpc() {
    let service = documented_service(MORE_RULES);
    let envoy = Envoy::start(&service, &[DOCUMENTED]);
    let send = |path: &str| {
        let headers = [
            ("X-User-Id", "ann"),
            ("Content-Type", "application/grpc+proto"),
        ];
        let mut http = Http::new(envoy.fronts[0].addr());
        http.request("POST", path, &headers, "")
    };
    let closed = send("/closed");
    assert_eq!(
        (closed.status, closed.header("grpc-status")),
        (200, Some("7"))
    );
    for _ in 0..3 {
        send("/a.B/C");
    }
    let refused = send("/a.B/C");
    assert_eq!((refused.status, &*refused.body), (200, ""));
    assert_eq!(refused.header("grpc-status"), Some("8"));
    let message = refused.header("grpc-message").unwrap();
    assert!(message.starts_with("the quota is used up"), "{message}");
    let pushback: u64 = refused
        .header("grpc-retry-pushback-ms")
        .unwrap()
        .parse()
        .unwrap();
    assert!(pushback <= 1_200_000, "{pushback}");
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    let kind = refused.header("content-type").unwrap();
    assert!(kind.starts_with("application/grpc"), "{kind}");
}

/// Envoy forwards both lines, so FluxGate must know that there are two.
#[test]
fn repeated_identities_are_refused_behind_envoy() {
    let service = documented_service("");
    let envoy = Envoy::start(&service, &[DOCUMENTED, JOINED]);
    for front in 0..2 {
        let twice = [("X-User-Id", "ann"), ("X-User-Id", "eve")];
        assert_eq!(envoy.send(front, "/x", &twice).status, 400);
        let alike = [("X-User-Id", "ann"), ("X_User_Id", "eve")];
        assert_eq!(envoy.send(front, "/x", &alike).status, 400);
        let user = [("X-User-Id", if front == 0 { "fay" } else { "gus" })];
        assert_eq!(envoy.send(front, "/x", &user).status, 200);
    }
    // Clients do not choose the address by which they count.
    let statuses: Vec<_> = (0..4)
        .map(|number| {
            let forged = format!("198.51.100.{number}");
            envoy.send(0, "/x", &[("X-Forwarded-For", &forged)]).status
        })
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[test]
fn a_waiting_request_waits_in_fluxgate() {
    let service = documented_service(MORE_RULES);
    let envoy = Envoy::start(&service, &[DOCUMENTED]);
    for user in ["ann", "bob", "eve"] {
        assert_eq!(envoy.get(0, "/slow", user).status, 200);
    }
    let waited = || {
        let metrics = service.http().get("/metrics").body;
        metrics.contains("\nfluxgate_waiting 0\n")
    };
    wait_until("no request waits", waited);
}

#[test]
fn envoy_follows_failure_mode_allow_without_the_service() {
    let service = documented_service("");
    let envoy = Envoy::start(&service, &[DOCUMENTED, FAIL_OPEN]);
    assert_eq!(envoy.get(0, "/x", "ann").status, 200);
    assert_eq!(envoy.get(1, "/x", "ann").status, 200);
    service.program.kill();
    for _ in 0..5 {
        assert_eq!(envoy.get(0, "/x", "ann").status, 503);
        assert_eq!(envoy.get(1, "/x", "ann").status, 200);
    }
}

/// What Envoy changes or refuses by itself opens no way around a limit.
#[test]
fn envoy_forwards_no_request_that_frameworks_read_as_one_that_is_limited() {
    let main = "  main: { rule_set: raw-0, exclude: [\"/health\"] }\n";
    let config = readings::config();
    let service = Service::start(
        &["grpc"],
        &replace(&config, "filters:\n", format!("filters:\n{main}")),
    );
    let forms = ["raw", "joined"];
    let envoy = Envoy::start_with(&service, &[DOCUMENTED, JOINED], |front, mut listener| {
        let at = listener.find("            - name: all\n").unwrap();
        let host = listener[at..].to_owned();
        for number in 0..READINGS.len() {
            let name = format!("{}-{number}", forms[front]);
            let host = replace(&host, "name: all", format!("name: {name}"));
            let host = replace(&host, "[\"*\"]", format!("[\"{name}\"]"));
            let host = replace(&host, "filter: main", format!("filter: {name}"));
            write!(listener, "{host}").unwrap();
        }
        listener
    });
    for (front, form) in forms.into_iter().enumerate() {
        for (number, reading) in READINGS.iter().enumerate() {
            let send = |sent: &SentRequest| {
                let SentRequest { method, target, .. } = sent;
                let headers = sent.headers.iter();
                let headers = headers.map(|(name, value)| format!("{name}: {value}\r\n"));
                let headers: String = headers.collect();
                let mut http = Http::new(envoy.fronts[front].addr());
                let head = format!(
                    "{method} {target} HTTP/1.1\r\nHost: {form}-{number}\r\n\
                     Content-Length: 0\r\n{headers}\r\n"
                );
                http.send_raw(head.as_bytes()).unwrap();
                http.read_answer(false).unwrap().status
            };
            assert_eq!(send(&reading.plain), 200, "{form}: {reading:?}");
            let status = send(&reading.spelled);
            // Envoy may refuse what FluxGate would count.
            let is_counted = reading.treatment == Treatment::Counted && status == 429;
            assert!(is_counted || status == 400, "{form}: {status} {reading:?}");
        }
    }
}
