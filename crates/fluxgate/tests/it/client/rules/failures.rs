//! Files, services and writers that prevent a change.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::*;

/// A file with two sets. The second has two faults.
const FAULTY: &str = "rule_sets:
  a:
    rules:
      - { id: r, scope: global, bands: [ 1/s ] }
  b:
    rules:
      - { id: r, scope: everyone, bands: [ 1/s ] }
      - { id: q, scope: global, bands: [ 0/s ] }
";

#[test]
fn a_file_with_a_fault_changes_nothing() {
    let stored = Stored::start();
    stored.write("faulty.yaml", FAULTY);
    fs::write(
        stored.service.dir.path("binary.yaml"),
        b"rule_sets:\n  \xff",
    )
    .unwrap();
    stored.write("text.yaml", "rule_sets: [\n");
    stored.write("empty.yaml", "");
    stored.write(
        "config.yaml",
        &format!("listen: {{}}\n{}", file(&[("a", 1)])),
    );
    fs::create_dir(stored.service.dir.path("dir")).unwrap();
    for (name, code, message) in [
        ("faulty.yaml", 78, "faulty.yaml:7:25: "),
        ("faulty.yaml", 78, "faulty.yaml:8:"),
        ("binary.yaml", 78, "binary.yaml:2:3: not UTF-8"),
        ("text.yaml", 78, "text.yaml:"),
        ("empty.yaml", 78, "empty.yaml:1:1: "),
        ("config.yaml", 78, "config.yaml:1:1: "),
        ("none.yaml", 66, "none.yaml: No such file"),
        ("dir", 66, "dir: "),
    ] {
        for command in [
            &["diff", name][..],
            &["apply", name],
            &["apply", name, "--dry-run"],
        ] {
            let run = stored.expect(code, command);
            assert!(run.stderr.contains(message), "{command:?}: {run:?}");
            assert_eq!(run.stdout, "");
        }
    }
    assert_eq!(stored.stored("a"), Value::Null);
    // A service that cannot be reached does not matter for the faults of a file.
    let run = stored.run_at("http://127.0.0.1:1", &["apply", "faulty.yaml"]);
    assert_eq!(run.code, Some(78), "{run:?}");
}

#[test]
fn a_set_that_is_too_large_prevents_all_writes() {
    let stored = Stored::start();
    let users: Vec<_> = (0..9000).map(|number| format!("user-{number}")).collect();
    let large = format!(
        "{}  large:\n    lists: {{ users: [{}] }}\n    rules: [ {{ id: r, action: deny, match: {{ user: {{ in: users }} }} }} ]\n",
        file(&[("small", 1)]),
        users.join(", ")
    );
    stored.write("rules.yaml", &large);
    let run = stored.expect(65, &["apply", "rules.yaml"]);
    assert!(
        run.stderr.contains("rules.yaml: rule set `large` has")
            && run.stderr.contains("at most 65536; nothing was written"),
        "{run:?}"
    );
    assert_eq!(stored.stored("small"), Value::Null);
    stored.expect(1, &["diff", "rules.yaml"]);
}

