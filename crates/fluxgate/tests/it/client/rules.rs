//! `fluxgate rules diff`, `apply` and `rollback`, on rules in Redis.

mod failures;
mod rollback;
mod trial;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use fluxgate_testkit::RedisServer;
use serde_json::{Value, json};

use crate::service::Service;
use crate::support::{Dir, Run};

/// Tokens: `secret` is an admin, `reader` a viewer.
const TOKENS: &str = "\
ops:admin:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
eve:viewer:3d0941964aa3ebdcb00ccef58b1bb399f9f898465e9886d5aec7f31090a0fb30
";

/// A service with rules in Redis.
struct Stored {
    redis: RedisServer,
    service: Service,
}

impl Stored {
    fn start() -> Self {
        Self::start_with("admin: { tokens_file: tokens, record: true }\n")
    }

    fn start_with(more: &str) -> Self {
        let redis = RedisServer::start();
        let dir = Dir::new();
        dir.write("tokens", TOKENS);
        dir.write("token", "secret\n");
        dir.write("viewer", "reader\n");
        let config = format!(
            "store: {{ redis: {{ url: \"{}\", deadline: 10s, near_cache: false }} }}\n\
             rules_from: {{ redis: {{}}, poll: 1h }}\n{more}",
            redis.url()
        );
        let service = Service::start_in(dir, &[], &config);
        Self { redis, service }
    }

    fn url(&self) -> String {
        url(self.service.address("api"))
    }

    /// Runs `fluxgate rules` with the token of an admin.
    fn run(&self, arguments: &[&str]) -> Run {
        self.run_at(&self.url(), arguments)
    }

    fn run_at(&self, server: &str, arguments: &[&str]) -> Run {
        let options = ["--server", server, "--token-file", "token"];
        let arguments = [&["rules"], arguments, &options].concat();
        self.service.dir.run(&arguments)
    }

    #[track_caller]
    fn expect(&self, code: i32, arguments: &[&str]) -> Run {
        let run = self.run(arguments);
        assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
        run
    }

    /// Returns what a command with `--json` prints.
    #[track_caller]
    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let run = self.expect(code, &[arguments, &["--json"]].concat());
        serde_json::from_str(&run.stdout).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        self.service.dir.write(name, text);
    }

    /// Returns a stored set, or null.
    fn stored(&self, set: &str) -> Value {
        let token = [("Authorization", "Bearer secret")];
        let path = format!("/v1/rule_sets/{set}");
        let answer = self.service.http().request("GET", &path, &token, "");
        match answer.status {
            200 => serde_json::from_str(&answer.body).unwrap(),
            status => {
                assert_eq!(status, 404);
                Value::Null
            }
        }
    }

    /// Stores a set as another writer does.
    fn put(&self, set: &str, body: &str) {
        put(self.service.address("api"), set, body);
    }

    fn charge(&self, user: &str, times: usize) {
        for _ in 0..times {
            let body = json!({ "rule_set": "api", "user": user }).to_string();
            assert_eq!(self.service.http().post("/v1/check", &body).status, 200);
        }
    }
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn put(address: SocketAddr, set: &str, body: &str) {
    let headers = [
        ("Authorization", "Bearer secret"),
        ("Content-Type", "application/json"),
    ];
    let path = format!("/v1/rule_sets/{set}");
    let answer = fluxgate_testkit::Http::new(address).request("PUT", &path, &headers, body);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
}

/// Returns a rule file with sets of one rule `r`, by name and capacity.
fn file(sets: &[(&str, u64)]) -> String {
    let mut text = String::from("rule_sets:\n");
    for (name, capacity) in sets {
        text += &format!(
            "  {name}:\n    rules:\n      - {{ id: r, scope: per_user, algorithm: fixed_window, bands: [ {{ capacity: {capacity}, window: 30d }} ] }}\n"
        );
    }
    text
}

/// Returns the JSON of such a set.
fn set(capacity: u64) -> String {
    json!({ "rules": [{
        "id": "r", "scope": "per_user", "algorithm": "fixed_window",
        "bands": [{ "capacity": capacity, "window": "30d" }],
    }] })
    .to_string()
}

/// What to do with a request.
enum Interference {
    None,
    /// Close the connection before the response.
    Close,
}

