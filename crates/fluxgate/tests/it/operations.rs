//! The commands and settings in the guides on operations and security work as described.

use std::process::Command;

use fluxgate_testkit::{Cli, Http, RedisServer, wait_until};
use serde_json::json;

use crate::docs::only;
use crate::service::Service;
use crate::support::Dir;

const ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_log",
    "sliding_window",
];

#[track_caller]
fn post(http: &mut Http, path: &str, body: serde_json::Value) -> String {
    let answer = http.post(path, &body.to_string());
    assert_eq!(answer.status, 200, "{path} {body}: {answer:?}");
    answer.body
}

#[test]
fn the_redis_permissions_in_the_guide_are_sufficient_and_minimal() {
    let line = only("text acl");
    let user = line.trim().strip_prefix("user ").unwrap();
    let server = RedisServer::builder()
        .user(user.replace("PASSWORD", "secret"))
        .start();
    let dir = Dir::new();
    dir.write("password", "secret");
    let config = format!(
        "store: {{ redis: {{ url: 'redis://{}', username: fluxgate, password_file: password, deadline: 5s }} }}\n\
         rules_from: {{ redis: {{}} }}\n",
        server.addr()
    );
    let service = Service::start_in(dir, &[], &config);
    let mut cli = server.cli();
    use_every_command(&service, &mut cli);

    let refused = cli.command(&["ACL", "LOG"]);
    assert!(refused.array().is_empty(), "{refused:?}");
    let rights = user.split_whitespace();
    for right in rights.filter_map(|word| word.strip_prefix('+')) {
        assert!(cli.calls(right) > 0, "{right} is not needed");
    }
    assert_eq!(connections(&mut cli), expected_connections());
    assert!(service.logs("the store is failing").is_empty());
}

/// One connection for each core, one for the service itself, and one for messages.
fn expected_connections() -> usize {
    std::thread::available_parallelism().unwrap().get() + 2
}

fn connections(cli: &mut Cli) -> usize {
    let clients = cli.command(&["CLIENT", "LIST"]).text();
    clients.matches(" user=fluxgate ").count()
}

/// Uses every algorithm, reads and changes state, and writes rules.
fn use_every_command(service: &Service, cli: &mut Cli) {
    let mut http = service.http();
    let rule = |algorithm: &&str| {
        let bands = json!([{ "capacity": 100_000, "window": "1h" }]);
        json!({
            "id": algorithm, "algorithm": algorithm, "scope": "per_user", "bands": bands,
            "notify": ["0.01%"],
        })
    };
    let rules: Vec<_> = ALGORITHMS.iter().map(rule).collect();
    let set = json!({ "rules": rules }).to_string();
    let json = [("Content-Type", "application/json")];
    let put = http.request("PUT", "/v1/rule_sets/s", &json, &set);
    assert_eq!(put.status, 201, "{put:?}");

    assert_eq!(http.get("/v1/rule_sets/s/history").status, 200);

    let check = json!({ "rule_set": "s", "user": "ann", "cost": 2 });
    post(&mut http, "/v1/check", check.clone());
    // Only units with the same microsecond are removed from a log and added again as one.
    wait_until("requests that are decided together, on every core", || {
        send_concurrently(service, &check.to_string());
        cli.calls("zrem") > 0 && connections(cli) >= expected_connections()
    });
    for algorithm in ALGORITHMS {
        let one = json!({ "rule_set": "s", "rule": algorithm, "identity": "ann" });
        let mut refund = one.clone();
        refund["units"] = json!(3);
        post(&mut http, "/v1/refund", refund);
        let state = format!("/v1/state?rule_set=s&rule={algorithm}&identity=ann");
        assert_eq!(http.get(&state).status, 200);
        post(&mut http, "/v1/reset", one);
        post(&mut http, "/v1/check", check.clone());
        let whole = json!({ "rule_set": "s", "rule": algorithm });
        assert_eq!(post(&mut http, "/v1/reset", whole), r#"{"reset":1}"#);
    }
    wait_until("a threshold", || {
        http.get("/v1/events").body.contains("threshold")
    });
    let loaded = cli.calls("script|load");
    cli.command(&["SCRIPT", "FLUSH"]).expect_ok();
    wait_until("the script is loaded again", || {
        post(&mut http, "/v1/check", check.clone());
        cli.calls("script|load") > loaded
    });
    let rule = "/v1/rule_sets/s/rules/token_bucket/disable";
    assert_eq!(http.request("POST", rule, &[], "").status, 200);
    let deleted = http.request("DELETE", "/v1/rule_sets/s", &[], "");
    assert_eq!(deleted.status, 204, "{deleted:?}");
}

/// Sends the same check on several connections before it reads any response.
fn send_concurrently(service: &Service, body: &str) {
    let mut callers: Vec<_> = (0..32).map(|_| service.http()).collect();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    for caller in &mut callers {
        caller.send_raw(format!("{head}{body}").as_bytes()).unwrap();
    }
    for caller in &mut callers {
        assert_eq!(caller.read_answer(false).unwrap().status, 200);
    }
}

#[test]
fn the_token_from_the_guide_opens_the_admin_api() {
    let dir = Dir::new();
    let script = only("sh token") + "printf %s \"$token\"\n";
    let mut shell = Command::new("sh");
    let output = shell.args(["-ec", &script]).current_dir(dir.path(""));
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let token = String::from_utf8(output.stdout).unwrap();
    assert_eq!(token.len(), 64);
    let config = "
admin: { tokens_file: tokens }
rule_sets:
  s: { rules: [ { id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] } ] }
";
    let service = Service::start_in(dir, &[], config);
    let state = "/v1/state?rule_set=s&rule=r";
    assert_eq!(service.http().get(state).status, 401);
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str())];
    let answer = service.http().request("GET", state, &headers, "");
    assert_eq!(answer.status, 200, "{answer:?}");
}
