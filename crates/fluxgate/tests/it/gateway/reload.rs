//! Routes, filters, upstreams and certificates that change while requests run.

mod in_flight;
mod state;
mod under_load;

use std::fs;
use std::process::Command;

use fluxgate_testkit::{Certificates, wait_until};
use serde_json::Value;

use super::*;
use crate::support::Dir;

/// The listeners of every config here.
const LISTEN: &str = "listen: { api: \"127.0.0.1:0\", gateway: \"127.0.0.1:0\" }\n";

/// Returns a config with these routes and further sections.
fn config(routes: &[String], more: &str) -> String {
    let routes: Vec<_> = routes.iter().map(|it| format!("    - {it}\n")).collect();
    format!(
        "{LISTEN}gateway:\n  routes:\n{}{more}rule_sets: {{}}\n",
        routes.concat()
    )
}

/// Returns a route for everything to these upstreams.
fn to(urls: &[String]) -> String {
    format!("{{ id: all, upstreams: {urls:?} }}")
}

fn run(config: &str) -> Service {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", config);
    Service::run_in(dir, &["run", "--config", "fluxgate.yaml"], 2)
}

/// Replaces the config and waits until it is active.
#[track_caller]
fn reload(service: &Service, config: &str) {
    let before = service.logs("settings are active").len();
    replace(service, config);
    service.wait_for_logs("settings are active", before + 1);
}

fn replace(service: &Service, config: &str) {
    service.dir.write(".new", config);
    let file = service.dir.path("fluxgate.yaml");
    fs::rename(service.dir.path(".new"), file).unwrap();
}

fn metrics(service: &Service) -> String {
    service.http().get("/metrics").body
}

#[test]
fn routes_upstreams_and_filters_follow_the_config_file() {
    let upstreams = ["a", "b"].map(Upstream::with_body);
    let [a, b] = upstreams.each_ref().map(Upstream::url);
    let service = run(&config(&[to(std::slice::from_ref(&a))], ""));
    let mut http = client(&service);
    assert_eq!(http.get("/x").body, "a");
    // The same connection gets the new routes, with a filter whose rules are new as well.
    let routes = [
        format!("{{ id: b, match: {{ path: ['/b/**'] }}, upstreams: ['{b}'], filters: [f] }}"),
        format!("{{ id: all, upstreams: ['{a}'], rewrite: {{ add_prefix: /v1 }} }}"),
    ];
    let rules = "filters: { f: { rule_set: s } }\n";
    let limited = config(&routes, rules).replace("rule_sets: {}\n", ONE_A_MINUTE);
    reload(&service, &limited);
    let answers = ["/b/x", "/b/x", "/x"].map(|path| http.get(path));
    assert_eq!(answers.each_ref().map(|it| it.status), [200, 429, 200]);
    assert_eq!([&answers[0].body, &answers[2].body], ["b", "a"]);
    let last = upstreams[0].requests().pop().unwrap();
    assert_eq!(last.request_line(), "GET /v1/x HTTP/1.1");
    // Filters of the API change, too.
    let check = |service: &Service| service.http().get("/v1/forward_auth?filter=f").status;
    assert_ne!(check(&service), 404);
    let changes = service.logs("settings changed");
    let changes: Vec<_> = changes.iter().map(|it| it["change"].clone()).collect();
    assert_eq!(
        changes,
        ["filter f added", "route all changed", "route b added"]
    );
    let event = service.http().get("/v1/events").body;
    let text = "the config was changed: filter f added, route all changed, route b added";
    assert!(event.contains(text), "{event}");

    reload(&service, &config(&[to(&[b])], "filters: {}\n"));
    assert_eq!(http.get("/b/x").body, "b");
    assert_eq!(http.get("/x").status, 200);
    assert_eq!(check(&service), 404);
    assert!(!metrics(&service).contains("route=\"b\""));
}

