//! Services with a store in Redis.

use std::thread;

use fluxgate_testkit::{Cli, RedisServer};

use super::super::Service;
use super::{connect, integers, run, start};

fn config(server: &RedisServer) -> String {
    // A long deadline, because the test machine may be busy.
    format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\nrule_sets: {{}}\n",
        server.url()
    )
}

/// Sends commands in pipelines of 100. Returns how many were allowed.
fn count_allowed(cli: &mut Cli, calls: usize, key: impl Fn(usize) -> String) -> usize {
    let mut allowed = 0;
    for start in (0..calls).step_by(100) {
        for index in start..start + 100 {
            let key = key(index);
            cli.send(&["CL.THROTTLE", &key, "999", "1", "100000"])
                .unwrap();
        }
        for _ in 0..100 {
            let reply = cli.receive().unwrap();
            allowed += usize::from(integers(&reply)[0] == 0);
        }
    }
    allowed
}

#[test]
fn two_services_on_one_redis_share_a_limit_exactly() {
    let server = RedisServer::start();
    let services = [0, 1].map(|_| Service::start(&["resp"], &config(&server)));
    let total: usize = thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let service = &services[caller % 2];
                scope.spawn(move || count_allowed(&mut connect(service), 300, |_| "one".into()))
            })
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum()
    });
    assert_eq!(total, 1_000);
}

#[test]
fn a_pipeline_on_redis_is_answered_and_charged_in_order() {
    let server = RedisServer::start();
    let (_service, mut cli) = start(&config(&server));
    // Repeated keys in turn, with other commands in between.
    let commands = 1_000;
    for index in 0..commands {
        let key = format!("key-{}", index % 7);
        cli.send(&["CL.THROTTLE", &key, "999", "1", "100000"])
            .unwrap();
        if index % 50 == 0 {
            cli.send(&["ECHO", &key]).unwrap();
        }
    }
    for index in 0..commands {
        let reply = integers(&cli.receive().unwrap());
        assert_eq!(reply[..3], [0, 1_000, 999 - index / 7], "{index}");
        if index % 50 == 0 {
            assert_eq!(cli.receive().unwrap().text(), format!("key-{}", index % 7));
        }
    }
}

#[test]
fn a_pipeline_with_different_keys_needs_few_calls_to_redis() {
    let server = RedisServer::start();
    let (_service, mut cli) = start(&config(&server));
    assert_eq!(integers(&run(&mut cli, "CL.THROTTLE a 0 1 100"))[0], 0);
    let mut redis = server.cli();
    redis.command(&["CONFIG", "RESETSTAT"]).expect_ok();
    let calls = 1_000;
    assert_eq!(
        count_allowed(&mut cli, calls, |index| format!("key-{index}")),
        calls
    );
    let scripts = redis.calls("evalsha") + redis.calls("eval");
    assert!(scripts < 250, "{scripts} calls for {calls} decisions");
}
