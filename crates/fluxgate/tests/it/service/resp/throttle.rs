//! `CL.THROTTLE`, compared with redis-cell field by field.

use fluxgate_testkit::RedisServer;

use super::{integers, run, run_all, start};

const NO_RULES: &str = "rule_sets: {}\n";

#[test]
fn the_example_of_redis_cell_gets_the_documented_reply() {
    let (_service, mut cli) = start(NO_RULES);
    let reply = run(&mut cli, "CL.THROTTLE user123 15 30 60");
    assert_eq!(integers(&reply), [0, 16, 15, -1, 2]);
    // Another key, with the default quantity.
    let reply = run(&mut cli, "cl.throttle user124 15 30 60 1");
    assert_eq!(integers(&reply), [0, 16, 15, -1, 2]);
}

#[test]
fn a_limit_of_one_gets_the_replies_of_redis_cell() {
    let (_service, mut cli) = start(NO_RULES);
    let replies = run_all(&mut cli, &["CL.THROTTLE user123 0 1 2 1"; 2]);
    assert_eq!(integers(&replies[0]), [0, 1, 0, -1, 2]);
    assert_eq!(integers(&replies[1]), [1, 1, 0, 2, 2]);
}

#[test]
fn every_field_follows_the_bucket() {
    // Five units, one of which is refilled every hundred seconds.
    let cases = [
        ("6", [1, 5, 5, -1, 0], "more than the capacity"),
        ("1", [0, 5, 4, -1, 100], ""),
        ("1", [0, 5, 3, -1, 200], ""),
        ("2", [0, 5, 1, -1, 400], ""),
        ("1", [0, 5, 0, -1, 500], ""),
        ("1", [1, 5, 0, 100, 500], ""),
        ("2", [1, 5, 0, 200, 500], "a denial costs nothing"),
        ("0", [0, 5, 0, -1, 500], "a peek"),
        ("6", [1, 5, 0, -1, 500], "never allowed"),
        ("9223372036854775807", [1, 5, 0, -1, 500], ""),
    ];
    let (_service, mut cli) = start(NO_RULES);
    let commands = cases.map(|(quantity, ..)| format!("CL.THROTTLE key 4 1 100 {quantity}"));
    let commands = commands.each_ref().map(String::as_str);
    let replies = run_all(&mut cli, &commands);
    for ((quantity, expected, why), reply) in cases.iter().zip(&replies) {
        assert_eq!(integers(reply), expected, "{quantity}: {why}");
    }
}

#[test]
fn seconds_are_rounded_up() {
    let (_service, mut cli) = start(NO_RULES);
    // A unit is refilled every 1.5 s.
    let replies = run_all(&mut cli, &["CL.THROTTLE key 0 2 3"; 2]);
    assert_eq!(integers(&replies[0]), [0, 1, 0, -1, 2]);
    assert_eq!(integers(&replies[1]), [1, 1, 0, 2, 2]);
}

#[test]
fn a_key_keeps_its_state_when_its_limit_changes() {
    let (_service, mut cli) = start(NO_RULES);
    let commands = ["CL.THROTTLE key 9 1 100 8", "CL.THROTTLE key 9 1 400 0"];
    let replies = run_all(&mut cli, &commands);
    assert_eq!(integers(&replies[0]), [0, 10, 2, -1, 800]);
    // It is full in 800 s, whatever the rate.
    assert_eq!(integers(&replies[1]), [0, 10, 8, -1, 800]);
}

/// As in redis-cell 0.5, a call with a smaller limit does not reduce the debt.
#[test]
fn a_call_with_a_smaller_limit_keeps_the_debt() {
    let server = RedisServer::start();
    let url = server.url();
    let redis = format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n");
    for store in ["", &redis] {
        let (service, mut cli) = start(&format!("{store}{NO_RULES}"));
        for (numbers, expected) in [
            ("99 1 100 100", [0, 100, 0, -1, 10_000]),
            ("0 1 100", [1, 1, 0, 10_000, 10_000]),
            ("0 10 1", [1, 1, 0, 10_000, 10_000]),
            ("99 1 100", [1, 100, 0, 100, 10_000]),
        ] {
            let reply = run(&mut cli, &format!("CL.THROTTLE key {numbers}"));
            let reply = integers(&reply);
            assert_eq!(reply[..3], expected[..3], "{numbers}");
            // A busy machine may take some seconds of it.
            for (seconds, expected) in reply[3..].iter().zip(&expected[3..]) {
                assert!((expected - 30..=*expected).contains(seconds), "{reply:?}");
            }
        }
        let consume = |cost: u64, capacity: u64| {
            let body = format!(
                r#"{{"rule_id":"x","identity":"u","cost":{cost},"capacity":{capacity},"refill_tokens_per_second":0.01}}"#
            );
            let answer = service.http().post("/v1/consume", &body);
            let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            let seconds = answer["retry_after_ms"].as_u64().unwrap().div_ceil(1_000);
            (answer["allowed"].as_bool().unwrap(), seconds)
        };
        assert_eq!(consume(100, 100), (true, 0));
        for (capacity, expected) in [(1, 10_000), (100, 100)] {
            let (allowed, seconds) = consume(1, capacity);
            assert!(!allowed);
            assert!((expected - 30..=expected).contains(&seconds), "{seconds}");
        }
    }
}

#[test]
fn keys_may_be_any_bytes() {
    let (_service, mut cli) = start(NO_RULES);
    let long = [b'x'; 64 * 1024];
    for key in [&b""[..], b"\0", b"\xff\r\n", b"a", b"A", &long] {
        let command = [&b"CL.THROTTLE"[..], key, b"0", b"1", b"100"];
        assert_eq!(integers(&cli.command(&command)), [0, 1, 0, -1, 100]);
    }
}

#[test]
fn invalid_arguments_are_errors_and_the_connection_stays_open() {
    let (_service, mut cli) = start(NO_RULES);
    for (arguments, error) in [
        (
            "k 1 1",
            "ERR wrong number of arguments for 'cl.throttle' command",
        ),
        (
            "k 1 1 1 1 1",
            "ERR wrong number of arguments for 'cl.throttle' command",
        ),
        (
            "k a 1 1",
            "ERR value is not an integer or out of range: max_burst",
        ),
        (
            "k 1 1.5 1",
            "ERR value is not an integer or out of range: count",
        ),
        ("k -1 1 1", "ERR max_burst must be from 0 to 999999999"),
        (
            "k 1000000000 1 1",
            "ERR max_burst must be from 0 to 999999999",
        ),
        ("k 1 0 1", "ERR count must be from 1 to 1000000000"),
        ("k 1 1 0", "ERR period must be from 1 to 31622400"),
        ("k 1 1 31622401", "ERR period must be from 1 to 31622400"),
        ("k 1 1 1 -1", "ERR quantity must not be negative"),
        (
            "k 10 1 31622400",
            "ERR (max_burst + 1) * period / count must be at most 316224000 seconds",
        ),
    ] {
        let reply = run(&mut cli, &format!("CL.THROTTLE {arguments}"));
        assert_eq!(reply.error(), Some(error), "{arguments}");
    }
    assert_eq!(run(&mut cli, "PING").text(), "PONG");
}
