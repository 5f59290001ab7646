//! Rules in files that change while the service runs.

use std::fs;
use std::os::unix::fs::symlink;

use fluxgate_testkit::{Http, wait_until};
use serde_json::Value;

use super::{Service, limit};
use crate::support::Dir;

const ACTIVE: &str = "rules are active";

/// Returns a set with one rule of this capacity per user.
fn set(name: &str, capacity: u32) -> String {
    format!(
        "  {name}:\n    rules:\n      - {{ id: r, scope: per_user, algorithm: fixed_window, bands: [ {{ capacity: {capacity}, window: 30d }} ] }}\n"
    )
}

fn file(sets: &[(&str, u32)]) -> String {
    let sets: Vec<_> = sets
        .iter()
        .map(|(name, capacity)| set(name, *capacity))
        .collect();
    format!("rule_sets:\n{}", sets.concat())
}

#[track_caller]
fn wait_for_limit(service: &Service, set: &str, expected: u64) {
    let mut http = service.http();
    wait_until("the new limit", || limit(&mut http, set) == Some(expected));
}

/// Writes a file under another name, and renames it.
fn replace(service: &Service, name: &str, content: &str) {
    service.dir.write(".new", content);
    fs::rename(service.dir.path(".new"), service.dir.path(name)).unwrap();
}

const LISTEN: &str = "listen: { api: \"127.0.0.1:0\" }\n";

#[test]
fn a_config_file_may_be_replaced_or_rewritten() {
    let service = Service::start(&[], &file(&[("api", 10)]));
    wait_for_limit(&service, "api", 10);
    replace(
        &service,
        "fluxgate.yaml",
        &(LISTEN.to_owned() + &file(&[("api", 20)])),
    );
    wait_for_limit(&service, "api", 20);
    assert_eq!(service.refusals(), [Value::Null; 0]);
    service
        .dir
        .write("fluxgate.yaml", LISTEN.to_owned() + &file(&[("api", 30)]));
    wait_for_limit(&service, "api", 30);
}

#[test]
fn other_settings_need_a_restart_and_cause_a_warning() {
    let service = Service::start(&[], &file(&[("api", 10)]));
    let changed = "telemetry: { level: debug }\n".to_owned() + LISTEN + &file(&[("api", 20)]);
    replace(&service, "fluxgate.yaml", &changed);
    wait_for_limit(&service, "api", 20);
    let line = service.wait_for_log("a changed setting needs a restart");
    assert_eq!(line["field"], "telemetry.level");
    assert_eq!(service.logs("a changed setting needs a restart").len(), 1);
}

#[test]
fn on_missing_rule_set_is_reloaded() {
    let service = Service::start(&[], &file(&[("api", 10)]));
    let body = r#"{"rule_set":"unknown"}"#;
    let mut http = service.http();
    assert!(http.post("/v1/check", body).body.contains("no_rule"));
    let changed = LISTEN.to_owned() + "on_missing_rule_set: deny\n" + &file(&[("api", 10)]);
    replace(&service, "fluxgate.yaml", &changed);
    wait_until("missing sets are denied", || {
        http.post("/v1/check", body)
            .body
            .contains("\"allowed\":false")
    });
}