#[test]
fn an_invalid_config_changes_nothing() {
    let upstream = Upstream::with_body("a");
    let other = Upstream::with_body("b");
    let good = config(&[to(&[upstream.url()])], "filters: { f: {} }\n");
    let service = run(&good);
    let mut http = client(&service);
    let next = config(&[to(&[other.url()])], "filters: { f: {} }\n");
    let next = next.replace("rule_sets: {}\n", ONE_A_MINUTE);
    let metric = "fluxgate_config_last_reload_successful";
    for (index, (bad, fault)) in [
        (
            next.replace("{ id: all,", "{ id: all, filters: [unknown],"),
            "fluxgate.yaml:4:28: there is no filter `unknown`",
        ),
        (
            next.replace("http://", "ftp://"),
            "fluxgate.yaml:4:30: an upstream",
        ),
        (
            [
                &next[..next.find("gateway:\n").unwrap()],
                &next[next.find("filters:").unwrap()..],
            ]
            .concat(),
            "`listen.gateway` needs at least one route",
        ),
        (
            next.replace("filters: { f: {} }\n", ""),
            "fluxgate.yaml: `filters` is missing; write `filters: {}` to remove all filters",
        ),
        (
            next.replace(
                &format!("[\"{}\"]", other.url()),
                "[{ url: 'https://a', ca: missing.pem }]",
            ),
            "gateway.routes[0].upstreams[0].ca",
        ),
        (
            next.replace(
                "f: {}",
                "f: { jwt: { from: bearer, secret_file: missing } }",
            ),
            "filters.f.jwt: ",
        ),
        (
            next[..next.find("upstreams").unwrap()].to_owned(),
            "not valid YAML",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        replace(&service, &bad);
        let line = service.wait_for_refusals(index + 1).remove(index);
        let seen = line["fault"].as_str().unwrap();
        assert!(seen.contains(fault), "{fault}: {line}");
        assert_eq!(http.get("/x").body, "a", "{bad}");
        let metrics = metrics(&service);
        assert!(metrics.contains(&format!("{metric} 0\n")), "{metrics}");
        // Its rules are as good as absent.
        assert_eq!(crate::service::limit(&mut service.http(), "s"), None);
    }
    let events: Value = serde_json::from_str(&service.http().get("/v1/events").body).unwrap();
    let events = events["events"].as_array().unwrap();
    assert!(
        events.iter().all(|it| it["action"] == "refused"),
        "{events:?}"
    );
    assert_eq!(events.len(), 7);
    assert_eq!(service.logs("settings are active").len(), 0);
    reload(&service, &next);
    assert_eq!(http.get("/x").body, "b");
    assert!(metrics(&service).contains(&format!("{metric} 1\n")));
}

/// The config file is followed as well where it has no rules.
#[test]
fn the_rules_may_come_from_elsewhere() {
    let upstreams = ["a", "b"].map(Upstream::with_body);
    let [a, b] = upstreams.each_ref().map(|it| to(&[it.url()]));
    let elsewhere = |routes: &[String]| {
        config(routes, "filters: { f: { rule_set: s } }\n").replace(
            "rule_sets: {}\n",
            "rules_from: { dir: rules.d, poll: 1s }\n",
        )
    };
    let dir = Dir::new();
    fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write("rules.d/a.yaml", ONE_A_MINUTE);
    dir.write("fluxgate.yaml", elsewhere(&[a]));
    let service = Service::run_in(dir, &["run", "--config", "fluxgate.yaml"], 2);
    let mut http = client(&service);
    assert_eq!(http.get("/x").body, "a");
    replace(&service, &elsewhere(&["{ id: all }".into()]));
    let refused = service.wait_for_log("new settings are refused; the active ones stay");
    let fault = refused["fault"].as_str().unwrap();
    assert!(fault.contains("a route needs `upstreams`"), "{refused}");
    let failed = "fluxgate_config_last_reload_successful 0\n";
    assert!(metrics(&service).contains(failed));
    // New rules do not hide that.
    let two = ONE_A_MINUTE.replace("capacity: 1", "capacity: 2");
    service.dir.write("rules.d/a.yaml", two);
    wait_until("the rules are active", || {
        crate::service::limit(&mut service.http(), "s") == Some(2)
    });
    assert!(metrics(&service).contains(failed));
    assert_eq!(http.get("/x").body, "a");
    reload(&service, &elsewhere(&[b]));
    assert_eq!(http.get("/x").body, "b");
    assert!(!metrics(&service).contains(failed));
    assert_eq!(
        service
            .logs("new settings are refused; the active ones stay")
            .len(),
        1
    );
}

#[test]
fn what_belongs_to_a_listener_needs_a_restart() {
    let upstream = Upstream::with_body("a");
    let before = config(&[to(&[upstream.url()])], "");
    let service = run(&before);
    let after = before
        .replace("gateway: \"127.0.0.1:0\"", "gateway: \"127.0.0.1:1\"")
        .replace(
            "gateway:\n",
            "gateway:\n  limits: { connections: 1, body_bytes: 1 }\n  timeouts: { headers: 1s }\n",
        );
    reload(&service, &after);
    let lines = service.logs("a changed setting needs a restart");
    let fields: Vec<_> = lines.iter().map(|it| it["field"].clone()).collect();
    let expected = [
        "gateway.limits.connections",
        "gateway.timeouts.headers",
        "listen.gateway",
    ];
    assert_eq!(fields, expected);
    // The rest applies, on the same address.
    let mut http = client(&service);
    assert_eq!(http.request("POST", "/x", &[], "body").status, 413);
    assert_eq!(http.get("/x").body, "a");
}

#[test]
fn certificates_follow_the_config_file() {
    let certificates = [Certificates::generate(), Certificates::generate()];
    let upstream = Upstream::with_body("a");
    let dir = Dir::new();
    for (number, of) in certificates.iter().enumerate() {
        fs::copy(of.server_cert(), dir.path(&format!("{number}.crt"))).unwrap();
        fs::copy(of.server_key(), dir.path(&format!("{number}.key"))).unwrap();
    }
    let with = |number: usize| {
        let tls = format!("  tls: {{ cert: {number}.crt, key: {number}.key }}\n");
        config(&[to(&[upstream.url()])], &tls)
    };
    dir.write("fluxgate.yaml", with(0));
    let service = Service::run_in(dir, &["run", "--config", "fluxgate.yaml"], 2);
    let trusted = |number: usize| {
        let port = service.address("gateway").port();
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--cacert"])
            .arg(certificates[number].ca());
        let output = curl.arg(format!("https://localhost:{port}/x")).output();
        output.unwrap().stdout == b"a"
    };
    assert_eq!([0, 1].map(trusted), [true, false]);
    // A key that does not match is refused, and nothing changes.
    replace(&service, &with(1).replace("1.key", "0.key"));
    let refused = service.wait_for_refusals(1).remove(0);
    let fault = refused["fault"].as_str().unwrap();
    assert!(
        fault.contains("`gateway.tls.key`: 0.key: does not match 1.crt"),
        "{fault}"
    );
    assert_eq!([0, 1].map(trusted), [true, false]);
    reload(&service, &with(1));
    assert_eq!([0, 1].map(trusted), [false, true]);
    // The new files are followed from now on.
    fs::copy(certificates[0].server_key(), service.dir.path("1.key")).unwrap();
    fs::copy(certificates[0].server_cert(), service.dir.path("1.crt")).unwrap();
    service.wait_for_log("the gateway uses a new certificate");
    assert_eq!([0, 1].map(trusted), [true, false]);
}
