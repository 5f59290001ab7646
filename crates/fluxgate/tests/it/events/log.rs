//! The log of events: lists, streams, roles, and events other than thresholds.

use std::time::Duration;

use fluxgate_testkit::{RedisServer, wait_for, wait_until};
use serde_json::{Value, json};

use super::{EventStream, NOTIFIES, events, on_redis, spend, start, wait_for_thresholds};
use crate::service::Service;
use crate::support::Dir;

/// `viewer:viewer`, with the SHA-256 of `secret`.
const TOKENS: &str = "ann:admin:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";

#[test]
fn a_stream_resumes_after_the_last_event_on_any_instance() {
    let server = RedisServer::start();
    let services = [start(&server, NOTIFIES), start(&server, NOTIFIES)];
    spend(&services[0], "a", 8);
    let listed = wait_for("the event on the other instance", || {
        Some(events(&services[1])).filter(|events| !events.is_empty())
    });
    let first = listed[0]["id"].as_str().unwrap().to_owned();
    spend(&services[1], "b", 8);
    spend(&services[0], "c", 8);
    let mut stream = EventStream::open(&services[1], Some(&first));
    let mut resumed = [stream.next().unwrap(), stream.next().unwrap()];
    resumed.sort_by_key(|event| event["identity"].to_string());
    assert_eq!(resumed[0]["identity"], "user=b");
    assert_eq!(resumed[1]["identity"], "user=c");
    // From the beginning of the log.
    let mut stream = EventStream::open(&services[0], Some("0-0"));
    assert_eq!(stream.next().unwrap()["id"], *first);
}

#[test]
fn a_restarted_instance_knows_earlier_events() {
    let server = RedisServer::start();
    let service = start(&server, NOTIFIES);
    spend(&service, "ann", 10);
    let before = wait_for_thresholds(&service, 2);
    drop(service);
    let service = start(&server, NOTIFIES);
    assert_eq!(wait_for_thresholds(&service, 2), before);
    // It is not told again.
    spend(&service, "ann", 1);
    spend(&service, "eve", 8);
    assert_eq!(wait_for_thresholds(&service, 3)[2].0, "user=eve");
}

#[test]
fn a_log_that_was_lost_begins_anew() {
    let server = RedisServer::start();
    let service = start(&server, NOTIFIES);
    let mut stream = EventStream::open(&service, None);
    spend(&service, "ann", 8);
    stream.next_of("threshold");
    server.cli().command(&["FLUSHALL"]);
    wait_until("the empty log", || events(&service).is_empty());
    spend(&service, "bob", 8);
    assert_eq!(stream.next_of("threshold")["identity"], "user=bob");
}

#[test]
fn the_end_of_the_service_ends_a_stream() {
    let service = Service::start(&[], NOTIFIES);
    let mut stream = EventStream::open(&service, None);
    service.program.signal("TERM");
    assert_eq!(stream.next(), None);
}

#[test]
fn the_last_event_id_must_be_an_id() {
    let service = Service::start(&[], NOTIFIES);
    let headers = [("Accept", "text/event-stream"), ("Last-Event-ID", "seven")];
    let answer = service.http().request("GET", "/v1/events", &headers, "");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("Last-Event-ID"), "{answer:?}");
}

#[test]
fn an_outage_of_the_store_is_seen_by_clients_of_the_instance_while_it_lasts() {
    let server = RedisServer::start();
    let service = start(&server, NOTIFIES);
    let mut stream = EventStream::open(&service, None);
    server.kill();
    let failed = stream.next_of("store");
    assert_eq!(failed["state"], "failed");
    assert_eq!(failed["id"], Value::Null, "the log of the fleet is down");
    assert!(failed["reason"].is_string(), "{failed}");
    assert!(
        failed["text"]
            .as_str()
            .unwrap()
            .starts_with("the store fails for instance ")
    );
    let listed = events(&service);
    assert_eq!(listed.last().unwrap()["state"], "failed");
    server.restart();
    let back = stream.next_of("store");
    assert_eq!(back["state"], "back", "{back}");
    // In the log there are both, once, and the stream has told the first only once.
    let logged = wait_for("both in the log", || {
        let events = events(&service);
        let store = events.into_iter().filter(|event| event["kind"] == "store");
        let store: Vec<_> = store.filter(|event| !event["id"].is_null()).collect();
        (store.len() == 2).then_some(store)
    });
    assert_eq!(
        [&logged[0]["state"], &logged[1]["state"]],
        ["failed", "back"]
    );
    assert!(logged[0]["id"].as_str() < logged[1]["id"].as_str());
}