#[test]
fn overrides_still_apply_after_a_reload() {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", LISTEN.to_owned() + &file(&[("api", 10)]));
    let arguments = [
        "run",
        "--config",
        "fluxgate.yaml",
        "--set",
        "on_missing_rule_set=deny",
    ];
    let service = Service::run_in(dir, &arguments, 1);
    replace(
        &service,
        "fluxgate.yaml",
        &(LISTEN.to_owned() + &file(&[("api", 20)])),
    );
    wait_for_limit(&service, "api", 20);
    let answer = service
        .http()
        .post("/v1/check", r#"{"rule_set":"unknown"}"#);
    assert!(answer.body.contains("\"allowed\":false"), "{answer:?}");
}

#[test]
fn an_invalid_file_is_refused_and_the_last_valid_rules_stay() {
    let service = Service::start(&[], &file(&[("api", 10)]));
    let bad = LISTEN.to_owned() + &file(&[("api", 20)]).replace("fixed_window", "nonsense");
    replace(&service, "fluxgate.yaml", &bad);
    let line = service.wait_for_refusals(1).remove(0);
    let fault = line["fault"].as_str().unwrap();
    assert!(fault.starts_with("fluxgate.yaml:5:"), "{fault}");
    assert!(fault.contains("nonsense"), "{fault}");
    assert_eq!(limit(&mut service.http(), "api"), Some(10));
    // Reported once, until SIGHUP forces a reload.
    service.program.signal("HUP");
    service.wait_for_refusals(2);
    replace(
        &service,
        "fluxgate.yaml",
        &(LISTEN.to_owned() + &file(&[("api", 20)])),
    );
    wait_for_limit(&service, "api", 20);
    assert_eq!(service.refusals().len(), 2);
}

#[test]
fn a_truncated_file_is_refused() {
    let good = LISTEN.to_owned() + &file(&[("api", 10)]);
    let service = Service::start(&[], &file(&[("api", 10)]));
    // Replaced at once: a write in place may also be seen as an empty file.
    let empty_rules = LISTEN.to_owned() + "rule_sets:\n";
    let contents = [&good[..good.len() - 20], "", &empty_rules];
    for (index, content) in contents.into_iter().enumerate() {
        replace(&service, "fluxgate.yaml", content);
        service.wait_for_refusals(index + 1);
    }
    let fault = service.refusals()[2]["fault"].clone();
    let fault = fault.as_str().unwrap();
    assert!(fault.contains("`rule_sets: {}`"), "{fault}");
    assert_eq!(limit(&mut service.http(), "api"), Some(10));
    let metric = "fluxgate_config_last_reload_successful 0\n";
    assert!(service.http().get("/metrics").body.contains(metric));
    service.dir.write("fluxgate.yaml", &good);
    service.wait_for_log("the rules are unchanged");
}

#[test]
fn a_missing_file_is_reported_and_the_last_valid_rules_stay() {
    let service = Service::start(&[], &file(&[("api", 10)]));
    fs::remove_file(service.dir.path("fluxgate.yaml")).unwrap();
    let line = service.wait_for_refusals(1).remove(0);
    assert!(line["why"].as_str().unwrap().contains("fluxgate.yaml"));
    assert_eq!(limit(&mut service.http(), "api"), Some(10));
    service
        .dir
        .write("fluxgate.yaml", LISTEN.to_owned() + &file(&[("api", 20)]));
    wait_for_limit(&service, "api", 20);
}

#[test]
fn sighup_reloads_and_does_not_replace_equal_rules() {
    let service = Service::start(&[], &file(&[("api", 10)]));
    service.program.signal("HUP");
    service.wait_for_log("the rules are unchanged");
    assert_eq!(service.logs(ACTIVE).len(), 1);
    assert_eq!(service.http().get("/readyz").status, 200);
}

/// As Kubernetes mounts a volume: `..data` is a link that is replaced, and the files are
/// links through it.
#[test]
fn a_replaced_symlink_is_noticed() {
    for from_dir in [false, true] {
        let dir = Dir::new();
        let (config, content): (String, fn(u32) -> String) = if from_dir {
            ("fluxgate.yaml".into(), |capacity| {
                file(&[("api", capacity)])
            })
        } else {
            ("volume/rules.yaml".into(), |capacity| {
                LISTEN.to_owned() + &file(&[("api", capacity)])
            })
        };
        for version in ["volume/..1", "volume/..2"] {
            fs::create_dir_all(dir.path(version)).unwrap();
        }
        dir.write("volume/..1/rules.yaml", content(10));
        dir.write("volume/..2/rules.yaml", content(20));
        symlink("..1", dir.path("volume/..data")).unwrap();
        symlink("..data/rules.yaml", dir.path("volume/rules.yaml")).unwrap();
        if from_dir {
            // So long that only the watch can notice the change.
            let poll = "rules_from: { dir: volume, poll: 1h }\n";
            dir.write("fluxgate.yaml", LISTEN.to_owned() + poll);
        }
        let service = Service::run_in(dir, &["run", "--config", &config], 1);
        wait_for_limit(&service, "api", 10);
        symlink("..2", service.dir.path("volume/..tmp")).unwrap();
        let (new, old) = (
            service.dir.path("volume/..tmp"),
            service.dir.path("volume/..data"),
        );
        fs::rename(new, old).unwrap();
        wait_for_limit(&service, "api", 20);
        assert_eq!(service.refusals(), [Value::Null; 0]);
    }
}

fn start_dir(poll: &str, files: &[(&str, String)]) -> Service {
    let dir = Dir::new();
    fs::create_dir(dir.path("rules.d")).unwrap();
    for (name, content) in files {
        dir.write(&format!("rules.d/{name}"), content);
    }
    Service::start_in(
        dir,
        &[],
        &format!("rules_from: {{ dir: rules.d, poll: {poll} }}\n"),
    )
}

#[test]
fn changes_of_files_in_a_directory_are_noticed() {
    let service = start_dir(
        "1h",
        &[
            ("a.yaml", file(&[("a", 10)])),
            ("notes.txt", "no rules".into()),
            (".hidden.yaml", "no rules".into()),
        ],
    );
    wait_for_limit(&service, "a", 10);
    service
        .dir
        .write("rules.d/b.yaml", file(&[("b", 5), ("c", 6)]));
    wait_for_limit(&service, "b", 5);
    assert_eq!(limit(&mut service.http(), "c"), Some(6));
    replace(&service, "rules.d/a.yaml", &file(&[("a", 11)]));
    wait_for_limit(&service, "a", 11);
    fs::remove_file(service.dir.path("rules.d/b.yaml")).unwrap();
    let mut http = service.http();
    wait_until("the set is gone", || limit(&mut http, "b").is_none());
    assert_eq!(service.refusals(), [Value::Null; 0]);
}

#[test]
fn a_set_in_two_files_is_refused_and_both_are_named() {
    let service = start_dir("1h", &[("a.yaml", file(&[("a", 10)]))]);
    service.dir.write("rules.d/b.yaml", file(&[("a", 20)]));
    let line = service.wait_for_refusals(1).remove(0);
    assert_eq!(
        line["fault"],
        "rules.d/b.yaml:2:3: rule set `a` is already in rules.d/a.yaml"
    );
    assert_eq!(limit(&mut service.http(), "a"), Some(10));
}

#[test]
fn one_invalid_file_refuses_the_directory_and_all_faults_are_reported() {
    let service = start_dir("1h", &[("a.yaml", file(&[("a", 10)]))]);
    fs::create_dir(service.dir.path("new")).unwrap();
    service.dir.write("new/a.yaml", file(&[("a", 20)]));
    service.dir.write("new/b.yaml", "rule_sets: [");
    service.dir.write(
        "new/c.yaml",
        file(&[("c", 1)]).replace("capacity: 1", "capacity: 0"),
    );
    service
        .dir
        .write("new/d.yaml", "on_missing_rule_set: deny\nrule_sets: {}\n");
    // All at once, by replacing the directory.
    fs::rename(service.dir.path("rules.d"), service.dir.path("old")).unwrap();
    fs::rename(service.dir.path("new"), service.dir.path("rules.d")).unwrap();
    let mut faults = Vec::new();
    wait_until("all three faults", || {
        let lines = service.refusals();
        let logged = lines.iter().filter_map(|line| line["fault"].as_str());
        faults = logged.map(str::to_owned).collect();
        faults.len() == 3
    });
    for (fault, start) in faults.iter().zip(["b.yaml:", "c.yaml:4:", "d.yaml:1:1:"]) {
        assert!(fault.starts_with(&format!("rules.d/{start}")), "{fault}");
    }
    assert_eq!(limit(&mut service.http(), "a"), Some(10));
}

#[test]
fn a_missing_or_empty_directory_lifts_no_limit() {
    let service = start_dir("1h", &[("a.yaml", file(&[("a", 10)]))]);
    fs::rename(service.dir.path("rules.d"), service.dir.path("away")).unwrap();
    let line = service.wait_for_refusals(1).remove(0);
    assert!(line["why"].as_str().unwrap().starts_with("rules.d: "));
    assert_eq!(limit(&mut service.http(), "a"), Some(10));
    fs::create_dir(service.dir.path("rules.d")).unwrap();
    let lines = service.wait_for_refusals(2);
    assert!(
        lines[1]["why"]
            .as_str()
            .unwrap()
            .contains("no *.yaml any more")
    );
    assert_eq!(limit(&mut service.http(), "a"), Some(10));
    // A new directory of the same name is watched again.
    service.dir.write("rules.d/a.yaml", file(&[("a", 20)]));
    wait_for_limit(&service, "a", 20);
    service.dir.write("rules.d/a.yaml", "rule_sets: {}");
    let mut http = service.http();
    wait_until("no rules at all", || limit(&mut http, "a").is_none());
}

#[test]
fn polling_alone_is_sufficient() {
    // As on a network file system, which does not report writes of other machines.
    let service = start_dir("100ms", &[]);
    service.dir.write("elsewhere.yaml", file(&[("a", 10)]));
    let (there, here) = (
        service.dir.path("elsewhere.yaml"),
        service.dir.path("rules.d/a.yaml"),
    );
    fs::hard_link(&there, &here).unwrap();
    wait_for_limit(&service, "a", 10);
    // inotify reports only the directory through which the file was written.
    service.dir.write("elsewhere.yaml", file(&[("a", 20)]));
    wait_for_limit(&service, "a", 20);
}

#[test]
fn invalid_rules_prevent_the_start_and_all_faults_are_reported() {
    let dir = Dir::new();
    fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write(
        "rules.d/a.yaml",
        file(&[("a", 1)]).replace("capacity: 1", "capacity: 0"),
    );
    dir.write("rules.d/b.yaml", "rule_sets: 5");
    dir.write(
        "fluxgate.yaml",
        LISTEN.to_owned() + "rules_from: { dir: rules.d }\n",
    );
    let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(78), "{run:?}");
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{run:?}");
    assert!(lines[0].starts_with("rules.d/a.yaml:4:") && lines[1].starts_with("rules.d/b.yaml:1:"));
    dir.write(
        "fluxgate.yaml",
        LISTEN.to_owned() + "rules_from: { dir: nowhere }\n",
    );
    let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(66), "{run:?}");
}

