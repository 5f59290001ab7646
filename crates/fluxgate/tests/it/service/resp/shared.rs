//! Several services on one Redis.

use std::thread;

use fluxgate_testkit::{Cli, RedisServer};

use super::super::Service;
use super::{ask, connect, integers, start};

fn on(server: &RedisServer) -> String {
    // The deadline is for a busy test machine.
    format!(
        "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\nrule_sets: {{}}\n",
        server.url()
    )
}

/// How many of so many calls, in pipelines, were admitted.
fn admitted(cli: &mut Cli, calls: usize, key: impl Fn(usize) -> String) -> usize {
    let mut admitted = 0;
    for start in (0..calls).step_by(100) {
        for index in start..start + 100 {
            let key = key(index);
            cli.send(&["CL.THROTTLE", &key, "999", "1", "100000"])
                .unwrap();
        }
        for _ in 0..100 {
            let reply = cli.receive().unwrap();
            admitted += usize::from(integers(&reply)[0] == 0);
        }
    }
    admitted
}

#[test]
fn two_services_on_one_redis_share_a_limit_exactly() {
    let server = RedisServer::start();
    let services = [0, 1].map(|_| Service::start(&["resp"], &on(&server)));
    let total: usize = thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let service = &services[caller % 2];
                scope.spawn(move || admitted(&mut connect(service), 300, |_| "one".into()))
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
    let (_service, mut cli) = start(&on(&server));
    // Keys that come again, others between them, and other commands.
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
fn a_pipeline_of_different_keys_travels_together() {
    let server = RedisServer::start();
    let (_service, mut cli) = start(&on(&server));
    assert_eq!(integers(&ask(&mut cli, "CL.THROTTLE a 0 1 100"))[0], 0);
    let mut redis = server.cli();
    redis.command(&["CONFIG", "RESETSTAT"]).expect_ok();
    let calls = 1_000;
    assert_eq!(
        admitted(&mut cli, calls, |index| format!("key-{index}")),
        calls
    );
    let scripts = redis.calls("evalsha") + redis.calls("eval");
    assert!(scripts < 250, "{scripts} calls for {calls} decisions");
}
