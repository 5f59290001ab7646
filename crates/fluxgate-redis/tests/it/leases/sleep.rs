//! A machine that sleeps: its monotonic clock stops, but leases still end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use fluxgate_core::Limiter;
use fluxgate_testkit::{RedisServer, SleepyClock, wait_until};

use super::leased;
use crate::support::{store_at, user};

/// The address of the server that a child process uses.
const SERVER: &str = "FLUXGATE_TEST_SLEEPER_SERVER";

#[test]
fn a_lease_ends_while_the_machine_sleeps() {
    let server = RedisServer::start();
    let clock = SleepyClock::new();
    let mut sleeper = Command::new(std::env::current_exe().unwrap());
    let name = "leases::sleep::an_instance_on_a_machine_that_sleeps";
    sleeper.args(["--exact", name, "--ignored", "--nocapture"]);
    sleeper.env(SERVER, server.url());
    sleeper.stdin(Stdio::piped()).stdout(Stdio::piped());
    clock.apply(&mut sleeper);
    let mut sleeper = sleeper.spawn().unwrap();

    let mut output = BufReader::new(sleeper.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("leased") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    clock.stop();
    let mut cli = server.cli();
    wait_until("the lease has ended", || cli.keys("*lease*").is_empty());
    sleeper
        .stdin
        .take()
        .unwrap()
        .write_all(b"wake up\n")
        .unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(sleeper.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("0 decided here"), "{rest}");
}

#[test]
#[ignore = "another test runs it, in a process of its own"]
fn an_instance_on_a_machine_that_sleeps() {
    let Ok(url) = std::env::var(SERVER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let band = "{ capacity: 1000, window: 300d }";
        let rules = leased("share: 50%, for: 1s", "fixed_window", band);
        let limiter = Limiter::new(rules, store_at(url).build().unwrap());
        let counts = || limiter.store().lease_counts();
        while counts().on_lease < 2 {
            assert!(limiter.check("api", &user("ann")).await.allowed());
        }
        println!("leased");
        // The keeper does not run meanwhile.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let before = counts().allowed;
        assert!(limiter.check("api", &user("ann")).await.allowed());
        println!("{} decided here", counts().allowed - before);
    });
}