#[test]
fn a_change_of_another_writer_is_not_overwritten() {
    let stored = Stored::start();
    stored.write("rules.yaml", &file(&[("a", 1), ("b", 1), ("c", 1)]));
    let address = stored.service.address("api");
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    let proxy = forward_to(address, move |line| {
        if line.starts_with("PUT /v1/rule_sets/b ") && !done.swap(true, Ordering::Relaxed) {
            put(address, "b", &set(99));
        }
        Interference::None
    });
    let run = stored.run_at(&url(proxy), &["apply", "rules.yaml"]);
    assert_eq!(run.code, Some(75), "{run:?}");
    assert!(run.stdout.contains("+ a/r: added") && !run.stdout.contains("b/r"));
    for part in [
        ": 412: the precondition does not hold",
        "\nrule set `b` was changed by another writer after it was read; compare it and apply again\n",
        "\nwritten: `a`\n",
        "\nnot written: `b`, `c`\n",
    ] {
        assert!(run.stderr.contains(part), "{part}: {run:?}");
    }
    let capacity = |set: &str| stored.stored(set)["rules"][0]["bands"][0]["capacity"].clone();
    assert_eq!((capacity("a"), capacity("b")), (json!(1), json!(99)));
    assert_eq!(stored.stored("c"), Value::Null);
    // The next run sees what the other has written.
    let run = stored.run_at(&url(proxy), &["apply", "rules.yaml"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.starts_with("~ b/r: changed\n"), "{run:?}");
    // A deletion, and JSON.
    stored.write("rules.yaml", &file(&[("a", 2), ("c", 1)]));
    is_done.store(false, Ordering::Relaxed);
    let done = Arc::clone(&is_done);
    let proxy = forward_to(address, move |line| {
        if line.starts_with("DELETE /v1/rule_sets/b ") && !done.swap(true, Ordering::Relaxed) {
            put(address, "b", &set(98));
        }
        Interference::None
    });
    let run = stored.run_at(&url(proxy), &["apply", "rules.yaml", "--prune", "--json"]);
    assert_eq!(run.code, Some(75), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["written"][0]["rule_set"], "a");
    assert_eq!(report["not_written"], json!(["b"]));
    assert!(report["error"].as_str().unwrap().contains("another writer"));
    assert_eq!(capacity("b"), json!(98));
}

/// The service has written it, but the client cannot know.
#[test]
fn a_lost_response_is_reported() {
    let stored = Stored::start();
    stored.write("rules.yaml", &file(&[("a", 1), ("b", 1)]));
    let proxy = forward_to(stored.service.address("api"), |line| {
        if line.starts_with("PUT /v1/rule_sets/b ") {
            Interference::Close
        } else {
            Interference::None
        }
    });
    let run = stored.run_at(&url(proxy), &["apply", "rules.yaml"]);
    assert_eq!(run.code, Some(69), "{run:?}");
    assert!(
        run.stderr
            .contains("\nit is not known whether rule set `b` was written\nwritten: `a`\n"),
        "{run:?}"
    );
}

/// Another stored set is invalid, so that new rules are stored but do not become active.
#[test]
fn a_change_that_does_not_become_active_is_reported() {
    let stored = Stored::start();
    stored.put("bad", &set(1));
    let mut cli = stored.redis.cli();
    let bad = set(1).replace("fixed_window", "nonsense");
    let key = "fluxgate:1:{rules}:set:bad";
    cli.command(&["SET", key, &bad]).expect_ok();
    let etag = fluxgate_redis::etag_of(&bad);
    cli.command(&["HSET", "fluxgate:1:{rules}:index", "bad", &etag, "", "v"]);
    stored.write("rules.yaml", &file(&[("a", 1)]));
    let run = stored.expect(69, &["apply", "rules.yaml"]);
    assert!(run.stderr.contains("stored, but not active yet"), "{run:?}");
    assert!(run.stdout.contains("+ a/r: added"), "{run:?}");
    // A file with all sets repairs it.
    stored.write("rules.yaml", &file(&[("a", 2), ("bad", 2)]));
    let run = stored.expect(0, &["apply", "rules.yaml"]);
    assert!(run.stdout.contains("+ bad/r: added"), "{run:?}");
}

#[test]
fn a_missing_permission_or_service_has_its_own_code() {
    let stored = Stored::start();
    stored.write("rules.yaml", &file(&[("a", 1)]));
    stored.write("wrong", "wrong\n");
    let commands = [
        &["diff", "rules.yaml"][..],
        &["apply", "rules.yaml"],
        &["apply", "rules.yaml", "--dry-run"],
        &["rollback", "a"],
    ];
    let live = stored.url();
    for command in commands {
        for (server, token, code, message) in [
            (
                "http://127.0.0.1:1",
                "token",
                69,
                "http://127.0.0.1:1: cannot connect",
            ),
            ("ftp://x", "token", 65, "is not an address such as"),
            (&live, "wrong", 77, ": 401: "),
            (&live, "none", 66, "--token-file: none: "),
        ] {
            let options = ["--server", server, "--token-file", token];
            let run = stored
                .service
                .dir
                .run(&[&["rules"], command, &options].concat());
            assert_eq!(run.code, Some(code), "{command:?} {server}: {run:?}");
            assert!(run.stderr.contains(message), "{command:?}: {run:?}");
        }
    }
    let viewer = ["--server", &live, "--token-file", "viewer"];
    let run = |command: &[&str]| {
        stored
            .service
            .dir
            .run(&[&["rules"], command, &viewer].concat())
    };
    assert_eq!(run(&["diff", "rules.yaml"]).code, Some(1));
    assert_eq!(run(&["apply", "rules.yaml", "--dry-run"]).code, Some(1));
    let refused = run(&["apply", "rules.yaml"]);
    assert_eq!(refused.code, Some(77), "{refused:?}");
    assert!(
        refused.stderr.contains("this needs the role admin")
            && refused.stderr.contains("nothing was written"),
        "{refused:?}"
    );
    assert_eq!(stored.stored("a"), Value::Null);
}

/// Rules in a file are compared, but cannot be changed over the API.
#[test]
fn rules_from_files_are_compared_only() {
    let service = Service::start(&[], &file(&[("api", 1), ("더", 2)]));
    let url = url(service.address("api"));
    service.dir.write("same.yaml", file(&[("api", 1)]));
    service.dir.write("other.yaml", file(&[("api", 5)]));
    let run = |arguments: &[&str]| {
        let server = ["--server", &url];
        service.dir.run(&[&["rules"], arguments, &server].concat())
    };
    let why = "the rules come from the config file fluxgate.yaml; they are read and written there";
    let same = run(&["diff", "same.yaml"]);
    assert_eq!((same.code, &*same.stdout), (Some(0), ""), "{same:?}");
    assert!(same.stderr.contains(&format!(": note: {why}")), "{same:?}");
    let other = run(&["diff", "other.yaml", "--prune"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert_eq!(
        other.stdout,
        "~ api/r: changed\n    bands: [{ capacity: 1, window: 30d }] -> [{ capacity: 5, window: 30d }]\n\
         - 더: rule set removed\n- 더/r: removed\n"
    );
    for command in [
        &["apply", "other.yaml"][..],
        &["apply", "other.yaml", "--dry-run"],
        &["rollback", "api"],
    ] {
        let refused = run(command);
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
}