/// Forwards requests to a service. `before` is called before each, with its first line. Returns
/// the address.
fn forward_to(
    service: SocketAddr,
    mut before: impl FnMut(&str) -> Interference + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test.
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let request = read_request(&mut client);
            let line = request.split(|byte| *byte == b'\r').next().unwrap();
            let line = String::from_utf8(line.to_vec()).unwrap();
            let interference = before(&line);
            let mut upstream = TcpStream::connect(service).unwrap();
            // The end of the response is then that of the connection.
            let end = line.len() + 2;
            let request = [&request[..end], b"Connection: close\r\n", &request[end..]].concat();
            upstream.write_all(&request).unwrap();
            let mut response = Vec::new();
            upstream.read_to_end(&mut response).unwrap();
            match interference {
                Interference::None => client.write_all(&response).unwrap(),
                Interference::Close => {}
            }
            let _ = client.shutdown(Shutdown::Both);
        }
    });
    address
}

fn read_request(client: &mut TcpStream) -> Vec<u8> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = client.read(&mut piece).unwrap();
        assert!(read > 0, "the request ended early");
        request.extend_from_slice(&piece[..read]);
        let Some(head) = request.windows(4).position(|it| it == b"\r\n\r\n") else {
            continue;
        };
        let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.trim().parse().unwrap());
        if request.len() >= head + 4 + length {
            return request;
        }
    }
}

const FIRST: &str = "
rule_sets:
  api:
    rules:
      - { id: a, scope: per_user, bands: [ 5/m ] }
      - { id: b, scope: global, bands: [ 1/s ] }
";

/// Compared with `FIRST`: `a` has two other fields, `b` is gone, `c` is new, the set denies.
const SECOND: &str = "
# Comments and the order of fields do not matter.
rule_sets:
  api:
    on_error: deny
    rules:
      - bands: [ 6/m ]
        mode: shadow
        id: a
        scope: per_user
      - { id: c, enabled: false, name: 이름, scope: per_ip, bands: [ { id: x, capacity: 2, window: 1h } ] }
";

#[test]
fn a_file_is_compared_and_applied_rule_by_rule() {
    let stored = Stored::start();
    stored.write("rules.yaml", FIRST);
    let added = "\
+ api: rule set added
+ api/a: added
    scope: per_user
    bands: [{ capacity: 5, window: 1m }]
+ api/b: added
    scope: global
    bands: [{ capacity: 1, window: 1s }]
";
    let diff = stored.expect(1, &["diff", "rules.yaml"]);
    assert_eq!(
        (&*diff.stdout, &*diff.stderr),
        (added, "1 rule set differs\n")
    );
    assert_eq!(stored.stored("api"), Value::Null);
    let applied = stored.expect(0, &["apply", "rules.yaml"]);
    assert_eq!((&*applied.stdout, &*applied.stderr), (added, ""));
    assert_eq!(stored.stored("api")["rules"][0]["bands"], json!(["5/m"]));
    // The same rules, also in other words.
    let same = FIRST.replace("5/m", "{ capacity: 5, window: 60s }");
    for text in [FIRST, &same] {
        stored.write("rules.yaml", text);
        let diff = stored.expect(0, &["diff", "rules.yaml"]);
        assert_eq!((&*diff.stdout, &*diff.stderr), ("", ""));
        let applied = stored.expect(0, &["apply", "rules.yaml"]);
        assert_eq!(applied.stdout, "no changes\n");
    }
    assert_eq!(stored.stored("api")["rules"][0]["bands"], json!(["5/m"]));
    stored.write("rules.yaml", SECOND);
    let changed = "\
~ api: changed
    on_error: local -> deny
- api/b: removed
~ api/a: changed
    bands: [{ capacity: 5, window: 1m }] -> [{ capacity: 6, window: 1m }]
    mode: (default) -> shadow
+ api/c: added
    name: \"이름\"
    enabled: false
    scope: per_ip
    bands: [{ id: x, capacity: 2, window: 1h }]
";
    for (code, command) in [(1, "diff"), (0, "apply")] {
        let run = stored.expect(code, &[command, "rules.yaml"]);
        assert_eq!(run.stdout, changed);
    }
    assert_eq!(stored.stored("api")["on_error"], "deny");
    stored.expect(0, &["diff", "rules.yaml"]);
}

