//! `MULTI`, `EXEC` and `DISCARD`.

use fluxgate_testkit::{Cli, RedisServer, Reply};

use super::{connect, integers, run, run_all, start};

const NO_RULES: &str = "rule_sets: {}\n";

/// Returns the remaining units of a key with a capacity of ten.
fn remaining(cli: &mut Cli, key: &str) -> i64 {
    integers(&run(cli, &format!("CL.THROTTLE {key} 9 1 100000 0")))[2]
}

#[test]
fn queued_commands_are_charged_only_by_exec() {
    let server = RedisServer::start();
    let redis = format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
        server.url()
    );
    for store in ["", &redis] {
        let (service, mut cli) = start(&format!("{store}{NO_RULES}"));
        let mut other = connect(&service);
        assert_eq!(run(&mut cli, "MULTI").text(), "OK");
        for key in ["a", "b", "a"] {
            let queued = run(&mut cli, &format!("CL.THROTTLE {key} 9 1 100000"));
            assert_eq!(queued.text(), "QUEUED");
        }
        assert_eq!(run(&mut cli, "PING").text(), "QUEUED");
        assert_eq!(
            (remaining(&mut other, "a"), remaining(&mut other, "b")),
            (10, 10)
        );
        let replies = run(&mut cli, "EXEC");
        let replies = replies.array();
        let replied: Vec<_> = replies[..3]
            .iter()
            .map(|reply| integers(reply)[2])
            .collect();
        assert_eq!(replied, [9, 9, 8]);
        assert_eq!(replies[3].text(), "PONG");
        assert_eq!(
            (remaining(&mut other, "a"), remaining(&mut other, "b")),
            (8, 9)
        );
        assert_eq!(remaining(&mut cli, "a"), 8);
    }
}

#[test]
fn discarded_and_aborted_commands_are_not_charged() {
    let (service, mut cli) = start(NO_RULES);
    let take = "CL.THROTTLE k 9 1 100000";
    let replies = run_all(&mut cli, &["MULTI", take, "DISCARD", "PING"]);
    let texts: Vec<_> = replies.iter().map(Reply::text).collect();
    assert_eq!(texts, ["OK", "QUEUED", "OK", "PONG"]);
    // A command that cannot be queued aborts the transaction.
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    for bad in ["CL.THROTTLE k", "HELLO 3", "INFO"] {
        let replies = run_all(&mut cli, &["MULTI", take, bad, take, "EXEC"]);
        assert!(replies[2].error().is_some(), "{bad}");
        assert_eq!(replies[4].error(), Some(aborted), "{bad}");
    }
    let unknown = ["MULTI", "GET x", take, "EXEC"].map(|line| run(&mut cli, line));
    assert_eq!(unknown[3].error(), Some(aborted));
    let replies = run_all(&mut cli, &["MULTI", take, "RESET", "EXEC"]);
    assert_eq!(replies[3].error(), Some("ERR EXEC without MULTI"));
    // A connection that closes discards its transaction.
    let mut closed = connect(&service);
    run_all(&mut closed, &["MULTI", take]);
    drop(closed);
    let mut quit = connect(&service);
    assert_eq!(run_all(&mut quit, &["MULTI", take, "QUIT"])[2].text(), "OK");
    assert_eq!(remaining(&mut cli, "k"), 10);
}

#[test]
fn a_command_that_fails_in_exec_does_not_stop_the_others() {
    let (_service, mut cli) = start(NO_RULES);
    let lines = [
        "MULTI",
        "CL.THROTTLE k 9 1 100000",
        "CL.THROTTLE k 9 0 1",
        "FG.CHECK x ip y",
        "EXEC",
    ];
    let replies = run_all(&mut cli, &lines);
    let replies = replies[4].array();
    assert_eq!(integers(&replies[0])[..3], [0, 10, 9]);
    assert_eq!(
        replies[1].error(),
        Some("ERR count must be from 1 to 1000000000")
    );
    assert_eq!(replies[2].error(), Some("ERR `ip` is not an IP address"));
    assert_eq!(remaining(&mut cli, "k"), 9);
}

#[test]
fn the_number_and_size_of_queued_commands_are_bounded() {
    let (_service, mut cli) = start(NO_RULES);
    let take = "CL.THROTTLE k 9 1 100000";
    assert_eq!(run(&mut cli, "MULTI").text(), "OK");
    for _ in 0..1024 {
        cli.send(&["PING"]).unwrap();
    }
    for _ in 0..1024 {
        assert_eq!(cli.receive().unwrap().text(), "QUEUED");
    }
    let error = "ERR a transaction has at most 1024 commands and 131072 bytes";
    assert_eq!(run(&mut cli, take).error(), Some(error));
    assert!(
        run(&mut cli, "EXEC")
            .error()
            .unwrap()
            .starts_with("EXECABORT")
    );
    let long = "x".repeat(60_000);
    assert_eq!(run(&mut cli, "MULTI").text(), "OK");
    for _ in 0..2 {
        assert_eq!(cli.command(&["ECHO", &long]).text(), "QUEUED");
    }
    assert_eq!(cli.command(&["ECHO", &long]).error(), Some(error));
    assert!(
        run(&mut cli, "EXEC")
            .error()
            .unwrap()
            .starts_with("EXECABORT")
    );
    assert_eq!(remaining(&mut cli, "k"), 10);
}

#[test]
fn transaction_commands_are_answered_like_redis_does() {
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
        assert_eq!(run(&mut cli, line).error(), Some(error), "{line}");
    }
    assert_eq!(run(&mut cli, "UNWATCH").text(), "OK");
    let replies = run_all(&mut cli, &["MULTI", "MULTI", "WATCH k", "EXEC"]);
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