#[test]
fn ten_wrong_tokens_are_an_event() {
    let dir = Dir::new();
    dir.write("tokens", TOKENS);
    let config = format!("admin: {{ tokens_file: tokens }}\n{NOTIFIES}");
    let service = Service::start_in(dir, &[], &config);
    let get = |token: &str| {
        let token = format!("Bearer {token}");
        let headers = [("Authorization", token.as_str())];
        service.http().request("GET", "/v1/events", &headers, "")
    };
    assert_eq!(service.http().get("/v1/events").status, 401);
    let answer = get("secret");
    assert_eq!((answer.status, &*answer.body), (200, "{\"events\":[]}"));
    for _ in 0..10 {
        assert_eq!(get("wrong").status, 401);
    }
    assert_eq!(get("secret").status, 429, "the address is blocked");
    // Another address of this machine.
    let seen = wait_for("the event", || {
        let address = service.address("api");
        let from = std::net::SocketAddr::from(([127, 0, 0, 2], 0));
        let socket = socket_from(from, address)?;
        let body = get_over(socket, "secret")?;
        let events: Value = serde_json::from_str(&body).ok()?;
        events["events"].as_array()?.first().cloned()
    });
    assert_eq!(
        (seen["kind"].as_str(), seen["address"].as_str()),
        (Some("login"), Some("127.0.0.1"))
    );
}

fn socket_from(
    from: std::net::SocketAddr,
    to: std::net::SocketAddr,
) -> Option<std::net::TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().ok()?;
        socket.bind(from).ok()?;
        let stream = socket.connect(to).await.ok()?;
        let stream = stream.into_std().ok()?;
        stream.set_nonblocking(false).ok()?;
        Some(stream)
    })
}

