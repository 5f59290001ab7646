//! The contents of log lines.

use fluxgate_testkit::{Program, ports, timed, wait_until};

use super::{Metrics, check, end, log_of, with_message};
use crate::service::Service;
use crate::support::Dir;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn one_an_hour(telemetry: &str, key: &str) -> String {
    format!(
        "telemetry: {{ {telemetry} }}
rule_sets:
  api:
    rules:
      - {{ id: r, {key}, attributes: {{ tier: free, 'a\"b': \"c\" }}, bands: [ {{ id: slow, capacity: 1, window: 1h }} ] }}
"
    )
}

#[test]
fn the_line_of_a_denial_has_all_fields() {
    let service = Service::start(&[], &one_an_hour("", "scope: per_user"));
    let traceparent = format!("00-{TRACE}-{SPAN}-00");
    let headers = [
        ("X-Request-Id", "my-request"),
        ("traceparent", &*traceparent),
    ];
    check(&service, &headers, r#"{"user":"ann"}"#);
    check(&service, &headers, r#"{"user":"ann"}"#);
    // An invalid header is ignored.
    let upper = traceparent.to_uppercase();
    check(
        &service,
        &[("traceparent", &*upper)],
        r#"{"user":"ann","cost":2}"#,
    );
    let lines = with_message(&end(&service), "denied");
    let [line, never] = &lines[..] else {
        panic!("{lines:#?}");
    };
    let expected = [
        ("level", "INFO"),
        ("rule_set", "api"),
        ("rule", "r"),
        ("band", "slow"),
        ("outcome", "denied"),
        ("listener", "api"),
        ("request_id", "my-request"),
        ("trace_id", TRACE),
        ("span_id", SPAN),
    ];
    for (field, value) in expected {
        assert_eq!(line[field], value, "{field}: {line}");
    }
    assert_eq!(
        line["attributes"],
        serde_json::json!({"tier": "free", "a\"b": "c"})
    );
    assert_eq!(line["suppressed"], 0);
    let retry = line["retry_after_ms"].as_u64().unwrap();
    assert!((3_500_000..=3_600_000).contains(&retry), "{retry}");
    let time = line["timestamp"].as_str().unwrap();
    assert!(
        time.len() == 27 && time.ends_with('Z') && &time[19..20] == ".",
        "{time}"
    );
    assert!(!line.to_string().contains("ann"), "{line}");
    assert_eq!(never["outcome"], "never");
    assert_eq!(never["request_id"].as_str().map(str::len), Some(16));
    for field in ["trace_id", "span_id", "retry_after_ms", "identity"] {
        assert!(never.get(field).is_none(), "{field}: {never}");
    }
}

#[test]
fn the_line_of_a_response_names_its_trace() {
    let config = one_an_hour("level: debug", "scope: per_user")
        + "gateway: { routes: [ { id: all, upstreams: [echo] } ] }\n";
    let service = Service::start(&["gateway"], &config);
    let traceparent = format!("00-{TRACE}-{SPAN}-01");
    let mut http = service.http();
    // The second does not take the fast path.
    for (id, path) in [("fast", "/v1/check"), ("hyper", "/v1/check?status=false")] {
        let headers = [("X-Request-Id", id), ("traceparent", &*traceparent)];
        http.request("POST", path, &headers, r#"{"user":"ann"}"#);
    }
    http.request("POST", "/v1/check", &[("X-Request-Id", "none")], "{}");
    let headers = [("X-Request-Id", "gateway"), ("traceparent", &*traceparent)];
    fluxgate_testkit::Http::new(service.address("gateway")).request("GET", "/", &headers, "");
    let answered = with_message(&end(&service), "answered");
    for (id, trace) in [
        ("fast", Some((TRACE, SPAN))),
        ("hyper", Some((TRACE, SPAN))),
        ("gateway", Some((TRACE, SPAN))),
        ("none", None),
    ] {
        let line = answered.iter().find(|line| line["request_id"] == id);
        let line = line.unwrap_or_else(|| panic!("no {id}: {answered:#?}"));
        let logged = line["trace_id"].as_str().zip(line["span_id"].as_str());
        assert_eq!(logged, trace, "{line}");
    }
}

#[test]
fn a_filter_without_a_rule_set_is_logged_once() {
    let config = one_an_hour("", "scope: per_user")
        + "filters: { idle: { include: ['/**'] } }
gateway: { routes: [ { id: all, upstreams: [echo], filters: [idle] } ] }
";
    let service = Service::start(&["gateway"], &config);
    let mut gateway = fluxgate_testkit::Http::new(service.address("gateway"));
    assert_eq!(gateway.get("/x").status, 200);
    let forwarded = [
        ("X-Forwarded-Method", "GET"),
        ("X-Forwarded-Uri", "/x"),
        ("X-User-Id", "ann"),
    ];
    for _ in 0..3 {
        let mut http = service.http();
        let answer = http.request("GET", "/v1/forward_auth", &forwarded, "");
        assert_eq!(
            (answer.status, answer.header("x-ratelimit-limit")),
            (200, None)
        );
    }
    let lines = end(&service);
    let messages = lines.iter().filter_map(|line| line["message"].as_str());
    let messages: Vec<_> = messages
        .filter(|it| it.contains("everything passes"))
        .collect();
    assert_eq!(
        messages,
        ["filter `idle` has no `rule_set`: everything passes"]
    );
}

#[test]
fn identities_are_logged_if_the_config_allows_it_and_api_keys_are_shortened() {
    let config = one_an_hour("identities: true", "key: [user, api_key, ip]");
    let service = Service::start(&[], &config);
    let body = r#"{"user":"ann","api_key":"0123456789abcdef","ip":"10.0.0.1"}"#;
    for _ in 0..2 {
        check(&service, &[], body);
    }
    let lines = with_message(&end(&service), "denied");
    assert_eq!(lines[0]["identity"], "user=ann api_key=0123…ef ip=10.0.0.1");
}

/// Values that could start another line or control a terminal.
const CONTROL_CHARACTERS: &str = r#"{"user":"u\r\n{\"level\":\"ERROR\"}\u001b[2J\u007f\u009b31m\u2028\"\\",
    "path":"/p\nq\u001b]0;x\u0007","headers":{"User-Agent":"a\r\nb"}}"#;

#[test]
fn control_characters_cannot_split_a_line() {
    for format in ["json", "text"] {
        let telemetry = format!("identities: true, level: trace, log: {format}");
        let key = "key: [user, path, 'header:User-Agent']";
        let (ready, lines) = if format == "json" {
            let service = Service::start(&[], &one_an_hour(&telemetry, key));
            send_control_characters(&service);
            let lines = end(&service);
            let denied = with_message(&lines, "denied");
            assert_eq!(denied.len(), 1, "{lines:#?}");
            assert_eq!(
                denied[0]["identity"],
                "user=u\r\n{\"level\":\"ERROR\"}\u{1b}[2J\u{7f}\u{9b}31m\u{2028}\"\\ \
                 path=/p\nq\u{1b}]0;x\u{7} header:user-agent=a\r\nb"
            );
            (0, service.program.lines())
        } else {
            let (service, _port) = start_text(&one_an_hour(&telemetry, key));
            let ready = service.program.lines().len();
            send_control_characters(&service);
            service.program.signal("TERM");
            service.program.wait();
            (ready, service.program.lines())
        };
        assert!(lines.len() > ready);
        for line in &lines {
            assert!(!line.contains(char::is_control), "{line:?}");
            let start = if format == "json" {
                "{\"timestamp\":\"2"
            } else {
                "2"
            };
            assert!(line.starts_with(start), "{line:?}");
        }
    }
}

/// Starts a service that logs text, on a port that is known in advance.
fn start_text(config: &str) -> (Service, ports::Port) {
    let dir = Dir::new();
    let port = ports::free();
    let address = port.addr();
    dir.write(
        "fluxgate.yaml",
        format!("listen: {{ api: '{address}' }}\n{config}"),
    );
    let program = Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
        command.args(["run", "--config", "fluxgate.yaml"]);
        command.current_dir(dir.path(""));
    });
    let service = Service {
        program,
        dir,
        addresses: [("api".to_owned(), address)].into(),
    };
    wait_until("the service is ready", || {
        let answer = service.http().try_request("GET", "/readyz", &[], "");
        answer.is_ok_and(|answer| answer.status == 200)
    });
    (service, port)
}

fn send_control_characters(service: &Service) {
    for _ in 0..2 {
        check(service, &[], CONTROL_CHARACTERS);
    }
    // Raw bytes in place of a request, and in headers and paths.
    for bytes in [
        &b"\x1b[2J\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: \x1b[31magent\r\n\r\n",
        b"GET /\x1b[31m\x7f HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /%0d%0a%1b[31m HTTP/1.1\r\nHost: h\r\nX-Request-Id: a\x09b\r\n\r\n",
    ] {
        let mut http = service.http();
        http.send_raw(bytes).unwrap();
        // Not all of them are answered.
        let _ = http.read_answer(false);
    }
}

#[test]
fn a_shadow_denial_would_be_one() {
    let service = Service::start(&[], &one_an_hour("", "mode: shadow, scope: per_user"));
    for _ in 0..2 {
        check(&service, &[], r#"{"user":"ann"}"#);
    }
    let lines = end(&service);
    let shadow = with_message(&lines, "would be denied");
    assert_eq!(shadow.len(), 1, "{lines:#?}");
    assert_eq!(shadow[0]["outcome"], "shadow_denied");
    assert_eq!(with_message(&lines, "denied").len(), 0);
}

#[test]
fn denials_are_sampled_and_the_lines_count_those_left_out() {
    const DENIED: u64 = 3_000;
    let service = Service::start(&[], &one_an_hour("", "scope: per_user"));
    let mut http = service.http();
    let mut deny = |times| {
        for _ in 0..times {
            assert_eq!(http.post("/v1/check", r#"{"user":"ann"}"#).status, 200);
        }
    };
    deny(DENIED + 1);
    let logged = || with_message(&log_of(&service), "denied");
    wait_until("the first lines", || logged().len() >= 10);
    // The timestamps of the service show how long it took.
    let time = |line: &serde_json::Value| {
        let text = line["timestamp"].as_str().unwrap().to_owned();
        let number = |from: usize, to: usize| text[from..to].parse::<u64>().unwrap();
        (number(11, 13) * 3_600 + number(14, 16) * 60 + number(17, 19)) * 1_000_000 + number(20, 26)
    };
    let lines = logged();
    // Midnight may have passed in between.
    const DAY: u64 = 86_400 * 1_000_000;
    let took = (time(lines.last().unwrap()) + DAY - time(&lines[0])) % DAY;
    let max = 10 + took / 100_000 + 1;
    assert!(
        (lines.len() as u64) <= max,
        "{} lines in {took} µs",
        lines.len()
    );

    // Ten lines a second pass. The one that passes after this pause counts all that were left
    // out.
    std::thread::sleep(std::time::Duration::from_millis(200));
    deny(1);
    let sent = DENIED + 1;
    wait_until("a line that counts the rest", || {
        let lines = logged();
        let suppressed: u64 = lines
            .iter()
            .map(|line| line["suppressed"].as_u64().unwrap())
            .sum();
        lines.len() as u64 + suppressed == sent
    });
    assert_eq!(
        Metrics::of(&service).sum("fluxgate_decisions_total{"),
        sent + 1
    );
}

#[test]
fn a_wait_that_would_be_too_long_is_logged_counted_and_explained() {
    let service = Service::start(
        &[],
        "rule_sets: { s: { rules: [ { id: r, scope: global, on_exceed: wait, max_wait: 1s, \
         bands: [ 1/h ] } ] } }\n",
    );
    for body in ["{}", "{}", r#"{"wait":false}"#, r#"{"peek":true}"#] {
        check(&service, &[], body);
    }
    let explained = service.http().post("/v1/explain", "{}").body;
    let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();
    assert_eq!(explained["decision"]["reason"], "too_long", "{explained}");
    let refused = "fluxgate_waits_refused_total{reason=\"too_long\"}";
    assert_eq!(Metrics::of(&service).get(refused), 1);
    let denied = with_message(&end(&service), "denied");
    let refused: Vec<_> = denied
        .iter()
        .map(|line| line["wait_refused"].as_str())
        .collect();
    assert_eq!(refused, [Some("too_long"), None]);
}

#[test]
fn missing_rule_sets_are_logged_once_each_and_sampled() {
    let service = Service::start(&[], &one_an_hour("", "scope: per_user"));
    let long = "x".repeat(5_000);
    let ((), took) = timed(|| {
        for name in ["other", "other", &long] {
            check(&service, &[], &format!(r#"{{"rule_set":"{name}"}}"#));
        }
        for number in 0..200 {
            check(&service, &[], &format!(r#"{{"rule_set":"n{number}"}}"#));
        }
    });
    let lines = with_message(&end(&service), "there is no such rule set");
    let other = lines.iter().filter(|line| line["rule_set"] == "other");
    assert_eq!(other.count(), 1);
    let longest = lines
        .iter()
        .map(|line| line["rule_set"].as_str().unwrap().len());
    assert_eq!(longest.max(), Some(1024 + '…'.len_utf8()));
    // Ten at once, and one a second.
    let most = 10 + took.as_secs() as usize + 1;
    assert!(
        (10..=most).contains(&lines.len()),
        "{} in {took:?}",
        lines.len()
    );
}

#[test]
fn queued_lines_are_written_before_the_service_exits() {
    let service = Service::start(&[], &one_an_hour("level: debug", "scope: per_user"));
    let mut http = service.http();
    for number in 0..500 {
        let id = number.to_string();
        http.request(
            "POST",
            "/v1/check",
            &[("X-Request-Id", &id)],
            r#"{"user":"ann"}"#,
        );
    }
    let lines = end(&service);
    let answered = with_message(&lines, "answered");
    let ids = answered
        .iter()
        .filter_map(|line| line["request_id"].as_str());
    let mut ids: Vec<_> = ids.filter(|id| id.len() <= 3).collect();
    ids.sort_by_key(|id| id.parse::<u32>().unwrap());
    let expected: Vec<_> = (0..500).map(|number| number.to_string()).collect();
    assert_eq!(ids, expected);
    assert_eq!(with_message(&lines, "shutting down").len(), 1);
}