#[test]
fn programs_get_json() {
    let stored = Stored::start();
    stored.write("rules.yaml", &file(&[("api", 1), ("mail", 2)]));
    let diff = stored.json(1, &["diff", "rules.yaml"]);
    let changes = diff["changes"].as_array().unwrap();
    assert_eq!(diff["changed"], true);
    assert_eq!(diff["not_in_file"], json!([]));
    assert_eq!(changes.len(), 4, "{diff}");
    assert_eq!(
        changes[0],
        json!({ "rule_set": "api", "rule": null, "change": "added", "fields": [] })
    );
    assert_eq!(
        changes[1]["fields"][0],
        json!({ "field": "scope", "before": null, "after": "per_user" })
    );
    let applied = stored.json(0, &["apply", "rules.yaml"]);
    assert_eq!(applied["changes"], diff["changes"]);
    assert_eq!(applied["dry_run"], false);
    assert_eq!(applied["changed"], true);
    let written = applied["written"].as_array().unwrap();
    assert_eq!(
        (&written[0]["rule_set"], &written[1]["rule_set"]),
        (&json!("api"), &json!("mail"))
    );
    assert!(written[0]["etag"].as_str().unwrap().starts_with('"'));
    assert_eq!(
        (&applied["not_written"], &applied["error"]),
        (&json!([]), &Value::Null)
    );
    stored.write("rules.yaml", &file(&[("api", 3)]));
    let diff = stored.json(1, &["diff", "rules.yaml"]);
    assert_eq!(
        diff,
        json!({ "changed": true, "not_in_file": ["mail"], "changes": [{
            "rule_set": "api", "rule": "r", "change": "changed", "fields": [{
                "field": "bands",
                "before": "[{ capacity: 1, window: 30d }]",
                "after": "[{ capacity: 3, window: 30d }]",
            }],
        }] })
    );
    let list = stored.json(0, &[]);
    assert_eq!(list["rule_sets"][0]["name"], "api");
}

#[test]
fn other_sets_stay_unless_they_are_pruned() {
    let stored = Stored::start();
    let all = [("api", 1), ("mail", 2), ("old", 3), ("없는", 4)];
    stored.write("all.yaml", &file(&all));
    stored.expect(0, &["apply", "all.yaml"]);
    stored.write("rules.yaml", &file(&[("api", 5), ("mail", 6)]));
    let note = "note: rule set `old` is not in rules.yaml and stays; --prune deletes it\n";
    let diff = stored.expect(1, &["diff", "rules.yaml"]);
    assert!(diff.stderr.contains(note), "{diff:?}");
    assert!(!diff.stdout.contains("old"), "{diff:?}");
    // One set of the file.
    let one = stored.expect(0, &["apply", "rules.yaml", "--set", "mail"]);
    assert!(
        one.stdout.starts_with("~ mail/r: changed\n") && !one.stdout.contains("api"),
        "{one:?}"
    );
    assert_eq!(one.stderr, "");
    let capacity = |set: &str| stored.stored(set)["rules"][0]["bands"][0]["capacity"].clone();
    assert_eq!((capacity("api"), capacity("mail")), (json!(1), json!(6)));
    let none = stored.expect(65, &["apply", "rules.yaml", "--set", "old"]);
    assert_eq!(none.stderr, "--set: rules.yaml has no rule set `old`\n");
    // One set that the file does not have is deleted, and no other.
    let one = stored.expect(0, &["apply", "rules.yaml", "--set", "없는", "--prune"]);
    assert_eq!(one.stdout, "- 없는: rule set removed\n- 없는/r: removed\n");
    assert_eq!((capacity("api"), capacity("old")), (json!(1), json!(3)));
    let prune = ["rules.yaml", "--prune"];
    let diff = stored.expect(1, &[&["diff"], &prune[..]].concat());
    assert!(
        diff.stdout
            .ends_with("- old: rule set removed\n- old/r: removed\n")
    );
    assert_eq!(diff.stderr, "2 rule sets differ\n");
    let applied = stored.json(0, &[&["apply"], &prune[..]].concat());
    assert_eq!(
        applied["written"][1],
        json!({ "rule_set": "old", "etag": null })
    );
    assert_eq!(
        (stored.stored("old"), capacity("api")),
        (Value::Null, json!(5))
    );
    // Nothing is left of an explicitly empty file.
    stored.write("none.yaml", "rule_sets: {}\n");
    stored.expect(0, &["apply", "none.yaml"]);
    assert_eq!(capacity("api"), json!(5));
    stored.expect(0, &["apply", "none.yaml", "--prune"]);
    assert_eq!(
        (stored.stored("api"), stored.stored("mail")),
        (Value::Null, Value::Null)
    );
}

