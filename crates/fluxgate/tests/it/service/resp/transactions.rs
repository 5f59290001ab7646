//! `MULTI`: what waits for `EXEC` is charged by `EXEC` alone.

use fluxgate_testkit::{Cli, RedisServer, Reply};

use super::{ask, ask_all, connect, integers, start};

const NO_RULES: &str = "rule_sets: {}\n";

/// What is left of a key of ten.
fn left(cli: &mut Cli, key: &str) -> i64 {
    integers(&ask(cli, &format!("CL.THROTTLE {key} 9 1 100000 0")))[2]
}

#[test]
fn what_waits_for_exec_is_charged_by_exec_alone() {
    let server = RedisServer::start();
    let redis = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        server.url()
    );
    for store in ["", &redis] {
        let (service, mut cli) = start(&format!("{store}{NO_RULES}"));
        let mut other = connect(&service);
        assert_eq!(ask(&mut cli, "MULTI").text(), "OK");
        for key in ["a", "b", "a"] {
            let queued = ask(&mut cli, &format!("CL.THROTTLE {key} 9 1 100000"));
            assert_eq!(queued.text(), "QUEUED");
        }
        assert_eq!(ask(&mut cli, "PING").text(), "QUEUED");
        assert_eq!((left(&mut other, "a"), left(&mut other, "b")), (10, 10));
        let replies = ask(&mut cli, "EXEC");
        let replies = replies.array();
        let remaining: Vec<_> = replies[..3]
            .iter()
            .map(|reply| integers(reply)[2])
            .collect();
        assert_eq!(remaining, [9, 9, 8]);
        assert_eq!(replies[3].text(), "PONG");
        assert_eq!((left(&mut other, "a"), left(&mut other, "b")), (8, 9));
        assert_eq!(left(&mut cli, "a"), 8);
    }
}

#[test]
fn what_is_discarded_or_broken_off_is_not_charged() {
    let (service, mut cli) = start(NO_RULES);
    let take = "CL.THROTTLE k 9 1 100000";
    let replies = ask_all(&mut cli, &["MULTI", take, "DISCARD", "PING"]);
    let texts: Vec<_> = replies.iter().map(Reply::text).collect();
    assert_eq!(texts, ["OK", "QUEUED", "OK", "PONG"]);
    // A command that cannot run keeps the others from running.
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    for bad in ["CL.THROTTLE k", "HELLO 3", "INFO"] {
        let replies = ask_all(&mut cli, &["MULTI", take, bad, take, "EXEC"]);
        assert!(replies[2].error().is_some(), "{bad}");
        assert_eq!(replies[4].error(), Some(aborted), "{bad}");
    }
    let unknown = ["MULTI", "GET x", take, "EXEC"].map(|line| ask(&mut cli, line));
    assert_eq!(unknown[3].error(), Some(aborted));
    let replies = ask_all(&mut cli, &["MULTI", take, "RESET", "EXEC"]);
    assert_eq!(replies[3].error(), Some("ERR EXEC without MULTI"));
    // Nor is what a connection leaves behind.
    let mut leaves = connect(&service);
    ask_all(&mut leaves, &["MULTI", take]);
    drop(leaves);
    let mut quits = connect(&service);
    assert_eq!(
        ask_all(&mut quits, &["MULTI", take, "QUIT"])[2].text(),
        "OK"
    );
    assert_eq!(left(&mut cli, "k"), 10);
}

#[test]
fn what_fails_in_exec_keeps_no_other_from_running() {
    let (_service, mut cli) = start(NO_RULES);
    let lines = [
        "MULTI",
        "CL.THROTTLE k 9 1 100000",
        "CL.THROTTLE k 9 0 1",
        "FG.CHECK x ip y",
        "EXEC",
    ];
    let replies = ask_all(&mut cli, &lines);
    let replies = replies[4].array();
    assert_eq!(integers(&replies[0])[..3], [0, 10, 9]);
    assert_eq!(
        replies[1].error(),
        Some("ERR count must be from 1 to 1000000000")
    );
    assert_eq!(replies[2].error(), Some("ERR `ip` is no address"));
    assert_eq!(left(&mut cli, "k"), 9);
}

#[test]
fn what_waits_is_bounded() {
    let (_service, mut cli) = start(NO_RULES);
    let take = "CL.THROTTLE k 9 1 100000";
    assert_eq!(ask(&mut cli, "MULTI").text(), "OK");
    for _ in 0..1024 {
        cli.send(&["PING"]).unwrap();
    }
    for _ in 0..1024 {
        assert_eq!(cli.receive().unwrap().text(), "QUEUED");
    }
    let error = "ERR a transaction has at most 1024 commands and 131072 bytes";
    assert_eq!(ask(&mut cli, take).error(), Some(error));
    assert!(
        ask(&mut cli, "EXEC")
            .error()
            .unwrap()
            .starts_with("EXECABORT")
    );
    let long = "x".repeat(60_000);
    assert_eq!(ask(&mut cli, "MULTI").text(), "OK");
    for _ in 0..2 {
        assert_eq!(cli.command(&["ECHO", &long]).text(), "QUEUED");
    }
    assert_eq!(cli.command(&["ECHO", &long]).error(), Some(error));
    assert!(
        ask(&mut cli, "EXEC")
            .error()
            .unwrap()
            .starts_with("EXECABORT")
    );
    assert_eq!(left(&mut cli, "k"), 10);
}

#[test]
fn words_of_transactions_are_answered_as_redis_does() {
    let (_service, mut cli) = start(NO_RULES);
    for (line, error) in [
        ("EXEC", "ERR EXEC without MULTI"),
        ("DISCARD", "ERR DISCARD without MULTI"),
        (
            "MULTI now",
            "ERR wrong number of arguments for 'multi' command",
        ),
        (
            "WATCH k",
            "ERR WATCH is not supported: keys cannot be watched",
        ),
    ] {
        assert_eq!(ask(&mut cli, line).error(), Some(error), "{line}");
    }
    assert_eq!(ask(&mut cli, "UNWATCH").text(), "OK");
    let replies = ask_all(&mut cli, &["MULTI", "MULTI", "WATCH k", "EXEC"]);
    assert_eq!(
        replies[1].error(),
        Some("ERR MULTI calls can not be nested")
    );
    assert_eq!(
        replies[2].error(),
        Some("ERR WATCH inside MULTI is not allowed")
    );
    assert!(replies[3].array().is_empty());
}
