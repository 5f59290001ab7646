//! Files that are not regular files or too large: they are refused by name, and the service
//! continues with its last valid rules.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{Certificates, Program, timed, wait_for, wait_until};
use serde_json::Value;

use super::{Service, limit};
use crate::support::{Dir, TWO_A_SECOND};

const MAX_BYTES: u64 = 16 << 20;
/// More than any command takes to refuse a file, even on a busy machine.
const LONG: Duration = Duration::from_secs(10);

fn rules(capacity: u32) -> String {
    format!(
        "rule_sets:\n  api:\n    rules:\n      - {{ id: r, scope: per_user, bands: [ {{ capacity: {capacity}, window: 1h }} ] }}\n"
    )
}

#[track_caller]
fn wait_for_limit(service: &Service, expected: u64) {
    let mut http = service.http();
    wait_until("the new limit", || {
        limit(&mut http, "api") == Some(expected)
    });
}

fn metric(service: &Service, name: &str) -> u64 {
    let metrics = service.http().get("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn make_large(path: &Path) {
    // Created under another name, so that it is never seen with another size.
    let new = path.with_extension("new");
    let file = File::create(&new).unwrap();
    file.set_len(MAX_BYTES + 1).unwrap();
    fs::rename(new, path).unwrap();
}

/// Creates an irregular file. The text is part of the message.
type Irregular = (fn(&Path), &'static str);

const IRREGULAR: [Irregular; 7] = [
    (make_fifo, "expected a regular file, found a FIFO or pipe"),
    (
        |path| symlink("/dev/zero", path).unwrap(),
        "expected a regular file, found a device",
    ),
    (
        |path| drop(UnixListener::bind(path).unwrap()),
        "expected a regular file, found a socket",
    ),
    (make_large, "the file is larger than 16777216 bytes"),
    (
        |path| {
            let link = path.with_extension("fifo");
            make_fifo(&link);
            symlink(link, path).unwrap();
        },
        "expected a regular file, found a FIFO or pipe",
    ),
    (
        |path| symlink(path.file_name().unwrap(), path).unwrap(),
        "Too many levels of symbolic links",
    ),
    (
        |path| symlink("nowhere", path).unwrap(),
        "No such file or directory",
    ),
];

fn start_dir(config: &str) -> Service {
    let dir = Dir::new();
    fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write("rules.d/a.yaml", rules(1));
    let config = format!("rules_from: {{ dir: rules.d, poll: 1h }}\n{config}");
    Service::start_in(dir, &[], &config)
}

#[test]
fn one_in_the_rules_directory_is_refused_by_name_and_reloads_continue() {
    let service = start_dir("");
    for (capacity, (make, what)) in (2..).zip(IRREGULAR) {
        // Each has a name of its own, by which its lines are found: those of the one before may
        // arrive late.
        let name = format!("rules.d/irregular{capacity}");
        let irregular = service.dir.path(&format!("{name}.yaml"));
        let start = format!("{name}.yaml: ");
        let refusals = || -> Vec<String> {
            let lines = service.refusals();
            let why = lines.iter().filter_map(|line| line["why"].as_str());
            { why.filter(|why| why.starts_with(&start)) }
                .map(str::to_owned)
                .collect()
        };
        make(&irregular);
        let why = wait_for("it is refused", || refusals().pop());
        assert!(why.contains(what), "{why}");
        assert_eq!(
            metric(&service, "fluxgate_config_last_reload_successful "),
            0
        );
        // Another change takes effect once the whole directory is valid.
        service.dir.write("rules.d/a.yaml", rules(capacity));
        service.program.signal("HUP");
        wait_until("it is refused again", || refusals().len() >= 2);
        assert_eq!(
            limit(&mut service.http(), "api"),
            Some(u64::from(capacity) - 1)
        );
        fs::remove_file(&irregular).unwrap();
        wait_for_limit(&service, capacity.into());
        // It is set after the rules are active.
        wait_until("the reload is reported", || {
            metric(&service, "fluxgate_config_last_reload_successful ") == 1
        });
        let _ = fs::remove_file(service.dir.path(&format!("{name}.fifo")));
    }
}

#[test]
fn links_between_directories_are_not_followed() {
    let service = start_dir("");
    symlink(".", service.dir.path("rules.d/self.yaml")).unwrap();
    symlink("../rules.d", service.dir.path("rules.d/up.yaml")).unwrap();
    fs::create_dir(service.dir.path("rules.d/inner.yaml")).unwrap();
    symlink("..", service.dir.path("rules.d/inner.yaml/back.yaml")).unwrap();
    service.dir.write("rules.d/a.yaml", rules(2));
    wait_for_limit(&service, 2);
    assert_eq!(service.refusals(), [Value::Null; 0]);
    // The directory itself may be a broken link for a while.
    fs::rename(service.dir.path("rules.d"), service.dir.path("away")).unwrap();
    symlink("rules.d", service.dir.path("rules.d")).unwrap();
    let line = service.wait_for_refusals(1).remove(0);
    assert!(
        line["why"].as_str().unwrap().starts_with("rules.d: "),
        "{line}"
    );
    fs::remove_file(service.dir.path("rules.d")).unwrap();
    fs::rename(service.dir.path("away"), service.dir.path("rules.d")).unwrap();
    service.dir.write("rules.d/a.yaml", rules(3));
    wait_for_limit(&service, 3);
}

#[test]
fn file_names_need_not_be_utf_8() {
    let service = start_dir("");
    let name = |start: &[u8]| {
        let name = [start, b"\xff\x1b.yaml"].concat();
        service.dir.path("rules.d").join(OsStr::from_bytes(&name))
    };
    fs::write(name(b"b"), "rule_sets: {}\n").unwrap();
    service.dir.write("rules.d/a.yaml", rules(2));
    wait_for_limit(&service, 2);
    fs::write(name(b"b"), "rule_sets: 5\n").unwrap();
    let line = service.wait_for_refusals(1).remove(0);
    let fault = line["fault"].as_str().unwrap();
    assert!(
        fault.starts_with("rules.d/b\u{fffd}\u{1b}.yaml:1:12: "),
        "{fault}"
    );
    fs::remove_file(name(b"b")).unwrap();
    make_fifo(&name(b"c"));
    let lines = service.wait_for_refusals(2);
    let why = lines[1]["why"].as_str().unwrap();
    assert!(why.starts_with("rules.d/c\u{fffd}\u{1b}.yaml: "), "{why}");
}

#[test]
fn the_config_file_may_become_one_and_recover() {
    let service = Service::start(&[], &rules(1));
    let config = service.dir.read("fluxgate.yaml");
    let path = service.dir.path("fluxgate.yaml");
    for (index, (make, what)) in IRREGULAR.iter().enumerate() {
        fs::remove_file(&path).unwrap();
        make(&path);
        wait_until("the refusal", || {
            let lines = service.refusals();
            let why = lines.iter().filter_map(|line| line["why"].as_str());
            why.filter(|why| why.contains(what)).count() > 0
        });
        let capacity = index as u64 + 2;
        fs::remove_file(&path).unwrap();
        let good = config.replace("capacity: 1", &format!("capacity: {capacity}"));
        service.dir.write("fluxgate.yaml", good);
        wait_for_limit(&service, capacity);
        let _ = fs::remove_file(service.dir.path("fluxgate.fifo"));
    }
}

#[test]
fn sigterm_takes_effect_while_there_is_one() {
    let dir = Dir::new();
    dir.write(
        "tokens",
        "anna:admin:8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918\n",
    );
    fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write("rules.d/a.yaml", rules(1));
    let config = "rules_from: { dir: rules.d, poll: 100ms }\nadmin: { tokens_file: tokens }\n";
    let service = Service::start_in(dir, &[], config);
    make_fifo(&service.dir.path("rules.d/irregular.yaml"));
    service.wait_for_refusals(1).remove(0);
    make_fifo(&service.dir.path("fifo"));
    fs::rename(service.dir.path("fifo"), service.dir.path("tokens")).unwrap();
    let line = service.wait_for_log("the admin API keeps its tokens");
    let error = line["error"].as_str().unwrap();
    assert!(
        error.starts_with("`admin.tokens_file`: tokens: expected a regular"),
        "{error}"
    );
    // The old tokens still work.
    let headers = [("Authorization", "Bearer admin")];
    let answer = service.http().request("GET", "/v1/rule_sets", &headers, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    service.program.signal("TERM");
    let (status, took) = timed(|| service.program.wait());
    assert_eq!(status.code(), Some(0));
    assert!(took < LONG, "{took:?}");
}

/// Runs a command that exits with one line on standard error, and returns its exit code and
/// that line. A command that blocks on a file is killed.
#[track_caller]
fn refused(dir: &Dir, arguments: &[&str]) -> (Option<i32>, String) {
    let program = Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
        command.args(arguments).current_dir(dir.path(""));
    });
    let code = program.wait().code();
    let line = program.lines().pop().expect("an error message");
    (code, line)
}

/// The commands that read a config or a rule file.
const COMMANDS: [&[&str]; 4] = [
    &["validate"],
    &["config", "show", "--config"],
    &["run", "--config"],
    &["simulate", "--input", "-", "--rules"],
];

#[test]
fn every_command_refuses_them() {
    let dir = Dir::new();
    let irregular = dir.path("irregular.yaml");
    for (make, what) in IRREGULAR {
        make(&irregular);
        for command in COMMANDS {
            let arguments = [command, &["irregular.yaml"]].concat();
            let ((code, line), took) = timed(|| refused(&dir, &arguments));
            assert_eq!(code, Some(66), "{command:?}: {line}");
            let expected = format!("irregular.yaml: {what}");
            assert!(line.starts_with(&expected), "{command:?}: {line}");
            assert!(took < LONG, "{command:?}: {took:?}");
        }
        fs::remove_file(&irregular).unwrap();
    }
    for device in ["/dev/zero", "/dev/stdin"] {
        let run = dir.run_with_stdin(&["validate", device], TWO_A_SECOND);
        assert_eq!(run.code, Some(66), "{run:?}");
        let expected = format!("{device}: expected a regular file, found a ");
        assert!(run.stderr.starts_with(&expected), "{run:?}");
    }
    // The type of standard input counts, not its name.
    dir.write("rules.yaml", TWO_A_SECOND);
    let mut command = dir.command(&["validate", "/dev/stdin"]);
    command.stdin(File::open(dir.path("rules.yaml")).unwrap());
    assert!(command.output().unwrap().status.success());
}

#[test]
fn a_rules_directory_with_one_is_refused_at_the_start() {
    let dir = Dir::new();
    fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write("rules.d/a.yaml", rules(1));
    make_fifo(&dir.path("rules.d/b.yaml"));
    let listen = "listen: { api: \"127.0.0.1:0\" }\nrules_from: { dir: rules.d }\n";
    dir.write("fluxgate.yaml", listen);
    for (arguments, place) in [
        (&["validate", "rules.d"][..], ""),
        (&["validate", "fluxgate.yaml"], ""),
        (
            &["run", "--config", "fluxgate.yaml"],
            "fluxgate.yaml:2:20: `rules_from.dir`: ",
        ),
    ] {
        let what = "rules.d/b.yaml: expected a regular file, found a FIFO or pipe";
        let expected = format!("{place}{what}");
        let refused = refused(&dir, arguments);
        assert_eq!(refused, (Some(66), expected), "{arguments:?}");
    }
}

/// Returns a config in which a field names a file with a secret, tokens or a certificate.
/// `valid` provides the other half of a pair.
fn config_with(field: &str, file: &str, valid: &Certificates) -> String {
    let (cert, key) = (valid.server_cert(), valid.server_key());
    let (cert, key) = (cert.display(), key.display());
    let redis =
        |more: &str| format!("store: {{ redis: {{ url: 'rediss://127.0.0.1:1', {more} }} }}\n");
    let gateway = |tls: &str| {
        format!(
            "gateway: {{ routes: [ {{ id: all, upstreams: [echo] }} ], tls: {{ {tls} }} }}\n\
             listen: {{ gateway: \"127.0.0.1:0\" }}\n"
        )
    };
    let grpc =
        |tls: &str| format!("listen: {{ grpc: {{ address: '127.0.0.1:0', tls: {{ {tls} }} }} }}\n");
    match field {
        "store.redis.password_file" => redis(&format!("password_file: {file}")),
        "store.redis.sentinel.password_file" => redis(&format!(
            "mode: sentinel, sentinel: {{ master: m, password_file: {file} }}"
        )),
        "store.redis.tls.ca" => redis(&format!("tls: {{ ca: {file} }}")),
        "store.redis.tls.cert" => redis(&format!("tls: {{ cert: {file}, key: '{key}' }}")),
        "store.redis.tls.key" => redis(&format!("tls: {{ cert: '{cert}', key: {file} }}")),
        "keys.hash_secret_file" => format!("keys: {{ hash_secret_file: {file} }}\n"),
        "admin.tokens_file" => format!("admin: {{ tokens_file: {file} }}\n"),
        "gateway.tls.cert" => gateway(&format!("cert: {file}, key: '{key}'")),
        "gateway.tls.key" => gateway(&format!("cert: '{cert}', key: {file}")),
        "listen.grpc.tls.cert" => grpc(&format!("cert: {file}, key: '{key}'")),
        "listen.grpc.tls.client_ca" => {
            grpc(&format!("cert: '{cert}', key: '{key}', client_ca: {file}"))
        }
        _ => unreachable!("{field}"),
    }
}

#[test]
fn a_secret_must_be_a_regular_file_or_a_link_to_one() {
    let dir = Dir::new();
    let valid = Certificates::generate();
    make_fifo(&dir.path("fifo"));
    symlink("/dev/zero", dir.path("zero")).unwrap();
    File::create(dir.path("large"))
        .unwrap()
        .set_len((1 << 20) + 1)
        .unwrap();
    for field in [
        "store.redis.password_file",
        "store.redis.sentinel.password_file",
        "store.redis.tls.ca",
        "store.redis.tls.cert",
        "store.redis.tls.key",
        "keys.hash_secret_file",
        "admin.tokens_file",
        "gateway.tls.cert",
        "gateway.tls.key",
        "listen.grpc.tls.cert",
        "listen.grpc.tls.client_ca",
    ] {
        for (file, what) in [
            ("fifo", "expected a regular file, found a FIFO or pipe"),
            ("zero", "expected a regular file, found a device"),
            ("large", "the file is larger than 1048576 bytes"),
        ] {
            dir.write("fluxgate.yaml", config_with(field, file, &valid));
            let run = || refused(&dir, &["run", "--config", "fluxgate.yaml"]);
            let (refused, took) = timed(run);
            let (code, error) = refused;
            let expected = format!(": `{field}`: {file}: {what}");
            assert_eq!(code, Some(78), "{error}");
            assert!(
                error.starts_with("fluxgate.yaml:1:") && error.ends_with(&expected),
                "{error}"
            );
            assert!(took < LONG, "{field}: {took:?}");
        }
    }
    // As Kubernetes mounts a secret: a link through a link.
    fs::create_dir(dir.path("..1")).unwrap();
    dir.write(
        "..1/tokens",
        "anna:admin:8c6976e5b5410415bde908bd4dee15dfb167a9c873fc4bb8a81f6f2ab448a918\n",
    );
    symlink("..1", dir.path("..data")).unwrap();
    symlink("..data/tokens", dir.path("tokens")).unwrap();
    let config = config_with("admin.tokens_file", "tokens", &valid) + &rules(1);
    let service = Service::start_in(dir, &[], &config);
    let headers = [("Authorization", "Bearer admin")];
    let answer = service.http().request("GET", "/v1/rule_sets", &headers, "");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn recorded_requests_may_come_through_a_fifo() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let fifo = dir.path("requests");
    make_fifo(&fifo);
    let writer = std::thread::spawn(move || {
        fs::write(fifo, "{\"t\":1,\"user\":\"u\"}\n{\"t\":2,\"user\":\"u\"}\n").unwrap();
    });
    let run = dir.run(&["simulate", "--rules", "rules.yaml", "--input", "requests"]);
    writer.join().unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stdout.lines().count(), 2, "{run:?}");
}