/// Rules that a service prints can be applied again; a setting of the service is reported.
#[test]
fn printed_rules_can_be_applied() {
    let stored = Stored::start_with("on_missing_rule_set: deny\nadmin: { tokens_file: tokens }\n");
    stored.write("rules.yaml", SECOND);
    stored.expect(0, &["apply", "rules.yaml"]);
    let printed = stored.expect(0, &["--yaml"]).stdout;
    let arguments = ["rules", "diff", "-", "--token-file", "token", "--server"];
    let url = stored.url();
    let diff = stored
        .service
        .dir
        .run_with_stdin(&[&arguments[..], &[&url]].concat(), &printed);
    assert_eq!((diff.code, &*diff.stdout), (Some(0), ""), "{diff:?}");
    assert!(
        diff.stderr
            .contains("-:1:22: warning: `on_missing_rule_set` is a setting of the service"),
        "{diff:?}"
    );
}

#[test]
fn warnings_of_the_service_have_a_place_in_the_file() {
    let more = "filters: { main: { rule_set: api } }\nadmin: { tokens_file: tokens }\n";
    let stored = Stored::start_with(more);
    let text = FIRST.replace("id: b,", "id: b, match: { attributes: { plan: free } },");
    stored.write("rules.yaml", &text);
    let applied = stored.expect(0, &["apply", "rules.yaml"]);
    assert!(
        applied.stderr.starts_with("rules.yaml:6:") && applied.stderr.contains(": warning: "),
        "{applied:?}"
    );
}

/// A terminal interprets escape sequences.
#[test]
fn hostile_text_is_not_printed_as_it_is() {
    let stored = Stored::start();
    let text = FIRST.replace(
        "id: a,",
        "id: a, name: \"\\e[31mred\\a\\u009b\", attributes: { x: \"\\e]0;title\\a\" },",
    );
    stored.write("rules.yaml", &text);
    let name = "\u{1b}[31m\u{7}.yaml";
    stored.write(name, "rule_sets: 7\n");
    stored.charge("ann\u{1b}[31m", 9);
    for (code, arguments) in [
        (1, &["diff", "rules.yaml"][..]),
        (1, &["diff", "rules.yaml", "--json"]),
        (1, &["apply", "rules.yaml", "--dry-run"]),
        (0, &["apply", "rules.yaml"]),
        (78, &["diff", name]),
        (65, &["diff", "rules.yaml", "--set", "\u{1b}[31m"]),
        (65, &["rollback", "\u{1b}[31m"]),
        (65, &["rollback", "api", "\u{1b}[31mxyz"]),
    ] {
        let run = stored.expect(code, arguments);
        let printed = run.stdout + &run.stderr;
        let raw = printed.chars().find(|it| it.is_control() && *it != '\n');
        assert_eq!(raw, None, "{arguments:?}: {printed}");
    }
}

#[test]
fn options_stand_before_and_after_the_command() {
    let stored = Stored::start();
    stored.write("rules.yaml", FIRST);
    let url = stored.url();
    let run = |arguments: &[&str]| stored.service.dir.run(&[&["rules"], arguments].concat());
    let server = ["--server", &url, "--token-file", "token"];
    let before = run(&[&server[..], &["--json", "diff", "rules.yaml"]].concat());
    assert_eq!(before.code, Some(1), "{before:?}");
    assert!(before.stdout.starts_with('{'), "{before:?}");
    for (arguments, message) in [
        (
            &["--yaml", "diff", "rules.yaml"][..],
            "'--yaml' is for the list of rules",
        ),
        (&["--yaml", "--json"], "cannot be used with"),
        (&["diff"], "<FILE>"),
        (&["rollback"], "<SET>"),
        (&["undo", "api"], "unrecognized subcommand"),
    ] {
        let wrong = run(&[arguments, &server[..]].concat());
        assert_eq!(wrong.code, Some(2), "{arguments:?}: {wrong:?}");
        assert!(wrong.stderr.contains(message), "{arguments:?}: {wrong:?}");
    }
    let help = run(&["apply", "--help"]);
    for option in ["--prune", "--dry-run", "--set", "--server", "--json"] {
        assert!(help.stdout.contains(option), "{}", help.stdout);
    }
}