fn get_over(mut stream: std::net::TcpStream, token: &str) -> Option<String> {
    use std::io::{Read, Write};
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .ok()?;
    let head = format!(
        "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

#[test]
fn a_changed_file_is_one_event_of_the_fleet() {
    let server = RedisServer::start();
    let services = [start(&server, NOTIFIES), start(&server, NOTIFIES)];
    let changed = NOTIFIES.replace("capacity: 10", "capacity: 20");
    for service in &services {
        let listen = "listen: { api: \"127.0.0.1:0\" }\n";
        let config = on_redis(&server, &changed);
        service
            .dir
            .write("fluxgate.yaml", format!("{listen}{config}"));
    }
    for service in &services {
        service.wait_for_log("rules changed");
    }
    spend(&services[0], "eve", 16);
    wait_for_thresholds(&services[0], 1);
    let all = events(&services[0]);
    let rules: Vec<_> = all
        .iter()
        .filter(|event| event["kind"] == "rules")
        .collect();
    assert_eq!(rules.len(), 1, "{rules:?}");
    assert_eq!(rules[0]["action"], "applied");
    assert_eq!(
        rules[0]["text"],
        "rule set api was changed: api/per-user changed (bands)"
    );
    // A fault is told with its place.
    let broken = changed.replace("scope: per_user", "scope: nobody");
    let config = on_redis(&server, &broken);
    for service in &services {
        service.dir.write("fluxgate.yaml", &config);
    }
    let refused = wait_for("the refusal", || {
        let all = events(&services[1]);
        all.into_iter().find(|event| event["action"] == "refused")
    });
    assert!(
        refused["text"].as_str().unwrap().contains("fluxgate.yaml:"),
        "{refused}"
    );
}

#[test]
fn a_change_through_the_api_names_who_made_it() {
    let server = RedisServer::start();
    let config = "rules_from: { redis: {} }\n";
    let services = [start(&server, config), start(&server, config)];
    let put = |capacity: u64| {
        let band = json!({ "capacity": capacity, "window": "1h" });
        let rule = json!({ "id": "r", "scope": "per_user", "bands": [band] });
        let body = json!({ "rules": [rule] }).to_string();
        let headers = [("Content-Type", "application/json")];
        let answer = services[0]
            .http()
            .request("PUT", "/v1/rule_sets/api", &headers, &body);
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    };
    for capacity in [1, 2, 2, 1] {
        put(capacity);
    }
    let all = wait_for("three changes", || {
        Some(events(&services[1])).filter(|events| events.len() >= 3)
    });
    let changes: Vec<_> = { all.iter() }
        .map(|it| (it["action"].as_str().unwrap(), it["who"].as_str().unwrap()))
        .collect();
    let expected = [
        ("applied", "loopback"),
        ("applied", "loopback"),
        ("rolled_back", "loopback"),
    ];
    assert_eq!(changes, expected);
    assert_eq!(
        all[2]["text"],
        "rule set api was rolled back by loopback: api/r changed (bands)"
    );
}

/// Returns the events about rules, as action, rule set, who, and text.
fn about_rules(service: &Service) -> Vec<[String; 4]> {
    let all = events(service).into_iter();
    let about_rules = all.filter(|event| event["kind"] == "rules");
    about_rules
        .map(|event| {
            ["action", "rule_set", "who", "text"].map(|field| {
                let text = event[field].as_str();
                text.unwrap_or("null").to_owned()
            })
        })
        .collect()
}

#[test]
fn a_write_that_is_refused_is_an_event_with_who_and_why() {
    let server = RedisServer::start();
    let config = "rules_from: { redis: {} }\n";
    let services = [start(&server, config), start(&server, config)];
    let call = |method: &str, path: &str, condition: Option<&str>, body: &str| {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(condition.map(|etag| ("If-Match", etag)));
        let path = format!("/v1/rule_sets/{path}");
        services[0].http().request(method, &path, &headers, body)
    };
    let rule = |scope: &str| {
        let band = json!({ "capacity": 1, "window": "1h" });
        json!({ "id": "r", "scope": scope, "bands": [band] })
    };
    let set = |scope: &str| json!({ "rules": [rule(scope)] }).to_string();
    assert_eq!(call("PUT", "api", None, &set("per_user")).status, 201);
    let stale = Some("\"stale\"");
    for (method, path, condition, body, status) in [
        ("PUT", "api", None, set("nobody"), 400),
        ("PUT", "api", None, "{".into(), 400),
        ("PUT", "api", stale, set("per_ip"), 412),
        ("PUT", "api/rules/r", None, rule("nobody").to_string(), 400),
        ("POST", "api/rules/r/disable", stale, String::new(), 412),
        ("DELETE", "api", stale, String::new(), 412),
        // Nothing of it exists.
        ("DELETE", "api/rules/none", None, String::new(), 404),
        ("POST", "none/rules/r/enable", None, String::new(), 404),
    ] {
        let answer = call(method, path, condition, &body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    let told = wait_for("all refusals", || {
        Some(about_rules(&services[1])).filter(|told| told.len() >= 7)
    });
    assert_eq!(told.len(), 7, "{told:?}");
    assert_eq!(told[0][0], "applied");
    let begin = "rule set api was not changed, because a change by loopback was refused: ";
    for ([action, rule_set, who, text], why) in told[1..].iter().zip([
        "nobody",
        "1:",
        "the precondition does not hold",
        "rule r: ",
        "rule r: the precondition does not hold",
        "the precondition does not hold",
    ]) {
        let fields = [action, rule_set, who].map(String::as_str);
        assert_eq!(fields, ["refused", "api", "loopback"], "{text}");
        let details = text.strip_prefix(begin);
        assert!(details.is_some_and(|it| it.contains(why)), "{text}: {why}");
    }
}

#[test]
fn a_write_to_rules_that_come_from_elsewhere_is_refused_and_told_without_redis_too() {
    let service = Service::start(&[], NOTIFIES);
    let headers = [("Content-Type", "application/json")];
    let mut http = service.http();
    let answer = http.request("PUT", "/v1/rule_sets/api", &headers, "{}");
    assert_eq!(answer.status, 405, "{answer:?}");
    let told = about_rules(&service);
    let [[action, rule_set, who, text]] = &told[..] else {
        panic!("{:?}", events(&service));
    };
    let fields = [action, rule_set, who].map(String::as_str);
    assert_eq!(fields, ["refused", "api", "loopback"]);
    assert!(text.contains("the rules come from"), "{text}");
    // A caller who may not write is none of it.
    assert_eq!(http.get("/v1/rule_sets/none").status, 405);
    assert_eq!(events(&service).len(), 1);
}

#[test]
fn a_file_that_is_refused_is_an_event_without_redis_too() {
    let service = Service::start(&[], NOTIFIES);
    let listen = "listen: { api: \"127.0.0.1:0\" }\n";
    let write = |config: &str| {
        let text = format!("{listen}{config}");
        service.dir.write("fluxgate.yaml", text);
    };
    write(&NOTIFIES.replace("scope: per_user", "scope: nobody"));
    let refused = wait_for("the refusal", || about_rules(&service).pop());
    assert_eq!(refused[..3], ["refused", "null", "null"]);
    let begin = "the rules were not changed, because new rules were refused: ";
    assert!(refused[3].starts_with(begin), "{refused:?}");
    assert!(refused[3].contains("fluxgate.yaml:"), "{refused:?}");
    write(&NOTIFIES.replace("capacity: 10", "capacity: 20"));
    wait_until("the change", || {
        let told = about_rules(&service);
        let actions: Vec<_> = told.iter().map(|[action, ..]| action.as_str()).collect();
        actions == ["refused", "applied"]
    });
}
