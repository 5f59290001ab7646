//! Rules from an HTTP server.

use std::sync::{Arc, Mutex, MutexGuard};

use fluxgate_testkit::{Certificates, RawConnection, RawUpstream, wait_until};

use super::{Service, limit};
use crate::support::Dir;

const NONE_YET: &str = "there are no rules yet";
const LISTEN: &str = "listen: { api: \"127.0.0.1:0\" }\n";
const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// A rule file with one rule of this capacity.
pub(crate) fn rules(capacity: u64) -> String {
    format!(
        "rule_sets:\n  api:\n    rules:\n      - {{ id: r, scope: per_user, algorithm: fixed_window, bands: [ {{ capacity: {capacity}, window: 30d }} ] }}\n"
    )
}

/// What a [`RuleServer`] answers.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A body with an ETag.
    Tagged(String, &'static str),
    /// A body without an ETag.
    Plain(String),
    /// A whole response.
    Raw(Vec<u8>),
    /// A head, and a body that never ends.
    Endless,
    /// Nothing.
    Silence,
}

/// A server with a rule file.
pub(crate) struct RuleServer {
    pub(crate) upstream: RawUpstream,
    content: Arc<Mutex<Content>>,
}

impl RuleServer {
    pub(crate) fn start(content: Content) -> Self {
        let content = Arc::new(Mutex::new(content));
        let served = Arc::clone(&content);
        let upstream = RawUpstream::start(move |connection| serve(connection, &served));
        Self { upstream, content }
    }

    pub(crate) fn set(&self, content: Content) {
        *self.lock() = content;
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap()
    }

    /// Returns a config with these further fields of `http`.
    pub(crate) fn config(&self, more: &str) -> String {
        let address = self.upstream.address();
        format!(
            "rules_from: {{ http: {{ url: \"http://{address}/rules.yaml?env=test\"{more} }}, poll: 50ms }}\n"
        )
    }
}

fn serve(connection: &mut RawConnection, content: &Mutex<Content>) {
    let Some(request) = connection.read_request() else {
        return;
    };
    let content = content.lock().unwrap().clone();
    let ok = |body: &str, more: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\n{more}Content-Length: {length}\r\n\r\n{body}").into_bytes()
    };
    let answer = match content {
        Content::Tagged(body, etag) => {
            let known = request.values("if-none-match") == [etag];
            if known {
                // Some servers leave the tag out.
                b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec()
            } else {
                ok(&body, &format!("ETag: {etag}\r\n"))
            }
        }
        Content::Plain(body) => ok(&body, ""),
        Content::Raw(answer) => answer,
        Content::Endless => {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let chunk = format!("10000\r\n#{}\n\r\n", "x".repeat(0xFFFE));
            // More than 16 MiB; the service hangs up before the end.
            for _ in 0..300 {
                connection.send(&chunk);
            }
            return;
        }
        Content::Silence => return connection.hold(),
    };
    connection.send(answer);
    connection.end();
}