#[test]
fn a_hundred_changes_lose_no_request_and_no_units() {
    let dir = Dir::new();
    fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write("rules.d/kept.yaml", file(&[("kept", 1_000_000)]));
    let service = Service::start_in(dir, &[], "rules_from: { dir: rules.d, poll: 1h }\n");
    let (mut http, mut observer) = (service.http(), service.http());
    let done = std::sync::atomic::AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut sent = 0_u64;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let answer = http.post("/v1/check", r#"{"rule_set":"kept","user":"u"}"#);
                assert_eq!(answer.status, 200, "{answer:?}");
                sent += 1;
                let answer: Value = serde_json::from_str(&answer.body).unwrap();
                assert_eq!(answer["remaining"], 1_000_000 - sent, "after {sent}");
            }
            sent
        });
        for change in 1..=100 {
            replace(&service, "rules.d/other.yaml", &file(&[("other", change)]));
            wait_until("the change", || {
                limit(&mut observer, "other") == Some(change.into())
            });
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        client.join().unwrap()
    });
    assert!(sent > 100, "{sent}");
}

#[test]
fn only_rules_with_reset_on_change_start_again() {
    let rules = |name: &str| {
        format!(
            "rule_sets:
  api:
    rules:
      - {{ id: fresh, name: {name}, scope: per_user, algorithm: fixed_window, reset_on_change: true, bands: [ {{ capacity: 5, window: 30d }} ] }}
      - {{ id: kept, name: {name}, scope: per_user, algorithm: fixed_window, bands: [ {{ capacity: 9, window: 30d }} ] }}
"
        )
    };
    let service = Service::start(&[], &rules("one"));
    let mut http = service.http();
    http.post("/v1/check", r#"{"user":"u"}"#);
    let remaining = |http: &mut Http, rule: &str| {
        let path = format!("/v1/state?rule_set=api&rule={rule}&identity=u");
        let state: Value = serde_json::from_str(&http.get(&path).body).unwrap();
        state["bands"][0]["remaining"].as_u64()
    };
    assert_eq!(remaining(&mut http, "fresh"), Some(4));
    replace(
        &service,
        "fluxgate.yaml",
        &(LISTEN.to_owned() + &rules("two")),
    );
    wait_until("the rule starts again", || {
        remaining(&mut http, "fresh") == Some(5)
    });
    assert_eq!(remaining(&mut http, "kept"), Some(8));
}