/// Returns a directory with a config, and the arguments with which a service runs there.
fn prepare(server: &RuleServer, fields: &str, more: &str) -> (Dir, [&'static str; 3]) {
    let dir = Dir::new();
    let config = [LISTEN, &server.config(fields), more].concat();
    dir.write("fluxgate.yaml", config);
    (dir, ["run", "--config", "fluxgate.yaml"])
}

/// Ends a service and returns its directory.
fn stop(service: Service) -> Dir {
    service.program.kill();
    service.dir
}

#[track_caller]
fn wait_for_limit(service: &Service, expected: u64) {
    let mut http = service.http();
    wait_until("the new limit", || {
        limit(&mut http, "api") == Some(expected)
    });
}

#[test]
fn changes_are_seen_with_and_without_etags() {
    let server = RuleServer::start(Content::Tagged(rules(10), "\"one\""));
    let service = Service::start(&[], &server.config(""));
    wait_for_limit(&service, 10);
    // Asked again, the server says that nothing has changed.
    wait_until("conditional requests", || {
        let requests = server.upstream.requests();
        let mut tags = requests.iter().map(|it| it.values("if-none-match"));
        tags.any(|tags| tags == ["\"one\""])
    });
    let requests = server.upstream.requests();
    assert_eq!(requests[0].target, "/rules.yaml?env=test");
    server.set(Content::Tagged(rules(20), "\"two\""));
    wait_for_limit(&service, 20);
    server.set(Content::Plain(rules(30)));
    wait_for_limit(&service, 30);
    assert_eq!(service.refusals().len(), 0);
    // The tag of refused rules is sent too, and rules that were active before become so again.
    server.set(Content::Tagged(rules(40), "\"four\""));
    wait_for_limit(&service, 40);
    server.set(Content::Tagged(rules(0), "\"bad\""));
    wait_until("the tag of the refused rules", || {
        let requests = server.upstream.requests();
        requests.last().unwrap().values("if-none-match") == ["\"bad\""]
    });
    server.set(Content::Tagged(rules(40), "\"four\""));
    service.wait_for_log("the rules are unchanged");
    assert_eq!(service.refusals().len(), 1);
}

#[test]
fn bad_content_is_refused_with_its_place_and_the_last_good_stays() {
    let server = RuleServer::start(Content::Plain(rules(10)));
    let service = Service::start(&[], &server.config(""));
    let address = server.upstream.address();
    let not_found = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    let moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nrule_sets: {}\n";
    let cases: [(Content, &str, &str); 8] = [
        (Content::Plain(rules(0)), "fault", "rules.yaml?env=test:4:"),
        (
            Content::Plain("<html><body>Sign in</body></html>".into()),
            "fault",
            "rules.yaml?env=test:1:1",
        ),
        (
            Content::Plain(String::new()),
            "fault",
            "rules.yaml?env=test:1:1",
        ),
        (Content::Raw(not_found.to_vec()), "why", "404"),
        (Content::Raw(moved.to_vec()), "why", "302"),
        (Content::Raw(cut.to_vec()), "why", "cannot be read"),
        (
            Content::Raw(b"SSH-2.0-x\r\n".to_vec()),
            "why",
            "connection failed",
        ),
        (Content::Endless, "why", "more than"),
    ];
    let mut refusals = 0;
    for (index, (content, field, expected)) in cases.into_iter().enumerate() {
        server.set(content);
        refusals += 1;
        let line = service.wait_for_refusals(refusals).pop().unwrap();
        let said = line[field].as_str().unwrap_or_default();
        assert!(said.contains(expected), "{index}: {line}");
        assert!(said.contains(&address.to_string()), "{index}: {line}");
        assert_eq!(limit(&mut service.http(), "api"), Some(10), "{index}");
        // A good answer in between: the next fault is a new one.
        server.set(Content::Plain(rules(10)));
        service.wait_for_logs("the rules are unchanged", index + 1);
    }
}

#[test]
fn a_service_starts_without_its_server() {
    let server = RuleServer::start(Content::Silence);
    let (dir, arguments) = prepare(&server, "", "");
    let service = Service::open_in(dir, &arguments, 1);
    let mut http = service.http();
    assert_eq!(http.get("/livez").status, 200);
    assert_eq!(http.get("/readyz").status, 503);
    let check = http.post("/v1/check", r#"{"rule_set":"api","user":"a"}"#);
    assert_eq!(check.status, 503, "{check:?}");
    // The next attempt gets an error, and the one after it the rules.
    server.set(Content::Raw(UNAVAILABLE.to_vec()));
    server.upstream.close_connections();
    let line = service.wait_for_log(NONE_YET);
    assert!(
        line["why"].as_str().unwrap().contains("rules.yaml"),
        "{line}"
    );
    server.set(Content::Plain(rules(10)));
    service.wait_until_ready();
    wait_for_limit(&service, 10);
    assert_eq!(service.logs(NONE_YET).len(), 1);
}

/// Options of the config apply to the cached rules too, and are not in the cache.
#[test]
fn the_cache_is_enough_for_a_start() {
    let server = RuleServer::start(Content::Plain(rules(10)));
    let options = "on_missing_rule_set: deny\nkeys: { ipv6_prefix: 56 }\n";
    let (dir, arguments) = prepare(&server, ", cache_file: cache.yaml", options);
    let service = Service::run_in(dir, &arguments, 1);
    wait_until("the cache", || service.dir.path("cache.yaml").exists());
    let mut dir = stop(service);
    for silent in [false, true] {
        server.set(if silent {
            Content::Silence
        } else {
            Content::Raw(UNAVAILABLE.to_vec())
        });
        let service = Service::run_in(dir, &arguments, 1);
        assert_eq!(limit(&mut service.http(), "api"), Some(10));
        service.wait_for_log("the last good rules are active");
        let metrics = service.http().get("/metrics").body;
        let line = "fluxgate_config_last_reload_successful 0";
        assert!(metrics.lines().any(|it| it == line), "{metrics}");
        server.set(Content::Plain(rules(if silent { 20 } else { 10 })));
        server.upstream.close_connections();
        service.wait_for_logs("rules are active", 2);
        dir = stop(service);
    }
    // What cannot be read is not used.
    dir.write("cache.yaml", "rule_sets: [");
    server.set(Content::Raw(UNAVAILABLE.to_vec()));
    let service = Service::open_in(dir, &arguments, 1);
    let line = service.wait_for_log("the cache of the rules is unusable");
    assert!(
        line["why"].as_str().unwrap().starts_with("cache.yaml:1:"),
        "{line}"
    );
    assert_eq!(service.http().get("/readyz").status, 503);
    server.set(Content::Plain(rules(30)));
    service.wait_until_ready();
    wait_for_limit(&service, 30);
    wait_until("the cache is repaired", || {
        service.dir.read("cache.yaml").contains("capacity: 30")
    });
}

#[test]
fn a_replaced_token_is_sent_at_the_next_poll() {
    let server = RuleServer::start(Content::Plain(rules(10)));
    let (dir, arguments) = prepare(&server, ", token_file: token", "");
    dir.write("token", "first\n");
    let service = Service::run_in(dir, &arguments, 1);
    let sends = |token: &str| {
        let expected = format!("Bearer {token}");
        let requests = server.upstream.requests();
        requests
            .last()
            .is_some_and(|request| request.values("authorization") == [&*expected])
    };
    assert!(sends("first"));
    service.dir.write("token", "second");
    wait_until("the second token", || sends("second"));
    service.dir.write("token", "\n");
    let line = service.wait_for_refusals(1).remove(0);
    assert_eq!(line["why"], "token: expected a token, found an empty file");
    assert_eq!(limit(&mut service.http(), "api"), Some(10));
    service.dir.write("token", "third");
    wait_until("the third token", || sends("third"));
    service.wait_for_log("the rules are unchanged");
    for secret in ["first", "second", "third"] {
        let lines = service.program.lines();
        assert!(lines.iter().all(|line| !line.contains(secret)), "{lines:?}");
    }
}

/// The server behind TLS is a gateway before the rule server.
#[test]
fn the_server_is_trusted_by_its_authority() {
    let server = RuleServer::start(Content::Tagged(rules(10), "\"one\""));
    let certificates = Certificates::generate();
    let dir = Dir::new();
    let (certificate, key) = (certificates.server_cert(), certificates.server_key());
    let gateway = format!(
        "listen: {{ gateway: \"127.0.0.1:0\" }}\ngateway:\n  tls: {{ cert: {certificate:?}, key: {key:?} }}\n  routes: [ {{ id: r, upstreams: [\"http://{}\"] }} ]\n",
        server.upstream.address()
    );
    dir.write("fluxgate.yaml", gateway);
    let gateway = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let url = format!(
        "https://localhost:{}/rules.yaml",
        gateway.address("gateway").port()
    );
    let config = |ca: &Certificates| {
        let ca = ca.ca();
        format!("rules_from: {{ http: {{ url: \"{url}\", ca: {ca:?} }}, poll: 50ms }}\n")
    };
    let service = Service::start(&[], &config(&certificates));
    wait_for_limit(&service, 10);
    let other = Certificates::generate();
    let dir = Dir::new();
    dir.write("fluxgate.yaml", LISTEN.to_owned() + &config(&other));
    let untrusting = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let line = untrusting.wait_for_log(NONE_YET);
    let why = line["why"].as_str().unwrap();
    assert!(
        why.starts_with(&url) && why.contains("certificate"),
        "{line}"
    );
    untrusting.dir.write(
        "fluxgate.yaml",
        LISTEN.to_owned() + "rules_from: { http: { url: \"https://localhost/\", ca: none.pem } }\n",
    );
    let run = untrusting.dir.run(&["run", "--config", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(66), "{run:?}");
    assert!(
        run.stderr.contains("`rules_from.http.ca`: none.pem"),
        "{run:?}"
    );
}

#[test]
fn the_admin_api_says_where_to_write() {
    let server = RuleServer::start(Content::Plain(rules(10)));
    let service = Service::start(&[], &server.config(""));
    let body = r#"{"rules":[]}"#;
    let headers = [("Content-Type", "application/json")];
    let mut http = service.http();
    let answer = http.request("PUT", "/v1/rule_sets/api", &headers, body);
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(
        answer.body.contains(&server.upstream.address().to_string()),
        "{answer:?}"
    );
}
